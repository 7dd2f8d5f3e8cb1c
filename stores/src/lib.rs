//! Where things are found again: read models, vectors, keywords, tables. Everything in here is a projection of the log: each part
//! can be deleted and rebuilt from it, and no decision is ever taken from it.

pub mod agreement;
pub mod cache;
pub mod documents;
pub mod episodes;
pub mod error;
pub mod gaps;
pub mod keywords;
pub mod read_models;
pub mod sql;
pub mod vectors;
pub mod warehouse;

mod chunk;
mod folder;
mod open_set;
mod qdrant_server;
mod shelf;

pub use agreement::{ChunkKey, Compared, Comparison, KeyPage};
pub use cache::{Cache, CacheStatus, LocalCache, RedisCache, RedisConfig};
pub use chunk::{ChunkFilter, MAX_HITS, MAX_TAG_BYTES, MAX_TAGS, StoredChunk, Versions, metadata_tag, metadata_tags};
pub use documents::{DocumentStore, MongoDocuments, SqlDocuments};
pub use episodes::{EpisodeHit, EpisodePoint, Episodes};
pub use error::StoreError;
pub use gaps::{Damage, Gap, GapState, Gaps};
pub use keywords::{KeywordHit, KeywordIndex};
pub use read_models::run_fold::{RunGate, Verdict, Void};
pub use sql::{Sql, SqlKind};
pub use vectors::{CollectionInfo, VectorHit, VectorPoint, VectorStore};
pub use warehouse::{Warehouse, WarehouseError, WarehouseLoader};

#[cfg(test)]
#[path = "../../fuzz/harness.rs"]
mod fuzz;
