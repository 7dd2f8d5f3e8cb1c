//! Tokens with scopes and namespaces, the login of the pages, limits of rate: tried with every operation of the OpenAPI
//! document, so that a new one is tried as well.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures::StreamExt;
use riverrun_api::ApiConfig;
use riverrun_api::access::scope::{Grant, Scope};
use riverrun_api::access::token_file::{FILE_NAME, TokenFile};
use riverrun_api::access::tokens::hash;
use riverrun_schemas::RunId;
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::harness::{Api, Reply, problem, wait_for};

const OPEN: [&str; 6] =
    ["get /health", "get /ready", "get /metrics", "get /auth/session", "post /auth/session", "delete /auth/session"];

/// `name:sha256:rest` for a token that is `<name>-token`.
fn entry(name: &str, rest: &str) -> String {
    let hash: String = hash(&format!("{name}-token")).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}:{hash}{rest}")
}

async fn guarded(entries: &[String]) -> Api {
    let tokens = entries.join(",").parse().unwrap();
    Api::configured(move |config| ApiConfig { tokens, ..config }).await
}

async fn send(api: &Api, token: Option<&str>, method: &str, path: &str, body: Option<Value>) -> Reply {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = match body {
        Some(body) => request.header("content-type", "application/json").body(Body::from(body.to_string())),
        None => request.body(Body::empty()),
    };
    api.send(request.unwrap()).await
}

