//! What is said between a group's member and the loop that it belongs to.

use std::time::Duration;

use crate::error::LogError;
use crate::record::{Record, StartAt, TopicPartition};

/// How a process takes part in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// The group's id.
    pub group: String,
    /// What it reads.
    pub topics: Vec<String>,
    /// Static membership: a name that no other live member has and that survives a restart. Partitions then wait
    /// `session_timeout` for the same name to come back. `None` leaves the group at once when it stops.
    pub instance: Option<String>,
    /// A member that is silent for so long has died.
    pub session_timeout: Duration,
    /// How often a member says that it lives.
    pub heartbeat: Duration,
    /// Whether [`SessionEvent::End`] is told.
    pub tell_end: bool,
}

impl GroupConfig {
    /// A member with the usual times: 45 s of silence, a heartbeat each 3 s.
    pub fn new(group: impl Into<String>, topics: Vec<String>) -> Self {
        Self {
            group: group.into(),
            topics,
            instance: None,
            session_timeout: Duration::from_secs(45),
            heartbeat: Duration::from_secs(3),
            tell_end: false,
        }
    }
}

/// A partition that was given to this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedPartition {
    /// Which.
    pub partition: TopicPartition,
    /// What the group has committed: the offset to read next.
    pub committed: Option<i64>,
    /// What was committed beside the offset; empty when nothing was.
    pub metadata: String,
    /// First offset there is.
    pub low: i64,
    /// One past the last.
    pub high: i64,
}

impl AssignedPartition {
    /// Where a group goes on that has no better knowledge: at the committed offset, else at the first record.
    pub fn default_start(&self) -> StartAt {
        self.committed.map_or(StartAt::Beginning, StartAt::Offset)
    }
}

/// An offset that was to be read is not on the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfRange {
    /// Where.
    pub partition: TopicPartition,
    /// The offset that was to be read.
    pub wanted: i64,
    /// First offset there is, where reading goes on.
    pub low: i64,
    /// One past the last.
    pub high: i64,
}

/// An offset to be committed: the next one to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOffset {
    /// Where.
    pub partition: TopicPartition,
    /// The offset to read next.
    pub offset: i64,
    /// A note that comes back with the next assignment.
    pub metadata: Option<String>,
}

/// What a member is told.
#[derive(Debug)]
pub enum SessionEvent {
    /// These are ours from now on; answer with [`GroupConsumer::start`].
    Assigned(Vec<AssignedPartition>),
    /// These are to be given back; answer with [`GroupConsumer::release`]. When `lost`, others may have them already and
    /// commits will be refused.
    Revoked {
        /// Which.
        partitions: Vec<TopicPartition>,
        /// Without having been asked.
        lost: bool,
    },
    /// Records fell off the log before they were read; reading goes on at the first that is left.
    OutOfRange(OutOfRange),
    /// The next record.
    Record(Record),
    /// Everything before `next` was told as a record or is nothing to tell, such as the mark of a transaction behind the
    /// last one: it may be committed once those records are done. Comes a moment after the end of a partition, and only
    /// where it is further on than the last record.
    Passed {
        /// Where.
        partition: TopicPartition,
        /// The offset to read next.
        next: i64,
    },
    /// Everything in this partition was read; told again after more was. The client names no topic with it, so it is of
    /// use to a member that reads one.
    End(i32),
    /// A commit was answered.
    Committed {
        /// What was committed.
        partitions: Vec<TopicPartition>,
        /// `None` when it is durable.
        error: Option<LogError>,
    },
    /// Something is wrong that may pass, such as a broker that is away.
    Trouble(LogError),
}
