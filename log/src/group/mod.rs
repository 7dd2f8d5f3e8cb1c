//! Membership in a consumer group, as one stream of events that the caller's loop reads.
//!
//! librdkafka's rebalance callbacks become messages with an answer: [`SessionEvent::Assigned`] is answered by
//! [`GroupConsumer::start`] with the offsets to start from, [`SessionEvent::Revoked`] by [`GroupConsumer::release`] once
//! the caller has let go. Until the answer the group waits and nothing is fetched, so that one loop owns all state.

mod commits;
mod context;
mod lists;
mod marks;
mod questions;
mod types;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::Stream;
use rdkafka::consumer::{Consumer, ConsumerGroupMetadata, RebalanceProtocol, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::{self, Asked};
use crate::config::LogConfig;
use crate::error::{LogError, code_of};
use crate::record::{Record, StartAt, TopicPartition};
use crate::watermarks::{self, Bounds, QUERY_TIMEOUT};

use commits::Commits;
use context::{Callback, SessionContext};
pub(crate) use lists::offset_list;
use lists::{add, names};
use marks::{Marks, Positions};
use questions::{Found, Question, answer};
pub use types::{AssignedPartition, CommitOffset, GroupConfig, OutOfRange, SessionEvent};

/// How long closing waits for what others ask of the client.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Pause before a restart that a rebalance was in the way of is tried again.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

type Inner = StreamConsumer<SessionContext>;

impl Asked for Inner {
    fn ask_anything(&self) {
        let _ = self.subscription();
    }
}

/// Identity and generation of a member, for transactions.
pub struct GroupMetadata(pub(crate) ConsumerGroupMetadata);

enum Wake {
    Message(Result<Record, KafkaError>),
    Callback(Callback),
    Lookup(Result<Found, LogError>),
    Positions(Positions),
}

/// A member of a consumer group. Must be polled by [`next`](Self::next) all the time, work or no work.
pub struct GroupConsumer {
    consumer: Option<Arc<Inner>>,
    /// Ends when the client has closed.
    gone: oneshot::Receiver<Infallible>,
    group: String,
    topics: Vec<Arc<str>>,
    ready: VecDeque<SessionEvent>,
    lookup: Option<JoinHandle<Result<Found, LogError>>>,
    unanswered: Option<Callback>,
    commits: Arc<Commits>,
    bounds: HashMap<TopicPartition, Bounds>,
    /// The next offset of each started partition.
    next: HashMap<TopicPartition, i64>,
    marks: Marks,
    tell_end: bool,
    /// What a client is made of that asks questions for this one.
    beside: ClientConfig,
}

impl GroupConsumer {
    /// Joins the group.
    pub fn join(config: &LogConfig, group: &GroupConfig) -> Result<Self, LogError> {
        let (context, gone) = SessionContext::new();
        let consumer: Inner = config
            .member(group)
            .create_with_context(context)
            .map_err(|error| LogError::kafka(format!("create a consumer for {}", group.group), error))?;
        let topics: Vec<&str> = group.topics.iter().map(String::as_str).collect();
        consumer
            .subscribe(&topics)
            .map_err(|error| LogError::kafka(format!("subscribe {} to {}", group.group, topics.join(", ")), error))?;
        let consumer = Arc::new(consumer);
        clock::keep_awake(&consumer);
        Ok(Self {
            consumer: Some(consumer),
            gone,
            group: group.group.clone(),
            topics: group.topics.iter().map(|topic| Arc::from(topic.as_str())).collect(),
            ready: VecDeque::new(),
            lookup: None,
            unanswered: None,
            commits: Arc::default(),
            bounds: HashMap::new(),
            next: HashMap::new(),
            marks: Marks::default(),
            tell_end: group.tell_end,
            beside: config.observer(&group.group),
        })
    }

    fn consumer(&self) -> &Arc<Inner> {
        self.consumer.as_ref().unwrap_or_else(|| unreachable!("it is taken only by close and drop"))
    }

    /// The next event. Cancel-safe. An error is final: leave the group and say why.
    pub async fn next(&mut self) -> Result<SessionEvent, LogError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if let Some(event) = match self.wake().await {
                Wake::Message(Ok(record)) => {
                    self.next.insert(record.topic_partition(), record.offset + 1);
                    Some(SessionEvent::Record(record))
                }
                Wake::Message(Err(error)) => self.on_error(error)?,
                Wake::Callback(callback) => self.on_callback(callback),
                Wake::Lookup(found) => self.on_lookup(found),
                Wake::Positions(positions) => {
                    self.on_positions(positions);
                    None
                }
            } {
                return Ok(event);
            }
        }
    }

    /// Waits for the client, for a callback that it made on the way, or for a question beside it.
    async fn wake(&mut self) -> Wake {
        let Self { consumer, lookup, topics, marks, .. } = self;
        let consumer = consumer.as_ref().unwrap_or_else(|| unreachable!("it is taken only by close and drop"));
        let callbacks = consumer.context();
        let mut messages = consumer.stream();
        std::future::poll_fn(|cx| {
            callbacks.listen(cx.waker());
            if let Some(callback) = callbacks.pop() {
                return Poll::Ready(Wake::Callback(callback));
            }
            if let Some(running) = lookup.as_mut()
                && let Poll::Ready(found) = Pin::new(running).poll(cx)
            {
                *lookup = None;
                let found = found.unwrap_or_else(|_| Err(LogError::Stopped("a lookup of offsets".to_owned())));
                return Poll::Ready(Wake::Lookup(found));
            }
            if let Poll::Ready(positions) = marks.poll(cx, consumer) {
                return Poll::Ready(Wake::Positions(positions));
            }
            match Pin::new(&mut messages).poll_next(cx) {
                Poll::Ready(Some(Ok(message))) => {
                    let topic = intern(topics, rdkafka::Message::topic(&message));
                    Poll::Ready(Wake::Message(Ok(Record::copy_of(&message, topic))))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Wake::Message(Err(error))),
                // The stream has no end; and a callback may have been made by the very poll that found nothing.
                Poll::Ready(None) | Poll::Pending => {
                    callbacks.pop().map_or(Poll::Pending, |callback| Poll::Ready(Wake::Callback(callback)))
                }
            }
        })
        .await
    }

    fn on_callback(&mut self, callback: Callback) -> Option<SessionEvent> {
        match callback {
            Callback::Assign(ref partitions) => {
                let reads = !self.next.is_empty() && !partitions.is_empty();
                let beside = reads.then(|| self.beside.clone());
                self.ask(Question::Assigned(partitions.clone(), beside));
                self.unanswered = Some(callback);
                None
            }
            Callback::Revoke { ref partitions, lost } => {
                if let Some(lookup) = self.lookup.take() {
                    lookup.abort();
                }
                self.marks.forget(partitions);
                for partition in partitions {
                    self.next.remove(partition);
                    self.bounds.remove(partition);
                }
                let event = SessionEvent::Revoked { partitions: partitions.clone(), lost };
                self.unanswered = Some(callback);
                Some(event)
            }
            Callback::Committed { partitions, error } => {
                let error = error.map(|error| LogError::kafka(format!("commit offsets of {}", self.group), error));
                Some(SessionEvent::Committed { partitions, error })
            }
        }
    }

    fn on_lookup(&mut self, found: Result<Found, LogError>) -> Option<SessionEvent> {
        match found {
            Ok(Found::Assigned(partitions)) => {
                self.bounds
                    .extend(partitions.iter().map(|p| (p.partition.clone(), Bounds { low: p.low, high: p.high })));
                Some(SessionEvent::Assigned(partitions))
            }
            Ok(Found::OutOfRange(gaps)) => {
                for gap in gaps {
                    match self.restart(&gap.partition, gap.low) {
                        Ok(()) => self.report(gap),
                        Err(error) => {
                            // A rebalance is in the way: look again when it is over.
                            self.ask(Question::OutOfRange(self.next.clone(), RESTART_PAUSE));
                            return Some(SessionEvent::Trouble(error));
                        }
                    }
                }
                None
            }
            Err(error) => Some(SessionEvent::Trouble(error)),
        }
    }

    /// What lies between the last record and where the client is are marks of transactions.
    fn on_positions(&mut self, positions: Positions) {
        for (partition, position) in positions {
            if let Some(next) = self.next.get_mut(&partition)
                && position > *next
            {
                *next = position;
                self.ready.push_back(SessionEvent::Passed { partition, next: position });
            }
        }
    }

    /// The client has given the partition up after its offset was refused; only a new assignment wakes it.
    fn restart(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), LogError> {
        let failed = |error| LogError::kafka(format!("read {partition} from offset {offset} on"), error);
        self.marks.forget([partition]);
        let consumer = self.consumer();
        let mut list = TopicPartitionList::new();
        match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => {
                consumer.incremental_unassign(&names(std::slice::from_ref(partition))).map_err(failed)?;
                add(&mut list, partition, offset)?;
                consumer.incremental_assign(&list).map_err(failed)
            }
            RebalanceProtocol::Eager | RebalanceProtocol::None => {
                for (other, next) in &self.next {
                    add(&mut list, other, if other == partition { offset } else { *next })?;
                }
                consumer.assign(&list).map_err(failed)
            }
        }
    }

    fn report(&mut self, gap: OutOfRange) {
        tracing::error!(group = self.group, partition = %gap.partition, wanted = gap.wanted, low = gap.low, high = gap.high, "offset is out of range; reading goes on at the first record");
        self.next.insert(gap.partition.clone(), gap.low);
        self.ready.push_back(SessionEvent::OutOfRange(gap));
    }

    fn on_error(&mut self, error: KafkaError) -> Result<Option<SessionEvent>, LogError> {
        let doing = format!("read as a member of {}", self.group);
        match error {
            KafkaError::PartitionEOF(number) => {
                self.marks.end_told(number);
                return Ok(self.tell_end.then_some(SessionEvent::End(number)));
            }
            KafkaError::MessageConsumptionFatal(_) => return Err(LogError::kafka(doing, error)),
            _ => {}
        }
        if code_of(&error) == Some(RDKafkaErrorCode::AutoOffsetReset) {
            self.ask(Question::OutOfRange(self.next.clone(), Duration::ZERO));
            return Ok(None);
        }
        Ok(Some(SessionEvent::Trouble(LogError::kafka(doing, error))))
    }

    fn ask(&mut self, question: Question) {
        let consumer = self.consumer().clone();
        if let Some(older) = self.lookup.replace(tokio::spawn(answer(consumer, question))) {
            older.abort();
        }
    }

    /// Answers [`SessionEvent::Assigned`]: begins to read each partition where it is said. A start outside of the log is
    /// reported as [`SessionEvent::OutOfRange`] and moved to the first record.
    pub fn start(&mut self, starts: &[(TopicPartition, StartAt)]) -> Result<(), LogError> {
        let mut list = TopicPartitionList::with_capacity(starts.len());
        for (partition, start) in starts {
            let bounds = self
                .bounds
                .get(partition)
                .copied()
                .ok_or_else(|| LogError::NotFound(format!("assigned partition {partition}")))?;
            let (offset, missed) = watermarks::resolve(*start, bounds);
            self.next.insert(partition.clone(), offset);
            if let Some(wanted) = missed {
                self.report(OutOfRange { partition: partition.clone(), wanted, low: bounds.low, high: bounds.high });
            }
            add(&mut list, partition, offset)?;
        }
        self.unanswered = None;
        self.marks.forget(starts.iter().map(|(partition, _)| partition));
        let consumer = self.consumer();
        match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(&list),
            RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.assign(&list),
        }
        .map_err(|error| LogError::kafka(format!("take partitions for {}", self.group), error))
    }

    /// The offset that is read next in a started partition.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.next.get(partition).copied()
    }

    /// Answers [`SessionEvent::Revoked`]: from now on others may read these partitions.
    pub fn release(&mut self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        self.unanswered = None;
        context::let_go(self.consumer().as_ref(), &names(partitions))
            .map_err(|error| LogError::kafka(format!("give back partitions of {}", self.group), error))
    }

    /// Commits without waiting; [`SessionEvent::Committed`] tells how it went. Commits never overtake each other.
    pub fn commit(&self, offsets: &[CommitOffset]) -> Result<(), LogError> {
        self.commits.soon(self.consumer(), offsets);
        Ok(())
    }

    /// Commits behind what is on its way and waits for the broker's answer, at most `limit`.
    pub async fn commit_now(&self, offsets: &[CommitOffset], limit: Duration) -> Result<(), LogError> {
        self.commits.now(self.consumer(), offsets, limit, format!("commit offsets of {}", self.group)).await
    }

    /// Stops fetching these partitions; polling goes on. What the client had read ahead of them is read again later.
    pub fn pause(&self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        self.consumer()
            .pause(&names(partitions))
            .map_err(|error| LogError::kafka(format!("pause partitions of {}", self.group), error))
    }

    /// Goes on fetching these partitions.
    pub fn resume(&self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        self.consumer()
            .resume(&names(partitions))
            .map_err(|error| LogError::kafka(format!("resume partitions of {}", self.group), error))
    }

    /// Reads a started partition from another offset on. Blocks until the client has turned, some milliseconds.
    pub fn seek(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), LogError> {
        self.marks.forget([partition]);
        self.consumer()
            .seek(&partition.topic, partition.partition, Offset::Offset(offset), QUERY_TIMEOUT)
            .map_err(|error| LogError::kafka(format!("seek in {partition}"), error))?;
        self.next.insert(partition.clone(), offset);
        Ok(())
    }

    /// Identity and generation, for a transaction that commits this member's offsets.
    pub fn metadata(&self) -> Result<GroupMetadata, LogError> {
        self.consumer()
            .group_metadata()
            .map(GroupMetadata)
            .ok_or_else(|| LogError::NotFound(format!("membership in {}", self.group)))
    }

    /// A cheap handle that answers questions about the group from elsewhere.
    pub fn watch(&self) -> GroupWatch {
        GroupWatch { consumer: Arc::downgrade(self.consumer()) }
    }

    /// Leaves the group (a static member keeps its place for the session timeout) and waits until that is said: whoever ends
    /// before is missed only after the session timeout, and nobody has its partitions until then. A commit that is on its way
    /// is waited for, at most five seconds.
    pub async fn close(mut self) {
        if let Some(closing) = self.shut() {
            let _ = tokio::task::spawn_blocking(move || drop(closing)).await;
            // A commit or a question may still hold the client, which closes when the last one lets go of it.
            if tokio::time::timeout(CLOSE_LIMIT, &mut self.gone).await.is_err() {
                tracing::warn!(
                    group = self.group,
                    "the client does not let go of its group: it is missed after the session timeout"
                );
            }
        }
    }

    /// From here on the client answers rebalances by itself: closing waits for those answers.
    fn shut(&mut self) -> Option<Arc<Inner>> {
        if let Some(lookup) = self.lookup.take() {
            lookup.abort();
        }
        let consumer = self.consumer.take()?;
        consumer.context().close();
        if let Some(callback) = self.unanswered.take() {
            context::settle(consumer.as_ref(), callback);
        }
        while let Some(callback) = consumer.context().pop() {
            context::settle(consumer.as_ref(), callback);
        }
        Some(consumer)
    }
}

