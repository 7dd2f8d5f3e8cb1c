//! What holds for every provider behind HTTP, whatever it speaks: streams in any blocks, typed errors, bounded memory, closed connections,
//! and keys that do not show.

mod support;

use std::time::Duration;

use riverrun_models::{
    Access, EmbedPurpose, EmbedRequest, FinishReason, ModelError, ModelSettings, Models, NoDeltas, RerankRequest,
    Secret,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use support::frames::event;
use support::{Of, RawServer, Script, ask};

const CANARY: &str = "sk-canary-0815";
const TEXT: &str = "Größe 日本 🦀";

#[derive(Clone, Copy, PartialEq)]
enum Wire {
    OpenAi,
    Anthropic,
    Gemini,
    Cohere,
    Bedrock,
    Ollama,
    /// OpenAI's without chats.
    Vectors,
}

/// Every row of the table, with what it speaks.
const ALL: [(&str, Wire); 17] = [
    ("ollama", Wire::Ollama),
    ("openai", Wire::OpenAi),
    ("anthropic", Wire::Anthropic),
    ("gemini", Wire::Gemini),
    ("mistral", Wire::OpenAi),
    ("groq", Wire::OpenAi),
    ("deepseek", Wire::OpenAi),
    ("openrouter", Wire::OpenAi),
    ("together", Wire::OpenAi),
    ("azure", Wire::OpenAi),
    ("cohere", Wire::Cohere),
    ("bedrock", Wire::Bedrock),
    ("voyage", Wire::Vectors),
    ("jina", Wire::Vectors),
    ("lmstudio", Wire::OpenAi),
    ("vllm", Wire::OpenAi),
    ("llamacpp", Wire::OpenAi),
];

fn chatting() -> impl Iterator<Item = (&'static str, Wire)> {
    ALL.into_iter().filter(|(_, wire)| *wire != Wire::Vectors)
}

fn at(name: &'static str, address: &str) -> Of {
    let quick = |settings: &mut ModelSettings| settings.idle_timeout = Duration::from_millis(300);
    support::provider(name, address, CANARY, quick)
}

/// The stream of an answer in the documented shape: the text in two pieces, 12 tokens read and 3 written.
fn stream(wire: Wire) -> Vec<u8> {
    if wire == Wire::Bedrock {
        return frames().concat();
    }
    lines(wire).into_bytes()
}

/// That of Bedrock, frame by frame.
fn frames() -> Vec<Vec<u8>> {
    let (one, two) = TEXT.split_at(TEXT.find(' ').unwrap());
    let piece = |text: &str| json!({"contentBlockIndex": 0, "delta": {"text": text}, "p": "abc"});
    let usage = json!({"inputTokens": 2, "cacheReadInputTokens": 10, "outputTokens": 3, "totalTokens": 15});
    let events = [
        ("messageStart", json!({"role": "assistant", "p": "ab"})),
        ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "hm"}}})),
        ("contentBlockDelta", piece(one)),
        ("contentBlockDelta", piece(two)),
        ("contentBlockStop", json!({"contentBlockIndex": 0})),
        ("messageStop", json!({"stopReason": "end_turn"})),
        ("metadata", json!({"usage": usage, "metrics": {"latencyMs": 7}})),
    ];
    events.iter().map(|(kind, payload)| event(kind, &payload.to_string())).collect()
}

