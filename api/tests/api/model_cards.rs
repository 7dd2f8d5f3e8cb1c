//! A model is measured: its card is an event, and found again.

use serde_json::{Value, json};

use crate::harness::{problem, test};

#[test]
fn given_a_model_when_it_is_measured_then_its_card_is_found_by_model_and_provider_and_the_last_one_counts() {
    test(async |api| {
        assert_eq!(api.get("/models/cards?model=probed").await.body, json!({ "items": [] }));
        let first = api.post("/models/probe", json!({ "model": "ollama/probed" })).await;
        assert_eq!(first.status, 200, "{}", first.body);
        let card = &first.body;
        assert_eq!((&card["provider"], &card["model"]), (&json!("ollama"), &json!("probed")));
        assert_eq!((&card["context_tokens"], &card["usable_context_tokens"]), (&json!(8192), &Value::Null));
        assert_eq!(
            (&card["questions"], &card["valid_json"], &card["valid_tool_calls"]),
            (&json!(4), &json!(0), &json!(0))
        );
        assert!(card["prompt_tokens_per_s"].as_f64().unwrap() > 0.0 && !card["machine"].as_str().unwrap().is_empty());
        assert_eq!(api.get("/models/cards?model=probed").await.body, json!({ "items": [card] }));

        let again = api.post("/models/probe", json!({ "model": "probed", "provider": "ollama" })).await;
        assert_eq!(again.status, 200, "{}", again.body);
        let found = api.get("/models/cards?provider=ollama&model=probed").await;
        assert_eq!(found.body, json!({ "items": [again.body] }));
        assert_eq!(api.get("/models/cards?provider=local&model=probed").await.body, json!({ "items": [] }));
        let all = api.get("/models/cards").await.body;
        assert!(all["items"].as_array().unwrap().contains(&again.body), "{all}");
        // What it answers by is known from now on.
        let known = api.stack.state().core().models().known(None, "ollama/probed").unwrap();
        assert!(!known.answers_json);
    });
}

#[test]
fn given_what_can_not_be_measured_when_it_is_asked_for_then_it_is_refused_and_nothing_is_kept() {
    test(async |api| {
        for body in
            [json!({}), json!({ "model": "" }), json!({ "model": "x", "provider": "nobody" }), json!({ "model": 1 })]
        {
            let refused = api.post("/models/probe", body.clone()).await;
            assert_eq!(refused.status, 422, "{body}: {}", refused.body);
        }
        let missing = api.post("/models/probe", json!({ "model": "local/nobody-has-this" })).await;
        assert_eq!(problem(&missing, &[503])["code"], "model_missing");
        assert_eq!(api.get("/models/cards?model=nobody-has-this").await.body, json!({ "items": [] }));
        assert_eq!(api.get("/models/cards?nothing=1").await.status, 422);
    });
}
