//! Fetching models from a hub, against a server that answers as one.
#![allow(clippy::disallowed_types, reason = "the crate under test needs no other lock than its own")]

#[path = "hub/refusals.rs"]
mod refusals;
#[path = "hub/several.rs"]
mod several;
mod support;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use riverrun_models::{ChatRequest, Message, ModelError, Models, NoDeltas, NoProgress, Presence, PullProgress};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

const FILE: &str = "/o/r/resolve/main/m.gguf";

fn models(dir: &Path, hub: &str) -> Models {
    let mut settings = support::settings(dir);
    settings.offline = false;
    settings.hub_base_url = hub.to_owned();
    Models::new(settings).unwrap()
}

fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn hub(content: &'static [u8], announced: &str) -> MockServer {
    let server = MockServer::start().await;
    let head = ResponseTemplate::new(302)
        .insert_header("x-linked-etag", format!("\"{announced}\""))
        .insert_header("location", "/store");
    Mock::given(method("HEAD")).and(path(FILE)).respond_with(head).mount(&server).await;
    let redirect = ResponseTemplate::new(302).insert_header("location", format!("{}/store", server.uri()));
    Mock::given(method("GET")).and(path(FILE)).respond_with(redirect).mount(&server).await;
    let rest = ResponseTemplate::new(206)
        .insert_header("content-range", "bytes 4-9/10")
        .set_body_bytes(content.get(4..).unwrap_or_default());
    Mock::given(path("/store"))
        .and(header("range", "bytes=4-"))
        .respond_with(rest)
        .with_priority(1)
        .mount(&server)
        .await;
    Mock::given(path("/store")).respond_with(ResponseTemplate::new(200).set_body_bytes(content)).mount(&server).await;
    server
}

#[derive(Default)]
struct Seen(Mutex<(u64, u64, u32)>);

impl PullProgress for Seen {
    fn start(&self, _model: &str, _file: &str, done: u64, total: Option<u64>) {
        *self.0.lock().unwrap() = (done, total.unwrap_or(0), 0);
    }
    fn advance(&self, bytes: u64) {
        self.0.lock().unwrap().0 += bytes;
    }
    fn finish(&self) {
        self.0.lock().unwrap().2 += 1;
    }
}

#[tokio::test]
async fn given_a_hub_when_a_model_is_pulled_then_it_is_checked_and_there_and_progress_was_told() {
    let content = b"GGUF567890";
    let server = hub(content, &sha256(content)).await;
    let dir = tempfile::tempdir().unwrap();
    let models = models(dir.path(), &server.uri());
    let seen = Seen::default();
    let info = models.pull("o/r:m.gguf", &seen, &CancellationToken::new()).await.unwrap();
    assert_eq!((info.name.as_str(), info.size_bytes, info.present), ("o--r--m.gguf", Some(10), true));
    assert_eq!(*seen.0.lock().unwrap(), (10, 10, 1));
    assert_eq!(std::fs::read(dir.path().join("cache/o--r--m.gguf/model.gguf")).unwrap(), content);
    assert!(matches!(models.presence("o/r:m.gguf").unwrap(), Presence::Present { .. }));
    let asked = server.received_requests().await.unwrap().len();
    models.pull("o/r:m.gguf", &NoProgress, &CancellationToken::new()).await.unwrap();
    assert_eq!(server.received_requests().await.unwrap().len(), asked, "what is there is not fetched again");
}

#[tokio::test]
async fn given_an_interrupted_download_when_it_is_pulled_again_then_it_goes_on() {
    let content = b"GGUF567890";
    let server = hub(content, &sha256(content)).await;
    let dir = tempfile::tempdir().unwrap();
    let partial = dir.path().join("cache/.o--r--m.gguf.partial");
    std::fs::create_dir_all(&partial).unwrap();
    std::fs::write(partial.join("model.gguf.part"), b"GGUF").unwrap();
    let seen = Seen::default();
    models(dir.path(), &server.uri()).pull("o/r:m.gguf", &seen, &CancellationToken::new()).await.unwrap();
    assert_eq!(std::fs::read(dir.path().join("cache/o--r--m.gguf/model.gguf")).unwrap(), content);
    assert!(!partial.exists());
}

