use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use tempfile::TempDir;

use super::*;
use crate::meta::{Entry, OffsetItem};
use crate::node::Node;
use crate::storage::producers::Beginning;
use crate::wire::batch::{BatchHeader, build_batch};
use crate::{Broker, BrokerConfig};

const TRANSACTIONAL: i16 = 0x10;
const EPOCH: i16 = 4;
const TIMEOUT_MS: i32 = 60_000;

fn producer(id: i64, epoch: i16) -> ProducerIdentity {
    ProducerIdentity { id, epoch }
}

/// A transactional id of producer 9.
fn record(state: TxnState, epoch: i16) -> TxnRecord {
    TxnRecord { state, ..TxnRecord::new("x".into(), 9, epoch, TIMEOUT_MS, 0) }
}

fn ongoing(epoch: i16) -> TxnRecord {
    let mut record = record(TxnState::Empty, epoch).begun(5);
    record.partitions.insert(("t".into(), 0));
    record
}

#[test]
fn given_every_state_when_its_end_is_asked_for_by_protocol_2_then_epochs_tell_repetitions() {
    use ResponseError::{ConcurrentTransactions, InvalidTxnState, ProducerFenced};
    use TxnState::{CompleteAbort, CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit};
    let (decide, reached) = (Ok(Ending::Decide), Ok(Ending::Reached));
    let (concurrent, invalid, fenced) = (Err(ConcurrentTransactions), Err(InvalidTxnState), Err(ProducerFenced));
    // For each state: an abort of the epoch before and of the present one, a commit of both.
    for (state, aborts, commits) in [
        (Empty, [fenced, decide], [fenced, invalid]),
        (Ongoing, [fenced, decide], [fenced, decide]),
        (PrepareAbort, [concurrent, fenced], [invalid, fenced]),
        (PrepareCommit, [invalid, fenced], [concurrent, fenced]),
        (CompleteAbort, [reached, decide], [invalid, invalid]),
        (CompleteCommit, [invalid, decide], [reached, invalid]),
    ] {
        let record = record(state, EPOCH);
        for (commit, expected) in [(false, aborts), (true, commits)] {
            for (epoch, expected) in [EPOCH - 1, EPOCH].into_iter().zip(expected) {
                let ending = record.ending(producer(9, epoch), commit, Protocol::Two);
                assert_eq!(ending, expected, "{state:?}, commit: {commit}, epoch {epoch}");
            }
            for epoch in [EPOCH - 2, EPOCH + 1] {
                assert_eq!(record.ending(producer(9, epoch), commit, Protocol::Two), fenced, "{state:?} epoch {epoch}");
            }
            let stranger = record.ending(producer(8, EPOCH), commit, Protocol::Two);
            assert_eq!(stranger, Err(ResponseError::InvalidProducerIdMapping));
        }
    }
}

#[test]
fn given_a_client_of_protocol_1_when_it_ends_a_transaction_then_its_epoch_stays() {
    let record = ongoing(EPOCH);
    assert_eq!(record.ending(producer(9, EPOCH), true, Protocol::One), Ok(Ending::Decide));
    let completed = record.decided(true, Protocol::One, NO_ID, 7).completed(8);
    assert_eq!((completed.state, completed.producer()), (TxnState::CompleteCommit, producer(9, EPOCH)));
    assert_eq!(completed.ending(producer(9, EPOCH), true, Protocol::One), Ok(Ending::Reached));
    assert_eq!(completed.ending(producer(9, EPOCH - 1), true, Protocol::One), Err(ResponseError::ProducerFenced));
    assert_eq!(completed.ending(producer(9, EPOCH), false, Protocol::One), Err(ResponseError::InvalidTxnState));
}

#[test]
fn given_a_transaction_of_protocol_2_when_decided_then_the_epoch_is_raised_before_the_markers() {
    for commit in [true, false] {
        let prepared = ongoing(EPOCH).decided(commit, Protocol::Two, NO_ID, 7);
        assert_eq!(prepared.producer(), producer(9, EPOCH + 1), "this is what markers carry");
        assert_eq!((prepared.partitions.len(), prepared.started_ms), (1, 5));
        assert_eq!(prepared.completed(8).producer(), producer(9, EPOCH + 1));
    }
}

