//! given a request and a model's context, when it is checked before it is sent, then what can't fit is refused with both numbers.

mod common;

use common::TestModels;
use proptest::prelude::*;
use riverrun_knowledge::room::{self, Counted};
use riverrun_models::{ChatRequest, Message, ModelError, ToolSpec};
use serde_json::json;

fn request(text: &str, max_tokens: Option<u32>) -> ChatRequest {
    ChatRequest { messages: vec![Message::user(text)], max_tokens, ..ChatRequest::default() }
}

fn models(context: Option<usize>, counts: bool) -> TestModels {
    TestModels { context, counts, ..TestModels::default() }
}

#[tokio::test]
async fn given_prompts_when_they_are_checked_then_only_those_that_can_not_fit_are_refused() {
    let words = |n: usize| "word ".repeat(n);
    for (context, counts, text, max_tokens, fits) in [
        // Counted: a word is a token here, and an answer must have room for 32.
        (Some(1_000), true, words(968), None, true),
        (Some(1_000), true, words(969), None, false),
        (Some(1_000), true, words(969), Some(31), true),
        (Some(1_000), true, words(969), Some(1_000), false),
        // Estimated: refused is what can't fit by any measure.
        (Some(1_000), false, words(1_000), None, true),
        (Some(1_000), false, words(10_000), None, false),
        (Some(1_000), false, " ".repeat(100_000), None, true),
        // Nobody tells.
        (None, true, words(1_000_000), None, true),
        (None, false, words(1_000_000), None, true),
    ] {
        let told = room::check(&models(context, counts), None, &request(&text, max_tokens)).await;
        match told {
            Ok(()) => assert!(fits, "{context:?} {counts} {} {max_tokens:?}", text.len()),
            Err(ModelError::ContextOverflow { model, tokens, limit }) => {
                assert!(!fits, "{context:?} {counts} {} {max_tokens:?}", text.len());
                assert_eq!((model.as_str(), Some(limit)), ("default", context));
                assert!(tokens + 32 > limit, "{tokens} of {limit}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn given_a_provider_that_counts_or_not_when_tokens_are_counted_then_it_is_told_whether_they_are_estimated() {
    let counted = room::count(&models(None, true), None, &request("one two three", None)).await;
    assert_eq!(counted, Counted { tokens: 3, estimated: false });
    let estimated = room::count(&models(None, false), None, &request("one two three", None)).await;
    assert!(estimated.estimated && estimated.tokens >= 3, "{estimated:?}");
}

#[test]
fn given_tools_and_a_schema_when_the_most_tokens_are_bounded_then_they_count() {
    let plain = request("x", None);
    let tool = ToolSpec { name: "t".into(), description: "d".repeat(500), parameters: json!({"type": "object"}) };
    let with_tool = ChatRequest { tools: vec![tool], ..plain.clone() };
    let schema = json!({"enum": ["v".repeat(500)]});
    let with_schema = ChatRequest { response_schema: Some(schema), ..plain.clone() };
    for larger in [with_tool, with_schema] {
        assert!(room::at_most(&larger) >= room::at_most(&plain) + 500);
    }
}

proptest! {
    #[test]
    fn whatever_is_counted_when_it_is_checked_then_at_most_is_never_less(words in prop::collection::vec("[a-zä ]{1,9}", 0..50)) {
        let request = request(&words.join(" "), None);
        let tokens = request.messages[0].content.split_whitespace().count();
        prop_assert!(tokens <= room::at_most(&request));
    }
}
