//! Projects: what is asked for answers with what came of it, or with where to look.

use std::path::PathBuf;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::harness::{Api, Reply, problem, test, wait_for};

const ASYNC: [(&str, &str); 1] = [("prefer", "respond-async")];

fn folder(api: &Api, name: &str) -> PathBuf {
    let folder = api.files.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.py"), "def f():\n    return 1\n    return 2\n").unwrap();
    folder
}

async fn imported(api: &Api, name: &str) -> String {
    let reply = api.post("/projects/import", json!({ "source": folder(api, name) })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body["project_id"].as_str().unwrap().to_owned()
}

/// Checks that nobody waited, and gives what is at the place that the answer names once `done` says so.
async fn found(api: &Api, reply: &Reply, done: impl Fn(&Value) -> bool) -> Value {
    assert_eq!(reply.status, 202, "{}", reply.body);
    let place = reply.headers["location"].to_str().unwrap();
    wait_for(place, async || {
        let there = api.get(place).await;
        (there.status == 200 && done(&there.body)).then_some(there.body)
    })
    .await
}

fn has(body: &Value, names: &str) {
    for name in names.split(' ') {
        assert!(body.get(name).is_some(), "{name}: {body}");
    }
}

#[test]
fn given_code_when_it_is_imported_then_the_answer_is_the_project_or_where_it_will_be() {
    test(async |api| {
        let source = folder(api, "waited-import");
        let reply = api.post("/projects/import", json!({ "source": source })).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        has(&reply.body, "project_id files languages size_bytes");
        assert_eq!((&reply.body["status"], &reply.body["files"]), (&json!("imported"), &json!(1)));
        let place = format!("/projects/{}", reply.body["project_id"].as_str().unwrap());
        assert_eq!(api.get(&place).await.body, reply.body);
        for prefer in ["respond-async", "wait=0"] {
            let body = json!({ "source": source });
            let reply = api.post_with("/projects/import", body, &[("prefer", prefer)]).await;
            let project = found(api, &reply, |project| project["status"] == "imported").await;
            assert_eq!(reply.body, json!({ "project_id": project["project_id"] }), "{prefer}");
        }
    });
}

#[test]
fn given_what_is_no_archive_when_it_is_imported_then_the_answer_is_the_failure_that_the_project_shows() {
    test(async |api| {
        let source = api.files.join("no-archive.zip");
        std::fs::write(&source, "this is no archive").unwrap();
        let body = json!({ "source": source });
        let refused = problem(&api.post("/projects/import", body.clone()).await, &[422]);
        let reply = api.post_with("/projects/import", body, &ASYNC).await;
        let project = found(api, &reply, |project| project["status"] == "failed").await;
        assert_eq!((&refused["code"], &refused["detail"]), (&project["error"]["code"], &project["error"]["message"]));
    });
}

#[test]
fn given_a_project_when_it_is_analyzed_then_the_answer_is_the_report_in_the_form_that_is_accepted() {
    test(async |api| {
        let path = format!("/projects/{}/analyze", imported(api, "waited-analysis").await);
        let body = json!({ "review": false });
        let reply = api.post(&path, body.clone()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        has(&reply.body, "summary findings metrics");
        let analysis = reply.body["analysis_id"].as_str().unwrap();
        let place = path.replace("/analyze", &format!("/report?analysis={analysis}"));
        assert_eq!(api.get(&place).await.body, reply.body);
        let sarif = api.post_with(&path, body.clone(), &[("accept", "application/sarif+json")]).await;
        assert_eq!((sarif.status, &sarif.headers["content-type"]), (200, &"application/sarif+json".parse().unwrap()));
        assert_eq!(sarif.body["version"], "2.1.0");
        let reply = api.post_with(&path, body, &ASYNC).await;
        let report = found(api, &reply, |_| true).await;
        assert_eq!(report["analysis_id"], reply.body["analysis_id"]);
    });
}

#[test]
fn given_a_file_when_a_rewrite_is_asked_for_then_the_answer_is_the_proposal_and_a_slow_model_is_not_waited_for_longer()
{
    test(async |api| {
        let path = format!("/projects/{}/improve", imported(api, "waited-proposal").await);
        let place = |proposal: &Value| path.replace("/improve", &format!("/proposals/{}", proposal.as_str().unwrap()));
        let reply = api.post(&path, json!({ "file": "a.py", "instruction": "better" })).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        has(&reply.body, "proposal_id file diff before_sha256 findings_before findings_after");
        assert_ne!(reply.body["status"], "proposing");
        assert_eq!(api.get(&place(&reply.body["proposal_id"])).await.body, reply.body);
        problem(&api.post(&path, json!({ "file": "b.py" })).await, &[404]);

        let slow = json!({ "file": "a.py", "instruction": "[[delay_ms=4000 id=slow-proposal]]" });
        let reply = api.post_with(&path, slow, &[("prefer", "wait=1")]).await;
        let proposal = found(api, &reply, |proposal| proposal["status"] != "proposing").await;
        assert_eq!(proposal["proposal_id"], reply.body["proposal_id"]);
    });
}

#[test]
fn given_a_project_when_it_is_removed_twice_and_asked_for_more_at_once_then_nobody_waits_for_what_never_comes() {
    test(async |api| {
        let path = format!("/projects/{}", imported(api, "removed-meanwhile").await);
        let (analyze, revert) = (format!("{path}/analyze"), format!("{path}/revert"));
        let remove = || api.send(Request::delete(&path).header("host", "localhost").body(Body::empty()).unwrap());
        let (one, other, analysis, change) = tokio::join!(
            remove(),
            remove(),
            api.post_with(&analyze, json!({ "review": false }), &[("prefer", "wait=60")]),
            api.post(&revert, json!({ "file": "a.py", "confirm": true })),
        );
        let mut removed = [one.status, other.status];
        removed.sort_unstable();
        assert_eq!(removed, [200, 404], "{} {}", one.body, other.body);
        // Whichever came first on the log.
        assert!([200, 404].contains(&analysis.status), "{} {}", analysis.status, analysis.body);
        assert!([404, 409].contains(&change.status), "{} {}", change.status, change.body);
    });
}

/// A proposal to rewrite `a.py`.
async fn proposed(api: &Api, project: &str) -> String {
    let body = json!({ "file": "a.py", "instruction": "better" });
    let reply = api.post(&format!("/projects/{project}/improve"), body).await;
    assert_eq!((reply.status, &reply.body["status"]), (200, &json!("proposed")), "{}", reply.body);
    reply.body["proposal_id"].as_str().unwrap().to_owned()
}

#[test]
fn given_a_change_under_a_key_when_the_cache_has_no_answer_then_a_repeat_is_that_change_and_another_body_is_a_conflict()
{
    test(async |api| {
        let id = imported(api, "keyed-changes").await;
        let first = proposed(api, &id).await;
        let named = |proposal: &str| json!({ "file": "a.py", "proposal_id": proposal, "confirm": true });
        let newest = json!({ "file": "a.py", "confirm": true });
        // Answers are kept apart by whether the namespace is said: what comes in the other form finds none, as after a restart.
        let places =
            |what: &str| [format!("/projects/{id}/{what}"), format!("/projects/{id}/{what}?namespace=default")];
        let [apply, apply_unkept] = places("apply");
        let [revert, revert_unkept] = places("revert");
        let (named_key, newest_key) = ([("idempotency-key", "change-1")], [("idempotency-key", "change-2")]);

        let applied = api.post_with(&apply, named(&first), &named_key).await;
        assert_eq!(applied.status, 200, "{}", applied.body);
        let reverted = api.post_with(&revert, newest.clone(), &named_key).await;
        assert_eq!(reverted.status, 200, "{}", reverted.body);
        assert_ne!(reverted.body["after_sha256"], applied.body["after_sha256"]);
        let second = proposed(api, &id).await;
        for path in [&apply, &apply_unkept] {
            for body in [named(&second), newest.clone()] {
                let refused = problem(&api.post_with(path, body, &named_key).await, &[409]);
                assert_eq!(refused["code"], "idempotency_key_reused", "{path}");
            }
        }
        let proposal = api.get(&format!("/projects/{id}/proposals/{second}")).await;
        assert_eq!(proposal.body["status"], "proposed", "nothing was applied: {}", proposal.body);
        for (path, body, first) in
            [(&apply_unkept, named(&first), &applied), (&revert_unkept, newest.clone(), &reverted)]
        {
            let again = api.post_with(path, body, &named_key).await;
            assert_eq!((again.status, &again.body), (200, &first.body), "{path}");
        }

        // Its repeat has no open proposal to find.
        let applied = api.post_with(&apply, newest.clone(), &newest_key).await;
        assert_eq!(applied.status, 200, "{}", applied.body);
        let again = api.post_with(&apply_unkept, newest, &newest_key).await;
        assert_eq!((again.status, &again.body), (200, &applied.body));
    });
}
