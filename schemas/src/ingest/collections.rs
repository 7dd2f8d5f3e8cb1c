//! What is said about whole collections: removals, new models, and indexes that are made again.

use serde::{Deserialize, Serialize};

use crate::common::Failure;
use crate::ids::{DocumentId, IngestId};
use crate::names::{CollectionName, Namespace};

/// The documents of a collection are being removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionWithdrawn {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// How many: each of them gets a [`DocumentDeleted`](super::DocumentDeleted).
    pub documents: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The chunks of a collection are being embedded anew, beside those that are searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionReembedding {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The model that it has.
    pub from_model: String,
    /// The model that it is to have.
    pub embed_model: String,
    /// Documents that it has now.
    pub documents: i64,
    /// Chunks that it has now.
    pub chunks: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The collection is searched with the new model from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionReembedded {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The model that it has.
    pub embed_model: String,
    /// Length of each vector.
    pub dimensions: i32,
    /// Documents in it.
    pub documents: i64,
    /// Chunks in it.
    pub chunks: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The collection could not be embedded anew and is as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionReembedFailed {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The model that it was to have.
    pub embed_model: String,
    /// Why.
    pub error: Failure,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Keywords and vectors of the collection are being made again; until it is done searches may lack some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionRebuilding {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// What was found, such as a missing index.
    pub reason: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Keywords and vectors of the collection are what the log says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionRebuilt {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The collection's embedding model; empty when it holds nothing.
    pub embed_model: String,
    /// Documents that it holds.
    pub documents: i64,
    /// Chunks that it holds.
    pub chunks: i64,
    /// Chunks whose vectors were written again.
    pub vectors: i64,
    /// Chunks whose keywords were written again.
    pub keywords: i64,
    /// Those of them that were embedded anew, because the log has no vector of the collection's model.
    pub embedded: i64,
    /// Documents that nothing on the log stands for any more and that were removed.
    pub removed: i64,
    /// Documents whose chunks are not on the log any more.
    pub missing: i64,
    /// The first hundred of them.
    pub missing_documents: Vec<DocumentId>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The collection could not be made again; what was written of it stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionRebuildFailed {
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
