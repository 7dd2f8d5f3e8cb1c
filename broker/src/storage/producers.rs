//! What a partition knows of its producers: sequence numbers, epochs, open and aborted transactions.
//!
//! The rules are those of Apache Kafka's `ProducerStateManager`. A partition keeps two of these tables: one that includes
//! what is queued (against which new batches are checked) and one that includes only what is durable (from which readers
//! are served); a failed write throws the first away and starts again from the second.

use std::collections::{BTreeMap, HashMap, VecDeque};

use kafka_protocol::ResponseError;
use serde::{Deserialize, Serialize};

use crate::wire::batch::{BatchHeader, COORDINATOR_EPOCH, Marker, advance_sequence};

/// Batches remembered per producer for the recognition of duplicates.
pub(crate) const REMEMBERED_BATCHES: usize = 5;

/// A batch that a producer has appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenBatch {
    first_sequence: i32,
    last_sequence: i32,
    base_offset: i64,
    last_offset: i64,
}

/// One producer in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Producer {
    /// Its newest epoch.
    pub epoch: i16,
    /// Offset of the first record of its open transaction.
    pub open_since: Option<i64>,
    /// Broker time of its last batch, milliseconds since 1970.
    pub last_ms: i64,
    /// Greatest time of the records of its last batch, or that of its last marker; -1 if there is none, or a checkpoint of before
    /// this field has no word of it.
    #[serde(default = "unknown_time")]
    pub last_timestamp: i64,
    /// Epoch of the coordinator that wrote its last marker, -1 before the first.
    #[serde(default = "unknown_epoch")]
    pub coordinator_epoch: i32,
    seen: VecDeque<SeenBatch>,
}

fn unknown_time() -> i64 {
    -1
}
fn unknown_epoch() -> i32 {
    -1
}

impl Producer {
    /// Sequence number of its last record, -1 if unknown.
    pub(crate) fn last_sequence(&self) -> i32 {
        self.seen.back().map_or(-1, |batch| batch.last_sequence)
    }

    /// Whether a batch goes on where this producer is; `first` is the answer where nothing is known of its epoch.
    fn admit(&self, header: &BatchHeader, first: Result<Admission, ResponseError>) -> Result<Admission, ResponseError> {
        if header.producer_epoch < self.epoch {
            return Err(ResponseError::InvalidProducerEpoch);
        }
        if header.producer_epoch > self.epoch {
            return if header.base_sequence == 0 {
                Ok(Admission::New)
            } else {
                Err(ResponseError::OutOfOrderSequenceNumber)
            };
        }
        let (from, to) = (header.base_sequence, header.last_sequence());
        if let Some(seen) = self.seen.iter().find(|seen| seen.first_sequence == from && seen.last_sequence == to) {
            return Ok(Admission::Duplicate { base_offset: seen.base_offset, last_offset: seen.last_offset });
        }
        match self.seen.back() {
            None => first,
            Some(seen) if from == advance_sequence(seen.last_sequence, 1) => Ok(Admission::New),
            Some(_) => Err(ResponseError::OutOfOrderSequenceNumber),
        }
    }
}

/// A transaction that ended in an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Aborted {
    /// Whose.
    pub producer_id: i64,
    /// Its first record.
    pub first_offset: i64,
    /// The marker that ended it.
    pub last_offset: i64,
}

/// What a check of a new batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Append it.
    New,
    /// It is there already.
    Duplicate {
        /// Where it begins.
        base_offset: i64,
        /// Where it ends.
        last_offset: i64,
    },
}

/// Where the sequence numbers of a producer begin of which nothing is known under its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// Anywhere: what came before may have been forgotten.
    Anywhere,
    /// At 0: the epoch is that of this transaction alone (transaction protocol 2), so that a batch with a higher number has
    /// overtaken another one that was refused.
    AtZero,
}

/// All producers of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    by_id: HashMap<i64, Producer>,
    /// First offset of each open transaction → its producer.
    open: BTreeMap<i64, i64>,
    aborted: Vec<Aborted>,
}

/// The form in which a table is kept in a segment's checkpoint.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    producers: Vec<(i64, Producer)>,
    aborted: Vec<Aborted>,
}

