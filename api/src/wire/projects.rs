use std::collections::BTreeMap;

use riverrun_stores::read_models::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::{FailureView, ImportsView, SurfaceChangeView, SurfaceView};

/// Code to import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportBody {
    /// A folder or `.zip` on the server, or the https address of a repository.
    pub source: String,
    /// How people call it; the last part of the source when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// An import that is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectAccepted {
    /// The project.
    pub project_id: String,
}

/// A language of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LanguageView {
    /// Its name.
    pub name: String,
    /// Files.
    pub files: i64,
    /// Their lines.
    pub lines: i64,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProjectView {
    /// Its id.
    pub project_id: String,
    /// How people call it.
    pub name: String,
    /// Where it came from.
    pub source: String,
    /// `importing`, `imported`, `analyzing`, `analyzed` or `failed`.
    pub status: String,
    /// Files of the copy.
    pub files: i64,
    /// Languages whose syntax is known.
    pub languages: Vec<LanguageView>,
    /// Bytes of the copy.
    pub size_bytes: i64,
    /// Entries left out.
    pub skipped: i64,
    /// Hash over names and contents of what was read.
    pub source_sha256: Option<String>,
    /// Why it failed.
    pub error: Option<FailureView>,
    /// Analyses that are done.
    pub analyses: i64,
    /// How far an import or an analysis is; absent when none goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProjectProgressView>,
    /// When it was imported.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// How far an import or an analysis is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectProgressView {
    /// Files that are imported, or analyzers that are through.
    pub done: i64,
    /// Of how many; absent while nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}

/// How to analyze.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnalyzeBody {
    /// Whether a model reviews the findings; true when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<bool>,
    /// Its model; the default one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// An analysis that is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnalysisAccepted {
    /// The project.
    pub project_id: String,
    /// The analysis.
    pub analysis_id: String,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FindingView {
    /// The same in later analyses.
    pub id: String,
    /// The analyzer.
    pub tool: String,
    /// Its rule.
    pub rule: String,
    /// `critical`, `high`, `medium`, `low` or `info`.
    pub severity: String,
    /// Path within the copy.
    pub file: String,
    /// Counts from 1.
    pub line: u64,
    /// Counts from 1.
    pub column: u64,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Findings, counted: those too that a report does not list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportSummary {
    /// All.
    pub findings: u64,
    /// By severity.
    pub by_severity: BTreeMap<String, u64>,
    /// By analyzer.
    pub by_tool: BTreeMap<String, u64>,
    /// Files of the copy.
    pub files: u64,
    /// Lines of files whose language is known.
    pub lines: u64,
}

/// Figures of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileMetricsView {
    /// Its path.
    pub file: String,
    /// Its lines.
    pub lines: u64,
    /// Ways through it.
    pub complexity: u64,
    /// Findings in it.
    pub findings: u64,
}

/// What an analyzer did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolRunView {
    /// Its name.
    pub name: String,
    /// `ran`, `missing`, `failed` or `skipped`.
    pub status: String,
    /// Findings, those too that a report does not list.
    pub findings: u64,
    /// How long it took.
    pub took_ms: u64,
    /// Why it did not run, or what it left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// A place that the review names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReviewCitation {
    /// Its number in the text.
    pub n: u64,
    /// The file.
    pub file: String,
    /// Counts from 1.
    pub line: u64,
}

/// What a model says of the findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReviewView {
    /// Its words.
    pub text: String,
    /// The findings that it names.
    pub citations: Vec<ReviewCitation>,
    /// Which model.
    pub model: String,
}

/// What an analysis came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReportView {
    /// The project.
    #[serde(default)]
    pub project_id: String,
    /// The analysis.
    #[serde(default)]
    pub analysis_id: String,
    /// When it began.
    #[serde(default)]
    pub created_at: String,
    /// How long it took.
    pub took_ms: u64,
    /// Counts.
    pub summary: ReportSummary,
    /// The worst first.
    pub findings: Vec<FindingView>,
    /// Whether some are only counted: a report lists the worst 5,000 of an analyzer.
    pub findings_truncated: bool,
    /// Figures by name.
    pub metrics: BTreeMap<String, f64>,
    /// The worst files first.
    pub file_metrics: Vec<FileMetricsView>,
    /// What each analyzer did.
    pub tools: Vec<ToolRunView>,
    /// What a model says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewView>,
    /// What the project offers to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<SurfaceView>,
    /// What became of it since the analysis before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface_change: Option<SurfaceChangeView>,
    /// Which of its files import which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports: Option<ImportsView>,
}

