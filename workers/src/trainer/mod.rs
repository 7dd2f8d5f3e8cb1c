//! The trainer: one training at a time, from its command to a version of a model.
//!
//! The command's offset is committed when the training has ended: whoever takes the partition over after a crash gets the
//! command again, claims the training with a higher epoch, and goes on from the last checkpoint in the data folder. (On another
//! machine there is none, and it starts again.) What was told of steps behind the checkpoint is told again with the same numbers.
//! A full disk, or memory that others have taken meanwhile, is waited for in the same way: a try, a pause, the last checkpoint.

mod history;
mod register;
mod stop;
mod tries;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use riverrun_log::{BlobStore, Outgoing, StartAt, Tail};
use riverrun_models::{LOCAL, Models};
use riverrun_schemas::finetune::{
    FinetuneAccepted, FinetuneClaimed, FinetuneCommand, FinetuneEvent, FinetuneFinished, FinetuneOutcome,
};
use riverrun_schemas::{Envelope, Failure, FinetuneId, now_ms};
use riverrun_training::{TrainingError, is_begun};
use tokio_util::sync::CancellationToken;

use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};
use history::History;
use stop::Stop;
use tries::{Tries, Verdict};
use work::Ended;

/// The worker's name.
pub const NAME: &str = "trainer";
/// What to do about a base model that is not on this machine because it is the default chat model and a server has it: no hub has it
/// under that name, and weights are needed here. `None` where it is another model.
pub fn served_base_hint(models: &Models, base: &str) -> Option<String> {
    let [(provider, chat), _] = models.default_models();
    (provider != LOCAL && chat == base).then(|| {
        format!("it is the default chat model, which {provider} serves: name one of this machine with --base-model (base_model), as riverrun models --provider {LOCAL} lists them")
    })
}

/// Trains models.
pub struct Trainer {
    models: Models,
    blobs: Arc<dyn BlobStore>,
    folder: PathBuf,
    worker: String,
    stop: CancellationToken,
    tries: Tries,
}

impl Trainer {
    /// `folder` is where checkpoints are kept; merged models go to the folder that fetched models are in. When `stop` is cancelled,
    /// a training lets go within a pass, to be gone on with at the next start.
    pub fn new(models: Models, blobs: Arc<dyn BlobStore>, folder: PathBuf, stop: CancellationToken) -> Self {
        let worker = format!("{NAME}-{}", riverrun_schemas::EventId::new());
        Self { models, blobs, folder, worker, stop, tries: Tries::default() }
    }

    async fn train(&self, delivery: &Delivery<FinetuneCommand>, context: &Context) -> Result<(), WorkError> {
        let FinetuneCommand::StartFinetune(start) = &delivery.event;
        let cause = &delivery.envelope;
        let (partition, history, next) = history::read(context, start.job_id).await?;
        if history.finished {
            self.forget(start.job_id).await; // the process may have ended between the two
            return Ok(());
        }
        if !history.accepted {
            self.tell(FinetuneAccepted::from(start), cause, context).await?;
        }
        let epoch = history.epoch + 1;
        let claim = FinetuneClaimed { job_id: start.job_id, epoch, worker: self.worker.clone(), at: now_ms() };
        self.tell(claim, cause, context).await?;
        let ended = match history {
            History { cancelled: true, .. } => Ended::cancelled(),
            _ => {
                // From where the history ended, so that no wish to stop is missed.
                let tail = Tail::open(&context.log, vec![(partition, StartAt::Offset(next))]).await?;
                let stop = Stop::under(&self.stop);
                let _stop_when_dropped = stop.token().clone().drop_guard();
                let (told, position) = (context.clone(), delivery.position.clone());
                let saved = Box::new(move || told.got_on(&position));
                tokio::select! {
                    ended = self.work(start, epoch, (cause, context), (&stop, saved)) => ended?,
                    never = stop.listen(start.job_id, context, tail) => match never {},
                }
            }
        };
        if ended.status != FinetuneOutcome::Succeeded {
            self.withdraw(start, context).await?;
        }
        self.tell(ended.event(start.job_id, epoch), cause, context).await?;
        self.forget(start.job_id).await;
        Ok(())
    }

