//! Marks of transactions behind the last record of a partition. No member is given them, so that the offset behind its
//! last record stays before them, and its group would lag behind for ever.
//!
//! The client counts them in its own position, in the order of what it hands out: everything before that position was
//! handed out, or is nothing to hand out. It is asked a moment after the end of a partition was told, and never else.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rdkafka::Offset;
use rdkafka::consumer::Consumer;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::Inner;
use crate::record::TopicPartition;

/// How long after the end of a partition the client is asked. Under load one question serves the ends of that time.
const PAUSE: Duration = Duration::from_millis(200);

/// Where the client is in each partition.
pub(super) type Positions = Vec<(TopicPartition, i64)>;

/// When the client is asked how far it is.
#[derive(Default)]
pub(super) struct Marks {
    /// Numbers of partitions whose end was told since the client was asked last.
    ended: HashSet<i32>,
    pause: Option<Pin<Box<Sleep>>>,
    asking: Option<Asking>,
}

struct Asking {
    /// Numbers of partitions whose answer counts: their end was told before, and they are read on from there.
    of: HashSet<i32>,
    answer: JoinHandle<Positions>,
}

impl Marks {
    /// The end of a partition was told.
    pub(super) fn end_told(&mut self, number: i32) {
        self.ended.insert(number);
        if self.pause.is_none() {
            self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
        }
    }

    /// These are read from elsewhere from now on, or not at all: the client's position may be that of before. It tells
    /// their ends again.
    pub(super) fn forget<'p>(&mut self, partitions: impl IntoIterator<Item = &'p TopicPartition>) {
        for partition in partitions {
            self.ended.remove(&partition.partition);
            if let Some(asking) = &mut self.asking {
                asking.of.remove(&partition.partition);
            }
        }
    }

    /// Waits until the client has said where it is in partitions whose end was told; for ever without such.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, consumer: &Arc<Inner>) -> Poll<Positions> {
        if self.asking.is_none() {
            let Some(pause) = &mut self.pause else { return Poll::Pending };
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
            let consumer = consumer.clone();
            let answer = tokio::task::spawn_blocking(move || positions(&consumer));
            self.asking = Some(Asking { of: std::mem::take(&mut self.ended), answer });
        }
        let Some(asking) = &mut self.asking else { return Poll::Pending };
        let Poll::Ready(answer) = Pin::new(&mut asking.answer).poll(cx) else { return Poll::Pending };
        let of = std::mem::take(&mut asking.of);
        self.asking = None;
        let mut found = answer.unwrap_or_default(); // the runtime is ending
        found.retain(|(partition, _)| of.contains(&partition.partition));
        Poll::Ready(found)
    }
}

/// Asks the client, not the broker.
fn positions(consumer: &Inner) -> Positions {
    let list = match consumer.position() {
        Ok(list) => list,
        Err(error) => {
            tracing::debug!(error = %error, "the client can't say where it is");
            return Positions::new();
        }
    };
    let of = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| match element.offset() {
        Offset::Offset(next) => Some((TopicPartition::new(element.topic(), element.partition()), next)),
        _ => None, // nothing was read yet
    };
    list.elements().iter().filter_map(of).collect()
}
