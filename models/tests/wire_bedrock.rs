//! What is particular to Amazon Bedrock: what it is sent, and what its answers mean, in the shapes that its documentation has.

mod support;

use std::time::Duration;

use riverrun_models::{
    AwsCredentials, ChatReply, ChatRequest, EmbedPurpose, EmbedRequest, FinishReason, Message, ModelError, ModelKind,
    ModelSettings, Models, NoDeltas, ProviderInfo, RerankRequest, Secret, ToolCall, ToolSpec, Usage,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{any, body_partial_json, header, method};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use support::frames::{event, exception};
use support::{Of, ask};

const CLAUDE: &str = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
const LLAMA: &str = "us.meta.llama3-3-70b-instruct-v1:0";
const TITAN: &str = "amazon.titan-embed-text-v2:0";
const COHERE: &str = "cohere.embed-multilingual-v3";
/// In every secret of these tests.
const CANARY: &str = "canary";

fn at(server: &MockServer) -> Of {
    support::provider("bedrock", &server.uri(), "bearer-canary", |_| ())
}

/// Without a key, with credentials.
fn signed(server: &MockServer) -> Of {
    support::provider("bedrock", &server.uri(), "", with_credentials)
}

fn with_credentials(settings: &mut ModelSettings) {
    let secret = |text: &str| Secret::new(text).unwrap();
    settings.aws.region = Some("eu-central-1".to_owned());
    settings.aws.credentials = Some(AwsCredentials {
        access_key_id: secret("AKIAIOSFODNN7canary"),
        secret_access_key: secret("wJalrXUtnFEMI/K7MDENG/canary"),
        session_token: Some(secret("session-canary")),
    });
}

fn stream(events: &[(&str, Value)]) -> ResponseTemplate {
    let body: Vec<u8> = events.iter().flat_map(|(kind, payload)| event(kind, &payload.to_string())).collect();
    ResponseTemplate::new(200).set_body_raw(body, "application/vnd.amazon.eventstream")
}

fn said(text: &str) -> ResponseTemplate {
    stream(&[
        ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": text}})),
        ("messageStop", json!({"stopReason": "end_turn"})),
        ("metadata", json!({"usage": {"inputTokens": 4, "outputTokens": 1, "totalTokens": 5}})),
    ])
}

fn reply(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

async fn chat(provider: &Of, request: ChatRequest) -> Result<ChatReply, ModelError> {
    provider.chat(request, &mut NoDeltas, CancellationToken::new()).await
}

/// What the server was asked for, as it came: a matcher would see it decoded.
async fn asked(server: &MockServer) -> Vec<String> {
    let requests = server.received_requests().await.unwrap();
    requests.iter().map(|request| request.url.path().to_owned()).collect()
}

/// A conversation in the middle of a tool's use, with all settings that there are.
fn conversation(model: &str) -> ChatRequest {
    let call = ToolCall { id: "tooluse_0".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) };
    ChatRequest {
        model: model.into(),
        messages: vec![
            Message::system("be short"),
            Message::user("time?"),
            Message { tool_calls: vec![call], ..Message::assistant("") },
            Message::tool("tooluse_0", "12:00"),
        ],
        tools: vec![ToolSpec {
            name: "clock".into(),
            description: "the time".into(),
            parameters: json!({"type": "object", "properties": {}}),
        }],
        temperature: Some(0.5),
        top_p: Some(0.9),
        max_tokens: Some(9),
        stop: vec!["X".into()],
        ..ChatRequest::default()
    }
}

fn expected() -> Value {
    json!({
        "system": [{"text": "be short"}],
        "messages": [
            {"role": "user", "content": [{"text": "time?"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "tooluse_0", "name": "clock", "input": {"zone": "UTC"}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "tooluse_0", "content": [{"text": "12:00"}]}}]},
        ],
        "toolConfig": {"tools": [{"toolSpec": {"name": "clock", "description": "the time", "inputSchema": {"json": {"type": "object"}}}}]},
        "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["X"]},
    })
}

