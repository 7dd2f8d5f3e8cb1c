//! Starting and stopping a chain: the commands of all its runs on the log, then the answer. From there on it needs nobody
//! who watches.

use riverrun_log::Outgoing;
use riverrun_schemas::agent::{AgentCommand, CancelRun, StartRun};
use riverrun_schemas::{ChainId, RunId, now_ms};

use crate::accept::{COMPONENT, check_collections, key_conflict};
use crate::error::ApiError;
use crate::reservations::Held;
use crate::state::AppState;
use crate::submit::{self, Chained, Checks};
use crate::wire::{ChainBody, ChainView};

/// Starts a chain, or finds the one that the same key started. Gives its id and its runs, each behind those that it waits
/// for.
pub(crate) async fn start(
    state: &AppState,
    key: Option<&str>,
    body: ChainBody,
) -> Result<(ChainId, Vec<Chained>), ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    checks.finish()?;
    let seed = match key {
        Some(key) => RunId::derive(&["chain", "idempotency-key", namespace.as_str(), key]),
        None => RunId::new(),
    }
    .to_string();
    let asked = serde_json::to_vec(&body).map_err(|error| ApiError::internal(error.to_string()))?;
    let (chain_id, runs) = submit::chained(body, &state.core().known(), &seed)?;
    for run in &runs {
        check_collections(state, &run.request).await?;
    }
    let held = match key {
        Some(key) => Some(check_repeat(state, key, (seed.as_str(), chain_id), &asked, &runs).await?),
        None => None,
    };
    let at = now_ms();
    let commands = runs.iter().map(|run| {
        let command = StartRun { run_id: run.run_id, request: run.request.clone(), at };
        Outgoing::event(&AgentCommand::StartRun(command), COMPONENT, None)
    });
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    state.parts().producer.send_many(commands).await?;
    if let Some(held) = held {
        held.keep();
    }
    for run in &runs {
        state.hub().remember_accepted(run.run_id, &run.request, at);
    }
    Ok((chain_id, runs.into_iter().rev().collect()))
}

/// Asks every run of the chain that has not ended to stop, those that wait for others too. Which of them have ended
/// meanwhile, the log decides.
pub(crate) async fn cancel(state: &AppState, chain: &ChainView, reason: Option<String>) -> Result<(), ApiError> {
    let mut checks = Checks::default();
    checks.reason("reason", reason.as_deref());
    checks.finish()?;
    let at = now_ms();
    // Whoever waits is asked first, so that it ends for this reason and not for the end of another.
    let open = chain.runs.iter().rev().filter(|run| !run.status.ended());
    let commands = open.map(|run| {
        let command = CancelRun { run_id: run.run_id, reason: reason.clone(), at };
        Outgoing::event(&AgentCommand::CancelRun(command), COMPONENT, None)
    });
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    state.parts().producer.send_many(commands).await?;
    Ok(())
}

/// The same key with another chain is refused. The same chain again is put on the log again, which starts nothing twice
/// and completes what was cut short.
async fn check_repeat<'s>(
    state: &'s AppState,
    key: &str,
    (seed, chain_id): (&str, ChainId),
    asked: &[u8],
    runs: &[Chained],
) -> Result<Held<'s>, ApiError> {
    let known = state.hub().chain(chain_id).await?.map(|chain| chain.runs).unwrap_or_default();
    if known.iter().any(|known| runs.iter().all(|run| run.run_id != known.run_id)) {
        return Err(key_conflict(key, "chain"));
    }
    for run in runs {
        if let Some(known) = state.hub().request(run.run_id).await?
            && !submit::same_request(&run.request, &known)
        {
            return Err(key_conflict(key, "chain").about_run(run.run_id));
        }
    }
    state.reservations().reserve(seed, asked).ok_or_else(|| key_conflict(key, "chain"))
}

/// 404 for a chain that nobody knows.
pub(crate) fn unknown(chain_id: ChainId) -> ApiError {
    ApiError::not_found("chain_not_found", format!("there is no chain {chain_id}"))
        .hint("riverrun runs ls shows the chain of each run with --json")
}
