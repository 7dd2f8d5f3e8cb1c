//! given a run that waits, forks, or shares a session, when words come to it, then this becomes of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use riverrun_log::{Producer, partition_of};
use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, CancelRun, DecideApproval, Decision, ForkRun, ForkedFrom, ResumeRun, RunAdvanced,
    RunOutcome, RunRequest, SessionPolicy, StartRun, Step, StepKind, ToolEffect, ToolUse,
};
use riverrun_schemas::{RunId, Topic, now_ms};

use super::common::{World, ends, request};
use super::{WHOLE, doomed, kinds};

const AT_ONCE: Duration = Duration::ZERO;

fn steps(events: &[AgentEvent], run_id: RunId) -> Vec<Step> {
    events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::RunAdvanced(advance) if advance.run_id == run_id => Some(advance.steps.clone()),
            _ => None,
        })
        .flatten()
        .collect()
}

fn question(events: &[AgentEvent], run_id: RunId) -> Option<Step> {
    steps(events, run_id).into_iter().find(|step| step.kind == StepKind::Approval)
}

fn claims(events: &[AgentEvent], run_id: RunId) -> usize {
    events.iter().filter(|event| matches!(event, AgentEvent::RunClaimed(c) if c.run_id == run_id)).count()
}

async fn start_with(world: &World, request: RunRequest) -> RunId {
    let run_id = RunId::new();
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
    run_id
}

/// Waits for the run's question; gives its step.
async fn asked(world: &World, run_id: RunId) -> Step {
    let events = world.until("the run asks", |events| question(events, run_id).is_some()).await;
    question(&events, run_id).unwrap()
}

async fn answer(world: &World, run_id: RunId, step: i64, decision: Decision) {
    let note = Some("says the test".to_owned());
    world.command(DecideApproval { run_id, step, decision, note, at: now_ms() }.into()).await;
}

