//! Summaries above the chunks of a document, layer upon layer, so that a question about the whole finds what no single chunk says.
//!
//! After Sarthi et al., "RAPTOR: Recursive Abstractive Processing for Tree-Organized Retrieval" (ICLR 2024, arXiv 2401.18059), with
//! another clustering ([`cluster`]). All of it is pure: whoever builds a tree embeds, asks the model and keeps what came of it.
//!
//! - `TREE-1` a chunk of layer 0 is never changed, and ordinals count on through the summaries;
//! - `TREE-2` every layer has fewer nodes than the one below it, and there are at most [`MAX_LAYERS`] of them;
//! - `TREE-3` a summary names exactly the chunks of layer 0 that it was made of, unless these lie in more than [`MAX_RUNS`] places.

use riverrun_schemas::ingest::{Chunk, LeafRun};
use riverrun_schemas::{ChunkId, DocumentId};
use serde::{Deserialize, Serialize};

use crate::chunking::embedding_text;

pub mod cluster;
mod prompt;

pub use prompt::{clean, summary_request};

/// Fewer chunks get no summaries: the model that answers reads them all.
pub const MIN_LEAVES: usize = 4;
/// More chunks get none either: their summaries would take the model days.
pub const MAX_LEAVES: usize = 20_000;
/// Layers of summaries.
pub const MAX_LAYERS: i32 = 5;
/// Places that a summary names; beyond it those with the fewest chunks between them become one.
pub const MAX_RUNS: usize = 500;

/// The chunks and summaries so far, and the layer that is being made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// The chunks of layer 0 in reading order, then the summaries.
    chunks: Vec<Chunk>,
    /// Which of them are the nodes of the newest whole layer.
    nodes: Vec<usize>,
    /// Which of those are to be summarised together; empty until they were grouped.
    groups: Vec<Vec<usize>>,
    /// Nodes that are nobody's neighbours and go up as they are.
    alone: Vec<usize>,
    /// Layers of summaries that are whole.
    layers: i32,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// So many nodes are to be embedded, and then grouped.
    Embed(usize),
    /// So many groups are to be summarised, and then raised.
    Summarize(usize),
}

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grown {
    /// Yes.
    More,
    /// Nothing is above this.
    Whole,
}

impl Tree {
    /// Whether a document of so many chunks gets summaries.
    pub fn is_for(leaves: usize) -> bool {
        (MIN_LEAVES..=MAX_LEAVES).contains(&leaves)
    }

    /// Chunks without summaries.
    pub fn of(leaves: Vec<Chunk>) -> Self {
        let nodes = (0..leaves.len()).collect();
        Self { chunks: leaves, nodes, groups: Vec::new(), alone: Vec::new(), layers: 0 }
    }

    /// What is to be done next, until something of it says [`Grown::Whole`].
    pub fn work(&self) -> Work {
        if self.groups.is_empty() { Work::Embed(self.nodes.len()) } else { Work::Summarize(self.groups.len()) }
    }

    /// What is embedded for these nodes of the newest layer.
    pub fn texts(&self, from: usize, most: usize) -> Vec<String> {
        let nodes = self.nodes.iter().skip(from).take(most);
        nodes.filter_map(|node| self.chunks.get(*node)).map(embedding_text).collect()
    }

    /// What one group says, in reading order; nothing when there is no such group.
    pub fn group(&self, group: usize) -> Vec<&str> {
        let members = self.groups.get(group).into_iter().flatten();
        members.filter_map(|node| self.chunks.get(*node)).map(|chunk| chunk.text.as_str()).collect()
    }

    /// Groups the nodes by their vectors ([`cluster::reduced`]), one for each. Whole when none is near another.
    pub fn group_by(&mut self, vectors: &[Vec<f32>]) -> Grown {
        let sizes: Vec<usize> =
            self.nodes.iter().filter_map(|node| self.chunks.get(*node)).map(|chunk| tokens(&chunk.text)).collect();
        let found = cluster::clusters(vectors, &sizes);
        let as_nodes = |members: Vec<usize>| -> Vec<usize> {
            members.into_iter().filter_map(|at| self.nodes.get(at).copied()).collect()
        };
        let (groups, alone): (Vec<Vec<usize>>, Vec<Vec<usize>>) =
            found.into_iter().map(as_nodes).partition(|members: &Vec<usize>| members.len() > 1);
        self.groups = groups;
        self.alone = alone.into_iter().flatten().collect();
        if self.groups.is_empty() { Grown::Whole } else { Grown::More }
    }

    /// Puts the summaries of the groups, one for each, above them as the next layer.
    pub fn raise(&mut self, summaries: Vec<String>, document: &DocumentId, version: &str) -> Grown {
        let layer = self.layers + 1;
        let groups = std::mem::take(&mut self.groups);
        let mut nodes = std::mem::take(&mut self.alone);
        for (members, text) in groups.into_iter().zip(summaries) {
            let leaves = runs(members.iter().filter_map(|node| self.chunks.get(*node)));
            let (Some(first), Some(last)) = (leaves.first(), leaves.last()) else { continue };
            let ordinal = i32::try_from(self.chunks.len()).unwrap_or(i32::MAX);
            let summary = Chunk {
                chunk_id: ChunkId::derive(&[&document.to_string(), version, "summary", &ordinal.to_string()]),
                ordinal,
                start: first.start,
                end: last.end,
                text,
                page: None,
                heading: None,
                layer,
                leaves,
            };
            nodes.push(self.chunks.len());
            self.chunks.push(summary);
        }
        nodes.sort_by_key(|node| self.chunks.get(*node).map_or(0, |chunk| chunk.start));
        self.nodes = nodes;
        self.layers = layer;
        if self.nodes.len() > 1 && layer < MAX_LAYERS { Grown::More } else { Grown::Whole }
    }

    /// Layers of summaries.
    pub fn layers(&self) -> i32 {
        self.layers
    }

    /// Chunks and summaries, by ordinal.
    pub fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }
}

/// A text's tokens, rather too many: no tokenizer in use has more than one for three bytes of prose.
fn tokens(text: &str) -> usize {
    text.len() / 3 + 1
}

/// The chunks of layer 0 below these, neighbours together.
fn runs<'c>(chunks: impl Iterator<Item = &'c Chunk>) -> Vec<LeafRun> {
    let mut all: Vec<LeafRun> = Vec::new();
    for chunk in chunks {
        if chunk.layer == 0 {
            all.push(LeafRun { first: chunk.ordinal, last: chunk.ordinal, start: chunk.start, end: chunk.end });
        } else {
            all.extend_from_slice(&chunk.leaves);
        }
    }
    all.sort_by_key(|run| run.first);
    let mut allowed_gap = 0;
    let mut joined = join(&all, allowed_gap);
    while joined.len() > MAX_RUNS {
        allowed_gap = allowed_gap * 2 + 1;
        joined = join(&joined, allowed_gap);
    }
    joined
}

/// Runs with at most so many chunks between them become one.
fn join(sorted: &[LeafRun], gap: i32) -> Vec<LeafRun> {
    let mut joined: Vec<LeafRun> = Vec::with_capacity(sorted.len());
    for run in sorted {
        match joined.last_mut().filter(|last| run.first <= last.last.saturating_add(1).saturating_add(gap)) {
            Some(last) => {
                last.last = last.last.max(run.last);
                last.end = last.end.max(run.end);
            }
            None => joined.push(*run),
        }
    }
    joined
}

#[cfg(test)]
mod tests;
