//! What can't be handled goes to the dead letters, and nothing else does.

mod echo;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use echo::{Echo, PER_KEY, PER_PARTITION, command, source};
use riverrun_log::dead_letters::LetterState;
use riverrun_log::{Outgoing, Producer};
use riverrun_schemas::framing::frame;
use riverrun_schemas::ingest::{IngestCommand, IngestEvent};
use riverrun_schemas::{EventSet, Topic};
use riverrun_workers::runtime::testkit::{Stack, eventually, twice};
use riverrun_workers::runtime::{
    ALONE_FROM, DeliveryMode, GIVEN_UP_AT, InHand, Lanes, RuntimeConfig, WorkerState, group_of, spawn,
};
use tokio_util::sync::CancellationToken;

const TOPIC: Topic = Topic::IngestCommands;

fn raw(key: &str, payload: Option<Vec<u8>>) -> Outgoing {
    Outgoing {
        topic: TOPIC.name().into(),
        partition: None,
        key: Some(Bytes::copy_from_slice(key.as_bytes())),
        payload: payload.map(Bytes::from),
        headers: vec![],
    }
}

fn every_way() -> [(Lanes, DeliveryMode); 4] {
    [PER_KEY, PER_PARTITION]
        .map(|lanes| [DeliveryMode::AtLeastOnce, DeliveryMode::Transactional].map(|mode| (lanes, mode)))
        .concat()
        .try_into()
        .unwrap()
}

async fn sources(stack: &Stack, count: usize) -> Vec<String> {
    let mut sources: Vec<_> = stack.wait_for_events::<IngestEvent>(count).await.iter().map(source).collect();
    sources.sort_unstable();
    sources
}

#[tokio::test]
async fn given_bytes_that_are_no_event_when_read_then_each_is_one_dead_letter_and_the_next_event_is_handled() {
    for (lanes, mode) in every_way() {
        let stack = Stack::start().await;
        let good = command("d", 0, "ok");
        let bytes = good.encode().unwrap();
        let bad = [
            ("too_short", Some(vec![]), "bad_frame"),
            ("no_payload", None, "bad_frame"),
            ("garbage", Some(b"garbage garbage".to_vec()), "bad_frame"),
            ("unknown", Some(frame(4_000_000, b"x")), "unknown_schema_id"),
            ("cut", Some(bytes[..bytes.len() - 3].to_vec()), "bad_body"),
            ("left_over", Some([bytes.as_slice(), b"more"].concat()), "bad_body"),
            ("other_topic", Some(frame(10, b"x")), "wrong_topic"),
        ];
        // All in one partition, so that any of them could block the good one.
        let records = bad.iter().map(|(key, payload, _)| raw(key, payload.clone()).to_partition(0)).collect();
        stack.send_records(records).await;
        stack.send_records(vec![Outgoing::event(&good, "test", None).unwrap().to_partition(0)]).await;

        let stop = CancellationToken::new();
        let handle = spawn(Echo { mode, ..Echo::new(lanes) }, stack.config(), stop.clone());
        assert_eq!(sources(&stack, 1).await, ["d/0/ok"]);
        stack.drained("echo", TOPIC).await;
        let letters = stack.letters(TOPIC).await;
        let told: BTreeMap<_, _> = letters
            .iter()
            .map(|l| (String::from_utf8_lossy(l.key.as_deref().unwrap()).into_owned(), l.code.as_str()))
            .collect();
        assert_eq!(told, bad.iter().map(|(key, _, code)| ((*key).to_owned(), *code)).collect());
        assert_eq!(letters.len(), bad.len(), "each once");
        for (key, payload, _) in &bad {
            let letter = letters.iter().find(|l| l.key.as_deref() == Some(key.as_bytes())).unwrap();
            assert_eq!(letter.payload.as_deref(), payload.as_deref(), "bytes of {key}");
        }
        assert_eq!(handle.status().dead_letters, bad.len() as u64);
        stop.cancel();
        handle.join().await.unwrap();
    }
}

#[tokio::test]
async fn given_two_groups_of_one_topic_when_bytes_are_no_event_then_the_one_that_answers_for_it_makes_one_dead_letter()
{
    let stack = Stack::start().await;
    stack
        .send_records(vec![raw("garbage", Some(b"garbage".to_vec())), raw("unknown", Some(frame(4_000_000, b"x")))])
        .await;
    let stop = CancellationToken::new();
    let owner = spawn(Echo::new(PER_KEY), stack.config(), stop.clone());
    let guest = Echo { name: "guest", answers_for_topic: false, ..Echo::new(PER_KEY) };
    let guest = spawn(guest, stack.config(), stop.clone());
    stack.drained("echo", TOPIC).await;
    stack.drained("guest", TOPIC).await;
    let letters = stack.letters(TOPIC).await;
    assert_eq!(letters.iter().map(|letter| letter.group.as_str()).collect::<Vec<_>>(), ["riverrun.echo"; 2]);
    assert_eq!((owner.status().dead_letters, guest.status().dead_letters), (2, 0));
    stop.cancel();
    owner.join().await.unwrap();
    guest.join().await.unwrap();
}