/// That of the others.
fn lines(wire: Wire) -> String {
    let sse = |events: &[Value]| events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>();
    let (one, two) = TEXT.split_at(TEXT.find(' ').unwrap());
    match wire {
        Wire::OpenAi | Wire::Vectors => {
            let chunk = |delta: Value, finish: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            let body = sse(&[
                chunk(json!({"role": "assistant", "content": one}), Value::Null),
                chunk(json!({"content": two}), Value::Null),
                chunk(json!({}), json!("stop")),
                json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}}),
            ]);
            format!("{body}data: [DONE]\n\n")
        }
        Wire::Anthropic => {
            let piece = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
            let events = [
                json!({"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 2, "cache_read_input_tokens": 10, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "ping"}),
                piece(one),
                piece(two),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 3}}),
                json!({"type": "message_stop"}),
            ];
            events
                .iter()
                .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
                .collect()
        }
        Wire::Gemini => {
            let piece = |text: &str| json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}]});
            sse(&[
                json!({"candidates": [{"content": {"parts": [{"text": "hm", "thought": true}]}}]}),
                piece(one),
                piece(two),
                json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 2, "thoughtsTokenCount": 1, "totalTokenCount": 15}}),
            ])
        }
        Wire::Cohere => {
            let piece = |text: &str| json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}});
            sse(&[
                json!({"type": "message-start", "id": "1", "delta": {"message": {"role": "assistant"}}}),
                piece(one),
                piece(two),
                json!({"type": "content-end", "index": 0}),
                json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {"billed_units": {"input_tokens": 9.0}, "tokens": {"input_tokens": 12.0, "output_tokens": 3.0}}}}),
            ])
        }
        Wire::Ollama => {
            let lines = [
                json!({"message": {"role": "assistant", "content": one}, "done": false}),
                json!({"message": {"role": "assistant", "content": two}, "done": false}),
                json!({"message": {"content": ""}, "done": true, "done_reason": "stop", "prompt_eval_count": 12, "eval_count": 3}),
            ];
            lines.iter().map(|line| format!("{line}\n")).collect()
        }
        Wire::Bedrock => unreachable!("it sends frames"),
    }
}

/// The first event of [`stream`] that shows text.
fn first_piece(wire: Wire) -> Vec<u8> {
    if wire == Wire::Bedrock {
        return frames().swap_remove(2);
    }
    let stream = lines(wire);
    let end = stream.find("Größe").unwrap();
    let line = end + stream[end..].find('\n').unwrap();
    format!("{}\n\n", &stream[..line]).into_bytes()
}

async fn chat_error(name: &'static str, address: &str) -> ModelError {
    at(name, address).chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err()
}

fn vectors_of(name: &'static str) -> EmbedRequest {
    EmbedRequest {
        model: name.into(),
        inputs: vec!["a".into(), "b".into()],
        purpose: EmbedPurpose::Query,
        dimensions: None,
    }
}

#[track_caller]
fn assert_hidden(what: &str) {
    assert!(!what.contains("canary"), "{what}");
}

#[tokio::test]
async fn given_a_stream_in_any_blocks_when_chatting_then_text_usage_and_finish_are_right() {
    for (name, wire) in chatting() {
        let body = stream(wire);
        for size in [1, 17, 100_000] {
            let blocks = body.chunks(size).map(<[u8]>::to_vec).collect();
            let server = RawServer::start(Script::Blocks(blocks)).await;
            let mut shown = String::new();
            let mut sink = |text: &str| shown.push_str(text);
            let provider = support::provider(name, &server.address, CANARY, |_| ());
            let reply = provider.chat(ask("m", "hi"), &mut sink, CancellationToken::new()).await.unwrap();
            assert_eq!((reply.text.as_str(), reply.finish), (TEXT, FinishReason::Stop), "{name}");
            assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), (12, 3), "{name}");
            assert_eq!(shown, reply.text, "{name}");
        }
    }
}

#[tokio::test]
async fn given_refusals_when_a_provider_is_asked_then_errors_are_typed_with_a_fix_and_the_key_does_not_show() {
    for (name, wire) in ALL {
        for (status, code) in [
            (401, "model_unauthorized"),
            (403, "model_unauthorized"),
            (404, "model_missing"),
            (400, "model_bad_request"),
            (429, "model_rate_limited"),
            (500, "model_bad_response"),
            (302, "model_bad_response"),
        ] {
            let server = MockServer::start().await;
            let said = format!("no: {CANARY} is what you sent");
            let answer = ResponseTemplate::new(status)
                .insert_header("retry-after", "3600")
                .insert_header("location", "http://127.0.0.1:1/")
                .set_body_json(json!({"error": {"message": said}}));
            Mock::given(any()).respond_with(answer).expect(1).mount(&server).await;
            let provider = at(name, &server.uri());
            let error = match wire {
                Wire::Vectors => provider.embed(vectors_of(name)).await.unwrap_err(),
                _ => provider.chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err(),
            };
            assert_eq!(error.code(), code, "{name} {status}: {error}");
            let must_help = matches!(status, 401 | 403 | 404 | 429);
            assert!(!must_help || error.hint().is_some(), "{name} {status}");
            assert_hidden(&format!("{error} {error:?} {:?}", error.hint()));
        }
    }
}