#[tokio::test]
async fn given_a_download_of_a_file_that_was_replaced_since_when_it_goes_on_then_it_starts_over() {
    let content = b"GGUF567890";
    let server = hub(content, &sha256(content)).await;
    let dir = tempfile::tempdir().unwrap();
    let partial = dir.path().join("cache/.o--r--m.gguf.partial");
    std::fs::create_dir_all(&partial).unwrap();
    std::fs::write(partial.join("model.gguf.part"), b"OLD!").unwrap();
    models(dir.path(), &server.uri()).pull("o/r:m.gguf", &NoProgress, &CancellationToken::new()).await.unwrap();
    assert_eq!(std::fs::read(dir.path().join("cache/o--r--m.gguf/model.gguf")).unwrap(), content);
}

#[tokio::test]
async fn given_what_interrupted_pulls_and_removals_left_when_a_model_is_removed_then_its_bytes_are_free() {
    let content = b"GGUF567890";
    let server = hub(content, &sha256(content)).await;
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let models = models(dir.path(), &server.uri());
    std::fs::create_dir_all(cache.join(".o--r--m.gguf.partial")).unwrap();
    std::fs::write(cache.join(".o--r--m.gguf.partial/model.gguf.part"), b"GGUF").unwrap();
    assert_eq!(models.remove("o/r:m.gguf").unwrap(), 4);
    assert_eq!(models.remove("o/r:m.gguf").unwrap_err().code(), "model_missing");
    models.pull("o/r:m.gguf", &NoProgress, &CancellationToken::new()).await.unwrap();
    std::fs::create_dir_all(cache.join(".o--r--m.gguf.removed/half")).unwrap();
    assert_eq!(models.remove("o/r:m.gguf").unwrap(), 10);
    assert!(std::fs::read_dir(&cache).unwrap().next().is_none(), "nothing is left");
}

#[tokio::test]
async fn given_a_hub_that_is_busy_when_it_is_asked_then_the_error_says_for_how_long() {
    let server = MockServer::start().await;
    let busy = ResponseTemplate::new(429).insert_header("retry-after", "300");
    Mock::given(path(FILE)).respond_with(busy).mount(&server).await;
    let dir = tempfile::tempdir().unwrap();
    let error =
        models(dir.path(), &server.uri()).pull("o/r:m.gguf", &NoProgress, &CancellationToken::new()).await.unwrap_err();
    assert_eq!((error.code(), error.hint().as_deref()), ("model_rate_limited", Some("try again in 300 s")));
}

#[tokio::test]
async fn given_a_listing_that_hangs_and_one_who_waits_for_it_when_they_are_cancelled_then_both_end() {
    let server = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_secs(600));
    Mock::given(path("/api/models/o/r")).respond_with(slow).mount(&server).await;
    let dir = tempfile::tempdir().unwrap();
    let models = models(dir.path(), &server.uri());
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let (one, other, ()) = tokio::join!(
        models.pull("o/r", &NoProgress, &first),
        async {
            let outcome = models.pull("o/r", &NoProgress, &second).await;
            // The first is still under way: the second did not wait for its end.
            first.cancel();
            outcome
        },
        async {
            tokio::task::yield_now().await;
            second.cancel();
        }
    );
    assert_eq!((one.unwrap_err().code(), other.unwrap_err().code()), ("model_cancelled", "model_cancelled"));
}

#[tokio::test]
async fn given_a_file_with_another_hash_when_it_is_pulled_then_it_is_refused_and_removed() {
    let server = hub(b"GGUF567890", &sha256(b"something else")).await;
    let dir = tempfile::tempdir().unwrap();
    let models = models(dir.path(), &server.uri());
    let error = models.pull("o/r:m.gguf", &NoProgress, &CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("sha256"), "{error}");
    assert!(matches!(models.presence("o/r:m.gguf").unwrap(), Presence::Missing { .. }));
    assert!(!dir.path().join("cache/.o--r--m.gguf.partial/model.gguf.part").exists());
}

