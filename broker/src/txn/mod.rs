//! Transactions: the durable record of each transactional id, and the coordinator that ends them.

pub(crate) mod coordinator;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use serde::{Deserialize, Serialize};

use crate::meta::OffsetItem;

/// A producer under one of its epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProducerIdentity {
    /// Producer id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// The form of the transaction protocol that a request belongs to (KIP-890).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Partitions and groups are added by requests of their own, and the epoch lasts as long as the producer.
    One,
    /// Records and offsets add their partition or group themselves, and every transaction has an epoch of its own.
    Two,
}

/// What a request to end a transaction comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The outcome is to be decided now.
    Decide,
    /// It has been reached before; the request is a repetition.
    Reached,
}

/// Where a transactional id stands (as in Apache Kafka's `TransactionState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TxnState {
    /// No transaction yet.
    Empty,
    /// Partitions have been added.
    Ongoing,
    /// Decided: commit; markers are being written.
    PrepareCommit,
    /// Decided: abort; markers are being written.
    PrepareAbort,
    /// Committed.
    CompleteCommit,
    /// Aborted.
    CompleteAbort,
}

impl TxnState {
    /// Whether a transaction is under way.
    pub(crate) fn is_open(self) -> bool {
        self == TxnState::Ongoing || self.is_prepared()
    }

    /// Whether the outcome is decided and not yet carried out.
    pub(crate) fn is_prepared(self) -> bool {
        matches!(self, TxnState::PrepareCommit | TxnState::PrepareAbort)
    }

    /// The name that Kafka gives it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TxnState::Empty => "Empty",
            TxnState::Ongoing => "Ongoing",
            TxnState::PrepareCommit => "PrepareCommit",
            TxnState::PrepareAbort => "PrepareAbort",
            TxnState::CompleteCommit => "CompleteCommit",
            TxnState::CompleteAbort => "CompleteAbort",
        }
    }
}

/// A transactional id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TxnRecord {
    /// The name that the producer chose.
    pub id: String,
    /// Its producer id.
    pub producer_id: i64,
    /// Its epoch; older ones are fenced.
    pub epoch: i16,
    /// Time after which an open transaction is aborted.
    pub timeout_ms: i32,
    /// Where it stands.
    pub state: TxnState,
    /// Partitions in the open transaction.
    pub partitions: BTreeSet<(String, i32)>,
    /// Groups whose offsets take part.
    pub groups: BTreeSet<String>,
    /// Offsets that become committed with the transaction.
    pub offsets: BTreeMap<String, Vec<OffsetItem>>,
    /// When the open transaction began, or the last one that has ended, milliseconds since 1970; -1 before the first.
    pub started_ms: i64,
    /// Last change, milliseconds since 1970.
    pub updated_ms: i64,
    /// Producer id before the last transaction was completed or the producer last began, else [`NO_ID`].
    #[serde(default = "no_id")]
    pub previous_producer_id: i64,
    /// Producer id that comes with the completion, when the epochs of the present one are used up, else [`NO_ID`].
    #[serde(default = "no_id")]
    pub next_producer_id: i64,
    /// Epoch with which the producer got the present one, so that it may ask once more for it, else [`NO_EPOCH`].
    #[serde(default = "no_epoch")]
    pub last_epoch: i16,
}

/// Highest epoch of a producer; after it a new producer id is taken.
pub(crate) const MAX_EPOCH: i16 = i16::MAX - 1;
/// No producer id.
pub(crate) const NO_ID: i64 = -1;
/// No epoch.
pub(crate) const NO_EPOCH: i16 = -1;

/// What records of before these fields have in them.
fn no_id() -> i64 {
    NO_ID
}
fn no_epoch() -> i16 {
    NO_EPOCH
}

impl TxnRecord {
    /// A new transactional id.
    pub(crate) fn new(id: String, producer_id: i64, epoch: i16, timeout_ms: i32, now_ms: i64) -> Self {
        Self {
            id,
            producer_id,
            epoch,
            timeout_ms,
            state: TxnState::Empty,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
            offsets: BTreeMap::new(),
            started_ms: -1,
            updated_ms: now_ms,
            previous_producer_id: NO_ID,
            next_producer_id: NO_ID,
            last_epoch: NO_EPOCH,
        }
    }

