//! `riverrun runs resume`.

use riverrun_api::wire::RunAccepted;
use serde_json::json;

use crate::client::encode;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

pub async fn run(connection: &Connection, run_id: &str, output: Output) -> Result<(), CliError> {
    let path = format!("/runs/{}/resume", encode(run_id));
    let accepted: RunAccepted = connection.client.post(&path, &json!({})).await?;
    if !output.json {
        tell(&format!("run {run_id} was asked to look again; riverrun runs watch {run_id} shows what comes of it"));
    }
    output.show(&accepted, |accepted| accepted.run_id.clone())
}
