//! `riverrun runs resume`.

use riverrun_api::wire::RunAccepted;
use serde_json::json;

use super::OneRun;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

pub async fn run(connection: &Connection, run: &OneRun, output: Output) -> Result<(), CliError> {
    let accepted: RunAccepted = connection.client.post(&run.path("/resume"), &json!({})).await?;
    let run_id = &run.run_id;
    if !output.json {
        tell(&format!("run {run_id} was asked to look again; riverrun runs watch {run_id} shows what comes of it"));
    }
    output.show(&accepted, |accepted| accepted.run_id.clone())
}