#[test]
fn given_the_last_epoch_when_its_transaction_ends_then_another_producer_id_comes_and_the_request_may_be_repeated() {
    let prepared = ongoing(MAX_EPOCH).decided(true, Protocol::Two, 77, 7);
    assert_eq!(prepared.producer(), producer(9, i16::MAX), "the markers end the last epoch, too");
    let last = producer(9, MAX_EPOCH);
    let concurrent = Err(ResponseError::ConcurrentTransactions);
    assert_eq!(prepared.ending(last, true, Protocol::Two), concurrent);
    let completed = prepared.completed(8);
    assert_eq!(completed.producer(), producer(77, 0));
    assert_eq!(completed.ending(last, true, Protocol::Two), Ok(Ending::Reached));
    assert_eq!(completed.ending(last, false, Protocol::Two), Err(ResponseError::InvalidTxnState));
    let unknown = Err(ResponseError::InvalidProducerIdMapping);
    assert_eq!(completed.ending(producer(9, MAX_EPOCH - 1), true, Protocol::Two), unknown);
    assert_eq!(completed.begun(9).ending(last, true, Protocol::Two), Err(ResponseError::ProducerFenced));
}

#[test]
fn given_transactions_when_listed_by_duration_then_ended_ones_count_from_their_beginning_and_unused_ids_always() {
    let ended = ongoing(EPOCH).decided(true, Protocol::Two, NO_ID, 20).completed(30);
    for record in [ongoing(EPOCH), ended.clone()] {
        assert_eq!(record.started_ms, 5);
        for (duration, lasted) in [(-1, true), (0, true), (94, true), (95, false), (i64::MAX, false)] {
            assert_eq!(record.has_lasted(100, duration), lasted, "{:?} {duration}", record.state);
        }
    }
    let empty_abort = ended.decided(false, Protocol::Two, NO_ID, 40);
    assert_eq!(empty_abort.started_ms, 40, "nothing was added to it before");
    let unused = ended.initialized_again(TIMEOUT_MS, 50);
    assert!(unused.started_ms == -1 && unused.has_lasted(100, 100));
}

#[test]
fn given_a_producer_that_was_fenced_when_it_ends_its_transaction_then_it_may_only_abort_what_is_aborted() {
    let fenced = ongoing(EPOCH).fenced(7).completed(8);
    assert_eq!((fenced.state, fenced.epoch), (TxnState::CompleteAbort, EPOCH + 1));
    assert_eq!(fenced.ending(producer(9, EPOCH), false, Protocol::Two), Ok(Ending::Reached));
    assert_eq!(fenced.ending(producer(9, EPOCH), true, Protocol::Two), Err(ResponseError::InvalidTxnState));
    assert_eq!(fenced.ending(producer(9, EPOCH), false, Protocol::One), Err(ResponseError::ProducerFenced));
    assert!(!fenced.is_former_self(producer(9, EPOCH)), "it was not the one who got the epoch");
    // The epoch beyond the highest is given to nobody.
    let fenced = ongoing(MAX_EPOCH).fenced(7).completed(8);
    assert_eq!(fenced.ending(producer(9, MAX_EPOCH), false, Protocol::Two), Err(ResponseError::ProducerFenced));
    // And a successor fences for good.
    let successor = fenced.initialized(producer(9, EPOCH + 2), NO_EPOCH, TIMEOUT_MS, 9);
    assert_eq!(successor.ending(producer(9, EPOCH), false, Protocol::Two), Err(ResponseError::ProducerFenced));
}

#[test]
fn given_a_record_of_before_protocol_2_when_read_then_it_is_one_without_any_other_producer() {
    let old = r#"{"Txn":{"id":"x","producer_id":9,"epoch":4,"timeout_ms":60000,"state":"Ongoing","partitions":[["t",0]],
        "groups":["g"],"offsets":{"g":[]},"started_ms":5,"updated_ms":5}}"#;
    let Ok(Entry::Txn(read)) = serde_json::from_str(old) else { panic!("an old entry is not read") };
    assert_eq!(read.producer(), producer(9, 4));
    assert_eq!((read.previous_producer_id, read.next_producer_id, read.last_epoch), (NO_ID, NO_ID, NO_EPOCH));
    assert!(!read.is_former_self(producer(9, NO_EPOCH)) && !read.is_former_self(producer(NO_ID, NO_EPOCH)));
    let again = serde_json::from_str(&serde_json::to_string(&Entry::Txn(read.clone())).unwrap());
    assert!(matches!(again, Ok(Entry::Txn(written)) if written == read));
}

async fn broker(folder: &TempDir) -> (Broker, Arc<Node>) {
    let config = BrokerConfig::new(folder.path()).listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    let broker = Broker::start(config).await.unwrap();
    let node = broker.node.clone();
    if node.topics.get("t").is_none() {
        node.create_topic("t", 1, BTreeMap::new(), false).await.unwrap();
    }
    (broker, node)
}

fn state_of(node: &Node, id: &str) -> (TxnState, ProducerIdentity) {
    let meta = node.journal.lock();
    let record = &meta.txns[id];
    (record.state, record.producer())
}