    fn checkpoints(&self, job_id: FinetuneId) -> PathBuf {
        self.folder.join(job_id.to_string())
    }

    /// Nobody goes on with a training that has ended.
    async fn forget(&self, job_id: FinetuneId) {
        self.tries.forget(job_id);
        let checkpoints = self.checkpoints(job_id);
        if let Err(error) = tokio::fs::remove_dir_all(&checkpoints).await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %checkpoints.display(), error = %error, "checkpoints of an ended training stay");
        }
    }

    /// What follows from a failure: an end, or another try from the last checkpoint.
    fn fails(&self, job_id: FinetuneId, error: &TrainingError) -> Result<Ended, WorkError> {
        match self.tries.verdict(job_id, error, is_begun(&self.checkpoints(job_id))) {
            Verdict::Again => Err(WorkError::retry(error.code(), error)),
            Verdict::Failed(failure) => Ok(Ended::failed(failure)),
        }
    }

    async fn tell(
        &self,
        event: impl Into<FinetuneEvent>,
        cause: &Envelope,
        context: &Context,
    ) -> Result<(), WorkError> {
        let event: FinetuneEvent = event.into();
        context.producer.send_one(self.outgoing(event, cause)?).await?;
        Ok(())
    }
}

/// Why a training failed, as its event says it.
fn failure(error: &TrainingError) -> Failure {
    Failure { code: error.code().to_owned(), message: error.to_string(), hint: error.hint() }
}

#[async_trait]
impl Worker for Trainer {
    type Input = FinetuneCommand;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Lanes {
        // A training takes all cores and most of the memory: one at a time.
        Lanes::PerKey { parallel: 1, max_batch: 1 }
    }

    async fn handle(&self, batch: &[Delivery<FinetuneCommand>], context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        for delivery in batch {
            self.train(delivery, context).await?;
        }
        Ok(Vec::new())
    }

    fn dead(&self, delivery: &Delivery<FinetuneCommand>, code: &str, reason: &str) -> Vec<Outgoing> {
        let FinetuneCommand::StartFinetune(start) = &delivery.event;
        let end = FinetuneFinished {
            job_id: start.job_id,
            epoch: i64::MAX, // whatever was claimed: nobody goes on with it
            status: FinetuneOutcome::Failed,
            steps: 0,
            loss: None,
            eval_loss: None,
            model: None,
            error: Some(Failure::new(code, reason)),
            at: now_ms(),
        };
        // Given up before it was taken on, it would be there for nobody, or waiting for ever where the other event comes later.
        let events: [FinetuneEvent; 2] = [FinetuneAccepted::from(start).into(), end.into()];
        events.into_iter().filter_map(|event| self.outgoing(event, &delivery.envelope).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use riverrun_models::ModelSettings;

    use super::*;

    #[test]
    fn given_a_base_that_is_not_here_when_a_server_has_it_as_the_default_then_the_hint_is_to_name_a_local_one() {
        let folder = tempfile::tempdir().unwrap();
        let hint = |server: Option<&str>, base: &str| {
            let settings = ModelSettings {
                cache_dir: folder.path().to_owned(),
                runtime_base_url: server.map(str::to_owned),
                default_chat_model: Some("stub".to_owned()),
                offline: true,
                ..ModelSettings::default()
            };
            served_base_hint(&Models::new(settings).unwrap(), base)
        };
        let server = Some("http://127.0.0.1:1");
        assert!(hint(server, "stub").is_some_and(|hint| hint.contains("--base-model") && hint.contains("ollama")));
        assert_eq!((hint(server, "another"), hint(None, "stub")), (None, None), "what is named, or local, is fetched");
    }
}
