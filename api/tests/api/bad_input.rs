//! What can't be answered is refused with the field, the value and the fix, in one shape.

use axum::body::Body;
use axum::http::Request;
use riverrun_schemas::{ProjectId, RunId};
use serde_json::{Value, json};

use crate::harness::{Api, Reply, problem, test};

async fn raw(
    api: &Api,
    method: &str,
    path: &str,
    content_type: Option<&str>,
    body: &[u8],
    headers: &[(&str, &str)],
) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:8000");
    }
    if let Some(content_type) = content_type {
        request = request.header("content-type", content_type);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    api.send(request.body(Body::from(body.to_vec())).unwrap()).await
}

#[test]
fn given_bodies_that_can_not_be_when_they_are_posted_then_each_field_is_named() {
    test(async |api| {
        for (path, body, fields) in [
            ("/agent/run", json!({"task": ""}), vec!["task"]),
            ("/agent/run", json!({"task": 1}), vec!["task"]),
            ("/agent/run", json!({"task": "x", "approval": 1}), vec!["approval"]),
            ("/runs/run_01h455vb4pex5vsknk084sn02q/approvals/3", json!({"decision": true}), vec!["decision"]),
            ("/agent/run", json!({"task": "x", "agent": "root", "tools": ["rm"]}), vec!["agent", "tools[0]"]),
            ("/runs", json!({"task": "x", "namespace": "a__b"}), vec!["namespace"]),
            ("/runs", json!({"task": "x", "tsak": "y"}), vec!["tsak"]),
            ("/rag/search", json!({"query": "", "collection": "../x", "k": 0}), vec!["query", "collection", "k"]),
            ("/rag/search", json!({"query": "x", "collection": "c", "filter": {}}), vec!["filter"]),
            ("/rag/search", json!({"query": "x", "collection": "c", "fusion": "magic"}), vec!["fusion"]),
            ("/rag/ask", json!({"query": "x", "collection": "c", "fusion": "magic"}), vec!["fusion"]),
            ("/rag/search", json!({"query": "x", "collection": "c", "wordings": vec!["y"; 9]}), vec!["wordings"]),
            (
                "/rag/ask",
                json!({"query": "x", "collection": "c", "wordings": ["y", " "], "stream": true}),
                vec!["wordings[1]"],
            ),
            ("/rag/ask", json!({"query": "x", "collection": "c", "provider": "nobody"}), vec!["provider"]),
            ("/ingest", json!({"collection": "c"}), vec!["source"]),
            (
                "/ingest",
                json!({"source": "/x", "collection": "c", "table": "", "strategy": "magic"}),
                vec!["table", "strategy"],
            ),
            ("/ingest", json!({"source": "/x", "collection": "c", "type": "exe"}), vec!["type"]),
            ("/chat", json!({"messages": []}), vec!["messages"]),
            ("/chat", json!({"messages": [{"role": "root", "content": "x"}]}), vec!["messages[0].role"]),
            ("/chat", json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}), vec!["max_tokens"]),
            ("/runs", json!({"task": "x", "max_iters": 0, "temperature": -1}), vec!["temperature", "max_iters"]),
            (
                "/runs",
                json!({"task": "x", "budget": {"tokens": 0, "seconds": -1}}),
                vec!["budget.tokens", "budget.seconds"],
            ),
            ("/warehouse/query", json!({"sql": "SELECT 1", "limit": 0}), vec!["limit"]),
            ("/warehouse/query", json!({"sql": "SELECT 1", "limit": 10_001}), vec!["limit"]),
            ("/embed", json!({"inputs": ["x", " "]}), vec!["inputs[1]"]),
        ] {
            let found = problem(&api.post(path, body.clone()).await, &[422]);
            let named: Vec<&str> =
                found["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
            assert_eq!(named, fields, "{path} {body}");
        }
    });
}

/// The lists, as the API's description tells them, with what else they must be told.
fn lists() -> Vec<String> {
    let document = serde_json::to_value(riverrun_api::openapi()).unwrap();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let parameters = operations["get"]["parameters"].as_array().cloned().unwrap_or_default();
        if !parameters.iter().any(|one| one["name"] == "limit" && one["in"] == "query") {
            continue;
        }
        let id = if path.starts_with("/runs") { RunId::new().to_string() } else { ProjectId::new().to_string() };
        let needed = parameters.iter().filter(|one| one["in"] == "query" && one["required"] == true);
        let needed: String = needed.map(|one| format!("{}=x&", one["name"].as_str().unwrap())).collect();
        found.push(format!("{}?{needed}limit=", path.replace("{id}", &id)));
    }
    found
}

