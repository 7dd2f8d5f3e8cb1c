//! Changed first messages, and changed bodies of every route that takes one. `fuzz/README.md` says how to try more of them.

use serde::de::DeserializeOwned;

use super::request;
use super::session::Closing;
use crate::extract::parse;
use crate::fuzz::{Target, run};
use crate::wire::{
    AnalyzeBody, ApplyBody, ApprovalBody, AskBody, CancelBody, ChatBody, EmbedBody, FinetuneBody, ForkBody, ImportBody,
    ImproveBody, IngestBody, LoginBody, MemoryChatBody, QueryBody, ReembedBody, RevertBody, RunBody, SearchBody,
    ToolCallBody, TuneBody, TurnBody,
};

const WORDS: &[&str] = &[
    "\"task\":",
    "null",
    "true",
    "[",
    "{\"a\":",
    "\\u0000",
    "\\ud800",
    "1e999",
    "-1",
    "9223372036854775808",
    "\u{202e}",
    ",\"tokens\":true",
    "\"namespace\":\"../x\"",
];

fn corpus() -> Vec<Vec<u8>> {
    [
        r#"{"task":"what is 2 + 2","agent":"react","model":"m","max_iters":3,"tools":["calculator"],"budget":{"tokens":10,"seconds":5},"tokens":true}"#,
        r#"{"task":"x","session":"s","session_policy":"enqueue","approval":"always","metadata":{"a":[1,{"b":null}]},"temperature":0.5}"#,
        r#"{"source":"/tmp/x","collection":"c","namespace":"team","chunk_size":200,"include":["*.md"]}"#,
        r#"{"query":"wing","collection":"c","k":3,"mode":"hybrid","filter":{"documents":["doc_x"],"metadata":{"a":"b"}}}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"model":"m","stream":true}"#,
        r#"{"arguments":{"expression":"1+1"},"confirm":true}"#,
        r#"{"sql":"SELECT 1","namespace":"default"}"#,
        r#"{"dataset":"d","base":"b","method":"lora","lora":{"rank":8,"alpha":16},"epochs":1}"#,
        r#"{"step":4,"decision":"approve","note":"yes"}"#,
        r#"{"role":"user","content":"hello","session":"s"}"#,
        r#"{}"#,
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect()
}

#[test]
fn websocket_messages_start_a_run_or_close_with_a_code() {
    let corpus = corpus();
    run(&Target { name: "websocket_messages", corpus: &corpus, words: WORDS, inputs: 5_000 }, |bytes| {
        // Frames of text are UTF-8 when they come here: the socket has seen to that.
        if let Err(error) = request(&String::from_utf8_lossy(bytes)) {
            let code = Closing::of_request(error).code();
            assert!(matches!(code, 1007 | 1008), "closed with {code}");
        }
    });
}

/// Read, or refused as what a client got wrong.
fn tried<T: DeserializeOwned>(bytes: &[u8]) {
    if let Err(error) = parse::<T>(bytes) {
        let problem = error.problem();
        assert!(matches!(problem.status, 400 | 422) && !problem.detail.is_empty(), "{problem:?}");
    }
}

#[test]
fn http_bodies_are_read_or_refused() {
    let corpus = corpus();
    run(&Target { name: "http_bodies", corpus: &corpus, words: WORDS, inputs: 2_000 }, |bytes| {
        tried::<AnalyzeBody>(bytes);
        tried::<ApplyBody>(bytes);
        tried::<ApprovalBody>(bytes);
        tried::<AskBody>(bytes);
        tried::<CancelBody>(bytes);
        tried::<ChatBody>(bytes);
        tried::<EmbedBody>(bytes);
        tried::<FinetuneBody>(bytes);
        tried::<ForkBody>(bytes);
        tried::<ImportBody>(bytes);
        tried::<ImproveBody>(bytes);
        tried::<IngestBody>(bytes);
        tried::<LoginBody>(bytes);
        tried::<MemoryChatBody>(bytes);
        tried::<QueryBody>(bytes);
        tried::<ReembedBody>(bytes);
        tried::<RevertBody>(bytes);
        tried::<RunBody>(bytes);
        tried::<SearchBody>(bytes);
        tried::<ToolCallBody>(bytes);
        tried::<TuneBody>(bytes);
        tried::<TurnBody>(bytes);
    });
}
