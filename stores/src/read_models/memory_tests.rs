use proptest::prelude::*;
use riverrun_schemas::memory::*;
use riverrun_schemas::{EpisodeId, ForgetId, NoteId, RunId, Session, SummaryId, TurnId};

use super::memory_queries as read;
use super::testing::{fresh, records, rows};
use super::{PageRequest, Projected, apply, rebuild};
use crate::sql::Sql;

fn session(name: &str) -> Session {
    Session::new("team-a".parse().unwrap(), name.parse().unwrap())
}

fn turn_id(n: u32) -> TurnId {
    TurnId::derive(&[&n.to_string()])
}

fn turn(of: &Session, n: u32) -> MemoryEvent {
    let role = if n % 2 == 1 { TurnRole::User } else { TurnRole::Assistant };
    TurnRecorded {
        namespace: of.namespace.clone(),
        session: of.name.clone(),
        turn_id: turn_id(n),
        role,
        text: format!("words {n}"),
        run_id: n.is_multiple_of(3).then(|| RunId::derive(&["r"])),
        at: i64::from(n),
    }
    .into()
}

fn summary_id(n: u32) -> SummaryId {
    SummaryId::derive(&[&n.to_string()])
}

fn summary(of: &Session, n: u32, previous: Option<u32>, through: i64, turns: &[u32]) -> MemoryEvent {
    SummaryWritten {
        namespace: of.namespace.clone(),
        session: of.name.clone(),
        summary_id: summary_id(n),
        through_seq: through,
        previous: previous.map(summary_id),
        turn_ids: turns.iter().copied().map(turn_id).collect(),
        text: format!("summary {n}"),
        model: "tiny".into(),
        at: 50,
    }
    .into()
}

fn episode(of: &Session, n: u32, turns: &[u32]) -> MemoryEvent {
    EpisodeRemembered {
        namespace: of.namespace.clone(),
        session: of.name.clone(),
        episode_id: EpisodeId::derive(&[&n.to_string()]),
        text: format!("episode {n}"),
        turn_ids: turns.iter().copied().map(turn_id).collect(),
        at: 60,
    }
    .into()
}

fn note(of: &Session, n: u32, turns: &[u32]) -> MemoryEvent {
    NoteWritten {
        namespace: of.namespace.clone(),
        session: of.name.clone(),
        note_id: NoteId::derive(&[&n.to_string()]),
        text: format!("note {n}"),
        turn_ids: turns.iter().copied().map(turn_id).collect(),
        run_id: None,
        at: 70,
    }
    .into()
}

fn forget_id(n: u32) -> ForgetId {
    ForgetId::derive(&[&n.to_string()])
}

fn forget(of: &Session, n: u32, target: Option<String>) -> MemoryEvent {
    MemoryForgotten {
        namespace: of.namespace.clone(),
        session: of.name.clone(),
        forget_id: forget_id(n),
        target,
        at: 80,
    }
    .into()
}

async fn texts(sql: &Sql, of: &Session) -> Vec<String> {
    read::newest_turns(sql, of, 0, 100).await.unwrap().into_iter().map(|turn| turn.text).collect()
}

#[tokio::test]
async fn given_turns_of_two_conversations_when_they_are_read_then_each_counts_its_own_from_one_and_copies_do_not_count()
{
    let (_folder, sql) = fresh().await;
    let (a, b) = (session("s"), session("s2"));
    let events = [turn(&a, 1), turn(&b, 1), turn(&a, 2), turn(&a, 1), turn(&b, 2), turn(&a, 3)];
    apply(&sql, &records(events, Projected::Memory)).await.unwrap();
    assert_eq!(texts(&sql, &a).await, ["words 1", "words 2", "words 3"]);
    assert_eq!(texts(&sql, &b).await, ["words 1", "words 2"]);
    let page = PageRequest { limit: Some(2), cursor: None };
    let first = read::turns(&sql, &a, &page).await.unwrap();
    assert_eq!(first.items.iter().map(|turn| turn.seq).collect::<Vec<_>>(), [1, 2]);
    let page = PageRequest { limit: Some(2), cursor: first.next_cursor };
    let second = read::turns(&sql, &a, &page).await.unwrap();
    assert_eq!((second.items[0].seq, second.items[0].run_id.is_some(), second.next_cursor), (3, true, None));
    let other = Session::new("team".parse().unwrap(), a.name.clone());
    assert!(read::turns(&sql, &other, &PageRequest::default()).await.unwrap().items.is_empty());
    assert!(read::why(&sql, &other, &turn_id(1).to_string()).await.unwrap().is_none());
    assert!(read::why(&sql, &session("S"), &turn_id(1).to_string()).await.unwrap().is_none());
}

