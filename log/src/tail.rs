use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Message, Offset, TopicPartitionList};

use crate::config::LogConfig;
use crate::context::Quiet;
use crate::error::{LogError, code_of};
use crate::record::{Record, StartAt, TopicPartition};
use crate::watermarks::{self, Bounds};

mod held;

use held::{Held, Taken};

/// Pause after an error that may pass, so that a broker that is away is not asked in a spin.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

type Inner = StreamConsumer<Quiet>;

/// Reads partitions of its own choice, outside of any group, and commits nothing.
pub struct Tail {
    consumer: Option<Arc<Inner>>,
    next: HashMap<TopicPartition, i64>,
    ends_at_open: HashMap<TopicPartition, i64>,
    gaps: VecDeque<LogError>,
    /// How often the end of a partition of this number was told, when the reader was opened to tell it.
    ends_told: HashMap<i32, usize>,
    /// The client has refused an offset; where is not known yet.
    refused: bool,
    held: Held,
}

impl Tail {
    /// Begins to read. A start outside of the log is told by the first [`next`](Self::next).
    pub async fn open(config: &LogConfig, partitions: Vec<(TopicPartition, StartAt)>) -> Result<Self, LogError> {
        Self::open_with(config, partitions, false).await
    }

    /// Begins to read as [`open`](Self::open) does, for [`next_or_end`](Self::next_or_end).
    pub async fn open_telling_ends(
        config: &LogConfig,
        partitions: Vec<(TopicPartition, StartAt)>,
    ) -> Result<Self, LogError> {
        Self::open_with(config, partitions, true).await
    }

    async fn open_with(
        config: &LogConfig,
        partitions: Vec<(TopicPartition, StartAt)>,
        tell_end: bool,
    ) -> Result<Self, LogError> {
        let mut settings = config.tail();
        settings.set("enable.partition.eof", tell_end.to_string());
        let consumer: Inner =
            settings.create_with_context(Quiet).map_err(|error| LogError::kafka("create a reader", error))?;
        let mut tail = Self {
            consumer: Some(Arc::new(consumer)),
            next: HashMap::new(),
            ends_at_open: HashMap::new(),
            gaps: VecDeque::new(),
            ends_told: HashMap::new(),
            refused: false,
            held: Held::new(config.schemas.clone()),
        };
        let asked = tail.consumer().clone();
        let found = tokio::task::spawn_blocking(move || {
            partitions
                .into_iter()
                .map(|(partition, start)| {
                    watermarks::bounds(&asked, &partition).map(|bounds| (partition, start, bounds))
                })
                .collect::<Result<Vec<_>, _>>()
        })
        .await
        .map_err(|_| LogError::Stopped("a lookup of offsets".to_owned()))??;
        for (partition, start, bounds) in found {
            tail.ends_at_open.insert(partition.clone(), bounds.high);
            tail.place(partition, start, bounds);
        }
        tail.assign()?;
        Ok(tail)
    }

