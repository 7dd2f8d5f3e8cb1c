//! What is run when a canvas is: requests made from its agents and what is connected to each. The page makes the same ones
//! (`web/src/canvas/plan.ts`). Pure.

use std::collections::{HashMap, HashSet};

use riverrun_agents::state::INPUT;
use riverrun_api::wire::{ChainBody, ChainRunBody, RunBody};
use serde_json::{Map, Value};

use super::document::{AgentData, Canvas, Content, Node};
use crate::error::{CliError, Exit};

/// The tool that reads a collection.
const SEARCH: &str = "knowledge_search";

/// An agent with what it waits for.
#[derive(Debug)]
pub(super) struct Turn<'c> {
    pub(super) node: &'c Node,
    pub(super) agent: &'c AgentData,
    /// Ids of the agents whose answers go into its task.
    pub(super) before: Vec<&'c str>,
}

impl Turn<'_> {
    /// What it is called where people read of it.
    fn called(&self) -> &str {
        self.agent.name.as_deref().unwrap_or(&self.node.id)
    }
}

/// The agents that must run so that `wanted` can, and then that one; each after those it waits for. Left out, the one that
/// no other waits for.
pub(super) fn turns<'c>(canvas: &'c Canvas, wanted: Option<&str>) -> Result<Vec<Turn<'c>>, CliError> {
    let last = match wanted {
        Some(id) => agent_called(canvas, id)?,
        None => only_last(canvas)?,
    };
    let mut order = Vec::new();
    visit(canvas, last, &mut order);
    Ok(order)
}

fn agents(canvas: &Canvas) -> impl Iterator<Item = &Node> {
    canvas.nodes.iter().filter(|node| matches!(node.content, Content::Agent(_)))
}

/// By its id, or else by a name that only one has.
fn agent_called<'c>(canvas: &'c Canvas, wanted: &str) -> Result<&'c Node, CliError> {
    if let Some(node) = agents(canvas).find(|node| node.id == wanted) {
        return Ok(node);
    }
    let named: Vec<&Node> = agents(canvas).filter(|node| name_of(node) == Some(wanted)).collect();
    match named.as_slice() {
        &[one] => Ok(one),
        [] => Err(CliError::new(Exit::Refused, format!("the canvas has no agent {wanted:?}"))
            .hint(format!("choose one of: {}", listed(agents(canvas))))),
        several => Err(CliError::new(Exit::Refused, format!("{} agents are called {wanted:?}", several.len()))
            .hint(format!("say which by its id: {}", listed(several.iter().copied())))),
    }
}

fn name_of(node: &Node) -> Option<&str> {
    match &node.content {
        Content::Agent(agent) => agent.name.as_deref(),
        Content::Tool(_) | Content::Collection(_) | Content::Note | Content::Group => None,
    }
}

/// Ids that `--node` takes, each with the name that it takes as well.
fn listed<'c>(nodes: impl Iterator<Item = &'c Node>) -> String {
    let each = nodes.map(|node| match name_of(node) {
        Some(name) => format!("{} ({name})", node.id),
        None => node.id.clone(),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn only_last(canvas: &Canvas) -> Result<&Node, CliError> {
    let waited_for =
        |id: &str| canvas.edges.iter().any(|(from, to)| from == id && agents(canvas).any(|node| node.id == *to));
    let last: Vec<&Node> = agents(canvas).filter(|node| !waited_for(&node.id)).collect();
    match last.as_slice() {
        &[one] => Ok(one),
        [] => Err(CliError::new(Exit::Refused, "the canvas has no agent").hint("drag one onto it and export it again")),
        several => {
            Err(CliError::new(Exit::Refused, format!("the canvas has {} agents that nothing waits for", several.len()))
                .hint(format!("say which to run by --node: {}", listed(several.iter().copied()))))
        }
    }
}

/// Depth first; a canvas that was read has no circles, and at most 2,000 nodes.
fn visit<'c>(canvas: &'c Canvas, node: &'c Node, order: &mut Vec<Turn<'c>>) {
    let Content::Agent(agent) = &node.content else { return };
    if order.iter().any(|turn| turn.node.id == node.id) {
        return;
    }
    let before: Vec<&Node> = agents_before(canvas, &node.id);
    for one in &before {
        visit(canvas, one, order);
    }
    order.push(Turn { node, agent, before: before.into_iter().map(|node| node.id.as_str()).collect() });
}

/// In the order in which they stand on the canvas: from above, then from the left.
fn agents_before<'c>(canvas: &'c Canvas, id: &str) -> Vec<&'c Node> {
    let mut found: Vec<&Node> = sources(canvas, id).filter(|node| matches!(node.content, Content::Agent(_))).collect();
    found.sort_by(|a, b| a.y.total_cmp(&b.y).then(a.x.total_cmp(&b.x)).then_with(|| a.id.cmp(&b.id)));
    found
}