    /// Its producer.
    pub(crate) fn producer(&self) -> ProducerIdentity {
        ProducerIdentity { id: self.producer_id, epoch: self.epoch }
    }

    /// The record of a producer that begins anew as `producer`. `last_epoch` is the one that it had, if it said so.
    pub(crate) fn initialized(
        &self,
        producer: ProducerIdentity,
        last_epoch: i16,
        timeout_ms: i32,
        now_ms: i64,
    ) -> Self {
        let new = Self::new(self.id.clone(), producer.id, producer.epoch, timeout_ms, now_ms);
        Self { previous_producer_id: self.producer_id, last_epoch, ..new }
    }

    /// The record of a producer that asks once more for the epoch that it was given.
    pub(crate) fn initialized_again(&self, timeout_ms: i32, now_ms: i64) -> Self {
        Self { state: TxnState::Empty, timeout_ms, started_ms: -1, updated_ms: now_ms, ..self.clone() }
    }

    /// Whether `producer` names itself as it was before it got the present epoch, of which it may not have heard.
    pub(crate) fn is_former_self(&self, producer: ProducerIdentity) -> bool {
        let had_id =
            producer.id == self.producer_id || producer.id == self.previous_producer_id && producer.epoch >= MAX_EPOCH;
        self.state != TxnState::Ongoing && had_id && producer.epoch >= 0 && producer.epoch == self.last_epoch
    }

    /// Whether the caller is the current producer of this id and may change it now.
    pub(crate) fn check(&self, producer: ProducerIdentity) -> Result<(), ResponseError> {
        if producer.id != self.producer_id {
            return Err(ResponseError::InvalidProducerIdMapping);
        }
        if producer.epoch != self.epoch {
            return Err(ResponseError::ProducerFenced);
        }
        if self.state.is_prepared() {
            return Err(ResponseError::ConcurrentTransactions);
        }
        Ok(())
    }

    /// The record with a transaction under way.
    pub(crate) fn begun(&self, now_ms: i64) -> Self {
        let mut record = self.clone();
        if record.state != TxnState::Ongoing {
            record.state = TxnState::Ongoing;
            record.started_ms = now_ms;
            record.partitions.clear();
            record.groups.clear();
            record.offsets.clear();
        }
        record.updated_ms = now_ms;
        record
    }

    /// What a request of `producer` to end the transaction comes to.
    pub(crate) fn ending(
        &self,
        producer: ProducerIdentity,
        commit: bool,
        protocol: Protocol,
    ) -> Result<Ending, ResponseError> {
        match protocol {
            Protocol::One => self.ending_within_epoch(producer, commit),
            Protocol::Two => self.ending_of_epoch(producer, commit),
        }
    }

    /// Protocol 1: the state alone tells a repetition.
    fn ending_within_epoch(&self, producer: ProducerIdentity, commit: bool) -> Result<Ending, ResponseError> {
        self.check(producer)?;
        match (self.state, commit) {
            (TxnState::CompleteCommit, true) | (TxnState::CompleteAbort, false) => Ok(Ending::Reached),
            (TxnState::Ongoing, _) => Ok(Ending::Decide),
            _ => Err(ResponseError::InvalidTxnState),
        }
    }