#[tokio::test]
async fn given_a_producer_when_it_asks_again_for_an_epoch_that_it_was_given_then_it_gets_the_same() {
    let folder = TempDir::new().unwrap();
    let (broker, node) = broker(&folder).await;
    let first = coordinator::init_producer(&node, "x", TIMEOUT_MS, None).await.unwrap();
    let second = coordinator::init_producer(&node, "x", TIMEOUT_MS, Some(first)).await.unwrap();
    assert_eq!(second, producer(first.id, first.epoch + 1));
    assert_eq!(coordinator::init_producer(&node, "x", TIMEOUT_MS, Some(first)).await, Ok(second), "asked again");
    let successor = coordinator::init_producer(&node, "x", TIMEOUT_MS, None).await.unwrap();
    assert_eq!(successor.epoch, second.epoch + 1);
    let refused = coordinator::init_producer(&node, "x", TIMEOUT_MS, Some(second)).await;
    assert_eq!(refused, Err(ResponseError::ProducerFenced), "somebody else has the epoch");
    drop(node);
    broker.shutdown().await;
}

#[tokio::test]
async fn given_the_last_epoch_when_the_broker_ends_its_transaction_then_the_new_id_is_kept_through_a_start() {
    let folder = TempDir::new().unwrap();
    let (before, node) = broker(&folder).await;
    let first = coordinator::init_producer(&node, "x", TIMEOUT_MS, None).await.unwrap();
    let worn = TxnRecord::new("x".into(), first.id, MAX_EPOCH, TIMEOUT_MS, crate::clock::now_ms());
    node.journal.record(Entry::Txn(worn)).await.unwrap();
    let last = producer(first.id, MAX_EPOCH);
    coordinator::add_partitions(&node, "x", last, vec![("t".into(), 0)]).await.unwrap();
    let next = coordinator::end(&node, "x", last, true, Protocol::Two).await.unwrap();
    assert!(next.id != first.id && next.epoch == 0, "{next:?}");
    assert_eq!(coordinator::end(&node, "x", last, true, Protocol::Two).await, Ok(next), "repeated");
    drop(node);
    before.shutdown().await;
    let (after, node) = broker(&folder).await;
    assert_eq!(state_of(&node, "x"), (TxnState::CompleteCommit, next));
    assert_eq!(coordinator::end(&node, "x", last, true, Protocol::Two).await, Ok(next), "repeated after a start");
    coordinator::add_partitions(&node, "x", next, vec![("t".into(), 0)]).await.unwrap();
    let late = coordinator::add_partitions(&node, "x", last, vec![("t".into(), 0)]).await;
    assert_eq!(late, Err(ResponseError::InvalidProducerIdMapping));
    drop(node);
    after.shutdown().await;
}

#[tokio::test]
async fn given_clients_of_both_protocols_when_they_take_turns_under_one_id_then_each_goes_on_where_the_other_was() {
    let folder = TempDir::new().unwrap();
    let (broker, node) = broker(&folder).await;
    let mut last = producer(NO_ID, NO_EPOCH);
    for (turn, protocol) in [Protocol::One, Protocol::Two, Protocol::One, Protocol::Two].into_iter().enumerate() {
        let begun = coordinator::init_producer(&node, "x", TIMEOUT_MS, None).await.unwrap();
        assert_eq!(begun.epoch, last.epoch + 1, "turn {turn}");
        let raised = i16::from(protocol == Protocol::Two);
        let mut own = begun;
        for commit in [true, false] {
            coordinator::add_partitions(&node, "x", own, vec![("t".into(), 0)]).await.unwrap();
            let next = coordinator::end(&node, "x", own, commit, protocol).await.unwrap();
            assert_eq!(next, producer(own.id, own.epoch + raised), "turn {turn}");
            assert_eq!(coordinator::end(&node, "x", own, commit, protocol).await, Ok(next), "repeated in turn {turn}");
            own = next;
        }
        last = own;
    }
    drop(node);
    broker.shutdown().await;
}

/// Queues a record of the producer within its transaction, past the coordinator.
fn write(node: &Node, producer: ProducerIdentity, sequence: i32) {
    let header = BatchHeader {
        base_offset: 0,
        size: 0,
        attributes: TRANSACTIONAL,
        last_offset_delta: 0,
        base_timestamp: 1_000,
        max_timestamp: 1_000,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        base_sequence: sequence,
        records: 1,
    };
    let bytes = build_batch(&header, &[16, 0, 0, 0, 2, b'k', 2, b'v', 0]);
    let header = BatchHeader::parse_checked(&bytes).unwrap();
    let partition = node.topics.partition("t", 0).unwrap();
    partition.append(header, BytesMut::from(&bytes[..]), None, Beginning::Anywhere).unwrap();
}

