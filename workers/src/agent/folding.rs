//! Reading run events: the past of a partition when it is taken, then each event as it comes.

use std::time::{Duration, Instant};

use riverrun_agents::RunState;
use riverrun_log::{AssignedPartition, GroupConsumer, LogError, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{AgentEvent, RunSnapshotted};
use riverrun_schemas::{Decoded, Topic};
use tokio_util::sync::CancellationToken;

use super::partition::Partition;
use super::ready::Folded;
use super::{Coordinator, DRAIN, RETRY_PAUSE, asides, snapshots};

/// How long a partition waits for the first try to read a run's fold. Longer ones are made beside its other runs.
const FIRST_TRY: Duration = Duration::from_secs(5);

impl Coordinator {
    /// Folds the open runs of new partitions, then drives them and begins to take commands.
    pub(super) async fn on_assigned(
        &mut self,
        group: &mut GroupConsumer,
        assigned: Vec<AssignedPartition>,
        stop: &CancellationToken,
    ) -> Result<(), LogError> {
        let mut starts: Vec<(TopicPartition, StartAt)> = self
            .tail
            .as_ref()
            .map(|tail| {
                tail.positions().iter().map(|(partition, next)| (partition.clone(), StartAt::Offset(*next))).collect()
            })
            .unwrap_or_default();
        for partition in &assigned {
            let number = partition.partition.partition;
            let fold_from = partition.metadata.parse::<i64>().map_or(StartAt::Beginning, StartAt::Offset);
            starts.push((TopicPartition::new(Topic::AgentEvents.name(), number), fold_from));
            let next_command = partition.committed.unwrap_or(partition.low);
            self.partitions.insert(number, Partition::new(next_command));
            self.progress.position(&partition.partition, next_command);
        }
        let since = Instant::now();
        let tail = loop {
            match Tail::open_telling_ends(&self.config.log, starts.clone()).await {
                Ok(tail) => break tail,
                Err(error) if error.retryable() && !stop.is_cancelled() => {
                    tracing::warn!(error = %error, "can't read run events, trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        };
        for (partition, next) in tail.positions() {
            if let Some(state) = self.partitions.get_mut(&partition.partition) {
                state.next_event = *next;
            }
        }
        self.tail = Some(tail);
        let numbers: Vec<i32> = assigned.iter().map(|p| p.partition.partition).collect();
        let past: Vec<TopicPartition> =
            numbers.iter().map(|number| TopicPartition::new(Topic::AgentEvents.name(), *number)).collect();
        while !self.tail.as_ref().is_some_and(|tail| past.iter().all(|partition| tail.has_read(partition))) {
            let record = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                record = next_or_end_of(&mut self.tail) => record,
            };
            match record {
                Ok(Some(record)) => self.on_event(&record).await,
                Ok(None) => {} // the end of a partition
                Err(error) => tracing::warn!(error = %error, "folding run events"),
            }
        }
        for number in &numbers {
            let schemas = &self.config.schemas;
            let Some(partition) = self.partitions.get_mut(number) else { continue };
            partition.end_past(&|record: &Record| decode(schemas, record));
            let open = partition.go_live();
            tracing::info!(partition = number, open_runs = open, after = ?since.elapsed(), "agent worker takes a partition");
        }
        self.drive_in_turn(&numbers);
        self.progress.assigned(self.partitions.len());
        let starts: Vec<_> = assigned.iter().map(|p| (p.partition.clone(), p.default_start())).collect();
        group.start(&starts)
    }

    /// Drives what can be driven of several partitions, a run of each after the other: none waits for all of another.
    fn drive_in_turn(&mut self, partitions: &[i32]) {
        let mut waiting: Vec<_> = partitions
            .iter()
            .filter_map(|number| Some((*number, self.partitions.get_mut(number)?.take_ready().into_iter())))
            .collect();
        while !waiting.is_empty() {
            waiting.retain_mut(|(number, ready)| match ready.next() {
                Some(run) => {
                    self.drive(*number, run);
                    true
                }
                None => false,
            });
        }
    }

    pub(super) async fn on_revoked(
        &mut self,
        group: &mut GroupConsumer,
        partitions: &[TopicPartition],
        lost: bool,
    ) -> Result<(), LogError> {
        let mut notes = Vec::new();
        for partition in partitions {
            self.progress.forget(partition);
            // The client would remember the pause when the partition comes back.
            if self.held.remove(&partition.partition).is_some()
                && let Err(error) = group.resume(std::slice::from_ref(partition))
            {
                tracing::debug!(%partition, error = %error, "a revoked partition stays paused");
            }
            if let Some(state) = self.partitions.remove(&partition.partition) {
                notes.push(state.note(partition.partition));
                state.stop.cancel();
            }
        }
        if !lost
            && !notes.is_empty()
            && let Err(error) = group.commit_now(&notes, DRAIN).await
        {
            tracing::warn!(error = %error, "offsets of revoked partitions not committed; their commands come again");
        }
        self.progress.assigned(self.partitions.len());
        group.release(partitions)
    }

    pub(super) async fn on_event(&mut self, record: &Record) {
        let schemas = &self.config.schemas;
        let Some(partition) = self.partitions.get_mut(&record.partition) else { return };
        let folded = partition.read(record, &|record: &Record| decode(schemas, record));
        if let Folded::Snapshot(snapshot) = folded {
            self.open_or_set_aside((record.partition, record.offset), *snapshot).await;
        }
        self.drive_ready(record.partition);
    }

    /// Reads the fold of a run. What can't be read now is set aside, and what comes behind it too: while the store is away, each
    /// would hold up the whole partition.
    async fn open_or_set_aside(&mut self, place: (i32, i64), snapshot: RunSnapshotted) {
        let (number, offset) = place;
        let others_wait = self.partitions.get(&number).is_some_and(|state| !state.asides.is_empty());
        let read = if others_wait { None } else { self.try_to_read(place, &snapshot).await };
        let Some(partition) = self.partitions.get_mut(&number) else { return };
        match read {
            Some(state) => partition.open_from(offset, snapshot.accepted_offset, state),
            None => partition.set_aside(offset, snapshot, Instant::now()),
        }
    }

    async fn try_to_read(&self, place: (i32, i64), snapshot: &RunSnapshotted) -> Option<RunState> {
        let (log, schemas) = (&self.config.log, &self.config.schemas);
        let read = snapshots::restore(self.context.shelves(), log, schemas, place, snapshot);
        let error = match tokio::time::timeout(FIRST_TRY, read).await {
            Ok(Ok(Some(state))) => return Some(state),
            Ok(Ok(None)) => asides::why(None),
            Ok(Err(error)) => asides::why(Some(error)),
            Err(_) => format!("it was not read within {} s", FIRST_TRY.as_secs()),
        };
        tracing::warn!(run_id = %snapshot.run_id, error, "a run can't be read yet; it is tried again while the others go on");
        None
    }
}

async fn next_or_end_of(tail: &mut Option<Tail>) -> Result<Option<Record>, LogError> {
    match tail {
        Some(tail) => tail.next_or_end().await,
        None => std::future::pending().await,
    }
}

fn decode(schemas: &Schemas, record: &Record) -> Option<AgentEvent> {
    match schemas.decode::<AgentEvent>(record) {
        Ok(Decoded::Event(event)) => Some(event),
        Ok(Decoded::UnknownType { record: name }) => {
            tracing::debug!(name, "event of a newer version skipped");
            None
        }
        Err(error) => {
            tracing::warn!(position = %record.position(), error = %error, "what lies on the run events is no event; skipped");
            None
        }
    }
}
