//! A run that names no agent, against a real broker: its first step says who does it, and why.

mod common;

use std::time::Duration;

use common::{World, request};
use riverrun_agents::supervisor::{Choice, Judge};
use riverrun_schemas::agent::{AgentEvent, RunFinished, RunRequest, StartRun, Step, StepKind, ToolEffect};
use riverrun_schemas::{RunId, now_ms};

async fn run(world: &World, task: &str) -> (Step, RunFinished) {
    let run_id = RunId::new();
    let request = RunRequest { task: task.into(), agent: None, ..request() };
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