impl Drop for GroupConsumer {
    fn drop(&mut self) {
        // Closing blocks until the broker has heard of it: never on a thread that runs tasks.
        if let Some(consumer) = self.shut() {
            let_go_of(consumer);
        }
    }
}

/// Lets go of a client on a thread that runs tasks: the last who does closes it, which blocks until the broker has heard of it.
fn let_go_of(consumer: Arc<Inner>) {
    if let Some(last) = Arc::into_inner(consumer) {
        std::thread::spawn(move || drop(last));
    }
}

/// Answers questions about a group while its member runs.
#[derive(Clone)]
pub struct GroupWatch {
    consumer: std::sync::Weak<Inner>,
}

impl GroupWatch {
    /// One past the last offset of a partition; `None` once the member has left.
    pub async fn high(&self, partition: &TopicPartition) -> Option<Result<i64, LogError>> {
        let consumer = self.consumer.upgrade()?;
        let partition = partition.clone();
        let asked = tokio::task::spawn_blocking(move || watermarks::bounds(&consumer, &partition)).await;
        Some(
            asked
                .unwrap_or_else(|_| Err(LogError::Stopped("a lookup of offsets".to_owned())))
                .map(|bounds| bounds.high),
        )
    }
}

fn intern(topics: &mut Vec<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(topic) = topics.iter().find(|topic| &***topic == name) {
        return topic.clone();
    }
    let topic: Arc<str> = name.into();
    topics.push(topic.clone());
    topic
}
