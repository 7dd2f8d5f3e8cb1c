//! `riverrun canvas check`.

use std::path::Path;

use riverrun_schemas::counted;
use serde::Serialize;

use super::document::{Canvas, Content, read_file};
use crate::error::CliError;
use crate::output::Output;

/// What is on a canvas.
#[derive(Serialize)]
struct Checked {
    name: String,
    namespace: String,
    agents: usize,
    tools: usize,
    collections: usize,
    connections: usize,
}

/// Reads a canvas and says what is on it.
pub fn check(file: &Path, output: Output) -> Result<(), CliError> {
    let canvas = read_file(file)?;
    let checked = Checked {
        agents: count(&canvas, |content| matches!(content, Content::Agent(_))),
        tools: count(&canvas, |content| matches!(content, Content::Tool(_))),
        collections: count(&canvas, |content| matches!(content, Content::Collection(_))),
        connections: canvas.edges.len(),
        name: canvas.name,
        namespace: canvas.namespace,
    };
    output.show(&checked, |it| {
        format!(
            "{:?} in namespace {}: {}, {}, {}, {}",
            it.name,
            it.namespace,
            counted(it.agents, "agent"),
            counted(it.tools, "tool"),
            counted(it.collections, "collection"),
            counted(it.connections, "connection")
        )
    })
}

fn count(canvas: &Canvas, is: fn(&Content) -> bool) -> usize {
    canvas.nodes.iter().filter(|node| is(&node.content)).count()
}
