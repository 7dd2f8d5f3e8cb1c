//! `riverrun dlq drop`.

use riverrun_api::wire::DeadLetterEntry;
use serde_json::json;

use crate::client::encode;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

pub async fn run(connection: &Connection, id: &str, output: Output) -> Result<(), CliError> {
    let letter: DeadLetterEntry = connection.client.post(&format!("/dlq/{}/drop", encode(id)), &json!({})).await?;
    output.show(&letter, |letter| format!("{} is marked as {}", letter.id, letter.status))
}
