//! What the log says of a training, and of a model's versions. Read from the log itself: no decision is taken from a read model.

use riverrun_log::{LogError, Record, StartAt, Tail, TopicPartition, partition_of};
use riverrun_schemas::finetune::{FinetuneEvent, ModelStage};
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
            | FinetuneEvent::ModelProbed(_)
            | FinetuneEvent::ModelUsed(_) => {}
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

/// The versions of a model, as the log has them: their numbers are their places among the first of each training's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Versions {
    /// The training of each, and whether it passed its gate.
    all: Vec<(FinetuneId, bool)>,
    named: Option<i64>,
}

impl Versions {
    fn apply(&mut self, model: &str, event: &FinetuneEvent) {
        match event {
            FinetuneEvent::ModelRegistered(e) if e.model == model && self.of(e.job_id).is_none() => {
                self.all.push((e.job_id, e.gate_passed));
                if e.gate_passed {
                    self.named = Some(number(self.all.len()));
                }
            }
            FinetuneEvent::ModelStaged(e) if e.model == model => self.stage(i64::from(e.version), e.stage),
            FinetuneEvent::FinetuneAccepted(_)
            | FinetuneEvent::FinetuneClaimed(_)
            | FinetuneEvent::FinetuneProgressed(_)
            | FinetuneEvent::FinetuneCancelRequested(_)
            | FinetuneEvent::FinetuneFinished(_)
            | FinetuneEvent::DatasetRegistered(_)
            | FinetuneEvent::ModelRegistered(_)
            | FinetuneEvent::ModelStaged(_)
            | FinetuneEvent::ModelProbed(_)
            | FinetuneEvent::ModelUsed(_) => {}
        }
    }

    fn stage(&mut self, version: i64, stage: ModelStage) {
        let place = usize::try_from(version - 1).ok();
        let passed = place.and_then(|place| self.all.get(place)).is_some_and(|(_, passed)| *passed);
        match stage {
            ModelStage::Ready if passed => self.named = Some(version),
            ModelStage::Candidate | ModelStage::Retired if self.named == Some(version) => self.named = None,
            ModelStage::Ready | ModelStage::Candidate | ModelStage::Retired | ModelStage::Unknown => {}
        }
    }

    /// The number that a training's version has, when it is on the log.
    pub(super) fn of(&self, job_id: FinetuneId) -> Option<i64> {
        self.all.iter().position(|(known, _)| *known == job_id).map(|place| number(place + 1))
    }

    /// The number that the next one would have, while nobody else is faster.
    pub(super) fn next(&self) -> i64 {
        number(self.all.len() + 1)
    }

    /// The version that the model's name means.
    pub(super) fn named(&self) -> Option<i64> {
        self.named
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What the log says of a model's versions now.
pub(super) async fn versions(context: &Context, model: &str) -> Result<Versions, WorkError> {
    let mut range = Tail::read_range(&context.log, partition_for(model), StartAt::Beginning).await.map_err(again)?;
    let mut versions = Versions::default();
    while let Some(record) = range.next().await.map_err(again)? {
        if let Some(event) = event(&record, context) {
            versions.apply(model, &event);
        }
    }
    Ok(versions)
}

fn again(error: LogError) -> WorkError {
    WorkError::retry(error.code(), &error)
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::BlobRef;
    use riverrun_schemas::finetune::{
        FinetuneCancelRequested, FinetuneClaimed, FinetuneFinished, FinetuneOutcome, ModelRegistered, ModelStaged,
    };

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
        history.apply(own, &finished(own, 0));
        assert!(
            history.cancelled && !history.finished,
            "the end of one that nobody had claimed is void behind a claim"
        );
        history.apply(own, &finished(own, 2));
        assert!(history.cancelled && history.finished);
        let mut unclaimed = History::default();
        unclaimed.apply(own, &finished(own, 0));
        assert!(unclaimed.finished);
    }

    fn registered(model: &str, job: &str, gate_passed: bool) -> FinetuneEvent {
        ModelRegistered {
            model: model.to_owned(),
            job_id: FinetuneId::derive(&[job]),
            base_model: "small".to_owned(),
            method: "sft_lora".to_owned(),
            dataset_sha256: String::new(),
            metrics_json: "{}".to_owned(),
            adapter: BlobRef { sha256: String::new(), size_bytes: 0, media_type: String::new() },
            adapter_config: "{}".to_owned(),
            merged_bytes: 0,
            gate_passed,
            gate_reason: None,
            at: 0,
        }
        .into()
    }

    fn staged(version: i32, stage: ModelStage) -> FinetuneEvent {
        ModelStaged { model: "poet".to_owned(), version, stage, at: 0 }.into()
    }

    fn of(events: &[FinetuneEvent]) -> Versions {
        let mut versions = Versions::default();
        events.iter().for_each(|event| versions.apply("poet", event));
        versions
    }

    #[test]
    fn given_two_trainings_that_register_at_once_then_the_log_gives_each_a_number_of_its_own_for_good() {
        let (a, b) = (FinetuneId::derive(&["a"]), FinetuneId::derive(&["b"]));
        let before = of(&[registered("other", "x", true)]);
        assert_eq!((before.next(), before.of(a)), (1, None));
        // Both saw that the next is 1. What a crashed one tells again changes nothing.
        let events = [registered("poet", "b", true), registered("poet", "a", true), registered("poet", "b", true)];
        let after = of(&events);
        assert_eq!((after.of(b), after.of(a), after.next(), after.named()), (Some(1), Some(2), 3, Some(2)));
    }

    #[test]
    fn given_stages_then_the_name_means_the_last_that_was_made_ready_and_passed_its_gate() {
        let two = [registered("poet", "a", true), registered("poet", "b", false)];
        let after = |more: &[FinetuneEvent]| of(&[&two[..], more].concat()).named();
        assert_eq!(after(&[]), Some(1));
        for (version, stage, named) in [
            (2, ModelStage::Ready, Some(1)),
            (9, ModelStage::Ready, Some(1)),
            (0, ModelStage::Ready, Some(1)),
            (2, ModelStage::Retired, Some(1)),
            (1, ModelStage::Unknown, Some(1)),
            (1, ModelStage::Retired, None),
            (1, ModelStage::Candidate, None),
        ] {
            assert_eq!(after(&[staged(version, stage)]), named, "{version} {stage:?}");
        }
        assert_eq!(after(&[staged(1, ModelStage::Retired), staged(1, ModelStage::Ready)]), Some(1));
    }
}