#[tokio::test]
async fn given_two_summaries_that_go_on_from_the_same_one_when_they_are_folded_then_the_first_counts() {
    let (_folder, sql) = fresh().await;
    let a = session("s");
    let events = (1..=4).map(|n| turn(&a, n)).chain([
        summary(&a, 1, None, 2, &[1, 2]),
        summary(&a, 2, None, 3, &[1, 2, 3]),
        summary(&a, 3, Some(1), 3, &[3]),
    ]);
    apply(&sql, &records(events, Projected::Memory)).await.unwrap();
    let in_force = read::summary(&sql, &a).await.unwrap().unwrap();
    assert_eq!((in_force.text.as_str(), in_force.through_seq), ("summary 3", 3));
    let why = read::why(&sql, &a, &summary_id(3).to_string()).await.unwrap().unwrap();
    assert_eq!(why.sources.iter().map(|turn| turn.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((why.kind.as_str(), why.model.as_deref()), ("summary", Some("tiny")));
}

#[tokio::test]
async fn given_a_turn_that_much_was_made_from_when_it_is_forgotten_then_all_of_that_is_gone_and_counted() {
    let (_folder, sql) = fresh().await;
    let a = session("s");
    let events = (1..=4).map(|n| turn(&a, n)).chain([
        episode(&a, 1, &[1, 2]),
        episode(&a, 2, &[3, 4]),
        note(&a, 1, &[1]),
        summary(&a, 1, None, 1, &[1]),
        summary(&a, 2, Some(1), 3, &[2, 3]),
        forget(&a, 1, Some(turn_id(2).to_string())),
        // What was on its way does not bring it back.
        turn(&a, 2),
        episode(&a, 3, &[2]),
        summary(&a, 3, Some(2), 4, &[4]),
        summary(&a, 4, Some(1), 4, &[2, 3, 4]),
    ]);
    apply(&sql, &records(events, Projected::Memory)).await.unwrap();
    assert_eq!(texts(&sql, &a).await, ["words 1", "words 3", "words 4"]);
    let receipt = read::receipt(&sql, &a, forget_id(1)).await.unwrap().unwrap();
    let gone = receipt.removed;
    assert_eq!((gone.turns, gone.summaries, gone.episodes, gone.notes), (1, 1, 1, 0));
    assert_eq!(read::summary(&sql, &a).await.unwrap().unwrap().text, "summary 1");
    let why = async |n: u32| read::why(&sql, &a, &EpisodeId::derive(&[&n.to_string()]).to_string()).await.unwrap();
    assert!(why(1).await.is_none() && why(3).await.is_none());
    assert_eq!(why(2).await.unwrap().sources.len(), 2);
    let found: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM memory_turns WHERE text LIKE '%words 2%'")
        .fetch_one(sql.reader())
        .await
        .unwrap();
    assert_eq!(found, 0, "the words are gone, not only hidden");
}

#[tokio::test]
async fn given_a_whole_conversation_when_it_is_forgotten_then_nothing_is_left_and_others_stay() {
    let (_folder, sql) = fresh().await;
    let (a, b) = (session("s"), session("t"));
    let of = |s: &Session| {
        vec![turn(s, 1), turn(s, 2), episode(s, 1, &[1, 2]), note(s, 1, &[1]), summary(s, 1, None, 1, &[1])]
    };
    let mut events = of(&a);
    events.extend(of(&b));
    events.extend([forget(&a, 1, None), turn(&a, 3)]);
    apply(&sql, &records(events, Projected::Memory)).await.unwrap();
    assert_eq!(texts(&sql, &a).await, ["words 3"], "it goes on afterwards");
    assert_eq!(texts(&sql, &b).await.len(), 2);
    assert!(read::summary(&sql, &a).await.unwrap().is_none() && read::summary(&sql, &b).await.unwrap().is_some());
    let gone = read::receipt(&sql, &a, forget_id(1)).await.unwrap().unwrap().removed;
    assert_eq!((gone.turns, gone.summaries, gone.episodes, gone.notes), (2, 1, 1, 1));
    assert!(read::receipt(&sql, &b, forget_id(1)).await.unwrap().is_none());
    let size = read::size(&sql, &b).await.unwrap();
    assert_eq!((size.turns, size.notes), (2, 1));
}

async fn dump(sql: &Sql) -> String {
    rows(
        sql,
        &[
            "SELECT * FROM memory_turns ORDER BY 1, 2, 3",
            "SELECT * FROM memory_summaries ORDER BY 1, 2, 3",
            "SELECT * FROM memory_items ORDER BY 1, 2, 3",
            "SELECT * FROM memory_sources ORDER BY 1, 2, 3, 4",
            "SELECT * FROM memory_receipts ORDER BY 1, 2, 3",
        ],
    )
    .await
}

fn any_event() -> impl Strategy<Value = MemoryEvent> {
    let of = || prop::sample::select(vec!["s", "s2"]).prop_map(session);
    let turns = || prop::collection::vec(1u32..8, 1..3);
    prop_oneof![
        6 => (of(), 1u32..8).prop_map(|(of, n)| turn(&of, n)),
        2 => (of(), 1u32..4, prop::option::of(1u32..4), 1i64..6, turns())
            .prop_map(|(of, n, previous, through, turns)| summary(&of, n, previous, through, &turns)),
        2 => (of(), 1u32..4, turns()).prop_map(|(of, n, turns)| episode(&of, n, &turns)),
        1 => (of(), 1u32..4, turns()).prop_map(|(of, n, turns)| note(&of, n, &turns)),
        1 => (of(), 1u32..4, prop::option::of(1u32..8))
            .prop_map(|(of, n, target)| forget(&of, n, target.map(|n| turn_id(n).to_string()))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// READ-1, READ-2, READ-3 for conversations.
    #[test]
    fn whatever_was_said_then_a_rebuild_gives_the_same_rows(events in prop::collection::vec(any_event(), 0..40), batch in 1usize..20) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (_folder, sql) = fresh().await;
            let log = records(events, Projected::Memory);
            apply(&sql, &log).await.unwrap();
            let first = dump(&sql).await;
            apply(&sql, &log).await.unwrap();
            prop_assert_eq!(&dump(&sql).await, &first, "handed in twice");
            rebuild(&sql).await.unwrap();
            for part in log.chunks(batch) {
                apply(&sql, part).await.unwrap();
                apply(&sql, part).await.unwrap();
            }
            prop_assert_eq!(&dump(&sql).await, &first, "rebuilt");
            Ok(())
        })?;
    }
}