fn wants_approval() -> RunRequest {
    RunRequest { approval: ApprovalPolicy::External, ..request() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_for_approval_across_a_crash_and_makes_the_call_once() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let first = doomed(&world, "w");
    let run_id = start_with(&world, wants_approval()).await;
    let step = asked(&world, run_id).await;
    assert_eq!((step.seq, world.calls.load(Ordering::SeqCst)), (3, 0), "nothing is called before the answer");
    first.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    // Another run shows that the new worker has its partitions, and did not drive the one that waits.
    let other = start_with(&world, request()).await;
    world.finished(other).await;
    assert_eq!(claims(&world.events().await, run_id), 1);
    let calls_before = world.calls.load(Ordering::SeqCst);
    answer(&world, run_id, step.seq, Decision::Approve).await;
    answer(&world, run_id, step.seq, Decision::Deny).await;
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("it was counted")));
    assert_eq!(world.calls.load(Ordering::SeqCst) - calls_before, 1);
    let events = world.events().await;
    assert_eq!(ends(&events, run_id), 1);
    assert_eq!(steps(&events, run_id).iter().map(|step| step.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}

/// The intent of step `seq`, and the question about it.
fn intent_and_question(seq: i64, question: i64) -> [Step; 2] {
    let step = |seq, kind| Step {
        seq,
        kind,
        agent: "react".into(),
        text: None,
        tool: Some(ToolUse {
            call_id: format!("call_{question}"),
            name: "count".into(),
            arguments_json: "{}".into(),
            effect: ToolEffect::External,
            result_json: None,
            result_blob: None,
            error: None,
            duration_ms: None,
        }),
        usage: None,
        at: now_ms(),
    };
    [step(seq, StepKind::ToolCall), step(question, StepKind::Approval)]
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_with_two_questions_when_its_worker_was_lost_then_each_is_answered_by_its_own_number() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let run_id = RunId::new();
    super::lost::left_behind(&world, run_id, 1, None).await;
    let ([first, first_asks], [second, second_asks]) = (intent_and_question(1, 3), intent_and_question(2, 4));
    let asked = RunAdvanced { run_id, epoch: 1, steps: vec![first, second, first_asks, second_asks] };
    let partition = partition_of(run_id.to_string().as_bytes(), Topic::AgentEvents.spec().partitions);
    let producer = Producer::new(world.log()).unwrap();
    producer.send_to_partition(&AgentEvent::from(asked), partition, "test", None).await.unwrap();

    // The later one first, and by another worker than the one that takes the other answer.
    let first_worker = doomed(&world, "w");
    answer(&world, run_id, 4, Decision::Approve).await;
    let result_of = |events: &[AgentEvent], call_id: &str| {
        let of_it = |step: &Step| step.tool.as_ref().is_some_and(|tool| tool.call_id == call_id);
        steps(events, run_id).into_iter().find(|step| step.kind == StepKind::ToolResult && of_it(step))
    };
    let events = world.until("the approved call is made", |events| result_of(events, "call_4").is_some()).await;
    assert!(result_of(&events, "call_4").unwrap().tool.unwrap().result_json.is_some());
    assert!(result_of(&events, "call_3").is_none(), "the other one still waits");
    assert_eq!((world.calls.load(Ordering::SeqCst), ends(&events, run_id)), (1, 0));
    first_worker.shutdown_background();

    let (_worker, _stop) = world.worker("w");
    answer(&world, run_id, 3, Decision::Deny).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    let events = world.events().await;
    assert!(result_of(&events, "call_3").unwrap().tool.unwrap().error.unwrap().contains("says the test"));
    assert_eq!((world.calls.load(Ordering::SeqCst), ends(&events, run_id)), (1, 1));
    let seqs: Vec<i64> = steps(&events, run_id).iter().map(|step| step.seq).collect();
    assert!(seqs.iter().copied().eq((1..).take(seqs.len())), "{seqs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_waits_for_approval_when_lag_is_asked_then_there_is_none_also_after_a_crash() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let first = doomed(&world, "w");
    let run_id = start_with(&world, wants_approval()).await;
    asked(&world, run_id).await;
    world.without_lag().await;
    first.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    let other = start_with(&world, request()).await;
    world.finished(other).await;
    world.without_lag().await;
    let events = world.events().await;
    assert!(question(&events, run_id).is_some() && ends(&events, run_id) == 0, "it still waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_is_not_made_and_the_run_goes_on() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = start_with(&world, wants_approval()).await;
    let step = asked(&world, run_id).await;
    answer(&world, run_id, step.seq, Decision::Deny).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    assert_eq!(world.calls.load(Ordering::SeqCst), 0);
    let events = world.events().await;
    let result = steps(&events, run_id).into_iter().find(|step| step.kind == StepKind::ToolResult).unwrap();
    assert!(result.tool.unwrap().error.unwrap().contains("says the test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_run_can_be_looked_at_again_and_cancelled() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = start_with(&world, wants_approval()).await;
    asked(&world, run_id).await;
    world.command(ResumeRun { run_id, at: now_ms() }.into()).await;
    world.until("it looks again", |events| claims(events, run_id) == 2).await;
    world.command(CancelRun { run_id, reason: None, at: now_ms() }.into()).await;
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.stop_reason.as_str()), (RunOutcome::Cancelled, "cancelled"));
    assert_eq!(world.calls.load(Ordering::SeqCst), 0);
}

async fn crashed_in_an_outside_call() -> (World, RunId, Step, impl Sized) {
    let world = World::new(ToolEffect::External, AT_ONCE, Duration::from_secs(3)).await;
    let first = doomed(&world, "w");
    let run_id = start_with(&world, request()).await;
    world.called().await;
    first.shutdown_background();
    let worker = world.worker("w");
    let step = asked(&world, run_id).await;
    assert!(step.tool.as_ref().unwrap().error.is_some(), "it says that the outcome is not known");
    (world, run_id, step, worker)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_during_a_tool_with_an_outside_effect_a_person_decides_to_call_again() {
    let (world, run_id, step, _worker) = crashed_in_an_outside_call().await;
    assert_eq!(world.calls.load(Ordering::SeqCst), 1, "not repeated on a guess");
    answer(&world, run_id, step.seq, Decision::Approve).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    assert_eq!(world.calls.load(Ordering::SeqCst), 2, "by a person's word");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_during_a_tool_with_an_outside_effect_a_person_decides_to_go_on_without() {
    let (world, run_id, step, _worker) = crashed_in_an_outside_call().await;
    answer(&world, run_id, step.seq, Decision::Deny).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    assert_eq!(world.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_outside_call_without_a_result_in_its_time_when_its_worker_lives_then_a_person_decides_all_the_same() {
    let world = World::new(ToolEffect::External, AT_ONCE, Duration::from_secs(600)).await;
    let world = world.with_tool_time(Duration::from_millis(50));
    let (_worker, _stop) = world.worker("w");
    let run_id = start_with(&world, request()).await;
    let first = asked(&world, run_id).await;
    let (reason, tool) = (first.text.unwrap(), first.tool.unwrap());
    assert!(reason.contains("no result within 50 ms") && tool.error.is_some(), "{reason}");
    assert_eq!((first.seq, world.calls.load(Ordering::SeqCst)), (3, 1));
    answer(&world, run_id, first.seq, Decision::Approve).await;
    let second = |events: &[AgentEvent]| {
        steps(events, run_id).into_iter().filter(|step| step.kind == StepKind::Approval).nth(1).map(|step| step.seq)
    };
    let events = world.until("the second call is asked about, too", |events| second(events).is_some()).await;
    assert_eq!((second(&events), world.calls.load(Ordering::SeqCst)), (Some(4), 2), "again by a person's word");
    answer(&world, run_id, 4, Decision::Deny).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    let events = world.events().await;
    let result = steps(&events, run_id).into_iter().find(|step| step.kind == StepKind::ToolResult).unwrap();
    assert!(result.tool.unwrap().error.unwrap().contains("may have taken effect"));
    assert_eq!((world.calls.load(Ordering::SeqCst), ends(&events, run_id)), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_begins_with_the_steps_of_its_source_and_goes_on_by_itself() {
    let world = World::new(ToolEffect::None, AT_ONCE, AT_ONCE).await;
    let (_worker, _stop) = world.worker("w");
    let source = start_with(&world, request()).await;
    world.finished(source).await;
    let shared: Vec<Step> = steps(&world.events().await, source).into_iter().take(3).collect();
    let run_id = RunId::new();
    let fork = ForkRun {
        run_id,
        forked_from: ForkedFrom { run_id: source, at_seq: 3 },
        request: RunRequest { task: "count otherwise".into(), ..request() },
        steps: shared.clone(),
        steps_blob: None,
        at: now_ms(),
    };
    world.command(fork.clone().into()).await;
    world.command(fork.clone().into()).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    let events = world.events().await;
    assert_eq!((kinds(&events, run_id), ends(&events, run_id)), (WHOLE.to_vec(), 1));
    assert_eq!(steps(&events, run_id)[..3], shared[..]);
    assert_eq!(world.calls.load(Ordering::SeqCst), 1, "the shared call is not made again");

    let broken = ForkRun { run_id: RunId::new(), steps: shared[1..].to_vec(), ..fork };
    world.command(broken.clone().into()).await;
    let error = world.finished(broken.run_id).await.error.unwrap();
    assert_eq!(error.code, "fork_history_unusable");
    let again = format!("riverrun runs fork {} --at-seq {}", broken.forked_from.run_id, broken.forked_from.at_seq);
    assert!(error.hint.as_ref().is_some_and(|hint| hint.ends_with(&again)), "{error:?}");
}

/// Ids that lie in one partition, as the API draws them for a session.
fn ids_of_one_partition(count: usize) -> Vec<RunId> {
    let place = |run: &RunId| partition_of(run.to_string().as_bytes(), Topic::AgentCommands.spec().partitions);
    let first = RunId::new();
    let others = std::iter::repeat_with(RunId::new).filter(|run| place(run) == place(&first));
    std::iter::once(first).chain(others).take(count).collect()
}

async fn in_session(world: &World, run_id: RunId, session_policy: SessionPolicy) {
    let request = RunRequest { session: Some("s".into()), session_policy, ..wants_approval() };
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_a_session_go_on_one_after_the_other_also_after_a_crash() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let first = doomed(&world, "w");
    let ids = ids_of_one_partition(3);
    for run_id in &ids {
        in_session(&world, *run_id, SessionPolicy::Enqueue).await;
    }
    let step = asked(&world, ids[0]).await;
    first.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    world.command(CancelRun { run_id: ids[2], reason: None, at: now_ms() }.into()).await;
    assert_eq!(world.finished(ids[2]).await.status, RunOutcome::Cancelled, "a queued run ends without its turn");
    assert_eq!(claims(&world.events().await, ids[1]), 0);
    answer(&world, ids[0], step.seq, Decision::Approve).await;
    world.finished(ids[0]).await;
    asked(&world, ids[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_wants_no_other_in_its_session_is_refused_and_one_that_interrupts_takes_over() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let (_worker, _stop) = world.worker("w");
    let ids = ids_of_one_partition(3);
    in_session(&world, ids[0], SessionPolicy::Reject).await;
    asked(&world, ids[0]).await;
    in_session(&world, ids[1], SessionPolicy::Reject).await;
    let end = world.finished(ids[1]).await;
    assert_eq!((end.stop_reason.as_str(), end.error.unwrap().code.as_str()), ("session_busy", "session_busy"));
    in_session(&world, ids[2], SessionPolicy::Interrupt).await;
    assert_eq!(world.finished(ids[0]).await.status, RunOutcome::Cancelled);
    asked(&world, ids[2]).await;
}