#[tokio::test]
async fn given_a_tool_when_it_is_used_then_its_input_is_put_together_and_its_result_goes_back() {
    let server = MockServer::start().await;
    let piece = |text: &str| json!({"contentBlockIndex": 1, "delta": {"toolUse": {"input": text}}});
    let events = [
        ("messageStart", json!({"role": "assistant"})),
        ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "let me look"}})),
        ("contentBlockStop", json!({"contentBlockIndex": 0})),
        (
            "contentBlockStart",
            json!({"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "tooluse_1", "name": "clock"}}}),
        ),
        ("contentBlockDelta", piece("{\"zo")),
        ("contentBlockDelta", piece("ne\": 1}")),
        ("contentBlockStop", json!({"contentBlockIndex": 1})),
        ("messageStop", json!({"stopReason": "tool_use"})),
        (
            "metadata",
            json!({
                "usage": {"inputTokens": 2, "cacheReadInputTokens": 2, "cacheWriteInputTokens": 1, "outputTokens": 9, "totalTokens": 14},
                "metrics": {"latencyMs": 3},
            }),
        ),
    ];
    let wanted = Mock::given(method("POST")).and(body_partial_json(expected()));
    wanted
        .and(body_partial_json(json!({"additionalModelRequestFields": {"top_k": 7}})))
        .respond_with(stream(&events))
        .expect(1)
        .mount(&server)
        .await;
    let answered = chat(&at(&server), ChatRequest { top_k: Some(7), ..conversation(CLAUDE) }).await.unwrap();
    let call = ToolCall { id: "tooluse_1".into(), name: "clock".into(), arguments: json!({"zone": 1}) };
    assert_eq!((answered.tool_calls, answered.finish), (vec![call], FinishReason::ToolCalls));
    assert_eq!(answered.text, "let me look");
    let (cached_prompt_tokens, cache_write_tokens) = (2, 1);
    let usage =
        Usage { prompt_tokens: 5, completion_tokens: 9, cached_prompt_tokens, cache_write_tokens, ..Usage::default() };
    assert_eq!(answered.usage, usage);
    assert_eq!(asked(&server).await, ["/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"]);
}

#[tokio::test]
async fn given_a_model_that_takes_no_tools_in_a_stream_when_it_has_some_then_its_answer_comes_in_one_piece() {
    let server = MockServer::start().await;
    let used = json!({"toolUse": {"toolUseId": "tooluse_1", "name": "clock", "input": {"zone": 1}}});
    let message = json!({"role": "assistant", "content": [{"text": "let me look"}, used]});
    let whole = json!({
        "output": {"message": message}, "stopReason": "tool_use", "metrics": {"latencyMs": 3},
        "usage": {"inputTokens": 5, "outputTokens": 9, "totalTokens": 14},
    });
    Mock::given(method("POST")).and(body_partial_json(expected())).respond_with(reply(whole)).mount(&server).await;
    let answered = chat(&at(&server), conversation(LLAMA)).await.unwrap();
    assert_eq!((answered.text.as_str(), answered.finish), ("let me look", FinishReason::ToolCalls));
    assert_eq!(answered.tool_calls[0].arguments, json!({"zone": 1}));
    assert_eq!(answered.usage, Usage { prompt_tokens: 5, completion_tokens: 9, ..Usage::default() });

    let server = MockServer::start().await;
    Mock::given(any()).respond_with(said("hi")).mount(&server).await;
    assert_eq!(chat(&at(&server), ask(LLAMA, "x")).await.unwrap().text, "hi");
    assert_eq!(asked(&server).await, ["/model/us.meta.llama3-3-70b-instruct-v1%3A0/converse-stream"]);
}

