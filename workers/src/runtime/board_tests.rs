use std::time::Duration;

use riverrun_log::{LogConfig, Producer};

use super::*;

fn partition(number: i32) -> TopicPartition {
    TopicPartition::new("t", number)
}

fn record(number: i32, offset: i64, key: &'static str) -> Record {
    let payload = Some(Bytes::from_static(b"12345678"));
    Record {
        topic: "t".into(),
        partition: number,
        offset,
        key: Some(Bytes::from_static(key.as_bytes())),
        payload,
        headers: vec![],
        timestamp_ms: 0,
    }
}

fn config() -> RuntimeConfig {
    let log = LogConfig::new("127.0.0.1:1", "test");
    RuntimeConfig::new(log.clone(), Producer::new(&log).unwrap())
}

fn board(lanes: Lanes, mode: DeliveryMode, config: &RuntimeConfig) -> Board {
    let mut board = Board::new(lanes, mode, config);
    board.open(partition(0), 0);
    board.open(partition(1), 0);
    board
}

fn per_key(max_batch: usize) -> Lanes {
    Lanes::PerKey { parallel: 4, max_batch }
}

fn offsets(batch: &Batch) -> Vec<i64> {
    batch.records.iter().map(|r| r.offset).collect()
}

fn push(board: &mut Board, records: &[(i64, &'static str)], now: Instant) {
    for (offset, key) in records {
        assert!(board.push(record(0, *offset, key), now));
    }
}

fn finish(board: &mut Board, batch: &Batch) {
    board.end(&batch.lane, &Taken::of(&batch.records), Some(vec![]));
}

fn due(board: &mut Board) -> Vec<(i32, i64)> {
    let mut due: Vec<_> = board.due(None).offsets.into_iter().map(|o| (o.partition.partition, o.offset)).collect();
    due.sort_unstable();
    due
}

fn output(name: &str) -> Outgoing {
    Outgoing {
        topic: "out".into(),
        partition: None,
        key: Some(Bytes::copy_from_slice(name.as_bytes())),
        payload: None,
        headers: vec![],
    }
}

#[test]
fn given_two_keys_then_each_is_one_lane_in_order_and_they_run_beside_each_other() {
    let now = Instant::now();
    let mut board = board(per_key(8), DeliveryMode::AtLeastOnce, &config());
    for (offset, key) in [(0, "a"), (1, "b"), (2, "a")] {
        assert!(board.push(record(0, offset, key), now));
    }
    let a = board.next_batch(now).unwrap();
    let b = board.next_batch(now).unwrap();
    assert_eq!((offsets(&a), offsets(&b)), (vec![0, 2], vec![1]));
    board.push(record(0, 3, "a"), now);
    assert!(board.next_batch(now).is_none(), "a lane has one batch in work");
    finish(&mut board, &b);
    assert!(due(&mut board).is_empty(), "offset 0 is in work");
    finish(&mut board, &a);
    assert_eq!(due(&mut board), [(0, 3)]);
    assert_eq!(offsets(&board.next_batch(now).unwrap()), [3]);
}

#[test]
fn given_a_lane_per_partition_then_a_small_batch_waits_and_a_full_one_does_not() {
    let (now, max_wait) = (Instant::now(), Duration::from_millis(50));
    let mut board = board(Lanes::PerPartition { max_batch: 2, max_wait }, DeliveryMode::AtLeastOnce, &config());
    board.push(record(0, 0, "a"), now);
    assert!(board.next_batch(now).is_none());
    assert_eq!(board.next_ripe(now), Some(now + max_wait));
    assert_eq!(offsets(&board.next_batch(now + max_wait).unwrap()), [0]);
    for offset in 0..3 {
        board.push(record(1, offset, "b"), now);
    }
    assert_eq!(offsets(&board.next_batch(now).unwrap()), [0, 1]);
}

#[test]
fn given_too_many_records_bytes_or_offsets_then_partitions_pause_and_resume_at_half() {
    let now = Instant::now();
    let limited = RuntimeConfig { queue_records: 4, ..config() };
    let mut board = board(per_key(1), DeliveryMode::AtLeastOnce, &limited);
    for offset in 0..4 {
        board.push(record(0, offset, "a"), now);
    }
    assert_eq!(board.pressure(), (vec![partition(0)], vec![]));
    assert_eq!(board.pressure(), (vec![], vec![]), "told once");
    for expected in [vec![], vec![partition(0)]] {
        let batch = board.next_batch(now).unwrap();
        finish(&mut board, &batch);
        assert_eq!(board.pressure(), (vec![], expected));
    }

    let limited = RuntimeConfig { queue_bytes: 20, ..config() };
    let mut board = self::board(per_key(1), DeliveryMode::AtLeastOnce, &limited);
    push(&mut board, &[(0, "a"), (1, "a"), (2, "a")], now);
    assert_eq!(board.pressure().0.len(), 2, "bytes are counted over all partitions");

    let limited = RuntimeConfig { window: 100, ..config() };
    let mut board = self::board(per_key(1), DeliveryMode::AtLeastOnce, &limited);
    push(&mut board, &[(0, "a"), (100, "a")], now);
    assert_eq!(board.pressure().0, [partition(0)]);
}

#[test]
fn given_a_partition_that_left_and_came_back_then_what_is_left_of_its_first_stay_counts_no_more() {
    let now = Instant::now();
    let mut board = board(per_key(1), DeliveryMode::AtLeastOnce, &config());
    board.push(record(0, 0, "a"), now);
    let stale = board.next_batch(now).unwrap();
    board.begin_close(&[partition(0)]);
    assert!(stale.quiet.is_cancelled());
    assert!(board.busy(&[partition(0)]) && !board.push(record(0, 1, "a"), now));
    board.close(&[partition(0)]);
    board.open(partition(0), 0);
    board.push(record(0, 0, "a"), now);
    finish(&mut board, &stale);
    assert!(due(&mut board).is_empty());
    assert_eq!(offsets(&board.next_batch(now).unwrap()), [0]);
}

#[test]
fn given_a_batch_that_was_abandoned_then_its_offsets_hold_the_watermark() {
    let now = Instant::now();
    let mut board = board(per_key(1), DeliveryMode::AtLeastOnce, &config());
    push(&mut board, &[(0, "a"), (1, "b")], now);
    let (a, b) = (board.next_batch(now).unwrap(), board.next_batch(now).unwrap());
    board.end(&a.lane, &Taken::of(&a.records), None);
    finish(&mut board, &b);
    assert!(due(&mut board).is_empty());
}

#[test]
fn given_transactions_then_outputs_wait_until_everything_before_them_is_done_and_go_out_once() {
    let now = Instant::now();
    let mut board = board(per_key(8), DeliveryMode::Transactional, &config());
    push(&mut board, &[(0, "a"), (1, "b"), (2, "b")], now);
    let (a, b) = (board.next_batch(now).unwrap(), board.next_batch(now).unwrap());
    assert_eq!(offsets(&b), [1], "batches are of one record");
    board.end(&b.lane, &Taken::of(&b.records), Some(vec![output("b")]));
    assert!(board.due(None).outputs.is_empty());
    board.end(&a.lane, &Taken::of(&a.records), Some(vec![output("a")]));
    let first = board.due(None);
    assert_eq!(first.outputs, [output("a"), output("b")]);
    assert_eq!(board.due(None).outputs.len(), 2, "a failed transaction is tried again");
    board.committed(&first.offsets);
    assert!(!board.is_due());
    let b2 = board.next_batch(now).unwrap();
    board.end(&b2.lane, &Taken::of(&b2.records), Some(vec![output("b2")]));
    assert_eq!(board.due(None).outputs, [output("b2")]);
}

#[test]
fn given_a_closing_partition_then_what_lies_before_work_begun_is_still_done_and_the_rest_is_forgotten() {
    let now = Instant::now();
    let mut board = board(per_key(1), DeliveryMode::AtLeastOnce, &config());
    for (offset, key) in [(0, "a"), (1, "a"), (2, "b"), (3, "a"), (4, "b")] {
        board.push(record(0, offset, key), now);
    }
    let (a0, b2) = (board.next_batch(now).unwrap(), board.next_batch(now).unwrap());
    board.begin_stop();
    finish(&mut board, &b2);
    finish(&mut board, &a0);
    let a1 = board.next_batch(now).unwrap();
    assert_eq!(offsets(&a1), [1], "before 2, which is done");
    assert!(!board.idle());
    finish(&mut board, &a1);
    assert!(board.next_batch(now).is_none() && board.idle());
    assert_eq!(due(&mut board), [(0, 3)]);
}

#[test]
fn given_a_batch_left_out_then_nothing_of_its_lane_overtakes_it() {
    let now = Instant::now();
    let mut board = board(per_key(1), DeliveryMode::AtLeastOnce, &config());
    push(&mut board, &[(0, "a"), (1, "a"), (2, "b")], now);
    let (a0, _b2) = (board.next_batch(now).unwrap(), board.next_batch(now).unwrap());
    board.begin_stop();
    board.end(&a0.lane, &Taken::of(&a0.records), None);
    assert!(board.next_batch(now).is_none());
}

#[test]
fn given_marks_behind_the_last_record_when_it_is_done_then_they_are_committed_with_it_and_not_before() {
    let now = Instant::now();
    let mut board = board(per_key(1), DeliveryMode::AtLeastOnce, &config());
    push(&mut board, &[(0, "a")], now);
    board.passed(&partition(0), 2);
    board.passed(&partition(1), 3);
    board.passed(&partition(7), 3);
    assert_eq!(due(&mut board), [(1, 3)], "what is not handled stays");
    let batch = board.next_batch(now).unwrap();
    finish(&mut board, &batch);
    assert_eq!(due(&mut board), [(0, 2), (1, 3)]);
}

#[test]
fn given_a_partition_on_its_way_out_when_its_end_is_told_then_what_was_turned_away_is_not_passed() {
    let now = Instant::now();
    let mut board = board(per_key(1), DeliveryMode::AtLeastOnce, &config());
    board.begin_close(&[partition(0)]);
    assert!(!board.push(record(0, 0, "a"), now));
    board.passed(&partition(0), 2);
    assert!(due(&mut board).is_empty());
}