#[tokio::test]
async fn given_a_small_file_with_gits_hash_when_it_is_pulled_then_it_is_checked_too() {
    let base = "/sentence-transformers/all-MiniLM-L6-v2/resolve/main/";
    // Of `{}`, as `git hash-object` says; the answer to HEAD leads to another place of the same server, which tells it.
    let git = "9e26dfeeb6e641a33dae4961196235bdb965b21b";
    for (body, whole) in [("{}", true), ("{ }", false)] {
        let server = MockServer::start().await;
        let leads = ResponseTemplate::new(307).insert_header("location", "/cached/tokenizer.json");
        let tells = ResponseTemplate::new(200).insert_header("etag", format!("\"{git}\""));
        Mock::given(method("HEAD")).and(path(format!("{base}tokenizer.json"))).respond_with(leads).mount(&server).await;
        Mock::given(method("HEAD")).and(path("/cached/tokenizer.json")).respond_with(tells).mount(&server).await;
        for (file, body) in [("config.json", "{}"), ("tokenizer.json", body), ("model.safetensors", "x")] {
            Mock::given(path(format!("{base}{file}")))
                .respond_with(ResponseTemplate::new(200).set_body_string(body))
                .mount(&server)
                .await;
        }
        let dir = tempfile::tempdir().unwrap();
        let models = models(dir.path(), &server.uri());
        let pulled = models.pull("all-minilm-l6-v2", &NoProgress, &CancellationToken::new()).await;
        assert_eq!(pulled.is_ok(), whole, "{pulled:?}");
        if let Err(error) = pulled {
            assert!(error.to_string().contains("git hash") && error.to_string().contains(git), "{error}");
            assert!(!dir.path().join("cache/all-minilm-l6-v2").exists());
        }
    }
}

