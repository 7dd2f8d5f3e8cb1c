use proptest::prelude::*;
use riverrun_schemas::Topic;
use riverrun_schemas::memory::{EpisodeRemembered, NoteWritten};
use riverrun_schemas::{ForgetId, NoteId};
use riverrun_stores::Sql;
use riverrun_stores::read_models::{LogRecord, Projected, apply, memory_queries as read};

use super::*;

fn session() -> Session {
    Session::new("team".parse().unwrap(), "s".parse().unwrap())
}

fn turn_id(n: u32) -> TurnId {
    TurnId::derive(&[&n.to_string()])
}

fn summary_id(n: u32) -> SummaryId {
    SummaryId::derive(&[&n.to_string()])
}

fn turn(n: u32, role: TurnRole) -> MemoryEvent {
    TurnRecorded {
        namespace: session().namespace,
        session: session().name,
        turn_id: turn_id(n),
        role,
        text: format!("words {n}"),
        run_id: None,
        at: 0,
    }
    .into()
}

fn summary(n: u32, previous: Option<u32>, through_seq: i64, turns: &[u32]) -> MemoryEvent {
    SummaryWritten {
        namespace: session().namespace,
        session: session().name,
        summary_id: summary_id(n),
        through_seq,
        previous: previous.map(summary_id),
        turn_ids: turns.iter().copied().map(turn_id).collect(),
        text: format!("summary {n}"),
        model: "m".into(),
        at: 0,
    }
    .into()
}

fn forget(n: u32, target: Option<String>) -> MemoryEvent {
    let forget_id = ForgetId::derive(&[&n.to_string()]);
    MemoryForgotten { namespace: session().namespace, session: session().name, forget_id, target, at: 0 }.into()
}

fn note(n: u32, turns: &[u32]) -> MemoryEvent {
    NoteWritten {
        namespace: session().namespace,
        session: session().name,
        note_id: NoteId::derive(&[&n.to_string()]),
        text: "note".into(),
        turn_ids: turns.iter().copied().map(turn_id).collect(),
        run_id: None,
        at: 0,
    }
    .into()
}

fn fold(events: &[MemoryEvent]) -> SessionFold {
    let mut fold = SessionFold::default();
    for event in events {
        fold.apply(event);
    }
    fold
}

fn exchange(fold: &SessionFold, n: u32) -> Vec<i64> {
    fold.exchange_before(&turn_id(n)).unwrap().into_iter().map(|turn| turn.seq).collect()
}

#[test]
fn given_turns_when_a_person_speaks_again_then_the_exchange_before_has_ended() {
    use TurnRole::{Assistant, Tool, User};
    let roles = [Assistant, User, Tool, Assistant, User, User, Assistant];
    let events: Vec<_> = roles.into_iter().zip(1..).map(|(role, n)| turn(n, role)).collect();
    let fold = fold(&events);
    let ended: Vec<Vec<i64>> = (1..=7).map(|n| exchange(&fold, n)).collect();
    assert_eq!(ended, [vec![], vec![1], vec![], vec![], vec![2, 3, 4], vec![5], vec![]]);
}

#[test]
fn given_one_who_never_stops_when_twenty_turns_are_over_then_the_exchange_ends() {
    let events: Vec<_> = (1..=41).map(|n| turn(n, TurnRole::Assistant)).collect();
    let fold = fold(&events);
    assert_eq!(exchange(&fold, 21), (1..=20).collect::<Vec<i64>>());
    assert_eq!(exchange(&fold, 41), (21..=40).collect::<Vec<i64>>());
    assert_eq!(exchange(&fold, 40), [0i64; 0]);
}

#[test]
fn given_a_pruned_fold_when_what_was_covered_opens_again_then_it_says_that_words_are_missing() {
    let mut events: Vec<_> = (1..=6).map(|n| turn(n, TurnRole::User)).collect();
    events.push(summary(1, None, 4, &[1, 2, 3, 4]));
    let mut whole = fold(&events);
    whole.prune();
    assert_eq!(whole.open_turns().unwrap().len(), 2);
    whole.apply(&forget(1, Some(turn_id(2).to_string())));
    assert_eq!(whole.open_turns(), None, "turns 1, 3 and 4 are open again and their words were let go of");
    events.push(forget(1, Some(turn_id(2).to_string())));
    let seqs: Vec<i64> = fold(&events).open_turns().unwrap().into_iter().map(|turn| turn.seq).collect();
    assert_eq!(seqs, [1, 3, 4, 5, 6]);
}

fn any_event() -> impl Strategy<Value = MemoryEvent> {
    let turns = || prop::collection::vec(1u32..8, 1..3);
    let role = || prop::sample::select(TurnRole::ALL.to_vec());
    prop_oneof![
        6 => (1u32..8, role()).prop_map(|(n, role)| turn(n, role)),
        3 => (1u32..5, prop::option::of(1u32..5), 1i64..6, turns())
            .prop_map(|(n, previous, through, turns)| summary(n, previous, through, &turns)),
        1 => (1u32..4, turns()).prop_map(|(n, turns)| note(n, &turns)),
        1 => (1u32..9, 1u32..8).prop_map(|(n, target)| forget(n, Some(turn_id(target).to_string()))),
        1 => (1u32..9, 1u32..5).prop_map(|(n, target)| forget(n, Some(summary_id(target).to_string()))),
        1 => (1u32..9).prop_map(|n| forget(n, None)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Workers decide from the fold, people see the tables: both are the same conversation.
    #[test]
    fn the_fold_and_the_tables_agree(events in prop::collection::vec(any_event(), 0..40)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let sql = Sql::open(folder.path().join("read.db")).await.unwrap();
            let record = |(event, offset): (&MemoryEvent, i64)| LogRecord {
                topic: Topic::MemoryEvents, partition: 0, offset, body: Projected::Memory(event.clone()),
            };
            let records: Vec<LogRecord> = events.iter().zip(0..).map(record).collect();
            apply(&sql, &records).await.unwrap();
            let fold = fold(&events);
            let summary = read::summary(&sql, &session()).await.unwrap();
            prop_assert_eq!(
                summary.as_ref().map(|summary| (summary.summary_id, summary.text.as_str())),
                fold.summary_in_force()
            );
            let through = summary.map_or(0, |summary| summary.through_seq);
            let turns = read::newest_turns(&sql, &session(), through, 100).await.unwrap();
            let turns: Vec<_> = turns.into_iter().map(|turn| (turn.turn_id, turn.seq, turn.text)).collect();
            let open: Vec<_> = fold.open_turns().unwrap().into_iter().map(|turn| (turn.turn_id, turn.seq, turn.text)).collect();
            prop_assert_eq!(turns, open);
            Ok(())
        })?;
    }
}

#[test]
fn given_an_event_that_names_what_was_forgotten_when_it_comes_then_it_is_void() {
    let mut fold = fold(&[turn(1, TurnRole::User), forget(1, Some(turn_id(1).to_string()))]);
    let episode = EpisodeRemembered {
        namespace: session().namespace,
        session: session().name,
        episode_id: episode_id(&session(), turn_id(1)),
        text: "x".into(),
        turn_ids: vec![turn_id(1)],
        at: 0,
    };
    assert_eq!(fold.apply(&episode.into()), Taken::Void);
    assert_eq!(fold.apply(&note(1, &[1])), Taken::Void);
    assert_eq!(fold.apply(&note(1, &[2])), Taken::Counted);
    assert_eq!(fold.apply(&turn(1, TurnRole::User)), Taken::Void);
}
