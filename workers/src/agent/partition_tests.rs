use std::cell::Cell;

use proptest::prelude::*;
use riverrun_agents::state::Reading;
use riverrun_schemas::agent::{
    ApprovalPolicy, Decision, ForkedFrom, RunAccepted, RunAdvanced, RunApprovalDecided, RunCancelRequested, RunClaimed,
    RunFinished, RunOutcome, RunRequest, RunResumed, Step, StepKind, ToolEffect, ToolUse,
};
use riverrun_schemas::memory::{TurnRole, run_turn_id};
use riverrun_schemas::{BlobRef, EventSet};

use super::*;

#[path = "partition_tests/in_time.rs"]
mod in_time;
#[path = "partition_tests/waiting.rs"]
mod waiting;

fn run(name: &str) -> RunId {
    RunId::derive(&[name])
}

fn accepted(name: &str) -> AgentEvent {
    AgentEvent::RunAccepted(of_session(name, None))
}

fn of_session(name: &str, session: Option<&str>) -> RunAccepted {
    let request = RunRequest {
        task: name.into(),
        session: session.map(str::to_owned),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    };
    RunAccepted { run_id: run(name), request, forked_from: None, at: 0 }
}

fn claimed(name: &str, epoch: i64) -> AgentEvent {
    RunClaimed { run_id: run(name), epoch, worker: format!("w{epoch}"), at: 0 }.into()
}

fn finished(name: &str, epoch: i64) -> AgentEvent {
    RunFinished {
        run_id: run(name),
        epoch,
        status: RunOutcome::Succeeded,
        agent: "react".into(),
        answer: None,
        citations: vec![],
        usage: Default::default(),
        stop_reason: "answered".into(),
        error: None,
        at: 0,
    }
    .into()
}

/// Folds events from offset 10 on, as the loop does.
fn given(events: Vec<AgentEvent>) -> Partition {
    let mut partition = Partition::new(3);
    for (event, offset) in events.into_iter().zip(10..) {
        partition.next_event = offset + 1;
        partition.fold(offset, event);
    }
    partition
}

fn noted(partition: &Partition) -> (i64, i64) {
    let note = partition.note(0);
    (note.offset, note.metadata.unwrap().parse().unwrap())
}

fn step(seq: i64, kind: StepKind) -> Step {
    let tool = ToolUse {
        call_id: "c".into(),
        name: "pay".into(),
        arguments_json: "{}".into(),
        effect: ToolEffect::External,
        result_json: None,
        result_blob: None,
        error: None,
        duration_ms: None,
    };
    let tool = (kind != StepKind::Thought).then_some(tool);
    Step { seq, kind, agent: "react".into(), text: None, tool, usage: None, at: 0 }
}

fn advanced(name: &str, epoch: i64, kinds: &[StepKind], first: i64) -> AgentEvent {
    let steps = kinds.iter().zip(first..).map(|(kind, seq)| step(seq, *kind)).collect();
    RunAdvanced { run_id: run(name), epoch, steps }.into()
}

/// The run asks a person in its step 2.
fn asks(name: &str) -> AgentEvent {
    advanced(name, 1, &[StepKind::ToolCall, StepKind::Approval], 1)
}

fn answered(name: &str) -> AgentEvent {
    RunApprovalDecided { run_id: run(name), step: 2, decision: Decision::Approve, note: None, at: 0 }.into()
}

fn cancelled(name: &str) -> AgentEvent {
    RunCancelRequested { run_id: run(name), reason: None, at: 0 }.into()
}

fn ready(partition: &mut Partition) -> Vec<RunId> {
    partition.take_ready().into_iter().map(|run| run.state.run_id).collect()
}

/// A live partition in which these events came, and what became ready by the last of them.
fn live(events: Vec<AgentEvent>) -> (Partition, Vec<RunId>) {
    let mut partition = given(vec![]);
    partition.go_live();
    let mut last = Vec::new();
    for (event, offset) in events.into_iter().zip(10..) {
        partition.next_event = offset + 1;
        partition.fold(offset, event);
        last = ready(&mut partition);
    }
    (partition, last)
}