    /// Protocol 2: a repetition comes with the epoch before the present one, or with the last of the producer id before. The
    /// present epoch asks for the end of the next transaction, which may be aborted although nothing was added to it.
    fn ending_of_epoch(&self, producer: ProducerIdentity, commit: bool) -> Result<Ending, ResponseError> {
        let has_new_id = producer.id == self.previous_producer_id
            && producer.id != self.producer_id
            && producer.epoch == MAX_EPOCH
            && self.epoch == 0;
        if producer.id != self.producer_id && !has_new_id {
            return Err(ResponseError::InvalidProducerIdMapping);
        }
        // The epoch beyond the highest is for the markers of a decided transaction alone; nobody is told of it.
        let was_raised = i32::from(producer.epoch) + 1 == i32::from(self.epoch)
            && (self.epoch <= MAX_EPOCH || self.state.is_prepared());
        let is_repeated = was_raised || has_new_id;
        let is_current = producer == self.producer();
        let is_known = match self.state {
            TxnState::Empty | TxnState::Ongoing => is_current,
            TxnState::PrepareCommit | TxnState::PrepareAbort => was_raised,
            TxnState::CompleteCommit | TxnState::CompleteAbort => is_repeated || is_current,
        };
        if !is_known {
            return Err(ResponseError::ProducerFenced);
        }
        match (self.state, commit) {
            (TxnState::Ongoing, _) => Ok(Ending::Decide),
            (TxnState::CompleteCommit, true) | (TxnState::CompleteAbort, false) if is_repeated => Ok(Ending::Reached),
            (TxnState::Empty | TxnState::CompleteCommit | TxnState::CompleteAbort, false) if !is_repeated => {
                Ok(Ending::Decide)
            }
            (TxnState::PrepareCommit, true) | (TxnState::PrepareAbort, false) => {
                Err(ResponseError::ConcurrentTransactions)
            }
            _ => Err(ResponseError::InvalidTxnState),
        }
    }

    /// The record with its outcome decided by its producer. Protocol 2 raises the epoch at once, so that the markers end it for
    /// every partition; `next_producer_id` is for an epoch that cannot be raised any more, else [`NO_ID`].
    pub(crate) fn decided(&self, commit: bool, protocol: Protocol, next_producer_id: i64, now_ms: i64) -> Self {
        let prepared = self.prepared(commit, now_ms);
        match protocol {
            Protocol::One => prepared,
            Protocol::Two => Self {
                epoch: self.epoch.saturating_add(1),
                last_epoch: self.epoch,
                next_producer_id,
                // An abort may come before anything was added.
                started_ms: if self.state == TxnState::Ongoing { self.started_ms } else { now_ms },
                ..prepared
            },
        }
    }

    /// The record with its transaction aborted by somebody else; the epoch is raised, so that its producer cannot go on with it.
    pub(crate) fn fenced(&self, now_ms: i64) -> Self {
        Self { epoch: self.epoch.saturating_add(1), last_epoch: NO_EPOCH, ..self.prepared(false, now_ms) }
    }

    fn prepared(&self, commit: bool, now_ms: i64) -> Self {
        let state = if commit { TxnState::PrepareCommit } else { TxnState::PrepareAbort };
        Self { state, updated_ms: now_ms, ..self.clone() }
    }

    /// Whether this is the decision that `prepared` was when it was made. Offsets that it held may have gone since, with their
    /// group or topic; it is to be carried out all the same.
    pub(crate) fn is_decision(&self, prepared: &Self) -> bool {
        let told = |record: &Self| (record.producer(), record.state, record.started_ms, record.updated_ms);
        self.state.is_prepared() && told(self) == told(prepared)
    }

    /// The record with its outcome carried out.
    pub(crate) fn completed(&self, now_ms: i64) -> Self {
        let state = match self.state {
            TxnState::PrepareCommit => TxnState::CompleteCommit,
            TxnState::Empty
            | TxnState::Ongoing
            | TxnState::PrepareAbort
            | TxnState::CompleteCommit
            | TxnState::CompleteAbort => TxnState::CompleteAbort,
        };
        let producer = if self.next_producer_id == NO_ID {
            self.producer()
        } else {
            ProducerIdentity { id: self.next_producer_id, epoch: 0 }
        };
        Self {
            state,
            producer_id: producer.id,
            epoch: producer.epoch,
            previous_producer_id: self.producer_id,
            next_producer_id: NO_ID,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
            offsets: BTreeMap::new(),
            updated_ms: now_ms,
            ..self.clone()
        }
    }

    /// Whether its transaction, open or ended, began more than `duration_ms` ago; below zero that asks for nothing. An id
    /// without one passes too, as with Apache Kafka.
    pub(crate) fn has_lasted(&self, now_ms: i64, duration_ms: i64) -> bool {
        duration_ms < 0 || now_ms.saturating_sub(self.started_ms) > duration_ms
    }

    /// When an open transaction must be aborted, milliseconds since 1970.
    pub(crate) fn expires_ms(&self) -> Option<i64> {
        (self.state == TxnState::Ongoing).then(|| self.started_ms + i64::from(self.timeout_ms))
    }
}