impl Producers {
    /// Whether a client's batch may be appended. `header` need not have its final offset.
    pub(crate) fn admit(&self, header: &BatchHeader, beginning: Beginning) -> Result<Admission, ResponseError> {
        let begins_well = beginning == Beginning::Anywhere || header.base_sequence == 0;
        let first = if begins_well { Ok(Admission::New) } else { Err(ResponseError::OutOfOrderSequenceNumber) };
        let Some(known) = self.by_id.get(&header.producer_id) else { return first };
        let admission = known.admit(header, first)?;
        // It would be hidden until the transaction ends, and go with it if that is an abort.
        if admission == Admission::New && known.open_since.is_some() && !header.is_transactional() {
            return Err(ResponseError::InvalidTxnState);
        }
        // What an earlier epoch has left open would be decided with this transaction. A start ends it, and tries on until it can.
        let inherits = known.open_since.is_some() && header.producer_epoch > known.epoch;
        if admission == Admission::New && inherits { Err(ResponseError::KafkaStorageError) } else { Ok(admission) }
    }

    /// Whether this producer has a transaction open here, under this epoch.
    pub(crate) fn is_within_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        self.by_id.get(&producer_id).is_some_and(|known| known.epoch == epoch && known.open_since.is_some())
    }

    /// Whether a marker of this epoch may be written.
    pub(crate) fn admit_marker(&self, producer_id: i64, epoch: i16) -> Result<(), ResponseError> {
        match self.by_id.get(&producer_id) {
            Some(known) if epoch < known.epoch => Err(ResponseError::InvalidProducerEpoch),
            _ => Ok(()),
        }
    }

    /// Takes an appended batch into account.
    pub(crate) fn apply(&mut self, header: &BatchHeader, marker: Option<Marker>, now_ms: i64) {
        if header.producer_id < 0 {
            return;
        }
        let producer = self.by_id.entry(header.producer_id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            open_since: None,
            last_ms: now_ms,
            last_timestamp: unknown_time(),
            coordinator_epoch: unknown_epoch(),
            seen: VecDeque::new(),
        });
        producer.last_ms = now_ms;
        producer.last_timestamp = header.max_timestamp;
        if header.producer_epoch > producer.epoch {
            producer.epoch = header.producer_epoch;
            producer.seen.clear();
        }
        if header.is_control() {
            producer.coordinator_epoch = COORDINATOR_EPOCH;
            if let Some(first_offset) = producer.open_since.take() {
                self.open.remove(&first_offset);
                if marker == Some(Marker::Abort) {
                    self.aborted.push(Aborted {
                        producer_id: header.producer_id,
                        first_offset,
                        last_offset: header.base_offset,
                    });
                }
            }
            return;
        }
        if producer.seen.len() == REMEMBERED_BATCHES {
            producer.seen.pop_front();
        }
        producer.seen.push_back(SeenBatch {
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
        });
        if header.is_transactional() && producer.open_since.is_none() {
            producer.open_since = Some(header.base_offset);
            self.open.insert(header.base_offset, header.producer_id);
        }
    }

    /// Whose transactions are open: producer ids with their epochs.
    pub(crate) fn open_transactions(&self) -> Vec<(i64, i16)> {
        self.iter().filter(|(_, known)| known.open_since.is_some()).map(|(id, known)| (id, known.epoch)).collect()
    }

    /// First offset that an undecided transaction covers.
    pub(crate) fn first_open(&self) -> Option<i64> {
        self.open.keys().next().copied()
    }

    /// Aborted transactions with records in `from..until`.
    pub(crate) fn aborted_in(&self, from: i64, until: i64) -> impl Iterator<Item = Aborted> {
        // Markers are appended in offset order, so the list is sorted by last offset.
        let start = self.aborted.partition_point(|aborted| aborted.last_offset < from);
        self.aborted[start..].iter().copied().filter(move |aborted| aborted.first_offset < until)
    }

    /// Every producer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Producer)> {
        self.by_id.iter().map(|(id, producer)| (*id, producer))
    }

    /// Forgets what lies before the start of the log, and idle producers that last wrote before `idle_before_ms`.
    pub(crate) fn trim(&mut self, log_start: i64, idle_before_ms: i64) {
        self.aborted.retain(|aborted| aborted.last_offset >= log_start);
        self.by_id.retain(|_, producer| producer.open_since.is_some() || producer.last_ms >= idle_before_ms);
    }

    /// Forgets aborted transactions that ended before `offset`, because compaction has removed all their records up to there.
    ///
    /// Nobody needs them any more, and one whose marker is gone too does harm: a reader that is told of it takes whatever the
    /// producer wrote behind it for aborted.
    pub(crate) fn forget_aborted_before(&mut self, offset: i64) {
        self.aborted.retain(|aborted| aborted.last_offset >= offset);
    }

    /// For a checkpoint.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let producers = self.by_id.iter().map(|(id, producer)| (*id, producer.clone())).collect();
        Snapshot { producers, aborted: self.aborted.clone() }
    }
}

