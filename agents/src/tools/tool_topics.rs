//! Calls and answers of Kafka tools: one reader of both topics, for all calls of this process.
//!
//! A call is written once with its `call_id` and then waited for. The reader begins at the oldest records that the topics
//! still have, so that after a restart the same call finds that it was asked, and an answer that came meanwhile.
//!
//! - `KTOOL-1` the first answer to a call counts; later ones are counted and ignored.
//! - `KTOOL-2` a call whose record is on the topic is not written again by the process that reads it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_log::{LogConfig, LogError, Producer, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::tools::{ToolAnswer, ToolAnswered, ToolCall, ToolCalled};
use riverrun_schemas::{Decoded, Topic};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Answers that are kept for calls that nobody here waits for yet, at most so many and so many bytes; the oldest go first.
const MAX_KEPT: usize = 4_096;
const MAX_KEPT_BYTES: usize = 16 << 20;
/// Call ids that are remembered as asked or as given up.
const MAX_IDS: usize = 65_536;
/// Pause after the topics can't be read.
const RETRY: Duration = Duration::from_millis(500);
/// Name in `ce_source`.
const COMPONENT: &str = "agent-tools";

/// What happened on the topics since the process began to read them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicCounts {
    /// First answers.
    pub answers: u64,
    /// Answers to calls that had one.
    pub doubles: u64,
    /// Answers to calls that this process had given up.
    pub late: u64,
    /// Records that could not be read.
    pub unreadable: u64,
}

/// Speaks on the topics. Starts to read with the first call.
pub(crate) struct ToolTopics {
    log: LogConfig,
    producer: Producer,
    board: Arc<Mutex<Board>>,
    caught_up: watch::Sender<bool>,
    started: std::sync::Once,
    stop: CancellationToken,
}

impl std::fmt::Debug for ToolTopics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolTopics").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl ToolTopics {
    /// Reads nothing yet; `stop` ends the reader.
    pub(crate) fn new(log: LogConfig, producer: Producer, stop: CancellationToken) -> Self {
        Self {
            log,
            producer,
            board: Arc::default(),
            caught_up: watch::Sender::new(false),
            started: std::sync::Once::new(),
            stop,
        }
    }

    /// What was seen.
    pub(crate) fn counts(&self) -> TopicCounts {
        self.board.lock().counts
    }

    /// Waits until it is known what was asked and answered before. Nothing is asked until then. Has no end of its own: whoever
    /// calls sets one.
    pub(super) async fn ready(&self) {
        self.start();
        // Its sender lives as long as this: waiting for it never fails.
        let _ = self.caught_up.subscribe().wait_for(|done| *done).await;
    }

    /// Asks, unless that was done before, and waits for the answer. Only once [`ready`](Self::ready) has ended, and without an end of
    /// its own as well.
    ///
    /// # Errors
    /// When the call can't be written.
    pub(super) async fn call(&self, call: ToolCalled) -> Result<ToolAnswered, LogError> {
        let (ticket, answer) = {
            let mut board = self.board.lock();
            if let Some(answer) = board.answer(&call.call_id) {
                return Ok(answer);
            }
            board.wait(&call.call_id)
        };
        let waiting = Waiting { board: self.board.clone(), call_id: call.call_id.clone(), ticket };
        let is_new = self.board.lock().asked.add(call.call_id.clone());
        if is_new && let Err(error) = self.producer.send(&ToolCall::from(call), COMPONENT, None).await {
            self.board.lock().asked.forget(&waiting.call_id);
            return Err(error);
        }
        let answered = answer.await.map_err(|_| LogError::Stopped("a call of a tool".to_owned()));
        drop(waiting);
        answered
    }

    fn start(&self) {
        self.started.call_once(|| {
            let reader = Reader {
                log: self.log.clone(),
                schemas: self.log.schemas.clone(),
                board: self.board.clone(),
                caught_up: self.caught_up.clone(),
            };
            let stop = self.stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = reader.read() => {}
                }
            });
        });
    }
}

