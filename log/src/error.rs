use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use riverrun_broker::{StorageFault, StorageTrouble};
use riverrun_schemas::codec::EncodeError;

use crate::record::TopicPartition;

/// Why the log could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Kafka refused or could not be reached.
    #[error("{doing} failed: {source}")]
    Kafka {
        /// What was being done, for example `produce to riverrun.agent.events`.
        doing: String,
        /// What the client library says.
        source: KafkaError,
    },
    /// An event is larger than events may be.
    #[error(
        "event of {bytes} bytes for {topic} is over the limit of {limit}; put the payload into the blob store and send its reference"
    )]
    TooLarge {
        /// Where it was to go.
        topic: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The event's type can't be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Records that were to be read have fallen off the log.
    #[error("{partition} has offsets {low} to {high} and no {wanted}; reading goes on at {low}")]
    OutOfRange {
        /// Where.
        partition: TopicPartition,
        /// The offset that was to be read.
        wanted: i64,
        /// First offset there is.
        low: i64,
        /// One past the last.
        high: i64,
    },
    /// Another member took this one's place for good.
    #[error(
        "{doing} failed: fenced by another process of the same identity ({source}); give each process its own instance name"
    )]
    Fenced {
        /// What was being done.
        doing: String,
        /// What the client library says.
        source: KafkaError,
    },
    /// Something took longer than it may.
    #[error("{doing} took more than {seconds} s; check that the broker at its address is up")]
    Timeout {
        /// What was being done.
        doing: String,
        /// The limit.
        seconds: u64,
    },
    /// There is no such topic, partition or record.
    #[error("there is no {0}")]
    NotFound(String),
    /// The broker of this process can't write what it is given.
    #[error("{0}")]
    Storage(Box<StorageTrouble>),
    /// The embedded broker did not start or stop.
    #[error("embedded broker: {0}")]
    Embedded(String),
    /// A task of the process was cut off.
    #[error("{0} was cut off because the process is stopping")]
    Stopped(String),
}

impl LogError {
    /// Names what was being done when the client library failed.
    pub(crate) fn kafka(doing: impl Into<String>, source: KafkaError) -> Self {
        let doing = doing.into();
        match code_of(&source) {
            Some(
                RDKafkaErrorCode::FencedInstanceId
                | RDKafkaErrorCode::Fenced
                | RDKafkaErrorCode::ProducerFenced
                | RDKafkaErrorCode::InvalidProducerEpoch,
            ) => Self::Fenced { doing, source },
            _ => Self::Kafka { doing, source },
        }
    }

    /// The client has ended for good, for this reason.
    pub(crate) fn fatal(doing: String, code: RDKafkaErrorCode) -> Self {
        match Self::kafka(doing, KafkaError::MessageProduction(code)) {
            Self::Kafka { doing, .. } => {
                Self::Kafka { doing, source: KafkaError::MessageProduction(RDKafkaErrorCode::Fatal) }
            }
            fenced => fenced,
        }
    }

    /// Stable code for problem documents, headers and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            LogError::Kafka { .. } if self.retryable() => "log_unavailable",
            LogError::Kafka { .. } => "log_refused",
            LogError::TooLarge { .. } => "event_too_large",
            LogError::Encode(_) => "event_not_encodable",
            LogError::OutOfRange { .. } => "offset_out_of_range",
            LogError::Fenced { .. } => "log_fenced",
            LogError::Timeout { .. } => "log_unavailable",
            LogError::NotFound(_) => "not_found",
            LogError::Storage(trouble) if trouble.fault == StorageFault::Full => "log_disk_full",
            LogError::Storage(_) => "log_not_writable",
            LogError::Embedded(_) => "embedded_broker",
            LogError::Stopped(_) => "stopped",
        }
    }

    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            LogError::Kafka { source, .. } => !code_of(source).is_some_and(permanent),
            LogError::Timeout { .. } | LogError::Storage(_) => true,
            LogError::TooLarge { .. }
            | LogError::Encode(_)
            | LogError::OutOfRange { .. }
            | LogError::Fenced { .. }
            | LogError::NotFound(_)
            | LogError::Embedded(_)
            | LogError::Stopped(_) => false,
        }
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<&str> {
        match self {
            LogError::Kafka { .. } if self.retryable() => {
                Some("check that the broker is up and its address is right: riverrun diagnose")
            }
            LogError::Timeout { .. } => Some("check that the broker is up and its address is right: riverrun diagnose"),
            LogError::Fenced { .. } => Some("two processes have the same instance name; stop one or rename it"),
            LogError::TooLarge { .. } => Some("large content belongs in the blob store"),
            LogError::Storage(trouble) => Some(&trouble.fix),
            _ => None,
        }
    }
}

/// The librdkafka code of an error, wherever the wrapper keeps it.
pub(crate) fn code_of(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::MessageConsumptionFatal(code) => Some(*code),
        KafkaError::Transaction(error) => Some(error.code()),
        other => other.rdkafka_error_code(),
    }
}

/// Errors that the same request will meet again.
fn permanent(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidMessage
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::MessageBatchTooLarge
            | RDKafkaErrorCode::InvalidTopic
            | RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::TransactionalIdAuthorizationFailed
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::UnsupportedVersion
            | RDKafkaErrorCode::PolicyViolation
            | RDKafkaErrorCode::Fatal
    )
}
