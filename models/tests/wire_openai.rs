//! The OpenAI-compatible provider against recorded shapes of the documented API.

mod support;

use std::time::Duration;

use riverrun_models::{
    ChatRequest, EmbedPurpose, EmbedRequest, FinishReason, Message, ModelError, ModelSettings, Models, NoDeltas,
    ProviderKind, RerankRequest, ToolCall, ToolSpec, Usage,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{body_partial_json, header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use support::{Of, RawServer, Script, ask, closes, without_time_outs};

const CANARY: &str = "sk-canary-4711";

fn openai(address: &str, change: impl FnOnce(&mut ModelSettings)) -> Of {
    support::provider("openai", address, CANARY, change)
}

fn events(events: &[serde_json::Value]) -> String {
    let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    text
}

fn delta(delta: serde_json::Value, finish: Option<&str>) -> serde_json::Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

#[tokio::test]
async fn given_a_stream_in_any_blocks_when_chatting_then_text_usage_and_finish_are_right() {
    let body = events(&[
        delta(json!({"role": "assistant", "content": ""}), None),
        delta(json!({"content": "Größe "}), None),
        delta(json!({"content": "日本 🦀"}), None),
        delta(json!({}), Some("length")),
        json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}}),
    ]);
    for size in [1, 13, 10_000] {
        let server = RawServer::start(Script::Blocks(body.as_bytes().chunks(size).map(<[u8]>::to_vec).collect())).await;
        let mut shown = String::new();
        let mut sink = |text: &str| shown.push_str(text);
        let reply =
            openai(&server.address, |_| ()).chat(ask("m", "hi"), &mut sink, CancellationToken::new()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.finish), ("Größe 日本 🦀", FinishReason::Length));
        assert_eq!(reply.usage, Usage { prompt_tokens: 12, completion_tokens: 3, ..Usage::default() });
        assert_eq!(shown, reply.text);
    }
}

#[tokio::test]
async fn given_tools_when_chatting_then_calls_are_put_together_from_their_pieces() {
    let server = MockServer::start().await;
    let body = events(&[
        delta(
            json!({"role": "assistant", "content": null, "tool_calls": [{"index": 0, "id": "call_a", "type": "function", "function": {"name": "clock", "arguments": ""}}]}),
            None,
        ),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"zo"}}]}), None),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "ne\": \"UTC\"}"}}]}), None),
        delta(
            json!({"tool_calls": [{"index": 1, "id": "call_b", "type": "function", "function": {"name": "calc", "arguments": "{bad"}}]}),
            None,
        ),
        delta(json!({}), Some("tool_calls")),
    ]);
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "time?"},
            {"role": "assistant", "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_0", "content": "12:00"},
        ],
        "tools": [{"type": "function", "function": {"name": "clock"}}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    });
    Mock::given(method("POST"))
        .and(path("/v1/chat/completions"))
        .and(header("authorization", format!("Bearer {CANARY}").as_str()))
        .and(body_partial_json(expected))
        .respond_with(ResponseTemplate::new(200).set_body_raw(body, "text/event-stream"))
        .expect(1)
        .mount(&server)
        .await;
    let call = ToolCall { id: "call_0".into(), name: "clock".into(), arguments: json!({}) };
    let request = ChatRequest {
        model: "m".into(),
        messages: vec![
            Message::user("time?"),
            Message { tool_calls: vec![call], ..Message::assistant("") },
            Message::tool("call_0", "12:00"),
        ],
        tools: vec![ToolSpec { name: "clock".into(), description: String::new(), parameters: json!({}) }],
        response_schema: Some(json!({"type": "object"})),
        max_tokens: Some(9),
        ..ChatRequest::default()
    };
    let reply = openai(&server.uri(), |_| ()).chat(request, &mut NoDeltas, CancellationToken::new()).await.unwrap();
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!(
        reply.tool_calls[0],
        ToolCall { id: "call_a".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) }
    );
    assert_eq!(reply.tool_calls[1].arguments, json!("{bad"), "what is no JSON is passed on as it is");
}