#[tokio::test]
async fn given_a_schema_when_it_chats_then_a_tool_must_be_called_whose_input_is_the_answer_or_the_text_is_held_to_it() {
    let server = MockServer::start().await;
    let events = [
        (
            "contentBlockStart",
            json!({"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "structured_answer"}}}),
        ),
        ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{\"a\":1}"}}})),
        ("contentBlockStop", json!({"contentBlockIndex": 0})),
        ("messageStop", json!({"stopReason": "tool_use"})),
        ("metadata", json!({"usage": {"inputTokens": 5, "outputTokens": 9, "totalTokens": 14}})),
    ];
    let forced = json!({"toolConfig": {"toolChoice": {"tool": {"name": "structured_answer"}}}});
    Mock::given(body_partial_json(forced)).respond_with(stream(&events)).expect(1).mount(&server).await;
    let held = json!({"outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{\"type\":\"object\"}"}}}}});
    Mock::given(body_partial_json(held)).respond_with(said("{\"a\":2}")).expect(1).mount(&server).await;
    for (model, text) in [(CLAUDE, "{\"a\":1}"), ("qwen.qwen3-32b-v1:0", "{\"a\":2}")] {
        let request = ChatRequest { response_schema: Some(json!({"type": "object"})), ..ask(model, "x") };
        let answered = chat(&at(&server), request).await.unwrap();
        assert_eq!((answered.text.as_str(), answered.finish), (text, FinishReason::Stop), "{model}");
        assert!(answered.tool_calls.is_empty());
    }
}

#[tokio::test]
async fn given_reasons_for_which_an_answer_ends_when_they_come_then_they_are_told_apart() {
    for (reason, finish) in [
        ("end_turn", Ok(FinishReason::Stop)),
        ("stop_sequence", Ok(FinishReason::Stop)),
        ("max_tokens", Ok(FinishReason::Length)),
        ("model_context_window_exceeded", Ok(FinishReason::Length)),
        ("guardrail_intervened", Err("it withheld the answer: guardrail_intervened")),
        ("content_filtered", Err("it withheld the answer: content_filtered")),
        ("malformed_tool_use", Err("it ended its answer because of malformed_tool_use")),
    ] {
        let server = MockServer::start().await;
        let events = [
            ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "half"}})),
            ("messageStop", json!({"stopReason": reason})),
            ("metadata", json!({"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}})),
        ];
        Mock::given(any()).respond_with(stream(&events)).mount(&server).await;
        match (chat(&at(&server), ask(CLAUDE, "x")).await, finish) {
            (Ok(answered), Ok(finish)) => assert_eq!(answered.finish, finish, "{reason}"),
            (Err(error), Err(said)) => {
                assert!(error.code() == "model_bad_response" && error.to_string().contains(said), "{error}");
            }
            (answered, _) => panic!("{reason}: {answered:?}"),
        }
    }
}

