//! Conversations over HTTP.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::harness::{Api, Reply, problem, test, wait_for};

/// A conversation of a test's own.
struct Talk {
    api: &'static Api,
    session: &'static str,
}

impl Talk {
    async fn says(&self, role: &str, text: &str) -> Value {
        let turn = json!({ "role": role, "text": text, "namespace": "talks", "session": self.session });
        let reply = self.api.post("/memory/turns", turn).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.body
    }

    async fn turns(&self) -> Vec<(i64, String, String)> {
        let reply = self.get("/memory/turns", "limit=500").await;
        let text = |turn: &Value, field: &str| turn[field].as_str().unwrap().to_owned();
        let items = reply["items"].as_array().unwrap().clone();
        items.iter().map(|turn| (turn["seq"].as_i64().unwrap(), text(turn, "role"), text(turn, "text"))).collect()
    }

    async fn get(&self, path: &str, query: &str) -> Value {
        let reply = self.api.get(&format!("{path}?namespace=talks&session={}&{query}", self.session)).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        reply.body
    }

    async fn context(&self, query: &str) -> Value {
        self.get("/memory/context", &format!("query={query}")).await
    }

    async fn recalled(&self, query: &str) -> Value {
        wait_for("something to be recalled", async || {
            let episodes = self.context(query).await["episodes"].clone();
            (!episodes.as_array().unwrap().is_empty()).then_some(episodes)
        })
        .await
    }

    async fn forget(&self, id: &str) -> Reply {
        let id = if id.is_empty() { String::new() } else { format!("&id={id}") };
        let path = format!("/memory?namespace=talks&session={}{id}", self.session);
        self.api.send(Request::delete(path).header("host", "localhost").body(Body::empty()).unwrap()).await
    }
}

#[test]
fn given_turns_when_they_are_recorded_then_they_are_read_at_once_in_their_order() {
    test(async |api| {
        let talk = Talk { api, session: "order" };
        let first = talk.says("user", "hello").await;
        assert_eq!((&first["seq"], &first["role"], &first["session"]), (&json!(1), &json!("user"), &json!("order")));
        talk.says("assistant", "hi").await;
        let turns = talk.turns().await;
        assert_eq!(turns, [(1, "user".into(), "hello".into()), (2, "assistant".into(), "hi".into())]);
        let context = talk.get("/memory/context", "").await;
        assert_eq!((context["turns"].as_array().unwrap().len(), &context["summary"]), (2, &Value::Null));
        assert_eq!((&context["episodes"], &context["window_tokens"]), (&json!([]), &json!(2_048)));
    });
}

#[test]
fn given_a_repeat_with_its_key_when_a_turn_is_recorded_then_it_is_the_same_one_and_another_text_is_a_conflict() {
    test(async |api| {
        let body = |text: &str| json!({ "role": "user", "text": text, "namespace": "talks", "session": "keys" });
        let key = [("idempotency-key", "k1")];
        let first = api.post_with("/memory/turns", body("once"), &key).await;
        let again = api.post_with("/memory/turns", body("once"), &key).await;
        assert_eq!((first.status, &first.body), (again.status, &again.body));
        let other = problem(&api.post_with("/memory/turns", body("twice"), &key).await, &[409]);
        assert_eq!(other["code"], "idempotency_key_reused");
        assert_eq!(Talk { api, session: "keys" }.turns().await.len(), 1);
    });
}

