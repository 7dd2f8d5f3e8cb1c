//! `riverrun runs`.

pub mod approve;
mod cancel;
mod compare;
mod fork;
mod ls;
mod resume;
mod show;
mod tree;
pub mod turn;
pub mod watch;

use clap::{Args, Subcommand};
use riverrun_api::wire::{DecisionView, RunStatus, RunView, StepView};
use riverrun_schemas::agent::Decision;
use riverrun_schemas::counted;

use crate::client::{encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, clip};

/// One run.
#[derive(Debug, Clone, Args)]
pub struct OneRun {
    /// The run
    pub run_id: String,
    /// Where it must be: a run of another namespace is unknown
    #[arg(short, long)]
    pub namespace: Option<String>,
}

impl OneRun {
    /// A run wherever it is: one that this command has started itself.
    pub fn anywhere(run_id: impl Into<String>) -> Self {
        Self { run_id: run_id.into(), namespace: None }
    }

    /// The address of what is below it; of itself, with nothing.
    pub fn path(&self, rest: &str) -> String {
        self.path_with(rest, &[])
    }

    fn path_with(&self, rest: &str, query: &[(&str, Option<String>)]) -> String {
        let mut query = query.to_vec();
        query.push(("namespace", self.namespace.clone()));
        with_query(&format!("/runs/{}{rest}", encode(&self.run_id)), &query)
    }
}

/// What to do with runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    Ls(ls::LsArgs),
    /// Show a run with its steps
    Show(OneRun),
    /// Follow a run to its end
    Watch {
        #[command(flatten)]
        run: OneRun,
        /// Only steps behind this one
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..), value_name = "SEQ")]
        after: i64,
        /// Also text while the model writes it
        #[arg(long)]
        tokens: bool,
    },
    /// Ask a run to stop
    Cancel {
        #[command(flatten)]
        run: OneRun,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// Answer a run that waits for a person
    Approve(approve::ApproveArgs),
    /// Ask a run that waits to look again
    Resume(OneRun),
    /// Start a run that shares the first steps of another, perhaps with another model, agent or task
    Fork(fork::ForkArgs),
    /// Show the runs that branched off each other or wait for each other
    Tree(OneRun),
    /// Compare two runs step by step
    Compare {
        #[command(flatten)]
        run: OneRun,
        /// The other; left out, the one that the first branched off
        other: Option<String>,
    },
}

pub async fn run(connection: &Connection, command: RunsCommand, output: Output) -> Result<(), CliError> {
    match command {
        RunsCommand::Ls(args) => ls::run(connection, args, output).await,
        RunsCommand::Show(run) => show::run(connection, &run, output).await,
        RunsCommand::Watch { run, after, tokens } => watch::run(connection, &run, after, tokens, output).await,
        RunsCommand::Cancel { run, reason } => cancel::run(connection, &run, reason, output).await,
        RunsCommand::Approve(args) => approve::run(connection, args, output).await,
        RunsCommand::Resume(run) => resume::run(connection, &run, output).await,
        RunsCommand::Fork(args) => fork::run(connection, args, output).await,
        RunsCommand::Tree(run) => tree::run(connection, &run, output).await,
        RunsCommand::Compare { run, other } => compare::run(connection, &run, other, output).await,
    }
}

/// Characters of arguments and results that people see.
const SHOWN: usize = 400;

/// A step as people read it.
pub fn step_line(step: &StepView) -> String {
    let kind =
        serde_json::to_value(step.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default();
    let what = match (&step.tool, &step.text) {
        (Some(tool), _) if kind == "tool_call" => {
            format!("{}({})", tool.name, clip(&tool.arguments.to_string(), SHOWN))
        }
        (Some(tool), why) if kind == "approval" => {
            let why = why.as_deref().unwrap_or_default();
            let said = step.decision.as_ref().map(decision_text).unwrap_or_default();
            format!("{}({}): {why}{said}", tool.name, clip(&tool.arguments.to_string(), SHOWN))
        }
        (Some(tool), _) => {
            let took = tool.duration_ms.map(|ms| format!(" ({ms} ms)")).unwrap_or_default();
            let outcome = match (&tool.error, &tool.result, &tool.result_blob) {
                (Some(error), ..) => format!("failed: {error}"),
                (None, Some(result), _) => clip(&result.to_string(), SHOWN),
                (None, None, Some(blob)) => format!("{} in the blob store", counted(blob.size_bytes, "byte")),
                (None, None, None) => String::new(),
            };
            format!("{} -> {outcome}{took}", tool.name)
        }
        (None, Some(text)) => text.trim().replace('\n', "\n                   "),
        (None, None) => String::new(),
    };
    format!("{:>4}  {kind:<12} {what}", step.seq)
}

/// What a person said to a question, behind it.
fn decision_text(said: &DecisionView) -> String {
    let what = match said.decision {
        Decision::Approve => "approved",
        Decision::Deny | Decision::Unknown => "denied",
    };
    let note = said.note.as_deref().filter(|note| !note.is_empty()).map(|note| format!(": {note}")).unwrap_or_default();
    format!(" -> {what} {}{note}", said.decided_at)
}

/// What came of a run, in one line.
pub fn summary(run: &RunView) -> String {
    let mut parts = vec![run.run_id.to_string(), run.status.as_str().to_owned()];
    parts.extend(run.stop_reason.clone().filter(|reason| reason != run.status.as_str()));
    parts.extend(run.agent.clone());
    parts.push(counted(run.steps.len(), "step"));
    parts.push(counted(run.usage.total_tokens, "token"));
    parts.join(" · ")
}

/// Success, or why not.
pub fn outcome(run: &RunView) -> Result<(), CliError> {
    match run.status {
        RunStatus::Succeeded | RunStatus::Queued | RunStatus::Running | RunStatus::WaitingApproval => Ok(()),
        RunStatus::Cancelled => Err(CliError::new(Exit::Failed, format!("run {} was cancelled", run.run_id))
            .hint(format!("riverrun runs show {}", run.run_id))),
        RunStatus::Failed => {
            let error = run.error.as_ref();
            let exit = match error.map(|error| error.code.as_str()) {
                Some("session_busy") => Exit::Refused,
                Some(code) => Exit::of_failure(code),
                None => Exit::Failed,
            };
            let message =
                error.map_or_else(|| run.stop_reason.clone().unwrap_or_default(), |error| error.message.clone());
            Err(CliError::new(exit, format!("run {} failed: {message}", run.run_id))
                .hint(format!("riverrun runs show {}", run.run_id))
                .maybe_hint(error.and_then(|error| error.hint.clone())))
        }
    }
}
