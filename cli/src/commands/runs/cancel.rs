//! `riverrun runs cancel`.

use riverrun_api::wire::{CancelBody, RunAccepted};

use crate::client::encode;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

pub async fn run(
    connection: &Connection,
    run_id: &str,
    reason: Option<String>,
    output: Output,
) -> Result<(), CliError> {
    let path = format!("/runs/{}/cancel", encode(run_id));
    let accepted: RunAccepted = connection.client.post(&path, &CancelBody { reason }).await?;
    if !output.json {
        tell(&format!("run {run_id} was asked to stop; riverrun runs watch {run_id} shows when it has"));
    }
    output.show(&accepted, |accepted| accepted.run_id.clone())
}
