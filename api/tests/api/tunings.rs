//! Searches that are tuned to judgements, over HTTP.

use serde_json::{Value, json};

use crate::harness::{Api, problem, test, wait_for};

/// A dozen notes, each of one thing.
const THINGS: [&str; 12] = [
    "winch",
    "glider",
    "tarmac",
    "altimeter",
    "parachute",
    "rudder",
    "thermal",
    "hangar",
    "canopy",
    "wheel",
    "rope",
    "radio",
];

async fn notes(api: &Api, collection: &str) {
    let files: Vec<(String, String)> = THINGS
        .iter()
        .map(|thing| (format!("{thing}.md"), format!("# Note\n\nThe {thing} is looked after daily.")))
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let done = api.ingest(collection, &files).await;
    assert_eq!(done["indexed"], 12, "{done}");
}

/// A question for each thing, whose document is called as `name` does.
fn judgements(name: impl Fn(&str) -> String) -> Value {
    let judged = |thing: &&str| json!({"query": format!("who cares for a {thing}?"), "documents": {name(thing): 2, "nowhere": 1}});
    THINGS.iter().map(judged).collect()
}

async fn ended(api: &Api, body: &Value) -> Value {
    let id = body["tuning_id"].as_str().unwrap().to_owned();
    wait_for("the end of the tuning", async || {
        let view = api.get(&format!("/tunings/{id}")).await.body;
        (view["status"] != "running").then_some(view)
    })
    .await
}

#[test]
fn given_judgements_when_a_collection_is_tuned_then_it_is_told_what_they_do_and_searches_follow() {
    test(async |api| {
        notes(api, "tuned").await;
        let path = "/collections/tuned/tune";
        let headers = [("idempotency-key", "tune")];
        let body = json!({"judgements": judgements(str::to_owned)});
        let reply = api.post_with(path, body.clone(), &headers).await;
        assert!(matches!(reply.status, 200 | 202), "{} {}", reply.status, reply.body);
        let view = ended(api, &reply.body).await;
        assert_eq!(
            (&view["status"], &view["queries"], &view["collection"]),
            (&json!("done"), &json!(12), &json!("tuned"))
        );
        let gains = view["gains"].as_array().unwrap();
        assert_eq!(
            gains.iter().map(|gain| gain["search"].as_str().unwrap()).collect::<Vec<_>>(),
            ["dense", "hybrid", "scores"]
        );
        let gained =
            |gain: &Value| gain["ndcg_at_10_after"].as_f64().unwrap() - gain["ndcg_at_10_before"].as_f64().unwrap();
        assert_eq!(view["tuned"], json!(gains.iter().map(gained).sum::<f64>() > 0.0), "{view}");
        let again = api.post_with(path, body, &headers).await;
        assert_eq!((again.status, &again.body["tuning_id"]), (200, &view["tuning_id"]), "{}", again.body);

        // Documents by their sources, and by their ids, are the same.
        let listed = api.get("/documents?collection=tuned&limit=100").await.body;
        let field = |field: &'static str| {
            let listed = &listed;
            move |thing: &str| {
                let items = listed["items"].as_array().unwrap().iter();
                let stands = |item: &&Value| item["source"].as_str().unwrap().ends_with(&format!("/{thing}.md"));
                items.filter(stands).map(|item| item[field].as_str().unwrap().to_owned()).next().unwrap()
            }
        };
        for by in ["source", "document_id"] {
            let reply = api.post(path, json!({"judgements": judgements(field(by))})).await;
            let other = ended(api, &reply.body).await;
            assert_eq!((&other["queries"], &other["gains"]), (&view["queries"], &view["gains"]), "{by}");
        }

        let question = json!({"query": "who cares for a winch?", "collection": "tuned", "rerank": false});
        let found = api.post("/rag/search", question.clone()).await.body;
        assert_eq!(found["tuned"].as_bool().unwrap_or(false), view["tuned"].as_bool().unwrap(), "{found}");
        let off = ended(api, &api.post(path, json!({"off": true})).await.body).await;
        assert_eq!(
            (&off["status"], &off["tuned"], &off["gains"]),
            (&json!("done"), &json!(false), &json!([])),
            "{off}"
        );
        let found = api.post("/rag/search", question).await.body;
        assert_eq!(found["tuned"], Value::Null, "{found}");
    });
}

#[test]
fn given_what_can_not_be_learned_from_when_a_collection_is_to_be_tuned_then_it_is_refused_with_the_reason() {
    test(async |api| {
        notes(api, "untuned").await;
        let path = "/collections/untuned/tune";
        let all = judgements(str::to_owned);
        let with = |at: usize, judgement: Value| {
            let mut all = all.clone();
            all[at] = judgement;
            json!({ "judgements": all })
        };
        for (status, path, body, word) in [
            (404, "/collections/nowhere/tune", json!({"judgements": all}), "nowhere"),
            (422, path, json!({}), "has 0 questions"),
            (422, path, json!({"judgements": &all.as_array().unwrap()[..9]}), "has 9 questions"),
            (422, path, json!({"judgements": all, "off": true}), "does not go with"),
            (422, path, with(3, all[0].clone()), "is among the questions before it"),
            (422, path, with(3, json!({"query": " ", "documents": {"winch": 1}})), "judgements[3].query"),
            (422, path, with(3, json!({"query": "x", "documents": {"winch": 11}})), "judgements[3].documents"),
            (422, path, with(3, json!({"query": "x", "documents": {"winch": -1}})), "between 0 and 10"),
            (422, path, json!({"judgements": all, "namespace": "a__b"}), "namespace"),
        ] {
            let reply = api.post(path, body).await;
            let said = problem(&reply, &[status]).to_string();
            assert!(said.contains(word), "{said}");
        }
        assert_eq!(api.get("/tunings/nothing").await.status, 404);
        // Nothing that is relevant is in the collection: the request is right, and comes to nothing.
        let reply = api.post(path, json!({"judgements": judgements(|thing| format!("no {thing}"))})).await;
        let view = ended(api, &reply.body).await;
        assert_eq!(
            (&view["status"], &view["error"]["code"]),
            (&json!("failed"), &json!("too_few_judgements")),
            "{view}"
        );
        let found =
            api.post("/rag/search", json!({"query": "winch", "collection": "untuned", "rerank": false})).await.body;
        assert_eq!(found["tuned"], Value::Null, "{found}");
    });
}

#[test]
fn given_a_key_of_a_tuning_when_it_comes_with_other_judgements_then_it_is_a_conflict_and_the_same_ones_are_one_request()
{
    test(async |api| {
        notes(api, "keyed-tuning").await;
        let (path, key) = ("/collections/keyed-tuning/tune", [("idempotency-key", "judged")]);
        let first = api.post_with(path, json!({"judgements": judgements(str::to_owned)}), &key).await;
        assert!(matches!(first.status, 200 | 202), "{} {}", first.status, first.body);
        // Answers are kept by the namespace that a body names: what names it is no repeat to them, and the request itself has to tell.
        let named = |judgements: Value| json!({"judgements": judgements, "namespace": "default"});
        let others = judgements(|thing| format!("{thing} again"));
        for body in [named(others), json!({"off": true, "namespace": "default"})] {
            let refused = api.post_with(path, body, &key).await;
            assert_eq!(problem(&refused, &[409])["code"], "idempotency_key_reused");
        }
        let same = api.post_with(path, named(judgements(str::to_owned)), &key).await;
        assert_eq!(same.body["tuning_id"], first.body["tuning_id"], "{}", same.body);
        assert_eq!(ended(api, &same.body).await["status"], "done");
    });
}
