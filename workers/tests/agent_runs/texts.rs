//! given a text that was begun before, when it is written again, then its pieces say that they are of a later attempt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use riverrun_log::{Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{RunOutcome, ToolEffect};
use riverrun_schemas::tokens::{Attempt, TokenEvent};
use riverrun_schemas::{Decoded, RunId, Topic};
use serde_json::{Value, json};
use wiremock::matchers::path;
use wiremock::{Mock, Request, ResponseTemplate};

use super::common::World;
use super::lost::left_behind;

fn piece(text: &str) -> String {
    json!({ "model": "scripted", "message": { "role": "assistant", "content": text }, "done": false }).to_string()
}

fn end() -> String {
    json!({ "model": "scripted", "message": { "role": "assistant", "content": "" }, "done": true,
        "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5 })
    .to_string()
}

/// Chooses to answer, breaks off in the middle of its answer, and writes it whole when it is asked again.
fn breaks_off_once() -> impl Fn(&Request) -> ResponseTemplate {
    let broken = AtomicBool::new(false);
    move |request: &Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let lines = if body["format"].is_object() {
            vec![piece(&json!({ "thought": "enough", "tool": "answer", "arguments": {} }).to_string()), end()]
        } else if broken.swap(true, Ordering::SeqCst) {
            vec![piece("it is so"), end()]
        } else {
            vec![piece("it was")]
        };
        ResponseTemplate::new(200).set_body_string(lines.join("\n") + "\n")
    }
}

/// Pieces of text on the log, with what they say of their attempt.
async fn pieces(world: &World, run_id: RunId) -> Vec<(Option<Attempt>, String)> {
    let mut pieces = Vec::new();
    for partition in 0..Topic::Tokens.spec().partitions {
        let partition = TopicPartition::new(Topic::Tokens.name(), partition);
        let range = Tail::read_range(world.log(), partition, StartAt::Beginning).await.unwrap();
        for record in range.collect().await.unwrap() {
            let attempt = record.header(Attempt::HEADER).and_then(Attempt::from_header);
            match Schemas::built_in().decode::<TokenEvent>(&record).unwrap() {
                Decoded::Event(TokenEvent::TokenDelta(delta)) if delta.run_id == run_id => {
                    pieces.push((attempt, delta.text));
                }
                Decoded::Event(TokenEvent::TokenDelta(_)) => {}
                Decoded::UnknownType { record } => panic!("{record}"),
            }
        }
    }
    pieces
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_worker_was_lost_and_the_model_breaks_off_when_the_text_is_written_then_each_beginning_has_its_attempt()
{
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    world.model().reset().await;
    Mock::given(path("/api/chat")).respond_with(breaks_off_once()).mount(world.model()).await;
    let run_id = RunId::new();
    left_behind(&world, run_id, 1, None).await;
    let (_worker, _stop) = world.worker("w");
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("it is so")), "{end:?}");
    let attempt = |text| Some(Attempt { epoch: 2, text });
    let expected = vec![(attempt(1), "it was".to_owned()), (attempt(2), "it is so".to_owned())];
    // The last words of a text may come behind its step.
    let written = async {
        while pieces(&world, run_id).await != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), written).await;
    assert!(in_time.is_ok(), "{:?} are not {expected:?}", pieces(&world, run_id).await);
}
