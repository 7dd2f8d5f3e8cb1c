use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};
use tokio::sync::oneshot;

use crate::record::TopicPartition;

/// What the client calls back, kept until the loop takes it.
#[derive(Debug)]
pub(super) enum Callback {
    Assign(Vec<TopicPartition>),
    Revoke { partitions: Vec<TopicPartition>, lost: bool },
    Committed { partitions: Vec<TopicPartition>, error: Option<KafkaError> },
}

/// Callbacks run on the thread that polls: they only leave a message here.
#[derive(Default)]
pub(super) struct SessionContext {
    queue: Mutex<VecDeque<Callback>>,
    /// Who waits for a message that comes from another thread.
    listener: AtomicWaker,
    closing: AtomicBool,
    /// Goes with the client, once that has closed.
    _client: Option<oneshot::Sender<Infallible>>,
}

impl SessionContext {
    /// With what ends when the client has closed, whoever was the last to hold it.
    pub(super) fn new() -> (Self, oneshot::Receiver<Infallible>) {
        let (client, gone) = oneshot::channel();
        (Self { _client: Some(client), ..Self::default() }, gone)
    }

    pub(super) fn push(&self, callback: Callback) {
        self.queue.lock().push_back(callback);
        self.listener.wake();
    }

    pub(super) fn listen(&self, waker: &Waker) {
        self.listener.register(waker);
    }

    pub(super) fn pop(&self) -> Option<Callback> {
        self.queue.lock().pop_front()
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    pub(super) fn closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }
}

impl ClientContext for SessionContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        crate::context::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(error = %error, reason, "kafka client reports an error");
    }
}

impl ConsumerContext for SessionContext {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let partitions = named(list);
        let callback = match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Callback::Assign(partitions),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                Callback::Revoke { partitions, lost: consumer.assignment_lost() }
            }
            other => {
                tracing::error!(error = %RDKafkaErrorCode::from(other), "rebalance failed; giving everything back");
                Callback::Revoke { partitions, lost: true }
            }
        };
        if self.closing() {
            settle(consumer, callback);
        } else {
            self.push(callback);
        }
    }
}

fn named(list: &TopicPartitionList) -> Vec<TopicPartition> {
    list.elements().iter().map(|element| TopicPartition::new(element.topic(), element.partition())).collect()
}

/// Gives partitions back to the group.
pub(super) fn let_go<C: Consumer<SessionContext>>(consumer: &C, list: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(list).or_else(|_| consumer.unassign()),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
    }
}

/// Answers a callback that nobody will: the client would wait for it for ever.
pub(super) fn settle<C: Consumer<SessionContext>>(consumer: &C, callback: Callback) {
    let list = |partitions: &[TopicPartition]| {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(&partition.topic, partition.partition);
        }
        list
    };
    let settled = match callback {
        // Taken and never read: closing gives it back.
        Callback::Assign(partitions) => match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(&list(&partitions)),
            RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
        },
        Callback::Revoke { partitions, .. } => let_go(consumer, &list(&partitions)),
        Callback::Committed { .. } => Ok(()),
    };
    if let Err(error) = settled {
        tracing::debug!(error = %error, "can't settle a rebalance while closing");
    }
}