    /// Reads every partition from its next offset on.
    fn assign(&mut self) -> Result<(), LogError> {
        let paused = self.held.clear();
        let mut list = TopicPartitionList::with_capacity(self.next.len());
        for (partition, offset) in &self.next {
            list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(*offset))
                .map_err(|error| LogError::kafka(format!("name offset {offset} of {partition}"), error))?;
        }
        self.consumer().assign(&list).map_err(|error| LogError::kafka("take partitions", error))?;
        paused.iter().for_each(|place| self.resume(place));
        Ok(())
    }

    fn place(&mut self, partition: TopicPartition, start: StartAt, bounds: Bounds) {
        let (offset, missed) = watermarks::resolve(start, bounds);
        if let Some(wanted) = missed {
            self.gaps.push_back(LogError::OutOfRange {
                partition: partition.clone(),
                wanted,
                low: bounds.low,
                high: bounds.high,
            });
        }
        self.next.insert(partition, offset);
    }

    fn consumer(&self) -> &Arc<Inner> {
        self.consumer.as_ref().unwrap_or_else(|| unreachable!("it is taken only by drop"))
    }

    /// The next record of any of the partitions; waits for it. [`LogError::OutOfRange`] tells of a gap once and reading
    /// goes on behind it; other retryable errors may pass as well: ask again. Cancel-safe.
    pub async fn next(&mut self) -> Result<Record, LogError> {
        loop {
            if let Some(record) = self.next_or_end().await? {
                return Ok(record);
            }
        }
    }

    /// The next record, or `None` at the end of a partition when the reader was opened to tell it. Cancel-safe.
    pub async fn next_or_end(&mut self) -> Result<Option<Record>, LogError> {
        loop {
            if let Some(gap) = self.gaps.pop_front() {
                return Err(gap);
            }
            if self.refused {
                return Err(self.find_gaps().await?);
            }
            if let Some(record) = self.held.pop() {
                return Ok(Some(self.hand_out(record)));
            }
            let consumer = self.consumer().clone();
            let received = tokio::select! {
                biased;
                Some(place) = self.held.answered() => {
                    self.release(&place);
                    continue;
                }
                received = consumer.recv() => {
                    received.map(|message| Record::copy_of(&message, self.topic_of(message.topic())))
                }
            };
            match received {
                Ok(record) => match self.held.take(record) {
                    Taken::Ready(record) => return Ok(Some(self.hand_out(record))),
                    Taken::Waits(None) => {}
                    Taken::Waits(Some(place)) => self.pause(&place),
                },
                Err(KafkaError::PartitionEOF(partition)) => {
                    *self.ends_told.entry(partition).or_default() += 1;
                    return Ok(None);
                }
                Err(error) if code_of(&error) == Some(RDKafkaErrorCode::AutoOffsetReset) => {
                    // Kept in mind: this future may be dropped while it asks.
                    self.refused = true;
                }
                Err(error) => {
                    tokio::time::sleep(ERROR_PAUSE).await;
                    return Err(LogError::kafka("read", error));
                }
            }
        }
    }

    fn topic_of(&self, name: &str) -> Arc<str> {
        self.next.keys().find(|p| &*p.topic == name).map_or_else(|| name.into(), |p| p.topic.clone())
    }

    fn hand_out(&mut self, record: Record) -> Record {
        self.next.insert(record.topic_partition(), record.offset + 1);
        record
    }

    /// What the client had read ahead of the partition is read again later, its end too.
    fn pause(&mut self, place: &TopicPartition) {
        // Of several topics nobody says whose end was told.
        if self.next.keys().filter(|other| other.partition == place.partition).count() == 1 {
            self.ends_told.remove(&place.partition);
        }
        if let Err(error) = self.consumer().pause(&only(place)) {
            tracing::debug!(partition = %place, error = %error, "a partition goes on being read");
        }
    }

    fn release(&mut self, place: &TopicPartition) {
        if self.held.release(place) {
            self.resume(place);
        }
    }

    fn resume(&self, place: &TopicPartition) {
        if let Err(error) = self.consumer().resume(&only(place)) {
            tracing::warn!(partition = %place, error = %error, "a partition is not read on");
        }
    }

    /// Records fell off the log while this reader lagged: finds where, and goes on at the first that are left.
    async fn find_gaps(&mut self) -> Result<LogError, LogError> {
        for (partition, wanted) in self.next.clone() {
            let (consumer, asked) = (self.consumer().clone(), partition.clone());
            let bounds = tokio::task::spawn_blocking(move || watermarks::bounds(&consumer, &asked))
                .await
                .map_err(|_| LogError::Stopped("a lookup of offsets".to_owned()))??;
            self.place(partition, StartAt::Offset(wanted), bounds);
        }
        // The client has given such partitions up; only a new assignment wakes them.
        self.assign()?;
        self.refused = false;
        Ok(self.gaps.pop_front().unwrap_or_else(|| LogError::NotFound("offset that the broker refuses".to_owned())))
    }

    /// One past the last offset of each partition, now.
    pub async fn end_offsets(&self) -> Result<HashMap<TopicPartition, i64>, LogError> {
        let consumer = self.consumer().clone();
        let partitions: Vec<_> = self.next.keys().cloned().collect();
        tokio::task::spawn_blocking(move || {
            partitions
                .into_iter()
                .map(|partition| watermarks::bounds(&consumer, &partition).map(|bounds| (partition, bounds.high)))
                .collect()
        })
        .await
        .map_err(|_| LogError::Stopped("a lookup of offsets".to_owned()))?
    }

    /// One past the last offset that each partition had when the reader was opened. Asks nobody: a question to a broker
    /// that is just being long-polled waits for the poll.
    pub fn ends_at_open(&self) -> &HashMap<TopicPartition, i64> {
        &self.ends_at_open
    }

    /// Whether what was there when the reader was opened has been read.
    pub fn has_caught_up(&self) -> bool {
        self.held.is_empty() && self.next.keys().all(|partition| self.has_read(partition))
    }

    /// Whether what was there of a partition when the reader was opened has been read. Behind the last record there may be
    /// markers of transactions, which no offset tells apart; the client names the number of a partition at its end and no
    /// topic, so the ends of all partitions of that number have to be told, while no record is held back.
    pub fn has_read(&self, partition: &TopicPartition) -> bool {
        let end = self.ends_at_open.get(partition);
        if end.is_none_or(|end| self.next.get(partition).is_some_and(|next| next >= end)) {
            return true;
        }
        let partitions = self.next.keys().filter(|other| other.partition == partition.partition).count();
        self.held.is_empty() && self.ends_told.get(&partition.partition).is_some_and(|told| *told >= partitions)
    }

    /// The next offset that will be read of each partition.
    pub fn positions(&self) -> &HashMap<TopicPartition, i64> {
        &self.next
    }

    /// Reads one partition from `start` to the end that it has now.
    pub async fn read_range(config: &LogConfig, partition: TopicPartition, start: StartAt) -> Result<Range, LogError> {
        let tail = Self::open_with(config, vec![(partition.clone(), start)], true).await?;
        let end = tail.ends_at_open.get(&partition).copied().unwrap_or(0);
        Ok(Range { tail, partition, end })
    }
}

