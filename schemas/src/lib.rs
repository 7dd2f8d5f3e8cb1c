//! The language of the log: what is said on each topic, how it is framed, and how everything is named.
//!
//! The `.avsc` files under `schemas/avro` are the source; the Rust types here stand beside them and a test holds the
//! two together. Nothing here does I/O.

pub mod agent;
pub mod canvases;
pub mod codec;
pub mod documents;
pub mod envelope;
pub mod finetune;
pub mod framing;
pub mod ids;
pub mod ingest;
pub mod memory;
pub mod names;
pub mod projects;
pub mod registry;
pub mod session;
pub mod tokens;
pub mod tools;
pub mod topics;
pub mod trace;
pub mod words;

mod common;

pub use codec::{DecodeError, Decoded, EventSet};
pub use common::{BlobRef, Failure, Usage, now_ms};
pub use envelope::Envelope;
pub use ids::{
    AnalysisId, ChainId, ChangeId, ChunkId, DocumentId, EpisodeId, EventId, FinetuneId, ForgetId, IdError, IngestId,
    NoteId, ProjectId, ProposalId, RunId, SummaryId, TurnId,
};
pub use names::{CanvasId, Collection, CollectionName, NameError, Namespace, not_there};
pub use session::{Session, SessionName};
pub use topics::{Topic, TopicSpec};
pub use trace::{SpanId, TraceId, Traceparent};
pub use words::{agreed, counted};

#[cfg(test)]
#[path = "../../fuzz/harness.rs"]
mod fuzz;
#[cfg(test)]
mod fuzz_tests;
