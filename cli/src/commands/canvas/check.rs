//! `riverrun canvas check`.

use std::path::Path;

use serde::Serialize;

use super::document::{Content, read_file};
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
    let count = |is: fn(&Content) -> bool| canvas.nodes.iter().filter(|node| is(&node.content)).count();
    let checked = Checked {
        agents: count(|content| matches!(content, Content::Agent(_))),
        tools: count(|content| matches!(content, Content::Tool(_))),
        collections: count(|content| matches!(content, Content::Collection(_))),
        connections: canvas.edges.len(),
        name: canvas.name,
        namespace: canvas.namespace,
    };
    output.show(&checked, |it| {
        format!(
            "{:?} in namespace {}: {} agents, {} tools, {} collections, {} connections",
            it.name, it.namespace, it.agents, it.tools, it.collections, it.connections
        )
    })
}
