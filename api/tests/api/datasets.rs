//! Datasets: those that are made of runs, and keys of what is handed in.

use axum::body::Body;
use axum::http::Request;
use riverrun_schemas::RunId;
use serde_json::json;

use crate::harness::{Api, Reply, problem, test, wait_for};

/// A run that has ended, as soon as lists show it.
async fn ended(api: &Api, namespace: &str, id: &str) -> String {
    let body = json!({ "task": format!("learn [[steps=1 id={id}]]"), "agent": "react", "namespace": namespace, "session": id });
    let run = api.post("/agent/run", body).await;
    assert_eq!(run.status, 200, "{}", run.body);
    wait_for("the run in lists", async || {
        let listed = api.get(&format!("/runs?namespace={namespace}&session={id}&status=succeeded")).await.body;
        listed["items"][0]["run_id"].is_string().then_some(())
    })
    .await;
    run.body["run_id"].as_str().unwrap().to_owned()
}

async fn hand_in(api: &Api, name: &str, runs: &[&str]) -> Reply {
    let line = |run: &&str| format!("{}\n", json!({ "prompt": run, "completion": "b", "run": run }));
    let lines: String = runs.iter().map(line).collect();
    let part =
        |head: &str, text: &str| format!("--XX\r\ncontent-disposition: form-data; name={head}\r\n\r\n{text}\r\n");
    let parts = [
        part("\"name\"", name),
        part("\"from_runs\"", "agent=react"),
        part("\"file\"; filename=\"runs.jsonl\"", &lines),
    ];
    let request = Request::post("/finetune/datasets").header("host", "localhost");
    let request = request.header("content-type", "multipart/form-data; boundary=XX");
    api.send(request.body(Body::from(format!("{}--XX--\r\n", parts.concat()))).unwrap()).await
}

#[test]
fn given_runs_of_another_namespace_when_a_dataset_is_made_of_them_then_it_is_refused_as_for_runs_that_never_were() {
    test(async |api| {
        let own = ended(api, "default", "learn-own").await;
        let foreign = ended(api, "team", "learn-foreign").await;
        let none = RunId::new().to_string();
        let made = hand_in(api, "of-own-runs", &[&own]).await;
        assert_eq!((made.status, &made.body["runs"]["run_ids"]), (201, &json!([own])), "{}", made.body);
        for other in [foreign, none] {
            let refused = hand_in(api, "of-other-runs", &[&own, &other]).await;
            assert_eq!((refused.status, &refused.body["code"]), (422, &json!("invalid_request")), "{}", refused.body);
            let expected = json!([{ "field": "run", "reason": format!("{other} is no run of the namespace default") }]);
            assert_eq!(refused.body["errors"], expected);
            assert!(refused.body["hint"].is_string(), "{}", refused.body);
        }
        assert_eq!(api.get("/finetune/datasets/of-other-runs").await.status, 404);
    });
}

const NAME: &str = "name=\"name\"";
const FILE: &str = "name=\"file\"; filename=\"a.jsonl\"";

/// Hands in a form with these parts under a key.
async fn keyed(api: &Api, key: &str, parts: [(&str, &str); 2]) -> Reply {
    let part = |(head, text): (&str, &str)| format!("--XX\r\ncontent-disposition: form-data; {head}\r\n\r\n{text}\r\n");
    let body: String = parts.into_iter().map(part).collect();
    let request = Request::post("/finetune/datasets").header("host", "localhost").header("idempotency-key", key);
    let request = request.header("content-type", "multipart/form-data; boundary=XX");
    api.send(request.body(Body::from(format!("{body}--XX--\r\n"))).unwrap()).await
}

#[test]
fn given_a_dataset_under_a_key_when_the_form_comes_again_then_it_is_the_first_and_another_content_is_a_conflict() {
    test(async |api| {
        let lines = |completion: &str| format!("{}\n", json!({ "prompt": "a", "completion": completion }));
        let (file, other) = (lines("first"), lines("other"));
        let first = keyed(api, "dataset-1", [(NAME, "keyed-twice"), (FILE, file.as_str())]).await;
        assert_eq!(first.status, 201, "{}", first.body);
        // What a client lays out otherwise is the same dataset.
        let turned = [(FILE, file.as_str()), (NAME, "keyed-twice")];
        let again = keyed(api, "dataset-1", turned).await;
        assert_eq!((again.status, &again.body), (201, &first.body));
        for parts in
            [[(NAME, "keyed-twice"), (FILE, other.as_str())], [(NAME, "keyed-otherwise"), (FILE, file.as_str())]]
        {
            let refused = problem(&keyed(api, "dataset-1", parts).await, &[409]);
            assert_eq!(refused["code"], "idempotency_key_reused");
        }
        assert_eq!(api.get("/finetune/datasets/keyed-otherwise").await.status, 404);
        assert_eq!(api.get("/finetune/datasets/keyed-twice").await.body, first.body);
        // A key that nobody remembers finds the dataset that it was used for, where that is the newest of its name.
        let unknown = keyed(api, "dataset-2", turned).await;
        assert_eq!((unknown.status, &unknown.body), (201, &first.body));
        let newer = keyed(api, "dataset-3", [(NAME, "keyed-twice"), (FILE, other.as_str())]).await;
        assert_eq!(newer.status, 201, "{}", newer.body);
        let again = keyed(api, "dataset-1", turned).await;
        assert_eq!((again.status, &again.body), (201, &first.body), "it stays the first answer");
        assert_eq!(api.get("/finetune/datasets/keyed-twice").await.body, newer.body);
    });
}
