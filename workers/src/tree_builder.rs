//! The tree builder: summaries above the chunks of documents that were ingested with the strategy `raptor`.
//!
//! - `TREE-4` each result is kept before the next one is begun: after a crash at most one summary, or one batch of vectors, is made anew;
//! - `TREE-5` nothing more is made of a document that was removed or handed in again meanwhile.
//!
//! The work is done in slices, one summary each: after each the command is handed in again and tells how far it is. What a slice made
//! is a blob that names the one before it, so that a step writes no more than its own result. A layer is read back when it is whole.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use riverrun_knowledge::tree::cluster::reduced;
use riverrun_knowledge::tree::{Grown, Tree, Work, clean, summary_request};
use riverrun_knowledge::{LanguageModels, charged_to, room};
use riverrun_log::{BlobStore, LogConfig, Outgoing, Schemas, TopicPartition};
use riverrun_models::{Account, Purpose};
use riverrun_schemas::ingest::{BuildTree, DocumentFailed, IngestCommand, IngestEvent};
use riverrun_schemas::{BlobRef, Failure, now_ms};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::about::about;
use crate::embedder::{vectors, work_error};
use crate::failures::failure_of;
use crate::ingester::history::{History, Standing};
use crate::runtime::{Context, Delivery, DeliveryMode, Lanes, WorkError, Worker};

const NAME: &str = "tree-builder";

/// The value of [`DocumentFailed::stage`].
pub(crate) const STAGE: &str = "summarize";

/// Documents that are worked on at a time: a local chat model answers one after the other anyway.
const PARALLEL: usize = 2;
/// Nodes that are embedded together, and how long a slice of them lasts.
const MAX_BATCH: usize = 64;
const SLICE: Duration = Duration::from_secs(10);

/// Builds trees.
pub struct TreeBuilder {
    blobs: Arc<dyn BlobStore>,
    models: Arc<dyn LanguageModels>,
    history: History,
}

/// What a slice made, and what the one before it made.
#[derive(Serialize, Deserialize)]
struct Link {
    previous: Option<BlobRef>,
    made: Made,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Made {
    /// Reduced vectors of nodes.
    Vectors(Vec<Vec<f32>>),
    /// The summary of a group.
    Summary(String),
}

impl TreeBuilder {
    /// A builder that asks `log` what became of documents.
    pub fn new(log: LogConfig, schemas: Schemas, blobs: Arc<dyn BlobStore>, models: Arc<dyn LanguageModels>) -> Self {
        Self { blobs, models, history: History::new(log, schemas) }
    }

    /// The step after this one.
    async fn step(&self, command: &BuildTree) -> Result<BuildTree, WorkError> {
        let Some(stored) = &command.tree else {
            let reason = format!("step {} of {} has no tree", command.step, command.source);
            return Err(WorkError::poison("tree_missing", reason));
        };
        let tree: Tree = self.read(stored).await?;
        let done = usize::try_from(command.next).unwrap_or(0);
        match tree.work() {
            Work::Embed(nodes) if done < nodes => {
                let vectors = self.embed(&tree, command, done..nodes).await?;
                let more = vectors.len();
                self.kept(command, Made::Vectors(vectors), more).await
            }
            Work::Summarize(groups) if done < groups => {
                let summary = self.summarize(&tree, command, done).await?;
                self.kept(command, Made::Summary(summary), 1).await
            }
            Work::Embed(_) => self.grouped(tree, command).await,
            Work::Summarize(_) => self.raised(tree, command).await,
        }
    }

    /// The models, charged to the document's namespace.
    fn models_for(&self, command: &BuildTree) -> Arc<dyn LanguageModels> {
        charged_to(&self.models, Account::of(&command.namespace, Purpose::Ingest))
    }

    /// Reduced vectors of these nodes, or of the first of them.
    async fn embed(&self, tree: &Tree, command: &BuildTree, nodes: Range<usize>) -> Result<Vec<Vec<f32>>, WorkError> {
        let until = Instant::now() + SLICE;
        let mut found: Vec<Vec<f32>> = Vec::new();
        while nodes.start + found.len() < nodes.end {
            let texts = tree.texts(nodes.start + found.len(), MAX_BATCH);
            let reply = vectors(self.models_for(command).as_ref(), &command.embed_model, texts).await;
            let reply = reply.map_err(|error| work_error(&error))?;
            found.extend(reply.vectors.iter().map(|vector| reduced(vector)));
            if reply.vectors.is_empty() || Instant::now() >= until {
                break;
            }
        }
        Ok(found)
    }

    async fn summarize(&self, tree: &Tree, command: &BuildTree, group: usize) -> Result<String, WorkError> {
        let request = summary_request(&tree.group(group));
        room::check(self.models.as_ref(), None, &request).await.map_err(|error| work_error(&error))?;
        let mut ignored = |_: &str| {};
        let reply = self.models_for(command).chat(None, request, &mut ignored, CancellationToken::new()).await;
        let reply = reply.map_err(|error| work_error(&error))?;
        clean(&reply.text).ok_or_else(|| {
            let reason = format!("model {} wrote no summary of chunks of {}", reply.model, command.source);
            WorkError::retry("empty_summary", reason)
        })
    }

    /// The layer goes on with so many results more.
    async fn kept(&self, command: &BuildTree, made: Made, more: usize) -> Result<BuildTree, WorkError> {
        let last = self.write(&Link { previous: command.last.clone(), made }).await?;
        let next = command.next.saturating_add(i32::try_from(more).unwrap_or(i32::MAX));
        Ok(BuildTree { last: Some(last), next, step: command.step + 1, at: now_ms(), ..command.clone() })
    }

