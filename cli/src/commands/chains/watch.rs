//! `riverrun chains watch`.

use riverrun_api::wire::{ChainView, RunMessage, RunStatus};

use super::super::runs::approve::tell_question;
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
        let run_id = run.run_id.to_string();
        let mut on_message = |message: &RunMessage| -> Result<(), CliError> {
            if let RunMessage::Step { step, .. } = message {
                tell_question(&run_id, step);
            }
            Ok(())
        };
        let one = OneRun { run_id: run_id.clone(), namespace: chain.namespace.clone() };
        let result = watch::follow(connection, &one, 0, false, &mut on_message).await?;
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
