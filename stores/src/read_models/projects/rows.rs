//! Projects and what belongs to them, as their events tell them.

use riverrun_schemas::{AnalysisId, BlobRef, ChangeId, Failure, Namespace, ProjectId, ProposalId};
use serde::{Deserialize, Serialize};

/// A project as its events tell it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectRow {
    /// Its id.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// How people call it.
    pub name: String,
    /// Where it came from.
    pub source: String,
    /// `importing`, `imported`, `analyzing`, `analyzed` or `failed`.
    pub status: String,
    /// How many files.
    pub files: i64,
    /// Their bytes.
    pub size_bytes: i64,
    /// Entries left out.
    pub skipped: i64,
    /// Languages as JSON.
    pub languages_json: String,
    /// Hash of what was read.
    pub source_sha256: Option<String>,
    /// The files as imported.
    pub base: Option<BlobRef>,
    /// The files now.
    pub tree: Option<BlobRef>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// Analyses that are done.
    pub analyses: i64,
    /// Files that are imported, or analyzers that are through.
    #[serde(default)]
    pub done: i64,
    /// Of how many; 0 while nobody knows.
    #[serde(default)]
    pub total: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// An analysis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnalysisRow {
    /// Its id.
    pub analysis_id: AnalysisId,
    /// Its report; none while it goes on or when it failed.
    pub report: Option<BlobRef>,
    /// How many findings.
    pub findings: i64,
    /// Findings by severity, and metrics, as JSON.
    pub counts_json: String,
    /// Why it failed.
    pub error: Option<Failure>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

/// A proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProposalRow {
    /// Its id.
    pub proposal_id: ProposalId,
    /// The file.
    pub file: String,
    /// `proposing`, `proposed`, `refused`, `applied` or `stale`.
    pub status: String,
    /// Unified.
    pub diff: String,
    /// The file before.
    pub before_sha256: String,
    /// The file after.
    pub after: Option<BlobRef>,
    /// Findings before.
    pub findings_before: i64,
    /// Findings after.
    pub findings_after: i64,
    /// Whether there are fewer.
    pub improves: bool,
    /// Why it was refused, or that it improves nothing.
    pub note: Option<String>,
    /// Why nothing could be made at all, such as a model that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// The model.
    pub model: String,
    /// Tokens read.
    pub prompt_tokens: i64,
    /// Tokens written.
    pub completion_tokens: i64,
    /// The project's own tests before and after, as JSON.
    #[serde(default)]
    pub tests_json: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

/// A request to change a file, answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeRow {
    /// Its id.
    pub change_id: ChangeId,
    /// The file.
    pub file: String,
    /// The file after; empty when refused.
    pub after_sha256: String,
    /// Why it was refused.
    pub error: Option<Failure>,
}