#[test]
fn only_runs_without_an_end_are_driven_oldest_first() {
    let mut partition = given(vec![accepted("a"), accepted("b"), claimed("a", 1), accepted("c"), finished("a", 1)]);
    assert!(ready(&mut partition).is_empty(), "not before the past is folded");
    assert_eq!(partition.go_live(), 2);
    assert_eq!(ready(&mut partition), [run("b"), run("c")]);
    assert!(ready(&mut partition).is_empty(), "each is given out once");
}

#[test]
fn a_run_that_waits_for_a_person_is_not_driven_after_a_restart_until_the_answer_comes() {
    for (more, expected) in [
        (vec![], vec![]),
        (vec![answered("a")], vec![run("a")]),
        (vec![cancelled("a")], vec![run("a")]),
        (vec![claimed("a", 2)], vec![]),
    ] {
        let mut partition = given([vec![accepted("a"), claimed("a", 1), asks("a")], more.clone()].concat());
        assert_eq!(partition.go_live(), 1);
        assert_eq!(ready(&mut partition), expected, "{more:?} before the restart");

        let mut partition = given(vec![accepted("a"), claimed("a", 1), asks("a")]);
        partition.go_live();
        for (event, offset) in more.iter().zip(13..) {
            partition.fold(offset, event.clone());
        }
        assert_eq!(ready(&mut partition), expected, "{more:?} after the restart");
    }
}

#[test]
fn a_run_that_a_driver_let_go_of_takes_in_what_came_meanwhile() {
    let mut partition = given(vec![accepted("a"), claimed("a", 1), asks("a")]);
    partition.go_live();
    partition.fold(13, RunResumed { run_id: run("a"), at: 0 }.into());
    let mut looking_again = partition.take_ready();
    let run_again = looking_again.pop().expect("asked to look again");
    partition.rest(run_again);
    assert!(ready(&mut partition).is_empty(), "it looked, and waits on");

    partition.fold(14, RunResumed { run_id: run("a"), at: 1 }.into());
    let driven = partition.take_ready().pop().unwrap();
    partition.fold(15, answered("a"));
    assert!(ready(&mut partition).is_empty(), "a driver has it");
    partition.rest(driven);
    let again = partition.take_ready().pop().expect("the answer came while the driver let go");
    assert_eq!(again.next_offset, 16);
}

#[test]
fn of_the_runs_of_a_session_only_the_oldest_open_one_is_driven() {
    let in_session = |name: &str, session: &str| AgentEvent::from(of_session(name, Some(session)));
    let events = || {
        vec![in_session("a", "s"), in_session("b", "s"), in_session("c", "s"), in_session("x", "other"), accepted("y")]
    };
    let mut partition = given(events());
    partition.go_live();
    assert_eq!(ready(&mut partition), [run("a"), run("x"), run("y")]);
    partition.fold(20, claimed("a", 1));
    partition.fold(21, finished("a", 1));
    assert_eq!(ready(&mut partition), [run("b")]);
    partition.fold(22, cancelled("c"));
    assert_eq!(ready(&mut partition), [run("c")], "a cancelled run needs no turn to end");
    partition.fold(23, finished("c", 0));
    partition.fold(24, finished("b", 0));
    assert!(ready(&mut partition).is_empty());
    let (_, last) = live([events(), vec![finished("a", 0)]].concat());
    assert_eq!(last, [run("b")], "live as well");
}

#[test]
fn given_a_run_that_waited_for_its_session_when_it_is_its_turn_then_it_knows_the_last_turn_of_the_one_before() {
    let in_session = |name: &str| AgentEvent::RunAccepted(of_session(name, Some("s")));
    for (answer, role) in [(None, TurnRole::User), (Some(" "), TurnRole::User), (Some("42"), TurnRole::Assistant)] {
        let (mut partition, _) = live(vec![in_session("a"), accepted("c"), in_session("b"), claimed("a", 1)]);
        let AgentEvent::RunFinished(end) = finished("a", 1) else { panic!("no end") };
        partition.fold(20, RunFinished { answer: answer.map(str::to_owned), ..end }.into());
        let next = partition.take_ready().pop().expect("its turn has come");
        assert_eq!((next.state.run_id, next.behind), (run("b"), Some(run_turn_id(run("a"), role))), "{answer:?}");
    }
    let (mut partition, _) = live(vec![in_session("a")]);
    partition.fold(11, in_session("d"));
    partition.fold(12, cancelled("d"));
    let first = partition.take_ready().pop().expect("whoever is to stop waits for nothing");
    assert_eq!(first.behind, None, "none has ended");
}

