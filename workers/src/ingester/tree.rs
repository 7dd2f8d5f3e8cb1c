//! Documents with summaries above their chunks: handed to the builder, and taken back from it.
//!
//! What comes back goes to the embedder from here and not from the builder, because only here a document's removal and its chunks are
//! in one order: a tree of a document that was removed or handed in again meanwhile is dropped.

use bytes::Bytes;
use riverrun_knowledge::tree::{MAX_LEAVES, Tree};
use riverrun_log::Outgoing;
use riverrun_schemas::BlobRef;
use riverrun_schemas::ingest::{
    BuildTree, Chunk, ChunkEvent, ChunksReady, DocumentFailed, IngestCommand, IngestEvent, SubmitDocument,
};

use super::batches::ready_batches;
use super::history::Standing;
use super::{Ingester, blocking, log_retry};
use crate::about::about;
use crate::runtime::{Delivery, WorkError, Worker};
use crate::tree_builder::{STAGE, replaced, unreadable};

/// Whether summaries are made of so many chunks; where there are too many of them, it is told.
pub(super) fn is_for(submit: &SubmitDocument, chunks: usize) -> bool {
    if chunks > MAX_LEAVES {
        tracing::warn!(
            source = submit.source,
            chunks,
            "more than {MAX_LEAVES} chunks get no summaries; a larger RIVERRUN_CHUNK_SIZE makes fewer"
        );
    }
    Tree::is_for(chunks)
}

impl Ingester {
    /// The first step of a tree of these chunks.
    pub(super) async fn begun(
        &self,
        submit: &SubmitDocument,
        version: String,
        chunks: Vec<Chunk>,
    ) -> Result<BuildTree, WorkError> {
        let tree = Bytes::from(serde_json::to_vec(&Tree::of(chunks)).map_err(|error| unreadable(&error))?);
        let stored: BlobRef = self.blobs.put_bytes(tree, "application/json").await?;
        Ok(about!(
            submit,
            BuildTree {
                version,
                embed_model: submit.embed_model.clone(),
                metadata_json: submit.metadata_json.clone(),
                tree: Some(stored),
                last: None,
                next: 0,
                step: 0,
                done: false,
            }
        ))
    }

    /// Hands the chunks of a whole tree on, unless something else became of its document. Other steps are the builder's.
    pub(super) async fn publish(
        &self,
        command: &BuildTree,
        delivery: &Delivery<IngestCommand>,
    ) -> Result<Vec<Outgoing>, WorkError> {
        let cause = &delivery.envelope;
        if !command.done {
            return Ok(Vec::new());
        }
        let standing = self.history.standing(delivery.position.partition, command.ingest_id, command.document_id).await;
        if standing.map_err(|error| log_retry(&error))? != Standing::Current {
            let event = about!(command, DocumentFailed { stage: STAGE.to_owned(), error: replaced(&command.source) });
            return Ok(vec![self.outgoing(IngestEvent::from(event), cause)?]);
        }
        let Some(stored) = &command.tree else {
            return Err(WorkError::poison("tree_missing", format!("the last step of {} has no tree", command.source)));
        };
        let bytes = self.blobs.get(stored).await?;
        let tree = blocking(move || serde_json::from_slice::<Tree>(&bytes)).await?;
        let chunks = tree.map_err(|error| unreadable(&error))?.into_chunks();
        let version = &command.version;
        let context: Option<BlobRef> = None;
        let mut out = Vec::new();
        for ready in ready_batches!(command, version, chunks, context) {
            out.push(self.outgoing(ChunkEvent::from(ready), cause)?);
        }
        Ok(out)
    }
}