#[tokio::test]
async fn given_an_exception_within_a_stream_when_it_comes_then_the_error_has_its_kind() {
    for (kind, message, code, retryable) in [
        ("throttlingException", "Too many requests", "model_rate_limited", true),
        ("serviceUnavailableException", "try later", "model_rate_limited", true),
        ("modelStreamErrorException", "the model broke off", "model_bad_response", true),
        ("internalServerException", "Internal error", "model_bad_response", true),
        ("validationException", "maxTokens is too high", "model_bad_request", false),
        ("validationException", "Input is too long for requested model.", "context_overflow", false),
    ] {
        let server = MockServer::start().await;
        let piece = json!({"contentBlockIndex": 0, "delta": {"text": "half"}}).to_string();
        let quoted = format!("{message} (bearer-canary)");
        let body = [event("contentBlockDelta", &piece), exception(kind, &quoted)].concat();
        Mock::given(any()).respond_with(ResponseTemplate::new(200).set_body_bytes(body)).mount(&server).await;
        let error = chat(&at(&server), ask(CLAUDE, "x")).await.unwrap_err();
        assert_eq!((error.code(), error.retryable()), (code, retryable), "{kind}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(code == "context_overflow" || shown.contains(message), "{shown}");
        assert!(!shown.contains(CANARY), "{shown}");
    }
}

#[tokio::test]
async fn given_refusals_in_the_words_of_aws_when_they_come_then_errors_are_typed_with_the_fix() {
    let no_access = "You don't have access to the model with the specified model ID.";
    let forbidden = "User: arn:aws:iam::111122223333:user/ann is not authorized to perform: bedrock:InvokeModel";
    let quoted = "The request signature we calculated does not match. 'x-amz-security-token:session-canary'";
    for (status, body, code, fix) in [
        (403, json!({"message": no_access}), "model_unauthorized", "bedrock:InvokeModelWithResponseStream"),
        (403, json!({"Message": forbidden}), "model_unauthorized", "bedrock:InvokeModelWithResponseStream"),
        (403, json!({"message": quoted}), "model_unauthorized", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (
            403,
            json!({"message": "The security token included in the request is expired"}),
            "model_unauthorized",
            "AWS_",
        ),
        (400, json!({"message": "The provided model identifier is invalid."}), "model_missing", "--provider bedrock"),
        (404, json!({"message": "Model not found"}), "model_missing", "--provider bedrock"),
        (400, json!({"message": "Input is too long for requested model."}), "context_overflow", "shorten"),
        (424, json!({"message": "the model failed", "originalStatusCode": 500}), "model_bad_response", ""),
        (408, json!({"message": "Model has timed out"}), "model_timeout", ""),
    ] {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(ResponseTemplate::new(status).set_body_json(&body)).mount(&server).await;
        let error = chat(&signed(&server), ask(CLAUDE, "x")).await.unwrap_err();
        let hint = error.hint().unwrap_or_default();
        assert_eq!(error.code(), code, "{body}: {error}");
        assert!(hint.contains(fix), "{body}: {hint}");
        let shown = format!("{error} {error:?} {hint}");
        assert!(!shown.contains(CANARY), "{shown}");
    }
}

#[tokio::test]
async fn given_throttling_when_it_passes_then_the_request_is_sent_again_with_a_new_signature_else_the_wait_is_told() {
    let server = MockServer::start().await;
    let throttled = |wait: &str| {
        ResponseTemplate::new(429)
            .insert_header("x-amzn-errortype", "ThrottlingException")
            .insert_header("retry-after", wait)
            .set_body_json(json!({"message": "Too many tokens, please wait before trying again."}))
    };
    Mock::given(any()).respond_with(throttled("0")).up_to_n_times(1).mount(&server).await;
    Mock::given(any()).respond_with(said("hi")).mount(&server).await;
    assert_eq!(chat(&signed(&server), ask(CLAUDE, "x")).await.unwrap().text, "hi");
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request.headers.contains_key("authorization")));

    let server = MockServer::start().await;
    Mock::given(any()).respond_with(throttled("3600")).expect(1).mount(&server).await;
    match chat(&signed(&server), ask(CLAUDE, "x")).await.unwrap_err() {
        ModelError::RateLimited { retry_after, .. } => assert_eq!(retry_after, Some(Duration::from_secs(3600))),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn given_credentials_when_anything_is_asked_then_it_is_signed_and_no_secret_leaves_but_the_session_token() {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200).set_body_string("nonsense")).mount(&server).await;
    let provider = signed(&server);
    let mut said =
        vec![provider.list_models().await.unwrap_err(), chat(&provider, ask(CLAUDE, "x")).await.unwrap_err()];
    let texts =
        EmbedRequest { model: TITAN.into(), inputs: vec!["a".into()], purpose: EmbedPurpose::Query, dimensions: None };
    said.push(provider.embed(texts).await.unwrap_err());
    said.push(provider.count_prompt(&ask(CLAUDE, "x")).await.unwrap_err());
    assert!(!format!("{said:?}").contains(CANARY), "{said:?}");
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests.len(), 4);
    for Request { url, headers, body, .. } in requests {
        let sent = headers["authorization"].to_str().unwrap().to_owned();
        let scope = "/eu-central-1/bedrock/aws4_request, SignedHeaders=";
        assert!(sent.starts_with("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7canary/") && sent.contains(scope), "{sent}");
        let covered = if body.is_empty() { "host;x-amz-date" } else { "content-type;host;x-amz-date" };
        assert!(sent.contains(&format!("SignedHeaders={covered};x-amz-security-token, Signature=")), "{sent}");
        assert_eq!(headers["x-amz-security-token"], "session-canary");
        let told = ["authorization", "x-amz-security-token"];
        let others = headers.iter().filter(|(name, _)| !told.contains(&name.as_str()));
        let others: Vec<&str> = others.map(|(_, value)| value.to_str().unwrap_or_default()).collect();
        let shown = format!("{url} {others:?} {}", String::from_utf8_lossy(&body));
        assert!(!shown.contains(CANARY) && !sent.contains("wJalrXUtnFEMI"), "{shown}");
    }
}