/// Method, path with something in every place, and name of each operation.
fn operations() -> Vec<(String, String, String)> {
    let document = serde_json::to_value(riverrun_api::openapi()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let filled: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        for method in item.as_object().unwrap().keys() {
            found.push((method.to_uppercase(), filled.join("/"), format!("{method} {path}")));
        }
    }
    assert!(found.len() > 40, "{found:?}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn given_tokens_when_every_operation_is_asked_without_one_or_without_its_scope_then_it_is_refused() {
    let api = guarded(&[entry("trainer", ":train"), entry("admin", "")]).await;
    let document = serde_json::to_value(riverrun_api::openapi()).unwrap();
    for (method, path, name) in operations() {
        if OPEN.contains(&name.as_str()) {
            continue;
        }
        for token in [None, Some("wrong"), Some("")] {
            let reply = send(&api, token, &method, &path, None).await;
            assert_eq!(reply.status, 401, "{name} with {token:?}: {}", reply.body);
            assert_eq!(reply.headers["www-authenticate"], "Bearer", "{name}");
        }
        let (verb, route) = name.split_once(' ').unwrap();
        let wanted = document["paths"][route][verb]["security"][0]["bearer"][0].as_str().unwrap();
        if wanted != "train" {
            let reply = send(&api, Some("trainer-token"), &method, &path, None).await;
            assert_eq!(reply.status, 403, "{name}: {}", reply.body);
            // Errors of /v1 have OpenAI's shape.
            if !path.starts_with("/v1/") {
                assert_eq!(problem(&reply, &[403])["code"], "scope_missing", "{name}");
            }
        }
    }
    for path in ["/health", "/ready", "/metrics", "/auth/session"] {
        assert_eq!(send(&api, None, "GET", path, None).await.status, 200, "{path}");
    }
    for path in ["/openapi.json", "/docs/", "/mcp", "/mcp/team", "/registry/subjects", "/nothing"] {
        assert_eq!(send(&api, None, "GET", path, None).await.status, 401, "{path}");
    }
    for path in ["/topics", "/dlq", "/runs", "/registry/subjects", "/openapi.json"] {
        assert_eq!(send(&api, Some("admin-token"), "GET", path, None).await.status, 200, "{path}");
    }
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_token_that_is_bound_to_a_namespace_when_it_asks_for_anything_of_another_then_nothing_shows() {
    let api = guarded(&[entry("ann", "::team"), entry("admin", "")]).await;
    let (ann, admin) = (Some("ann-token"), Some("admin-token"));
    let run = |namespace: Option<&str>| json!({ "task": "zanzibar", "agent": "react", "namespace": namespace });
    let own = send(&api, ann, "POST", "/agent/run", Some(run(None))).await;
    assert_eq!(own.status, 200, "{}", own.body);
    let own_id = own.body["run_id"].as_str().unwrap().to_owned();
    let other = send(&api, admin, "POST", "/agent/run", Some(run(Some("team-2")))).await;
    let other_id = other.body["run_id"].as_str().unwrap().to_owned();

    // Naming another one is refused; naming none means its own.
    for namespace in ["team-2", "default"] {
        let reply = send(&api, ann, "POST", "/runs", Some(run(Some(namespace)))).await;
        assert_eq!(problem(&reply, &[403])["code"], "namespace_not_allowed", "{namespace}");
    }
    for path in [
        "/collections?namespace=team-2",
        "/runs?namespace=default",
        "/usage?namespace=team-2",
        "/memory/turns?namespace=team-2",
        "/documents?collection=x&namespace=team-2",
        "/warehouse/tables?namespace=team-2",
        "/tools?namespace=team-2",
        &format!("/runs/{own_id}?namespace=team-2"),
        "/mcp/team-2",
    ] {
        let reply = send(&api, ann, "GET", path, None).await;
        assert_eq!(problem(&reply, &[403])["code"], "namespace_not_allowed", "{path}");
    }
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello });
    for path in ["/mcp", "/mcp/team"] {
        let headers = [
            ("authorization", "Bearer ann-token"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-06-18"),
        ];
        let reply = api.post_with(path, hello.clone(), &headers).await;
        let instructions = reply.body["result"]["instructions"].as_str().unwrap_or_default();
        assert!(instructions.contains("in namespace team."), "{path}: {} {}", reply.status, reply.body);
    }
    // An id of another namespace is as unknown as one that never was, with whatever verb.
    for (method, rest) in [("GET", ""), ("GET", "/tree"), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/resume")]
    {
        let own = send(&api, ann, method, &format!("/runs/{own_id}{rest}"), None).await.status;
        assert!(![401, 403, 404].contains(&own), "own {rest}: {own}");
        // However it is written.
        for spelled in [other_id.clone(), other_id.replacen('r', "%72", 1), other_id.replace('_', "%5F")] {
            let path = format!("/runs/{spelled}{rest}");
            assert_eq!(send(&api, ann, method, &path, None).await.status, 404, "{path}");
        }
    }
    let listed = wait_for("the run to be listed", async || {
        let items = send(&api, ann, "GET", "/runs", None).await.body["items"].as_array().unwrap().clone();
        (!items.is_empty()).then_some(items)
    })
    .await;
    let listed: Vec<Value> = listed.iter().map(|run| run["run_id"].clone()).collect();
    assert_eq!(listed, [json!(own_id)], "a list without a namespace is that of its own");
    for (method, path) in [("GET", "/dlq"), ("POST", "/dlq/x/drop")] {
        let reply = send(&api, ann, method, path, None).await;
        assert_eq!(problem(&reply, &[403])["code"], "token_is_bound", "{path}");
    }
    // Over WebSocket the same.
    assert_eq!(upgrade(&api, &format!("/ws/runs/{own_id}"), &[("authorization", "Bearer ann-token")]).await, 101);
    assert_eq!(upgrade(&api, &format!("/ws/runs/{other_id}"), &[("authorization", "Bearer ann-token")]).await, 404);
    api.stop().await;
}

/// What a request is answered that comes before its run, which is started under the key once the request waits for it.
async fn before_its_run(
    api: &Api,
    request: impl Future<Output = Reply>,
    (namespace, key, task): (&str, &str, &str),
) -> Reply {
    let starting = async {
        wait_for("somebody to wait for the run", async || {
            (api.stack.state().hub().stats().listeners > 0).then_some(())
        })
        .await;
        let body = json!({ "task": task, "agent": "react", "namespace": namespace });
        let headers = [("authorization", "Bearer admin-token"), ("idempotency-key", key)];
        api.post_with("/runs", body, &headers).await
    };
    let (answered, started) = tokio::join!(request, starting);
    assert_eq!(started.body["run_id"], json!(id_of(namespace, key)), "{}", started.body);
    answered
}

/// The run that a key stands for in a namespace.
fn id_of(namespace: &str, key: &str) -> RunId {
    RunId::derive(&["idempotency-key", namespace, key])
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_id_that_follows_from_a_key_when_a_bound_token_waits_for_its_run_of_another_namespace_then_nothing_shows()
 {
    let api = guarded(&[entry("ann", "::team"), entry("admin", "")]).await;
    for (namespace, expected) in [("team-2", 404), ("team", 200)] {
        let path = format!("/runs/{}/events", id_of(namespace, "soon"));
        let watching = send(&api, Some("ann-token"), "GET", &path, None);
        let watched = before_its_run(&api, watching, (namespace, "soon", "soon")).await;
        assert_eq!(watched.status, expected, "{namespace}: {}", watched.body);
    }
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_id_that_follows_from_a_key_when_a_bound_token_acts_on_its_run_of_another_namespace_then_that_is_left_alone()
 {
    let api = guarded(&[entry("ann", "::team"), entry("admin", "")]).await;
    let acts = operations().into_iter().filter(|(.., name)| name.starts_with("post /runs/{id}/"));
    let acts: Vec<String> = acts.map(|(_, path, _)| path).collect();
    assert!(acts.len() >= 4, "{acts:?}");
    for act in &acts {
        let id = id_of("team-2", act);
        let path = act.replacen("/runs/x", &format!("/runs/{id}"), 1).replace("/x", "/1");
        let body = match act.rsplit('/').next() {
            Some("fork") => json!({ "at_seq": 0 }),
            Some("x") => json!({ "decision": "approve" }),
            Some(_) | None => json!({}),
        };
        let acting = send(&api, Some("ann-token"), "POST", &path, Some(body));
        let task = "left alone [[steps=1 delay_ms=300 id=left-alone]]";
        let acted = before_its_run(&api, acting, ("team-2", act.as_str(), task)).await;
        assert_eq!(problem(&acted, &[404])["code"], "run_not_found", "{act}");
        let run = wait_for("the run to end", async || {
            let run = send(&api, Some("admin-token"), "GET", &format!("/runs/{id}"), None).await.body;
            run["finished_at"].is_string().then_some(run)
        })
        .await;
        assert_eq!(run["status"], "succeeded", "{act}: {run}");
    }
    let listed = wait_for("the runs to be listed", async || {
        let items = send(&api, Some("admin-token"), "GET", "/runs?namespace=team-2", None).await.body["items"].take();
        (items.as_array()?.len() >= acts.len()).then_some(items)
    })
    .await;
    assert_eq!(listed.as_array().unwrap().len(), acts.len(), "no run came of another: {listed}");
    // Of its own namespace it is waited for as before.
    let path = format!("/runs/{}/cancel", id_of("team", "own"));
    let acting = send(&api, Some("ann-token"), "POST", &path, Some(json!({})));
    let task = "stopped [[steps=1 delay_ms=60000 id=stopped-by-its-own]]";
    let acted = before_its_run(&api, acting, ("team", "own", task)).await;
    assert_eq!(acted.status, 202, "{}", acted.body);
    api.stop().await;
}

/// The status that an upgrade is answered with.
async fn upgrade(api: &Api, path: &str, headers: &[(&'static str, &str)]) -> u16 {
    let mut request = format!("ws://{}{path}", api.address).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match connect_async(request).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(Error::Http(response)) => response.status().as_u16(),
        Err(other) => panic!("{path}: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_login_when_the_pages_ask_then_the_cookie_counts_and_only_for_pages_of_this_server() {
    let api = guarded(&[entry("ann", ":read+run:team")]).await;
    let before = api.get("/auth/session").await.body;
    assert_eq!(before, json!({"auth": "required", "name": null, "scopes": [], "namespace": null, "namespaces": []}));
    let refused = api.post("/auth/session", json!({ "token": "wrong" })).await;
    problem(&refused, &[401]);
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    assert!(refused.headers.get("set-cookie").is_none());
    let reply = api.post("/auth/session", json!({ "token": "ann-token" })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let expected = json!({"auth": "required", "name": "ann", "scopes": ["read", "run"], "namespace": "team", "namespaces": ["team"]});
    assert_eq!(reply.body, expected);
    let cookie = reply.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();

    let ask = async |method: &str, path: &str, origin: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost:8000");
        request = request.header("cookie", cookie.as_str()).header("content-type", "application/json");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        api.send(request.body(Body::from(json!({ "task": "x", "agent": "react" }).to_string())).unwrap()).await.status
    };
    assert_eq!(ask("GET", "/runs", None).await, 200);
    assert_eq!(ask("POST", "/runs", Some("http://localhost:8000")).await, 202);
    // Another port of this machine is another page, and a request that says nothing may be anyone's.
    for origin in [Some("http://localhost:3000"), Some("http://127.0.0.1:8000"), Some("https://evil.example"), None] {
        assert_eq!(ask("POST", "/runs", origin).await, 403, "{origin:?}");
    }
    let own = format!("http://{}", api.address);
    assert_eq!(upgrade(&api, "/ws/agent", &[("cookie", cookie.as_str()), ("origin", own.as_str())]).await, 101);
    assert_eq!(
        upgrade(&api, "/ws/agent", &[("cookie", cookie.as_str()), ("origin", "http://localhost:3000")]).await,
        403
    );
    assert_eq!(upgrade(&api, "/ws/agent", &[("cookie", cookie.as_str())]).await, 403);
    assert_eq!(upgrade(&api, "/ws/agent", &[]).await, 401);
    let beside = "riverrun, riverrun.bearer.ann-token";
    assert_eq!(upgrade(&api, "/ws/agent", &[("sec-websocket-protocol", beside)]).await, 101);
    let out = api.send(Request::delete("/auth/session").header("host", "localhost").body(Body::empty()).unwrap()).await;
    assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_file_of_tokens_when_one_is_revoked_while_the_server_runs_then_it_is_refused_and_nothing_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    let mut file = TokenFile::read(&path).unwrap();
    let (_, token) = file.create(Grant { scopes: [Scope::Read].into(), ..Grant::everything("ann") }).unwrap();
    let api = Api::configured(|config| ApiConfig { tokens_file: Some(path.clone()), ..config }).await;
    assert_eq!(send(&api, Some(&token), "GET", "/runs", None).await.status, 200);
    file.revoke("ann").unwrap();
    let refused = async || send(&api, Some(&token), "GET", "/runs", None).await.status == 401;
    let waiting = async {
        while !refused().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), waiting).await.expect("a revoked token is refused soon");
    assert_eq!(send(&api, None, "GET", "/runs", None).await.status, 401, "no token left does not mean none wanted");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_open_streams_when_their_token_is_revoked_then_they_end_before_what_they_follow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    let mut file = TokenFile::read(&path).unwrap();
    let (_, token) = file.create(Grant::everything("ann")).unwrap();
    let api = Api::configured(|config| ApiConfig { tokens_file: Some(path.clone()), ..config }).await;
    let body = json!({ "task": "wait [[steps=1 id=revoked]]", "agent": "react", "approval": "always" });
    let started = send(&api, Some(&token), "POST", "/runs", Some(body)).await;
    let run_id = started.body["run_id"].as_str().unwrap();
    let open = async |path: &str| {
        let mut request = format!("ws://{}{path}", api.address).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        connect_async(request).await.unwrap().0
    };
    let mut socket = open(&format!("/ws/runs/{run_id}")).await;
    let path = format!("/runs/{run_id}/events");
    let followed = send(&api, Some(&token), "GET", &path, None);
    let closed = async {
        socket.next().await.unwrap().unwrap();
        let mut unbegun = open("/ws/agent").await;
        file.revoke("ann").unwrap();
        let frame = loop {
            match socket.next().await.unwrap().unwrap() {
                Message::Close(frame) => break frame,
                message => assert!(!message.to_string().contains("final"), "{message}"),
            }
        };
        // One that was to say yet what it wants says nothing any more.
        let Message::Close(ended) = unbegun.next().await.unwrap().unwrap() else { panic!("it goes on") };
        [frame.unwrap(), ended.unwrap()]
    };
    let both = async { tokio::join!(followed, closed) };
    let (followed, closed) = tokio::time::timeout(Duration::from_secs(120), both).await.expect("streams end soon");
    for closed in closed {
        assert_eq!(u16::from(closed.code), 1008, "{closed:?}");
        assert!(closed.reason.contains("token was revoked"), "{closed:?}");
    }
    let events = followed.body.as_str().unwrap();
    assert!(events.contains("event: start") && !events.contains("event: final"), "{events}");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_limits_of_rate_when_a_token_or_a_namespace_reaches_its_own_then_it_is_429_and_others_go_on() {
    let tokens = [entry("ann", ""), entry("bob", "")].join(",").parse().unwrap();
    let api =
        Api::configured(move |config| ApiConfig { tokens, rate_per_token: 3, rate_per_namespace: 2, ..config }).await;
    for _ in 0..3 {
        assert_eq!(send(&api, Some("ann-token"), "GET", "/agents", None).await.status, 200);
    }
    let reply = send(&api, Some("ann-token"), "GET", "/agents", None).await;
    assert_eq!(problem(&reply, &[429])["code"], "rate_limited");
    assert!(reply.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    let path = "/collections?namespace=busy";
    for expected in [200, 200, 429] {
        assert_eq!(send(&api, Some("bob-token"), "GET", path, None).await.status, expected);
    }
    assert_eq!(send(&api, None, "GET", "/health", None).await.status, 200, "probes are not counted");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_two_callers_of_a_namespace_when_they_send_the_same_key_then_it_stands_for_one_run() {
    let api = guarded(&[entry("ann", ""), entry("bob", "")]).await;
    let start = async |caller: &str, task: &str| {
        let request = Request::post("/runs").header("host", "localhost").header("idempotency-key", "shared");
        let request = request.header("authorization", format!("Bearer {caller}-token"));
        let body = json!({ "task": format!("{task} [[steps=0 id=shared]]"), "agent": "react" });
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
        api.send(request.unwrap()).await
    };
    let first = start("ann", "once").await;
    assert_eq!(first.status, 202, "{}", first.body);
    let second = start("bob", "once").await;
    assert_eq!((second.status, &second.body["run_id"]), (202, &first.body["run_id"]), "{}", second.body);
    assert_eq!(problem(&start("bob", "twice").await, &[409])["code"], "idempotency_key_reused");
    api.stop().await;
}
