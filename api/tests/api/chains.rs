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

/// A diamond whose first run takes its time.
fn diamond(key: &str, namespace: &str) -> Value {
    let part = |name: &str, after: &[&str], steps: u32, delay_ms: u32| {
        let input = if after.is_empty() { "" } else { "{{input}}" };
        let task = format!("[[steps={steps} delay_ms={delay_ms} id={key}-{name}]] {input}");
        json!({ "name": name, "after": after, "run": { "task": task, "agent": "react" } })
    };
    json!({ "namespace": namespace, "runs": [
        part("end", &["left", "right"], 1, 0),
        part("left", &["start"], 1, 0),
        part("right", &["start"], 1, 0),
        part("start", &[], 6, 5_000),
    ]})
}

async fn chain_when(api: &Api, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
    wait_for("the chain", async || {
        let reply = api.get(&format!("/chains/{id}")).await;
        assert_eq!(reply.status, 200, "a chain that was accepted is there at any time: {}", reply.body);
        holds(&reply.body).then_some(reply.body)
    })
    .await
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
        assert_eq!((&forked["status"], &forked["chain"]), (&json!("succeeded"), &Value::Null), "{forked}");
        assert_eq!((&forked["task"], &forked["after"]), (&second["task"], &second["after"]), "answers are no orders");
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

#[test]
fn given_a_chain_when_it_is_asked_for_by_its_id_then_it_shows_each_run_and_what_they_used_together() {
    test(async |api| {
        let key = [("idempotency-key", "chain-shown")];
        let started = api.post_with("/chains", chain("chain-shown"), &key).await;
        let id = started.body["chain_id"].as_str().unwrap().to_owned();
        let at_once = api.get(&format!("/chains/{id}")).await;
        assert_eq!((at_once.status, &at_once.body["runs_total"]), (200, &json!(2)), "{}", at_once.body);
        let view = chain_when(api, &id, |chain| chain["finished_at"].is_string()).await;
        assert_eq!((&view["status"], &view["namespace"]), (&json!("succeeded"), &json!("default")));
        let of = |name: &str| view["runs"].as_array().unwrap().iter().find(|run| run["name"] == name).unwrap();
        assert_eq!(view["runs"][0]["name"], "first", "each behind those that it waits for: {view}");
        assert_eq!(of("second")["after"], json!([of("first")["run_id"]]));
        let mut tokens = 0;
        for name in ["first", "second"] {
            let run = ended(api, of(name)["run_id"].as_str().unwrap()).await;
            assert_eq!(run["chain"], json!({ "chain_id": id, "name": name, "runs": 2 }));
            assert_eq!(of(name)["steps"], run["steps"].as_array().unwrap().len());
            tokens += run["usage"]["total_tokens"].as_i64().unwrap();
        }
        assert_eq!(view["usage"]["total_tokens"], tokens);
        let listed = wait_for("the runs of the chain", async || {
            let items = api.get(&format!("/runs?chain={id}")).await.body["items"].as_array().unwrap().clone();
            (items.len() == 2).then_some(items)
        })
        .await;
        assert!(listed.iter().all(|run| run["chain"]["chain_id"] == id.as_str()), "{listed:?}");
        let other = api.post("/chains", chain("chain-other")).await.body["chain_id"].clone();
        assert_ne!(other, id.as_str());
        for run in ["first", "second"] {
            let tree = wait_for("the tree", async || {
                let tree = api.get(&format!("/runs/{}/tree", of(run)["run_id"].as_str().unwrap())).await.body;
                (tree["items"].as_array().unwrap().len() == 2).then_some(tree)
            })
            .await;
            let (from, to) = (&of("first")["run_id"], &of("second")["run_id"]);
            assert_eq!(tree["edges"], json!([{ "kind": "chain", "from": from, "to": to }]));
            assert_eq!(tree["truncated"], false);
        }
        problem(&api.post(&format!("/chains/{id}/cancel"), json!({})).await, &[409]);
    });
}

#[test]
fn given_a_chain_that_goes_on_when_it_is_cancelled_then_every_run_that_has_not_ended_ends_as_cancelled() {
    test(async |api| {
        for begun in [false, true] {
            let started = api.post("/chains", diamond(&format!("chain-cancel-{begun}"), "default")).await;
            let id = started.body["chain_id"].as_str().unwrap().to_owned();
            if begun {
                chain_when(api, &id, |chain| chain["status"] == "running").await;
            }
            problem(&api.post(&format!("/chains/{id}/cancel"), json!({ "reason": "x".repeat(2_000) })).await, &[422]);
            let asked = api.post(&format!("/chains/{id}/cancel"), json!({ "reason": "enough" })).await;
            assert_eq!((asked.status, &asked.body["chain_id"]), (202, &json!(id)), "{}", asked.body);
            let view = chain_when(api, &id, |chain| chain["finished_at"].is_string()).await;
            assert_eq!(view["status"], "cancelled");
            for run in view["runs"].as_array().unwrap() {
                assert_eq!((&run["status"], &run["stop_reason"]), (&json!("cancelled"), &json!("cancelled")), "{run}");
            }
            let again = problem(&api.post(&format!("/chains/{id}/cancel"), json!({})).await, &[409]);
            assert_eq!(again["code"], "chain_ended");
        }
    });
}

#[test]
fn given_a_run_of_a_chain_that_fails_when_others_do_not_wait_for_it_then_they_go_on_and_the_chain_has_failed() {
    test(async |api| {
        let part = |name: &str, after: &[&str], task: &str, budget: Option<i64>| {
            let budget = budget.map(|tokens| json!({ "tokens": tokens }));
            json!({ "name": name, "after": after, "run": { "task": task, "agent": "react", "budget": budget } })
        };
        let body = json!({ "runs": [
            part("fails", &[], "[[steps=5 id=chain-fails]]", Some(1)),
            part("follows", &["fails"], "{{input}}", None),
            part("beside", &[], "[[steps=1 id=chain-beside]]", None),
        ]});
        let started = api.post("/chains", body).await;
        assert_eq!(started.status, 202, "{}", started.body);
        let id = started.body["chain_id"].as_str().unwrap().to_owned();
        let view = chain_when(api, &id, |chain| chain["finished_at"].is_string()).await;
        let of = |name: &str| view["runs"].as_array().unwrap().iter().find(|run| run["name"] == name).unwrap();
        assert_eq!(view["status"], "failed");
        assert_eq!((&of("fails")["status"], &of("beside")["status"]), (&json!("failed"), &json!("succeeded")));
        assert_eq!(of("follows")["stop_reason"], "predecessor_failed");
        assert!(of("follows")["error"]["message"].as_str().unwrap().contains(of("fails")["run_id"].as_str().unwrap()));
    });
}

#[test]
fn given_a_chain_of_a_namespace_when_it_is_asked_for_in_another_then_it_is_unknown() {
    test(async |api| {
        let id =
            api.post("/chains", diamond("chain-ns", "chains-a")).await.body["chain_id"].as_str().unwrap().to_owned();
        for (method, path) in [("GET", format!("/chains/{id}")), ("POST", format!("/chains/{id}/cancel"))] {
            for (namespace, known) in [("chains", false), ("chains-a-b", false), ("chains-a", true)] {
                let path = format!("{path}?namespace={namespace}");
                let reply = if method == "GET" { api.get(&path).await } else { api.post(&path, json!({})).await };
                assert_eq!(reply.status == 404, !known, "{method} {namespace}: {}", reply.body);
            }
        }
    });
}
