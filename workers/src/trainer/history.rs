//! What the log says of a training, and of a model's versions. Read from the log itself: no decision is taken from a read model.

use riverrun_log::{LogError, Record, StartAt, Tail, TopicPartition, partition_of};
use riverrun_schemas::finetune::FinetuneEvent;
use riverrun_schemas::{Decoded, FinetuneId, Topic};

use crate::runtime::{Context, WorkError};

/// What happened to a training so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct History {
    pub(super) accepted: bool,
    pub(super) epoch: i64,
    pub(super) cancelled: bool,
    pub(super) finished: bool,
}

impl History {
    /// Takes an event of the training; one of another changes nothing.
    fn apply(&mut self, job_id: FinetuneId, event: &FinetuneEvent) {
        match event {
            FinetuneEvent::FinetuneAccepted(e) if e.job_id == job_id => self.accepted = true,
            FinetuneEvent::FinetuneClaimed(e) if e.job_id == job_id => self.epoch = self.epoch.max(e.epoch),
            FinetuneEvent::FinetuneCancelRequested(e) if e.job_id == job_id => self.cancelled = true,
            FinetuneEvent::FinetuneFinished(e) if e.job_id == job_id && e.epoch >= self.epoch => self.finished = true,
            FinetuneEvent::FinetuneAccepted(_)
            | FinetuneEvent::FinetuneClaimed(_)
            | FinetuneEvent::FinetuneProgressed(_)
            | FinetuneEvent::FinetuneCancelRequested(_)
            | FinetuneEvent::FinetuneFinished(_)
            | FinetuneEvent::DatasetRegistered(_)
            | FinetuneEvent::ModelRegistered(_)
            | FinetuneEvent::ModelStaged(_)
            | FinetuneEvent::ModelProbed(_) => {}
        }
    }
}

fn partition_for(key: &str) -> TopicPartition {
    let number = partition_of(key.as_bytes(), Topic::FinetuneEvents.spec().partitions);
    TopicPartition::new(Topic::FinetuneEvents.name(), number)
}

/// The event of a record; nothing when it can't be read, which the projector tells of.
pub(super) fn event(record: &Record, context: &Context) -> Option<FinetuneEvent> {
    match context.schemas.decode::<FinetuneEvent>(record) {
        Ok(Decoded::Event(event)) => Some(event),
        Ok(Decoded::UnknownType { .. }) | Err(_) => None,
    }
}

/// The partition of a training's events, what they say, and where they end.
pub(super) async fn read(context: &Context, job_id: FinetuneId) -> Result<(TopicPartition, History, i64), WorkError> {
    let partition = partition_for(&job_id.to_string());
    let mut range = Tail::read_range(&context.log, partition.clone(), StartAt::Beginning).await.map_err(again)?;
    let end = range.end();
    let mut history = History::default();
    while let Some(record) = range.next().await.map_err(again)? {
        if let Some(event) = event(&record, context) {
            history.apply(job_id, &event);
        }
    }
    Ok((partition, history, end))
}

/// A version of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) number: i64,
    /// Whether it is on the log already.
    pub(super) is_known: bool,
}

/// The version that a training's model has, or would have as the next one.
pub(super) async fn version(context: &Context, model: &str, job_id: FinetuneId) -> Result<Version, WorkError> {
    let mut range = Tail::read_range(&context.log, partition_for(model), StartAt::Beginning).await.map_err(again)?;
    let mut known: Vec<FinetuneId> = Vec::new();
    while let Some(record) = range.next().await.map_err(again)? {
        let Some(FinetuneEvent::ModelRegistered(event)) = event(&record, context) else { continue };
        if event.model == model && !known.contains(&event.job_id) {
            known.push(event.job_id);
        }
    }
    let found = known.iter().position(|known| *known == job_id);
    let number = i64::try_from(found.unwrap_or(known.len())).unwrap_or(i64::MAX - 1) + 1;
    Ok(Version { number, is_known: found.is_some() })
}

fn again(error: LogError) -> WorkError {
    WorkError::retry(error.code(), &error)
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::finetune::{FinetuneCancelRequested, FinetuneClaimed, FinetuneFinished, FinetuneOutcome};

    use super::*;

    #[test]
    fn given_events_of_two_trainings_then_only_its_own_count_and_a_void_end_does_not() {
        let (own, other) = (FinetuneId::derive(&["own"]), FinetuneId::derive(&["other"]));
        let claimed = |job_id, epoch| FinetuneEvent::from(FinetuneClaimed { job_id, epoch, worker: "w".into(), at: 0 });
        let finished = |job_id, epoch| {
            FinetuneEvent::from(FinetuneFinished {
                job_id,
                epoch,
                status: FinetuneOutcome::Failed,
                steps: 0,
                loss: None,
                eval_loss: None,
                model: None,
                error: None,
                at: 0,
            })
        };
        let cancel = |job_id| FinetuneEvent::from(FinetuneCancelRequested { job_id, reason: None, at: 0 });
        let mut history = History::default();
        for event in
            [claimed(own, 1), claimed(other, 9), finished(other, 9), cancel(other), claimed(own, 2), finished(own, 1)]
        {
            history.apply(own, &event);
        }
        assert_eq!(history, History { epoch: 2, ..History::default() });
        history.apply(own, &cancel(own));
        history.apply(own, &finished(own, 2));
        assert!(history.cancelled && history.finished);
    }
}
