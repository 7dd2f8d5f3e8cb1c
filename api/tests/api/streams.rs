//! Places of streams: whoever streams or waits takes one, of whatever kind, and gives it back at its end or when it goes away.

use axum::body::Body;
use axum::http::Request;
use riverrun_api::ApiConfig;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::{Api, problem, wait_for};

fn words(script: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": format!("[[{script}]] hello") }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_chat_that_streams_in_the_last_place_when_another_stream_is_asked_for_then_it_is_429_until_the_first_ends()
 {
    let api = Api::configured(|config| ApiConfig { max_streams: 1, ..config }).await;
    let request = Request::post("/chat").header("host", "localhost").header("content-type", "application/json");
    let request = request.body(Body::from(words("delay_ms=600000 id=held").to_string())).unwrap();
    let held = api.router.clone().oneshot(request).await.unwrap();
    assert_eq!(held.status(), 200);
    for (path, body) in [
        ("/chat", words("id=second")),
        ("/memory/chat", json!({ "text": "hello", "session": "streams" })),
        ("/agent/run", json!({ "task": "once [[steps=0 id=third]]", "agent": "react" })),
    ] {
        let refused = api.post(path, body).await;
        let told = problem(&refused, &[429]);
        assert!(told["hint"].as_str().unwrap().contains("RIVERRUN_API_MAX_STREAMS"), "{path}: {told}");
    }
    let mut whole = words("id=whole");
    whole["stream"] = json!(false);
    assert_eq!(api.post("/chat", whole).await.status, 200, "what is no stream takes no place");
    drop(held);
    let streamed = wait_for("the place", async || {
        let reply = api.post("/chat", words("id=last")).await;
        (reply.status == 200).then_some(reply.body)
    })
    .await;
    assert!(streamed.as_str().unwrap().contains("event: final"), "{streamed}");
    assert!(!api.asked.lock().contains_key("second"), "who is refused asks no model");
    api.stop().await;
}
