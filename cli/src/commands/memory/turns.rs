//! `riverrun memory turns`.

use riverrun_api::wire::{Page, TurnView};

use super::SessionArgs;
use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, table, tell};

/// Characters of a turn that people see.
const SHOWN: usize = 200;

pub(super) async fn run(
    connection: &Connection,
    limit: Option<u32>,
    cursor: Option<String>,
    session: SessionArgs,
    output: Output,
) -> Result<(), CliError> {
    let path = with_query(
        "/memory/turns",
        &[
            ("limit", limit.map(|limit| limit.to_string())),
            ("cursor", cursor),
            ("namespace", session.namespace),
            ("session", session.session),
        ],
    );
    let found: Page<TurnView> = connection.client.get(&path).await?;
    output.show(&found, |found| {
        let row = |turn: &TurnView| {
            [
                turn.seq.to_string(),
                turn.role.clone(),
                clip(&turn.text, SHOWN),
                turn.turn_id.to_string(),
                turn.at.to_string(),
            ]
        };
        table(
            ["seq", "role", "text", "id", "at"],
            found.items.iter().map(row).collect(),
            "nothing was said in this conversation",
        )
    })?;
    if let (Some(cursor), false) = (&found.next_cursor, output.json) {
        tell(&format!("there are more: --cursor {cursor}"));
    }
    Ok(())
}
