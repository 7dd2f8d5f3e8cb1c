//! `riverrun runs tree`.

use std::collections::{HashMap, HashSet};

use riverrun_api::wire::{EdgeKind, RunTree, TreeEdge, TreeNode};
use riverrun_schemas::{RunId, counted};

use super::OneRun;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, tell};

pub async fn run(connection: &Connection, run: &OneRun, output: Output) -> Result<(), CliError> {
    let tree: RunTree = connection.client.get(&run.path("/tree")).await?;
    if tree.truncated {
        tell(&format!("there are more runs than the {} that are shown", tree.items.len()));
    }
    output.show(&tree, |tree| lines(tree, &run.run_id).join("\n"))
}

/// A line a run, each below the run that it came from and further to the right. A run with several before it stands below
/// the first of them and names the others.
fn lines(tree: &RunTree, asked_for: &str) -> Vec<String> {
    let mut into: HashMap<RunId, Vec<&TreeEdge>> = HashMap::new();
    tree.edges.iter().for_each(|edge| into.entry(edge.to).or_default().push(edge));
    let first = |run: &RunId| into.get(run).and_then(|edges| edges.first().copied());
    let below = |run: Option<RunId>| {
        let mut nodes: Vec<&TreeNode> =
            tree.items.iter().filter(|node| first(&node.run_id).map(|edge| edge.from) == run).collect();
        nodes.sort_by_key(|node| first(&node.run_id).and_then(|edge| edge.at_seq));
        nodes
    };
    let mut open: Vec<(&TreeNode, usize)> = below(None).into_iter().rev().map(|node| (node, 0)).collect();
    let (mut lines, mut seen) = (Vec::new(), HashSet::new());
    while let Some((node, depth)) = open.pop() {
        if !seen.insert(node.run_id) {
            continue;
        }
        let edges = into.get(&node.run_id).map(Vec::as_slice).unwrap_or_default();
        lines.push(line(node, edges, depth, node.run_id.to_string() == asked_for));
        open.extend(below(Some(node.run_id)).into_iter().rev().map(|next| (next, depth + 1)));
    }
    lines
}

fn line(node: &TreeNode, edges: &[&TreeEdge], depth: usize, asked_for: bool) -> String {
    let place = match edges.first().map(|edge| (edge.kind, edge.at_seq.unwrap_or(0))) {
        None => String::new(),
        Some((EdgeKind::Fork, at_seq)) => format!("step {at_seq} ─ "),
        Some((EdgeKind::Chain, _)) => "then ─ ".to_owned(),
    };
    let others: Vec<String> = edges.iter().skip(1).map(|edge| edge.from.to_string()).collect();
    let also = if others.is_empty() { String::new() } else { format!("  (also behind {})", others.join(", ")) };
    let mark = if asked_for { " *" } else { "" };
    let agent = node.agent.as_deref().unwrap_or("?");
    let model = node.model.as_deref().unwrap_or("?");
    format!(
        "{}{place}{}{mark}  {}  {agent}  {model}  {}  {}{also}",
        "  ".repeat(depth),
        node.run_id,
        node.status.as_str(),
        counted(node.steps, "step"),
        clip(&node.task, 60)
    )
}

#[cfg(test)]
mod tests {
    use riverrun_api::wire::RunStatus;
    use riverrun_api::wire::Timestamp;

    use super::*;

    fn run(name: &str) -> RunId {
        RunId::derive(&[name])
    }

    fn node(name: &str) -> TreeNode {
        TreeNode {
            run_id: run(name),
            forked_from: None,
            chain: None,
            status: RunStatus::Succeeded,
            agent: None,
            model: None,
            task: name.to_owned(),
            steps: 1,
            created_at: Timestamp(0),
        }
    }

    fn edge(from: &str, to: &str, at_seq: Option<i64>) -> TreeEdge {
        let kind = if at_seq.is_some() { EdgeKind::Fork } else { EdgeKind::Chain };
        TreeEdge { kind, from: run(from), to: run(to), at_seq }
    }

    #[test]
    fn given_forks_and_chains_when_they_are_drawn_then_each_run_is_there_once_below_what_it_came_from() {
        let tree = RunTree {
            items: ["a", "b", "c", "join", "late", "early"].map(node).into(),
            edges: vec![
                edge("a", "b", None),
                edge("a", "c", None),
                edge("b", "join", None),
                edge("c", "join", None),
                edge("c", "late", Some(5)),
                edge("c", "early", Some(2)),
            ],
            truncated: false,
        };
        let drawn = lines(&tree, &run("join").to_string());
        let tasks: Vec<(usize, &str)> = drawn
            .iter()
            .map(|line| (line.len() - line.trim_start().len(), line.split("1 step  ").nth(1).unwrap_or_default()))
            .collect();
        let also = format!("join  (also behind {})", run("c"));
        assert_eq!(tasks, [(0, "a"), (2, "b"), (4, also.as_str()), (2, "c"), (4, "early"), (4, "late")]);
        assert!(drawn[2].contains("then ─") && drawn[2].contains(" *"), "{drawn:?}");
        assert!(drawn[4].contains("step 2 ─"), "{drawn:?}");
    }
}
