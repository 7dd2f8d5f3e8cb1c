use riverrun_schemas::{ChunkId, Collection, DocumentId, Failure};
use riverrun_stores::{ChunkFilter, StoredChunk};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A question to a collection.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchRequest {
    /// Where to look.
    pub collection: Collection,
    /// What to look for.
    pub query: String,
    /// How many chunks to answer with, 1 to [`SearchRequest::MAX_K`].
    pub k: usize,
    /// Whether each document is found once, by its best chunk: `k` then counts documents.
    pub per_document: bool,
    /// Which chunks may be found.
    pub filter: ChunkFilter,
    /// Whether to re-rank: `None` does where a re-ranker is at hand, `Some(true)` has it fetched, and fails where that does.
    pub rerank: Option<bool>,
    /// The model that the caller expects the collection to have; `None` takes the collection's own.
    pub embed_model: Option<String>,
    /// Which of the two searches are done.
    pub mode: SearchMode,
    /// How what they found becomes one order.
    pub fusion: Fusion,
    /// Other wordings of the query, at most [`SearchRequest::MAX_WORDINGS`]: what each finds is fused.
    pub wordings: Vec<String>,
    /// Whether a chat model is asked for other wordings, too. When it fails, the search goes on without and says so.
    pub rewrite: bool,
    /// Whether the vector of the query is moved by the collection's adapter, where the collection was tuned.
    pub tuned: bool,
}

/// Which searches are done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SearchMode {
    /// Both, fused.
    #[default]
    Hybrid,
    /// By meaning only.
    Dense,
    /// By words only: no model is asked.
    Sparse,
}

/// How the lists of both searches become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fusion {
    /// By ranks alone: [reciprocal rank fusion](super::fusion).
    #[default]
    Rrf,
    /// By scores, each a share of its list's best: [a convex combination](super::score_fusion).
    Scores,
}

impl SearchRequest {
    /// Largest `k`.
    pub const MAX_K: usize = 100;
    /// Most other wordings.
    pub const MAX_WORDINGS: usize = 8;
    /// Longest query in bytes.
    pub const MAX_QUERY_BYTES: usize = 16 << 10;
    /// `k` when nothing is set (`RIVERRUN_RAG_TOP_K`).
    pub const DEFAULT_K: usize = 5;

    /// A search with the defaults.
    pub fn new(collection: Collection, query: impl Into<String>) -> Self {
        Self {
            collection,
            query: query.into(),
            k: Self::DEFAULT_K,
            per_document: false,
            filter: ChunkFilter::default(),
            rerank: None,
            embed_model: None,
            mode: SearchMode::Hybrid,
            fusion: Fusion::Rrf,
            wordings: Vec::new(),
            rewrite: false,
            tuned: true,
        }
    }
}

/// How the note begins that says why chunks are not in the order of a re-ranker.
pub const RERANKING_LEFT_OUT: &str = "re-ranking was left out";

/// What a search found, best first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchResult {
    /// At most `k` chunks.
    pub items: Vec<SearchItem>,
    /// How long each stage took.
    pub took_ms: SearchTimes,
    /// The model that the query was embedded with: the collection's own.
    pub embed_model: String,
    /// Whether the vectors of the query were moved by the collection's adapter.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tuned: bool,
    /// What was left out although it was wanted, such as a re-ranking that failed; empty when all went well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Why chunks of the collection may be lacking; it is among the notes, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Failure>,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchItem {
    /// The chunk.
    pub chunk_id: ChunkId,
    /// Its document.
    pub document_id: DocumentId,
    /// Where the document came from.
    pub source: String,
    /// The chunk's text.
    pub text: String,
    /// What the order follows: the re-ranker's score where it was asked, else the fused one.
    pub score: f64,
    /// The score of every stage.
    pub scores: Scores,
    /// The bytes of `text` in the document's stored text.
    pub span: Span,
    /// The chunk's own bytes, where `text` shows what stands around it, too.
    #[serde(skip)]
    pub chunk: Option<Span>,
    /// Page, from 1, where the format has pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<i32>,
    /// What else is known of the chunk: `version`, `ordinal`, `heading`; of a summary its `layer`, from 1, and its `leaves`: the chunks
    /// that it was made of, as runs of neighbours (`first`, `last`, `start`, `end`).
    pub metadata: Value,
}

/// The scores of a chunk; a stage that did not see it says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scores {
    /// Cosine similarity.
    pub dense: Option<f32>,
    /// BM25.
    pub sparse: Option<f32>,
    /// Both, as [`Fusion`] makes one of them.
    pub fused: f64,
    /// The cross-encoder's score.
    pub rerank: Option<f32>,
}

/// Bytes of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First byte.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
}

/// Milliseconds of each stage. Dense follows embed; sparse runs beside both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SearchTimes {
    /// Asking for other wordings; `None` when nobody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<f64>,
    /// Embedding the query.
    pub embed: f64,
    /// Vector search.
    pub dense: f64,
    /// Keyword search.
    pub sparse: f64,
    /// Fusing both.
    pub fuse: f64,
    /// Re-ranking; `None` when there was none.
    pub rerank: Option<f64>,
}

impl SearchItem {
    pub(super) fn new(chunk: StoredChunk, scores: Scores) -> Self {
        let mut metadata = json!({ "version": chunk.version, "ordinal": chunk.ordinal });
        if let Some(heading) = chunk.heading {
            metadata["heading"] = heading.into();
        }
        if chunk.layer > 0 {
            metadata["layer"] = chunk.layer.into();
            metadata["leaves"] = json!(chunk.leaves);
        }
        Self {
            chunk_id: chunk.chunk_id,
            document_id: chunk.document_id,
            source: chunk.source,
            text: chunk.text,
            score: scores.rerank.map_or(scores.fused, f64::from),
            scores,
            span: Span { start: chunk.start, end: chunk.end },
            chunk: None,
            page: chunk.page,
            metadata,
        }
    }

    /// Where the chunks lie that a summary was made of; of any other chunk nothing.
    pub fn leaves(&self) -> Vec<Span> {
        let leaves = self.metadata.get("leaves").and_then(Value::as_array);
        let span = |leaf: &Value| Some(Span { start: leaf.get("start")?.as_i64()?, end: leaf.get("end")?.as_i64()? });
        leaves.into_iter().flatten().filter_map(span).collect()
    }

    /// Whether the text is what stands in the span, and no summary of it.
    pub fn is_verbatim(&self) -> bool {
        i64::try_from(self.text.len()).is_ok_and(|length| length == self.span.end - self.span.start)
    }

    /// The same chunk, shown with what stands around it: these bytes of the stored text.
    pub(super) fn widened(&self, text: &str, span: Span) -> Self {
        Self { text: text.to_owned(), span, chunk: Some(self.chunk_span()), ..self.clone() }
    }

    /// The chunk's own bytes in the document's stored text.
    pub fn chunk_span(&self) -> Span {
        self.chunk.unwrap_or(self.span)
    }

    /// The page of a quote from the text: of what stands around the chunk it is not known.
    pub fn page_of(&self, quote: Span) -> Option<i32> {
        let own = self.chunk_span();
        self.page.filter(|_| self.chunk.is_none() || (own.start..own.end).contains(&quote.start))
    }

    /// The version of the document that the chunk is of.
    pub fn version(&self) -> Option<&str> {
        self.metadata.get("version").and_then(Value::as_str)
    }

    /// The headings above the chunk, joined by ` > `.
    pub fn heading(&self) -> Option<&str> {
        self.metadata.get("heading").and_then(Value::as_str)
    }
}
