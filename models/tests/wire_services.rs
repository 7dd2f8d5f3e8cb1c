//! What is particular to each service: what it is sent, and what its answers mean, in their documented shapes.

mod support;

use riverrun_models::{
    ChatReply, ChatRequest, EmbedPurpose, EmbedRequest, FinishReason, Message, ModelError, ModelKind, NoDeltas,
    RerankRequest, ToolCall, ToolSpec, Usage,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{body_partial_json, header, method, path, query_param};
use wiremock::{Mock, MockBuilder, MockServer, ResponseTemplate};

use support::{Of, ask};

fn at(name: &'static str, server: &MockServer) -> Of {
    support::provider(name, &server.uri(), "key", |_| ())
}

fn sse(events: &[Value]) -> ResponseTemplate {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    ResponseTemplate::new(200).set_body_raw(body, "text/event-stream")
}

fn reply(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

fn post(to: &str) -> MockBuilder {
    Mock::given(method("POST")).and(path(to))
}

async fn chat(provider: &Of, request: ChatRequest) -> Result<ChatReply, ModelError> {
    provider.chat(request, &mut NoDeltas, CancellationToken::new()).await
}

/// A conversation in the middle of a tool's use, with all settings.
fn conversation() -> ChatRequest {
    let call = ToolCall { id: "call_0".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) };
    ChatRequest {
        model: "m".into(),
        messages: vec![
            Message::system("be short"),
            Message::user("time?"),
            Message { tool_calls: vec![call], ..Message::assistant("") },
            Message::tool("call_0", "12:00"),
        ],
        tools: vec![ToolSpec {
            name: "clock".into(),
            description: "the time".into(),
            parameters: json!({"type": "object", "properties": {}}),
        }],
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(7),
        max_tokens: Some(9),
        stop: vec!["X".into()],
        seed: Some(3),
        ..ChatRequest::default()
    }
}

fn structured(schema: Value) -> ChatRequest {
    ChatRequest { response_schema: Some(schema), ..ask("m", "x") }
}

fn embed(inputs: usize) -> EmbedRequest {
    EmbedRequest {
        model: "e".into(),
        inputs: vec!["text".into(); inputs],
        purpose: EmbedPurpose::Query,
        dimensions: None,
    }
}

fn rerank() -> RerankRequest {
    RerankRequest { model: "r".into(), query: "q".into(), documents: vec!["a".into(), "b".into()] }
}

fn clock(reply: &ChatReply) -> (&str, &str, &Value, FinishReason) {
    let call = &reply.tool_calls[0];
    (&call.id, &call.name, &call.arguments, reply.finish)
}

#[tokio::test]
async fn given_anthropic_when_it_chats_then_tools_schemas_and_counts_are_its_own() {
    let server = MockServer::start().await;
    let events = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "let me look"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"zo"}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "ne\": 1}"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    let expected = json!({
        "model": "m", "stream": true, "system": "be short", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop_sequences": ["X"],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "time?"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_0", "name": "clock", "input": {"zone": "UTC"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_0", "content": "12:00"}]},
        ],
        "tools": [{"name": "clock", "description": "the time", "input_schema": {"type": "object"}}],
    });
    post("/v1/messages")
        .and(header("anthropic-version", "2023-06-01"))
        .and(body_partial_json(expected))
        .respond_with(sse(&events))
        .expect(1)
        .mount(&server)
        .await;
    let provider = at("anthropic", &server);
    let answered = chat(&provider, conversation()).await.unwrap();
    assert_eq!(clock(&answered), ("toolu_1", "clock", &json!({"zone": 1}), FinishReason::ToolCalls));
    assert_eq!((answered.text.as_str(), answered.usage.completion_tokens), ("let me look", 9));

    let events = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "structured_answer"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":1}"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    post("/v1/messages")
        .and(body_partial_json(json!({"tool_choice": {"type": "tool", "name": "structured_answer"}})))
        .respond_with(sse(&events))
        .mount(&server)
        .await;
    let answered = chat(&provider, structured(json!({"type": "object"}))).await.unwrap();
    assert_eq!((answered.text.as_str(), answered.finish), ("{\"a\":1}", FinishReason::Stop));
    assert!(answered.tool_calls.is_empty());

    post("/v1/messages/count_tokens").respond_with(reply(json!({"input_tokens": 41}))).mount(&server).await;
    assert_eq!(provider.count_prompt(&conversation()).await.unwrap(), 41);
    assert_eq!(provider.embed(embed(1)).await.unwrap_err().code(), "model_unsupported");
}