    async fn grouped(&self, mut tree: Tree, command: &BuildTree) -> Result<BuildTree, WorkError> {
        let mut vectors = Vec::new();
        for made in self.made(command).await? {
            match made {
                Made::Vectors(more) => vectors.extend(more),
                Made::Summary(_) => return Err(unreadable(&"a summary stands where vectors should be")),
            }
        }
        let (tree, grown) = blocking(move || {
            let grown = tree.group_by(&vectors);
            (tree, grown)
        })
        .await?;
        self.grown(tree, grown, command).await
    }

    async fn raised(&self, mut tree: Tree, command: &BuildTree) -> Result<BuildTree, WorkError> {
        let mut summaries = Vec::new();
        for made in self.made(command).await? {
            match made {
                Made::Summary(summary) => summaries.push(summary),
                Made::Vectors(_) => return Err(unreadable(&"vectors stand where a summary should be")),
            }
        }
        let count = summaries.len();
        let grown = tree.raise(summaries, &command.document_id, &command.version);
        tracing::info!(source = command.source, layer = tree.layers(), summaries = count, "layer summarized");
        self.grown(tree, grown, command).await
    }

    /// A new stage of the tree, of which nothing is made yet.
    async fn grown(&self, tree: Tree, grown: Grown, command: &BuildTree) -> Result<BuildTree, WorkError> {
        let tree = Some(self.write(&tree).await?);
        let done = grown == Grown::Whole;
        Ok(BuildTree { tree, last: None, next: 0, step: command.step + 1, done, at: now_ms(), ..command.clone() })
    }

    /// What the slices of this stage made, in their order.
    async fn made(&self, command: &BuildTree) -> Result<Vec<Made>, WorkError> {
        let mut made = Vec::new();
        let mut at = command.last.clone();
        while let Some(stored) = at {
            let link: Link = self.read(&stored).await?;
            made.push(link.made);
            at = link.previous;
        }
        made.reverse();
        Ok(made)
    }

    async fn read<T: DeserializeOwned + Send + 'static>(&self, stored: &BlobRef) -> Result<T, WorkError> {
        let bytes = self.blobs.get(stored).await?;
        blocking(move || serde_json::from_slice(&bytes)).await?.map_err(|error| unreadable(&error))
    }

    async fn write<T: Serialize + Sync>(&self, value: &T) -> Result<BlobRef, WorkError> {
        let bytes = Bytes::from(serde_json::to_vec(value).map_err(|error| unreadable(&error))?);
        self.blobs.put_bytes(bytes, "application/json").await.map_err(WorkError::from)
    }
}

#[async_trait]
impl Worker for TreeBuilder {
    type Input = IngestCommand;

    fn name(&self) -> &'static str {
        NAME
    }

    /// The ingester does.
    fn answers_for_topic(&self) -> bool {
        false
    }

    fn lanes(&self) -> Lanes {
        Lanes::PerKey { parallel: PARALLEL, max_batch: 1 }
    }

    async fn handle(&self, batch: &[Delivery<IngestCommand>], _context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let mut out = Vec::new();
        for delivery in batch {
            let Some(command) = open_tree(&delivery.event) else { continue };
            let partition = delivery.position.partition;
            let standing = self.history.standing(partition, command.ingest_id, command.document_id).await;
            match standing.map_err(|error| WorkError::retry(error.code(), &error))? {
                Standing::Replaced => {
                    let failed = failed(command, replaced(&command.source));
                    out.push(self.outgoing(failed, &delivery.envelope)?);
                }
                // The chunks may be seen a moment later than what is to be made of them.
                Standing::Current | Standing::Unknown => {
                    let next = self.step(command).await?;
                    out.push(self.outgoing(IngestCommand::from(next), &delivery.envelope)?);
                }
            }
        }
        Ok(out)
    }

    /// A step and the one after it are on the log together: a tree is never built twice.
    fn delivery(&self) -> DeliveryMode {
        DeliveryMode::Transactional
    }

    async fn revoked(&self, partitions: &[TopicPartition]) {
        self.history.forget(partitions.iter().map(|partition| partition.partition));
    }

    fn dead(&self, delivery: &Delivery<IngestCommand>, code: &str, reason: &str) -> Vec<Outgoing> {
        let Some(command) = open_tree(&delivery.event) else { return Vec::new() };
        self.outgoing(failed(command, failure_of(code, reason)), &delivery.envelope).into_iter().collect()
    }
}

/// A tree that is not whole; whole ones and all other commands are others' work.
fn open_tree(command: &IngestCommand) -> Option<&BuildTree> {
    match command {
        IngestCommand::BuildTree(tree) => Some(tree).filter(|tree| !tree.done),
        IngestCommand::StartIngest(_)
        | IngestCommand::SubmitDocument(_)
        | IngestCommand::DeleteDocument(_)
        | IngestCommand::DeleteCollection(_)
        | IngestCommand::ReembedCollection(_)
        | IngestCommand::RebuildCollection(_)
        | IngestCommand::TuneCollection(_) => None,
    }
}

fn failed(command: &BuildTree, error: Failure) -> IngestEvent {
    about!(command, DocumentFailed { stage: STAGE.to_owned(), error }).into()
}

/// How a request ends whose document is another's by now.
pub(crate) fn replaced(source: &str) -> Failure {
    Failure::new("superseded", format!("{source} was removed or handed in again while it was summarised"))
        .with_hint("nothing is to be done, unless it should be in the collection: ingest it again then")
}

/// What was kept of a tree is not what a tree is.
pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> WorkError {
    WorkError::poison("tree_damaged", format!("the summaries so far can't be read or written: {error}"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, WorkError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| WorkError::retry("stopped", "the process is stopping"))
}