#[test]
fn a_fork_is_driven_once_its_copied_steps_are_there() {
    let from = Some(ForkedFrom { run_id: run("source"), at_seq: 3 });
    let fork = || AgentEvent::from(RunAccepted { forked_from: from.clone(), ..of_session("f", None) });
    let first = || advanced("f", 0, &[StepKind::Thought, StepKind::Thought], 1);
    let (partition, last) = live(vec![fork(), first()]);
    assert!(last.is_empty());
    assert_eq!(partition.copied_steps(&run("f")), Some(2), "copying goes on here when its command comes again");
    let (partition, last) = live(vec![fork(), first(), advanced("f", 0, &[StepKind::Thought], 3)]);
    assert_eq!(last, [run("f")]);
    assert_eq!(partition.copied_steps(&run("f")), None);
}

#[test]
fn given_copied_steps_that_are_written_and_not_read_back_then_no_copying_is_cut_short() {
    let fork =
        RunAccepted { forked_from: Some(ForkedFrom { run_id: run("source"), at_seq: 2 }), ..of_session("f", None) };
    let (mut partition, _) = live(vec![]);
    let first = partition.next_event;
    partition.wrote(first, Some(run("f")));
    partition.wrote(first + 1, None);
    for (offset, event) in (first..).zip([fork.into(), advanced("f", 0, &[StepKind::Thought, StepKind::Thought], 1)]) {
        assert!(partition.knows(&run("f")));
        assert_eq!(partition.copied_steps(&run("f")), None, "before {offset}");
        partition.next_event = offset + 1;
        partition.fold(offset, event);
    }
    assert_eq!(partition.copied_steps(&run("f")), None, "nothing is missing");
}

#[test]
fn a_snapshot_moves_the_note_on_and_opens_a_run_whose_beginning_was_not_folded() {
    let blob = BlobRef { sha256: "ab".into(), size_bytes: 1, media_type: "application/json".into() };
    let snapshot = |epoch| RunSnapshotted {
        run_id: run("a"),
        epoch,
        seq: 2,
        accepted_offset: 10,
        next_offset: 13,
        state: blob.clone(),
        at: 0,
    };
    let partition = given(vec![accepted("a"), claimed("a", 1), asks("a"), snapshot(7).into()]);
    assert_eq!(noted(&partition).1, 10, "a snapshot of a claim that does not count");
    let partition = given(vec![accepted("a"), claimed("a", 1), asks("a"), snapshot(1).into()]);
    assert_eq!(noted(&partition).1, 13);

    let mut later = Partition::new(0);
    later.fold(12, asks("a"));
    assert!(!later.is_open(&run("a")));
    let Folded::Snapshot(found) = later.fold(13, snapshot(1).into()) else { panic!("no snapshot") };
    let mut state = RunState::accepted(&of_session("a", None));
    for event in [claimed("a", 1), asks("a")] {
        state.apply(&event);
    }
    later.open_from(13, found.accepted_offset, state);
    later.fold(14, answered("a"));
    later.go_live();
    let run = later.take_ready().pop().expect("it was answered");
    assert_eq!((run.accepted_offset, run.next_offset, run.state.last_seq()), (10, 15, 2));
}

/// A live partition with a run that could not be read from its snapshot at 13, which a try reads up to 15 now.
fn with_an_unread_run() -> Partition {
    let state = BlobRef { sha256: "ab".into(), size_bytes: 1, media_type: "application/json".into() };
    let (run_id, now) = (run("a"), Instant::now());
    let snapshot = RunSnapshotted { run_id, epoch: 1, seq: 2, accepted_offset: 10, next_offset: 13, state, at: 0 };
    let mut partition = Partition::new(0);
    let Folded::Snapshot(found) = partition.fold(13, snapshot.into()) else { panic!("no snapshot") };
    partition.next_event = 14;
    partition.set_aside(13, *found, now);
    assert!(partition.asides_due(now).is_empty(), "not before the past is folded");
    partition.go_live();
    partition.next_event = 15;
    partition.fold(14, accepted("a"));
    assert!(partition.is_open(&run_id) && ready(&mut partition).is_empty(), "a copy of its acceptance opens nothing");
    let due: Vec<i64> = partition.asides_due(now).into_iter().map(|due| due.until).collect();
    assert_eq!((due, noted(&partition).1), (vec![15], 13));
    partition
}

