//! Runs whose step ends the process that works on it: out of memory in a local model, a crash in native code. Nobody is
//! left to say so; what tells is that one worker after the other claims the run and nothing follows.

use riverrun_schemas::Failure;
use riverrun_schemas::agent::{RunOutcome, StepKind};

use super::Ending;
use crate::state::RunState;

/// Claims in a row with nothing between them, after which a run is given up.
pub const MAX_CLAIMS_WITHOUT_PROGRESS: u32 = 10;
/// Claims in a row with nothing between them, after which a run may be what ends its workers.
pub const SUSPECT_AFTER: u32 = 3;

/// Code and reason of a run that is given up.
const WORKER_LOST: &str = "worker_lost";

/// Whether the run may be what ends its workers.
pub fn is_suspect(state: &RunState) -> bool {
    state.claims_without_progress() >= SUSPECT_AFTER
}

/// How a run ends that too many workers in a row were lost with; `None` for one that goes on. To be asked right after
/// one's own claim, which does not count.
pub fn worker_lost(state: &RunState) -> Option<Ending> {
    let lost = state.claims_without_progress().saturating_sub(1);
    // These have nothing left to do that could end a process: they end as they would have.
    let only_ends =
        state.cancel_requested.is_some() || state.steps.last().is_some_and(|step| step.kind == StepKind::Answer);
    if lost < MAX_CLAIMS_WITHOUT_PROGRESS || only_ends {
        return None;
    }
    let step = state.last_seq() + 1;
    let message = format!("{lost} workers in a row ended while they worked on step {step} ({})", work(state));
    let hint = format!(
        "look into their logs for what ended them (out of memory, a crash); then fork the run before that step \
         (riverrun runs fork {} --at-seq N), with another model if need be, or start it anew",
        state.run_id
    );
    Some(Ending {
        status: RunOutcome::Failed,
        stop_reason: WORKER_LOST,
        answer: None,
        error: Some(Failure::new(WORKER_LOST, message).with_hint(hint)),
    })
}

/// What the next step is, as far as that can be told without deciding: a decision may be what ends the process.
fn work(state: &RunState) -> String {
    if let Some(call) = state.open_calls().first() {
        return format!("a call of {}", call.tool.name);
    }
    let model = state.request.model.as_deref().unwrap_or("the default model");
    match state.request.provider.as_deref() {
        Some(provider) => format!("a model call of {provider}/{model}"),
        None => format!("a model call of {model}"),
    }
}

#[cfg(test)]
#[path = "lost_tests.rs"]
mod tests;
