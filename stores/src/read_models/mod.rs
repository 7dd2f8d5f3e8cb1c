//! Tables that answer questions about what is on the log. One file a read model: its projection and its queries; the
//! tables are in `migrations/`.
//!
//! `READ-1` rows and checkpoint change in one transaction. `READ-2` a record before the checkpoint is skipped. `READ-3` the
//! same records give the same rows, in whatever order the partitions are read relative to each other.

pub mod checkpoint;
pub mod collection_state;
pub mod deletions;
pub mod document_queries;
pub mod document_views;
pub mod documents;
pub mod finetune;
pub mod finetune_views;
pub mod keyed;
pub mod memory_queries;
pub mod memory_views;
pub mod model_cards;
pub mod page;
pub mod projects;
pub mod rebuilds;
pub mod reembeddings;
pub mod run_chains;
pub mod run_counts;
pub mod run_fold;
pub mod run_forks;
pub mod run_heads;
pub mod run_tree;
pub mod run_views;
pub mod runs;
pub mod time;
pub mod tunings;
pub mod usage;
pub mod within;

mod apply;
mod ending;
mod memory;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod rebuild_tests;
#[cfg(test)]
pub(crate) mod testing;

pub use apply::{Applied, LogRecord, Projected, apply, rebuild};
pub use checkpoint::{Checkpoint, PROJECTED_TOPICS, checkpoints, next_offset};
pub use deletions::DeletionView;
pub use document_views::{
    CollectionView, DocumentCounts, DocumentStatus, DocumentVersionView, DocumentView, EmbeddingView,
    IngestFailureView, IngestNoteView, IngestStatus, IngestView, LeftOutFilesView,
};
pub use finetune_views::{DatasetRunsView, DatasetView, GateView, JobView, ModelVersionView, StepLossView};
pub use memory_views::{ReceiptView, RemovedView, SessionSize, SummaryView, TurnView, WhyView};
pub use model_cards::ModelCardView;
pub use page::{Page, PageRequest};
pub use rebuilds::RebuildView;
pub use reembeddings::ReembeddingView;
pub use run_views::{
    BlobView, ChainLinkView, CitationView, DecisionView, FailureView, ForkView, PendingApprovalView, RunStatus,
    RunSummary, RunView, SpanView, StepView, ToolView, UsageView, citation_view, failure_view, result_view, step_view,
    usage_view,
};
pub use runs::RunFilter;
pub use time::Timestamp;
pub use tunings::{SearchGainView, TuningView};
pub use within::Within;