#[tokio::test]
async fn given_a_key_and_credentials_when_it_is_asked_then_the_key_goes_and_nothing_is_signed() {
    let server = MockServer::start().await;
    Mock::given(header("authorization", "Bearer bearer-canary")).respond_with(said("hi")).mount(&server).await;
    let both = support::provider("bedrock", &server.uri(), "bearer-canary", with_credentials);
    assert_eq!(chat(&both, ask(CLAUDE, "x")).await.unwrap().text, "hi");
    let requests = server.received_requests().await.unwrap();
    assert!(!requests[0].headers.contains_key("x-amz-date"));
}

#[tokio::test]
async fn given_less_than_it_needs_when_it_is_asked_then_it_says_which_setting_is_missing_and_sends_nothing() {
    async fn asked(change: fn(&mut ModelSettings)) -> (ProviderInfo, ModelError) {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = support::settings(dir.path());
        change(&mut settings);
        let models = Models::new(settings).unwrap();
        let info = models.providers().into_iter().find(|provider| provider.name == "bedrock").unwrap();
        let error = models.provider(Some("bedrock")).unwrap().list_models().await.unwrap_err();
        (info, error)
    }
    let (info, error) = asked(|_| ()).await;
    assert_eq!((info.has_key, info.address, error.code()), (Some(false), None, "model_runtime_down"));
    assert!(error.hint().unwrap().contains("AWS_REGION"), "{error}");

    let (info, error) = asked(|settings| settings.aws.region = Some("eu-central-1".to_owned())).await;
    assert_eq!(info.address.as_deref(), Some("https://bedrock-runtime.eu-central-1.amazonaws.com"));
    assert_eq!(error.code(), "model_unauthorized");
    let hint = error.hint().unwrap();
    for setting in ["RIVERRUN_BEDROCK_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "AWS_SECRET_ACCESS_KEY"] {
        assert!(hint.contains(setting), "{hint}");
    }

    let (info, error) = asked(|settings| {
        with_credentials(settings);
        settings.aws.region = None;
        settings.addresses.insert("bedrock".to_owned(), "http://127.0.0.1:9".to_owned());
    })
    .await;
    assert_eq!((info.has_key, error.code()), (Some(false), "model_runtime_down"));
    assert!(error.to_string().contains("no region is set"), "a signature has one: {error}");
}

