//! `riverrun memory context`.

use riverrun_api::wire::MemoryContextView;
use riverrun_schemas::counted;

use super::SessionArgs;
use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, tell};

/// Characters of a memory that people see.
const SHOWN: usize = 400;

pub(super) async fn run(
    connection: &Connection,
    query: Option<String>,
    k: Option<usize>,
    session: SessionArgs,
    output: Output,
) -> Result<(), CliError> {
    let path = with_query(
        "/memory/context",
        &[
            ("query", query),
            ("k", k.map(|k| k.to_string())),
            ("namespace", session.namespace),
            ("session", session.session),
        ],
    );
    let context: MemoryContextView = connection.client.get(&path).await?;
    output.show(&context, shown)?;
    if !output.json {
        if shown(&context).is_empty() {
            tell("nothing is remembered in this conversation; add a turn: riverrun memory add <role> <text>");
        }
        tell(&format!("{} of {}", context.tokens, counted(context.window_tokens, "token")));
        if context.turns_left_out > 0 {
            let turns = counted(context.turns_left_out, "turn");
            tell(&format!("{turns} did not fit; a summary of what is left out comes later"));
        }
        for note in &context.notes {
            tell(&format!("note: {note}"));
        }
    }
    Ok(())
}

fn shown(context: &MemoryContextView) -> String {
    let mut lines = Vec::new();
    if let Some(summary) = &context.summary {
        lines.push(format!("summary {} (turns 1..{})\n    {}", summary.summary_id, summary.through_seq, summary.text));
    }
    for memory in &context.episodes {
        lines.push(format!("{} {} {:.3}\n    {}", memory.kind, memory.id, memory.score, clip(&memory.text, SHOWN)));
    }
    for turn in &context.turns {
        lines.push(format!("{:>4} {}: {}", turn.seq, turn.role, clip(&turn.text, SHOWN)));
    }
    lines.join("\n")
}
