//! `riverrun runs tree`.

use riverrun_api::wire::{RunTree, TreeNode};

use crate::client::encode;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip};

pub async fn run(connection: &Connection, run_id: &str, output: Output) -> Result<(), CliError> {
    let tree: RunTree = connection.client.get(&format!("/runs/{}/tree", encode(run_id))).await?;
    output.show(&tree, |tree| lines(&tree.items, run_id).join("\n"))
}

/// A line a run, each behind the run that it branched off and further to the right.
fn lines(nodes: &[TreeNode], asked_for: &str) -> Vec<String> {
    let Some(root) = nodes.first() else { return Vec::new() };
    let (mut lines, mut open) = (Vec::new(), vec![(root, 0)]);
    while let Some((node, depth)) = open.pop() {
        lines.push(line(node, depth, node.run_id.to_string() == asked_for));
        let mut branches: Vec<_> = nodes
            .iter()
            .filter(|other| other.forked_from.as_ref().is_some_and(|from| from.run_id == node.run_id))
            .collect();
        branches.sort_by_key(|branch| std::cmp::Reverse(branch.forked_from.as_ref().map_or(0, |from| from.at_seq)));
        open.extend(branches.into_iter().map(|branch| (branch, depth + 1)));
    }
    lines
}

fn line(node: &TreeNode, depth: usize, asked_for: bool) -> String {
    let place = node.forked_from.as_ref().map(|from| format!("step {} ─ ", from.at_seq)).unwrap_or_default();
    let mark = if asked_for { " *" } else { "" };
    let agent = node.agent.as_deref().unwrap_or("?");
    let model = node.model.as_deref().unwrap_or("?");
    format!(
        "{}{place}{}{mark}  {}  {agent}  {model}  {} steps  {}",
        "  ".repeat(depth),
        node.run_id,
        node.status.as_str(),
        node.steps,
        clip(&node.task, 60)
    )
}
