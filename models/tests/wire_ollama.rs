//! The Ollama provider against recorded shapes of its documented API.

mod support;

use std::time::Duration;

use riverrun_models::{
    ChatRequest, EmbedPurpose, EmbedRequest, FinishReason, Message, ModelError, ModelSettings, NoDeltas, ToolSpec,
    Usage,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{body_json, body_partial_json, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use support::{Of, RawServer, Script, ask, closes, without_time_outs};

fn ollama(address: &str, change: impl FnOnce(&mut ModelSettings)) -> Of {
    support::provider("ollama", address, "", change)
}

const STREAM: &str = concat!(
    r#"{"model":"m","created_at":"2025-01-01T00:00:00Z","message":{"role":"assistant","content":"Grüße "},"done":false}"#,
    "\n",
    r#"{"model":"m","created_at":"2025-01-01T00:00:00Z","message":{"role":"assistant","content":"日本 🦀"},"done":false}"#,
    "\n",
    r#"{"model":"m","created_at":"2025-01-01T00:00:01Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":5,"prompt_eval_count":26,"eval_count":7}"#,
    "\n",
);

#[tokio::test]
async fn given_a_stream_in_any_blocks_when_chatting_then_text_usage_and_finish_are_right() {
    for size in [1, 7, 50, 10_000] {
        let server =
            RawServer::start(Script::Blocks(STREAM.as_bytes().chunks(size).map(<[u8]>::to_vec).collect())).await;
        let mut shown = String::new();
        let mut sink = |text: &str| shown.push_str(text);
        let reply =
            ollama(&server.address, |_| ()).chat(ask("m", "hi"), &mut sink, CancellationToken::new()).await.unwrap();
        assert_eq!(reply.text, "Grüße 日本 🦀");
        assert_eq!(reply.usage, Usage { prompt_tokens: 26, completion_tokens: 7, ..Usage::default() });
        assert_eq!((reply.finish, reply.model.as_str()), (FinishReason::Stop, "m"));
        assert_eq!(shown, reply.text);
    }
}

#[tokio::test]
async fn given_thoughts_in_the_text_or_beside_it_when_they_come_in_any_blocks_then_the_answer_is_without_them() {
    let line = |message: serde_json::Value| format!("{}\n", json!({"model": "m", "message": message, "done": false}));
    let mut stream = line(json!({"role": "assistant", "content": "", "thinking": "beside"}));
    for piece in ["<thi", "nk>\nhm, jä", "</th", "ink>\n", "\nPar", "is <think>"] {
        stream += &line(json!({"role": "assistant", "content": piece}));
    }
    stream += &json!({"model": "m", "message": {"content": ""}, "done": true, "done_reason": "stop", "prompt_eval_count": 2, "eval_count": 9})
        .to_string();
    stream += "\n";
    for size in [1, 7, 50, 10_000] {
        let blocks = stream.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
        let server = RawServer::start(Script::Blocks(blocks)).await;
        let mut shown = String::new();
        let mut sink = |text: &str| shown.push_str(text);
        let reply =
            ollama(&server.address, |_| ()).chat(ask("m", "hi"), &mut sink, CancellationToken::new()).await.unwrap();
        assert_eq!(reply.text, "Paris <think>");
        assert_eq!(reply.usage.completion_tokens, 9, "what is thought is counted");
        assert_eq!(shown, reply.text);
    }
}

#[tokio::test]
async fn given_tools_and_a_schema_when_chatting_then_they_are_sent_and_calls_come_back() {
    let server = MockServer::start().await;
    let answer = concat!(
        r#"{"model":"m","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"clock","arguments":{"zone":"UTC"}}}]},"done":false}"#,
        "\n",
        r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":4}"#,
    );
    let expected = json!({
        "model": "m", "stream": true, "format": {"type": "object"},
        "options": {"num_ctx": 2048, "temperature": 0.0, "seed": 7, "num_predict": 5, "stop": ["X"]},
        "tools": [{"type": "function", "function": {"name": "clock", "description": "time", "parameters": {"type": "object"}}}],
    });
    Mock::given(method("POST"))
        .and(path("/api/chat"))
        .and(body_partial_json(expected))
        .respond_with(ResponseTemplate::new(200).set_body_string(answer))
        .expect(1)
        .mount(&server)
        .await;
    let request = ChatRequest {
        model: "m".into(),
        messages: vec![Message::system("s"), Message::user("time?")],
        tools: vec![ToolSpec {
            name: "clock".into(),
            description: "time".into(),
            parameters: json!({"type": "object"}),
        }],
        response_schema: Some(json!({"type": "object"})),
        temperature: Some(0.0),
        seed: Some(7),
        max_tokens: Some(5),
        stop: vec!["X".into()],
        ..ChatRequest::default()
    };
    let provider = ollama(&server.uri(), |settings| settings.context_tokens = 2048);
    let reply = provider.chat(request, &mut NoDeltas, CancellationToken::new()).await.unwrap();
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!((reply.tool_calls[0].id.as_str(), reply.tool_calls[0].name.as_str()), ("call_1", "clock"));
    assert_eq!(reply.tool_calls[0].arguments, json!({"zone": "UTC"}));
}

#[tokio::test]
async fn given_refusals_when_chatting_then_the_error_says_what_to_do() {
    for (status, body, code, hint) in [
        (404, r#"{"error":"model 'm' not found"}"#, "model_missing", "ollama pull m"),
        (400, r#"{"error":"m does not support tools"}"#, "model_unsupported", "another provider"),
        (400, r#"{"error":"invalid options"}"#, "model_bad_request", ""),
        (500, r#"{"error":"llama runner process has terminated"}"#, "model_bad_response", ""),
        (401, r#"{"error":"unauthorized"}"#, "model_unauthorized", "RIVERRUN_"),
    ] {
        let server = MockServer::start().await;
        let answer = ResponseTemplate::new(status).set_body_string(body);
        Mock::given(path("/api/chat")).respond_with(answer).expect(1).mount(&server).await;
        let provider = ollama(&server.uri(), |_| ());
        let error = provider.chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{error}: {:?}", error.hint());
    }
}

#[tokio::test]
async fn given_a_busy_server_when_chatting_then_it_is_asked_again_and_in_the_end_the_wait_is_passed_on() {
    let server = MockServer::start().await;
    let busy = ResponseTemplate::new(503).insert_header("retry-after", "0").set_body_string(r#"{"error":"busy"}"#);
    Mock::given(path("/api/chat")).respond_with(busy).up_to_n_times(1).expect(1).mount(&server).await;
    Mock::given(path("/api/chat"))
        .respond_with(ResponseTemplate::new(200).set_body_string(STREAM))
        .mount(&server)
        .await;
    let provider = ollama(&server.uri(), |_| ());
    assert_eq!(
        provider.chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap().finish,
        FinishReason::Stop
    );

    let server = MockServer::start().await;
    let limited =
        ResponseTemplate::new(429).insert_header("retry-after", "3600").set_body_string(r#"{"error":"quota"}"#);
    Mock::given(path("/api/chat")).respond_with(limited).expect(1).mount(&server).await;
    let error =
        ollama(&server.uri(), |_| ()).chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
    assert!(
        matches!(error, ModelError::RateLimited { retry_after: Some(wait), .. } if wait == Duration::from_secs(3600))
    );
    assert!(error.retryable());
}

#[tokio::test]
async fn given_a_server_that_is_gone_when_it_is_asked_then_the_error_names_it_and_the_fix() {
    let provider = ollama("http://127.0.0.1:1", |_| ());
    for error in [
        provider.chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err(),
        provider.probe().await.unwrap_err(),
        provider.list_models().await.unwrap_err(),
    ] {
        assert_eq!(error.code(), "model_runtime_down");
        assert!(error.to_string().contains("http://127.0.0.1:1"), "{error}");
        assert!(error.hint().unwrap().contains("ollama serve"));
    }
}

#[tokio::test]
async fn given_broken_streams_when_chatting_then_the_error_is_typed_and_memory_is_bounded() {
    let line = br#"{"message":{"content":"x"},"done":false}"#.to_vec();
    let with_end = [line.clone(), b"\n".to_vec()].concat();
    for (script, code) in [
        (Script::ThenHang(with_end.clone()), "model_timeout"),
        (Script::ThenCut(with_end.clone()), "model_bad_response"),
        (Script::Blocks(vec![with_end.clone()]), "model_bad_response"),
        (Script::Blocks(vec![b"<html>\n".to_vec()]), "model_bad_response"),
        (Script::Blocks(vec![with_end.clone(), b"{\"error\":\"boom\"}\n".to_vec()]), "model_bad_response"),
        (Script::Forever(vec![b'x'; 1 << 20]), "model_bad_response"),
        (Script::Forever(with_end.repeat(10_000)), "model_bad_response"),
    ] {
        let server = RawServer::start(script).await;
        let provider = ollama(&server.address, |settings| settings.idle_timeout = Duration::from_millis(300));
        let error = provider.chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
}

#[tokio::test]
async fn given_a_server_that_never_ends_when_the_whole_time_is_over_then_the_chat_ends() {
    let server = RawServer::start(Script::Forever(b"\n".to_vec())).await;
    let provider = ollama(&server.address, |settings| settings.timeout = Duration::from_millis(200));
    let error = provider.chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.code(), "model_timeout", "{error}");
}

#[tokio::test]
async fn given_a_running_chat_when_it_is_cancelled_then_the_connection_closes_and_what_was_said_stays() {
    let line = b"{\"message\":{\"content\":\"so far\"},\"done\":false}\n".to_vec();
    let server = RawServer::start(Script::ThenHang(line)).await;
    let provider = ollama(&server.address, without_time_outs);
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let mut sink = move |_: &str| stop.cancel();
    let reply = provider.chat(ask("m", "x"), &mut sink, cancel).await.unwrap();
    assert_eq!((reply.finish, reply.text.as_str()), (FinishReason::Cancelled, "so far"));
    closes(&server, "ollama").await;
}

#[tokio::test]
async fn given_a_server_when_it_is_probed_and_listed_then_version_models_and_vectors_come() {
    let server = MockServer::start().await;
    let reply = |body: serde_json::Value| ResponseTemplate::new(200).set_body_json(body);
    Mock::given(path("/api/version")).respond_with(reply(json!({"version": "0.12.0"}))).mount(&server).await;
    let tags = json!({"models": [{"name": "qwen2.5:0.5b", "size": 397821319, "details": {"family": "qwen2"}}, {"name": "nomic-embed-text:latest", "details": {"family": "nomic-bert"}}]});
    Mock::given(path("/api/tags")).respond_with(reply(tags)).mount(&server).await;
    let embeddings = json!({"model": "e", "embeddings": [[0.5, 1.0], [0.0, -1.0]], "prompt_eval_count": 8});
    Mock::given(path("/api/embed"))
        .and(body_partial_json(json!({"model": "e", "input": ["a", "b"]})))
        .respond_with(reply(embeddings))
        .mount(&server)
        .await;
    let provider = ollama(&server.uri(), |_| ());
    let probe = provider.probe().await.unwrap();
    assert_eq!((probe.version.as_deref(), probe.models), (Some("0.12.0"), 2));
    let listed = provider.list_models().await.unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].size_bytes), ("qwen2.5:0.5b", Some(397821319)));
    let request = EmbedRequest {
        model: "e".into(),
        inputs: vec!["a".into(), "b".into()],
        purpose: EmbedPurpose::Query,
        dimensions: None,
    };
    let embedded = provider.embed(request).await.unwrap();
    assert_eq!((embedded.dimensions, embedded.vectors), (2, vec![vec![0.5, 1.0], vec![0.0, -1.0]]));
    let request =
        EmbedRequest { model: "e".into(), inputs: vec!["a".into()], purpose: EmbedPurpose::Document, dimensions: None };
    assert!(provider.embed(request).await.is_err());
}

#[tokio::test]
async fn given_a_text_that_is_too_long_to_embed_when_it_is_among_others_then_it_alone_is_cut_and_counted() {
    let server = MockServer::start().await;
    let inputs = ["one", "two", "long", "four"];
    let vector = |text: &str| inputs.iter().position(|input| *input == text).unwrap() as f32 + 1.0;
    let of = |texts: &[&str], cut: bool| {
        let options = json!({"num_ctx": 4096});
        Mock::given(path("/api/embed"))
            .and(body_json(json!({"model": "e", "input": texts, "truncate": cut, "options": options})))
    };
    let vectors = |texts: &[&str]| {
        let vectors: Vec<[f32; 2]> = texts.iter().map(|text| [vector(text), 0.0]).collect();
        ResponseTemplate::new(200).set_body_json(json!({"embeddings": vectors, "prompt_eval_count": texts.len()}))
    };
    let refused = |message: &str| ResponseTemplate::new(400).set_body_json(json!({"error": message}));
    let too_long = "input length exceeds maximum context length";
    of(&inputs, false).respond_with(refused(too_long)).expect(1).mount(&server).await;
    of(&["one", "two"], false).respond_with(vectors(&["one", "two"])).expect(1).mount(&server).await;
    of(&["long", "four"], false).respond_with(refused(too_long)).expect(1).mount(&server).await;
    let newer = "the input length exceeds the context length";
    of(&["long"], false).respond_with(refused(newer)).expect(1).mount(&server).await;
    of(&["long"], true).respond_with(vectors(&["long"])).expect(1).mount(&server).await;
    of(&["four"], false).respond_with(vectors(&["four"])).expect(1).mount(&server).await;
    let provider = ollama(&server.uri(), |settings| settings.context_tokens = 4096);
    let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
    let request = EmbedRequest { model: "e".into(), inputs, purpose: EmbedPurpose::Document, dimensions: None };
    let reply = provider.embed(request).await.unwrap();
    let firsts: Vec<f32> = reply.vectors.iter().map(|vector| vector[0]).collect();
    assert_eq!(firsts, [1.0, 2.0, 3.0, 4.0], "in the order of the texts");
    assert_eq!((reply.truncated, reply.dimensions, reply.usage.prompt_tokens), (1, 2, 4));
}

#[tokio::test]
async fn given_an_embedding_that_is_refused_for_another_reason_then_it_is_the_error_and_is_asked_again_only_where_it_might_be_length()
 {
    // Both texts, the first alone, and the first cut.
    for (reason, requests) in [("invalid options", 1), ("num_ctx is too large for this model", 3)] {
        let server = MockServer::start().await;
        let refused = ResponseTemplate::new(400).set_body_json(json!({"error": reason}));
        Mock::given(path("/api/embed")).respond_with(refused).expect(requests).mount(&server).await;
        let inputs = vec!["a".to_owned(), "b".to_owned()];
        let request = EmbedRequest { model: "e".into(), inputs, purpose: EmbedPurpose::Document, dimensions: None };
        let error = ollama(&server.uri(), |_| ()).embed(request).await.unwrap_err();
        assert_eq!(error.code(), "model_bad_request");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn given_an_old_server_that_cut_a_prompt_to_what_the_model_was_trained_for_when_it_answers_then_it_is_an_error() {
    let server = MockServer::start().await;
    let show = json!({"model_info": {"llama.context_length": 2048}});
    Mock::given(path("/api/show")).respond_with(ResponseTemplate::new(200).set_body_json(show)).mount(&server).await;
    let read = |tokens: u32| {
        let last = json!({"done": true, "done_reason": "stop", "prompt_eval_count": tokens, "eval_count": 1});
        let said = json!({"message": {"role": "assistant", "content": "yes"}, "done": false});
        ResponseTemplate::new(200).set_body_string(format!("{said}\n{last}\n"))
    };
    let asked = |text: &str| {
        let messages = json!([{"role": "user", "content": text}]);
        Mock::given(path("/api/chat")).and(body_partial_json(json!({"messages": messages})))
    };
    asked("whole").respond_with(read(2047)).mount(&server).await;
    asked("cut").respond_with(read(2048)).mount(&server).await;
    let provider = ollama(&server.uri(), |settings| settings.context_tokens = 8192);
    assert_eq!(provider.context_tokens("m").await.unwrap(), 2048);
    let chat = async |text: &str| provider.chat(ask("m", text), &mut NoDeltas, CancellationToken::new()).await;
    assert_eq!(chat("whole").await.unwrap().text, "yes");
    match chat("cut").await.unwrap_err() {
        ModelError::ContextOverflow { tokens, limit, .. } => assert_eq!((tokens, limit), (2048, 2048)),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn given_a_model_that_was_trained_for_less_when_its_context_is_asked_then_it_is_that_and_the_server_is_asked_once()
 {
    let server = MockServer::start().await;
    let show = |context: serde_json::Value| ResponseTemplate::new(200).set_body_json(json!({"model_info": context}));
    for (model, answer) in [
        ("small", show(json!({"general.architecture": "llama", "llama.context_length": 2048}))),
        ("large", show(json!({"qwen2.context_length": 131_072}))),
        ("odd", show(json!({"x.context_length": "many"}))),
    ] {
        Mock::given(path("/api/show"))
            .and(body_partial_json(json!({"model": model})))
            .respond_with(answer)
            .expect(1)
            .mount(&server)
            .await;
    }
    let provider = ollama(&server.uri(), |settings| settings.context_tokens = 4096);
    for _ in 0..2 {
        for (model, context) in [("small", 2048), ("large", 4096), ("odd", 4096)] {
            assert_eq!(provider.context_tokens(model).await.unwrap(), context, "{model}");
        }
    }
    assert_eq!(provider.context_tokens("unknown").await.unwrap(), 4096, "a server that does not tell");
}
