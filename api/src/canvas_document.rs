//! The exchange format of canvases, `riverrun.canvas` version 1, as `web/src/canvas/exchange.ts` writes and reads it: unknown
//! keys, other versions and too much are refused, and so is what could not be drawn. Both read the files of
//! `web/fixtures/canvas` in their tests.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use riverrun_agents::state::MAX_ITERS;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

use crate::error::ApiError;
use crate::extract::parse;
use crate::wire::ApprovalMode;

const FORMAT: &str = "riverrun.canvas";
const VERSION: u64 = 1;
/// Largest file, in bytes: 4 MiB.
pub const MAX_BYTES: usize = 4 << 20;
const MAX_NODES: usize = 2_000;
const MAX_EDGES: usize = 8_000;
/// Longest task or note, in UTF-16 units, which is how browsers count.
const MAX_TEXT: usize = 20_000;
const MAX_NAME: usize = 120;
/// Longest name of an agent: whatever its letters, it fits into the name of a run in its chain.
const MAX_AGENT_NAME: usize = 60;
const MAX_PLACE: f64 = 1e6;
const MAX_EXTENT: f64 = 1e5;

/// A canvas that was checked as a whole.
#[derive(Debug, PartialEq)]
pub struct Canvas {
    /// Its name for people.
    pub name: String,
    /// Where its agents run.
    pub namespace: String,
    /// What stands on it.
    pub nodes: Vec<Node>,
    /// From, to.
    pub edges: Vec<(String, String)>,
}

/// What stands on a canvas.
#[derive(Debug, PartialEq)]
pub struct Node {
    /// Different from that of every other.
    pub id: String,
    /// From the left, in pixels.
    pub x: f64,
    /// From above, in pixels.
    pub y: f64,
    /// What it is.
    pub content: Content,
}

/// What a node is.
#[derive(Debug, PartialEq)]
pub enum Content {
    /// An agent.
    Agent(AgentData),
    /// A tool, by name.
    Tool(String),
    /// A collection, by name.
    Collection(String),
    /// Words for people.
    Note,
    /// A frame around others.
    Group,
}

