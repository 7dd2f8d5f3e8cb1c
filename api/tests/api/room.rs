//! Prompts that can't fit their model's context: refused with both numbers before a model is asked.

use serde_json::json;

use crate::harness::{problem, test};

/// More tokens than the model's context has, by any measure, and less than a request may have. It names a script, so that the
/// model server's count shows whether it was asked.
fn too_much(id: &str) -> String {
    format!("[[id={id}]] {}", "word ".repeat(20_000))
}

#[test]
fn given_words_that_can_not_fit_when_a_model_is_asked_then_they_are_refused_with_both_numbers_and_nobody_is_asked() {
    test(async |api| {
        let messages = |id: &str| json!([{ "role": "user", "content": too_much(id) }]);
        for (id, stream) in [("much-whole", false), ("much-stream", true)] {
            let body = json!({ "messages": messages(id), "stream": stream });
            let refused = problem(&api.post("/chat", body).await, &[422]);
            assert_eq!(refused["code"], "context_overflow");
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.contains("does not fit the context of 8192 tokens"), "{detail}");
            assert!(refused["hint"].as_str().unwrap().contains("RIVERRUN_MODEL_CONTEXT_TOKENS"), "{refused}");
            assert!(!api.asked.lock().contains_key(id), "nobody is asked");
        }
    });
}

#[test]
fn given_words_that_can_not_fit_when_they_come_in_openais_shape_then_they_are_refused_in_it() {
    test(async |api| {
        for (id, stream) in [("much-openai", false), ("much-openai-stream", true)] {
            let messages = json!([{ "role": "user", "content": too_much(id) }]);
            let body = json!({ "model": "default", "messages": messages, "stream": stream });
            let reply = api.post("/v1/chat/completions", body).await;
            assert_eq!(reply.status, 400, "{}", reply.body);
            let error = &reply.body["error"];
            assert_eq!(error["code"], "context_length_exceeded", "{}", reply.body);
            assert!(error["message"].as_str().unwrap().contains("8192"), "{}", reply.body);
            assert!(!api.asked.lock().contains_key(id), "nobody is asked");
        }
    });
}
