//! The one place where terminal events are made.

use riverrun_agents::decide::Ending;
use riverrun_agents::{RunState, citations};
use riverrun_schemas::agent::RunFinished;
use riverrun_schemas::{RunId, Usage, now_ms};

/// The end of a run whose fold is at hand.
pub(super) fn of(state: &RunState, ending: Ending) -> RunFinished {
    let (answer, citations) = citations::check(state, ending.answer);
    RunFinished {
        agent: state.agent().unwrap_or_default().to_owned(),
        citations,
        usage: state.usage,
        ..without_state(state.run_id, state.epoch(), Ending { answer, ..ending })
    }
}

/// The end of a run of which nothing but its claim is at hand.
pub(super) fn without_state(run_id: RunId, epoch: i64, ending: Ending) -> RunFinished {
    RunFinished {
        run_id,
        epoch,
        status: ending.status,
        agent: String::new(),
        answer: ending.answer,
        citations: Vec::new(),
        usage: Usage::default(),
        stop_reason: ending.stop_reason.to_owned(),
        error: ending.error,
        at: now_ms(),
    }
}
