//! Runs over HTTP: started once, read while they go on, ended once.

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use futures::StreamExt;
use riverrun_schemas::agent::{AgentCommand, RunRequest, StartRun};
use riverrun_schemas::{RunId, now_ms};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::{Api, problem, test, wait_for};

/// Names and data of a run's event stream, up to its end.
async fn events(api: &Api, path: &str, last: Option<i64>) -> Vec<(String, Value)> {
    let mut request = Request::get(path).header("host", "localhost");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = api.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut text = String::new();
    let mut body = response.into_body().into_data_stream();
    while let Some(chunk) = body.next().await {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
    }
    let field = |block: &str, name: &str| {
        block.lines().filter_map(|line| line.strip_prefix(name)).map(str::trim).collect::<Vec<_>>().join("\n")
    };
    text.split("\n\n")
        .filter(|block| block.contains("data:"))
        .map(|block| (field(block, "event:"), serde_json::from_str(&field(block, "data:")).unwrap()))
        .collect()
}

fn seqs(events: &[(String, Value)]) -> Vec<i64> {
    events.iter().filter(|(name, _)| name == "step").map(|(_, data)| data["step"]["seq"].as_i64().unwrap()).collect()
}

#[test]
fn given_a_task_when_it_is_run_then_the_answer_is_the_run_result() {
    test(async |api| {
        let reply = api
            .post(
                "/agent/run",
                json!({"task": "add up [[steps=2 id=sync]]", "agent": "react", "metadata": {"mine": 1}}),
            )
            .await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let run = reply.body;
        assert_eq!(
            (&run["status"], &run["agent"], &run["stop_reason"]),
            (&json!("succeeded"), &json!("react"), &json!("answered")),
            "{run}"
        );
        assert_eq!(
            (&run["answer"], &run["trace_id"], &run["metadata"]),
            (&json!("done after 2 steps"), &Value::Null, &json!({"mine": 1}))
        );
        let steps = run["steps"].as_array().unwrap();
        assert_eq!(
            steps.iter().map(|step| step["seq"].as_i64().unwrap()).collect::<Vec<_>>(),
            (1..=steps.len() as i64).collect::<Vec<_>>()
        );
        let of = |kind: &str| steps.iter().filter(|step| step["kind"] == kind).count();
        assert_eq!((of("tool_call"), of("tool_result"), of("answer")), (2, 2, 1), "{run}");
        assert!(
            run["usage"]["total_tokens"].as_i64().unwrap() > 0
                && run["created_at"].is_string()
                && run["finished_at"].is_string()
        );
        let id = run["run_id"].as_str().unwrap();
        assert_eq!(api.get(&format!("/runs/{id}")).await.body, run, "the same from the read model");
        wait_for("the run in the list", async || {
            let page = api.get("/runs?status=succeeded&agent=react&limit=500").await.body;
            page["items"].as_array().unwrap().iter().any(|item| item["run_id"] == id).then_some(())
        })
        .await;
    });
}

#[test]
fn given_no_agent_when_a_task_is_run_then_the_supervisor_chooses() {
    test(async |api| {
        let run = api.post("/agent/run", json!({"task": "what is it [[steps=0 id=routed]]"})).await.body;
        assert_eq!(
            (&run["status"], &run["agent"], &run["steps"][0]["kind"]),
            (&json!("succeeded"), &json!("react"), &json!("route")),
            "{run}"
        );
    });
}

#[test]
fn given_a_key_when_it_comes_again_then_it_is_one_run_and_another_body_is_a_conflict() {
    test(async |api| {
        let body = json!({"task": "once [[steps=1 id=once]]", "agent": "react"});
        let key = [("idempotency-key", "key-1")];
        let (first, second) =
            tokio::join!(api.post_with("/runs", body.clone(), &key), api.post_with("/runs", body.clone(), &key));
        assert_eq!((first.status, second.status), (202, 202), "{} {}", first.body, second.body);
        assert_eq!(first.body["run_id"], second.body["run_id"]);
        let waited = api.post_with("/agent/run", body.clone(), &key).await;
        assert_eq!(
            (waited.status, &waited.body["run_id"]),
            (200, &first.body["run_id"]),
            "the same run through another route"
        );
        problem(&api.post_with("/runs", json!({"task": "another", "agent": "react"}), &key).await, &[409]);
        let elsewhere = api
            .post_with(
                "/runs",
                json!({"task": "once [[steps=1 id=once]]", "agent": "react", "namespace": "other"}),
                &key,
            )
            .await;
        assert_ne!(elsewhere.body["run_id"], first.body["run_id"], "a key belongs to its namespace");
        api.post_with(
            "/agent/run",
            json!({"task": "once [[steps=1 id=once]]", "agent": "react", "namespace": "other"}),
            &key,
        )
        .await;
        assert_eq!(api.asked.lock()["once"], 2 * 3, "two runs of two actions and an answer each");
    });
}

#[test]
fn given_a_model_that_names_its_provider_when_its_key_comes_again_then_it_is_one_run_and_another_model_is_a_conflict() {
    test(async |api| {
        let body = |model: &str| json!({"task": "named [[steps=0 id=named]]", "agent": "react", "model": model});
        let key = [("idempotency-key", "named")];
        let first = api.post_with("/runs", body("ollama/stub"), &key).await;
        assert_eq!(first.status, 202, "{}", first.body);
        problem(&api.post_with("/agent/run", body("ollama/other"), &key).await, &[409]);
        let waited = api.post_with("/agent/run", body("ollama/stub"), &key).await;
        assert_eq!((waited.status, &waited.body["run_id"]), (200, &first.body["run_id"]), "{}", waited.body);
    });
}