/// What an agent of a canvas is asked to do.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentData {
    /// Its type; none lets the supervisor choose.
    #[serde(deserialize_with = "nullable")]
    pub agent: Option<String>,
    /// Its task; `{{input}}` in it stands for what is given.
    pub task: String,
    /// What it is called; canvases of before agents had names have none.
    #[serde(default, deserialize_with = "present")]
    pub name: Option<String>,
    /// The chat model.
    #[serde(default, deserialize_with = "present")]
    pub model: Option<String>,
    /// Most rounds.
    #[serde(default, rename = "maxIters", deserialize_with = "present")]
    pub max_iters: Option<i32>,
    /// What a person is asked about.
    #[serde(default, deserialize_with = "present")]
    pub approval: Option<ApprovalMode>,
    /// The conversation.
    #[serde(default, deserialize_with = "present")]
    pub session: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u64,
    name: String,
    namespace: String,
    nodes: Vec<RawNode>,
    edges: Vec<RawEdge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    id: String,
    kind: String,
    x: f64,
    y: f64,
    #[serde(default, deserialize_with = "present")]
    width: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    height: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    group: Option<String>,
    data: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEdge {
    from: String,
    to: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolData {
    tool: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CollectionData {
    collection: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoteData {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupData {
    title: String,
}

/// The key must be there, and may be null.
fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// The key may be left out, and is never null.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads the bytes of one; the error names the place.
pub fn read(bytes: &[u8]) -> Result<Canvas, ApiError> {
    if bytes.len() > MAX_BYTES {
        return Err(refused("the file", &format!("has {} bytes; at most {MAX_BYTES} are read", bytes.len())));
    }
    let file: File = parse(bytes)?;
    check(&file)?;
    let nodes = file.nodes.into_iter().map(node).collect::<Result<Vec<_>, _>>()?;
    let edges = file.edges.into_iter().map(|edge| (edge.from, edge.to)).collect();
    let canvas = Canvas { name: file.name, namespace: file.namespace, nodes, edges };
    check_edges(&canvas)?;
    Ok(canvas)
}

fn refused(place: &str, reason: &str) -> ApiError {
    ApiError::field(place, reason)
        .hint("export the canvas again; /canvas.schema.json of a running server describes the format")
}

fn check(file: &File) -> Result<(), ApiError> {
    if file.format != FORMAT {
        return Err(refused("format", &format!("is {:?}, not {FORMAT:?}", file.format)));
    }
    if file.version != VERSION {
        return Err(refused("version", &format!("is {}; this program reads {VERSION}", file.version)));
    }
    length("name", &file.name, 0, MAX_NAME)?;
    if !is_namespace(&file.namespace) {
        return Err(refused("namespace", "is not 1 to 63 of a-z, 0-9 and -, the first no -"));
    }
    for (what, count, most) in [("nodes", file.nodes.len(), MAX_NODES), ("edges", file.edges.len(), MAX_EDGES)] {
        if count > most {
            return Err(refused(what, &format!("are {count}; at most {most} are read")));
        }
    }
    let groups: HashSet<&str> =
        file.nodes.iter().filter(|node| node.kind == "group").map(|node| node.id.as_str()).collect();
    let mut ids = HashSet::new();
    for node in &file.nodes {
        check_place(node)?;
        if !ids.insert(node.id.as_str()) {
            return Err(refused(&format!("node {}", node.id), "has the same id as another"));
        }
        if let Some(group) = &node.group
            && (node.kind == "group" || !groups.contains(group.as_str()))
        {
            return Err(refused(
                &format!("node {}", node.id),
                &format!("lies in {group}, which is no group that it can lie in"),
            ));
        }
    }
    Ok(())
}

fn check_place(node: &RawNode) -> Result<(), ApiError> {
    length("a node's id", &node.id, 1, MAX_NAME)?;
    let place = format!("node {}", node.id);
    for value in [node.x, node.y] {
        if !value.is_finite() || value.abs() > MAX_PLACE {
            return Err(refused(&place, &format!("stands at {value}, which is off the canvas")));
        }
    }
    for value in [node.width, node.height].into_iter().flatten() {
        if !(0.0..=MAX_EXTENT).contains(&value) {
            return Err(refused(&place, &format!("has a size of {value}")));
        }
    }
    Ok(())
}

fn node(raw: RawNode) -> Result<Node, ApiError> {
    let place = format!("node {}", raw.id);
    let content = match raw.kind.as_str() {
        "agent" => Content::Agent(agent(&place, raw.data)?),
        "tool" => Content::Tool(named(&place, data::<ToolData>(&place, raw.data)?.tool)?),
        "collection" => Content::Collection(named(&place, data::<CollectionData>(&place, raw.data)?.collection)?),
        "note" => {
            length(&format!("{place}: text"), &data::<NoteData>(&place, raw.data)?.text, 0, MAX_TEXT)?;
            Content::Note
        }
        "group" => {
            length(&format!("{place}: title"), &data::<GroupData>(&place, raw.data)?.title, 0, MAX_NAME)?;
            Content::Group
        }
        other => return Err(refused(&place, &format!("is of the kind {other:?}, which is none"))),
    };
    Ok(Node { id: raw.id, x: raw.x, y: raw.y, content })
}

fn agent(place: &str, value: Value) -> Result<AgentData, ApiError> {
    let read: AgentData = data(place, value)?;
    length(&format!("{place}: task"), &read.task, 0, MAX_TEXT)?;
    for (field, value) in [("agent", &read.agent), ("model", &read.model), ("session", &read.session)] {
        if let Some(value) = value {
            length(&format!("{place}: {field}"), value, 1, MAX_NAME)?;
        }
    }
    if let Some(name) = &read.name {
        let place = format!("{place}: name");
        length(&place, name, 1, MAX_AGENT_NAME)?;
        if name.trim().is_empty() {
            return Err(refused(&place, &format!("is {name:?}, which has no letter")));
        }
    }
    if let Some(iters) = read.max_iters
        && !(1..=MAX_ITERS).contains(&iters)
    {
        return Err(refused(
            &format!("{place}: maxIters"),
            &format!("is {iters}, which is not between 1 and {MAX_ITERS}"),
        ));
    }
    Ok(read)
}

/// What a kind of node carries. Lists are no objects: serde would take them for structs.
fn data<T: DeserializeOwned>(place: &str, value: Value) -> Result<T, ApiError> {
    if !value.is_object() {
        return Err(refused(&format!("{place}: data"), "is no object"));
    }
    T::deserialize(value).map_err(|error| refused(&format!("{place}: data"), &error.to_string()))
}

fn named(place: &str, name: String) -> Result<String, ApiError> {
    length(place, &name, 1, MAX_NAME)?;
    Ok(name)
}

fn length(place: &str, text: &str, least: usize, most: usize) -> Result<(), ApiError> {
    let units = text.encode_utf16().count();
    if (least..=most).contains(&units) {
        return Ok(());
    }
    Err(refused(place, &format!("has {units} characters, not {least} to {most}")))
}

fn is_namespace(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| plain(byte) || byte == b'-')
        && text.bytes().next().is_some_and(plain)
}

/// Refuses every connection that could not be drawn.
fn check_edges(canvas: &Canvas) -> Result<(), ApiError> {
    let nodes: BTreeMap<&str, &Content> = canvas.nodes.iter().map(|node| (node.id.as_str(), &node.content)).collect();
    let mut seen = BTreeSet::new();
    for (from, to) in &canvas.edges {
        if let Some(reason) = not_connected(&nodes, from, to, !seen.insert((from, to))) {
            return Err(refused(&format!("connection {from} to {to}"), reason));
        }
    }
    match waiting_for_itself(canvas) {
        None => Ok(()),
        Some(node) => {
            Err(refused(&format!("node {node}"), "is in a circle or behind one: an agent can't wait for itself"))
        }
    }
}

fn not_connected(nodes: &BTreeMap<&str, &Content>, from: &str, to: &str, again: bool) -> Option<&'static str> {
    let (Some(source), Some(target)) = (nodes.get(from), nodes.get(to)) else {
        return Some("one of the nodes is gone");
    };
    if from == to {
        return Some("a node can't be connected to itself");
    }
    if !matches!(target, Content::Agent(_)) {
        return Some("only an agent takes an input");
    }
    match source {
        Content::Note | Content::Group => Some("it gives nothing to an agent"),
        Content::Agent(_) | Content::Tool(_) | Content::Collection(_) => again.then_some("they are connected twice"),
    }
}

/// A node of a circle, or one behind it: what is left when nodes that wait for nothing are taken away one after another (A. B. Kahn,
/// Topological sorting of large networks, 1962).
fn waiting_for_itself(canvas: &Canvas) -> Option<&str> {
    let mut waits: BTreeMap<&str, usize> = canvas.nodes.iter().map(|node| (node.id.as_str(), 0)).collect();
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in &canvas.edges {
        *waits.entry(to).or_default() += 1;
        next.entry(from).or_default().push(to);
    }
    let mut free: Vec<&str> = waits.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    while let Some(id) = free.pop() {
        waits.remove(id);
        for &after in next.get(id).into_iter().flatten() {
            if let Some(count) = waits.get_mut(after) {
                *count -= 1;
                if *count == 0 {
                    free.push(after);
                }
            }
        }
    }
    waits.into_keys().next()
}

#[cfg(test)]
#[path = "canvas_document_tests.rs"]
mod tests;
