//! Search in the collections of the run's namespace.

use std::cmp::Ordering;
use std::sync::Arc;

use async_trait::async_trait;
use riverrun_knowledge::retrieval::{Retriever, SearchItem, SearchRequest, Span};
use riverrun_schemas::agent::ToolEffect;
use riverrun_schemas::{ChunkId, Collection, CollectionName, DocumentId, Namespace};
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
    ) -> Result<Vec<Hit>, SearchFailure>;

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
    ) -> Result<Vec<Hit>, SearchFailure> {
        let failed = |error: &dyn std::fmt::Display| SearchFailure(error.to_string());
        let names: Vec<CollectionName> = match collections {
            Some(names) => names.to_vec(),
            None => self.collections(namespace).await.map_err(|error| failed(&error))?,
        };
        let mut found: Vec<(Collection, SearchItem)> = Vec::new();
        for name in names {
            let collection = Collection::new(namespace.clone(), name);
            let request = SearchRequest { k, ..SearchRequest::new(collection.clone(), query) };
            let result = Retriever::search(self, &request).await.map_err(|error| failed(&error))?;
            found.extend(result.items.into_iter().map(|item| (collection.clone(), item)));
        }
        found.sort_by(|(_, a), (_, b)| better(a, b));
        found.truncate(k);
        Ok(self.passages(found).await.into_iter().map(hit).collect())
    }
}

/// Scores of one kind compare across collections: both are ranks fused, or both are the cross-encoder's. The best chunks of
/// two collections often have equal ranks: then the nearer one by meaning comes first, then by words, ids last.
fn better(a: &SearchItem, b: &SearchItem) -> Ordering {
    let by = |score: fn(&SearchItem) -> Option<f32>| {
        let of = |item: &SearchItem| score(item).unwrap_or(f32::NEG_INFINITY);
        of(b).total_cmp(&of(a))
    };
    b.score
        .total_cmp(&a.score)
        .then_with(|| by(|item| item.scores.dense))
        .then_with(|| by(|item| item.scores.sparse))
        .then_with(|| a.chunk_id.cmp(&b.chunk_id))
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
        let lacking = self.search.lacking(&context.namespace, collections);
        let hits = self
            .search
            .search(&context.namespace, collections, &query, k)
            .await
            .map_err(|failure| ToolError::Failed(failure.to_string()))?;
        let mut found = json!({ "query": query, "passages": hits });
        if !lacking.is_empty() {
            found["notes"] = json!(lacking);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use riverrun_knowledge::retrieval::Scores;

    use super::*;

    fn item(id: &str, score: f64, dense: Option<f32>, sparse: Option<f32>) -> SearchItem {
        SearchItem {
            chunk_id: ChunkId::derive(&[id]),
            document_id: DocumentId::derive(&[id]),
            source: id.to_owned(),
            text: String::new(),
            score,
            scores: Scores { dense, sparse, fused: score, rerank: None },
            span: Span { start: 0, end: 0 },
            chunk: None,
            page: None,
            metadata: json!({}),
        }
    }

    #[test]
    fn given_equal_ranks_in_two_collections_when_they_become_one_list_then_the_nearer_one_comes_first() {
        let best = [
            item("score", 0.9, None, None),
            item("meaning", 0.5, Some(0.8), None),
            item("words", 0.5, Some(0.2), Some(9.0)),
            item("fewer words", 0.5, Some(0.2), Some(3.0)),
            item("no meaning", 0.5, None, Some(99.0)),
        ];
        let mut items = best.to_vec();
        items.reverse();
        items.sort_by(better);
        assert_eq!(items, best);
        let (a, b) = (item("a", 0.5, None, None), item("b", 0.5, None, None));
        assert_eq!(better(&a, &b), a.chunk_id.cmp(&b.chunk_id));
    }
}
