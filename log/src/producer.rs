use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use riverrun_broker::{FiguresHandle, StorageFault};
use riverrun_schemas::{EventId, EventSet};

use crate::config::LogConfig;
use crate::error::LogError;
use crate::outbox::{Outbox, Placed, Receipt};
use crate::record::{Outgoing, Position};

/// No event's framed bytes are more than this: 256 KiB. Larger content goes to the blob store.
pub const MAX_EVENT_BYTES: usize = 256 << 10;

/// How long a full queue of the client is waited for before a send gives up.
const QUEUE_PATIENCE: Duration = Duration::from_secs(30);
const QUEUE_RETRY: Duration = Duration::from_millis(5);
/// How long the broker of this process may be unable to write before those who wait are told: one failure often passes by itself.
const STORAGE_PATIENCE: Duration = Duration::from_secs(2);

/// Writes records: idempotent, acknowledged by all replicas. Clones share one connection.
#[derive(Clone)]
pub struct Producer {
    inner: Arc<Outbox>,
    hosted: Option<FiguresHandle>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

impl Producer {
    /// A producer; connects when it is first used.
    pub fn new(config: &LogConfig) -> Result<Self, LogError> {
        let inner = Outbox::open(&config.producer()).map_err(|error| LogError::kafka("create a producer", error))?;
        Ok(Self { inner: Arc::new(inner), hosted: None })
    }

    /// The same for those who would rather be told than wait, over the same connection. The client tries again what the broker can't
    /// write until its time is over, and then knows of no reason; the broker of this process is asked itself: while its disk is full
    /// nothing is handed over, and whoever waits when writing has failed for two seconds is told ([`LogError::Storage`]). What was
    /// handed over by then may still be written.
    #[must_use]
    pub fn told_by(self, broker: FiguresHandle) -> Self {
        Self { hosted: Some(broker), ..self }
    }

    /// Writes `event` and returns after the broker's acknowledgement.
    pub async fn send<E: EventSet>(
        &self,
        event: &E,
        component: &str,
        cause: Option<EventId>,
    ) -> Result<Position, LogError> {
        self.send_one(Outgoing::event(event, component, cause)?).await
    }

    /// Writes `event` to one partition, whatever its key says.
    pub async fn send_to_partition<E: EventSet>(
        &self,
        event: &E,
        partition: i32,
        component: &str,
        cause: Option<EventId>,
    ) -> Result<Position, LogError> {
        self.send_one(Outgoing::event(event, component, cause)?.to_partition(partition)).await
    }

    /// Writes one record.
    pub async fn send_one(&self, record: Outgoing) -> Result<Position, LogError> {
        let written = async {
            let sent = enqueue(&self.inner, &record, None).await?;
            acknowledged(&record, sent).await
        };
        self.unless_unwritable(written).await
    }

    /// Writes records in the given order (per partition) and returns when all are acknowledged. On an error some of them
    /// may have been written: send them again, their ids are derived.
    pub async fn send_many(&self, records: Vec<Outgoing>) -> Result<Vec<Position>, LogError> {
        self.unless_unwritable(send_all(&self.inner, &records)).await
    }

    async fn unless_unwritable<T>(&self, written: impl Future<Output = Result<T, LogError>>) -> Result<T, LogError> {
        let Some(broker) = &self.hosted else { return written.await };
        if let Some(trouble) = broker.storage_trouble().filter(|trouble| trouble.fault == StorageFault::Full) {
            return Err(LogError::Storage(Box::new(trouble)));
        }
        tokio::select! {
            biased;
            done = written => done,
            trouble = broker.lasting_storage_trouble(STORAGE_PATIENCE) => Err(LogError::Storage(Box::new(trouble))),
        }
    }

    /// Writes records with the times that they had where they come from, in milliseconds since the epoch.
    pub(crate) async fn send_again(&self, records: &[(Outgoing, i64)]) -> Result<Vec<Position>, LogError> {
        let mut sent = Vec::with_capacity(records.len());
        for (record, at_ms) in records {
            sent.push(enqueue(&self.inner, record, Some(*at_ms)).await?);
        }
        join_all(records.iter().zip(sent).map(|((record, _), sent)| acknowledged(record, sent)))
            .await
            .into_iter()
            .collect()
    }
}

pub(crate) async fn send_all(producer: &Outbox, records: &[Outgoing]) -> Result<Vec<Position>, LogError> {
    let mut sent = Vec::with_capacity(records.len());
    for record in records {
        sent.push(enqueue(producer, record, None).await?);
    }
    join_all(records.iter().zip(sent).map(|(record, sent)| acknowledged(record, sent))).await.into_iter().collect()
}

fn doing(record: &Outgoing) -> String {
    format!("produce to {}", record.topic)
}

/// Hands a record to the client; waits while its queue is full.
async fn enqueue(producer: &Outbox, record: &Outgoing, at_ms: Option<i64>) -> Result<Receipt, LogError> {
    let since = Instant::now();
    loop {
        match producer.send(record, at_ms) {
            Ok(receipt) => return Ok(receipt),
            Err(KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) if since.elapsed() < QUEUE_PATIENCE => {
                tokio::time::sleep(QUEUE_RETRY).await;
            }
            Err(error) => return Err(LogError::kafka(doing(record), error)),
        }
    }
}

async fn acknowledged(record: &Outgoing, sent: Receipt) -> Result<Position, LogError> {
    match sent.await {
        Ok(Ok(Placed { partition, offset })) => Ok(Position { topic: record.topic.clone(), partition, offset }),
        Ok(Err(error)) => Err(LogError::kafka(doing(record), error)),
        Err(_) => Err(LogError::Stopped(doing(record))),
    }
}
