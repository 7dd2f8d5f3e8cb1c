//! A topic, read to its end as often as it is asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use riverrun_log::admin::Admin;
use riverrun_log::{LogConfig, LogError, Record, StartAt, Tail, TopicPartition};
use riverrun_schemas::Topic;

use super::fold::Ends;

/// How long the next record may take before the end is looked at more closely: offsets behind the last record may belong to
/// transactions, and then no record comes.
const RECORD_PATIENCE: Duration = Duration::from_millis(200);

/// Where the reading of a topic is.
pub(super) struct Follow {
    topic: Topic,
    next: BTreeMap<i32, i64>,
    tail: Option<Tail>,
}

impl Follow {
    /// Reads the whole topic, as it is now.
    pub(super) async fn open(
        log: &LogConfig,
        topic: Topic,
        mut take: impl FnMut(&Record) + Send,
    ) -> Result<Self, LogError> {
        let mut follow = Self { topic, next: BTreeMap::new(), tail: None };
        for partition in 0..Admin::new(log)?.partitions(topic.name()).await? {
            follow.range(log, partition, StartAt::Beginning, &mut take).await?;
        }
        Ok(follow)
    }

    /// How far it was read.
    pub(super) fn ends(&self) -> Ends {
        self.next.clone()
    }

    /// Reads what came since.
    pub(super) async fn read_to_end(
        &mut self,
        log: &LogConfig,
        mut take: impl FnMut(&Record) + Send,
    ) -> Result<(), LogError> {
        let read = self.read_on(log, &mut take).await;
        if read.is_err() {
            // Opened anew next time, where this one stopped.
            self.tail = None;
        }
        read
    }

    async fn read_on(&mut self, log: &LogConfig, take: &mut (impl FnMut(&Record) + Send)) -> Result<(), LogError> {
        if self.tail.is_none() {
            let from = |(partition, next): (&i32, &i64)| (self.partition(*partition), StartAt::Offset(*next));
            let partitions = self.next.iter().map(from).collect();
            self.tail = Some(Tail::open(log, partitions).await?);
        }
        let Some(tail) = self.tail.as_mut() else { return Ok(()) };
        let ends: BTreeMap<i32, i64> =
            tail.end_offsets().await?.into_iter().map(|(partition, end)| (partition.partition, end)).collect();
        loop {
            let behind: Vec<(i32, i64)> = self
                .next
                .iter()
                .filter(|(p, next)| ends.get(*p).is_some_and(|end| *next < end))
                .map(|(p, next)| (*p, *next))
                .collect();
            if behind.is_empty() {
                return Ok(());
            }
            match tokio::time::timeout(RECORD_PATIENCE, tail.next()).await {
                Ok(Ok(record)) => {
                    self.next.insert(record.partition, record.offset + 1);
                    take(&record);
                }
                Ok(Err(LogError::OutOfRange { partition, low, .. })) => {
                    let next = self.next.entry(partition.partition).or_default();
                    *next = low.max(*next);
                }
                Ok(Err(error)) => return Err(error),
                // Slow, or nothing but transaction markers: a reader that is told the end knows.
                Err(_) => {
                    self.tail = None;
                    for (partition, next) in behind {
                        self.range(log, partition, StartAt::Offset(next), take).await?;
                    }
                    return Ok(());
                }
            }
        }
    }

    async fn range(
        &mut self,
        log: &LogConfig,
        partition: i32,
        start: StartAt,
        take: &mut (impl FnMut(&Record) + Send),
    ) -> Result<(), LogError> {
        let mut range = Tail::read_range(log, self.partition(partition), start).await?;
        let mut next = range.end();
        loop {
            match range.next().await {
                Ok(Some(record)) => {
                    next = next.max(record.offset + 1);
                    take(&record);
                }
                Ok(None) => break,
                // What fell off the log while it was read.
                Err(LogError::OutOfRange { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.next.insert(partition, next);
        Ok(())
    }

    fn partition(&self, partition: i32) -> TopicPartition {
        TopicPartition::new(self.topic.name(), partition)
    }
}