#[tokio::test]
async fn given_work_that_fails_for_a_while_when_retried_then_it_succeeds_without_a_dead_letter() {
    for (lanes, mode) in every_way() {
        let stack = Stack::start().await;
        stack.send(&[command("a", 0, "retry-2"), command("a", 1, "ok"), command("b", 0, "ok")]).await;
        let stop = CancellationToken::new();
        let handle = spawn(Echo { mode, ..Echo::new(lanes) }, stack.config(), stop.clone());
        assert_eq!(sources(&stack, 3).await, ["a/0/retry-2", "a/1/ok", "b/0/ok"]);
        stack.drained("echo", TOPIC).await;
        assert!(stack.letters(TOPIC).await.is_empty());
        assert!(handle.status().retries >= 2);
        stop.cancel();
        handle.join().await.unwrap();
    }
}

#[tokio::test]
async fn given_poison_a_panic_and_endless_failure_among_good_ones_then_only_these_are_given_up_with_their_terminal_event()
 {
    for (lanes, mode) in every_way() {
        let stack = Stack::start().await;
        let behaviours = ["ok", "poison", "ok", "panic", "retry-99", "ok"];
        let events: Vec<IngestCommand> =
            behaviours.iter().enumerate().map(|(n, behaviour)| command("d", n, behaviour)).collect();
        stack.send(&events).await;
        let stop = CancellationToken::new();
        let handle = spawn(Echo { mode, ..Echo::new(lanes) }, stack.config(), stop.clone());
        let expected = [
            "d/0/ok",
            "d/1/poison failed: bad_document",
            "d/2/ok",
            "d/3/panic failed: panicked",
            "d/4/retry-99 failed: busy",
            "d/5/ok",
        ];
        assert_eq!(sources(&stack, 6).await, expected, "{lanes:?} {mode:?}");
        stack.drained("echo", TOPIC).await;
        let letters = stack.letters(TOPIC).await;
        let mut codes: Vec<_> = letters.iter().map(|l| l.code.as_str()).collect();
        codes.sort_unstable();
        assert_eq!(codes, ["bad_document", "busy", "panicked"]);
        assert!(letters.iter().find(|l| l.code == "busy").unwrap().attempts >= 3);
        stop.cancel();
        handle.join().await.unwrap();
    }
}

#[tokio::test]
async fn given_a_record_that_ended_process_after_process_when_read_then_it_is_given_up_and_others_are_handled() {
    for (lanes, mode) in every_way() {
        let stack = Stack::start().await;
        let records = ["first", "deadly", "last"]
            .map(|document| Outgoing::event(&command(document, 0, "ok"), "test", None).unwrap().to_partition(0));
        stack.send_records(records.to_vec()).await;
        // As a process leaves it that is killed with the second in hand, and the third, too, once.
        let folder = tempfile::tempdir().unwrap();
        let left = |name: &str, ends: u32, offset: u32| {
            let line = format!("held {ends} {} {} 0 {offset}\n", group_of("echo"), TOPIC.name());
            std::fs::write(folder.path().join(format!("marks-{name}")), line).unwrap();
        };
        left("one", GIVEN_UP_AT - 1, 1);
        left("two", ALONE_FROM - 1, 2);
        let config = RuntimeConfig { in_hand: Some(InHand::open(folder.path()).unwrap()), ..stack.config() };
        let stop = CancellationToken::new();
        let handle = spawn(Echo { mode, ..Echo::new(lanes) }, config, stop.clone());
        let expected = ["deadly/0/ok failed: process_ended", "first/0/ok", "last/0/ok"];
        assert_eq!(sources(&stack, 3).await, expected, "{lanes:?} {mode:?}");
        stack.drained("echo", TOPIC).await;
        let letters = stack.letters(TOPIC).await;
        assert_eq!(letters.iter().map(|letter| letter.code.as_str()).collect::<Vec<_>>(), ["process_ended"]);
        stop.cancel();
        handle.join().await.unwrap();
        let left: Vec<u8> = std::fs::read_dir(folder.path())
            .unwrap()
            .flat_map(|entry| {
                std::fs::read(entry.unwrap().path()).unwrap().chunks(4096).map(|slot| slot[0]).collect::<Vec<_>>()
            })
            .collect();
        assert!(left.iter().all(|first| *first == b'\n'), "nothing is in hand or known any more");
    }
}

