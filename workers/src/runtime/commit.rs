//! Making progress durable: plain offset commits, or transactions of outputs and offsets. One at a time.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_log::{CommitOffset, GroupConsumer, LogError, TransactionalProducer};
use tokio::task::JoinHandle;

use super::board::Due;

/// A commit that nobody answers is given up after this time, and the next one says the same again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

enum Pending {
    /// Answered through the group's session.
    Offsets { offsets: Vec<CommitOffset>, since: Instant },
    /// Answered by its task.
    Transaction { offsets: Vec<CommitOffset>, task: JoinHandle<Result<(), LogError>> },
}

pub(super) struct Commits {
    transactions: Option<Arc<TransactionalProducer>>,
    interval: Duration,
    pending: Option<Pending>,
    not_before: Instant,
}

impl Commits {
    pub(super) fn new(transactions: Option<TransactionalProducer>, interval: Duration) -> Self {
        Self { transactions: transactions.map(Arc::new), interval, pending: None, not_before: Instant::now() }
    }

    /// When the next commit may begin; `None` while one is on its way.
    pub(super) fn may_begin_at(&mut self, now: Instant) -> Option<Instant> {
        if let Some(Pending::Offsets { since, .. }) = &self.pending
            && now >= *since + ANSWER_PATIENCE
        {
            self.pending = None;
        }
        self.pending.is_none().then_some(self.not_before)
    }

    pub(super) fn begin(&mut self, consumer: &GroupConsumer, due: Due, now: Instant) -> Result<(), LogError> {
        if due.offsets.is_empty() {
            return Ok(());
        }
        self.not_before = now + self.interval;
        self.pending = Some(match &self.transactions {
            None => {
                consumer.commit(&due.offsets)?;
                Pending::Offsets { offsets: due.offsets, since: now }
            }
            Some(producer) => {
                let (producer, group, offsets) = (producer.clone(), consumer.metadata()?, due.offsets.clone());
                let task = tokio::spawn(async move { producer.run(&due.outputs, &offsets, group).await });
                Pending::Transaction { offsets: due.offsets, task }
            }
        });
        Ok(())
    }

    /// The session answered a plain commit: gives the offsets that are durable now.
    pub(super) fn answered(&mut self, error: Option<LogError>) -> Result<Vec<CommitOffset>, LogError> {
        match self.pending.take() {
            Some(Pending::Offsets { offsets, .. }) => match error {
                None => Ok(offsets),
                Some(error) => Err(error),
            },
            other => {
                // The answer of a commit that was given up.
                self.pending = other;
                Ok(Vec::new())
            }
        }
    }

    /// Waits for the end of a transaction, for ever when there is none. Cancel-safe.
    pub(super) async fn transaction(&mut self) -> Result<Vec<CommitOffset>, LogError> {
        let Some(Pending::Transaction { task, .. }) = &mut self.pending else { return pending().await };
        let ended = task.await.unwrap_or_else(|_| Err(LogError::Stopped("a transaction".to_owned())));
        match self.pending.take() {
            Some(Pending::Transaction { offsets, .. }) => ended.map(|()| offsets),
            Some(Pending::Offsets { .. }) | None => Ok(Vec::new()),
        }
    }

    /// The last word on partitions that are given back: what is on its way, then what is due. A transaction that takes
    /// longer than `limit` goes on by itself; the group refuses its offsets once others have the partitions.
    pub(super) async fn last(
        &mut self,
        consumer: &GroupConsumer,
        due: impl FnOnce(&[CommitOffset]) -> Due,
        limit: Duration,
    ) -> Result<Vec<CommitOffset>, LogError> {
        let before = self.transaction_within(limit).await?;
        let due = due(&before);
        if due.offsets.is_empty() {
            return Ok(before);
        }
        let after = if self.transactions.is_some() {
            self.begin(consumer, due, Instant::now())?;
            self.transaction_within(limit).await?
        } else {
            consumer.commit_now(&due.offsets, limit).await?;
            due.offsets
        };
        Ok([before, after].concat())
    }

    async fn transaction_within(&mut self, limit: Duration) -> Result<Vec<CommitOffset>, LogError> {
        if !matches!(self.pending, Some(Pending::Transaction { .. })) {
            return Ok(Vec::new());
        }
        tokio::time::timeout(limit, self.transaction())
            .await
            .map_err(|_| LogError::Timeout { doing: "commit what is done".to_owned(), seconds: limit.as_secs() })?
    }
}
