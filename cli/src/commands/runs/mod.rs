//! `riverrun runs`.

pub mod cancel;
pub mod ls;
pub mod show;
pub mod watch;

use riverrun_api::wire::{RunStatus, RunView, StepView};

use crate::error::{CliError, Exit};
use crate::output::clip;

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
        (Some(tool), _) => {
            let took = tool.duration_ms.map(|ms| format!(" ({ms} ms)")).unwrap_or_default();
            let outcome = match (&tool.error, &tool.result, &tool.result_blob) {
                (Some(error), ..) => format!("failed: {error}"),
                (None, Some(result), _) => clip(&result.to_string(), SHOWN),
                (None, None, Some(blob)) => format!("{} bytes in the blob store", blob.size_bytes),
                (None, None, None) => String::new(),
            };
            format!("{} -> {outcome}{took}", tool.name)
        }
        (None, Some(text)) => text.trim().replace('\n', "\n                   "),
        (None, None) => String::new(),
    };
    format!("{:>4}  {kind:<12} {what}", step.seq)
}

/// What came of a run, in one line.
pub fn summary(run: &RunView) -> String {
    let mut parts = vec![run.run_id.to_string(), run.status.as_str().to_owned()];
    parts.extend(run.stop_reason.clone().filter(|reason| reason != run.status.as_str()));
    parts.extend(run.agent.clone());
    parts.push(format!("{} steps", run.steps.len()));
    parts.push(format!("{} tokens", run.usage.total_tokens));
    parts.join(" · ")
}

/// Success, or why not.
pub fn outcome(run: &RunView) -> Result<(), CliError> {
    match run.status {
        RunStatus::Succeeded | RunStatus::Queued | RunStatus::Running => Ok(()),
        RunStatus::Cancelled => Err(CliError::new(Exit::Failed, format!("run {} was cancelled", run.run_id))
            .hint(format!("riverrun runs show {}", run.run_id))),
        RunStatus::Failed => {
            let error = run.error.as_ref();
            let down = error.is_some_and(|error| matches!(error.code.as_str(), "model_runtime_down" | "model_missing"));
            let exit = if down { Exit::ServiceDown } else { Exit::Failed };
            let message =
                error.map_or_else(|| run.stop_reason.clone().unwrap_or_default(), |error| error.message.clone());
            Err(CliError::new(exit, format!("run {} failed: {message}", run.run_id))
                .hint(format!("riverrun runs show {}", run.run_id))
                .maybe_hint(error.and_then(|error| error.hint.clone())))
        }
    }
}