impl From<Snapshot> for Producers {
    fn from(snapshot: Snapshot) -> Self {
        let by_id: HashMap<i64, Producer> = snapshot.producers.into_iter().collect();
        let open = by_id.iter().filter_map(|(id, producer)| Some((producer.open_since?, *id))).collect();
        Self { by_id, open, aborted: snapshot.aborted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epoch: i16, sequence: i32, records: i32, offset: i64, attributes: i16) -> BatchHeader {
        BatchHeader {
            base_offset: offset,
            size: 100,
            attributes,
            last_offset_delta: records - 1,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: 9,
            producer_epoch: epoch,
            base_sequence: sequence,
            records,
        }
    }

    #[test]
    fn given_five_batches_when_any_is_repeated_then_its_offset_is_known() {
        let mut producers = Producers::default();
        for i in 0..7 {
            let header = batch(0, i * 2, 2, i64::from(i) * 2, 0);
            assert_eq!(producers.admit(&header, Beginning::Anywhere), Ok(Admission::New));
            producers.apply(&header, None, 0);
        }
        for i in 2..7 {
            let again = producers.admit(&batch(0, i * 2, 2, 0, 0), Beginning::Anywhere);
            let base_offset = i64::from(i) * 2;
            assert_eq!(again, Ok(Admission::Duplicate { base_offset, last_offset: base_offset + 1 }));
        }
        assert_eq!(
            producers.admit(&batch(0, 0, 2, 0, 0), Beginning::Anywhere),
            Err(ResponseError::OutOfOrderSequenceNumber)
        );
        assert_eq!(
            producers.admit(&batch(0, 16, 1, 0, 0), Beginning::Anywhere),
            Err(ResponseError::OutOfOrderSequenceNumber)
        );
    }

    #[test]
    fn given_a_newer_epoch_when_the_old_one_writes_then_it_is_fenced() {
        let mut producers = Producers::default();
        producers.apply(&batch(1, 0, 1, 0, 0), None, 0);
        assert_eq!(
            producers.admit(&batch(0, 1, 1, 0, 0), Beginning::Anywhere),
            Err(ResponseError::InvalidProducerEpoch)
        );
        assert_eq!(
            producers.admit(&batch(2, 5, 1, 0, 0), Beginning::Anywhere),
            Err(ResponseError::OutOfOrderSequenceNumber)
        );
        assert_eq!(producers.admit(&batch(2, 0, 1, 0, 0), Beginning::Anywhere), Ok(Admission::New));
    }

    #[test]
    fn given_an_epoch_of_a_transaction_alone_when_the_first_batch_has_not_come_then_later_ones_are_refused() {
        let mut producers = Producers::default();
        let (early, first) = (batch(3, 1, 1, 0, 0x10), batch(3, 0, 1, 0, 0x10));
        let refused = Err(ResponseError::OutOfOrderSequenceNumber);
        assert_eq!(producers.admit(&early, Beginning::AtZero), refused, "nothing is known of the producer");
        assert_eq!(producers.admit(&early, Beginning::Anywhere), Ok(Admission::New));
        // The marker that ended the transaction before has raised the epoch.
        producers.apply(&batch(3, -1, 1, 0, 0x30), Some(Marker::Commit), 0);
        assert_eq!(producers.admit(&early, Beginning::AtZero), refused, "only a marker is known");
        assert_eq!(producers.admit(&first, Beginning::AtZero), Ok(Admission::New));
        assert!(!producers.is_within_transaction(9, 3));
        producers.apply(&first, None, 0);
        assert!(producers.is_within_transaction(9, 3) && !producers.is_within_transaction(9, 2));
        assert_eq!(producers.admit(&early, Beginning::AtZero), Ok(Admission::New));
        producers.apply(&batch(4, -1, 1, 1, 0x30), Some(Marker::Commit), 0);
        assert_eq!(producers.admit(&early, Beginning::AtZero), Err(ResponseError::InvalidProducerEpoch), "it is late");
    }

    #[test]
    fn given_an_open_transaction_when_its_producer_writes_outside_of_it_then_that_is_refused_until_it_has_ended() {
        let mut producers = Producers::default();
        producers.apply(&batch(0, 0, 1, 0, 0x10), None, 0);
        let outside = batch(0, 1, 1, 1, 0);
        assert_eq!(producers.admit(&outside, Beginning::Anywhere), Err(ResponseError::InvalidTxnState));
        assert_eq!(producers.admit(&batch(0, 1, 1, 1, 0x10), Beginning::Anywhere), Ok(Admission::New));
        producers.apply(&batch(0, -1, 1, 1, 0x30), Some(Marker::Commit), 0);
        assert_eq!(producers.admit(&outside, Beginning::Anywhere), Ok(Admission::New));
    }

    #[test]
    fn given_a_transaction_that_an_earlier_epoch_left_open_when_the_next_one_begins_then_it_waits_for_the_end_of_that()
    {
        let mut producers = Producers::default();
        producers.apply(&batch(1, 0, 1, 0, 0x10), None, 0);
        let next = batch(2, 0, 1, 1, 0x10);
        assert_eq!(producers.admit(&next, Beginning::AtZero), Err(ResponseError::KafkaStorageError));
        assert_eq!(producers.open_transactions(), [(9, 1)]);
        producers.apply(&batch(1, -1, 1, 1, 0x30), Some(Marker::Abort), 0);
        assert_eq!(producers.admit(&next, Beginning::AtZero), Ok(Admission::New));
        assert_eq!(producers.open_transactions(), []);
    }

    #[test]
    fn given_batches_and_a_marker_when_applied_then_their_times_and_the_coordinators_epoch_are_known() {
        let mut producers = Producers::default();
        let at = |time, header: BatchHeader| BatchHeader { max_timestamp: time, ..header };
        let told = |producers: &Producers| {
            producers.iter().map(|(_, one)| (one.last_timestamp, one.coordinator_epoch)).collect::<Vec<_>>()
        };
        producers.apply(&at(500, batch(0, 0, 1, 0, 0x10)), None, 9_000);
        assert_eq!(told(&producers), [(500, -1)]);
        producers.apply(&at(700, batch(0, -1, 1, 1, 0x30)), Some(Marker::Commit), 9_000);
        assert_eq!(told(&producers), [(700, 0)]);
        let old = r#"{"producers":[[9,{"epoch":0,"open_since":null,"last_ms":1,"seen":[]}]],"aborted":[]}"#;
        let old: Snapshot = serde_json::from_str(old).unwrap();
        assert_eq!(told(&old.into()), [(-1, -1)], "of before these fields");
    }

    #[test]
    fn given_an_open_transaction_when_aborted_then_its_range_is_remembered_through_a_snapshot() {
        let mut producers = Producers::default();
        producers.apply(&batch(0, 0, 3, 10, 0x10), None, 0);
        assert_eq!(producers.first_open(), Some(10));
        producers.apply(&batch(0, -1, 1, 13, 0x30), Some(Marker::Abort), 0);
        assert_eq!(producers.first_open(), None);
        let expected = vec![Aborted { producer_id: 9, first_offset: 10, last_offset: 13 }];
        assert_eq!(producers.aborted_in(0, 11).collect::<Vec<_>>(), expected);
        assert_eq!(producers.aborted_in(14, 20).count(), 0);
        assert_eq!(Producers::from(producers.snapshot()), producers);
    }
}
