//! `riverrun canvas run`.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use riverrun_api::submit;
use riverrun_api::wire::{ChainAccepted, ChainBody, RunStatus, RunView};
use riverrun_schemas::RunId;
use serde::Serialize;

use super::super::agent::run::{print_answer, watch};
use super::super::runs::{outcome, summary};
use super::document::{Canvas, read, read_file};
use super::plan::{chain_of, part_names, turns};
use super::saved::find;
use crate::error::{CliError, Exit};
use crate::host::{self, Connection};
use crate::output::{Output, print_json, tell};
use crate::settings::Settings;

/// Options of `canvas run`.
#[derive(Debug, Args)]
pub struct CanvasRunArgs {
    /// A canvas that was exported, or the id or name of one that the server keeps
    pub file: PathBuf,
    /// What to do: it stands for {{input}} in the tasks of the first agents, or for a whole task that has none
    #[arg(long)]
    pub task: Option<String>,
    /// The agent to run, after those it waits for, by id or name; the one that no other waits for when left out
    #[arg(long, value_name = "ID")]
    pub node: Option<String>,
    /// Namespace instead of the one that the canvas names
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Print the reasoning traces
    #[arg(long)]
    pub steps: bool,
}

impl CanvasRunArgs {
    /// Whether a canvas of the server is meant: there is no such file, and it looks like none. A folder may happen to be called like one.
    pub fn is_saved(&self) -> bool {
        (!self.file.exists() || self.file.is_dir())
            && self.file.components().count() == 1
            && self.file.extension().is_none()
    }
}

/// A canvas that was checked before anything is started for it.
pub struct Prepared {
    name: String,
    chain: ChainBody,
    /// What runs are called in the chain → the nodes that they are of.
    nodes: HashMap<String, String>,
    steps: bool,
}

/// What became of a canvas.
#[derive(Serialize)]
struct CanvasRuns<'c> {
    canvas: &'c str,
    namespace: &'c str,
    chain_id: &'c str,
    /// In the order in which they ran; the last one is the result.
    items: &'c [NodeRun],
}

#[derive(Serialize)]
struct NodeRun {
    /// The node's id.
    node: String,
    /// What its agent is called, where it has a name that no other of the row has.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    run: RunView,
}

/// Reads the canvas and checks every request that it makes.
pub fn prepare(args: CanvasRunArgs, settings: &Settings) -> Result<Prepared, CliError> {
    prepare_canvas(read_file(&args.file)?, args, settings)
}

/// The same with a canvas that the server keeps.
pub async fn fetch(connection: &Connection, args: CanvasRunArgs, settings: &Settings) -> Result<Prepared, CliError> {
    let kept = find(connection, &args.file.to_string_lossy(), args.namespace.as_deref()).await?;
    let canvas = read(kept.document.to_string().as_bytes())?;
    // It runs where it is kept, whatever namespace it was drawn in.
    let args = CanvasRunArgs { namespace: args.namespace.or(Some(kept.namespace)), ..args };
    prepare_canvas(canvas, args, settings)
}

fn prepare_canvas(canvas: Canvas, args: CanvasRunArgs, settings: &Settings) -> Result<Prepared, CliError> {
    let namespace = args.namespace.unwrap_or_else(|| canvas.namespace.clone());
    // A server has other tools and providers than this command's settings, and checks them.
    let known = if host::settings_count(settings)? { Some(host::core(settings)?.known()) } else { None };
    let turns = turns(&canvas, args.node.as_deref())?;
    let chain = chain_of(&canvas, &namespace, &turns, args.task.as_deref())?;
    let nodes = part_names(&turns).into_iter().map(|(id, name)| (name.to_owned(), id.to_owned())).collect();
    if let Some(known) = &known {
        for part in &chain.runs {
            submit::run_request(part.run.clone(), known)?;
        }
    }
    Ok(Prepared { name: canvas.name, chain, nodes, steps: args.steps })
}

/// Starts all agents as one chain, which goes on by itself, and follows each to its end; the first one that does not
/// succeed is the end.
pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    let Prepared { name, chain, mut nodes, steps } = prepared;
    let started: ChainAccepted = connection.client.post("/chains", &chain).await?;
    let (chain_id, count) = (started.chain_id, started.runs.len());
    tell(&format!("riverrun chains cancel {chain_id} stops it"));
    let mut done: Vec<NodeRun> = Vec::with_capacity(count);
    for (at, accepted) in started.runs.into_iter().enumerate() {
        let run_id =
            accepted.run_id.parse::<RunId>().map_err(|error| CliError::new(Exit::Failed, error.to_string()))?;
        let result = watch(connection, run_id, steps && !output.json, !output.json).await?;
        tell(&format!("{} of {count}: {}: {}", at + 1, accepted.name, summary(&result)));
        let succeeded = result.status == RunStatus::Succeeded;
        done.push(match nodes.remove(&accepted.name) {
            Some(node) if node != accepted.name => NodeRun { node, name: Some(accepted.name), run: result },
            _ => NodeRun { node: accepted.name, name: None, run: result },
        });
        if !succeeded {
            break;
        }
    }
    if output.json {
        let namespace = chain.namespace.as_deref().unwrap_or_default();
        print_json(&CanvasRuns { canvas: &name, namespace, chain_id: &chain_id, items: &done })?;
    }
    let Some(NodeRun { run: last, .. }) = done.last() else { return Ok(()) };
    if !output.json {
        print_answer(last)?;
    }
    outcome(last)
}
