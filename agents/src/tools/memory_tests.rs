use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_schemas::{RunId, Session};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::memory_recall::MemoryRecall;
use super::note::Note;
use super::{Tool, ToolContext};
use crate::memory::{ContextRequest, Memory, MemoryContext, MemoryError, MemoryScope, NewNote, RecalledMemory};

/// Remembers what it was asked and told.
#[derive(Default)]
struct Heard {
    asked: Mutex<Vec<(Session, ContextRequest)>>,
    noted: Mutex<Vec<(Session, NewNote)>>,
}

#[async_trait]
impl Memory for Heard {
    async fn context(&self, session: &Session, request: &ContextRequest) -> Result<MemoryContext, MemoryError> {
        self.asked.lock().push((session.clone(), request.clone()));
        let memory = |n: usize| RecalledMemory {
            id: format!("epi_{n}"),
            kind: "episode".into(),
            text: "words ".repeat(1_000),
            score: 0.5,
            turn_ids: vec![],
            run_id: None,
        };
        Ok(MemoryContext { episodes: (0..20).map(memory).collect(), ..MemoryContext::default() })
    }

    async fn note(&self, session: &Session, note: NewNote) -> Result<(), MemoryError> {
        self.noted.lock().push((session.clone(), note));
        Ok(())
    }
}

fn scope(name: &str) -> MemoryScope {
    let session = Session::new("team".parse().unwrap(), name.parse().unwrap());
    MemoryScope { session, run_id: RunId::derive(&["r"]), behind: None }
}

fn context(memory: Option<MemoryScope>) -> ToolContext {
    ToolContext {
        namespace: "team".parse().unwrap(),
        collections: None,
        call_id: "call-1".into(),
        cancel: CancellationToken::new(),
        memory,
    }
}

#[tokio::test]
async fn given_a_run_of_a_conversation_when_it_recalls_then_only_that_one_is_asked_and_the_result_fits_on_the_log() {
    let heard = Arc::new(Heard::default());
    let tool = MemoryRecall::new(heard.clone());
    let result = tool.call(json!({ "query": "dog", "k": 20 }), &context(Some(scope("s")))).await.unwrap();
    let asked = heard.asked.lock().clone();
    assert_eq!((&asked[0].0, asked[0].1.k), (&scope("s").session, 20));
    assert!(result.to_string().len() <= 48 << 10);
    assert_eq!(result["episodes"].as_array().unwrap().len(), 8, "the nearest stay");
    assert_eq!(result["episodes"][0]["id"], "epi_0");
}

#[tokio::test]
async fn given_the_same_call_twice_when_it_notes_then_it_is_one_note_that_names_its_run() {
    let heard = Arc::new(Heard::default());
    let tool = Note::new(heard.clone());
    for _ in 0..2 {
        tool.call(json!({ "text": " the dog is Rex " }), &context(Some(scope("s")))).await.unwrap();
    }
    let noted = heard.noted.lock().clone();
    assert_eq!(noted[0], noted[1]);
    assert_eq!((noted[0].1.text.as_str(), noted[0].1.run_id), ("the dog is Rex", Some(RunId::derive(&["r"]))));
    let other = ToolContext { call_id: "call-2".into(), ..context(Some(scope("s"))) };
    tool.call(json!({ "text": "the dog is Rex" }), &other).await.unwrap();
    assert_ne!(heard.noted.lock()[2].1.note_id, noted[0].1.note_id);
}

#[tokio::test]
async fn given_a_run_without_a_conversation_or_a_bad_text_when_memory_is_used_then_the_model_is_told_why_not() {
    let heard = Arc::new(Heard::default());
    let (recall, note) = (MemoryRecall::new(heard.clone()), Note::new(heard.clone()));
    let error = recall.call(json!({ "query": "x" }), &context(None)).await.unwrap_err();
    assert!(error.to_string().contains("no conversation"), "{error}");
    assert!(note.call(json!({ "text": "x" }), &context(None)).await.is_err());
    for text in ["", "  ", &"x".repeat(2_001)] {
        assert!(note.call(json!({ "text": text }), &context(Some(scope("s")))).await.is_err());
    }
    assert!(heard.asked.lock().is_empty() && heard.noted.lock().is_empty());
}
