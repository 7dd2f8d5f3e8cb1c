//! `riverrun chains watch`.

use riverrun_api::wire::{ChainView, RunMessage, RunStatus};

use super::super::runs::approve::Questions;
use super::super::runs::turn::stuck;
use super::super::runs::{self, OneRun, watch};
use super::{OneChain, show};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, print_json, print_line, tell};

/// Follows the runs one after the other, each behind those that it waits for.
pub async fn run(connection: &Connection, chain: &OneChain, output: Output) -> Result<(), CliError> {
    let started = show::read(connection, chain).await?;
    let count = started.runs.len();
    for (run, place) in started.runs.iter().zip(1usize..) {
        let one = OneRun { run_id: run.run_id.to_string(), namespace: chain.namespace.clone() };
        let questions = Questions::of(connection, &one).await;
        let mut on_message = |message: &RunMessage| match message {
            RunMessage::Step { step, .. } => questions.told(step),
            RunMessage::Start { .. } | RunMessage::Token { .. } | RunMessage::Final { .. } => Ok(()),
        };
        let result = tokio::select! {
            result = watch::follow(connection, &one, 0, false, &mut on_message) => result?,
            error = stuck(connection, &one) => return Err(error),
        };
        tell(&format!("{place} of {count}: {}: {}", run.name, runs::summary(&result)));
    }
    let chain = show::read(connection, chain).await?;
    if output.json {
        print_json(&chain)?;
    } else {
        print_line(&show::summary(&chain))?;
    }
    outcome(&chain)
}

/// Success, or why not.
fn outcome(chain: &ChainView) -> Result<(), CliError> {
    let word = match chain.status {
        RunStatus::Succeeded | RunStatus::Queued | RunStatus::Running | RunStatus::WaitingApproval => return Ok(()),
        RunStatus::Cancelled => "was cancelled",
        RunStatus::Failed => "failed",
    };
    Err(CliError::new(Exit::Failed, format!("chain {} {word}", chain.chain_id))
        .hint(format!("riverrun chains show {}", chain.chain_id)))
}