#[test]
fn given_a_run_that_another_process_has_just_accepted_when_it_is_asked_for_then_it_is_there() {
    test(async |api| {
        for rest in ["", "/steps", "/cancel"] {
            let run_id = RunId::new();
            let task = "elsewhere [[steps=1 delay_ms=300 id=elsewhere]]".to_owned();
            let request = RunRequest { task, agent: Some("react".to_owned()), ..RunRequest::default() };
            let command = AgentCommand::from(StartRun { run_id, request, at: now_ms() });
            api.stack.state().parts().producer.send(&command, "test", None).await.unwrap();
            let path = format!("/runs/{run_id}{rest}");
            let reply = if rest == "/cancel" { api.post(&path, json!({})).await } else { api.get(&path).await };
            assert!([200, 202].contains(&reply.status), "{path}: {} {}", reply.status, reply.body);
        }
    });
}

#[test]
fn given_a_run_when_it_is_followed_from_any_point_then_each_step_comes_once_and_then_the_end() {
    test(async |api| {
        let id = api.start_run("follow [[steps=3 delay_ms=30 id=follow]]").await;
        let live = events(api, &format!("/runs/{id}/events"), None).await;
        let (first, last) = (&live[0], live.last().unwrap());
        assert_eq!((first.0.as_str(), last.0.as_str()), ("start", "final"), "{live:?}");
        assert_eq!(live.iter().filter(|(name, _)| name == "final").count(), 1);
        let run = &last.1["result"];
        assert_eq!(run["status"], "succeeded");
        let all = seqs(&live);
        assert_eq!(all, (1..=run["steps"].as_array().unwrap().len() as i64).collect::<Vec<_>>());
        for after in [0, 1, all.len() as i64 - 1, all.len() as i64, all.len() as i64 + 7] {
            let rest: Vec<i64> = all.iter().copied().filter(|seq| *seq > after).collect();
            assert_eq!(
                seqs(&events(api, &format!("/runs/{id}/events?after={after}"), None).await),
                rest,
                "after {after}"
            );
            let again = events(api, &format!("/runs/{id}/events"), Some(after)).await;
            assert_eq!((seqs(&again), &again.last().unwrap().1["result"]), (rest, run), "Last-Event-ID {after}");
        }
    });
}

#[test]
fn given_many_who_join_at_any_moment_when_a_run_goes_on_then_all_see_the_same() {
    test(async |api| {
        let id = api.start_run("crowd [[steps=6 delay_ms=10 id=crowd]]").await;
        let joined = futures::stream::iter(0..30)
            .map(|number| {
                let id = id.clone();
                async move {
                    tokio::time::sleep(std::time::Duration::from_millis(number * 8)).await;
                    events(api, &format!("/runs/{id}/events"), None).await
                }
            })
            .buffer_unordered(30)
            .collect::<Vec<_>>()
            .await;
        for one in &joined {
            assert_eq!(seqs(one), seqs(&joined[0]));
            assert_eq!(one.last(), joined[0].last());
        }
    });
}

#[test]
fn given_a_run_that_goes_on_when_it_is_cancelled_then_it_ends_as_cancelled_and_can_not_be_again() {
    test(async |api| {
        let id = api.start_run("slow [[steps=7 delay_ms=400 id=slow]]").await;
        wait_for("a first step", async || {
            (!api.get(&format!("/runs/{id}")).await.body["steps"].as_array()?.is_empty()).then_some(())
        })
        .await;
        let reply = api.post(&format!("/runs/{id}/cancel"), json!({"reason": "enough"})).await;
        assert_eq!((reply.status, &reply.body["run_id"]), (202, &json!(id)));
        let all = events(api, &format!("/runs/{id}/events"), None).await;
        let run = &all.last().unwrap().1["result"];
        assert_eq!(
            (&run["status"], &run["stop_reason"], &run["answer"]),
            (&json!("cancelled"), &json!("cancelled"), &Value::Null),
            "{run}"
        );
        assert_eq!(problem(&api.post(&format!("/runs/{id}/cancel"), json!({})).await, &[409])["code"], "run_ended");
    });
}

/// What a request is answered that waited when the process stopped, and whether its client is told not to make it again.
async fn stopped(response: Response) -> (Value, bool) {
    let headers = response.headers().clone();
    assert_eq!((response.status().as_u16(), headers["retry-after"].to_str().unwrap()), (503, "1"));
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let again = headers.get("x-should-retry").map(|value| value.to_str().unwrap());
    (serde_json::from_slice(&bytes).unwrap(), again == Some("false"))
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_that_wait_for_their_runs_when_the_process_stops_then_they_are_told_so_and_which_run_goes_on() {
    let api = Api::configured(|config| config).await;
    let ask = |path: &str, body: Value| {
        let request = Request::post(path).header("host", "localhost").header("content-type", "application/json");
        tokio::spawn(api.router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()))
    };
    let task = "stopped [[steps=9 delay_ms=2000 id=stopped]]";
    let run = ask("/agent/run", json!({ "task": task, "agent": "react" }));
    let messages = json!([{ "role": "user", "content": task }]);
    let chat = ask("/v1/chat/completions", json!({ "model": "agent/react", "messages": messages }));
    wait_for("both to wait", async || (api.stack.state().hub().stats().listeners >= 2).then_some(())).await;
    api.stop().await;
    let (told, _) = stopped(run.await.unwrap().unwrap()).await;
    assert_eq!(told["code"], "shutting_down");
    assert!(told["run_id"].as_str().unwrap().parse::<RunId>().is_ok() && told["hint"].is_string(), "{told}");
    let (told, not_again) = stopped(chat.await.unwrap().unwrap()).await;
    assert!(told["error"]["code"] == "shutting_down" && not_again, "{told}");
}