fn read_up_to_15() -> RunState {
    let mut state = RunState::accepted(&of_session("a", None));
    for event in [claimed("a", 1), asks("a")] {
        state.apply(&event);
    }
    state
}

#[test]
fn given_a_run_that_could_not_be_read_when_it_can_then_it_is_driven_with_what_came_meanwhile_and_the_note_waited_for_it()
 {
    let mut partition = with_an_unread_run();
    partition.next_event = 16;
    partition.fold(15, answered("a"));
    assert!(ready(&mut partition).is_empty());
    partition.restored(read_up_to_15());
    let driven = partition.take_ready().pop().expect("it was answered");
    assert_eq!((driven.accepted_offset, driven.next_offset, driven.state.last_seq()), (10, 16, 2));
    assert_eq!(noted(&partition).1, 13);
    partition.fold(16, finished("a", 1));
    assert!(!partition.is_open(&run("a")));
    assert_eq!(noted(&partition).1, 16);
}

#[test]
fn given_a_run_that_could_not_be_read_when_it_turns_out_to_have_ended_then_nobody_drives_it_and_the_note_moves_on() {
    let mut partition = with_an_unread_run();
    let mut state = read_up_to_15();
    state.apply(&finished("a", 1));
    partition.restored(state);
    assert!(ready(&mut partition).is_empty() && !partition.is_open(&run("a")) && partition.knows(&run("a")));
    assert_eq!(noted(&partition).1, 15);
}

#[test]
fn the_note_points_at_the_oldest_open_run_and_moves_on_when_it_ends() {
    let mut partition = given(vec![accepted("a"), claimed("a", 1), accepted("b")]);
    assert_eq!(noted(&partition), (3, 10));
    partition.next_event = 14;
    partition.fold(13, finished("a", 1));
    assert_eq!(noted(&partition), (3, 12));
    partition.fold(14, claimed("b", 1));
    partition.next_event = 16;
    partition.fold(15, finished("b", 1));
    assert_eq!(noted(&partition), (3, 16), "nothing is open: the next event");
}

#[test]
fn the_note_never_passes_a_run_whose_acceptance_was_not_read_back_yet() {
    let mut partition = given(vec![]);
    partition.next_event = 10;
    partition.wrote(12, Some(run("a")));
    assert_eq!(noted(&partition).1, 10);
    partition.next_event = 14;
    assert_eq!(noted(&partition).1, 12);
}

#[test]
fn a_command_that_comes_again_is_known_also_after_the_end() {
    let mut partition = given(vec![accepted("a"), claimed("a", 1), finished("a", 1), accepted("b")]);
    partition.wrote(20, Some(run("c")));
    assert!(partition.knows(&run("a")) && partition.knows(&run("b")) && partition.knows(&run("c")));
    assert!(!partition.is_open(&run("a")) && !partition.knows(&run("d")));
}

#[test]
fn an_end_written_under_an_older_claim_ends_nothing() {
    let partition = given(vec![accepted("a"), claimed("a", 1), claimed("a", 2), finished("a", 1)]);
    assert!(partition.is_open(&run("a")));
    assert_eq!(partition.epoch(&run("a")), Some(2));
}

#[test]
fn a_live_partition_hands_a_run_out_at_once_and_forwards_every_event_with_its_offset() {
    let mut partition = given(vec![]);
    partition.go_live();
    partition.fold(10, accepted("a"));
    let mut ready = partition.take_ready().pop().expect("not handed out");
    partition.fold(11, claimed("a", 2));
    partition.fold(12, claimed("a", 1));
    let offsets: Vec<_> = std::iter::from_fn(|| ready.inbox.try_recv().ok()).map(|seen| seen.offset).collect();
    assert_eq!(offsets, [11, 12], "void events too");
}

