//! Transactions: the durable record of each transactional id, and the coordinator that ends them.

pub(crate) mod coordinator;

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use serde::{Deserialize, Serialize};

use crate::meta::OffsetItem;

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
    /// When the open transaction began, milliseconds since 1970.
    pub started_ms: i64,
    /// Last change, milliseconds since 1970.
    pub updated_ms: i64,
}

/// Highest epoch of a producer; after it a new producer id is taken.
pub(crate) const MAX_EPOCH: i16 = i16::MAX - 1;

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
        }
    }

    /// Whether the caller is the current producer of this id and may change it now.
    pub(crate) fn check(&self, producer_id: i64, epoch: i16) -> Result<(), ResponseError> {
        if producer_id != self.producer_id {
            return Err(ResponseError::InvalidProducerIdMapping);
        }
        if epoch != self.epoch {
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

    /// The record with its outcome decided.
    pub(crate) fn prepared(&self, commit: bool, now_ms: i64) -> Self {
        let state = if commit { TxnState::PrepareCommit } else { TxnState::PrepareAbort };
        Self { state, updated_ms: now_ms, ..self.clone() }
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
        Self {
            state,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
            offsets: BTreeMap::new(),
            started_ms: -1,
            updated_ms: now_ms,
            ..self.clone()
        }
    }

    /// When an open transaction must be aborted, milliseconds since 1970.
    pub(crate) fn expires_ms(&self) -> Option<i64> {
        (self.state == TxnState::Ongoing).then(|| self.started_ms + i64::from(self.timeout_ms))
    }
}
