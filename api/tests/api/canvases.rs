//! Canvases over HTTP: kept, listed, overtaken, removed.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::harness::{Api, Reply, test};

fn canvas(name: &str) -> Value {
    let node = json!({ "id": "a", "kind": "agent", "x": 0, "y": 0, "data": { "agent": null, "task": "say ü" } });
    json!({ "format": "riverrun.canvas", "version": 1, "name": name, "namespace": "default", "nodes": [node], "edges": [] })
}

async fn ask(api: &Api, method: &str, path: &str, body: Option<Value>, key: Option<&str>) -> Reply {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = match body {
        Some(body) => request.header("content-type", "application/json").body(Body::from(body.to_string())),
        None => request.body(Body::empty()),
    };
    api.send(request.unwrap()).await
}

async fn save(api: &Api, id: &str, revision: i64, document: Value, key: Option<&str>) -> Reply {
    let body = json!({ "revision": revision, "document": document, "namespace": "drawn" });
    ask(api, "PUT", &format!("/canvases/{id}"), Some(body), key).await
}

#[test]
fn given_a_canvas_when_it_is_saved_again_and_again_then_only_who_knows_the_last_revision_may() {
    test(async |api| {
        let first = save(api, "plan", 0, canvas("Plan"), Some("canvas-1")).await;
        assert_eq!((first.status, &first.body["revision"]), (200, &json!(1)), "{}", first.body);
        let again = save(api, "plan", 0, canvas("Plan"), Some("canvas-1")).await;
        assert_eq!((again.status, &again.body), (200, &first.body), "a repeat is the same revision");
        let overtaken = save(api, "plan", 0, canvas("Other"), None).await;
        assert_eq!((overtaken.status, &overtaken.body["code"]), (409, &json!("canvas_overtaken")));
        assert!(overtaken.body["detail"].as_str().unwrap().contains("revision 1"), "{}", overtaken.body);
        let both =
            tokio::join!(save(api, "plan", 1, canvas("Left"), None), save(api, "plan", 1, canvas("Right"), None));
        let mut statuses = [both.0.status, both.1.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{} {}", both.0.body, both.1.body);
        let won = if both.0.status == 200 { "Left" } else { "Right" };
        let read = api.get("/canvases/plan?namespace=drawn").await;
        assert_eq!((read.status, &read.body["revision"], &read.body["document"]), (200, &json!(2), &canvas(won)));
        let list = api.get("/canvases?namespace=drawn").await.body;
        assert_eq!((&list["items"][0]["name"], &list["next_cursor"]), (&json!(won), &Value::Null), "{list}");
        assert_eq!(api.get("/canvases/plan").await.status, 404, "not in another namespace");
        let gone = ask(api, "DELETE", "/canvases/plan?namespace=drawn", None, None).await;
        assert_eq!((gone.status, &gone.body["pending"]), (200, &json!(false)), "{}", gone.body);
        assert_eq!(api.get("/canvases/plan?namespace=drawn").await.status, 404);
        let anew = save(api, "plan", 0, canvas("Anew"), None).await;
        assert_eq!((anew.status, &anew.body["revision"]), (200, &json!(1)), "{}", anew.body);
    });
}

#[test]
fn given_what_is_no_canvas_when_it_is_saved_then_it_is_refused_with_its_place() {
    test(async |api| {
        let with = |field: &str, value: Value| {
            let mut document = canvas("Bad");
            document[field] = value;
            document
        };
        for (document, field) in [
            (json!({}), "document"),
            (with("api_key", json!("s3cret")), "document"),
            (with("version", json!(2)), "document.version"),
            (with("edges", json!([{ "from": "a", "to": "a" }])), "document"),
            (with("name", json!("x".repeat(600_000))), "document"),
        ] {
            let reply = save(api, "bad", 0, document, None).await;
            assert_eq!(
                (reply.status, &reply.body["code"]),
                (422, &json!("invalid_request")),
                "{field}: {}",
                reply.body
            );
            assert!(reply.body["errors"][0]["field"].as_str().unwrap().starts_with(field), "{}", reply.body);
        }
        for id in ["A", "a__b", "%20", "a.b"] {
            assert_eq!(save(api, id, 0, canvas("x"), None).await.status, 422, "{id}");
        }
        assert_eq!(save(api, "bad", -1, canvas("x"), None).await.status, 422);
        assert_eq!(api.get("/canvases/bad?namespace=drawn").await.status, 404);
    });
}