/// Takes a call off the board when nobody waits for it any more.
struct Waiting {
    board: Arc<Mutex<Board>>,
    call_id: String,
    ticket: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.board.lock().leave(&self.call_id, self.ticket);
    }
}

/// A set that forgets what came first.
#[derive(Debug)]
struct Recent<T> {
    set: HashSet<T>,
    order: VecDeque<T>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { set: HashSet::new(), order: VecDeque::new() }
    }
}

impl<T: Eq + Hash + Clone> Recent<T> {
    /// Whether it is new.
    fn add(&mut self, item: T) -> bool {
        if !self.set.insert(item.clone()) {
            return false;
        }
        self.order.push_back(item);
        if self.order.len() > MAX_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
        true
    }
}

impl<T: Eq + Hash> Recent<T> {
    fn forget(&mut self, item: &T) {
        self.set.remove(item);
        self.order.retain(|known| known != item);
    }
}

type Waiter = (u64, oneshot::Sender<ToolAnswered>);

/// Who waits for what, and what is there.
#[derive(Default)]
struct Board {
    waiting: HashMap<String, Vec<Waiter>>,
    kept: HashMap<String, ToolAnswered>,
    kept_order: VecDeque<String>,
    kept_bytes: usize,
    asked: Recent<String>,
    answered: Recent<String>,
    given_up: Recent<String>,
    counts: TopicCounts,
    tickets: u64,
}

impl Board {
    fn answer(&self, call_id: &str) -> Option<ToolAnswered> {
        self.kept.get(call_id).cloned()
    }

    fn wait(&mut self, call_id: &str) -> (u64, oneshot::Receiver<ToolAnswered>) {
        let (sender, receiver) = oneshot::channel();
        self.tickets += 1;
        self.waiting.entry(call_id.to_owned()).or_default().push((self.tickets, sender));
        (self.tickets, receiver)
    }

    /// One waits no longer, with an answer or without.
    fn leave(&mut self, call_id: &str, ticket: u64) {
        if let Some(waiters) = self.waiting.get_mut(call_id) {
            waiters.retain(|(number, _)| *number != ticket);
            if waiters.is_empty() {
                self.waiting.remove(call_id);
            }
            self.given_up.add(call_id.to_owned());
        }
    }

    fn asked(&mut self, call_id: String) {
        self.asked.add(call_id);
    }

    fn answered(&mut self, answer: ToolAnswered) {
        let call_id = answer.call_id.clone();
        if !self.answered.add(call_id.clone()) {
            self.counts.doubles += 1;
            return;
        }
        self.counts.answers += 1;
        match self.waiting.remove(&call_id) {
            Some(waiters) => {
                for (_, waiter) in waiters {
                    let _ = waiter.send(answer.clone()); // who has left just now needs none
                }
            }
            None if self.given_up.set.contains(&call_id) => self.counts.late += 1,
            None => {}
        }
        self.keep(answer);
    }

    fn keep(&mut self, answer: ToolAnswered) {
        self.kept_bytes += size(&answer);
        self.kept_order.push_back(answer.call_id.clone());
        self.kept.insert(answer.call_id.clone(), answer);
        while self.kept.len() > MAX_KEPT || self.kept_bytes > MAX_KEPT_BYTES {
            let Some(oldest) = self.kept_order.pop_front() else { break };
            if let Some(gone) = self.kept.remove(&oldest) {
                self.kept_bytes = self.kept_bytes.saturating_sub(size(&gone));
            }
        }
    }
}

fn size(answer: &ToolAnswered) -> usize {
    answer.call_id.len()
        + answer.result_json.as_ref().map_or(0, String::len)
        + answer.error.as_ref().map_or(0, String::len)
}

struct Reader {
    log: LogConfig,
    schemas: Schemas,
    board: Arc<Mutex<Board>>,
    caught_up: watch::Sender<bool>,
}