#[test]
fn given_turns_that_can_not_be_when_they_are_handed_in_then_every_fault_is_named() {
    test(async |api| {
        for (body, fields) in [
            (json!({ "role": "user", "text": "" }), vec!["text"]),
            (json!({ "role": "user", "text": "x".repeat((16 << 10) + 1) }), vec!["text"]),
            (json!({ "role": "god", "text": "x" }), vec!["role"]),
            (json!({ "role": "unknown", "text": "x" }), vec!["role"]),
            (
                json!({ "role": "user", "text": "x", "namespace": "a__b", "session": " s" }),
                vec!["namespace", "session"],
            ),
            (json!({ "role": "user", "text": "x", "session": "a\nb" }), vec!["session"]),
            (json!({ "role": "user" }), vec!["text"]),
            (json!({ "role": "user", "text": "x", "user": "y" }), vec!["user"]),
        ] {
            let refused = problem(&api.post("/memory/turns", body.clone()).await, &[422]);
            let named: Vec<&str> =
                refused["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
            assert_eq!(named, fields, "{body:.100}");
        }
        for path in [
            "/memory/context?k=0",
            "/memory/context?k=21",
            "/memory/turns?limit=0",
            "/memory/turns?cursor=x",
            "/memory/why",
        ] {
            problem(&api.get(path).await, &[422]);
        }
        problem(&api.get("/memory/why?id=trn_00000000000000000000000000").await, &[404]);
        problem(&Talk { api, session: "nobody" }.forget("").await, &[404]);
    });
}

#[test]
fn given_an_exchange_that_is_over_when_it_is_asked_for_then_it_is_recalled_with_its_turns_and_can_be_forgotten() {
    test(async |api| {
        let talk = Talk { api, session: "dog" };
        let first = talk.says("user", "my dog is called rex and he is brown").await;
        talk.says("assistant", "a fine dog").await;
        // Long enough to push the exchange out of the window.
        for n in 0..4 {
            talk.says("user", &format!("filler {n} {}", "lorem ipsum ".repeat(160))).await;
        }
        let found = talk.recalled("what%20is%20my%20dog%20called").await;
        let best = &found[0];
        assert_eq!(best["kind"], "episode");
        assert!(best["text"].as_str().unwrap().contains("rex") && best["score"].as_f64().unwrap() > 0.2, "{best}");
        assert_eq!(best["turn_ids"][0], first["turn_id"]);
        let why = talk.get("/memory/why", &format!("id={}", best["id"].as_str().unwrap())).await;
        let sources: Vec<&str> =
            why["sources"].as_array().unwrap().iter().map(|turn| turn["text"].as_str().unwrap()).collect();
        assert_eq!(sources, ["my dog is called rex and he is brown", "a fine dog"]);

        let summary = wait_for("the summary", async || {
            let summary = talk.context("x").await["summary"].clone();
            (!summary.is_null()).then_some(summary)
        })
        .await;
        assert_eq!(
            (&summary["model"], summary["through_seq"].as_i64().unwrap() >= 2),
            (&json!("stub"), true),
            "{summary}"
        );

        let why = talk.get("/memory/why", &format!("id={}", summary["summary_id"].as_str().unwrap())).await;
        let sources = why["sources"].as_array().unwrap();
        assert_eq!((&why["kind"], &why["text"]), (&json!("summary"), &summary["text"]), "{why}");
        assert_eq!(
            i64::try_from(sources.len()).unwrap(),
            summary["through_seq"].as_i64().unwrap(),
            "all that it covers"
        );
        assert_eq!((&sources[0]["turn_id"], &sources[0]["text"]), (&first["turn_id"], &first["text"]), "{why}");

        let gone = talk.forget(first["turn_id"].as_str().unwrap()).await;
        assert_eq!(gone.status, 200, "{}", gone.body);
        let removed = &gone.body["removed"];
        assert_eq!(
            (&removed["turns"], &removed["episodes"], &removed["vectors"]),
            (&json!(1), &json!(1), &json!(1)),
            "{removed}"
        );
        assert_eq!((&gone.body["pending"], removed["summaries"].as_i64().unwrap() >= 1), (&json!(false), true));
        let left = talk.context("what%20is%20my%20dog%20called").await;
        assert!(!left.to_string().contains("rex"), "{left}");
        problem(&talk.forget(first["turn_id"].as_str().unwrap()).await, &[404]);

        // What is left of what the summary stood for is summarized anew.
        wait_for("the new summary", async || {
            let summary = talk.context("x").await["summary"].clone();
            (!summary.is_null()).then_some(())
        })
        .await;
        let all = talk.forget("").await;
        assert_eq!((all.status, &all.body["pending"]), (200, &json!(false)), "{}", all.body);
        assert!(talk.turns().await.is_empty());
        assert!(talk.context("dog").await["episodes"].as_array().unwrap().is_empty());
    });
}

#[test]
fn given_a_chat_when_it_goes_on_then_both_sides_are_recorded_and_the_model_is_shown_what_was_said() {
    test(async |api| {
        let talk = Talk { api, session: "chat" };
        let body = |text: &str| json!({ "text": text, "namespace": "talks", "session": "chat", "stream": false });
        let key = [("idempotency-key", "c1")];
        let first = api.post_with("/memory/chat", body("hello there"), &key).await;
        assert_eq!((first.status, &first.body["turns_shown"]), (200, &json!(0)), "{}", first.body);
        let again = api.post_with("/memory/chat", body("hello there"), &key).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        let second = api.post("/memory/chat", body("and again")).await;
        assert_eq!(second.body["turns_shown"], 2, "{}", second.body);
        let roles: Vec<String> = talk.turns().await.into_iter().map(|(_, role, _)| role).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
        let streamed = json!({ "text": "once more", "namespace": "talks", "session": "chat" });
        let streamed = api.post("/memory/chat", streamed).await;
        let text = streamed.body.as_str().unwrap();
        assert!(text.contains("event: delta") && text.contains("event: final"), "{text}");
        problem(&api.post("/memory/chat", body(&"word ".repeat(2_000))).await, &[422]);
        assert_eq!(talk.turns().await.len(), 6);
    });
}

/// The object that a stream ends with.
fn last(reply: &Reply) -> Value {
    let text = reply.body.as_str().unwrap_or_else(|| panic!("no stream: {}", reply.body));
    let (_, end) = text.split_once("event: final\ndata: ").unwrap_or_else(|| panic!("no end: {text}"));
    serde_json::from_str(end.lines().next().unwrap()).unwrap()
}

#[test]
fn given_a_streamed_chat_when_its_key_comes_again_meanwhile_then_the_model_is_asked_once_and_other_words_are_a_conflict()
 {
    test(async |api| {
        let body = |text: &str| json!({ "text": text, "namespace": "talks", "session": "streamed-keys" });
        let key = [("idempotency-key", "s1")];
        let words = "[[delay_ms=500 id=streamed-keys]] hello";
        let (one, other) = tokio::join!(
            api.post_with("/memory/chat", body(words), &key),
            api.post_with("/memory/chat", body(words), &key),
        );
        let again = api.post_with("/memory/chat", body(words), &key).await;
        let first = last(&one);
        for reply in [&other, &again] {
            let end = last(reply);
            for field in ["text", "turn_id", "answer_turn_id"] {
                assert_eq!(end[field], first[field], "{field}");
            }
        }
        assert_eq!(api.asked.lock().get("streamed-keys"), Some(&1));
        for stream in [true, false] {
            let mut body = body("other words");
            body["stream"] = json!(stream);
            let refused = problem(&api.post_with("/memory/chat", body, &key).await, &[409]);
            assert_eq!(refused["code"], "idempotency_key_reused");
        }
        assert_eq!(Talk { api, session: "streamed-keys" }.turns().await.len(), 2);
    });
}

#[test]
fn given_a_run_that_waits_for_another_of_its_conversation_when_that_has_ended_then_it_has_read_what_that_said() {
    test(async |api| {
        let run = |id: &str| {
            let task = format!("say it [[steps=1 id={id}]]");
            json!({ "task": task, "agent": "react", "namespace": "talks", "session": "turns" })
        };
        let first = api.post("/runs", run("waited-for")).await;
        assert_eq!(first.status, 202, "{}", first.body);
        let second = api.post("/agent/run", run("waits")).await;
        assert_eq!(second.status, 200, "{}", second.body);
        let read = &second.body["steps"][1]["tool"]["result"]["turns"];
        let roles: Vec<&str> = read.as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant"], "{read}");
        assert!(read[0]["text"].as_str().unwrap().contains("waited-for"), "{read}");
    });
}

#[test]
fn given_a_run_of_a_conversation_when_it_ends_then_it_has_read_the_conversation_and_is_part_of_it() {
    test(async |api| {
        let talk = Talk { api, session: "runs" };
        talk.says("user", "the code is 1234").await;
        let run = json!({ "task": "say it [[steps=1 id=memory-run]]", "agent": "react", "namespace": "talks", "session": "runs" });
        let run = api.post("/agent/run", run).await;
        assert_eq!(run.status, 200, "{}", run.body);
        let steps = run.body["steps"].as_array().unwrap();
        assert_eq!((&steps[0]["kind"], &steps[0]["tool"]["name"]), (&json!("tool_call"), &json!("memory_recall")));
        assert_eq!(steps[1]["tool"]["result"]["turns"][0]["text"], "the code is 1234", "{}", steps[1]);
        let answer = run.body["answer"].as_str().unwrap().to_owned();
        let turns = wait_for("the run's turns", async || {
            let turns = talk.turns().await;
            (turns.len() == 3).then_some(turns)
        })
        .await;
        assert_eq!(turns[1], (2, "user".into(), "say it [[steps=1 id=memory-run]]".into()));
        assert_eq!(turns[2], (3, "assistant".into(), answer));
        let alone = api
            .post("/agent/run", json!({ "task": "say it [[steps=1]]", "agent": "react", "namespace": "talks" }))
            .await;
        assert_eq!(alone.body["steps"][0]["kind"], "thought", "a run of no conversation reads none: {}", alone.body);
    });
}
