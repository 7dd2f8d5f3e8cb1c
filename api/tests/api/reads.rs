//! What can be asked without starting anything.

use riverrun_log::admin::ensure_topics;
use riverrun_schemas::TopicSpec;
use serde_json::{Value, json};

use crate::harness::{problem, test};

#[test]
fn given_a_running_stack_when_its_health_is_asked_then_every_service_is_up_and_nothing_lags_for_long() {
    test(async |api| {
        let health = api.get("/health").await;
        assert_eq!((health.status, &health.body["status"]), (200, &json!("ok")), "{}", health.body);
        let services = health.body["services"].as_array().unwrap();
        for name in [
            "broker",
            "schema registry",
            "sql",
            "vectors",
            "keywords",
            "blobs",
            "model runtime",
            "chat model",
            "embed model",
        ] {
            let service = services
                .iter()
                .find(|service| service["name"] == name)
                .unwrap_or_else(|| panic!("{name} is not there"));
            assert_eq!((&service["status"], &service["required"]), (&json!("up"), &json!(true)), "{service}");
        }
        let lag = health.body["lag"].as_object().unwrap();
        for group in
            ["riverrun.agent", "riverrun.ingester", "riverrun.embedder", "riverrun.indexer", "riverrun.projector"]
        {
            assert!(lag.contains_key(group), "{lag:?}");
        }
        let diagnosis = api.get("/diagnose").await.body;
        assert_eq!(diagnosis["status"], "ok");
        for name in ["broker", "schema registry", "sql", "documents", "vectors", "keywords", "blobs", "cache"] {
            let mut rows = diagnosis["services"].as_array().unwrap().iter();
            let row = rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name} is not there"));
            assert!(row["version"].as_str().is_some_and(|version| !version.is_empty()), "{row}");
        }
    });
}

#[test]
fn given_the_catalogs_when_they_are_asked_then_they_have_their_shapes() {
    test(async |api| {
        let agents = api.get("/agents").await.body;
        assert_eq!(agents["items"][0]["name"], "react");
        assert!(agents["items"][0]["capabilities"].is_array() && agents["items"][0]["tags"].is_array());
        let tools = api.get("/tools?namespace=team").await.body;
        let names: Vec<&str> =
            tools["items"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            ["calculator", "clock", "knowledge_search", "document_read", "memory_recall", "note", "warehouse_query"]
        );
        assert_eq!(
            (&tools["items"][0]["namespace"], &tools["items"][0]["source"], &tools["items"][0]["effect"]),
            (&json!("team"), &json!("builtin"), &json!("none"))
        );
        assert!(tools["items"][0]["input_schema"]["properties"]["expression"].is_object());
        let providers = api.get("/providers").await.body;
        assert!(
            providers["items"]
                .as_array()
                .unwrap()
                .iter()
                .any(|provider| provider["name"] == "ollama" && provider["default"] == true),
            "{providers}"
        );
        assert!(api.get("/models").await.body["items"].as_array().unwrap().iter().any(|model| model["name"] == "stub"));
        problem(&api.get("/models?provider=nobody").await, &[422]);
        let topics = api.get("/topics").await.body;
        assert!(
            topics["items"]
                .as_array()
                .unwrap()
                .iter()
                .any(|topic| topic["name"] == "riverrun.agent.events" && topic["partitions"] == 6),
            "{topics}"
        );
    });
}

#[test]
fn given_a_topic_that_others_have_made_when_the_topics_are_asked_then_it_comes_behind_ours_and_says_what_it_holds() {
    test(async |api| {
        let orders = TopicSpec { name: "others.orders".into(), partitions: 3, retention_hours: 2 };
        ensure_topics(api.stack.log(), &[orders]).await.unwrap();
        let topics = api.get("/topics").await.body;
        let topics = topics["items"].as_array().unwrap();
        let at = topics.iter().position(|topic| topic["name"] == "others.orders").unwrap();
        let found = &topics[at];
        assert_eq!(found["foreign"], true);
        assert_eq!((&found["partitions"], &found["retention_ms"]), (&json!(3), &json!(7_200_000)));
        let held = (&found["record_count"], &found["size_bytes"], &found["records"]);
        assert_eq!(held, (&json!(0), &json!(0), &json!([])));
        let own: Vec<&Value> = topics.iter().filter(|topic| topic["foreign"] == false).collect();
        assert!(own.len() <= at && own.iter().all(|topic| topic["size_bytes"].is_u64()));
    });
}