#[tokio::test]
async fn given_anthropic_when_it_fails_within_its_answer_or_the_prompt_is_too_long_then_the_error_says_so() {
    for (kind, code) in [("overloaded_error", "model_rate_limited"), ("api_error", "model_bad_response")] {
        let server = MockServer::start().await;
        let failed = json!({"type": "error", "error": {"type": kind, "message": "Overloaded"}});
        post("/v1/messages").respond_with(sse(&[failed])).mount(&server).await;
        assert_eq!(chat(&at("anthropic", &server), ask("m", "x")).await.unwrap_err().code(), code);
    }
    let server = MockServer::start().await;
    let message = "prompt is too long: 210000 tokens > 200000 maximum";
    let refused = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    post("/v1/messages").respond_with(ResponseTemplate::new(400).set_body_json(refused)).mount(&server).await;
    let error = chat(&at("anthropic", &server), ask("m", "x")).await.unwrap_err();
    assert_eq!(error, ModelError::ContextOverflow { model: "m".into(), tokens: 210_000, limit: 200_000 });
}

#[tokio::test]
async fn given_gemini_when_it_chats_embeds_and_lists_then_shapes_are_its_own() {
    let server = MockServer::start().await;
    let call = json!({"functionCall": {"name": "clock", "args": {"zone": 1}}, "thoughtSignature": "x"});
    let events = [
        json!({"candidates": [{"content": {"parts": [call]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 9}}),
    ];
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "be short"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "time?"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "clock", "args": {"zone": "UTC"}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "clock", "response": {"result": "12:00"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "clock"}]}],
        "generationConfig": {"temperature": 0.5, "topP": 0.9, "topK": 7, "maxOutputTokens": 9, "seed": 3, "stopSequences": ["X"]},
    });
    post("/v1beta/models/m:streamGenerateContent")
        .and(query_param("alt", "sse"))
        .and(body_partial_json(expected))
        .respond_with(sse(&events))
        .expect(1)
        .mount(&server)
        .await;
    let provider = at("gemini", &server);
    let answered = chat(&provider, conversation()).await.unwrap();
    assert_eq!(clock(&answered), ("call_1", "clock", &json!({"zone": 1}), FinishReason::ToolCalls));

    let config =
        json!({"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {"type": "array"}}});
    let long = json!({"candidates": [{"content": {"parts": [{"text": "[1"}]}, "finishReason": "MAX_TOKENS"}]});
    post("/v1beta/models/m:streamGenerateContent")
        .and(body_partial_json(config))
        .respond_with(sse(&[long]))
        .mount(&server)
        .await;
    let answered = chat(&provider, structured(json!({"type": "array"}))).await.unwrap();
    assert_eq!((answered.text.as_str(), answered.finish), ("[1", FinishReason::Length));

    let request = json!({"requests": [{"model": "models/e", "taskType": "RETRIEVAL_QUERY", "content": {"parts": [{"text": "text"}]}}]});
    post("/v1beta/models/e:batchEmbedContents")
        .and(body_partial_json(request))
        .respond_with(reply(json!({"embeddings": [{"values": [1.0, 0.0]}]})))
        .mount(&server)
        .await;
    assert_eq!(provider.embed(embed(1)).await.unwrap().vectors, [[1.0, 0.0]]);
    assert_eq!(provider.embed(embed(2)).await.unwrap_err().code(), "model_bad_response", "one vector for two texts");

    let models = json!({"models": [{"name": "models/m", "inputTokenLimit": 1000, "supportedGenerationMethods": ["generateContent"]}, {"name": "models/e", "supportedGenerationMethods": ["embedContent"]}]});
    Mock::given(path("/v1beta/models")).respond_with(reply(models)).expect(2).mount(&server).await;
    let listed = provider.list_models().await.unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].kind, listed[1].kind), ("m", ModelKind::Chat, ModelKind::Embed));
    for _ in 0..3 {
        assert_eq!(provider.context_tokens("m").await.unwrap(), 1000, "asked once");
    }
    post("/v1beta/models/m:countTokens").respond_with(reply(json!({"totalTokens": 7}))).mount(&server).await;
    assert_eq!(provider.count_prompt(&conversation()).await.unwrap(), 7);
    assert_eq!(provider.count_tokens("m", "x").await.unwrap(), 7);
}

