//! given a real server of the protocol over streamable HTTP, when a toolbox uses it, then this becomes of its tools.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolResponse, ContentBlock, ErrorData, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::super::tests::{context, load};
use super::super::{DefinedTools, ServerStatus};
use super::*;
use crate::tools::Toolbox;

/// How long a condition is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// What the server has, and what it saw; it outlives the server.
#[derive(Default)]
struct Stock {
    tools: RwLock<Vec<&'static str>>,
    clients: RwLock<Vec<Peer<RoleServer>>>,
    authorization: RwLock<Option<String>>,
    stalled: AtomicUsize,
}

impl Stock {
    fn of(tools: &[&'static str]) -> Arc<Self> {
        Arc::new(Self { tools: RwLock::new(tools.to_vec()), ..Self::default() })
    }

    /// Tells every client that the tools are others; one that is gone hears nothing.
    async fn tell(&self) {
        let clients = self.clients.read().clone();
        for client in clients {
            let _ = client.notify_tool_list_changed().await;
        }
    }
}

struct Shop(Arc<Stock>);

impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.clients.write().push(context.peer.clone());
        let tools = self.0.tools.read().iter().map(|name| listed(name)).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let header = context.extensions.get::<Parts>().and_then(|parts| parts.headers.get("authorization"));
        *self.0.authorization.write() = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let part = request.arguments.unwrap_or_default().remove("part").unwrap_or_default();
        if request.name == "stall" {
            self.0.stalled.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        let words = format!("{} costs 7", part.as_str().unwrap_or_default());
        Ok(CallToolResult::success(vec![ContentBlock::text(words)]).into())
    }
}

fn listed(name: &'static str) -> rmcp::model::Tool {
    let mut schema = JsonObject::new();
    schema.insert("type".into(), json!("object"));
    schema.insert("properties".into(), json!({ "part": { "type": "string" } }));
    schema.insert("required".into(), json!(["part"]));
    rmcp::model::Tool::new(name, "What a part costs.", schema)
}

