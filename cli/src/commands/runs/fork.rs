//! `riverrun runs fork`.

use clap::Args;
use riverrun_api::wire::{ForkBody, RunAccepted};

use super::{OneRun, watch};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

/// Options of `runs fork`.
#[derive(Debug, Args)]
pub struct ForkArgs {
    #[command(flatten)]
    run: OneRun,
    /// The last step that both share; 0 shares none
    #[arg(long, value_name = "SEQ")]
    at_seq: i64,
    /// Another model
    #[arg(long)]
    model: Option<String>,
    /// Another model provider
    #[arg(long)]
    provider: Option<String>,
    /// Another agent
    #[arg(long)]
    agent: Option<String>,
    /// Another task
    #[arg(long)]
    task: Option<String>,
    /// Follow the new run to its end
    #[arg(long)]
    watch: bool,
}

pub async fn run(connection: &Connection, args: ForkArgs, output: Output) -> Result<(), CliError> {
    let ForkArgs { run, at_seq, model, provider, agent, task, watch } = args;
    let body = ForkBody { at_seq, model, provider, agent, task };
    let accepted: RunAccepted = connection.client.post(&run.path("/fork"), &body).await?;
    let fork = &accepted.run_id;
    if !output.json {
        tell(&format!("riverrun runs compare {fork} shows it beside {}", run.run_id));
    }
    // Nobody else drives the run while this command has the data folder.
    if watch || connection.is_hosting() {
        let fork = OneRun { run_id: fork.clone(), ..run };
        return watch::run(connection, &fork, at_seq, false, output).await;
    }
    output.show(&accepted, |accepted| accepted.run_id.clone())
}
