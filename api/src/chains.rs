//! Starting a chain: the commands of all its runs on the log, then the answer. From there on it needs nobody who watches.

use riverrun_log::Outgoing;
use riverrun_schemas::agent::{AgentCommand, StartRun};
use riverrun_schemas::{RunId, now_ms};

use crate::accept::{COMPONENT, check_collections, key_conflict};
use crate::error::ApiError;
use crate::reservations::Reserved;
use crate::state::AppState;
use crate::submit::{self, Chained, Checks};
use crate::wire::ChainBody;

/// Starts a chain, or finds the one that the same key started. Gives its runs, each behind those that it waits for.
pub(crate) async fn start(state: &AppState, key: Option<&str>, body: ChainBody) -> Result<Vec<Chained>, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    checks.finish()?;
    let seed = match key {
        Some(key) => RunId::derive(&["chain", "idempotency-key", namespace.as_str(), key]),
        None => RunId::new(),
    }
    .to_string();
    let asked = serde_json::to_vec(&body).map_err(|error| ApiError::internal(error.to_string()))?;
    let runs = submit::chained(body, &state.core().known(), &seed)?;
    for run in &runs {
        check_collections(state, &run.request).await?;
    }
    if let Some(key) = key {
        check_repeat(state, key, &seed, &asked, &runs).await?;
    }
    let at = now_ms();
    let commands = runs.iter().map(|run| {
        let command = StartRun { run_id: run.run_id, request: run.request.clone(), at };
        Outgoing::event(&AgentCommand::StartRun(command), COMPONENT, None)
    });
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    state.parts().producer.send_many(commands).await.inspect_err(|_| state.reservations().release(&seed))?;
    for run in &runs {
        state.hub().remember_accepted(run.run_id, &run.request, at);
    }
    Ok(runs.into_iter().rev().collect())
}

/// The same key with another chain is refused. The same chain again is put on the log again, which starts nothing twice
/// and completes what was cut short.
async fn check_repeat(state: &AppState, key: &str, seed: &str, asked: &[u8], runs: &[Chained]) -> Result<(), ApiError> {
    for run in runs {
        if let Some(known) = state.hub().request(run.run_id).await?
            && !submit::same_request(&run.request, &known)
        {
            return Err(key_conflict(key, "chain").about_run(run.run_id));
        }
    }
    match state.reservations().reserve(seed, asked) {
        Reserved::Other => Err(key_conflict(key, "chain")),
        Reserved::Same | Reserved::New => Ok(()),
    }
}