fn record(event: &AgentEvent, offset: i64) -> Record {
    Record {
        topic: "t".into(),
        partition: 0,
        offset,
        key: None,
        payload: Some(event.encode().unwrap().into()),
        headers: Vec::new(),
        timestamp_ms: 0,
    }
}

/// Reads events from offset 10 on, then makes the partition live. Gives it, and how many were decoded.
fn read(events: &[AgentEvent]) -> (Partition, usize) {
    let decoded = Cell::new(0);
    let decode = |record: &Record| {
        decoded.set(decoded.get() + 1);
        let found = AgentEvent::decode(record.payload.as_deref().unwrap()).unwrap();
        match found {
            riverrun_schemas::Decoded::Event(event) => Some(event),
            riverrun_schemas::Decoded::UnknownType { .. } => None,
        }
    };
    let mut partition = Partition::new(3);
    for (event, offset) in events.iter().zip(10..) {
        partition.read(&record(event, offset), &decode);
    }
    partition.end_past(&decode);
    partition.go_live();
    (partition, decoded.get())
}

fn driven(partition: &mut Partition) -> Vec<(RunState, i64)> {
    partition.take_ready().into_iter().map(|ready| (ready.state, ready.accepted_offset)).collect()
}

#[test]
fn given_a_past_of_runs_that_have_ended_when_it_is_read_then_their_steps_are_not_decoded() {
    let steps =
        |name: &str, epoch| (1..=20).map(move |n| advanced(name, epoch, &[StepKind::Thought], n)).collect::<Vec<_>>();
    let mut events = Vec::new();
    // Of one that began before there is only what came later.
    events.push(accepted("open"));
    events.extend(steps("before", 1));
    events.push(finished("before", 1));
    for name in ["a", "b", "c"] {
        events.extend([accepted(name), claimed(name, 1)]);
        events.extend(steps(name, 1));
        events.push(finished(name, 1));
    }
    events.push(claimed("open", 1));
    events.extend(steps("open", 1));
    let (mut partition, decoded) = read(&events);
    assert_eq!(decoded, 1 + 3 * 3 + 1 + 20, "three events of each that has ended, and all of the one that is open");
    let driven = driven(&mut partition);
    assert_eq!(
        driven.iter().map(|(state, _)| (state.run_id, state.last_seq())).collect::<Vec<_>>(),
        [(run("open"), 20)]
    );
    // From now on each event is told at once.
    partition.read(&record(&claimed("open", 2), 500), &|_: &Record| Some(claimed("open", 2)));
    assert_eq!((partition.epoch(&run("open")), partition.next_event), (Some(2), 501));
}

proptest! {
    #[test]
    fn a_past_that_is_glanced_over_comes_to_the_same(
        choices in prop::collection::vec((0usize..3, 0usize..9), 0..80), skipped in 0usize..12,
    ) {
        let names = ["a", "b", "c"];
        let (mut epochs, mut seqs) = ([0i64; 3], [0i64; 3]);
        let mut events = Vec::new();
        for (which, what) in choices {
            let (name, epoch, seq) = (names[which], &mut epochs[which], &mut seqs[which]);
            events.push(match what {
                0 => accepted(name),
                1 => {
                    *epoch += 1;
                    claimed(name, *epoch)
                }
                2 => claimed(name, *epoch),
                3..=5 => {
                    *seq += 1;
                    advanced(name, *epoch, &[StepKind::Thought], *seq)
                }
                6 => advanced(name, *epoch - 1, &[StepKind::Thought], *seq + 1),
                7 => finished(name, *epoch),
                _ => cancelled(name),
            });
        }
        let events = events.split_off(skipped.min(events.len()));
        let mut whole = given(events.clone());
        whole.go_live();
        let (mut glanced, decoded) = read(&events);
        prop_assert!(decoded <= events.len());
        // Before anything was read, the two do not know where they are.
        if !events.is_empty() {
            prop_assert_eq!(noted(&whole), noted(&glanced));
        }
        prop_assert_eq!(driven(&mut whole), driven(&mut glanced));
    }
}