#[test]
fn given_a_limit_of_nothing_or_beyond_the_most_when_any_list_is_asked_for_then_it_is_refused_and_not_cut() {
    test(async |api| {
        let lists = lists();
        assert!(lists.len() >= 10, "{lists:?}");
        for list in lists {
            for limit in ["0", "1001", "4294967295"] {
                let found = problem(&api.get(&format!("{list}{limit}")).await, &[422]);
                assert_eq!(found["errors"][0]["field"], "limit", "{list}{limit}: {found}");
                let reason = found["errors"][0]["reason"].as_str().unwrap();
                assert!(reason.starts_with(&format!("is {limit}, which is not between 1 and ")), "{list}: {reason}");
            }
        }
    });
}

#[test]
fn given_requests_that_are_none_when_they_come_then_the_status_says_what_is_wrong() {
    let long = format!("{{\"task\": \"{}\"}}", "x".repeat(2 << 20));
    let task = br#"{"task": "x"}"#.as_slice();
    let json = Some("application/json");
    test(async |api| {
        for (status, code, method, path, content_type, body, headers) in [
            (400, "invalid_json", "POST", "/agent/run", json, b"{".as_slice(), vec![]),
            (400, "invalid_json", "POST", "/agent/run", json, b"", vec![]),
            (400, "invalid_json", "POST", "/agent/run", json, b"{\"task\": \"\xff\"}", vec![]),
            (415, "unsupported_media_type", "POST", "/agent/run", None, task, vec![]),
            (415, "unsupported_media_type", "POST", "/ingest", Some("text/plain"), task, vec![]),
            (415, "unsupported_encoding", "POST", "/runs", json, task, vec![("content-encoding", "br")]),
            (415, "unsupported_encoding", "POST", "/runs", json, b"\x1f\x8b\x08", vec![("content-encoding", "gzip")]),
            (
                415,
                "unsupported_encoding",
                "POST",
                "/ingest",
                Some("multipart/form-data; boundary=XX"),
                b"\x1f\x8b\x08",
                vec![("content-encoding", "gzip")],
            ),
            (413, "body_too_large", "POST", "/agent/run", json, long.as_bytes(), vec![]),
            (413, "body_too_large", "POST", "/ingest", json, long.as_bytes(), vec![]),
            (404, "route_not_found", "GET", "/no/such", None, b"", vec![]),
            (404, "route_not_found", "GET", "/docs/nothing.js", None, b"", vec![]),
            (405, "method_not_allowed", "DELETE", "/agents", None, b"", vec![]),
            (404, "not_found", "GET", "/runs/1", None, b"", vec![]),
            (404, "not_found", "GET", "/ingest/run_01h455vb4pex5vsknk084sn02q", None, b"", vec![]),
            (404, "run_not_found", "GET", "/runs/run_01h455vb4pex5vsknk084sn02q", None, b"", vec![]),
            (404, "run_not_found", "GET", "/runs/run_01h455vb4pex5vsknk084sn02q/events", None, b"", vec![]),
            (404, "run_not_found", "POST", "/runs/run_01h455vb4pex5vsknk084sn02q/cancel", None, b"", vec![]),
            (404, "not_found", "GET", "/chains/run_01h455vb4pex5vsknk084sn02q", None, b"", vec![]),
            (404, "chain_not_found", "GET", "/chains/chn_01h455vb4pex5vsknk084sn02q", None, b"", vec![]),
            (404, "chain_not_found", "POST", "/chains/chn_01h455vb4pex5vsknk084sn02q/cancel", None, b"", vec![]),
            (422, "invalid_request", "GET", "/runs?chain=run_01h455vb4pex5vsknk084sn02q", None, b"", vec![]),
            (404, "collection_not_found", "GET", "/documents?collection=none", None, b"", vec![]),
            (404, "collection_not_found", "GET", "/documents?collection=none&cursor=z", None, b"", vec![]),
            (422, "invalid_request", "GET", "/documents", None, b"", vec![]),
            (422, "invalid_request", "GET", "/runs?limit=many", None, b"", vec![]),
            (422, "invalid_request", "GET", "/runs/run_01h455vb4pex5vsknk084sn02q/events?after=-1", None, b"", vec![]),
            (422, "invalid_request", "GET", "/runs?status=odd", None, b"", vec![]),
            (422, "cursor_invalid", "GET", "/runs?cursor=%00", None, b"", vec![]),
            (422, "invalid_request", "GET", "/runs?nonsense=1", None, b"", vec![]),
            (422, "invalid_request", "GET", "/agents?x=1", None, b"", vec![]),
            (422, "invalid_request", "GET", "/providers?x", None, b"", vec![]),
            (422, "invalid_request", "POST", "/runs", json, task, vec![("idempotency-key", " ")]),
            (
                422,
                "invalid_request",
                "POST",
                "/runs",
                json,
                task,
                vec![("idempotency-key", "a"), ("idempotency-key", "b")],
            ),
            (403, "host_not_allowed", "POST", "/runs", json, task, vec![("host", "evil.example")]),
            (403, "origin_not_allowed", "POST", "/runs", json, task, vec![("origin", "https://evil.example")]),
            (400, "websocket_expected", "GET", "/ws/agent", None, b"", vec![]),
        ] {
            let reply = raw(api, method, path, content_type, body, &headers).await;
            let found = problem(&reply, &[status]);
            assert_eq!(found["code"], code, "{method} {path}: {found}");
        }
    });
}

