use proptest::prelude::*;
use riverrun_schemas::agent::{AgentEvent, RunClaimed};

use super::*;
use crate::read_models::testing::{self, accepted, advanced, cancel, claimed, decided, finished};

fn verdicts(events: &[AgentEvent]) -> Vec<Verdict> {
    let mut gate = RunGate::default();
    events.iter().map(|event| gate.admit(event)).collect()
}

#[test]
fn given_events_then_only_those_that_count_are_admitted() {
    use Verdict::{Admitted, Ignored};
    let table: Vec<(&str, Vec<AgentEvent>, Vec<Verdict>)> = vec![
        (
            "a whole run",
            vec![accepted(), claimed(1, "a"), advanced(1, 1..3), advanced(1, 3..4), finished(1)],
            vec![Admitted; 5],
        ),
        ("events of nothing", vec![claimed(1, "a"), finished(0), cancel()], vec![Ignored(Void::NotAccepted); 3]),
        ("accepted twice", vec![accepted(), accepted()], vec![Admitted, Ignored(Void::AcceptedBefore)]),
        (
            "two claims of one epoch",
            vec![accepted(), claimed(1, "a"), claimed(1, "b")],
            vec![Admitted, Admitted, Ignored(Void::ClaimedBefore)],
        ),
        (
            "a worker back from the dead",
            vec![
                accepted(),
                claimed(1, "a"),
                advanced(1, 1..2),
                claimed(2, "b"),
                advanced(1, 2..3),
                finished(1),
                advanced(2, 2..3),
                finished(2),
            ],
            vec![
                Admitted,
                Admitted,
                Admitted,
                Admitted,
                Ignored(Void::OtherEpoch),
                Ignored(Void::OtherEpoch),
                Admitted,
                Admitted,
            ],
        ),
        (
            "an epoch that nobody claimed",
            vec![accepted(), claimed(1, "a"), advanced(2, 1..2)],
            vec![Admitted, Admitted, Ignored(Void::OtherEpoch)],
        ),
        (
            "epochs may leave some out",
            vec![accepted(), claimed(7, "a"), claimed(3, "b"), advanced(7, 1..2)],
            vec![Admitted, Admitted, Ignored(Void::ClaimedBefore), Admitted],
        ),
        (
            "questions and answers",
            vec![
                accepted(),
                claimed(1, "a"),
                decided(1),
                testing::asked(1, 1..3),
                decided(2),
                decided(2),
                claimed(2, "b"),
                decided(1),
                decided(1),
            ],
            vec![
                Admitted,
                Admitted,
                Ignored(Void::NotWaiting),
                Admitted,
                Admitted,
                Ignored(Void::NotWaiting),
                Admitted,
                Admitted,
                Ignored(Void::NotWaiting),
            ],
        ),
        (
            "a fork's copied steps come before the first claim",
            vec![accepted(), advanced(0, 1..3), claimed(1, "a"), advanced(0, 3..4), advanced(1, 3..4)],
            vec![Admitted, Admitted, Admitted, Ignored(Void::OtherEpoch), Admitted],
        ),
        (
            "steps written twice, with a gap, or partly again",
            vec![
                accepted(),
                claimed(1, "a"),
                advanced(1, 1..3),
                advanced(1, 1..3),
                advanced(1, 4..5),
                advanced(1, 2..4),
                advanced(1, 3..3),
                advanced(1, 3..4),
            ],
            vec![
                Admitted,
                Admitted,
                Admitted,
                Ignored(Void::OutOfSequence),
                Ignored(Void::OutOfSequence),
                Ignored(Void::OutOfSequence),
                Ignored(Void::OutOfSequence),
                Admitted,
            ],
        ),
        (
            "anything after the end",
            vec![
                accepted(),
                claimed(1, "a"),
                finished(1),
                finished(1),
                claimed(2, "b"),
                finished(2),
                advanced(1, 1..2),
                cancel(),
            ],
            vec![
                Admitted,
                Admitted,
                Admitted,
                Ignored(Void::Ended),
                Ignored(Void::Ended),
                Ignored(Void::Ended),
                Ignored(Void::Ended),
                Ignored(Void::Ended),
            ],
        ),
        ("a run that ends before anybody claims it", vec![accepted(), cancel(), finished(0)], vec![Admitted; 3]),
    ];
    for (name, events, expected) in table {
        assert_eq!(verdicts(&events), expected, "{name}");
    }
}

/// Workers that each believe to hold the run, one after another: what they write before and after they lose it arrives in
/// any order, any event any number of times.
fn a_crowd_of_workers() -> impl Strategy<Value = Vec<AgentEvent>> {
    prop::collection::vec(testing::any_event(), 0..60)
}

proptest! {
    #[test]
    fn whatever_is_written_then_there_is_one_end_and_no_gap(mut events in a_crowd_of_workers(), claims in 1i64..4) {
        events.insert(0, accepted());
        // Somebody drives the run to its end in the end.
        let mut gate = RunGate::default();
        events.iter().for_each(|event| { gate.admit(event); });
        let last = gate.epoch + claims;
        events.extend([claimed(last, "last"), advanced(last, gate.next_seq()..gate.next_seq() + 2), finished(last), finished(last), accepted()]);

        let (mut gate, mut seqs, mut ends, mut admitted_after_end) = (RunGate::default(), Vec::new(), 0, 0);
        for event in &events {
            let (before, verdict) = (gate.clone(), gate.admit(event));
            if verdict != Verdict::Admitted {
                prop_assert_eq!(&before, &gate, "an ignored event changes nothing");
                continue;
            }
            admitted_after_end += i32::from(before.ended);
            prop_assert!(gate.epoch >= before.epoch);
            match event {
                AgentEvent::RunAdvanced(advance) => {
                    prop_assert_eq!(advance.epoch, before.epoch);
                    seqs.extend(advance.steps.iter().map(|step| step.seq));
                }
                AgentEvent::RunFinished(end) => {
                    prop_assert_eq!(end.epoch, before.epoch);
                    ends += 1;
                }
                AgentEvent::RunClaimed(RunClaimed { epoch, .. }) => prop_assert!(*epoch > before.epoch),
                AgentEvent::RunApprovalDecided(answer) => prop_assert!(before.waiting.contains_key(&answer.step)),
                AgentEvent::RunSnapshotted(snapshot) => prop_assert_eq!(snapshot.epoch, before.epoch),
                AgentEvent::RunAccepted(_) | AgentEvent::RunCancelRequested(_) | AgentEvent::RunResumed(_) => {}
            }
        }
        prop_assert_eq!(ends, 1, "RUN-1");
        prop_assert_eq!(admitted_after_end, 0, "RUN-1");
        prop_assert_eq!(&seqs, &(1..=seqs.len() as i64).collect::<Vec<_>>(), "RUN-2");
    }

    #[test]
    fn whatever_is_handed_in_twice_then_the_second_copy_changes_nothing(events in a_crowd_of_workers(), copies in prop::collection::vec(any::<bool>(), 60)) {
        let (mut once, mut twice) = (RunGate::default(), RunGate::default());
        for (event, again) in events.iter().zip(copies) {
            once.admit(event);
            twice.admit(event);
            if again {
                twice.admit(event);
            }
            prop_assert_eq!(&once, &twice);
        }
    }
}
