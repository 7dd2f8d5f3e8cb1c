//! Chains over HTTP: started once, carried on by the server, ended with a reason.

use serde_json::{Value, json};

use crate::harness::{Api, problem, test, wait_for};

fn chain(key: &str) -> Value {
    let run = |task: String| json!({ "task": task, "agent": "react" });
    json!({ "runs": [
        { "name": "second", "after": ["first"], "run": run(format!("go on [[steps=1 id={key}-b]]: {{{{input}}}}")) },
        { "name": "first", "run": run(format!("begin [[steps=2 id={key}-a]]")) },
    ]})
}

async fn ended(api: &Api, id: &str) -> Value {
    wait_for("the run ends", async || {
        let run = api.get(&format!("/runs/{id}")).await.body;
        run["finished_at"].is_string().then_some(run)
    })
    .await
}

#[test]
fn given_a_chain_when_it_is_started_then_its_runs_follow_each_other_and_a_repeat_is_the_same_chain() {
    test(async |api| {
        let key = [("idempotency-key", "chain-1")];
        let started = api.post_with("/chains", chain("chain-1"), &key).await;
        assert_eq!(started.status, 202, "{}", started.body);
        let again = api.post_with("/chains", chain("chain-1"), &key).await;
        assert_eq!((again.status, &again.body), (202, &started.body));
        let names: Vec<&str> =
            started.body["runs"].as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["first", "second"], "each behind those that it waits for");
        let id = |place: usize| started.body["runs"][place]["run_id"].as_str().unwrap().to_owned();
        let (first, second) = (ended(api, &id(0)).await, ended(api, &id(1)).await);
        assert_eq!((&first["status"], &second["status"]), (&json!("succeeded"), &json!("succeeded")), "{second}");
        assert_eq!(first["answer"], "done after 2 steps");
        assert_eq!(second["after"], json!([id(0)]));
        assert!(second["task"].as_str().unwrap().contains("{{input}}"), "{second}");
        let fork = api.post(&format!("/runs/{}/fork", id(1)), json!({ "at_seq": 0 })).await;
        let forked = ended(api, fork.body["run_id"].as_str().unwrap()).await;
        assert!(forked["task"].as_str().unwrap().contains("done after 2 steps"), "a fork waits for nobody: {forked}");
        problem(&api.post_with("/chains", chain("another"), &key).await, &[409]);
    });
}

#[test]
fn given_a_chain_that_can_not_be_when_it_is_asked_for_then_the_fault_is_named() {
    test(async |api| {
        let circle = json!({ "runs": [
            { "name": "a", "after": ["b"], "run": { "task": "x" } },
            { "name": "b", "after": ["a"], "run": { "task": "x" } },
        ]});
        for body in [circle, json!({}), json!({ "runs": [] }), json!({ "runs": [{ "name": "a" }] })] {
            problem(&api.post("/chains", body).await, &[400, 422]);
        }
        let missing = json!({ "runs": [{ "name": "a", "run": { "task": "x", "collections": ["nowhere"] } }] });
        problem(&api.post("/chains", missing).await, &[404]);
    });
}
