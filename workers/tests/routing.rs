//! A run that names no agent, against a real broker: its first step says who does it, and why.

mod common;

use std::time::Duration;

use common::{World, request};
use riverrun_agents::supervisor::{Choice, Judge};
use riverrun_models::Known;
use riverrun_schemas::agent::{AgentEvent, RunFinished, RunRequest, StartRun, Step, StepKind, ToolEffect};
use riverrun_schemas::{RunId, now_ms};
use serde_json::{Value, json};
use wiremock::matchers::path;
use wiremock::{Mock, Request, ResponseTemplate};

async fn run(world: &World, task: &str) -> (Step, RunFinished) {
    run_of(world, request(), task).await
}

async fn run_of(world: &World, request: RunRequest, task: &str) -> (Step, RunFinished) {
    let run_id = RunId::new();
    let request = RunRequest { task: task.into(), agent: None, ..request };
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
    let end = world.finished(run_id).await;
    let first = world.events().await.into_iter().find_map(|event| match event {
        AgentEvent::RunAdvanced(event) if event.run_id == run_id => event.steps.into_iter().next(),
        _ => None,
    });
    (first.unwrap(), end)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_step_is_the_choice_with_its_scores_and_the_chosen_agent_does_the_task() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");

    let (first, end) = run(&world, "Write a letter").await;
    let choice = Choice::read(first.text.as_deref().unwrap()).unwrap();
    assert_eq!((first.seq, first.kind, choice.by), (1, StepKind::Route, Judge::Both));
    assert_eq!((choice.agent.as_str(), end.agent.as_str()), ("critic", "critic"));
    assert!(choice.scores.iter().all(|score| score.similarity.is_some()), "{choice:?}");
    assert_eq!(first.usage, None, "nobody was asked");

    let (again, _) = run(&world, "Write a letter").await;
    assert_eq!(again.text, first.text, "the same task, the same choice");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_rules_and_similarity_disagree_the_model_is_asked_once() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    let (first, end) = run(&world, "Solve the riddle of the letterbox").await;
    let choice = Choice::read(first.text.as_deref().unwrap()).unwrap();
    assert_eq!(
        (choice.by, choice.agent.as_str(), end.agent.as_str()),
        (Judge::Model, "critic", "critic"),
        "{choice:?}"
    );
    assert!(choice.reason.contains("reflexion (riddle)"), "{}", choice.reason);
    assert!(first.usage.is_some(), "the call is counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_models_card_says_that_it_answers_no_json_it_is_not_asked_and_the_signs_decide() {
    let card = Known { context_tokens: None, answers_json: false };
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await.with_card(card);
    let (_worker, _stop) = world.worker("w");
    let (first, _) = run(&world, "Solve the riddle of the letterbox").await;
    let choice = Choice::read(first.text.as_deref().unwrap()).unwrap();
    assert_eq!((choice.by, choice.agent.as_str()), (Judge::Rules, "reflexion"));
    assert!(choice.reason.contains("by its card"), "{}", choice.reason);
    assert!(first.usage.is_none(), "{first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_task_is_longer_than_what_the_model_is_shown_the_choice_says_by_how_much_of_it_it_was_made() {
    let task = format!("Solve the riddle of the letterbox. {}", "It is of tin and red and old. ".repeat(300));
    let task = task.trim_end();
    let mut shown_before = task.len();
    for context in [8_192, 1_024, 512] {
        let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await.with_context(context);
        let (_worker, _stop) = world.worker("w");
        let (first, _) = run(&world, task).await;
        let choice = Choice::read(first.text.as_deref().unwrap()).unwrap();
        assert_eq!((first.seq, first.kind, choice.by), (1, StepKind::Route, Judge::Model), "{context}: {choice:?}");
        let shown = choice.shown_characters.unwrap();
        assert!(shown < shown_before, "{context}: the smaller the context, the less is shown: {shown}");
        let said = format!("by the first {shown} of {} characters", task.len());
        assert!(choice.reason.contains(&said), "{context}: {}", choice.reason);
        shown_before = shown;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_not_even_a_part_of_the_task_fits_the_model_is_not_asked_and_the_signs_decide() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let models = json!({ "data": [{ "id": "served", "max_context_length": 100 }] });
    let models = ResponseTemplate::new(200).set_body_json(models);
    Mock::given(path("/v1/models")).respond_with(models).mount(world.model()).await;
    // Four bytes a token.
    let tokenizer = |request: &Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        ResponseTemplate::new(200).set_body_json(json!({ "count": body["content"].as_str().unwrap().len() / 4 }))
    };
    Mock::given(path("/tokenize")).respond_with(tokenizer).mount(world.model()).await;
    let (_worker, _stop) = world.worker("w");
    let served = RunRequest { provider: Some("llamacpp".into()), model: Some("served".into()), ..request() };
    let (first, end) = run_of(&world, served, "Solve the riddle of the letterbox").await;
    let choice = Choice::read(first.text.as_deref().unwrap()).unwrap();
    assert_eq!((first.kind, choice.agent.as_str(), choice.shown_characters), (StepKind::Route, "reflexion", None));
    assert!(choice.reason.contains("the model can't be asked (the prompt has"), "{}", choice.reason);
    assert!(first.usage.is_none(), "{first:?}");
    assert_eq!(end.error.unwrap().code, "context_overflow", "the run meets the trouble at its next call");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_model_in_trouble_for_a_moment_when_it_is_to_choose_then_it_is_asked_again_and_the_choice_is_as_ever() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let broken = ResponseTemplate::new(500).set_body_json(json!({ "error": "for a moment" }));
    let broken = Mock::given(path("/api/chat")).respond_with(broken).up_to_n_times(1).with_priority(1);
    broken.mount(world.model()).await;
    let (_worker, _stop) = world.worker("w");
    let (first, _) = run(&world, "Solve the riddle of the letterbox").await;
    let (again, _) = run(&world, "Solve the riddle of the letterbox").await;
    let choice = Choice::read(first.text.as_deref().unwrap()).unwrap();
    assert_eq!((choice.by, choice.agent.as_str()), (Judge::Model, "critic"), "{choice:?}");
    assert_eq!(again.text, first.text, "the same task, the same choice");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_runtime_that_refuses_schemas_when_its_model_is_to_choose_then_it_is_asked_without_one() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let model = |request: &Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        if body["format"].is_object() {
            return ResponseTemplate::new(400).set_body_json(json!({ "error": "the format is not supported" }));
        }
        let chooses = body["messages"][0]["content"].as_str().unwrap().starts_with("You choose the agent");
        let text = if chooses { "{\"reason\": \"a letter\", \"agent\": \"critic\"}" } else { "it is so" };
        let piece = json!({ "model": "scripted", "message": { "role": "assistant", "content": text }, "done": false });
        let end = json!({ "model": "scripted", "message": { "role": "assistant", "content": "" }, "done": true,
            "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5 });
        ResponseTemplate::new(200).set_body_string(format!("{piece}\n{end}\n"))
    };
    Mock::given(path("/api/chat")).respond_with(model).with_priority(1).mount(world.model()).await;
    let (_worker, _stop) = world.worker("w");
    let (first, end) = run(&world, "Solve the riddle of the letterbox").await;
    let choice = Choice::read(first.text.as_deref().unwrap()).unwrap();
    assert_eq!(
        (choice.by, choice.agent.as_str(), end.agent.as_str()),
        (Judge::Model, "critic", "critic"),
        "{choice:?}"
    );
}