fn sources<'c>(canvas: &'c Canvas, id: &str) -> impl Iterator<Item = &'c Node> {
    let from: Vec<&str> = canvas.edges.iter().filter(|(_, to)| to == id).map(|(from, _)| from.as_str()).collect();
    canvas.nodes.iter().filter(move |node| from.contains(&node.id.as_str()))
}

/// The task: an agent that waits for none takes `given`. The server puts the answers into the tasks of the others.
pub(super) fn task_of(turn: &Turn<'_>, given: Option<&str>) -> Result<String, CliError> {
    let task = &turn.agent.task;
    if !turn.before.is_empty() {
        return Ok(if task.trim().is_empty() { INPUT.to_owned() } else { task.clone() });
    }
    let made = if task.contains(INPUT) {
        // Words around a place where nothing stands are no task.
        given.filter(|given| !given.trim().is_empty()).map_or_else(String::new, |given| task.replace(INPUT, given))
    } else {
        given.unwrap_or(task).to_owned()
    };
    if made.trim().is_empty() {
        return Err(CliError::new(Exit::Refused, format!("agent {} has no task", turn.called()))
            .hint("riverrun canvas run FILE --task \"…\""));
    }
    Ok(made)
}

/// What the runs of the chain are called, by the ids of their nodes: as the agents where no two have the same name, else as the
/// nodes. The page does the same (`web/src/canvas/names.ts`).
pub(super) fn part_names<'c>(turns: &[Turn<'c>]) -> HashMap<&'c str, &'c str> {
    let differ = turns.iter().map(Turn::called).collect::<HashSet<_>>().len() == turns.len();
    let named = turns.iter().map(|turn| {
        let id = turn.node.id.as_str();
        (id, turn.agent.name.as_deref().filter(|_| differ).unwrap_or(id))
    });
    named.collect()
}

/// The chain that the agents make up.
pub(super) fn chain_of(
    canvas: &Canvas,
    namespace: &str,
    turns: &[Turn<'_>],
    given: Option<&str>,
) -> Result<ChainBody, CliError> {
    let names = part_names(turns);
    let in_chain = |id: &str| names.get(id).copied().unwrap_or(id).to_owned();
    let runs = turns.iter().map(|turn| {
        Ok(ChainRunBody {
            name: in_chain(&turn.node.id),
            after: turn.before.iter().map(|id| in_chain(id)).collect(),
            run: body_of(canvas, namespace, turn, task_of(turn, given)?),
        })
    });
    let runs = runs.collect::<Result<Vec<_>, CliError>>()?;
    Ok(ChainBody { namespace: Some(namespace.to_owned()), runs })
}

/// The request: exactly the tools and collections that are connected, and no others.
fn body_of(canvas: &Canvas, namespace: &str, turn: &Turn<'_>, task: String) -> RunBody {
    let (mut tools, mut collections) = (Vec::new(), Vec::new());
    for node in sources(canvas, &turn.node.id) {
        match &node.content {
            Content::Tool(name) => tools.push(name.clone()),
            Content::Collection(name) => collections.push(name.clone()),
            Content::Agent(_) | Content::Note | Content::Group => {}
        }
    }
    for names in [&mut tools, &mut collections] {
        names.sort();
        names.dedup();
    }
    // A connected collection is there to be read, and this is what reads one.
    if !collections.is_empty() && !tools.iter().any(|tool| tool == SEARCH) {
        tools.push(SEARCH.to_owned());
    }
    let text = |value: &str| Value::String(value.to_owned());
    let metadata =
        Map::from_iter([("canvas".to_owned(), text(&canvas.name)), ("node".to_owned(), text(&turn.node.id))]);
    let AgentData { agent, model, max_iters, approval, session, task: _, name: _ } = turn.agent.clone();
    RunBody {
        task,
        agent,
        namespace: Some(namespace.to_owned()),
        session,
        model,
        max_iters,
        tools: Some(tools),
        collections: Some(collections),
        approval,
        metadata: Some(metadata),
        ..RunBody::default()
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