#[tokio::test]
async fn given_embedding_models_when_texts_are_embedded_then_each_is_asked_in_its_own_way() {
    let server = MockServer::start().await;
    for (text, vector) in [("a", [1.0, 0.0]), ("b", [0.0, 1.0])] {
        Mock::given(body_partial_json(json!({"inputText": text})))
            .respond_with(reply(json!({"embedding": vector, "inputTextTokenCount": 2})))
            .expect(1)
            .mount(&server)
            .await;
    }
    let texts = |model: &str, inputs: &[&str]| EmbedRequest {
        model: model.into(),
        inputs: inputs.iter().map(|text| (*text).to_owned()).collect(),
        purpose: EmbedPurpose::Query,
        dimensions: None,
    };
    let embedded = at(&server).embed(texts(TITAN, &["a", "b"])).await.unwrap();
    assert_eq!((embedded.vectors, embedded.dimensions), (vec![vec![1.0, 0.0], vec![0.0, 1.0]], 2));
    assert_eq!((embedded.usage.prompt_tokens, embedded.truncated), (4, 0));
    let asked_for = json!({"inputText": "c", "dimensions": 2});
    let vector = reply(json!({"embedding": [1.0, 0.0], "inputTextTokenCount": 2}));
    Mock::given(body_partial_json(asked_for)).respond_with(vector).expect(1).mount(&server).await;
    let shorter = EmbedRequest { dimensions: Some(2), ..texts(TITAN, &["c"]) };
    assert_eq!(at(&server).embed(shorter).await.unwrap().vectors, [[1.0, 0.0]]);
    for model in ["amazon.titan-embed-text-v1", COHERE] {
        let refused = EmbedRequest { dimensions: Some(2), ..texts(model, &["c"]) };
        assert_eq!(at(&server).embed(refused).await.unwrap_err().code(), "model_unsupported", "{model}");
    }

    for body in [json!([[1.0], [2.0]]), json!({"float": [[1.0], [2.0]]})] {
        let server = MockServer::start().await;
        let wanted = json!({"texts": ["a", "b"], "input_type": "search_query", "truncate": "NONE"});
        Mock::given(body_partial_json(wanted)).respond_with(reply(json!({"embeddings": body}))).mount(&server).await;
        assert_eq!(at(&server).embed(texts(COHERE, &["a", "b"])).await.unwrap().vectors, [[1.0], [2.0]]);
        assert_eq!(asked(&server).await, ["/model/cohere.embed-multilingual-v3/invoke"]);
    }

    // A text that is too long is cut, and counted.
    let server = MockServer::start().await;
    let long = "ä".repeat(3000);
    let refused = json!({"message": "Malformed input request: expected maxLength: 2048, actual: 3000"});
    Mock::given(body_partial_json(json!({"truncate": "NONE"})))
        .respond_with(ResponseTemplate::new(400).set_body_json(refused))
        .mount(&server)
        .await;
    Mock::given(body_partial_json(json!({"truncate": "END", "texts": ["ä".repeat(2048)]})))
        .respond_with(reply(json!({"embeddings": [[1.0]]})))
        .mount(&server)
        .await;
    let embedded = at(&server).embed(texts(COHERE, &[long.as_str()])).await.unwrap();
    assert_eq!((embedded.vectors.len(), embedded.truncated), (1, 1));
    let error = at(&server).embed(texts(CLAUDE, &["a"])).await.unwrap_err();
    assert_eq!(error.code(), "model_unsupported");
}

#[tokio::test]
async fn given_lists_ranks_and_counts_when_they_are_asked_for_then_shapes_are_its_own() {
    let server = MockServer::start().await;
    let model = |id: &str, makes: &str| json!({"modelId": id, "modelName": "x", "providerName": "x", "outputModalities": [makes]});
    let models = [
        model("anthropic.claude-sonnet-4-5-20250929-v1:0", "TEXT"),
        model(TITAN, "EMBEDDING"),
        model("cohere.rerank-v3-5:0", "TEXT"),
        model("amazon.nova-canvas-v1:0", "IMAGE"),
    ];
    Mock::given(method("GET")).respond_with(reply(json!({"modelSummaries": models}))).mount(&server).await;
    let listed = at(&server).list_models().await.unwrap();
    let kinds: Vec<ModelKind> = listed.iter().map(|info| info.kind).collect();
    assert_eq!(kinds, [ModelKind::Chat, ModelKind::Embed, ModelKind::Rerank, ModelKind::Unknown]);
    assert_eq!(asked(&server).await, ["/foundation-models"]);

    let wanted = json!({"query": "q", "documents": ["a", "b"], "api_version": 2});
    let ranks = json!({"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]});
    Mock::given(body_partial_json(wanted)).respond_with(reply(ranks)).mount(&server).await;
    let documents = vec!["a".to_owned(), "b".to_owned()];
    let request = |model: &str| RerankRequest { model: model.into(), query: "q".into(), documents: documents.clone() };
    assert_eq!(at(&server).rerank(request("cohere.rerank-v3-5:0")).await.unwrap().scores, [0.1, 0.9]);
    assert_eq!(at(&server).rerank(request(CLAUDE)).await.unwrap_err().code(), "model_unsupported");

    let counted = json!({"input": {"converse": {"messages": [{"role": "user", "content": [{"text": "x"}]}]}}});
    Mock::given(body_partial_json(counted)).respond_with(reply(json!({"inputTokens": 7}))).mount(&server).await;
    assert_eq!(at(&server).count_prompt(&ask(CLAUDE, "x")).await.unwrap(), 7);
    assert_eq!(at(&server).count_tokens(CLAUDE, "x").await.unwrap(), 7);
}
