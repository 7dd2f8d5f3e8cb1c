//! What is said where a hub gives no model, and who gets the token.

use std::path::Path;

use riverrun_models::{ChatRequest, Message, Models, NoDeltas, Secret};
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{any, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::{FILE, models, pull, repository, support};

/// The models of a folder, with a token for the hub.
fn with_token(dir: &Path, hub: &str, token: Option<&str>) -> Models {
    let mut settings = support::settings(dir);
    settings.offline = false;
    settings.hub_base_url = hub.to_owned();
    settings.hub_token = token.and_then(Secret::new);
    Models::new(settings).unwrap()
}

#[tokio::test]
async fn given_a_token_when_the_hub_sends_on_to_a_store_then_the_hub_alone_gets_it() {
    let content = b"GGUF567890";
    let store = MockServer::start().await;
    let signed = ResponseTemplate::new(200).set_body_bytes(content);
    Mock::given(path("/signed")).respond_with(signed).mount(&store).await;
    // The second is another host to a parser of addresses, though it begins as a path does.
    let places = [format!("{}/signed?key=1", store.uri()), format!("/\\{}/signed", store.address())];
    for place in places {
        let server = MockServer::start().await;
        let head = ResponseTemplate::new(307).insert_header("location", place);
        Mock::given(method("HEAD")).and(path(FILE)).respond_with(head).mount(&server).await;
        let leads = ResponseTemplate::new(302).insert_header("location", format!("{}/signed?key=1", store.uri()));
        Mock::given(method("GET")).and(path(FILE)).respond_with(leads).mount(&server).await;
        let dir = tempfile::tempdir().unwrap();
        pull(&with_token(dir.path(), &server.uri(), Some("hf_canary")), "o/r:m.gguf").await.unwrap();
        let asked = server.received_requests().await.unwrap();
        assert_eq!(asked.len(), 2);
        assert!(asked.iter().all(|request| request.headers["authorization"] == "Bearer hf_canary"));
    }
    let asked = store.received_requests().await.unwrap();
    assert_eq!(asked.len(), 2, "the file alone, each time");
    assert!(asked.iter().all(|request| !request.headers.contains_key("authorization")));
}

#[tokio::test]
async fn given_a_store_that_refuses_when_a_model_is_pulled_then_no_token_is_asked_for_and_no_signature_shows() {
    let store = MockServer::start().await;
    Mock::given(path("/signed")).respond_with(ResponseTemplate::new(403)).mount(&store).await;
    // Another host than the hub's, at the same address.
    let place = format!("http://localhost:{}/signed?key=canary", store.address().port());
    let server = MockServer::start().await;
    let leads = ResponseTemplate::new(302).insert_header("location", place);
    Mock::given(path(FILE)).respond_with(leads).mount(&server).await;
    let dir = tempfile::tempdir().unwrap();
    let error = pull(&models(dir.path(), &server.uri()), "o/r:m.gguf").await.unwrap_err();
    let shown = format!("{error} {error:?} {:?}", error.hint());
    assert!(shown.contains("localhost") && shown.contains("403"), "{shown}");
    assert!(!shown.contains("HUB_TOKEN") && !shown.contains("canary"), "{shown}");
}

#[tokio::test]
async fn given_a_hub_that_refuses_when_a_model_is_pulled_or_used_then_the_token_and_the_terms_are_told() {
    for (status, code, token, message, fix) in [
        (401_u16, "GatedRepo", None, "no token was sent", "accept its terms on"),
        (403, "GatedRepo", Some("hf_canary"), "the token was sent", "with the account of the token"),
        (401, "RepoNotFound", None, "RepoNotFound", "check the name"),
        (401, "", Some("hf_canary"), "the token was sent", "a valid token"),
    ] {
        let server = MockServer::start().await;
        let refusal = ResponseTemplate::new(status).insert_header("x-error-code", code);
        Mock::given(any()).respond_with(refusal).mount(&server).await;
        for name in ["meta/gated", "meta/gated:m.gguf", "meta/gated:Q4_K_M"] {
            let dir = tempfile::tempdir().unwrap();
            let models = with_token(dir.path(), &server.uri(), token);
            let messages = vec![Message::user("x")];
            let request = ChatRequest { messages, model: name.into(), ..ChatRequest::default() };
            let used = models.chat(None, request, &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
            for error in [used, pull(&models, name).await.unwrap_err()] {
                let hint = error.hint().unwrap();
                assert_eq!(error.code(), "model_missing", "{error}");
                assert!(error.to_string().contains(message), "{error}");
                let page = format!("{}/meta/gated", server.uri());
                for part in [fix, page.as_str(), "RIVERRUN_HUB_TOKEN (or HF_TOKEN)", "RIVERRUN_MODELS_DIR"] {
                    assert!(hint.contains(part), "{part}: {hint}");
                }
                assert!(!hint.contains("models pull"), "{hint}");
                assert!(!format!("{error} {error:?} {hint}").contains("canary"), "{error:?}");
            }
        }
    }
}

#[tokio::test]
async fn given_a_pull_that_fails_when_its_hint_is_read_then_it_is_something_else_than_the_same_command() {
    let several = repository(&[("a-Q8_0.gguf", b"GGUF-8"), ("a-Q5_0.gguf", b"GGUF-5")]).await;
    let empty = MockServer::start().await;
    let (several, empty, nobody) = (several.uri(), empty.uri(), "http://127.0.0.1:1");
    let dir = tempfile::tempdir().unwrap();
    for (hub, name, wanted) in [
        (several.as_str(), "o/r", ["a-Q5_0.gguf, a-Q8_0.gguf", "o/r:Q5_0"]),
        (several.as_str(), "o/r:Q6_K", ["a-Q5_0.gguf, a-Q8_0.gguf", "o/r:Q5_0"]),
        (several.as_str(), "o/r:other.gguf", ["a-Q5_0.gguf, a-Q8_0.gguf", "o/r:Q5_0"]),
        (empty.as_str(), "x/y", ["check the name", "x/y"]),
        (empty.as_str(), "x/y:m.gguf", ["check the name", "x/y"]),
        (empty.as_str(), "x/y:Q8_0", ["check the name", "x/y"]),
        (several.as_str(), "nonsense", ["`riverrun models`", "owner/repo"]),
        (nobody, "o/r", ["RIVERRUN_HUB_BASE_URL", "RIVERRUN_MODELS_OFFLINE=true"]),
        (nobody, "o/r:m.gguf", ["RIVERRUN_HUB_BASE_URL", "RIVERRUN_MODELS_OFFLINE=true"]),
        (nobody, "qwen2.5-0.5b-instruct", ["./x models", "that has qwen2.5-0.5b-instruct/"]),
    ] {
        let error = pull(&models(dir.path(), hub), name).await.unwrap_err();
        let hint = error.hint().unwrap();
        assert!(!hint.contains("models pull"), "{name}: {hint}");
        for part in wanted.into_iter().chain(["RIVERRUN_MODELS_DIR"]) {
            assert!(hint.contains(part), "{name} {part}: {hint}");
        }
        assert_eq!(error.code(), "model_missing");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(error.to_string().contains("does not answer"), hub == nobody, "{error}");
    }
}
