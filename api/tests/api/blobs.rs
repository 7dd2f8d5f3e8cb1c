//! The blob store over HTTP. One test: a process sweeps once at a time.

use serde_json::{Value, json};

use crate::harness::{problem, test};

fn count(sum: &Value) -> u64 {
    sum["blobs"].as_u64().unwrap()
}

#[test]
fn given_a_store_that_is_in_use_when_it_is_listed_checked_and_swept_then_the_counts_agree_and_nothing_that_is_named_goes()
 {
    test(async |api| {
        let text = "Nobody sweeps what is read in just now.";
        api.ingest("swept", &[("a.md", text)]).await;
        let listed = api.get("/blobs?limit=1000").await;
        assert_eq!(listed.status, 200, "{}", listed.body);
        assert!(count(&listed.body["kept"]) > 0 && !listed.body["items"].as_array().unwrap().is_empty());
        let sizes: Vec<u64> =
            listed.body["items"].as_array().unwrap().iter().map(|blob| blob["size_bytes"].as_u64().unwrap()).collect();
        assert!(sizes.is_sorted_by(|a, b| a >= b), "the largest first: {sizes:?}");
        assert_eq!(api.get("/blobs?limit=1").await.body["items"].as_array().unwrap().len(), 1);

        let checked = api.get("/blobs/check").await;
        assert_eq!(checked.status, 200, "{}", checked.body);
        assert_eq!((&checked.body["dry_run"], &checked.body["grace_hours"]), (&json!(true), &json!(24)));
        assert!(count(&checked.body["named"]) > 0 && checked.body["records"].as_u64().unwrap() > 0);
        let swept = api.post("/blobs/sweep", json!({"grace_hours": 1})).await;
        assert_eq!(swept.status, 200, "{}", swept.body);
        for young in ["set_aside", "removed", "brought_back"] {
            assert_eq!(count(&swept.body[young]), 0, "{}", swept.body);
        }
        assert_eq!(swept.body["names"], json!([]));

        for grace in [json!(0), json!(8_761), json!(-1), json!("soon")] {
            problem(&api.post("/blobs/sweep", json!({"grace_hours": grace})).await, &[422]);
            let asked = grace.as_str().map_or_else(|| grace.to_string(), str::to_owned);
            problem(&api.get(&format!("/blobs/check?grace_hours={asked}")).await, &[400, 422]);
        }
        problem(&api.post("/blobs/sweep", json!({"dry_run": true})).await, &[422]);
    });
}
