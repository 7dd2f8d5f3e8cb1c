//! `riverrun memory why`.

use riverrun_api::wire::WhyView;

use super::SessionArgs;
use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip};

/// Characters of a text that people see.
const SHOWN: usize = 400;

pub(super) async fn run(
    connection: &Connection,
    id: String,
    session: SessionArgs,
    output: Output,
) -> Result<(), CliError> {
    let path =
        with_query("/memory/why", &[("id", Some(id)), ("namespace", session.namespace), ("session", session.session)]);
    let why: WhyView = connection.client.get(&path).await?;
    output.show(&why, |why| {
        let mut lines = vec![format!("{} {}\n    {}", why.kind, why.id, clip(&why.text, SHOWN))];
        lines.extend(why.run_id.map(|run_id| format!("run {run_id}")));
        lines.extend(why.model.as_ref().map(|model| format!("written by {model}")));
        for turn in &why.sources {
            lines.push(format!("{:>4} {} {}: {}", turn.seq, turn.turn_id, turn.role, clip(&turn.text, SHOWN)));
        }
        lines.join("\n")
    })
}