#[tokio::test]
async fn given_a_key_whose_work_waits_for_its_next_try_then_other_keys_of_its_partition_go_on_and_commit_waits() {
    let stack = Stack::start().await;
    let config = RuntimeConfig {
        backoff_base: Duration::from_secs(3600),
        backoff_max: Duration::from_secs(3600),
        ..stack.config()
    };
    let mut records = vec![Outgoing::event(&command("slow", 0, "retry-1"), "test", None).unwrap().to_partition(0)];
    records.extend(
        (0..20).map(|n| Outgoing::event(&command(&format!("k{n}"), 0, "ok"), "test", None).unwrap().to_partition(0)),
    );
    stack.send_records(records).await;
    let stop = CancellationToken::new();
    let handle = spawn(Echo::new(Lanes::PerKey { parallel: 1, max_batch: 8 }), config, stop.clone());
    assert_eq!(sources(&stack, 20).await.len(), 20);
    assert_eq!(stack.lag("echo", TOPIC).await, 21, "nothing behind the first is committed");
    stop.cancel();
    handle.join().await.unwrap();
    assert_eq!(stack.lag("echo", TOPIC).await, 21);
}

#[tokio::test]
async fn given_a_worker_that_can_not_go_on_then_it_stops_with_the_reason_and_loses_nothing() {
    let stack = Stack::start().await;
    stack.send(&[command("a", 0, "fatal")]).await;
    let handle = spawn(Echo::new(PER_KEY), stack.config(), CancellationToken::new());
    eventually("the end", || async { handle.is_finished().then_some(()) }).await;
    assert_eq!(handle.status().state, WorkerState::Failed);
    assert!(handle.status().stalled(Duration::from_secs(3600)));
    let error = handle.join().await.unwrap_err();
    assert_eq!(error.to_string(), "worker echo can't go on: the store is gone (no_store)");
    assert_eq!(stack.lag("echo", TOPIC).await, 1);
    assert!(stack.letters(TOPIC).await.is_empty());
}

/// A topic's limit counts compressed bytes, so a small batch may hold a record that is larger than any letter.
#[tokio::test]
async fn given_garbage_that_is_small_only_when_compressed_then_its_letter_holds_the_beginning_and_the_next_event_is_handled()
 {
    const BYTES: usize = 6 << 20;
    for (lanes, mode) in every_way() {
        let stack = Stack::start().await;
        let mut log = stack.log().clone();
        log.extra.insert("compression.type".to_owned(), "zstd".to_owned());
        let packing = Producer::new(&log).unwrap();
        packing.send_one(raw("large", Some(vec![b'x'; BYTES])).to_partition(0)).await.unwrap();
        let good = Outgoing::event(&command("d", 0, "ok"), "test", None).unwrap().to_partition(0);
        stack.send_records(vec![good]).await;
        let stop = CancellationToken::new();
        let handle = spawn(Echo { mode, ..Echo::new(lanes) }, stack.config(), stop.clone());
        assert_eq!(sources(&stack, 1).await, ["d/0/ok"], "{lanes:?} {mode:?}");
        stack.drained("echo", TOPIC).await;
        let letters = stack.letters(TOPIC).await;
        assert_eq!(letters.iter().map(|letter| letter.code.as_str()).collect::<Vec<_>>(), ["bad_frame"]);
        assert_eq!(letters[0].whole_bytes, Some(BYTES + "large".len()));
        let kept = letters[0].payload.as_deref().unwrap();
        assert!((1 << 20..BYTES).contains(&kept.len()) && kept.iter().all(|byte| *byte == b'x'));
        let refused = stack.dead_letters().redrive(&letters[0].id, false).await.unwrap_err();
        assert_eq!(refused.code(), "event_too_large");
        stop.cancel();
        handle.join().await.unwrap();
    }
}

#[tokio::test]
async fn given_a_dead_letter_when_sent_again_then_its_bytes_are_handled_anew_and_the_letter_is_marked() {
    let stack = Stack::start().await;
    stack.send(&[command("a", 0, "retry-3"), command("b", 0, "poison")]).await;
    let stop = CancellationToken::new();
    let handle = spawn(Echo::new(PER_KEY), stack.config(), stop.clone());
    stack.drained("echo", TOPIC).await;
    let letters = stack.letters(TOPIC).await;
    let busy = letters.iter().find(|l| l.code == "busy").unwrap();
    let poison = letters.iter().find(|l| l.code == "bad_document").unwrap();

    let desk = stack.dead_letters();
    desk.redrive(&busy.id, false).await.unwrap();
    desk.drop_letter(&poison.id).await.unwrap();
    assert_eq!(desk.redrive(&busy.id, false).await.unwrap_err().code(), "not_found", "not twice by accident");
    assert_eq!(
        sources(&stack, 3).await,
        ["a/0/retry-3", "a/0/retry-3 failed: busy", "b/0/poison failed: bad_document"]
    );
    let states: Vec<_> = stack.letters(TOPIC).await.into_iter().map(|l| (l.id, l.state)).collect();
    assert!(
        states.contains(&(busy.id.clone(), LetterState::Redriven))
            && states.contains(&(poison.id.clone(), LetterState::Dropped))
    );
    assert_eq!(states.len(), 2);
    stop.cancel();
    handle.join().await.unwrap();
}

#[tokio::test]
async fn given_the_same_batch_twice_then_the_ids_of_its_outputs_are_the_same() {
    let outputs = twice(&Echo::new(PER_KEY), [command("a", 0, "ok"), command("b", 0, "ok")]).await;
    assert_eq!(outputs.len(), 2);
}