fn only(place: &TopicPartition) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition(&place.topic, place.partition);
    list
}

impl Drop for Tail {
    fn drop(&mut self) {
        // Closing a client blocks for some milliseconds: never on a thread that runs tasks.
        if let Some(consumer) = self.consumer.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}

/// A partition's records up to the end that it had when reading began.
pub struct Range {
    tail: Tail,
    partition: TopicPartition,
    end: i64,
}

impl Range {
    /// One past the last offset that it reads.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// The next record; `None` at the end. A gap is told once, as [`LogError::OutOfRange`].
    pub async fn next(&mut self) -> Result<Option<Record>, LogError> {
        loop {
            if self.tail.gaps.is_empty() && self.tail.next.get(&self.partition).is_none_or(|next| *next >= self.end) {
                return Ok(None);
            }
            match self.tail.next_or_end().await {
                // Told before the client paused: it is told again.
                Ok(None) if !self.tail.held.is_empty() => {}
                // Offsets behind the last record may belong to transaction markers: the partition's own end counts.
                Ok(None) => return Ok(None),
                Ok(Some(record)) if record.offset >= self.end => return Ok(None),
                Ok(Some(record)) => return Ok(Some(record)),
                Err(LogError::Kafka { doing, source })
                    if LogError::kafka(doing.clone(), source.clone()).retryable() =>
                {
                    tracing::debug!(doing, error = %source, "reading goes on");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// All that is left.
    pub async fn collect(mut self) -> Result<Vec<Record>, LogError> {
        let mut records = Vec::new();
        while let Some(record) = self.next().await? {
            records.push(record);
        }
        Ok(records)
    }
}
