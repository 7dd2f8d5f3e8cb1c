//! What is said about searches that are tuned to judgements.

use serde::{Deserialize, Serialize};

use crate::common::{BlobRef, Failure};
use crate::ids::IngestId;
use crate::names::{CollectionName, Namespace};

/// Asks for the searches of a collection to be tuned to judgements, or to be as they were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneCollection {
    /// The request: drawn by the caller, or derived from its idempotency key.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// Questions with the grades of documents; `None` when searches are to be as they were.
    pub judgements: Option<BlobRef>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The searches of a collection are being tuned to judgements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionTuning {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// Judged questions that have a relevant document in the collection.
    pub queries: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The collection is searched with this adapter from here on, or with none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionTuned {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The model whose vectors of questions the adapter takes.
    pub embed_model: String,
    /// The square matrix `A`, row by row in little-endian 32-bit floats: `q + qA` is searched for. `None` when searches are as without:
    /// that was asked for, or it does not help.
    pub adapter: Option<BlobRef>,
    /// Judged questions that were learned from.
    pub queries: i64,
    /// What it does, by cross-validation.
    pub gains: Vec<SearchGain>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// What tuning does to one way of searching: means over judged questions, each searched with an adapter that was not fitted to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchGain {
    /// `dense`, `hybrid` or `scores`.
    pub search: String,
    /// nDCG@10 without an adapter, 0 to 1.
    pub ndcg_before: f64,
    /// nDCG@10 with one.
    pub ndcg_after: f64,
    /// Recall@100 without an adapter, 0 to 1.
    pub recall_before: f64,
    /// Recall@100 with one.
    pub recall_after: f64,
}

/// The searches of the collection could not be tuned and are as they were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionTuneFailed {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// Why.
    pub error: Failure,
    /// Milliseconds since the epoch.
    pub at: i64,
}