#[test]
fn given_texts_when_they_are_chatted_and_embedded_then_whole_and_streamed_answers_agree() {
    test(async |api| {
        let body = |stream: bool| json!({"messages": [{"role": "user", "content": "hello"}], "stream": stream});
        let whole = api.post("/chat", body(false)).await.body;
        assert_eq!(
            (&whole["finish_reason"], &whole["usage"]["completion_tokens"]),
            (&json!("stop"), &json!(5)),
            "{whole}"
        );
        let streamed = api.post("/chat", body(true)).await.body;
        let deltas: String = streamed
            .as_str()
            .unwrap()
            .split("\n\n")
            .filter_map(|block| block.strip_prefix("event: delta\ndata: "))
            .map(|data| serde_json::from_str::<Value>(data).unwrap()["text"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(whole["text"], deltas.as_str());
        let embedded = api.post("/embed", json!({"inputs": ["one", "two"]})).await.body;
        assert_eq!((&embedded["dimensions"], embedded["vectors"].as_array().unwrap().len()), (&json!(64), 2));
    });
}

#[test]
fn given_a_stock_registry_client_when_it_asks_at_either_place_then_it_gets_what_confluent_would_say() {
    test(async |api| {
        for base in ["", "/registry"] {
            let subjects = api.get(&format!("{base}/subjects")).await.body;
            let subject = "riverrun.agent.events-riverrun.agent.RunAccepted";
            assert!(subjects.as_array().unwrap().contains(&json!(subject)));
            let latest = api.get(&format!("{base}/subjects/{subject}/versions/latest")).await.body;
            let id = latest["id"].as_u64().unwrap();
            assert_eq!(api.get(&format!("{base}/schemas/ids/{id}")).await.body["schema"], latest["schema"]);
            assert_eq!(
                api.get(&format!("{base}/schemas/ids/{id}/versions")).await.body,
                json!([{"subject": subject, "version": latest["version"]}])
            );
            let versions: Vec<u64> = (1..=latest["version"].as_u64().unwrap()).collect();
            assert_eq!(api.get(&format!("{base}/subjects/{subject}/versions")).await.body, json!(versions));
            assert_eq!(api.get(&format!("{base}/config")).await.body["compatibilityLevel"], "FULL_TRANSITIVE");
            let schema: Value = serde_json::from_str(latest["schema"].as_str().unwrap()).unwrap();
            let same = json!({"schema": schema.to_string()});
            assert_eq!(api.post(&format!("{base}/subjects/{subject}"), same.clone()).await.body["id"], id);
            assert_eq!(api.post(&format!("{base}/subjects/{subject}/versions"), same).await.body["id"], id);
            for (status, code, path) in [
                (404, 40403, "/schemas/ids/999999"),
                (404, 40403, "/schemas/ids/x"),
                (404, 40401, "/subjects/none/versions"),
                (404, 40402, &format!("/subjects/{subject}/versions/9")),
                (422, 42202, &format!("/subjects/{subject}/versions/x")),
            ] {
                let reply = api.get(&format!("{base}{path}")).await;
                assert_eq!((reply.status, &reply.body["error_code"]), (status, &json!(code)), "{path}");
            }
            let other = api
                .post(&format!("{base}/subjects/{subject}/versions"), json!({"schema": "{\"type\": \"string\"}"}))
                .await;
            assert_eq!((other.status, &other.body["error_code"]), (422, &json!(42205)));
        }
    });
}

#[test]
fn given_a_running_stack_when_its_figures_are_asked_then_they_are_prometheus_text() {
    test(async |api| {
        api.get("/agents").await;
        let page = api.get("/metrics").await;
        let text = page.body.as_str().unwrap();
        for line in [
            "riverrun_http_requests_total{method=\"GET\",route=\"/agents\",status=\"200\"}",
            "riverrun_consumer_lag{group=\"riverrun.agent\"",
            "riverrun_worker_up{worker=\"projector\"} 1",
            "riverrun_hub_reading 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    });
}

#[test]
fn given_dead_letter_ids_that_are_none_when_they_are_asked_then_it_is_404() {
    test(async |api| {
        for id in ["x", "riverrun.agent.commands.dlq:99999", "riverrun.agent.commands:0"] {
            problem(&api.get(&format!("/dlq/{id}")).await, &[404]);
        }
        assert_eq!(api.get("/dlq").await.status, 200);
        problem(&api.get("/dlq?topic=none").await, &[404]);
    });
}
