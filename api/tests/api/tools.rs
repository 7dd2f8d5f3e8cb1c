//! Tools by hand, and over the Model Context Protocol.

use serde_json::{Value, json};

use crate::harness::{Api, problem, test};

#[test]
fn given_tools_when_they_are_listed_then_limits_permissions_and_source_are_shown() {
    test(async |api| {
        let tools = api.get("/tools").await.body;
        let search = tools["items"].as_array().unwrap().iter().find(|tool| tool["name"] == "knowledge_search").unwrap();
        assert_eq!((&search["source"], &search["permissions"]), (&json!("builtin"), &json!(["knowledge"])));
        assert_eq!(search["limits"], json!({ "timeout_ms": 60_000, "result_bytes": 262_144 }));
        assert_eq!(search["needs_approval"], json!(false));
    });
}

#[test]
fn given_a_tool_when_it_is_called_by_hand_then_its_result_or_the_reason_comes_back() {
    test(async |api| {
        let called = api.post("/tools/calculator/call", json!({ "arguments": { "expression": "6*7" } })).await;
        assert_eq!((called.status, &called.body["result"]["value"]), (200, &json!("42")), "{}", called.body);
        for (path, body, status) in [
            ("/tools/nothing/call", json!({ "arguments": {} }), 404),
            ("/tools/calculator/call", json!({ "arguments": { "expression": 7 } }), 422),
            ("/tools/calculator/call", json!({}), 422),
            ("/tools/calculator/call", json!({ "arguments": { "expression": "1", "more": 1 } }), 422),
            ("/tools/calculator/call", json!({ "arguments": { "expression": "1" }, "namespace": "a__b" }), 422),
            ("/tools/calculator/call", json!({ "arguments": [] }), 422),
            ("/tools/document_read/call", json!({ "arguments": { "document_id": "../x" } }), 422),
        ] {
            problem(&api.post(path, body).await, &[status]);
        }
    });
}

#[test]
fn given_a_document_when_it_is_read_then_only_in_its_namespace() {
    test(async |api| {
        api.ingest("readable", &[("a.txt", "The wing is twenty metres long, and that is a lot.")]).await;
        let listed = api.get("/documents?collection=readable").await.body;
        let id = listed["items"][0]["document_id"].as_str().unwrap().to_owned();
        let read = async |namespace: &str| {
            let body = json!({ "arguments": { "document_id": id, "start": 4, "length": 4 }, "namespace": namespace });
            api.post("/tools/document_read/call", body).await
        };
        assert_eq!(read("default").await.body["result"]["text"], "wing");
        problem(&read("other").await, &[422]);
    });
}

async fn rpc(api: &Api, path: &str, id: u64, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let headers = [("accept", "application/json, text/event-stream"), ("mcp-protocol-version", "2025-06-18")];
    let reply = api.post_with(path, body, &headers).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.body["id"], id, "{}", reply.body);
    reply.body["result"].clone()
}

#[test]
fn given_a_client_when_it_speaks_mcp_then_agents_collections_and_tools_are_there() {
    test(async |api| {
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
        let info = rpc(api, "/mcp", 1, "initialize", hello).await;
        assert_eq!(info["serverInfo"]["name"], "riverrun");
        let listed = rpc(api, "/mcp", 2, "tools/list", json!({})).await;
        let names: Vec<&str> =
            listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        for name in ["run_agent", "list_collections", "search_collection", "ask_collection", "calculator", "clock"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let call = json!({ "name": "calculator", "arguments": { "expression": "6*7" } });
        let called = rpc(api, "/mcp/team", 3, "tools/call", call).await;
        assert_eq!(called["structuredContent"]["value"], "42", "{called}");
        let wrong = rpc(api, "/mcp", 4, "tools/call", json!({ "name": "calculator", "arguments": {} })).await;
        assert_eq!(wrong["isError"], true, "{wrong}");
        let foreign = json!({ "name": "search_collection", "arguments": { "query": "x", "collection": "nowhere", "namespace": "default" } });
        assert_eq!(rpc(api, "/mcp/team", 5, "tools/call", foreign).await["isError"], true);
        problem(&api.post("/mcp/a__b", json!({})).await, &[422]);
    });
}