#[tokio::test]
async fn given_a_decided_transaction_that_two_carry_out_when_the_next_one_has_begun_then_the_slower_leaves_it_alone() {
    let folder = TempDir::new().unwrap();
    let (broker, node) = broker(&folder).await;
    let own = coordinator::init_producer(&node, "x", TIMEOUT_MS, None).await.unwrap();
    let part = vec![("t".to_owned(), 0)];
    coordinator::add_partitions(&node, "x", own, part.clone()).await.unwrap();
    write(&node, own, 0);
    let prepared = node.journal.lock().txns["x"].decided(true, Protocol::One, NO_ID, 1);
    node.journal.record(Entry::Txn(prepared.clone())).await.unwrap();
    let inherited = coordinator::inherit(&node);
    coordinator::finish(&node, prepared).await.unwrap();
    // Under protocol 1 the epoch stays, so that a marker would fit.
    coordinator::add_partitions(&node, "x", own, part).await.unwrap();
    write(&node, own, 1);
    coordinator::resume(&node, inherited).await;
    assert_eq!(state_of(&node, "x"), (TxnState::Ongoing, own));
    assert!(node.topics.partition("t", 0).unwrap().is_within_transaction(own.id, own.epoch));
    drop(node);
    broker.shutdown().await;
}

#[tokio::test]
async fn given_a_decided_transaction_when_the_group_of_its_offsets_is_deleted_meanwhile_then_it_is_carried_out_all_the_same()
 {
    let folder = TempDir::new().unwrap();
    let (broker, node) = broker(&folder).await;
    let own = coordinator::init_producer(&node, "x", TIMEOUT_MS, None).await.unwrap();
    coordinator::add_partitions(&node, "x", own, vec![("t".into(), 0)]).await.unwrap();
    let metadata = String::new();
    let item = OffsetItem { topic: "t".into(), partition: 0, offset: 1, leader_epoch: -1, metadata, committed_ms: 1 };
    coordinator::add_offsets(&node, "x", own, "g", vec![item], Protocol::Two).await.unwrap();
    write(&node, own, 0);
    let prepared = node.journal.lock().txns["x"].decided(true, Protocol::One, NO_ID, 1);
    node.journal.record(Entry::Txn(prepared.clone())).await.unwrap();
    node.journal.record(Entry::GroupDeleted { group: "g".into() }).await.unwrap();
    coordinator::finish(&node, prepared).await.unwrap();
    assert_eq!(state_of(&node, "x"), (TxnState::CompleteCommit, own));
    assert!(!node.topics.partition("t", 0).unwrap().is_within_transaction(own.id, own.epoch));
    assert!(node.journal.lock().offset("g", "t", 0).is_none());
    drop(node);
    broker.shutdown().await;
}

#[tokio::test]
async fn given_records_without_their_transaction_when_a_start_serves_its_first_client_then_their_end_is_queued_before()
{
    let folder = TempDir::new().unwrap();
    let (before, node) = broker(&folder).await;
    let lost = coordinator::init_producer(&node, "x", TIMEOUT_MS, None).await.unwrap();
    write(&node, lost, 0);
    drop(node);
    before.shutdown().await;
    let (after, node) = broker(&folder).await;
    let partition = node.topics.partition("t", 0).unwrap();
    assert!(!partition.is_within_transaction(lost.id, lost.epoch), "it is ended, if perhaps not yet on the disk");
    let own = coordinator::init_producer(&node, "x", TIMEOUT_MS, None).await.unwrap();
    coordinator::add_partitions(&node, "x", own, vec![("t".into(), 0)]).await.unwrap();
    write(&node, own, 0);
    coordinator::end(&node, "x", own, true, Protocol::One).await.unwrap();
    assert_eq!(partition.aborted_in(0, i64::MAX).len(), 1, "what was lost is not committed with it");
    drop((partition, node));
    after.shutdown().await;
}

#[tokio::test]
async fn given_a_transactional_id_without_a_name_when_it_is_used_then_the_request_is_invalid() {
    let folder = TempDir::new().unwrap();
    let (broker, node) = broker(&folder).await;
    let (nobody, part) = (producer(1, 0), vec![("t".to_owned(), 0)]);
    for (id, expected) in [("", ResponseError::InvalidRequest), ("unknown", ResponseError::InvalidProducerIdMapping)] {
        assert_eq!(coordinator::verify(&node, id, nobody, &part), Err(expected));
        assert_eq!(coordinator::add_partitions(&node, id, nobody, part.clone()).await, Err(expected));
        assert_eq!(coordinator::end(&node, id, nobody, true, Protocol::Two).await, Err(expected));
    }
    drop(node);
    broker.shutdown().await;
}