#[tokio::test]
async fn given_a_busy_service_when_it_asks_for_a_short_wait_then_the_request_is_sent_again() {
    for (name, wire) in chatting() {
        for status in [429, 503, 529] {
            let server = MockServer::start().await;
            let busy = ResponseTemplate::new(status).insert_header("retry-after", "0");
            Mock::given(any()).respond_with(busy).up_to_n_times(1).expect(1).mount(&server).await;
            let answer = ResponseTemplate::new(200).set_body_bytes(stream(wire));
            Mock::given(any()).respond_with(answer).expect(1).mount(&server).await;
            let provider = at(name, &server.uri());
            let reply = provider.chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap();
            assert_eq!(reply.text, TEXT, "{name} {status}");
        }
    }
}

#[tokio::test]
async fn given_broken_streams_when_chatting_then_the_error_is_typed_and_memory_is_bounded() {
    let mut flooded = Vec::new();
    for (name, wire) in chatting() {
        let piece = first_piece(wire);
        // One provider of each protocol is enough for what takes its time.
        let flood = match String::from_utf8(piece.clone()) {
            _ if flooded.contains(&wire) => vec![b'x'; 1 << 20],
            Ok(text) => text.replace("Größe", &"Größe".repeat(200)).repeat(1_000).into_bytes(),
            // Frames, whose sums are of what is in them.
            Err(_) => piece.repeat(10_000),
        };
        let writes_much = !flooded.contains(&wire);
        flooded.push(wire);
        let broken: &[u8] = if wire == Wire::Ollama { b"{half\n" } else { b"data: {half\n\n" };
        let mut half = TEXT.as_bytes()[..3].to_vec();
        half.splice(0..0, piece.iter().copied());
        for (what, script, code) in [
            ("hang", Script::ThenHang(piece.clone()), "model_timeout"),
            ("reset", Script::ThenCut(piece.clone()), "model_bad_response"),
            ("early end", Script::Blocks(vec![piece.clone()]), "model_bad_response"),
            ("half a character", Script::Blocks(vec![half]), "model_bad_response"),
            ("broken JSON", Script::Blocks(vec![piece.clone(), broken.to_vec()]), "model_bad_response"),
            ("endless", Script::Forever(flood), "model_bad_response"),
            ("endless line", Script::Forever(vec![b'x'; 1 << 20]), "model_bad_response"),
        ] {
            let server = RawServer::start(script).await;
            let error = chat_error(name, &server.address).await;
            assert_eq!(error.code(), code, "{name} {what}: {error}");
            // Long before the stream is: many runs may meet such a model at the same time.
            let is_long = error.to_string().contains("an answer of more than 1048576 bytes");
            assert_eq!(is_long, what == "endless" && writes_much, "{name} {what}: {error}");
            assert_hidden(&format!("{error} {error:?}"));
        }
        let gone = chat_error(name, "http://127.0.0.1:9").await;
        assert_eq!(gone.code(), "model_runtime_down", "{name}: {gone}");
        assert!(gone.hint().unwrap().contains("RIVERRUN_"), "{name}: {:?}", gone.hint());
    }
}

#[tokio::test]
async fn given_a_running_chat_when_it_is_cancelled_then_the_connection_closes() {
    for (name, wire) in chatting() {
        let server = RawServer::start(Script::ThenHang(first_piece(wire))).await;
        let cancel = CancellationToken::new();
        let stop = cancel.clone();
        let mut sink = move |_: &str| stop.cancel();
        let provider = support::provider(name, &server.address, CANARY, support::without_time_outs);
        let reply = provider.chat(ask("m", "x"), &mut sink, cancel).await.unwrap();
        assert_eq!((reply.finish, reply.text.as_str()), (FinishReason::Cancelled, "Größe"), "{name}");
        support::closes(&server, name).await;
    }
}

