use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;

use crate::config::LogConfig;
use crate::error::LogError;
use crate::group::{CommitOffset, GroupMetadata, offset_list};
use crate::outbox::{Client, Outbox};
use crate::producer::send_all;
use crate::record::Outgoing;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Writes records and commits the offsets of what they came from, all or nothing: read-process-write (KIP-447).
pub struct TransactionalProducer {
    inner: Arc<Outbox>,
    id: String,
}

impl TransactionalProducer {
    /// Takes over the transactional id: whoever had it before is fenced, and what it left open is aborted.
    pub async fn open(config: &LogConfig, transactional_id: &str) -> Result<Self, LogError> {
        let inner = Outbox::open(&config.transactional(transactional_id))
            .map_err(|error| LogError::kafka("create a producer", error))?;
        let this = Self { inner: Arc::new(inner), id: transactional_id.to_owned() };
        this.call("initialize transactions", |producer| producer.init_transactions(TIMEOUT)).await?;
        Ok(this)
    }

    /// One transaction. On an error nothing of it is visible to `read_committed` readers; it may be tried again when the
    /// error is retryable.
    pub async fn run(
        &self,
        outputs: &[Outgoing],
        offsets: &[CommitOffset],
        group: GroupMetadata,
    ) -> Result<(), LogError> {
        self.inner
            .client()
            .begin_transaction()
            .map_err(|error| LogError::kafka(format!("begin transaction {}", self.id), error))?;
        let done = self.fill_and_commit(outputs, offsets, group).await.map_err(|error| self.fatal().unwrap_or(error));
        if done.is_err() {
            // The first error is the one worth telling; when the abort fails too, the next begin says so.
            if let Err(error) = self.call("abort a transaction", |producer| producer.abort_transaction(TIMEOUT)).await {
                tracing::warn!(transactional_id = self.id, error = %error, "can't abort a transaction");
            }
        }
        done
    }

    async fn fill_and_commit(
        &self,
        outputs: &[Outgoing],
        offsets: &[CommitOffset],
        group: GroupMetadata,
    ) -> Result<(), LogError> {
        send_all(&self.inner, outputs).await?;
        let offsets = offset_list(offsets)?;
        self.call("send offsets to a transaction", move |producer| {
            producer.send_offsets_to_transaction(&offsets, &group.0, TIMEOUT)
        })
        .await?;
        self.call("commit a transaction", |producer| producer.commit_transaction(TIMEOUT)).await
    }

    /// Errors of single calls do not say that the client is done for: it does.
    fn fatal(&self) -> Option<LogError> {
        let (code, reason) = self.inner.client().client().fatal_error()?;
        tracing::error!(transactional_id = self.id, code = %code, reason, "transactional producer can't go on");
        Some(LogError::fatal(format!("write transactions as {}", self.id), code))
    }

    /// The client's transaction calls block: they have a thread for as long as they last.
    async fn call(
        &self,
        doing: &'static str,
        call: impl FnOnce(&Client) -> Result<(), KafkaError> + Send + 'static,
    ) -> Result<(), LogError> {
        let producer = self.inner.clone();
        let doing = format!("{doing} of {}", self.id);
        match tokio::task::spawn_blocking(move || call(producer.client())).await {
            Ok(result) => result.map_err(|error| LogError::kafka(doing, error)),
            Err(_) => Err(LogError::Stopped(doing)),
        }
    }
}