#[tokio::test]
async fn given_an_encoder_when_it_is_pulled_then_optional_files_may_be_missing_and_needed_ones_not() {
    let server = MockServer::start().await;
    let base = "/sentence-transformers/all-MiniLM-L6-v2/resolve/main/";
    for (file, body) in
        [("config.json", r#"{"architectures":["BertModel"]}"#), ("tokenizer.json", "{}"), ("model.safetensors", "x")]
    {
        Mock::given(path(format!("{base}{file}")))
            .respond_with(ResponseTemplate::new(200).set_body_string(body))
            .mount(&server)
            .await;
    }
    let dir = tempfile::tempdir().unwrap();
    let info = models(dir.path(), &server.uri())
        .pull("all-minilm-l6-v2", &NoProgress, &CancellationToken::new())
        .await
        .unwrap();
    assert_eq!((info.present, info.dimensions), (true, Some(384)));

    let dir = tempfile::tempdir().unwrap();
    let error = models(dir.path(), &server.uri())
        .pull("all-mpnet-base-v2", &NoProgress, &CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.code(), "model_missing");
}

#[tokio::test]
async fn given_no_hub_when_a_missing_model_is_used_then_it_fails_with_every_fix() {
    let dir = tempfile::tempdir().unwrap();
    let models = models(dir.path(), "http://127.0.0.1:1");
    for _ in 0..2 {
        let request = ChatRequest { messages: vec![Message::user("x")], ..ChatRequest::default() };
        let error = models.chat(None, request, &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.code(), "model_missing", "{error}");
        let hint = error.hint().unwrap();
        for fix in ["riverrun models pull qwen2.5-0.5b-instruct", "RIVERRUN_MODELS_DIR", "./x models"] {
            assert!(hint.contains(fix), "{hint}");
        }
    }
}

#[tokio::test]
async fn given_models_that_are_not_fetched_when_one_is_missing_then_the_setting_is_named_before_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let models = Models::new(support::settings(dir.path())).unwrap();
    let pulled = models.pull("qwen2.5-0.5b-instruct", &NoProgress, &CancellationToken::new()).await.unwrap_err();
    let request = ChatRequest { messages: vec![Message::user("x")], ..ChatRequest::default() };
    let used = models.chat(None, request, &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
    for error in [pulled, used] {
        assert_eq!(error.code(), "model_missing", "{error}");
        assert!(error.to_string().ends_with("is not fetched, because RIVERRUN_MODELS_OFFLINE is true"), "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.starts_with("unset RIVERRUN_MODELS_OFFLINE and run `riverrun models pull"), "{hint}");
    }
}

#[tokio::test]
async fn given_a_download_that_hangs_when_it_is_cancelled_then_it_ends() {
    let server = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_secs(60));
    Mock::given(path(FILE)).respond_with(slow).mount(&server).await;
    let dir = tempfile::tempdir().unwrap();
    let models = models(dir.path(), &server.uri());
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let (outcome, ()) = tokio::join!(models.pull("o/r:m.gguf", &NoProgress, &cancel), async move {
        tokio::task::yield_now().await;
        stop.cancel();
    });
    assert_eq!(outcome.unwrap_err().code(), "model_cancelled");
}

/// A file as the hub's own programs keep it: a snapshot that points at a blob, and a name for the revision.
fn shared_cache(dir: &Path, content: &[u8]) -> std::path::PathBuf {
    let cache = dir.join("hub");
    let repo = cache.join("models--o--r");
    for folder in ["refs", "blobs", "snapshots/abc"] {
        std::fs::create_dir_all(repo.join(folder)).unwrap();
    }
    std::fs::write(repo.join("refs/main"), "abc").unwrap();
    std::fs::write(repo.join("blobs/1"), content).unwrap();
    std::os::unix::fs::symlink("../../blobs/1", repo.join("snapshots/abc/m.gguf")).unwrap();
    cache
}

#[tokio::test]
async fn given_a_file_that_another_program_fetched_when_it_is_pulled_then_the_hub_is_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    let server = MockServer::start().await;
    let mut settings = support::settings(dir.path());
    settings.offline = false;
    settings.hub_base_url = server.uri();
    settings.hub_cache_dir = Some(shared_cache(dir.path(), b"0123456789"));
    let models = Models::new(settings).unwrap();
    let model = models.pull("o/r:m.gguf", &NoProgress, &CancellationToken::new()).await.unwrap();
    assert!(server.received_requests().await.unwrap().is_empty());
    let pulled = walk(&dir.path().join("cache"));
    assert_eq!(pulled, [b"0123456789".to_vec()], "{model:?}");
}

fn walk(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![std::fs::read(path).unwrap()] }).collect()
}

/// A hub with these files in the repository o/r. It lists them, tells their hashes and sizes, and sends on to a store.
async fn repository(files: &[(&str, &[u8])]) -> MockServer {
    let server = MockServer::start().await;
    let siblings: Vec<_> = files.iter().map(|(name, _)| json!({ "rfilename": name })).collect();
    let listing = ResponseTemplate::new(200).set_body_json(json!({ "siblings": siblings }));
    Mock::given(path("/api/models/o/r")).respond_with(listing).mount(&server).await;
    for (name, content) in files {
        let (at, stored) = (format!("/o/r/resolve/main/{name}"), format!("/store/{name}"));
        let head = ResponseTemplate::new(302)
            .insert_header("x-linked-etag", sha256(content))
            .insert_header("x-linked-size", content.len().to_string())
            .insert_header("location", "/elsewhere");
        Mock::given(method("HEAD")).and(path(at.as_str())).respond_with(head).mount(&server).await;
        let redirect = ResponseTemplate::new(302).insert_header("location", format!("{}{stored}", server.uri()));
        Mock::given(method("GET")).and(path(at.as_str())).respond_with(redirect).mount(&server).await;
        let rest = ResponseTemplate::new(206)
            .insert_header("content-range", format!("bytes 4-{}/{}", content.len() - 1, content.len()))
            .set_body_bytes(&content[4..]);
        let ranged = Mock::given(path(stored.as_str())).and(header("range", "bytes=4-")).respond_with(rest);
        ranged.with_priority(1).mount(&server).await;
        let whole = ResponseTemplate::new(200).set_body_bytes(*content);
        Mock::given(path(stored.as_str())).respond_with(whole).mount(&server).await;
    }
    server
}

/// How often a server was asked in this way for a path that has this in it.
async fn asked(server: &MockServer, way: &str, part: &str) -> usize {
    let requests = server.received_requests().await.unwrap();
    requests.iter().filter(|request| request.method.as_str() == way && request.url.path().contains(part)).count()
}

async fn pull(models: &Models, name: &str) -> Result<String, ModelError> {
    models.pull(name, &NoProgress, &CancellationToken::new()).await.map(|info| info.name)
}