#[test]
fn given_a_query_when_any_operation_that_writes_and_takes_none_is_asked_then_it_is_refused_by_its_name() {
    let document = serde_json::to_value(riverrun_api::openapi()).unwrap();
    test(async |api| {
        let mut tried = 0;
        for (path, method) in operations() {
            let parameters = &document["paths"][&path][method.to_lowercase()]["parameters"];
            let takes = parameters.as_array().is_some_and(|all| all.iter().any(|one| one["in"] == "query"));
            // Clients of other products add parameters of their own.
            let foreign = path.starts_with("/v1/") || path.starts_with("/subjects");
            if !["POST", "PUT", "DELETE"].contains(&method.as_str()) || takes || foreign {
                continue;
            }
            let path = format!("{}?namespace=team", filled(&path, "x"));
            let reply = raw(api, &method, &path, Some("application/json"), br#"{"task": "x"}"#, &[]).await;
            let found = problem(&reply, &[422]);
            assert_eq!(found["errors"][0]["field"], "namespace", "{method} {path}: {found}");
            assert!(found["hint"].as_str().unwrap().starts_with("leave the query out"), "{method} {path}: {found}");
            tried += 1;
        }
        assert!(tried > 15, "{tried}");
        let own = raw(api, "POST", "/runs?", Some("application/json"), br#"{"task": "x"}"#, &[]).await;
        assert_eq!(own.status, 202, "an empty query says nothing: {}", own.body);
    });
}

#[test]
fn given_a_field_of_a_form_that_may_come_once_when_it_comes_twice_then_it_is_refused_by_its_name() {
    let part = |field: &str| {
        let file = if field == "file" { "; filename=\"a.zip\"" } else { "" };
        format!("--XX\r\ncontent-disposition: form-data; name=\"{field}\"{file}\r\n\r\nx\r\n")
    };
    test(async |api| {
        for (path, fields) in [
            ("/ingest", ["collection", "chunk_unit"].as_slice()),
            ("/finetune/datasets", &["name", "from_runs", "file"]),
            ("/projects/import", &["name", "namespace", "file"]),
        ] {
            for field in fields {
                let body = format!("{}--XX--\r\n", part(field).repeat(2));
                let kind = Some("multipart/form-data; boundary=XX");
                let reply = raw(api, "POST", path, kind, body.as_bytes(), &[]).await;
                let expected = json!([{"field": field, "reason": "came twice in the form"}]);
                assert_eq!(problem(&reply, &[422])["errors"], expected, "{path} {field}");
            }
        }
    });
}

#[test]
fn given_metadata_that_has_a_field_twice_when_it_comes_as_json_or_in_a_form_then_it_is_refused_by_its_name() {
    test(async |api| {
        let twice = r#"{"a": {"b": 1, "b": 2}}"#;
        let body = format!(r#"{{"task": "x", "metadata": {twice}}}"#);
        let reply = raw(api, "POST", "/runs", Some("application/json"), body.as_bytes(), &[]).await;
        assert_eq!(problem(&reply, &[422])["errors"][0]["field"], "metadata.a.b", "{}", reply.body);
        for metadata in [twice, "[]", "x"] {
            let form =
                format!("--XX\r\ncontent-disposition: form-data; name=\"metadata\"\r\n\r\n{metadata}\r\n--XX--\r\n");
            let kind = Some("multipart/form-data; boundary=XX");
            let reply = raw(api, "POST", "/ingest", kind, form.as_bytes(), &[]).await;
            assert_eq!(problem(&reply, &[422])["errors"][0]["field"], "metadata", "{metadata}: {}", reply.body);
        }
    });
}

/// Path and method of each operation of the API's description, and those of WebSockets, which stand beside it.
fn operations() -> Vec<(String, String)> {
    let document = serde_json::to_value(riverrun_api::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = |item: &Value| item.as_object().unwrap().keys().map(|key| key.to_uppercase()).collect::<Vec<_>>();
    let described =
        paths.iter().flat_map(|(path, item)| methods(item).into_iter().map(move |name| (path.clone(), name)));
    let sockets = ["/ws/agent", "/ws/runs/{id}", "/ws/ingest/{id}", "/ws/finetune/{id}"];
    described.chain(sockets.map(|path| (path.to_owned(), "GET".to_owned()))).collect()
}

/// The path with this in all its places.
fn filled(path: &str, with: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { with } else { part }).collect::<Vec<_>>().join("/")
}

#[test]
fn given_bytes_that_are_no_text_in_the_path_of_any_operation_when_it_is_asked_for_then_a_problem_says_so() {
    test(async |api| {
        let operations: Vec<_> = operations().into_iter().filter(|(path, _)| path.contains('{')).collect();
        assert!(operations.len() > 40, "{operations:?}");
        for (path, method) in operations {
            let reply = raw(api, &method, &filled(&path, "%FF"), None, b"", &[]).await;
            assert_eq!(problem(&reply, &[400])["code"], "invalid_path", "{method} {path}");
        }
    });
}

#[test]
fn given_a_method_that_any_path_does_not_take_when_it_is_asked_for_then_the_answer_names_those_that_it_takes() {
    test(async |api| {
        // Errors of /v1 have OpenAI's shape.
        for (path, method) in operations().into_iter().filter(|(path, _)| !path.starts_with("/v1/")) {
            let reply = raw(api, "PATCH", &filled(&path, "x"), None, b"", &[]).await;
            assert_eq!(problem(&reply, &[405])["code"], "method_not_allowed", "{path}");
            let allowed = reply.headers["allow"].to_str().unwrap();
            assert!(allowed.split(',').any(|name| name == method), "{method} {path}: {allowed}");
        }
        assert_eq!(raw(api, "HEAD", "/ws/agent", None, b"", &[]).await.status, 400, "as GET is answered");
    });
}

#[test]
fn given_names_that_are_not_there_when_they_are_used_then_those_that_are_stand_in_the_answer() {
    test(async |api| {
        api.ingest("there", &[("a.md", "# A\n\nSomething.")]).await;
        let text = |reply: Reply| reply.body.to_string();
        assert!(text(api.post("/agent/run", json!({"task": "x", "agent": "root"})).await).contains("react"));
        assert!(text(api.post("/agent/run", json!({"task": "x", "tools": ["rm"]})).await).contains("calculator"));
        assert!(text(api.post("/agent/run", json!({"task": "x", "provider": "nobody"})).await).contains("ollama"));
        for (path, body) in [
            ("/rag/ask", json!({"query": "x", "collection": "missing"})),
            ("/rag/ask", json!({"query": "x", "collection": "missing", "stream": true})),
            ("/rag/search", json!({"query": "x", "collection": "missing"})),
            ("/agent/run", json!({"task": "x", "collections": ["missing"]})),
        ] {
            let found = problem(&api.post(path, body).await, &[404]);
            assert!(found["hint"].as_str().unwrap().contains("there"), "{path}: {found}");
        }
    });
}

#[test]
fn given_sources_outside_or_missing_when_they_are_ingested_then_nothing_is_started() {
    test(async |api| {
        for (source, code) in [
            (json!("/etc/passwd"), "source_not_allowed"),
            (json!("/dev/zero"), "source_not_allowed"),
            (json!(api.files.join("../data")), "source_not_allowed"),
            (json!(api.files.join("missing.md")), "source_not_found"),
        ] {
            let found = problem(&api.post("/ingest", json!({"source": source, "collection": "c"})).await, &[404, 422]);
            assert_eq!(found["code"], code, "{source}");
        }
    });
}

#[test]
fn given_the_openapi_document_when_it_is_read_then_every_route_is_in_it_and_the_page_is_served() {
    test(async |api| {
        let document = api.get("/openapi.json").await.body;
        let paths = document["paths"].as_object().unwrap();
        for path in [
            "/health",
            "/agents",
            "/tools",
            "/collections",
            "/documents",
            "/agent/run",
            "/runs",
            "/runs/{id}",
            "/runs/{id}/events",
            "/runs/{id}/cancel",
            "/rag/search",
            "/rag/ask",
            "/ingest",
            "/ingest/{id}",
            "/chat",
            "/embed",
            "/providers",
            "/models",
            "/diagnose",
            "/metrics",
            "/dlq",
            "/dlq/{id}",
            "/dlq/{id}/redrive",
            "/topics",
            "/subjects",
            "/schemas/ids/{id}",
        ] {
            assert!(paths.contains_key(path), "{path} is not in {:?}", paths.keys().collect::<Vec<_>>());
        }
        let unresolved = references(&document)
            .into_iter()
            .find(|reference| document.pointer(reference.trim_start_matches('#')).is_none());
        assert_eq!(unresolved, None);
        let page = api.get("/docs/").await;
        assert_eq!(page.status, 200);
        assert!(page.body.as_str().unwrap().contains("swagger-ui"));
        assert!(!page.body.as_str().unwrap().contains("https://"), "nothing is fetched from elsewhere");
    });
}

fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}
