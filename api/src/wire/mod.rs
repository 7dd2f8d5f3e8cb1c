//! The types that cross the wire, the same for HTTP, WebSocket and `--json` of the command line. Requests refuse fields
//! that they do not know; answers may grow fields. What the read models show is shown as they show it.

mod blobs;
mod canvases;
mod catalog;
mod chains;
mod common;
mod documents;
mod finetune;
mod health;
mod ingest;
mod memory;
pub mod openai;
mod project_surface;
mod project_tools;
mod projects;
mod rag;
mod run_bounds;
mod run_control;
mod runs;
mod session;
mod warehouse;

pub use crate::access::scope::Scope;
pub use riverrun_stores::documents::SourceVersion;
pub use riverrun_stores::read_models::document_views::DocumentStatus;
pub use riverrun_stores::read_models::run_chains::{ChainRunView, ChainView};
pub use riverrun_stores::read_models::run_tree::{EdgeKind, TreeEdge, TreeNode};
pub use riverrun_stores::read_models::run_views::{BlobView, RunStatus};
pub use riverrun_stores::read_models::usage::{UsageBy, UsageSum};
pub use riverrun_stores::read_models::{
    ChainLinkView, CitationView, CollectionView, DecisionView, DocumentView, EmbeddingView, FailureView, ForkView,
    IngestFailureView, IngestNoteView, LeftOutFilesView, ModelCardView, PendingApprovalView, RunSummary, RunView,
    SpanView, StepView, SummaryView, Timestamp, ToolView, TurnView, UsageView, WhyView,
};

pub use blobs::{BlobEntry, BlobList, BlobSum, BlobSweep, BlobSweepBody};
pub use canvases::{CanvasBody, CanvasEntry, CanvasRemoved, CanvasView};
pub use catalog::{
    AgentEntry, ChatBody, ChatDone, ChatMessage, EmbedBody, EmbedDone, ModelEntry, ProbeBody, ProviderEntry,
    ToolCallBody, ToolCallDone, ToolEntry, ToolLimitsEntry, TopicEntry,
};
pub use chains::{ChainAccepted, ChainBody, ChainRunAccepted, ChainRunBody};
pub use common::{FieldError, Items, Page, Problem};
pub use documents::DocumentText;
pub use finetune::{
    EstimateView, FinetuneBody, FinetuneCancelled, FinetuneDefaults, FinetuneJobAccepted, FinetuneMessage, LoraBody,
    MethodEntry, StageBody,
};
pub use health::{Diagnosis, HealthStatus, HealthView, ServiceStatus, ServiceView};
pub use ingest::{
    CheckedChunk, ChunkFault, CollectionCheck, CollectionStanding, DeadLetterEntry, DocumentDetail, IndexName,
    IngestAccepted, IngestBody, IngestMessage, IngestView, JudgementBody, Orphan, RebuildBody, Redriven, ReembedBody,
    TuneBody,
};
pub use memory::{
    ForgetCounts, ForgetDone, LeftOutView, MemoryChatBody, MemoryChatDone, MemoryContextView, RecalledView, TurnBody,
};
pub use project_surface::{ImporterView, ImportsView, ModuleView, PublicNameView, SurfaceChangeView, SurfaceView};
pub use project_tools::{InstallToolsBody, ProjectToolView};
pub use projects::{
    AnalysisAccepted, AnalysisView, AnalyzeBody, ApplyBody, FileChangedView, FileMetricsView, FileTextView,
    FindingView, ImportBody, ImproveBody, LanguageView, NotComparedView, ProjectAccepted, ProjectFileView,
    ProjectProgressView, ProjectRemovedView, ProjectView, ProposalAccepted, ProposalView, ReportSummary, ReportView,
    RevertBody, ReviewCitation, ReviewView, TestRunView, TestRunsView, ToolRunView, TrendView,
};
pub use rag::{
    AnswerSentence, AskBody, AskDone, DroppedChunk, FilterBody, Fusion, SearchBody, SearchContext, SearchDone,
    SearchItem, SearchMode, SearchScores, SearchTimes,
};
pub use riverrun_stores::read_models::{
    DatasetView, DeletionView, GateView, JobView, ModelVersionView, RebuildView, ReembeddingView, SearchGainView,
    StepLossView, TuningView,
};
pub use riverrun_stores::warehouse::{Column, QueryResult, TableInfo};
pub(crate) use run_bounds::fitting_steps;
pub use run_control::{ApprovalBody, ApprovalDecision, ComparedRun, ComparedStep, ForkBody, RunComparison, RunTree};
pub use runs::{ApprovalMode, Budget, CancelBody, RunAccepted, RunBody, RunMessage, SessionMode};
pub use session::{AuthMode, LoginBody, SessionView};
pub use warehouse::QueryBody;