/// A process of its own, as far as its clients can tell: when it ends, all of it ends where it stands.
struct Process {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Process {
    async fn start(stock: &Arc<Stock>, address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // The address of one that has just ended is not free at once.
        let deadline = Instant::now() + PATIENCE;
        let listener = loop {
            match std::net::TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
            }
            tokio::time::sleep(POLL).await;
        };
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let stock = stock.clone();
        runtime.spawn(async move {
            let service = StreamableHttpService::new(
                move || Ok(Shop(stock.clone())),
                Arc::new(LocalSessionManager::default()),
                StreamableHttpServerConfig::default(),
            );
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await.unwrap();
        });
        Self { address, runtime: Some(runtime) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn defined(address: SocketAddr) -> DefinedTools {
    let tools = load(&format!(
        r#"
        [[mcp]]
        name = "shop"
        url = "http://{address}/mcp"
        timeout_s = 5
        headers = {{ authorization = {{ env = "SET", prefix = "Bearer " }} }}
        "#
    ));
    assert_eq!(tools.problems(), []);
    tools
}

async fn ready(tools: &DefinedTools) -> Toolbox {
    let toolbox = Toolbox::default().with_set(Arc::new(tools.clone()));
    toolbox.prepare(&Namespace::default()).await;
    toolbox
}

fn names(toolbox: &Toolbox) -> Vec<String> {
    toolbox.manifests().into_iter().map(|manifest| manifest.name).collect()
}

async fn price(toolbox: &Toolbox) -> Result<Value, ToolError> {
    toolbox.call("shop__price", json!({ "part": "A7" }), &context()).await
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn given_a_server_over_http_when_its_tool_is_called_then_it_answers_and_hears_the_headers() {
    let stock = Stock::of(&["price"]);
    let server = Process::start(&stock, "127.0.0.1:0").await;
    let tools = defined(server.address);
    let toolbox = ready(&tools).await;
    assert_eq!(names(&toolbox), ["shop__price"]);
    assert_eq!(tools.servers(), [ServerStatus { name: "shop".into(), tools: 1, trouble: None }]);
    assert_eq!(price(&toolbox).await.unwrap(), json!({ "text": "A7 costs 7" }));
    assert_eq!(stock.authorization.read().as_deref(), Some("Bearer canary-secret"));
}

#[tokio::test]
async fn given_a_server_over_http_that_does_not_answer_when_the_tools_time_is_over_then_the_call_ends_and_others_go_on()
{
    let stock = Stock::of(&["price", "stall"]);
    let server = Process::start(&stock, "127.0.0.1:0").await;
    let toolbox = ready(&defined(server.address)).await;
    let stalled = toolbox.call("shop__stall", json!({ "part": "A7" }), &context()).await.unwrap_err();
    assert!(matches!(stalled, ToolError::TimedOut(_)), "{stalled}");
    assert_eq!(stock.stalled.load(Ordering::SeqCst), 1, "it was asked once");
    assert_eq!(price(&toolbox).await.unwrap(), json!({ "text": "A7 costs 7" }));
}

#[tokio::test]
async fn given_a_server_over_http_that_has_other_tools_when_it_says_so_then_the_next_run_sees_them() {
    let stock = Stock::of(&["price", "weight"]);
    let server = Process::start(&stock, "127.0.0.1:0").await;
    let toolbox = ready(&defined(server.address)).await;
    assert_eq!(names(&toolbox), ["shop__price", "shop__weight"]);
    *stock.tools.write() = vec!["colour", "price"];
    until("the new list", async || {
        // Said again, since a client that does not listen yet misses it.
        stock.tell().await;
        toolbox.prepare(&Namespace::default()).await;
        names(&toolbox) == ["shop__colour", "shop__price"]
    })
    .await;
    let gone = toolbox.call("shop__weight", json!({ "part": "A7" }), &context()).await.unwrap_err().to_string();
    assert!(gone.contains("there is no tool"), "{gone}");
    assert_eq!(price(&toolbox).await.unwrap(), json!({ "text": "A7 costs 7" }));
}

#[tokio::test]
async fn given_a_server_over_http_that_goes_when_it_is_called_then_the_call_says_so_and_it_is_used_again_when_it_is_back()
 {
    let stock = Stock::of(&["price"]);
    let server = Process::start(&stock, "127.0.0.1:0").await;
    let address = server.address;
    let toolbox = ready(&defined(address)).await;
    assert!(price(&toolbox).await.is_ok());
    drop(server);
    until("a call that fails", async || price(&toolbox).await.is_err()).await;
    let error = price(&toolbox).await.unwrap_err().to_string();
    assert!(error.contains("mcp server shop") && !error.contains("canary"), "{error}");

    // One that never was there has no tools, and says why.
    let late = defined(address);
    let never = ready(&late).await;
    assert!(names(&never).is_empty());
    let [status] = &late.servers()[..] else { panic!("one server") };
    assert!(status.trouble.is_some(), "{status:?}");

    let _server = Process::start(&stock, &address.to_string()).await;
    until("an answer of the one that is back", async || price(&toolbox).await.is_ok()).await;
    until("the tools of the one that came late", async || {
        never.prepare(&Namespace::default()).await;
        names(&never) == ["shop__price"]
    })
    .await;
}

/// A server without sessions, with one request a connection, so that none is left over. It reads calls, counts them and closes.
async fn read_and_close(listener: TcpListener, calls: Arc<AtomicUsize>) {
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        let message = message_of(&mut socket).await;
        if message["method"] == "tools/call" {
            calls.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let answer = answer_to(&message);
        let status = if answer.is_empty() { "202 Accepted" } else { "200 OK" };
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
        let answer = format!("{head}content-length: {}\r\n\r\n{answer}", answer.len());
        socket.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn message_of(socket: &mut TcpStream) -> Value {
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = socket.read(&mut piece).await.unwrap();
        assert!(read > 0, "the request ends early: {}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&piece[..read]);
        let body = request.windows(4).position(|four| four == b"\r\n\r\n").map(|end| &request[end + 4..]);
        if let Some(message) = body.and_then(|body| serde_json::from_slice(body).ok()) {
            return message;
        }
    }
}

/// Nothing for what wants no answer.
fn answer_to(message: &Value) -> String {
    let Some(id) = message.get("id") else { return String::new() };
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "bare", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": [{ "name": "price", "inputSchema": { "type": "object" } }] }),
        _ => {
            return json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "unknown" } })
                .to_string();
        }
    };
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

#[tokio::test]
async fn given_a_call_that_was_read_when_nothing_comes_back_then_its_outcome_is_not_known_and_one_that_reached_nobody_failed()
 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(read_and_close(listener, calls.clone()));
    let toolbox = ready(&defined(address)).await;
    assert_eq!(names(&toolbox), ["shop__price"]);
    let cut = price(&toolbox).await.unwrap_err();
    assert!(matches!(cut, ToolError::Lost(_)), "{cut:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 1, "what may have taken effect is not called again");
    server.abort();
    let _ = server.await;
    // Its port refuses now, and the session is as it was: nothing was sent.
    let refused = price(&toolbox).await.unwrap_err();
    assert!(matches!(refused, ToolError::NotSent(_)), "{refused:?}");
    let told = refused.to_string();
    assert!(told.contains("mcp server shop") && !told.contains("canary"), "{told}");
}

#[test]
fn given_a_list_of_tools_when_it_is_old_or_said_to_be_another_then_it_is_due() {
    for (changed, age, due) in [
        (false, Duration::ZERO, false),
        (false, LIST_AGE - Duration::from_millis(1), false),
        (false, LIST_AGE, true),
        (true, Duration::ZERO, true),
    ] {
        assert_eq!(list_is_due(changed, age), due, "{changed} {age:?}");
    }
}
