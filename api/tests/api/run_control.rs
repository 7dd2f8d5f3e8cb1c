//! Runs that wait for a person, branch off each other, and share a session, over HTTP.

use serde_json::{Value, json};

use crate::harness::{Api, problem, test, wait_for};

/// A run whose calls all wait for approval.
async fn careful(api: &Api, task: &str) -> String {
    let reply = api.post("/runs", json!({"task": task, "agent": "react", "approval": "always"})).await;
    assert_eq!(reply.status, 202, "{}", reply.body);
    reply.body["run_id"].as_str().unwrap().to_owned()
}

async fn run(api: &Api, id: &str) -> Value {
    let reply = api.get(&format!("/runs/{id}")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body
}

/// The run once it waits for an answer that it did not wait for before.
async fn waiting(api: &Api, id: &str, after: i64) -> Value {
    wait_for("the run to ask", async || {
        let run = run(api, id).await;
        let step = run["pending_approvals"][0]["step"].as_i64()?;
        (step > after && run["status"] == "waiting_approval").then_some(run)
    })
    .await
}

async fn ended(api: &Api, id: &str) -> Value {
    wait_for("the run to end", async || {
        let run = run(api, id).await;
        run["finished_at"].is_string().then_some(run)
    })
    .await
}

async fn decide(api: &Api, id: &str, step: &Value, decision: &str) -> crate::harness::Reply {
    api.post(&format!("/runs/{id}/approvals/{step}"), json!({"decision": decision, "note": "says the test"})).await
}

#[test]
fn given_a_run_that_waits_when_it_is_answered_then_it_goes_on_and_the_second_answer_is_a_conflict() {
    test(async |api| {
        let id = careful(api, "twice [[steps=2 id=approve]]").await;
        let run = waiting(api, &id, 0).await;
        let pending = &run["pending_approvals"][0];
        let step = &pending["step"];
        assert_eq!(
            (&pending["tool"], &pending["arguments"], &pending["outcome_unknown"]),
            (&json!("calculator"), &json!({"expression": "0 + 1"}), &json!(false))
        );
        let shown = &run["steps"][usize::try_from(step.as_i64().unwrap() - 1).unwrap()];
        assert_eq!((&shown["kind"], &shown["tool"]["name"]), (&json!("approval"), &json!("calculator")));
        wait_for("the run in the list of those that wait", async || {
            let page = api.get("/runs?status=waiting_approval&limit=500").await.body;
            page["items"].as_array().unwrap().iter().any(|item| item["run_id"] == id.as_str()).then_some(())
        })
        .await;

        assert_eq!(decide(api, &id, step, "approve").await.status, 202);
        assert_eq!(problem(&decide(api, &id, step, "deny").await, &[409])["code"], "approval_decided");
        let second = waiting(api, &id, step.as_i64().unwrap()).await;
        let next = &second["pending_approvals"][0]["step"];
        assert_ne!(next, step, "each question has its own number");
        assert_eq!(problem(&decide(api, &id, step, "approve").await, &[409])["code"], "approval_decided");
        assert_eq!(decide(api, &id, next, "deny").await.status, 202);
        let end = ended(api, &id).await;
        assert_eq!(end["status"], "succeeded", "{end}");
        assert!(end.get("pending_approvals").is_none(), "{end}");
        let errors: Vec<&Value> = end["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|step| step["kind"] == "tool_result" && step["tool"]["error"].is_string())
            .collect();
        assert!(errors[0]["tool"]["error"].as_str().unwrap().contains("says the test"), "{errors:?}");
        assert_eq!(problem(&decide(api, &id, next, "approve").await, &[409])["code"], "run_ended");
    });
}

#[test]
fn given_a_request_that_waits_for_its_run_when_that_waits_for_a_person_then_it_is_answered_with_the_run_and_what_is_asked()
 {
    test(async |api| {
        let body = json!({"task": "wait [[steps=1 id=asked-while-waiting]]", "agent": "react", "approval": "always"});
        let reply = api.post("/agent/run", body).await;
        assert_eq!((reply.status, &reply.body["status"]), (202, &json!("waiting_approval")), "{}", reply.body);
        let id = reply.body["run_id"].as_str().unwrap();
        assert_eq!(reply.headers["location"].to_str().unwrap(), format!("/runs/{id}"));
        let pending = &reply.body["pending_approvals"][0];
        assert_eq!(pending["tool"], "calculator", "{}", reply.body);
        assert_eq!(decide(api, id, &pending["step"], "approve").await.status, 202);
        assert_eq!(ended(api, id).await["answer"], "done after 1 steps");
    });
}

#[test]
fn given_a_question_when_the_same_answer_comes_twice_at_once_then_one_of_them_is_a_conflict() {
    test(async |api| {
        let id = careful(api, "wait [[steps=1 id=answered-twice]]").await;
        let step = waiting(api, &id, 0).await["pending_approvals"][0]["step"].clone();
        let (one, other) = tokio::join!(decide(api, &id, &step, "approve"), decide(api, &id, &step, "approve"));
        let (first, second) = if one.status == 202 { (one, other) } else { (other, one) };
        assert_eq!(first.status, 202, "{}", first.body);
        problem(&second, &[409]);
        assert_eq!(ended(api, &id).await["status"], "succeeded");
    });
}

#[test]
fn given_answers_that_answer_nothing_when_they_come_then_they_are_refused_with_the_way_out() {
    test(async |api| {
        let id = careful(api, "wait [[steps=1 id=refuse]]").await;
        let step = waiting(api, &id, 0).await["pending_approvals"][0]["step"].clone();
        let refused = problem(&decide(api, &id, &json!(99), "approve").await, &[404]);
        assert_eq!(refused["code"], "approval_not_found");
        assert!(refused["hint"].as_str().unwrap().contains(&step.to_string()), "{refused}");
        problem(&decide(api, &id, &json!("x"), "approve").await, &[422]);
        problem(&decide(api, &id, &step, "perhaps").await, &[422]);
        problem(&decide(api, "run_01h455vb4pex5vsknk084sn02q", &step, "approve").await, &[404]);
        assert_eq!(run(api, &id).await["status"], "waiting_approval");
        assert_eq!(api.post(&format!("/runs/{id}/resume"), json!({})).await.status, 202);
        assert_eq!(api.post(&format!("/runs/{id}/cancel"), json!({})).await.status, 202);
        assert_eq!(ended(api, &id).await["status"], "cancelled");
        let refused = problem(&api.post(&format!("/runs/{id}/resume"), json!({})).await, &[409]);
        assert!(refused["hint"].as_str().unwrap().contains("runs fork"), "{refused}");
    });
}

#[test]
fn given_a_run_when_it_is_forked_then_the_branch_shares_its_steps_and_can_be_compared() {
    test(async |api| {
        let id = api.start_run("branch [[steps=2 id=fork]]").await;
        let source = ended(api, &id).await;
        let path = format!("/runs/{id}/fork");
        for (body, word) in [
            (json!({"at_seq": -1}), "at_seq"),
            (json!({"at_seq": 99}), "at_seq"),
            (json!({"at_seq": 2}), "result"),
            (json!({"at_seq": source["steps"].as_array().unwrap().len()}), "answer"),
            (json!({"at_seq": 3, "agent": "root"}), "react"),
            (json!({"at_seq": 3, "provider": "nobody"}), "provider"),
            (json!({"at_seq": 3, "task": " "}), "task"),
        ] {
            let refused = problem(&api.post(&path, body.clone()).await, &[422]);
            assert!(refused["detail"].as_str().unwrap().contains(word), "{body}: {refused}");
        }
        let asked_before = api.asked.lock()["fork"];
        let key = [("idempotency-key", "fork-1")];
        let body = json!({"at_seq": 3, "model": "stub-2", "task": "otherwise [[steps=2 id=fork]]"});
        let reply = api.post_with(&path, body.clone(), &key).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        let fork_id = reply.body["run_id"].as_str().unwrap().to_owned();
        assert_eq!(api.post_with(&path, body, &key).await.body["run_id"], fork_id.as_str());
        let fork = ended(api, &fork_id).await;
        assert_eq!((&fork["status"], &fork["task"]), (&json!("succeeded"), &json!("otherwise [[steps=2 id=fork]]")));
        assert_eq!(fork["forked_from"], json!({"run_id": id, "at_seq": 3}));
        for step in 0..3 {
            for field in ["seq", "kind", "text", "tool", "at"] {
                assert_eq!(fork["steps"][step][field], source["steps"][step][field], "{field} of {step}");
            }
        }
        assert_eq!(api.asked.lock()["fork"] - asked_before, 3, "one more action, the choice to answer, the answer");

        let tree = wait_for("the tree", async || {
            let tree = api.get(&format!("/runs/{fork_id}/tree")).await.body;
            (tree["items"].as_array()?.len() == 2).then_some(tree)
        })
        .await;
        assert_eq!((&tree["items"][0]["run_id"], &tree["items"][1]["run_id"]), (&json!(id), &json!(fork_id)));
        assert_eq!(tree["items"][1]["model"], "stub-2");

        let compared = api.get(&format!("/runs/{fork_id}/compare")).await.body;
        assert_eq!((&compared["left"]["run_id"], &compared["right"]["run_id"]), (&json!(id), &json!(fork_id)));
        assert!(compared["common"].as_i64().unwrap() >= 3, "{compared}");
        let other = api.start_run("another [[steps=0 id=other]]").await;
        ended(api, &other).await;
        let compared = api.get(&format!("/runs/{id}/compare?with={other}")).await.body;
        assert_eq!(compared["common"], 0, "{compared}");
        problem(&api.get(&format!("/runs/{id}/compare")).await, &[422]);
        problem(&api.get("/runs/run_01h455vb4pex5vsknk084sn02q/tree").await, &[404]);
    });
}

#[test]
fn given_a_queued_run_without_an_agent_when_it_is_cancelled_then_no_agent_is_named_and_else_the_one_that_was_asked_for()
{
    test(async |api| {
        let task = |agent: Option<&str>| json!({"task": "q [[steps=1 id=unbegun]]", "agent": agent, "session": "unbegun", "approval": "always"});
        let start = async |agent| {
            let reply = api.post("/runs", task(agent)).await;
            assert_eq!(reply.status, 202, "{}", reply.body);
            reply.body["run_id"].as_str().unwrap().to_owned()
        };
        let first = start(Some("react")).await;
        waiting(api, &first, 0).await;
        for agent in [None, Some("critic")] {
            let queued = start(agent).await;
            assert_eq!(run(api, &queued).await["status"], "queued");
            assert_eq!(api.post(&format!("/runs/{queued}/cancel"), json!({})).await.status, 202);
            assert_eq!(ended(api, &queued).await["agent"], json!(agent));
            let listed = wait_for("the run in the list", async || {
                let page = api.get("/runs?session=unbegun&status=cancelled").await.body;
                page["items"].as_array()?.iter().find(|item| item["run_id"] == queued.as_str()).cloned()
            })
            .await;
            assert_eq!(listed["agent"], json!(agent));
        }
        api.post(&format!("/runs/{first}/cancel"), json!({})).await;
    });
}

#[test]
fn given_the_key_of_a_fork_when_its_answer_is_not_kept_then_the_same_fork_is_found_and_another_is_a_conflict() {
    test(async |api| {
        let id = api.start_run("branch [[steps=2 id=fork-key]]").await;
        ended(api, &id).await;
        let key = [("idempotency-key", "fork-key")];
        // The same run by other addresses, under which no answer was kept.
        let [first, again, elsewhere] =
            [id.clone(), id.replacen('r', "%72", 1), id.replacen('u', "%75", 1)].map(|id| format!("/runs/{id}/fork"));
        let body = json!({"at_seq": 3, "model": "ollama/stub"});
        let reply = api.post_with(&first, body.clone(), &key).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        let fork_id = reply.body["run_id"].as_str().unwrap().to_owned();
        ended(api, &fork_id).await;
        let repeated = api.post_with(&again, body, &key).await;
        assert_eq!(
            (repeated.status, &repeated.body["run_id"], &repeated.body["status"]),
            (202, &json!(fork_id), &json!("succeeded")),
            "{}",
            repeated.body
        );
        for other in [json!({"at_seq": 0, "model": "ollama/stub"}), json!({"at_seq": 3, "task": "another"})] {
            let refused = problem(&api.post_with(&elsewhere, other.clone(), &key).await, &[409]);
            assert_eq!(refused["code"], "idempotency_key_reused", "{other}: {refused}");
        }
    });
}

#[test]
fn given_a_session_when_runs_come_at_once_then_one_goes_on_and_the_policy_says_what_happens_to_the_others() {
    test(async |api| {
        let start = async |policy: Option<&str>| {
            let mut body =
                json!({"task": "s [[steps=1 id=session]]", "agent": "react", "approval": "always", "session": "one"});
            if let Some(policy) = policy {
                body["session_policy"] = json!(policy);
            }
            api.post("/runs", body).await
        };
        let id_of = |reply: crate::harness::Reply| {
            assert_eq!(reply.status, 202, "{}", reply.body);
            reply.body["run_id"].as_str().unwrap().to_owned()
        };
        let first = id_of(start(None).await);
        let second = id_of(start(Some("enqueue")).await);
        let step = waiting(api, &first, 0).await["pending_approvals"][0]["step"].clone();
        assert_eq!(run(api, &second).await["status"], "queued");
        wait_for("the session to be known as busy", async || {
            let page = api.get("/runs?session=one").await.body;
            (page["items"].as_array()?.len() == 2).then_some(())
        })
        .await;
        assert_eq!(problem(&start(Some("reject")).await, &[409])["code"], "session_busy");
        decide(api, &first, &step, "approve").await;
        assert_eq!(ended(api, &first).await["status"], "succeeded");
        waiting(api, &second, 0).await;
        let third = id_of(start(Some("interrupt")).await);
        assert_eq!(ended(api, &second).await["status"], "cancelled");
        waiting(api, &third, 0).await;
        api.post(&format!("/runs/{third}/cancel"), json!({})).await;
        problem(&api.post("/runs", json!({"task": "x", "session_policy": "reject"})).await, &[422]);
    });
}