#[tokio::test]
async fn given_servers_that_leave_out_and_repeat_when_they_call_tools_then_each_call_is_whole() {
    let call = |id: &str, name: &str, arguments: &str| {
        delta(json!({"tool_calls": [{"id": id, "function": {"name": name, "arguments": arguments}}]}), None)
    };
    let body = events(&[
        json!({"choices": null}),
        call("call_a", "clock", "{\"zone\":"),
        call("call_a", "clock", " \"UTC\"}"),
        call("call_b", "calc", "{}"),
        json!({"choices": [{"index": 0, "delta": null, "finish_reason": "tool_calls"}]}),
    ]);
    let server = RawServer::start(Script::Blocks(vec![body.into_bytes()])).await;
    let reply =
        openai(&server.address, |_| ()).chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap();
    let expected = [("call_a", "clock", json!({"zone": "UTC"})), ("call_b", "calc", json!({}))];
    let expected = expected.map(|(id, name, arguments)| ToolCall { id: id.into(), name: name.into(), arguments });
    assert_eq!(reply.tool_calls, expected);
}

#[tokio::test]
async fn given_refusals_when_chatting_then_the_error_is_typed_and_the_key_does_not_show() {
    for (status, body, code) in [
        (
            401,
            json!({"error": {"message": format!("Incorrect API key provided: {CANARY}"), "code": "invalid_api_key"}}),
            "model_unauthorized",
        ),
        (429, json!({"error": {"message": "slow down"}}), "model_rate_limited"),
        (429, json!({"error": {"message": "check your plan", "code": "insufficient_quota"}}), "model_bad_request"),
        (
            404,
            json!({"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}),
            "model_missing",
        ),
        (400, json!({"error": {"message": "too long", "code": "context_length_exceeded"}}), "context_overflow"),
        (
            400,
            json!({"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 99, "n_ctx": 64}}),
            "context_overflow",
        ),
        (422, json!({"detail": "unknown field"}), "model_bad_request"),
        (500, json!({"error": {"message": format!("boom {CANARY}")}}), "model_bad_response"),
        (302, json!({}), "model_bad_response"),
    ] {
        let server = MockServer::start().await;
        let answer = ResponseTemplate::new(status)
            .insert_header("retry-after", "3600")
            .insert_header("location", "http://127.0.0.1:1/")
            .set_body_json(body);
        Mock::given(path("/v1/chat/completions")).respond_with(answer).expect(1).mount(&server).await;
        let error = openai(&server.uri(), |_| ())
            .chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new())
            .await
            .unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        let shown = format!("{error} {error:?} {:?}", error.hint());
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[tokio::test]
async fn given_an_answer_that_holds_the_key_when_the_error_shows_its_beginning_then_no_part_of_the_key_shows() {
    for padding in 100..=120 {
        let body = format!("data: {}{CANARY}\n\n", "x".repeat(padding));
        let server = RawServer::start(Script::Blocks(vec![body.into_bytes()])).await;
        let error = openai(&server.address, |_| ())
            .chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new())
            .await
            .unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(error.code() == "model_bad_response" && !shown.contains(&CANARY[..12]), "{shown}");
    }
}

#[tokio::test]
async fn given_a_service_that_is_busy_when_it_asks_for_a_part_of_a_second_then_it_is_asked_again_and_an_empty_account_is_not()
 {
    let answer = events(&[delta(json!({"content": "ok"}), Some("stop"))]);
    let busy = |code: &str| {
        let body = json!({"error": {"message": "not now", "code": code}});
        ResponseTemplate::new(429).insert_header("retry-after", "0.01").set_body_json(body)
    };
    for (code, requests) in [("rate_limit_exceeded", 2), ("insufficient_quota", 1)] {
        let server = MockServer::start().await;
        Mock::given(path("/v1/chat/completions"))
            .respond_with(busy(code))
            .up_to_n_times(1)
            .with_priority(1)
            .mount(&server)
            .await;
        let then = ResponseTemplate::new(200).set_body_raw(answer.clone(), "text/event-stream");
        Mock::given(path("/v1/chat/completions")).respond_with(then).mount(&server).await;
        let reply = openai(&server.uri(), |_| ()).chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await;
        assert_eq!(reply.is_ok(), requests == 2, "{code}: {reply:?}");
        assert_eq!(server.received_requests().await.unwrap().len(), requests, "{code}");
    }
}

#[tokio::test]
async fn given_a_server_that_answers_at_once_when_a_stream_is_asked_for_then_its_answer_and_its_errors_are_read() {
    let whole = json!({"object": "chat.completion", "usage": {"prompt_tokens": 2, "completion_tokens": 1}, "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "hm", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "calc", "arguments": "{}"}}]}}]});
    let server = RawServer::start(Script::Blocks(vec![whole.to_string().into_bytes()])).await;
    let reply =
        openai(&server.address, |_| ()).chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.tool_calls.len(), reply.usage.total()), ("hm", 2, 3));
    let error = json!({"error": {"message": "no provider can take it", "code": 502}}).to_string();
    for body in [error.clone(), format!("data: {error}"), format!("data: {error}\n")] {
        let server = RawServer::start(Script::Blocks(vec![body.clone().into_bytes()])).await;
        let error = openai(&server.address, |_| ())
            .chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no provider can take it"), "{body}: {error}");
    }
}

#[tokio::test]
async fn given_no_key_when_the_hosted_service_is_asked_then_the_error_names_the_setting_without_asking() {
    let dir = tempfile::tempdir().unwrap();
    let models = Models::new(support::settings(dir.path())).unwrap();
    for provider in models.providers().into_iter().filter(|provider| provider.kind == ProviderKind::Hosted) {
        assert_eq!(provider.has_key, Some(false), "{}", provider.name);
        let setting = if provider.address.is_some() { "API_KEY" } else { "BASE_URL" };
        let asked = models.provider(Some(&provider.name)).unwrap();
        let error = asked.list_models().await.unwrap_err();
        let expected = format!("RIVERRUN_{}_{setting}", provider.name.to_uppercase());
        assert!(error.hint().unwrap().contains(&expected), "{error} {:?}", error.hint());
    }
}

#[tokio::test]
async fn given_broken_streams_when_chatting_then_the_error_is_typed() {
    let piece = format!("data: {}\n\n", delta(json!({"content": "x"}), None)).into_bytes();
    let error_event = b"data: {\"error\":{\"message\":\"boom\"}}\n\n".to_vec();
    let many_calls =
        format!("data: {}\n\n", delta(json!({"tool_calls": [{"index": 4000000000_u32}]}), None)).into_bytes();
    for (script, code) in [
        (Script::ThenHang(piece.clone()), "model_timeout"),
        (Script::ThenCut(piece.clone()), "model_bad_response"),
        (Script::Blocks(vec![piece.clone()]), "model_bad_response"),
        (Script::Blocks(vec![piece.clone(), error_event]), "model_bad_response"),
        (Script::Blocks(vec![b"data: {half\n\n".to_vec()]), "model_bad_response"),
        (Script::Blocks(vec![many_calls]), "model_bad_response"),
        (Script::Forever(piece.repeat(10_000)), "model_bad_response"),
    ] {
        let server = RawServer::start(script).await;
        let provider = openai(&server.address, |settings| settings.idle_timeout = Duration::from_millis(300));
        let error = provider.chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
}

/// What a chat fails with on a server that answers with this.
async fn failure(answer: ResponseTemplate) -> ModelError {
    let server = MockServer::start().await;
    Mock::given(path("/v1/chat/completions")).respond_with(answer).mount(&server).await;
    openai(&server.uri(), |_| ()).chat(ask("m", "x"), &mut NoDeltas, CancellationToken::new()).await.unwrap_err()
}

#[tokio::test]
async fn given_errors_within_an_answer_when_they_come_then_they_are_typed_as_those_in_front_of_one() {
    for (error, code) in [
        (json!({"message": "slow down", "code": 429}), "model_rate_limited"),
        (json!({"message": "slow down", "code": "429"}), "model_rate_limited"),
        (json!({"message": "slow down", "type": "rate_limit_error", "code": null}), "model_rate_limited"),
        (json!({"message": "full", "code": 503}), "model_rate_limited"),
        (json!({"message": "check your plan", "code": "insufficient_quota"}), "model_bad_request"),
        (json!({"message": "no such field", "code": 400}), "model_bad_request"),
        (json!({"message": "no such field", "type": "invalid_request_error"}), "model_bad_request"),
        (json!({"message": "too slow", "code": 408}), "model_bad_response"),
        (json!({"message": "boom", "code": 502}), "model_bad_response"),
        (json!({"message": "boom"}), "model_bad_response"),
        (json!("boom"), "model_bad_response"),
        (json!({"message": "too long", "code": "context_length_exceeded"}), "context_overflow"),
        (
            json!({"code": 400, "type": "exceed_context_size_error", "message": "long", "n_prompt_tokens": 99, "n_ctx": 64}),
            "context_overflow",
        ),
    ] {
        let body = events(&[delta(json!({"content": "Hi"}), None), json!({"error": error})]);
        let failed = failure(ResponseTemplate::new(200).set_body_raw(body, "text/event-stream")).await;
        assert_eq!(failed.code(), code, "{error}: {failed}");
    }
}

#[tokio::test]
async fn given_long_bodies_of_errors_when_they_come_then_what_they_begin_with_is_read() {
    let too_long = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens";
    let overflow = ModelError::ContextOverflow { model: "m".into(), tokens: 5_000, limit: 4_096 };
    // The second is cut within its JSON.
    for padding in [200_000, 2_000_000] {
        let echo = "z".repeat(padding);
        let body = format!(r#"{{"error": {{"message": "{too_long}"}}, "input": "{echo}"}}"#);
        assert_eq!(failure(ResponseTemplate::new(400).set_body_string(body)).await, overflow, "{padding}");
        let body = format!("<html><h1>the gate is shut</h1>{echo}");
        let failed = failure(ResponseTemplate::new(500).set_body_string(body)).await;
        assert!(failed.to_string().contains("500 Internal Server Error: <html><h1>the gate is shut"), "{failed}");
    }
}

#[tokio::test]
async fn given_answers_that_say_nothing_when_they_come_then_the_error_says_where_to_look() {
    let page = ResponseTemplate::new(200).set_body_raw("<html>log in first</html>", "text/html");
    for (answer, said) in [
        (page, "before the answer began; check that http://127.0.0.1:"),
        (ResponseTemplate::new(200), "before the answer began; check that http://127.0.0.1:"),
        (
            ResponseTemplate::new(302).insert_header("location", "http://127.0.0.1:1/"),
            "302 Found: redirects are not followed",
        ),
        (ResponseTemplate::new(500), "500 Internal Server Error"),
        (ResponseTemplate::new(400), "400 Bad Request"),
        (ResponseTemplate::new(429).insert_header("retry-after", "3600"), "429 Too Many Requests"),
    ] {
        let failed = failure(answer).await;
        let shown = failed.to_string();
        assert!(shown.contains(said) && !shown.ends_with(": "), "{shown}");
        assert!(matches!(failed, ModelError::BadRequest { .. }) || failed.hint().is_some(), "{failed:?}");
    }
}

#[tokio::test]
async fn given_texts_in_parts_when_chatting_then_what_is_said_is_the_answer_and_thoughts_are_not() {
    let thought = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
    let body = events(&[
        delta(json!({"role": "assistant", "content": [thought]}), None),
        delta(
            json!({"content": [{"type": "text", "text": "Hel"}, {"type": "reference", "reference_ids": [1]}, {"text": "lo"}]}),
            None,
        ),
        delta(json!({"content": []}), None),
        delta(json!({"content": "!"}), Some("stop")),
    ]);
    let server = RawServer::start(Script::Blocks(vec![body.into_bytes()])).await;
    let mut shown = String::new();
    let mut sink = |text: &str| shown.push_str(text);
    let reply = openai(&server.address, |_| ()).chat(ask("m", "x"), &mut sink, CancellationToken::new()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("Hello!", FinishReason::Stop));
    assert_eq!(shown, reply.text);
}

#[tokio::test]
async fn given_thoughts_in_the_text_or_beside_it_when_chatting_then_the_answer_is_without_them() {
    for (pieces, answer) in [
        (vec![json!({"reasoning_content": "hm", "content": ""}), json!({"content": "Hello!"})], "Hello!"),
        (vec![json!({"reasoning": "hm", "content": null}), json!({"content": "Hello!"})], "Hello!"),
        (vec![json!({"reasoning": {"odd": true}}), json!({"content": "Hello!"})], "Hello!"),
        (
            vec![json!({"content": "<th"}), json!({"content": "ink>hm</think>\n\nHel"}), json!({"content": "lo!"})],
            "Hello!",
        ),
        (vec![json!({"content": "<think>cut o"})], ""),
    ] {
        let mut deltas: Vec<_> = pieces.into_iter().map(|piece| delta(piece, None)).collect();
        deltas.push(delta(json!({}), Some("stop")));
        let server = RawServer::start(Script::Blocks(vec![events(&deltas).into_bytes()])).await;
        let mut shown = String::new();
        let mut sink = |text: &str| shown.push_str(text);
        let reply =
            openai(&server.address, |_| ()).chat(ask("m", "x"), &mut sink, CancellationToken::new()).await.unwrap();
        assert_eq!(reply.text, answer, "{deltas:?}");
        assert_eq!(shown, reply.text);
    }
}

#[tokio::test]
async fn given_a_running_chat_when_it_is_cancelled_then_the_connection_closes_and_half_calls_are_dropped() {
    let call = delta(
        json!({"content": "hm", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "clock", "arguments": "{"}}]}),
        None,
    );
    let server = RawServer::start(Script::ThenHang(format!("data: {call}\n\n").into_bytes())).await;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let mut sink = move |_: &str| stop.cancel();
    let reply = openai(&server.address, without_time_outs).chat(ask("m", "x"), &mut sink, cancel).await.unwrap();
    assert_eq!((reply.finish, reply.text.as_str(), reply.tool_calls.len()), (FinishReason::Cancelled, "hm", 0));
    closes(&server, "openai").await;
}

#[tokio::test]
async fn given_a_server_when_it_lists_embeds_reranks_and_counts_then_orders_are_kept() {
    let server = MockServer::start().await;
    let reply = |body: serde_json::Value| ResponseTemplate::new(200).set_body_json(body);
    Mock::given(path("/v1/models"))
        .respond_with(reply(json!({"object": "list", "data": [
            {"id": "m1"}, {"id": "m2", "max_model_len": 4096},
            {"id": "m3", "meta": {"n_ctx_train": 32768}}, {"id": "m4", "meta": {"n_ctx": 512, "n_ctx_train": 32768}},
        ]})))
        .mount(&server)
        .await;
    let vectors = json!({"data": [{"index": 1, "embedding": [2.0, 0.0]}, {"index": 0, "embedding": [1.0, 0.0]}], "usage": {"prompt_tokens": 4}});
    Mock::given(path("/v1/embeddings")).respond_with(reply(vectors)).mount(&server).await;
    let scores = json!({"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]});
    Mock::given(path("/v1/rerank")).respond_with(reply(scores)).mount(&server).await;
    Mock::given(path("/tokenize")).respond_with(reply(json!({"tokens": [1, 2, 3]}))).mount(&server).await;
    let provider = openai(&server.uri(), |_| ());
    let contexts: Vec<_> = provider.list_models().await.unwrap().iter().map(|info| info.context_tokens).collect();
    assert_eq!(contexts, [None, Some(4096), Some(32_768), Some(512)]);
    assert_eq!(provider.probe().await.unwrap().models, 4);
    let request = EmbedRequest {
        model: "e".into(),
        inputs: vec!["a".into(), "b".into()],
        purpose: EmbedPurpose::Document,
        dimensions: None,
    };
    assert_eq!(provider.embed(request).await.unwrap().vectors, [[1.0, 0.0], [2.0, 0.0]]);
    let request = |documents: Vec<String>| RerankRequest { model: "r".into(), query: "q".into(), documents };
    assert_eq!(provider.rerank(request(vec!["a".into(), "b".into()])).await.unwrap().scores, [0.1, 0.9]);
    for wrong in [vec!["a".into()], vec!["a".into(), "b".into(), "c".into()]] {
        assert_eq!(provider.rerank(request(wrong)).await.unwrap_err().code(), "model_bad_response");
    }
    assert_eq!(provider.count_tokens("m", "x y z").await.unwrap(), 3);
}