#[tokio::test]
async fn given_a_key_when_anything_is_asked_then_it_goes_into_its_header_and_nowhere_else() {
    for (name, wire) in ALL {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(ResponseTemplate::new(200).set_body_string("nonsense")).mount(&server).await;
        let provider = at(name, &server.uri());
        let mut said = Vec::new();
        said.push(provider.list_models().await.unwrap_err());
        said.push(provider.embed(vectors_of(name)).await.unwrap_err());
        let rerank = RerankRequest { model: "r".into(), query: "q".into(), documents: vec!["a".into()] };
        said.push(provider.rerank(rerank).await.unwrap_err());
        said.push(provider.count_tokens("m", "x").await.unwrap_err());
        said.push(provider.count_prompt(&ask("m", "x")).await.unwrap_err());
        said.push(provider.context_tokens("m").await.err().unwrap_or(ModelError::Cancelled));
        if wire != Wire::Vectors {
            said.push(chat_error(name, &server.uri()).await);
        }
        assert_hidden(&format!("{said:?}"));
        let header = match wire {
            Wire::Anthropic => "x-api-key",
            Wire::Gemini => "x-goog-api-key",
            _ if name == "azure" => "api-key",
            _ => "authorization",
        };
        for request in server.received_requests().await.unwrap() {
            let Request { url, headers, body, .. } = request;
            let sent = headers.get(header).unwrap_or_else(|| panic!("{name}: {url} has no {header}"));
            assert!(sent.to_str().unwrap().contains(CANARY), "{name}");
            assert_hidden(url.as_str());
            assert_hidden(&String::from_utf8_lossy(&body));
            let others = headers.iter().filter(|(other, _)| *other != header);
            others.for_each(|(_, value)| assert_hidden(value.to_str().unwrap_or_default()));
        }
    }
}

#[tokio::test]
async fn given_a_server_behind_a_gate_when_it_is_asked_then_login_and_headers_are_sent_and_show_nowhere_else() {
    for (name, _) in ALL {
        let server = MockServer::start().await;
        let quoted = format!("{{\"error\": \"Basic YW5uOnNrLWNhbmFyeS0wODE1 of ann:{CANARY} through {CANARY}\"}}");
        Mock::given(any()).respond_with(ResponseTemplate::new(401).set_body_string(quoted)).mount(&server).await;
        let secret = Secret::new(CANARY).unwrap();
        let access = Access::default().with_login("ann", &secret).unwrap().with_header("X-Gate", &secret).unwrap();
        let enter = |settings: &mut ModelSettings| {
            settings.keys.clear();
            settings.access.insert(name.to_owned(), access);
        };
        let error = support::provider(name, &server.uri(), CANARY, enter).embed(vectors_of(name)).await.unwrap_err();
        let shown = format!("{error} {error:?} {:?}", error.hint());
        assert_hidden(&shown);
        assert!(!shown.contains("YW5u"), "{shown}");
        for request in server.received_requests().await.unwrap() {
            assert_eq!(request.headers["authorization"], "Basic YW5uOnNrLWNhbmFyeS0wODE1", "{name}");
            assert_eq!(request.headers["x-gate"], CANARY, "{name}");
        }
        if error.code() == "model_unauthorized" {
            assert!(error.hint().unwrap().contains(&format!("RIVERRUN_{}_PASSWORD", name.to_uppercase())), "{error}");
        }
    }
}

#[test]
fn given_keys_of_all_providers_when_the_adapter_is_shown_in_any_way_then_they_do_not_show() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    for (name, _) in ALL {
        settings.keys.insert(name.to_owned(), Secret::new(CANARY).unwrap());
    }
    assert_hidden(&format!("{settings:?} {settings:#?}"));
    let models = Models::new(settings).unwrap();
    let providers = models.providers();
    assert_hidden(&format!("{providers:?} {}", serde_json::to_string(&providers).unwrap()));
    for (name, _) in ALL {
        let provider = providers.iter().find(|provider| provider.name == name).unwrap();
        assert_eq!(provider.has_key, Some(true), "{name}");
    }
    assert_eq!(providers.len(), ALL.len() + 1, "a new row is covered by these tests too");
}

#[tokio::test]
async fn given_a_key_that_no_header_can_hold_when_it_is_used_then_the_setting_is_named_and_the_key_is_not() {
    for (name, _) in ALL {
        let error = support::provider(name, "http://127.0.0.1:9", "sk-canary\u{1}x", |_| ()).list_models().await;
        let error = error.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert_hidden(&shown);
        // Services without a list of models say so before anything is sent.
        let unsupported = error.code() == "model_unsupported";
        assert!(unsupported || shown.contains(&format!("RIVERRUN_{}_API_KEY", name.to_uppercase())), "{shown}");
    }
}
