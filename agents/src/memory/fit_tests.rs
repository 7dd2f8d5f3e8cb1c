//! given a conversation and a model's context, when words are to be sent, then as much of the conversation goes with them as
//! fits, and what is left out is told.

use async_trait::async_trait;
use riverrun_models::{ChatReply, DeltaSink, EmbedPurpose, EmbedReply, Message, Reranker};
use riverrun_schemas::{SummaryId, TurnId};
use riverrun_stores::read_models::{SummaryView, Timestamp, TurnView};
use tokio_util::sync::CancellationToken;

use super::super::RecalledMemory;
use super::*;

const TEXT: &str = "what now";

/// A model of which only the size is known: it counts each word as a token, or can't count at all.
struct OfSize {
    context: Option<usize>,
    counts: bool,
}

fn unsupported(what: &str) -> ModelError {
    ModelError::Unsupported { provider: "test".to_owned(), what: what.to_owned() }
}

#[async_trait]
impl LanguageModels for OfSize {
    async fn embed(
        &self,
        _model: Option<&str>,
        _inputs: Vec<String>,
        _purpose: EmbedPurpose,
    ) -> Result<EmbedReply, ModelError> {
        Err(unsupported("embed"))
    }

    fn reranker(&self) -> Reranker {
        Reranker::Off
    }

    async fn rerank(&self, _query: String, _documents: Vec<String>) -> Result<Vec<f32>, ModelError> {
        Err(unsupported("re-rank"))
    }

    async fn chat(
        &self,
        _provider: Option<&str>,
        _request: ChatRequest,
        _sink: &mut dyn DeltaSink,
        _cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        Err(unsupported("chat"))
    }

    async fn count_prompt(&self, _provider: Option<&str>, request: &ChatRequest) -> Result<usize, ModelError> {
        let words = |message: &Message| message.content.split_whitespace().count();
        if self.counts { Ok(request.messages.iter().map(words).sum()) } else { Err(unsupported("count")) }
    }

    async fn context_tokens(&self, _provider: Option<&str>, _model: &str) -> Result<usize, ModelError> {
        self.context.ok_or_else(|| unsupported("tell the size of the context"))
    }
}

/// A turn of so many words.
fn turn(seq: i64, words: usize) -> TurnView {
    TurnView {
        turn_id: TurnId::derive(&[&seq.to_string()]),
        seq,
        role: if seq % 2 == 1 { "user" } else { "assistant" }.to_owned(),
        text: format!("turn-{seq} {}", "word ".repeat(words)),
        namespace: "team".parse().unwrap(),
        session: "s".parse().unwrap(),
        run_id: None,
        at: Timestamp(0),
    }
}

fn memory(n: usize, words: usize) -> RecalledMemory {
    RecalledMemory {
        id: format!("epi_{n}"),
        kind: "episode".to_owned(),
        text: format!("memory-{n} {}", "word ".repeat(words)),
        score: 0.5,
        turn_ids: Vec::new(),
        run_id: None,
    }
}

/// Ten turns, two memories and a summary, each of so many words.
fn conversation_of(words: usize) -> MemoryContext {
    MemoryContext {
        turns: (1..=10).map(|seq| turn(seq, words)).collect(),
        summary: Some(SummaryView {
            summary_id: SummaryId::derive(&["s"]),
            through_seq: 0,
            text: format!("summary {}", "word ".repeat(words)),
            model: "m".to_owned(),
            at: Timestamp(0),
        }),
        episodes: vec![memory(1, words), memory(2, words)],
        ..MemoryContext::default()
    }
}

fn prompt(shown: &Shown) -> String {
    let request = chat_request(&ChatRequest::default(), &shown.context, TEXT);
    request.messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n")
}

async fn fitted(models: &OfSize, context: MemoryContext, refused: Option<ModelError>) -> Result<Shown, ModelError> {
    fit(models, None, &ChatRequest::default(), Shown::whole(context), TEXT, refused).await
}

#[tokio::test]
async fn given_room_or_nobody_who_tells_of_any_when_words_are_sent_then_nothing_is_left_out() {
    let whole = Shown::whole(conversation_of(100));
    for (context, counts) in
        [(Some(1 << 20), true), (Some(1 << 20), false), (Some(4_096), true), (None, true), (None, false)]
    {
        let models = OfSize { context, counts };
        assert_eq!(fitted(&models, conversation_of(100), None).await.unwrap(), whole, "{context:?} {counts}");
    }
}

#[tokio::test]
async fn given_a_small_context_when_words_are_sent_then_the_rest_fits_and_what_is_missing_is_told() {
    for context in [1_200, 1_000, 700, 400, 200] {
        for counts in [true, false] {
            let models = OfSize { context: Some(context), counts };
            let shown = fitted(&models, conversation_of(100), None).await.unwrap();
            let left_out = shown.left_out.unwrap();
            assert_eq!((left_out.context_tokens, left_out.estimated), (context, !counts));
            assert!(left_out.tokens_after < left_out.tokens_before, "{left_out:?}");
            // What is told is what is missing.
            let rest = &shown.context;
            assert_eq!((rest.turns.len() + left_out.turns, rest.episodes.len() + left_out.memories), (10, 2));
            assert_eq!(rest.summary.is_none(), left_out.summary);
            let said = prompt(&shown);
            assert!(said.ends_with(TEXT), "the new words stay");
            for seq in 1..=10 {
                let kept = usize::try_from(seq).unwrap() > left_out.turns;
                assert_eq!(said.contains(&format!("turn-{seq} ")), kept, "the oldest go first: {left_out:?}");
            }
            assert!(left_out.turns == 0 || left_out.memories == 2, "memories go before turns");
            assert!(!left_out.summary || left_out.turns == 10, "turns go before the summary");
            if counts {
                let room = Room::new(Some(context), ANSWER_TOKENS);
                assert!(room.is_possible(left_out.tokens_after), "{context}: {left_out:?}");
            }
        }
    }
}

#[tokio::test]
async fn given_words_that_do_not_fit_alone_when_they_are_sent_then_they_are_refused_with_both_numbers() {
    let text = "some words ".repeat(5_000);
    for counts in [true, false] {
        for context in [MemoryContext::default(), conversation_of(10)] {
            let models = OfSize { context: Some(600), counts };
            let error =
                fit(&models, None, &ChatRequest::default(), Shown::whole(context), &text, None).await.unwrap_err();
            match error {
                ModelError::ContextOverflow { tokens, limit: 600, .. } => assert!(tokens > 600, "{tokens}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn given_a_server_that_refuses_when_words_are_sent_again_then_less_is_shown_each_time_until_nothing_is_left() {
    let refusal = || ModelError::ContextOverflow { model: "m".to_owned(), tokens: 0, limit: 0 };
    let models = OfSize { context: None, counts: false };
    let mut shown = Shown::whole(conversation_of(50));
    let mut before = usize::MAX;
    for _ in 0..20 {
        match fit(&models, None, &ChatRequest::default(), shown.clone(), TEXT, Some(refusal())).await {
            Ok(smaller) => {
                let left_out = smaller.left_out.unwrap();
                assert!(left_out.tokens_after < before, "{left_out:?}");
                assert_eq!(smaller.context.turns.len() + left_out.turns, 10, "what is left out adds up");
                before = left_out.tokens_after;
                shown = smaller;
            }
            Err(error) => {
                assert_eq!(error, refusal());
                assert!(shown.context.turns.is_empty() && shown.context.summary.is_none());
                return;
            }
        }
    }
    panic!("it never ends: {:?}", shown.left_out);
}