impl Reader {
    /// Reads until it is dropped.
    async fn read(self) {
        loop {
            match self.follow().await {
                Ok(never) => match never {},
                Err(error) => tracing::warn!(error = %error, "tool topics can't be read, trying again"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow(&self) -> Result<std::convert::Infallible, LogError> {
        let mut tail = Tail::open(&self.log, partitions()).await?;
        loop {
            let behind = tail
                .ends_at_open()
                .iter()
                .any(|(partition, end)| tail.positions().get(partition).is_none_or(|next| next < end));
            if !behind {
                self.caught_up.send_replace(true);
            }
            match tail.next().await {
                Ok(record) => self.take(&record),
                Err(LogError::OutOfRange { partition, wanted, low, .. }) => {
                    tracing::debug!(%partition, wanted, low, "old tool records are gone");
                }
                Err(error) if error.retryable() => tracing::debug!(error = %error, "reading of tool topics goes on"),
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&self, record: &Record) {
        let taken = if &*record.topic == Topic::ToolsCalls.name() {
            self.schemas.decode::<ToolCall>(record).map(|decoded| {
                if let Decoded::Event(ToolCall::ToolCalled(call)) = decoded {
                    self.board.lock().asked(call.call_id);
                }
            })
        } else {
            self.schemas.decode::<ToolAnswer>(record).map(|decoded| {
                if let Decoded::Event(ToolAnswer::ToolAnswered(answer)) = decoded {
                    self.board.lock().answered(answer);
                }
            })
        };
        if let Err(error) = taken {
            self.board.lock().counts.unreadable += 1;
            tracing::warn!(topic = &*record.topic, partition = record.partition, offset = record.offset, error = %error,
                "a tool record can't be read and is skipped");
        }
    }
}

fn partitions() -> Vec<(TopicPartition, StartAt)> {
    [Topic::ToolsCalls, Topic::ToolsResults]
        .into_iter()
        .flat_map(|topic| {
            (0..topic.spec().partitions)
                .map(move |partition| (TopicPartition::new(topic.name(), partition), StartAt::Beginning))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(call_id: &str, text: &str) -> ToolAnswered {
        ToolAnswered { call_id: call_id.into(), result_json: Some(text.into()), error: None, at: 0 }
    }

    #[test]
    fn given_two_answers_when_they_come_then_the_first_counts_and_the_second_is_counted() {
        let mut board = Board::default();
        let (_, mut receiver) = board.wait("a");
        board.answered(answer("a", "1"));
        board.answered(answer("a", "2"));
        assert_eq!(receiver.try_recv().unwrap().result_json.as_deref(), Some("1"));
        assert_eq!(board.answer("a").unwrap().result_json.as_deref(), Some("1"), "for who asks again");
        assert_eq!(board.counts, TopicCounts { answers: 1, doubles: 1, ..TopicCounts::default() });
    }

    #[test]
    fn given_a_call_that_was_given_up_when_its_answer_comes_then_it_is_late_and_kept_for_a_next_try() {
        let mut board = Board::default();
        let (ticket, receiver) = board.wait("a");
        drop(receiver);
        board.leave("a", ticket);
        board.answered(answer("a", "1"));
        assert_eq!(board.counts.late, 1);
        assert!(board.answer("a").is_some() && board.waiting.is_empty());
    }

    #[test]
    fn given_more_answers_than_are_kept_when_they_come_then_the_oldest_go() {
        let mut board = Board::default();
        (0..MAX_KEPT + 10).for_each(|n| board.answered(answer(&n.to_string(), "1")));
        assert!(board.kept.len() == MAX_KEPT && board.answer("9").is_none() && board.answer("10").is_some());
        let large = "x".repeat(MAX_KEPT_BYTES / 2);
        ["a", "b", "c"].iter().for_each(|id| board.answered(answer(id, &large)));
        assert!(board.kept_bytes <= MAX_KEPT_BYTES && board.answer("c").is_some() && board.answer("a").is_none());
        assert_eq!(board.counts.doubles, 0);
    }
}
