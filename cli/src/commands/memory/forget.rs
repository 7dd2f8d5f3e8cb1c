//! `riverrun memory forget`.

use riverrun_api::wire::ForgetDone;
use riverrun_schemas::counted;

use super::SessionArgs;
use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

/// Without an id the whole conversation goes.
pub(super) async fn run(
    connection: &Connection,
    id: Option<String>,
    session: SessionArgs,
    output: Output,
) -> Result<(), CliError> {
    let name = session.session.unwrap_or_else(|| "default".to_owned());
    let path = with_query("/memory", &[("id", id), ("namespace", session.namespace), ("session", Some(name))]);
    let done: ForgetDone = connection.client.delete(&path).await?;
    output.show(&done, |done| {
        let gone = done.removed;
        format!(
            "forgotten: {}, {}, {}, {}, {} ({})",
            counted(gone.turns, "turn"),
            counted(gone.summaries, "summary"),
            counted(gone.episodes, "episode"),
            counted(gone.notes, "note"),
            counted(gone.vectors, "vector"),
            done.forget_id
        )
    })?;
    if done.pending && !output.json {
        tell("some of it is still on its way; it is gone when the workers have caught up: riverrun diagnose");
    }
    Ok(())
}