/// An analysis in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AnalysisView {
    /// Its id.
    pub analysis_id: String,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// How many findings.
    pub findings: i64,
    /// By severity.
    pub by_severity: BTreeMap<String, u64>,
    /// Figures by name.
    pub metrics: BTreeMap<String, f64>,
}

/// An analyzer whose findings are no part of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotComparedView {
    /// Its name.
    pub tool: String,
    /// Why, for people: it did not run for both analyses, or one does not list all of its findings.
    pub why: String,
}

/// What is different between two analyses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrendView {
    /// The earlier one.
    pub from: String,
    /// The later one.
    pub to: String,
    /// Findings that were not there.
    pub new: Vec<FindingView>,
    /// Findings that are gone.
    pub fixed: Vec<FindingView>,
    /// Findings that stayed.
    pub unchanged: u64,
    /// Analyzers that only one of the two can speak for; their findings are in none of the lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<NotComparedView>,
    /// What became of the names that the project offers, when both reports say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<SurfaceChangeView>,
}

/// A file of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectFileView {
    /// Its path.
    pub path: String,
    /// Its length.
    pub size_bytes: u64,
    /// Its language, where its syntax is known.
    pub language: Option<String>,
    /// Findings of the newest analysis.
    pub findings: u64,
}

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileTextView {
    /// Its path.
    pub file: String,
    /// Its hash.
    pub sha256: String,
    /// Its text.
    pub text: String,
}

/// What to improve.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImproveBody {
    /// Path within the copy.
    pub file: String,
    /// What is wanted; the findings are corrected when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// The model; the default one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Rewrites to choose from, 1 to 4; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<i64>,
    /// Program and arguments of the project's own tests, which are run in the sandbox before and after; none when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<Vec<String>>,
    /// Public names of the file that the rewrite may take out, such as `f` or `C.m`, at most 100; it keeps all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_remove: Option<Vec<String>>,
}

/// A run of a project's own tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestRunView {
    /// Whether its exit code was 0.
    pub passed: bool,
    /// Its exit code; none when it was ended.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub took_ms: u64,
    /// The end of what it wrote, or why it was ended.
    pub output: String,
}

/// A project's own tests before and after a rewrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestRunsView {
    /// Program and arguments.
    pub command: Vec<String>,
    /// On the copy as it is.
    pub before: TestRunView,
    /// With the rewrite.
    pub after: TestRunView,
}

/// A proposal that is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProposalAccepted {
    /// The proposal.
    pub proposal_id: String,
}

/// A proposed rewrite of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProposalView {
    /// Its id.
    pub proposal_id: String,
    /// The file.
    pub file: String,
    /// `proposing`, `proposed`, `refused`, `applied` or `stale`.
    pub status: String,
    /// Unified.
    pub diff: String,
    /// The file before.
    pub before_sha256: String,
    /// The file after.
    pub after_sha256: Option<String>,
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
    pub error: Option<FailureView>,
    /// The model.
    pub model: String,
    /// Tokens that the model read and wrote.
    pub total_tokens: i64,
    /// The project's own tests, when they were asked for and there is a rewrite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestRunsView>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// Which proposal to write to the copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyBody {
    /// Path within the copy.
    pub file: String,
    /// The proposal; the newest one of the file when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal_id: Option<String>,
    /// Must be true.
    #[serde(default)]
    pub confirm: bool,
}

/// Which file to take back by one change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertBody {
    /// Path within the copy.
    pub file: String,
    /// Must be true.
    #[serde(default)]
    pub confirm: bool,
}

/// A file of the copy that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileChangedView {
    /// Its path.
    pub file: String,
    /// Its hash now.
    pub after_sha256: String,
}

/// What went with a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectRemovedView {
    /// The project.
    pub project_id: String,
    /// How people called it.
    pub name: String,
    /// Files of the copy.
    pub files: i64,
    /// Their bytes.
    pub size_bytes: i64,
    /// Analyses.
    pub analyses: i64,
    /// Proposals.
    pub proposals: i64,
    /// Changes that were made or refused.
    pub changes: i64,
}
