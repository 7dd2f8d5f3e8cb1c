//! `riverrun memory add`.

use riverrun_api::wire::{TurnBody, TurnView};

use super::SessionArgs;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

pub(super) async fn run(
    connection: &Connection,
    role: String,
    text: String,
    session: SessionArgs,
    output: Output,
) -> Result<(), CliError> {
    let body = TurnBody { role, text, namespace: session.namespace, session: session.session };
    let turn: TurnView = connection.client.post("/memory/turns", &body).await?;
    output.show(&turn, |turn| turn.turn_id.to_string())
}