#[tokio::test]
async fn given_a_service_that_withholds_an_answer_when_it_ends_then_it_is_no_whole_one_and_is_not_asked_for_again() {
    let openai = [
        json!({"choices": [{"delta": {"content": "half"}, "finish_reason": "content_filter"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}}),
    ];
    let refused = [
        json!({"choices": [{"delta": {"content": null, "refusal": "I can't"}, "finish_reason": null}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    ];
    let anthropic = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 12, "output_tokens": 1}}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ];
    let usage = json!({"promptTokenCount": 12, "candidatesTokenCount": 3});
    let gemini = [
        json!({"candidates": [{"content": {"parts": [{"text": "half"}]}}]}),
        json!({"candidates": [{"finishReason": "PROHIBITED_CONTENT"}], "usageMetadata": usage}),
    ];
    let blocked = [json!({"promptFeedback": {"blockReason": "SAFETY"}})];
    for (name, events, reason) in [
        ("openai", openai.as_slice(), "content_filter"),
        ("openai", refused.as_slice(), "refusal"),
        ("anthropic", anthropic.as_slice(), "refusal"),
        ("gemini", gemini.as_slice(), "PROHIBITED_CONTENT"),
        ("gemini", blocked.as_slice(), "SAFETY"),
    ] {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(sse(events)).mount(&server).await;
        let error = chat(&at(name, &server), ask("m", "x")).await.unwrap_err();
        assert_eq!((error.code(), error.retryable()), ("model_bad_response", false), "{name}: {error}");
        assert!(error.to_string().contains(&format!("it withheld the answer: {reason}")), "{name}: {error}");
    }
}

#[tokio::test]
async fn given_gemini_when_it_refuses_then_the_error_says_why() {
    for (body, code) in [
        (json!({"promptFeedback": {"blockReason": "SAFETY"}}), "model_bad_response"),
        (json!({"candidates": [{"finishReason": "RECITATION"}]}), "model_bad_response"),
        (json!({"error": {"code": 503, "message": "overloaded"}}), "model_rate_limited"),
    ] {
        let server = MockServer::start().await;
        post("/v1beta/models/m:streamGenerateContent").respond_with(sse(&[body])).mount(&server).await;
        assert_eq!(chat(&at("gemini", &server), ask("m", "x")).await.unwrap_err().code(), code);
    }
    let server = MockServer::start().await;
    let refused = json!({"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}});
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(400).set_body_json(refused)).mount(&server).await;
    let error = chat(&at("gemini", &server), ask("m", "x")).await.unwrap_err();
    assert_eq!(error.code(), "model_unauthorized");
    assert!(error.hint().unwrap().contains("RIVERRUN_GEMINI_API_KEY"));
}

#[tokio::test]
async fn given_cohere_when_it_chats_embeds_and_ranks_then_shapes_are_its_own() {
    let server = MockServer::start().await;
    let call = |delta: Value| json!({"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": delta}}}});
    let events = [
        json!({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I look"}}}),
        json!({"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"id": "clock_1", "type": "function", "function": {"name": "clock", "arguments": ""}}}}}),
        call(json!({"arguments": "{\"zo"})),
        call(json!({"arguments": "ne\": 1}"})),
        json!({"type": "tool-call-end", "index": 0}),
        json!({"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": {"tokens": {"input_tokens": 5, "output_tokens": 9}}}}),
    ];
    let expected = json!({
        "model": "m", "stream": true, "temperature": 0.5, "p": 0.9, "k": 7, "max_tokens": 9, "seed": 3, "stop_sequences": ["X"],
        "messages": [
            {"role": "system", "content": "be short"}, {"role": "user", "content": "time?"},
            {"role": "assistant", "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "clock", "arguments": "{\"zone\":\"UTC\"}"}}]},
            {"role": "tool", "tool_call_id": "call_0", "content": "12:00"},
        ],
        "tools": [{"type": "function", "function": {"name": "clock"}}],
    });
    post("/v2/chat").and(body_partial_json(expected)).respond_with(sse(&events)).expect(1).mount(&server).await;
    let provider = at("cohere", &server);
    let answered = chat(&provider, conversation()).await.unwrap();
    assert_eq!(clock(&answered), ("clock_1", "clock", &json!({"zone": 1}), FinishReason::ToolCalls));

    let request = json!({"model": "e", "input_type": "search_query", "embedding_types": ["float"]});
    let vectors =
        json!({"embeddings": {"float": vec![[1.0, 2.0]; 96]}, "meta": {"billed_units": {"input_tokens": 96}}});
    post("/v2/embed").and(body_partial_json(request)).respond_with(reply(vectors)).expect(2).mount(&server).await;
    let embedded = provider.embed(embed(192)).await.unwrap();
    assert_eq!((embedded.vectors.len(), embedded.usage.prompt_tokens), (192, 192), "in two calls");

    let ranks = json!({"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]});
    post("/v2/rerank")
        .and(body_partial_json(json!({"model": "r", "query": "q", "documents": ["a", "b"]})))
        .respond_with(reply(ranks))
        .mount(&server)
        .await;
    let ranked = provider.rerank(rerank()).await.unwrap();
    assert_eq!((ranked.scores, ranked.usage), (vec![0.1, 0.9], Usage::default()), "it bills by the search");
    post("/v1/tokenize").respond_with(reply(json!({"tokens": [1, 2]}))).mount(&server).await;
    assert_eq!(provider.count_tokens("m", "x").await.unwrap(), 2);
    let models = json!({"models": [{"name": "m", "endpoints": ["chat"], "context_length": 128000.0}, {"name": "r", "endpoints": ["rerank"]}]});
    Mock::given(path("/v1/models")).respond_with(reply(models)).mount(&server).await;
    let listed = provider.list_models().await.unwrap();
    assert_eq!((listed[0].context_tokens, listed[1].kind), (Some(128_000), ModelKind::Rerank));
}

#[tokio::test]
async fn given_the_dialects_of_openais_protocol_when_a_chat_is_sent_then_each_service_gets_the_fields_it_knows() {
    for (name, at_path, has, has_not) in [
        (
            "mistral",
            "/v1/chat/completions",
            json!({"random_seed": 3, "max_tokens": 9}),
            ["seed", "stream_options", "top_k"],
        ),
        (
            "groq",
            "/v1/chat/completions",
            json!({"seed": 3, "max_completion_tokens": 9}),
            ["max_tokens", "top_k", "random_seed"],
        ),
        (
            "deepseek",
            "/v1/chat/completions",
            json!({"stream_options": {"include_usage": true}}),
            ["seed", "top_k", "random_seed"],
        ),
        ("openrouter", "/v1/chat/completions", json!({"top_k": 7}), ["random_seed", "k", "max_completion_tokens"]),
        ("azure", "/openai/v1/chat/completions", json!({"max_completion_tokens": 9}), ["max_tokens", "top_k", "k"]),
        (
            "llamacpp",
            "/v1/chat/completions",
            json!({"top_k": 7, "max_tokens": 9}),
            ["max_completion_tokens", "k", "random_seed"],
        ),
    ] {
        let server = MockServer::start().await;
        let chunk = json!({"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}], "x_groq": {"usage": {"prompt_tokens": 4, "completion_tokens": 1}}});
        post(at_path).and(body_partial_json(has)).respond_with(sse(&[chunk])).expect(1).mount(&server).await;
        let answered = chat(&at(name, &server), conversation()).await.unwrap();
        assert_eq!((answered.text.as_str(), answered.usage.prompt_tokens), ("ok", 4), "{name}");
        let sent: Value = server.received_requests().await.unwrap()[0].body_json().unwrap();
        assert!(has_not.iter().all(|field| sent.get(field).is_none()), "{name}: {sent}");
    }
}

#[tokio::test]
async fn given_penalties_when_a_chat_is_sent_then_each_service_gets_them_under_its_own_names() {
    let penalized = ChatRequest { frequency_penalty: Some(0.5), presence_penalty: Some(0.25), ..ask("m", "x") };
    let usual = ["/frequency_penalty", "/presence_penalty"];
    let gemini = ["/generationConfig/frequencyPenalty", "/generationConfig/presencePenalty"];
    let ollama = ["/options/frequency_penalty", "/options/presence_penalty"];
    let alike = ["openai", "azure", "mistral", "deepseek", "openrouter", "together", "lmstudio", "vllm", "llamacpp"];
    let alike = alike.into_iter().map(|name| (name, usual));
    for (name, fields) in alike.chain([("cohere", usual), ("gemini", gemini), ("ollama", ollama)]) {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(ResponseTemplate::new(400)).mount(&server).await;
        chat(&at(name, &server), penalized.clone()).await.unwrap_err();
        let sent: Value = server.received_requests().await.unwrap()[0].body_json().unwrap();
        let found = fields.map(|field| sent.pointer(field).cloned());
        assert_eq!(found, [Some(json!(0.5)), Some(json!(0.25))], "{name}: {sent}");
    }
}

#[tokio::test]
async fn given_a_service_that_knows_no_schemas_when_one_is_asked_for_then_the_model_is_told() {
    let server = MockServer::start().await;
    let chunk = json!({"choices": [{"delta": {"content": "{}"}, "finish_reason": "stop"}]});
    post("/v1/chat/completions")
        .and(body_partial_json(json!({"response_format": {"type": "json_object"}})))
        .respond_with(sse(&[chunk]))
        .mount(&server)
        .await;
    chat(&at("deepseek", &server), structured(json!({"type": "object", "required": ["canvas"]}))).await.unwrap();
    let sent: Value = server.received_requests().await.unwrap()[0].body_json().unwrap();
    assert!(sent["messages"][0]["content"].as_str().unwrap().contains("canvas"), "{sent}");
}

#[tokio::test]
async fn given_a_version_of_azures_api_when_it_is_set_then_the_paths_name_deployments() {
    let server = MockServer::start().await;
    let chunk = json!({"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]});
    post("/openai/deployments/my%20gpt/chat/completions")
        .and(query_param("api-version", "2024-10-21"))
        .and(header("api-key", "key"))
        .respond_with(sse(&[chunk]))
        .expect(1)
        .mount(&server)
        .await;
    let provider = support::provider("azure", &server.uri(), "key", |settings| {
        settings.azure_api_version = Some("2024-10-21".into());
    });
    chat(&provider, ask("my gpt", "x")).await.unwrap();
}

#[tokio::test]
async fn given_services_that_would_cut_silently_when_a_text_is_too_long_then_they_refuse_first_and_it_is_counted() {
    let listed = json!({"data": [{"index": 0, "embedding": [1.0]}], "usage": {"total_tokens": 3}});
    let cohere = json!({"embeddings": {"float": [[1.0]]}});
    for (name, to, refuse, cut, vectors) in [
        ("cohere", "/v2/embed", json!({"truncate": "NONE"}), json!({"truncate": "END"}), cohere),
        ("voyage", "/v1/embeddings", json!({"truncation": false}), json!({"truncation": true}), listed.clone()),
        ("jina", "/v1/embeddings", json!({"truncate": false}), json!({"truncate": true}), listed),
    ] {
        let server = MockServer::start().await;
        let refused = ResponseTemplate::new(400).set_body_json(json!({"message": "a text has too many tokens"}));
        post(to).and(body_partial_json(refuse)).respond_with(refused).expect(1).mount(&server).await;
        post(to).and(body_partial_json(cut)).respond_with(reply(vectors)).expect(1).mount(&server).await;
        let embedded = at(name, &server).embed(embed(1)).await.unwrap();
        assert_eq!((embedded.vectors.len(), embedded.truncated), (1, 1), "{name}");
    }
}

#[tokio::test]
async fn given_services_that_only_embed_and_rank_when_they_are_asked_then_purposes_and_scores_are_theirs() {
    for (name, purpose, ranks) in
        [("voyage", json!({"input_type": "query"}), "data"), ("jina", json!({"task": "retrieval.query"}), "results")]
    {
        let server = MockServer::start().await;
        let vectors = json!({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}], "usage": {"total_tokens": 3}});
        post("/v1/embeddings").and(body_partial_json(purpose)).respond_with(reply(vectors)).mount(&server).await;
        let mut scores = json!({"model": "r", "usage": {"total_tokens": 26}});
        scores[ranks] = json!([{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]);
        post("/v1/rerank").respond_with(reply(scores)).mount(&server).await;
        let provider = at(name, &server);
        let embedded = provider.embed(embed(1)).await.unwrap();
        assert_eq!((embedded.dimensions, embedded.usage.prompt_tokens), (1, 3), "{name}");
        let ranked = provider.rerank(rerank()).await.unwrap();
        assert_eq!((ranked.scores, ranked.usage.prompt_tokens), (vec![0.1, 0.9], 26), "{name}");
        for error in [chat(&provider, ask("m", "x")).await.unwrap_err(), provider.list_models().await.unwrap_err()] {
            assert_eq!(error.code(), "model_unsupported", "{name}");
        }
    }
}

#[tokio::test]
async fn given_a_length_of_vectors_when_texts_are_embedded_then_it_is_sent_or_refused_before_a_call() {
    let listed = json!({"data": [{"index": 0, "embedding": [1.0, 0.0]}], "usage": {"total_tokens": 3}});
    let gemini = json!({"embeddings": [{"values": [1.0, 0.0]}]});
    let cohere = json!({"embeddings": {"float": [[1.0, 0.0]]}});
    let asked = |dimensions| EmbedRequest { dimensions, ..embed(1) };
    for (name, to, field, vectors) in [
        ("openai", "/v1/embeddings", json!({"dimensions": 2}), &listed),
        ("azure", "/openai/v1/embeddings", json!({"dimensions": 2}), &listed),
        ("mistral", "/v1/embeddings", json!({"output_dimension": 2}), &listed),
        ("voyage", "/v1/embeddings", json!({"output_dimension": 2}), &listed),
        ("jina", "/v1/embeddings", json!({"dimensions": 2}), &listed),
        ("vllm", "/v1/embeddings", json!({"dimensions": 2}), &listed),
        ("cohere", "/v2/embed", json!({"output_dimension": 2}), &cohere),
        ("gemini", "/v1beta/models/e:batchEmbedContents", json!({"requests": [{"outputDimensionality": 2}]}), &gemini),
    ] {
        let server = MockServer::start().await;
        let (with, without) = (reply(vectors.clone()), reply(vectors.clone()));
        post(to).and(body_partial_json(field)).respond_with(with).expect(1).mount(&server).await;
        post(to).respond_with(without).expect(1).mount(&server).await;
        let provider = at(name, &server);
        for dimensions in [Some(2), None] {
            assert_eq!(provider.embed(asked(dimensions)).await.unwrap().dimensions, 2, "{name} {dimensions:?}");
        }
        let sent = server.received_requests().await.unwrap();
        let unasked = String::from_utf8_lossy(&sent[1].body);
        assert!(!unasked.to_lowercase().contains("dimension"), "{name}: {unasked}");
    }
    for name in ["groq", "openrouter", "together", "deepseek", "bedrock"] {
        let server = MockServer::start().await;
        let error = at(name, &server).embed(asked(Some(2))).await.unwrap_err();
        assert_eq!(error.code(), "model_unsupported", "{name}");
        assert!(error.to_string().contains("vectors of 2 dimensions"), "{name}: {error}");
        assert!(server.received_requests().await.unwrap().is_empty(), "{name} was asked");
    }
    // Nothing is charged there, and the length may be the model's own.
    let server = MockServer::start().await;
    post("/v1/embeddings").respond_with(reply(listed)).expect(1).mount(&server).await;
    assert_eq!(at("llamacpp", &server).embed(asked(Some(3))).await.unwrap().dimensions, 2);
}

#[tokio::test]
async fn given_counts_that_tell_of_a_cache_or_of_dollars_when_a_chat_ends_then_they_are_in_what_it_used() {
    let chunk = |usage: Value| {
        vec![json!({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage})]
    };
    let counts = |more: Value| {
        let mut usage = json!({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13});
        usage.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        chunk(usage)
    };
    let anthropic = vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 1, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 2}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ];
    let gemini = vec![json!({
        "candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 3, "cachedContentTokenCount": 7},
    })];
    let cached = json!({"prompt_tokens_details": {"cached_tokens": 7, "audio_tokens": 0}});
    let dollars = json!({"cost": 0.0125, "prompt_tokens_details": {"cached_tokens": 7}});
    for (name, events, cached_prompt_tokens, cache_write_tokens, billed_nanousd) in [
        ("openai", counts(cached), 7, 0, None),
        ("deepseek", counts(json!({"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 3})), 7, 0, None),
        ("groq", counts(json!({"prompt_tokens_details": null})), 0, 0, None),
        ("mistral", counts(json!({"prompt_tokens_details": "none"})), 0, 0, None),
        ("vllm", counts(json!({"prompt_tokens_details": {"cached_tokens": 99}})), 10, 0, None),
        ("openrouter", counts(dollars.clone()), 7, 0, Some(12_500_000)),
        ("openrouter", counts(json!({"cost": -1.0})), 0, 0, None),
        ("together", counts(dollars), 7, 0, None),
        ("together", counts(json!({"cost": {"total": 1}})), 0, 0, None),
        ("anthropic", anthropic, 7, 2, None),
        ("gemini", gemini, 7, 0, None),
    ] {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(sse(&events)).mount(&server).await;
        let used = chat(&at(name, &server), ask("m", "x")).await.unwrap().usage;
        let (prompt_tokens, completion_tokens) = (10, 3);
        let wanted =
            Usage { prompt_tokens, completion_tokens, cached_prompt_tokens, cache_write_tokens, billed_nanousd };
        assert_eq!(used, wanted, "{name}");
    }
}
