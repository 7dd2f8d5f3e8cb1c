//! `riverrun runs cancel`.

use riverrun_api::wire::{CancelBody, RunAccepted};

use super::OneRun;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

pub async fn run(
    connection: &Connection,
    run: &OneRun,
    reason: Option<String>,
    output: Output,
) -> Result<(), CliError> {
    let accepted: RunAccepted = connection.client.post(&run.path("/cancel"), &CancelBody { reason }).await?;
    let run_id = &run.run_id;
    if !output.json {
        tell(&format!("run {run_id} was asked to stop; riverrun runs watch {run_id} shows when it has"));
    }
    output.show(&accepted, |accepted| accepted.run_id.clone())
}
