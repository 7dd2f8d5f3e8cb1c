use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::oneshot;

use super::context::Callback;
use super::{CommitOffset, Inner, let_go_of, offset_list};
use crate::error::LogError;
use crate::record::TopicPartition;

/// Commits of one member, one request at a time, so that an older offset never comes behind a newer one. What is asked
/// for while a request is on its way goes along with the next one, the newest offset of each partition.
///
/// The client's own asynchronous commit tells nobody how it went; so requests wait on a blocking thread, which exists
/// only while one is on its way.
#[derive(Default)]
pub(super) struct Commits {
    waiting: Mutex<Waiting>,
    serial: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    offsets: BTreeMap<TopicPartition, CommitOffset>,
    sending: bool,
}

impl Commits {
    /// Commits soon; the answer comes through the session.
    pub(super) fn soon(self: &Arc<Self>, consumer: &Arc<Inner>, offsets: &[CommitOffset]) {
        let mut waiting = self.waiting.lock();
        waiting.offsets.extend(offsets.iter().map(|offset| (offset.partition.clone(), offset.clone())));
        if !waiting.sending {
            waiting.sending = true;
            tokio::spawn(send(self.clone(), consumer.clone()));
        }
    }

    fn take(&self) -> Option<Vec<CommitOffset>> {
        let mut waiting = self.waiting.lock();
        let offsets: Vec<_> = std::mem::take(&mut waiting.offsets).into_values().collect();
        waiting.sending = !offsets.is_empty();
        waiting.sending.then_some(offsets)
    }

    /// Commits after what is on its way, and waits for the answer.
    pub(super) async fn now(
        &self,
        consumer: &Arc<Inner>,
        offsets: &[CommitOffset],
        limit: Duration,
        doing: String,
    ) -> Result<(), LogError> {
        {
            let mut waiting = self.waiting.lock();
            offsets.iter().for_each(|offset| drop(waiting.offsets.remove(&offset.partition)));
        }
        let commit = async {
            let _mine = self.serial.lock().await;
            request(consumer.clone(), offsets).await
        };
        match tokio::time::timeout(limit, commit).await {
            Ok(result) => result?.map_err(|error| LogError::kafka(doing, error)),
            Err(_) => Err(LogError::Timeout { doing, seconds: limit.as_secs() }),
        }
    }
}

async fn send(commits: Arc<Commits>, consumer: Arc<Inner>) {
    loop {
        let _mine = commits.serial.lock().await;
        let Some(offsets) = commits.take() else { break };
        let error = match request(consumer.clone(), &offsets).await {
            Ok(result) => result.err(),
            Err(_) => Some(KafkaError::Canceled),
        };
        let partitions = offsets.into_iter().map(|offset| offset.partition).collect();
        consumer.context().push(Callback::Committed { partitions, error });
    }
    let_go_of(consumer);
}

async fn request(consumer: Arc<Inner>, offsets: &[CommitOffset]) -> Result<Result<(), KafkaError>, LogError> {
    let list = offset_list(offsets)?;
    let call = move || match consumer.commit(&list, CommitMode::Sync) {
        // Nothing of it is new: it is durable already.
        Err(error) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::NoOffset) => Ok(()),
        answered => answered,
    };
    // On a thread of its own: librdkafka never answers when the broker goes for good meanwhile, and a runtime that ends waits
    // for its blocking threads.
    let stopped = || LogError::Stopped("a commit of offsets".to_owned());
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name("commit".to_owned()).spawn(move || answer.send(call()));
    thread.map_err(|_| stopped())?;
    answered.await.map_err(|_| stopped())
}
