//! `riverrun memory turns`.

use riverrun_api::wire::{Page, TurnView};

use super::SessionArgs;
use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, table};
use crate::paging::PageArgs;

/// Characters of a turn that people see.
const SHOWN: usize = 200;

pub(super) async fn run(
    connection: &Connection,
    page: PageArgs,
    session: SessionArgs,
    output: Output,
) -> Result<(), CliError> {
    let [limit, cursor] = page.query();
    let path =
        with_query("/memory/turns", &[limit, cursor, ("namespace", session.namespace), ("session", session.session)]);
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
            ["seq", "role", "text", "turn", "at"],
            found.items.iter().map(row).collect(),
            "there are no turns in this conversation; add one: riverrun memory add <role> <text>",
        )
    })?;
    output.tell_rest(found.next_cursor.as_deref());
    Ok(())
}
