//! `riverrun dlq redrive`.

use riverrun_api::wire::Redriven;
use serde_json::json;

use crate::client::{encode, with_query};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

pub async fn run(connection: &Connection, id: &str, again: bool, output: Output) -> Result<(), CliError> {
    let path = with_query(&format!("/dlq/{}/redrive", encode(id)), &[("again", again.then(|| "true".to_owned()))]);
    let done: Redriven = connection.client.post(&path, &json!({})).await?;
    output.show(&done, |done| {
        format!("{} is on its topic again: {}/{}@{}", done.id, done.topic, done.partition, done.offset)
    })
}
