//! What models were used for, outside of runs too.

use serde_json::{Value, json};

use crate::harness::{Api, test, wait_for};

/// The sum of a group, once so many tokens are in it: calls come one by one.
async fn sum(api: &Api, query: &str, key: &str, tokens: i64) -> Value {
    wait_for(key, async || {
        let reply = api.get(query).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let items = reply.body["items"].as_array().unwrap();
        let found = items.iter().find(|item| item["key"] == key);
        found.filter(|item| item["usage"]["total_tokens"].as_i64() >= Some(tokens)).cloned()
    })
    .await
}

#[test]
fn given_model_calls_outside_of_runs_when_usage_is_asked_for_then_each_counts_where_it_belongs() {
    test(async |api| {
        let messages = json!([{ "role": "user", "content": "hello" }]);
        let body = json!({ "model": "default", "messages": messages, "namespace": "used" });
        assert_eq!(api.post("/v1/chat/completions", body).await.status, 200);
        let talk = json!({ "text": "hello", "namespace": "used", "session": "talk", "stream": false });
        let reply = api.post("/memory/chat", talk).await;
        assert_eq!(reply.status, 200, "{}", reply.body);

        let chat = sum(api, "/usage?by=purpose&namespace=used", "chat", 15).await;
        assert_eq!((&chat["runs"], &chat["calls"]), (&json!(0), &json!(1)));
        assert_eq!((&chat["usage"]["prompt_tokens"], &chat["usage"]["completion_tokens"]), (&json!(10), &json!(5)));
        let memory = sum(api, "/usage?by=session&namespace=used", "talk", 15).await;
        assert!(memory["calls"].as_i64() >= Some(1), "{memory}");
        let model = sum(api, "/usage?by=model&namespace=used", "ollama/stub", 30).await;
        assert_eq!((&model["runs"], &model["calls"]), (&json!(0), &json!(2)));

        assert_eq!(api.post("/models/probe", json!({ "model": "ollama/accounted" })).await.status, 200);
        let probe = sum(api, "/usage?by=model&namespace=default", "ollama/accounted", 15).await;
        assert_eq!(probe["runs"], 0, "{probe}");

        assert_eq!(api.post("/embed", json!({ "inputs": ["a", "b"] })).await.status, 200);
        let embed = sum(api, "/usage?by=purpose&namespace=default", "embed", 2).await;
        assert_eq!(embed["usage"]["completion_tokens"], 0, "{embed}");
    });
}

#[test]
fn given_a_document_and_a_question_when_usage_is_asked_for_then_reading_searching_and_answering_count() {
    test(async |api| {
        let folder = api.files.join("accounted");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.md"), "The wing of the kite is seven metres long.").unwrap();
        let body = json!({ "source": folder, "collection": "kites", "namespace": "accounted" });
        let reply = api.post("/ingest", body).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        api.ingest_end(reply.body["ingest_id"].as_str().unwrap()).await;
        let ask =
            json!({ "query": "how long is the wing of the kite", "collection": "kites", "namespace": "accounted" });
        let reply = api.post("/rag/ask", ask).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        for purpose in ["ingest", "search", "ask"] {
            let found = sum(api, "/usage?by=purpose&namespace=accounted", purpose, 1).await;
            assert!(found["calls"].as_i64() >= Some(1), "{found}");
        }
    });
}

#[test]
fn given_a_run_that_names_no_model_when_usage_is_asked_for_then_it_counts_under_the_one_that_answers_as_calls_do() {
    test(async |api| {
        let namespace = "unnamed-model";
        let body = json!({ "task": "count [[steps=0 id=unnamed-model]]", "agent": "react", "namespace": namespace });
        let reply = api.post("/runs", body).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        let path = format!("/runs/{}", reply.body["run_id"].as_str().unwrap());
        let run = wait_for("the run to end", async || {
            let run = api.get(&path).await.body;
            run["finished_at"].is_string().then_some(run)
        })
        .await;
        assert_eq!(run["status"], "succeeded", "{run}");
        let messages = json!([{ "role": "user", "content": "hello" }]);
        let body = json!({ "model": "default", "messages": messages, "namespace": namespace });
        assert_eq!(api.post("/v1/chat/completions", body).await.status, 200);

        let path = format!("/usage?by=model&namespace={namespace}");
        let tokens = run["usage"]["total_tokens"].as_i64().unwrap() + 15;
        let model = sum(api, &path, "ollama/stub", tokens).await;
        assert_eq!((&model["runs"], &model["calls"]), (&json!(1), &json!(1)), "{model}");
        let keys: Vec<Value> =
            api.get(&path).await.body["items"].as_array().unwrap().iter().map(|item| item["key"].clone()).collect();
        assert!(!keys.contains(&json!("")), "{keys:?}");
    });
}
