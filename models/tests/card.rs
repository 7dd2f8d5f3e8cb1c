//! What a card says, measured at a server that speaks OpenAI's API and behaves in one way or another.

mod support;

use riverrun_models::{Known, ModelCard, ModelError, Models};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

/// How a server takes long prompts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Long {
    /// It reads them.
    Reads,
    /// It says that they are too long.
    Refuses,
    /// It leaves out the beginning and says nothing.
    Cuts,
    /// It reads them and forgets the beginning.
    Forgets,
}

/// Counts a word as a token; more than `most` of them are a long prompt.
#[derive(Debug, Clone, Copy)]
struct Server {
    long: Long,
    most: usize,
    able: bool,
}

impl Respond for Server {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let text = body["messages"][0]["content"].as_str().unwrap();
        let tokens = text.split_whitespace().count();
        let long = tokens > self.most;
        if long && self.long == Long::Refuses {
            let message =
                format!("This model's maximum context length is {} tokens, you asked for {tokens}", self.most);
            return ResponseTemplate::new(400).set_body_json(json!({"error": {"message": message}}));
        }
        let read = if long && self.long == Long::Cuts { self.most } else { tokens };
        let delta = match (
            self.able,
            text.contains("code word"),
            body["tools"].is_array(),
            body["response_format"].is_object(),
        ) {
            (_, true, _, _) if long && self.long != Long::Reads => json!({"content": "I can't say."}),
            (_, true, _, _) => json!({"content": "Marigold."}),
            (true, _, true, _) => {
                json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "weather", "arguments": "{\"city\": \"Lima\"}"}}]})
            }
            (true, _, _, true) => json!({"content": "{\"city\": \"Lima\", \"country\": \"Peru\"}"}),
            _ => json!({"content": "300 301 302"}),
        };
        let choice = |delta: Value, finish: Option<&str>| json!({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        let usage =
            json!({"choices": [], "usage": {"prompt_tokens": read, "completion_tokens": 3, "total_tokens": read + 3}});
        let events = [choice(delta, None), choice(json!({}), Some("stop")), usage];
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        ResponseTemplate::new(200).set_body_raw(format!("{stream}data: [DONE]\n\n"), "text/event-stream")
    }
}

async fn measured(server: Server, listed: Value) -> (Models, ModelCard) {
    let http = MockServer::start().await;
    Mock::given(path("/v1/models")).respond_with(ResponseTemplate::new(200).set_body_json(listed)).mount(&http).await;
    Mock::given(path("/v1/chat/completions")).respond_with(server).mount(&http).await;
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    settings.addresses.insert("openai".to_owned(), http.uri());
    settings.context_tokens = 4_096;
    let models = Models::new(settings).unwrap();
    let card = models.measure(Some("openai"), "m", &CancellationToken::new()).await.unwrap();
    // The server is gone: what is known is what was measured.
    (models, card)
}

fn untold() -> Value {
    json!({"object": "list", "data": [{"id": "m"}]})
}

#[tokio::test]
async fn given_a_server_that_tells_no_context_when_it_is_measured_then_what_it_refuses_or_cuts_is_its_context() {
    for (long, context) in
        [(Long::Reads, None), (Long::Refuses, Some(1_500)), (Long::Cuts, Some(1_500)), (Long::Forgets, None)]
    {
        let (models, card) = measured(Server { long, most: 1_500, able: true }, untold()).await;
        assert_eq!(card.context_tokens, context, "{long:?}: {card:?}");
        let usable = card.usable_context_tokens.unwrap();
        if long == Long::Reads {
            assert!((3_600..4_096).contains(&usable), "{long:?}: {card:?}");
        } else {
            assert!((900..1_500).contains(&usable), "{long:?}: {card:?}");
        }
        // Prompts are fitted to it from now on.
        let told = models.context_tokens(Some("openai"), "m").await;
        assert_eq!(told.as_ref().ok().copied(), context, "{long:?}: {told:?}");
        assert_eq!(models.known(None, "openai/m").unwrap(), card.known());
    }
}

#[tokio::test]
async fn given_a_server_that_tells_its_context_when_it_is_measured_then_no_longer_prompt_is_tried_and_what_it_tells_counts()
 {
    let listed = json!({"data": [{"id": "m", "max_model_len": 1_024}]});
    let (models, card) = measured(Server { long: Long::Refuses, most: 600, able: true }, listed).await;
    assert_eq!(card.context_tokens, Some(1_024));
    assert!(card.usable_context_tokens.is_some_and(|tokens| tokens < 600), "{card:?}");
    assert_eq!(models.context_tokens(Some("openai"), "m").await.unwrap(), 1_024);
}

#[tokio::test]
async fn given_answers_when_a_model_is_measured_then_those_of_the_wanted_shape_are_counted() {
    for (able, right) in [(true, 4), (false, 0)] {
        let (models, card) = measured(Server { long: Long::Reads, most: 1_000_000, able }, untold()).await;
        assert_eq!((card.valid_json, card.valid_tool_calls, card.questions), (right, right, 4));
        assert_eq!((card.provider.as_str(), card.model.as_str()), ("openai", "m"));
        assert!(
            card.prompt_tokens_per_s.is_some_and(|speed| speed > 0.0) && card.machine.contains(" thread"),
            "{card:?}"
        );
        let known = models.known(Some("openai"), "m").unwrap();
        assert_eq!(known, Known { context_tokens: None, answers_json: able });
    }
}

#[tokio::test]
async fn given_a_server_that_is_gone_or_a_caller_that_is_when_a_model_is_measured_then_there_is_no_card() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    settings.addresses.insert("openai".to_owned(), "http://127.0.0.1:1".to_owned());
    let models = Models::new(settings).unwrap();
    let error = models.measure(Some("openai"), "m", &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.code(), "model_runtime_down");
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let server = support::RawServer::start(support::Script::ThenHang(b"data: ".to_vec())).await;
    let mut settings = support::settings(dir.path());
    settings.addresses.insert("openai".to_owned(), server.address.clone());
    let models = Models::new(settings).unwrap();
    let error = models.measure(Some("openai"), "m", &cancelled).await.unwrap_err();
    assert_eq!(error, ModelError::Cancelled);
    assert_eq!(models.known(Some("openai"), "m"), None);
}
