//! The tracer: from the events of runs to spans at an OpenTelemetry service.
//!
//! It is one more consumer group of the log (`riverrun.tracer`). It folds `riverrun.agent.events` with the gate of all
//! readers, hands each span over as soon as what it stands for has ended, and the root when the run has. Offsets are
//! committed behind that; beside an offset stands where the oldest open run begins, and the next owner of the partition
//! folds from there without telling anything twice. A crash between handing over and committing tells the same spans
//! again: their ids are derived, so a service that keeps spans by id has them once.

mod content;
mod fold;
mod otlp;
mod partition;
mod service;
mod settings;
mod span;
#[cfg(test)]
mod testing;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_log::{AssignedPartition, LogError, Outgoing, Record, StartAt, Tail, TopicPartition};
use riverrun_schemas::Decoded;
use riverrun_schemas::agent::AgentEvent;

pub use service::{TracingFigures, TracingService, TracingState, TracingStatus};
pub use settings::{DEFAULT_PROJECT, OtlpConfig, TracingSettings};

use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};
use fold::Defaults;
use partition::{At, PartitionTraces};

/// The worker's name; its group is `riverrun.tracer`.
pub const NAME: &str = "tracer";

/// Events handed over together, at most.
const MAX_BATCH: usize = 256;
/// How long the first of a batch waits for others: a run that works sends a span or two a request instead of one an event.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// Tells runs to the tracing service.
#[derive(Debug)]
pub struct Tracer {
    service: TracingService,
    defaults: Defaults,
    partitions: Mutex<HashMap<i32, PartitionTraces>>,
}

impl Tracer {
    /// A tracer for `service`; `provider` and `model` are those of runs that name none.
    pub fn new(service: TracingService, provider: &str, model: &str) -> Self {
        let defaults = Defaults { provider: provider.to_owned(), model: model.to_owned(), content: service.content() };
        Self { service, defaults, partitions: Mutex::default() }
    }

    /// Folds what lies before the committed offset of a partition: the beginnings of its open runs.
    async fn catch_up(&self, assigned: &AssignedPartition, context: &Context) -> Result<PartitionTraces, LogError> {
        let mut traces = PartitionTraces::default();
        let committed = assigned.committed.unwrap_or(0).min(assigned.high);
        let from = assigned.metadata.parse().unwrap_or(committed).max(assigned.low);
        if from >= committed {
            return Ok(traces);
        }
        let mut tail = Tail::open(&context.log, vec![(assigned.partition.clone(), StartAt::Offset(from))]).await?;
        while tail.positions().get(&assigned.partition).is_some_and(|next| *next < committed) {
            let record = match tail.next().await {
                Ok(record) => record,
                Err(error) if error.retryable() => return Err(error),
                Err(error) => {
                    tracing::warn!(partition = %assigned.partition, error = %error, "beginnings of runs can't be read; these runs are traced no further");
                    return Ok(traces);
                }
            };
            if record.offset < committed
                && let Some((at, event)) = readable(&record, context)
            {
                let _told_before = traces.fold(&[(at, &event)], &self.defaults);
            }
        }
        Ok(traces)
    }
}

/// The event in a record; what can't be read was put among the dead letters when it was read first.
fn readable(record: &Record, context: &Context) -> Option<(At, AgentEvent)> {
    let outside = record.envelope().traceparent.and_then(|text| text.parse().ok());
    match context.schemas.decode::<AgentEvent>(record) {
        Ok(Decoded::Event(event)) => Some((At { offset: record.offset, outside }, event)),
        Ok(Decoded::UnknownType { .. }) | Err(_) => None,
    }
}

#[async_trait]
impl Worker for Tracer {
    type Input = AgentEvent;

    fn name(&self) -> &'static str {
        NAME
    }

    /// The projector does.
    fn answers_for_topic(&self) -> bool {
        false
    }

    fn lanes(&self) -> Lanes {
        Lanes::PerPartition { max_batch: MAX_BATCH, max_wait: MAX_WAIT }
    }

    async fn handle(&self, batch: &[Delivery<AgentEvent>], _context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let Some(partition) = batch.first().map(|delivery| delivery.position.partition) else { return Ok(Vec::new()) };
        let events: Vec<(At, &AgentEvent)> = batch
            .iter()
            .map(|delivery| {
                let outside = delivery.envelope.traceparent.as_deref().and_then(|text| text.parse().ok());
                (At { offset: delivery.position.offset, outside }, &delivery.event)
            })
            .collect();
        // What the batch changes is kept only once its spans are handed over: a batch that comes again gives them again.
        let (spans, changes) = self.partitions.lock().entry(partition).or_default().preview(&events, &self.defaults);
        self.service.deliver(&spans).await;
        if let Some(traces) = self.partitions.lock().get_mut(&partition) {
            traces.accept(changes);
        }
        Ok(Vec::new())
    }

    fn note(&self, partition: &TopicPartition, offset: i64) -> Option<String> {
        let mut partitions = self.partitions.lock();
        partitions.get_mut(&partition.partition).map(|traces| traces.fold_from(offset).to_string())
    }

    async fn assigned(
        &self,
        partitions: &[AssignedPartition],
        context: &Context,
    ) -> Result<Vec<(TopicPartition, StartAt)>, WorkError> {
        for assigned in partitions {
            let traces = self.catch_up(assigned, context).await?;
            self.partitions.lock().insert(assigned.partition.partition, traces);
        }
        Ok(partitions.iter().map(|assigned| (assigned.partition.clone(), assigned.default_start())).collect())
    }

    async fn revoked(&self, partitions: &[TopicPartition]) {
        let mut known = self.partitions.lock();
        for partition in partitions {
            known.remove(&partition.partition);
        }
    }
}

#[cfg(test)]
mod tests;
