//! Search in the collections of the run's namespace.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_knowledge::retrieval::{Retriever, SearchItem, Span};
use riverrun_schemas::agent::ToolEffect;
use riverrun_schemas::{ChunkId, CollectionName, DocumentId, Namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Permission, Tool, ToolContext, ToolError, ToolManifest, parse, schema_of};

/// The tool's name; its results are the sources that an answer may cite.
pub const KNOWLEDGE_SEARCH: &str = "knowledge_search";

/// Most passages that one search gives.
const MAX_HITS: usize = 8;
const DEFAULT_HITS: usize = 4;

/// A passage found. Part of the event that records the tool's result: change it as a schema is changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// The chunk.
    pub chunk_id: ChunkId,
    /// The document.
    pub document_id: DocumentId,
    /// Where the document came from.
    pub source: String,
    /// First byte of `text` in the stored text.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
    /// The chunk's own bytes, where `text` shows what stands around it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Span>,
    /// Page of the chunk, where the format has pages.
    #[serde(default)]
    pub page: Option<i32>,
    /// The words.
    pub text: String,
    /// The fused or re-ranked score; higher is better.
    pub score: f64,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Passages {
    /// Best first.
    pub hits: Vec<Hit>,
    /// Which collections could not be searched, and why.
    pub notes: Vec<String>,
}

/// The knowledge base could not be searched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SearchFailure(pub String);

/// What the tool needs of the knowledge base.
#[async_trait]
pub trait Search: Send + Sync {
    /// The best `k` passages over the given collections of a namespace; `None` is every collection of it.
    async fn search(
        &self,
        namespace: &Namespace,
        collections: Option<&[CollectionName]>,
        query: &str,
        k: usize,
    ) -> Result<Passages, SearchFailure>;

    /// What is to be said about collections that are not whole: that nothing was found there proves nothing.
    fn lacking(&self, _namespace: &Namespace, _collections: Option<&[CollectionName]>) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait]
impl Search for Retriever {
    fn lacking(&self, namespace: &Namespace, collections: Option<&[CollectionName]>) -> Vec<String> {
        Retriever::lacking(self, namespace, collections)
    }

    async fn search(
        &self,
        namespace: &Namespace,
        collections: Option<&[CollectionName]>,
        query: &str,
        k: usize,
    ) -> Result<Passages, SearchFailure> {
        let several = self.search_several(namespace, collections, query, k).await;
        let several = several.map_err(|error| SearchFailure(error.to_string()))?;
        let hits = self.passages(several.found).await.into_iter().map(hit).collect();
        Ok(Passages { hits, notes: several.notes })
    }
}

fn hit(item: SearchItem) -> Hit {
    Hit {
        chunk_id: item.chunk_id,
        document_id: item.document_id,
        source: item.source,
        start: item.span.start,
        end: item.span.end,
        chunk: item.chunk,
        page: item.page,
        text: item.text,
        score: item.score,
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What to look for, in a few words
    #[schemars(length(max = 200))]
    query: String,
    /// How many passages to return, at most 8
    #[serde(default)]
    #[schemars(range(min = 1, max = 8))]
    k: Option<usize>,
}

pub(super) struct KnowledgeSearch {
    search: Arc<dyn Search>,
}

impl KnowledgeSearch {
    pub(super) fn new(search: Arc<dyn Search>) -> Self {
        Self { search }
    }
}

#[async_trait]
impl Tool for KnowledgeSearch {
    fn manifest(&self) -> ToolManifest {
        ToolManifest::builtin(
            KNOWLEDGE_SEARCH,
            "Finds passages in the user's documents. Use it for every question about facts that the documents may hold.",
            schema_of::<Arguments>(),
            ToolEffect::None,
        )
        .needing(&[Permission::Knowledge])
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { query, k } = parse(arguments)?;
        if query.trim().is_empty() {
            return Err(ToolError::Arguments("query is empty".into()));
        }
        let k = k.unwrap_or(DEFAULT_HITS).clamp(1, MAX_HITS);
        let collections = context.collections.as_deref();
        let mut notes = self.search.lacking(&context.namespace, collections);
        let passages = self
            .search
            .search(&context.namespace, collections, &query, k)
            .await
            .map_err(|failure| ToolError::Failed(failure.to_string()))?;
        notes.extend(passages.notes);
        let mut found = json!({ "query": query, "passages": passages.hits });
        if !notes.is_empty() {
            found["notes"] = json!(notes);
        }
        Ok(found)
    }
}
