//! Records whose schema only an outside registry has: while it is asked for, or away, they and what is behind them in their
//! partitions wait, and other partitions go on.

use std::collections::{HashMap, VecDeque};

use tokio::task::JoinSet;

use crate::record::{Record, TopicPartition};
use crate::registry::Schemas;

/// What a reader has read and can't hand out yet. It pauses the partitions, so that there is no more of each than the client
/// had read ahead.
pub(super) struct Held {
    schemas: Schemas,
    waiting: HashMap<TopicPartition, VecDeque<Record>>,
    asking: JoinSet<TopicPartition>,
    ready: VecDeque<Record>,
}

/// What becomes of a record.
pub(super) enum Taken {
    /// It can be handed out.
    Ready(Record),
    /// It waits; the partition is to be paused where it is the first.
    Waits(Option<TopicPartition>),
}

impl Held {
    pub(super) fn new(schemas: Schemas) -> Self {
        Self { schemas, waiting: HashMap::new(), asking: JoinSet::new(), ready: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }

    pub(super) fn take(&mut self, record: Record) -> Taken {
        if !self.waiting.is_empty()
            && let Some(waiting) = self.waiting.get_mut(&record.topic_partition())
        {
            waiting.push_back(record);
            return Taken::Waits(None);
        }
        if self.schemas.is_settled(&record) {
            return Taken::Ready(record);
        }
        let (schemas, asked, place) = (self.schemas.clone(), record.clone(), record.topic_partition());
        self.asking.spawn(async move {
            schemas.settle(&asked).await;
            asked.topic_partition()
        });
        self.waiting.insert(place.clone(), VecDeque::from([record]));
        Taken::Waits(Some(place))
    }

    /// The next record that waited and waits no more.
    pub(super) fn pop(&mut self) -> Option<Record> {
        self.ready.pop_front()
    }

    /// The next partition whose question is answered; `None` when nothing is asked. Cancel-safe.
    pub(super) async fn answered(&mut self) -> Option<TopicPartition> {
        loop {
            if let Ok(place) = self.asking.join_next().await? {
                return Some(place);
            }
        }
    }

    /// Lets go of what waited in a partition; `false` when the next question holds it up.
    pub(super) fn release(&mut self, place: &TopicPartition) -> bool {
        for record in self.waiting.remove(place).unwrap_or_default() {
            if let Taken::Ready(record) = self.take(record) {
                self.ready.push_back(record);
            }
        }
        !self.waiting.contains_key(place)
    }

    /// Forgets everything, for it is read again; gives the partitions that were paused.
    pub(super) fn clear(&mut self) -> Vec<TopicPartition> {
        self.ready.clear();
        self.asking = JoinSet::new();
        self.waiting.drain().map(|(place, _)| place).collect()
    }
}
