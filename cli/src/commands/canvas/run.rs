//! `riverrun canvas run`.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use riverrun_api::submit::{self, Known};
use riverrun_api::wire::{RunStatus, RunView};
use riverrun_schemas::agent::RunRequest;
use serde::Serialize;

use super::super::agent::run::{print_answer, submit_and_watch};
use super::super::runs::{outcome, summary};
use super::document::{Canvas, read_file};
use super::plan::{Turn, body_of, task_of, turns};
use crate::error::CliError;
use crate::host::{self, Connection};
use crate::output::{Output, print_json, tell};
use crate::settings::Settings;

/// Options of `canvas run`.
#[derive(Debug, Args)]
pub struct CanvasRunArgs {
    /// A canvas that was exported
    pub file: PathBuf,
    /// What to do: it stands for {{input}} in the tasks of the first agents, or for a whole task that has none
    #[arg(long)]
    pub task: Option<String>,
    /// The agent to run, after those it waits for; the one that no other waits for when left out
    #[arg(long, value_name = "ID")]
    pub node: Option<String>,
    /// Namespace instead of the one that the canvas names
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Print the reasoning traces
    #[arg(long)]
    pub steps: bool,
}

/// A canvas that was checked before anything is started for it.
pub struct Prepared {
    canvas: Canvas,
    namespace: String,
    node: Option<String>,
    task: Option<String>,
    known: Known,
    steps: bool,
}

/// What became of a canvas.
#[derive(Serialize)]
struct CanvasRuns<'c> {
    canvas: &'c str,
    namespace: &'c str,
    /// In the order in which they ran; the last one is the result.
    items: &'c [NodeRun],
}

#[derive(Serialize)]
struct NodeRun {
    node: String,
    run: RunView,
}

/// Reads the canvas and checks every request that it makes.
pub fn prepare(args: CanvasRunArgs, settings: &Settings) -> Result<Prepared, CliError> {
    let canvas = read_file(&args.file)?;
    let namespace = args.namespace.unwrap_or_else(|| canvas.namespace.clone());
    let known = host::core(settings)?.known();
    let prepared = Prepared { canvas, namespace, node: args.node, task: args.task, known, steps: args.steps };
    for turn in turns(&prepared.canvas, prepared.node.as_deref())? {
        request(&prepared, &turn, &vec!["an answer"; turn.before.len()])?;
    }
    Ok(prepared)
}

fn request(prepared: &Prepared, turn: &Turn<'_>, answers: &[&str]) -> Result<RunRequest, CliError> {
    let task = task_of(turn, answers, prepared.task.as_deref())?;
    let body = body_of(&prepared.canvas, &prepared.namespace, turn, task);
    Ok(submit::run_request(body, &prepared.known)?)
}

/// Runs the agents one after the other; the first one that does not succeed is the end.
pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    let order = turns(&prepared.canvas, prepared.node.as_deref())?;
    let mut done: Vec<NodeRun> = Vec::with_capacity(order.len());
    let mut answers: HashMap<&str, String> = HashMap::new();
    for (at, turn) in order.iter().enumerate() {
        let before: Vec<&str> =
            turn.before.iter().map(|id| answers.get(id).map(String::as_str).unwrap_or_default()).collect();
        let request = request(&prepared, turn, &before)?;
        let result = submit_and_watch(connection, request, prepared.steps && !output.json, !output.json).await?;
        tell(&format!("{} of {}: {}: {}", at + 1, order.len(), turn.node.id, summary(&result)));
        answers.insert(&turn.node.id, result.answer.clone().unwrap_or_default());
        let succeeded = result.status == RunStatus::Succeeded;
        done.push(NodeRun { node: turn.node.id.clone(), run: result });
        if !succeeded {
            break;
        }
    }
    if output.json {
        print_json(&CanvasRuns { canvas: &prepared.canvas.name, namespace: &prepared.namespace, items: &done })?;
    }
    let Some(NodeRun { run: last, .. }) = done.last() else { return Ok(()) };
    if !output.json {
        print_answer(last)?;
    }
    outcome(last)
}
