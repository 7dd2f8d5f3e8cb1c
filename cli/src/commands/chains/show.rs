//! `riverrun chains show`.

use std::collections::HashMap;

use riverrun_api::wire::ChainView;
use riverrun_schemas::{RunId, counted};

use super::OneChain;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, table};

pub async fn run(connection: &Connection, chain: &OneChain, output: Output) -> Result<(), CliError> {
    let chain = read(connection, chain).await?;
    output.show(&chain, |chain| format!("{}\n\n{}", summary(chain), lines(chain)))
}

pub(super) async fn read(connection: &Connection, chain: &OneChain) -> Result<ChainView, CliError> {
    connection.client.get(&chain.path("")).await
}

/// Where a chain is, in one line.
pub(super) fn summary(chain: &ChainView) -> String {
    let ended = chain.runs.iter().filter(|run| run.status.ended()).count();
    format!(
        "{} · {} · {ended} of {} ended · {}",
        chain.chain_id,
        chain.status.as_str(),
        counted(chain.runs_total, "run"),
        counted(chain.usage.total_tokens, "token")
    )
}

/// A line a run, each behind those that it waits for.
fn lines(chain: &ChainView) -> String {
    let names: HashMap<RunId, &str> = chain.runs.iter().map(|run| (run.run_id, run.name.as_str())).collect();
    let rows = chain.runs.iter().map(|run| {
        let after: Vec<String> = run
            .after
            .iter()
            .map(|before| names.get(before).map_or_else(|| before.to_string(), |name| (*name).to_owned()))
            .collect();
        [
            clip(&run.name, 30),
            run.run_id.to_string(),
            run.status.as_str().to_owned(),
            run.agent.clone().unwrap_or_default(),
            run.steps.to_string(),
            run.usage.total_tokens.to_string(),
            run.stop_reason.clone().unwrap_or_default(),
            clip(&after.join(", "), 60),
        ]
    });
    table(
        ["name", "run", "status", "agent", "steps", "tokens", "ended as", "after"],
        rows.collect(),
        "the chain has no runs",
    )
}
