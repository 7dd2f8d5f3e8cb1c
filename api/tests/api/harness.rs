use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use riverrun_api::stack::{Stack, StackConfig};
use riverrun_api::{ApiConfig, Core, app};
use riverrun_models::{ModelSettings, Models};
use riverrun_workers::tracer::TracingService;
use serde_json::Value;
use tower::ServiceExt;

use crate::model_server::{self, Asked};

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());
static API: LazyLock<Api> = LazyLock::new(|| RUNTIME.block_on(Api::start()));

/// Runs a test against the one stack of this test program.
pub(crate) fn test<F: Future>(work: impl FnOnce(&'static Api) -> F) -> F::Output {
    let api = &*API;
    RUNTIME.block_on(work(api))
}

/// A stack, its router, and a socket that it listens on.
pub(crate) struct Api {
    pub router: Router,
    pub address: String,
    pub files: PathBuf,
    pub asked: Asked,
    /// Dropped with its workers at the end of the program.
    pub stack: Stack,
    _folder: tempfile::TempDir,
}

pub(crate) struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Api {
    async fn start() -> Self {
        Self::traced(TracingService::default()).await
    }

    /// A stack whose runs are told to `tracing`.
    pub async fn traced(tracing: TracingService) -> Self {
        Self::with(tracing, |config| config).await
    }

    /// A stack with other settings than those of the tests.
    pub async fn configured(change: impl FnOnce(ApiConfig) -> ApiConfig) -> Self {
        Self::with(TracingService::default(), change).await
    }

    async fn with(tracing: TracingService, change: impl FnOnce(ApiConfig) -> ApiConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().canonicalize().unwrap().join("files");
        std::fs::create_dir(&files).unwrap();
        let (model_server, asked) = model_server::start().await;
        let core = Core::new(change(config(&files)), models(&model_server, folder.path())).with_tracing(tracing);
        let stack = Stack::start(StackConfig::new(folder.path().join("data"), core)).await.unwrap();
        let router = app(stack.state().clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = router.clone();
        tokio::spawn(async move { axum::serve(listener, served).await.unwrap() });
        Self { router, address, files, asked, stack, _folder: folder }
    }

    /// Stops the stack, as a process that ends does.
    pub(crate) async fn stop(self) {
        self.stack.stop().await;
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Reply { status, headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path).header("host", "localhost").body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.post_with(path, body, &[]).await
    }

    pub(crate) async fn post_with(&self, path: &str, body: Value, headers: &[(&str, &str)]) -> Reply {
        let mut request = Request::post(path).header("host", "localhost").header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// Starts a run and gives its id.
    pub(crate) async fn start_run(&self, task: &str) -> String {
        let reply = self.post("/runs", serde_json::json!({ "task": task, "agent": "react" })).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        assert_eq!(
            reply.headers["location"].to_str().unwrap(),
            format!("/runs/{}", reply.body["run_id"].as_str().unwrap())
        );
        reply.body["run_id"].as_str().unwrap().to_owned()
    }

    /// Waits for an ingest's end.
    pub(crate) async fn ingest_end(&self, ingest_id: &str) -> Value {
        wait_for("the ingest to end", async || {
            let reply = self.get(&format!("/ingest/{ingest_id}")).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            (reply.body["status"] != "running").then_some(reply.body)
        })
        .await
    }

    /// Takes files into a collection.
    pub(crate) async fn ingest(&self, collection: &str, files: &[(&str, &str)]) -> Value {
        let folder = self.files.join(collection);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let reply = self.post("/ingest", serde_json::json!({ "source": folder, "collection": collection })).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        self.ingest_end(reply.body["ingest_id"].as_str().unwrap()).await
    }
}

fn config(files: &Path) -> ApiConfig {
    ApiConfig {
        ingest_roots: vec![files.to_owned()],
        chunk_size: 400,
        chunk_overlap: 50,
        rag_top_k: 5,
        agent_max_iters: 8,
        agent_temperature: 0.0,
        ..ApiConfig::default()
    }
}

fn models(server: &str, folder: &Path) -> Models {
    Models::new(ModelSettings {
        runtime_base_url: Some(server.to_owned()),
        default_chat_model: Some("stub".to_owned()),
        default_embed_model: "ollama/stub-embed".to_owned(),
        cache_dir: folder.join("models"),
        offline: true,
        ..ModelSettings::default()
    })
    .unwrap()
}

/// Polls until there is something.
pub(crate) async fn wait_for<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), waiting)
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Checks that an answer is a problem document with a fix, and gives it.
pub(crate) fn problem(reply: &Reply, statuses: &[u16]) -> Value {
    assert!(statuses.contains(&reply.status), "{} {}", reply.status, reply.body);
    assert_eq!(reply.headers["content-type"], "application/problem+json", "{}", reply.body);
    let body = &reply.body;
    assert_eq!(body["status"], reply.status);
    assert_eq!(body["title"], StatusCode::from_u16(reply.status).unwrap().canonical_reason().unwrap());
    assert_eq!(body["type"], format!("urn:riverrun:problem:{}", body["code"].as_str().unwrap()));
    assert!(!body["detail"].as_str().unwrap().is_empty());
    assert!(
        body["hint"].is_string() || body["errors"].is_array() || [400, 404].contains(&reply.status),
        "no fix: {body}"
    );
    body.clone()
}
