//! A training at work: the arithmetic on a thread of its own, and beside it what is told and what is heard.

use std::path::PathBuf;
use std::sync::Arc;

use riverrun_models::{ModelError, NoProgress, Presence};
use riverrun_schemas::finetune::{FinetuneFinished, FinetuneOutcome, FinetuneProgressed, StartFinetune};
use riverrun_schemas::{Envelope, Failure, FinetuneId, now_ms};
use riverrun_training::dataset::{Format, read};
use riverrun_training::{
    BaseModel, Outcome, Plan, Sets, StepReport, Trained, TrainingError, Watch, base, estimate, export, train,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::stop::Stop;
use super::{Trainer, failure, served_base_hint};
use crate::failures::model_failure;
use crate::runtime::{Context, WorkError};

/// Steps that wait to be told before training waits too.
const REPORTS: usize = 64;

/// How a training ended.
pub(super) struct Ended {
    pub(super) status: FinetuneOutcome,
    pub(super) steps: u64,
    pub(super) loss: Option<f64>,
    pub(super) eval_loss: Option<f64>,
    pub(super) model: Option<String>,
    pub(super) error: Option<Failure>,
}

impl Ended {
    pub(super) fn cancelled() -> Self {
        Self { status: FinetuneOutcome::Cancelled, steps: 0, loss: None, eval_loss: None, model: None, error: None }
    }

    pub(super) fn failed(error: Failure) -> Self {
        Self { status: FinetuneOutcome::Failed, error: Some(error), ..Self::cancelled() }
    }

    pub(super) fn succeeded(outcome: &Outcome, model: String) -> Self {
        Self {
            status: FinetuneOutcome::Succeeded,
            steps: outcome.steps,
            loss: Some(outcome.loss),
            eval_loss: outcome.eval_loss,
            model: Some(model),
            error: None,
        }
    }

    pub(super) fn event(self, job_id: FinetuneId, epoch: i64) -> FinetuneFinished {
        let Self { status, steps, loss, eval_loss, model, error } = self;
        let steps = i64::try_from(steps).unwrap_or(i64::MAX);
        FinetuneFinished { job_id, epoch, status, steps, loss, eval_loss, model, error, at: now_ms() }
    }
}

/// What the thread needs.
pub(super) struct Job {
    pub(super) plan: Plan,
    pub(super) base_folder: PathBuf,
    pub(super) dataset: Vec<u8>,
    pub(super) format: Format,
    pub(super) sha256: String,
    pub(super) checkpoints: PathBuf,
}

/// Tells the task beside it of steps, and hears from it when to stop.
struct Beside {
    reports: mpsc::Sender<StepReport>,
    /// The last step that it was given.
    given: u64,
    /// The last step that is on the log.
    told: watch::Receiver<u64>,
    /// Called when a checkpoint is written.
    saved: Box<dyn Fn() + Send>,
    runtime: Handle,
    stop: CancellationToken,
}

impl Watch for Beside {
    fn step(&mut self, report: &StepReport) {
        self.given = report.step;
        if self.reports.blocking_send(report.clone()).is_err() {
            self.stop.cancel(); // nobody is there to hear of it: the partition went elsewhere
        }
    }

    fn settled(&mut self) -> bool {
        let given = self.given;
        self.runtime.block_on(self.told.wait_for(|told| *told >= given)).is_ok()
    }

    fn saved(&mut self) {
        (self.saved)();
    }

    fn stop(&self) -> bool {
        self.stop.is_cancelled()
    }
}

fn run(job: &Job, mut beside: Beside) -> Result<(Trained, Sets), TrainingError> {
    let dataset = read(&job.dataset, job.format)?;
    let sets = Sets::of(&dataset, &job.plan, &base::text_of(&job.base_folder)?)?;
    fits(job, &sets)?;
    let base = Arc::new(BaseModel::load(&job.base_folder)?);
    let trained = train(&job.plan, base, &sets, &job.sha256, &job.checkpoints, &mut beside)?;
    Ok((trained, sets))
}

/// Refuses what does not fit, before the base is loaded. The longest example counts, as where the training was asked for, and not
/// the longest that the plan allows: what was accepted there must not be refused here.
fn fits(job: &Job, sets: &Sets) -> Result<(), TrainingError> {
    let load = estimate::Load {
        train: sets.train.len() as u64,
        held_out: sets.held_out.len() as u64,
        mean_tokens: 1.0, // tells time, which nobody asks for here
        longest: sets.longest() as u64,
        widths: sets.widths(),
    };
    let measures = base::measure(&job.base_folder)?;
    estimate::check(&estimate::estimate(&measures, &job.plan, load, 1.0, estimate::available_bytes()))
}

impl Trainer {
    /// Trains and registers what comes out.
    pub(super) async fn work(
        &self,
        start: &StartFinetune,
        epoch: i64,
        (cause, context): (&Envelope, &Context),
        (stop, saved): (&Stop, Box<dyn Fn() + Send>),
    ) -> Result<Ended, WorkError> {
        let job = match self.job(start, stop).await {
            Ok(job) => job,
            Err(Refused::Job(failure)) => return Ok(Ended::failed(failure)),
            Err(Refused::Now(error)) => return Err(error),
            Err(Refused::Stopped) => return stop.ended(),
        };
        let (sender, reports) = mpsc::channel(REPORTS);
        let (tell, told) = watch::channel(0);
        let beside =
            Beside { reports: sender, given: 0, told, saved, runtime: Handle::current(), stop: stop.token().clone() };
        let training = tokio::task::spawn_blocking(move || {
            let done = run(&job, beside);
            done.map(|(trained, sets)| (job, trained, sets))
        });
        self.tell_steps(start, epoch, (cause, context), (reports, tell)).await?;
        match training.await {
            Err(panic) => Ok(Ended::failed(
                Failure::new("internal", format!("the training broke off: {panic}"))
                    .with_hint("see the log of the worker"),
            )),
            Ok(Err(TrainingError::Cancelled)) => stop.ended(),
            Ok(Err(error)) => self.fails(start.job_id, &error),
            Ok(Ok((job, trained, sets))) => self.register(start, (cause, context), (job, trained, sets), stop).await,
        }
    }

    /// Everything that a training needs, or why it can't be done.
    async fn job(&self, start: &StartFinetune, stop: &Stop) -> Result<Job, Refused> {
        let unreadable =
            |what: &str, value: &str| Failure::new("invalid_request", format!("{what} {value:?} can't be read"));
        let plan: Plan = serde_json::from_str(&start.plan_json).map_err(|_| unreadable("plan", &start.plan_json))?;
        let format = Format::by_name(&start.format).ok_or_else(|| unreadable("format", &start.format))?;
        plan.check().map_err(|error| failure(&error))?;
        export::check_name(&start.name).map_err(|error| failure(&error))?; // a folder is called so
        let base_folder = self.base_folder(&start.base_model, stop).await?;
        let dataset = self.blobs.get(&start.content).await.map_err(|error| {
            if error.retryable() {
                return Refused::Now(WorkError::retry(error.code(), &error));
            }
            Failure::new(error.code(), error.to_string()).with_hint("hand the dataset in again").into()
        })?;
        Ok(Job {
            plan,
            base_folder,
            dataset: dataset.to_vec(),
            format,
            sha256: start.content.sha256.clone(),
            checkpoints: self.checkpoints(start.job_id),
        })
    }

    /// Where the base model is; it is fetched when it is not here.
    async fn base_folder(&self, model: &str, stop: &Stop) -> Result<PathBuf, Refused> {
        for attempt in 0..2 {
            match self.models.presence(model) {
                Ok(Presence::Present { path }) => return Ok(path),
                Ok(Presence::Missing { .. }) if attempt == 0 => {
                    match self.models.pull(model, &NoProgress, stop.token()).await {
                        Ok(_) => {}
                        Err(ModelError::Cancelled) => return Err(Refused::Stopped),
                        Err(error) => {
                            let failure = model_failure(&error);
                            let hint = served_base_hint(&self.models, model).or(failure.hint);
                            return Err(Failure { hint, ..failure }.into());
                        }
                    }
                }
                Ok(Presence::Missing { fix }) => {
                    let missing = Failure::new("model_missing", format!("base model {model:?} is not there"));
                    let hint = served_base_hint(&self.models, model).unwrap_or(fix);
                    return Err(missing.with_hint(hint).into());
                }
                Err(error) => return Err(model_failure(&error).into()),
            }
        }
        Err(Failure::new("model_missing", format!("base model {model:?} is not there")).into())
    }

    /// Writes progress until training has nothing more to tell.
    async fn tell_steps(
        &self,
        start: &StartFinetune,
        epoch: i64,
        (cause, context): (&Envelope, &Context),
        (mut reports, told): (mpsc::Receiver<StepReport>, watch::Sender<u64>),
    ) -> Result<(), WorkError> {
        let max_steps = serde_json::from_str::<Plan>(&start.plan_json).map_or(0, |plan| plan.max_steps);
        let mut pace = Pace::default();
        while let Some(report) = reports.recv().await {
            pace.add(report.seconds);
            let left = pace.left(max_steps, report.step);
            self.tell(progressed(start.job_id, epoch, &report, left), cause, context).await?;
            told.send_replace(report.step);
        }
        Ok(())
    }
}

/// Seconds of the last steps.
#[derive(Default)]
struct Pace(Option<f64>);

impl Pace {
    fn add(&mut self, seconds: f64) {
        self.0 = Some(self.0.map_or(seconds, |before| 0.8 * before + 0.2 * seconds));
    }

    fn left(&self, max_steps: u64, step: u64) -> f64 {
        self.0.unwrap_or_default() * max_steps.saturating_sub(step) as f64
    }
}

fn progressed(job_id: FinetuneId, epoch: i64, report: &StepReport, eta_s: f64) -> FinetuneProgressed {
    FinetuneProgressed {
        job_id,
        epoch,
        step: i64::try_from(report.step).unwrap_or(i64::MAX),
        loss: report.loss,
        learning_rate: report.learning_rate,
        tokens_per_s: report.tokens as f64 / report.seconds.max(1e-6),
        eta_s,
        eval_loss: report.eval_loss,
        at: now_ms(),
    }
}

/// Why a training does not begin.
enum Refused {
    /// It never will.
    Job(Failure),
    /// Not now.
    Now(WorkError),
    /// It was stopped before.
    Stopped,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Job(failure)
    }
}
