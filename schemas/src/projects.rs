//! Projects: code that was imported, what is found in it, and changes of the copy. `riverrun.projects.commands|events`, keyed by
//! project, so that all of a project is in one order.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::common::{BlobRef, Failure};
use crate::ids::{AnalysisId, ChangeId, EventId, ProjectId, ProposalId};
use crate::names::Namespace;

/// Asks for code to be copied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportProject {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// How people call it.
    pub name: String,
    /// Where it comes from.
    pub source: String,
    /// A zip archive that was handed in.
    pub content: Option<BlobRef>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks for the copy to be analyzed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnalyzeProject {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The analysis.
    pub analysis_id: AnalysisId,
    /// Whether a model reviews the findings.
    pub review: bool,
    /// The chat model; the default one when not said.
    pub model: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks a model for a rewrite of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImproveFile {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The proposal; none when a change is taken back.
    pub proposal_id: ProposalId,
    /// Path within the copy.
    pub file: String,
    /// What is wanted beside the findings.
    pub instruction: Option<String>,
    /// The chat model; the default one when not said.
    pub model: Option<String>,
    /// Rewrites to choose from.
    pub candidates: i64,
    /// Program and arguments of the project's own tests; empty when none are run.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Public names that the rewrite may take out; empty when it keeps all.
    #[serde(default)]
    pub may_remove: Vec<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks for a proposal to be written to the copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApplyProposal {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The request.
    pub change_id: ChangeId,
    /// The proposal; none when a change is taken back.
    pub proposal_id: ProposalId,
    /// Path within the copy.
    pub file: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks for the last change of a file to be taken back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RevertFile {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The request.
    pub change_id: ChangeId,
    /// Path within the copy.
    pub file: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Work has begun or got on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectProgressed {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// `importing`, `analyzing` or `improving`.
    pub phase: String,
    /// The analysis or proposal; empty for imports.
    pub about: String,
    /// How people call it.
    pub name: String,
    /// Where it comes from.
    pub source: String,
    /// Path within the copy.
    pub file: String,
    /// How much is done.
    pub done: i64,
    /// Of how much.
    pub total: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The copy is whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectImported {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// How people call it.
    pub name: String,
    /// Where it comes from.
    pub source: String,
    /// Hash of all names and contents that were read, the same before and after.
    pub source_sha256: String,
    /// The list of files.
    pub tree: BlobRef,
    /// How many files.
    pub files: i64,
    /// Their bytes.
    pub size_bytes: i64,
    /// Entries left out.
    pub skipped: i64,
    /// Languages with files and lines.
    pub languages_json: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// An import, analysis or proposal ended without success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectFailed {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// `importing`, `analyzing` or `improving`.
    pub phase: String,
    /// The analysis or proposal; empty for imports.
    pub about: String,
    /// How people call it.
    pub name: String,
    /// Where it comes from.
    pub source: String,
    /// Why.
    pub error: Failure,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The copy was analyzed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectAnalyzed {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The analysis.
    pub analysis_id: AnalysisId,
    /// The report as JSON.
    pub report: BlobRef,
    /// How many findings.
    pub findings: i64,
    /// Findings by severity, and metrics.
    pub counts_json: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A rewrite was proposed or refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProposalMade {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The proposal; none when a change is taken back.
    pub proposal_id: ProposalId,
    /// Path within the copy.
    pub file: String,
    /// The file before.
    pub before_sha256: String,
    /// The whole file after.
    pub after: Option<BlobRef>,
    /// Unified.
    pub diff: String,
    /// Findings of the file before.
    pub findings_before: i64,
    /// Findings of the file after.
    pub findings_after: i64,
    /// Whether it has fewer findings.
    pub improves: bool,
    /// Why it was refused, or that it improves nothing.
    pub note: Option<String>,
    /// The chat model; the default one when not said.
    pub model: String,
    /// Tokens read.
    pub prompt_tokens: i64,
    /// Tokens written.
    pub completion_tokens: i64,
    /// The project's own tests before and after, as JSON.
    #[serde(default)]
    pub tests_json: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A file of the copy changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileChanged {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The request.
    pub change_id: ChangeId,
    /// The proposal; none when a change is taken back.
    pub proposal_id: Option<ProposalId>,
    /// Path within the copy.
    pub file: String,
    /// The file before.
    pub before_sha256: String,
    /// The file after.
    pub after_sha256: String,
    /// The list of files.
    pub tree: BlobRef,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A file of the copy did not change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeRefused {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The request.
    pub change_id: ChangeId,
    /// The proposal; none when a change is taken back.
    pub proposal_id: Option<ProposalId>,
    /// Path within the copy.
    pub file: String,
    /// Why.
    pub error: Failure,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks for a project to be removed with all that was found and proposed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemoveProject {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The request.
    pub change_id: ChangeId,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The project is gone; its id is of no use any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectRemoved {
    /// The project.
    pub project_id: ProjectId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The request.
    pub change_id: ChangeId,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// An event id that follows from the project, the kind and what it is about.
macro_rules! id {
    ($event:expr, $kind:literal, $($part:expr),*) => {
        EventId::derive(&[&$event.project_id.to_string(), $kind, $(&$part.to_string()),*])
    };
}

event_set! {
    /// What projects are asked to do.
    ProjectCommand on ProjectsCommands;
    /// Asks for code to be copied.
    ImportProject = "riverrun.projects.ImportProject", key |e| e.project_id.to_string(), id |e| id!(e, "ImportProject", e.source);
    /// Asks for the copy to be analyzed.
    AnalyzeProject = "riverrun.projects.AnalyzeProject", key |e| e.project_id.to_string(), id |e| id!(e, "AnalyzeProject", e.analysis_id);
    /// Asks a model for a rewrite of one file.
    ImproveFile = "riverrun.projects.ImproveFile", key |e| e.project_id.to_string(), id |e| id!(e, "ImproveFile", e.proposal_id);
    /// Asks for a proposal to be written to the copy.
    ApplyProposal = "riverrun.projects.ApplyProposal", key |e| e.project_id.to_string(), id |e| id!(e, "ApplyProposal", e.change_id);
    /// Asks for the last change of a file to be taken back.
    RevertFile = "riverrun.projects.RevertFile", key |e| e.project_id.to_string(), id |e| id!(e, "RevertFile", e.change_id);
    /// Asks for a project to be removed.
    RemoveProject = "riverrun.projects.RemoveProject", key |e| e.project_id.to_string(), id |e| id!(e, "RemoveProject", e.change_id);
}

event_set! {
    /// What happened to projects.
    ProjectEvent on ProjectsEvents;
    /// Work has begun or got on.
    ProjectProgressed = "riverrun.projects.ProjectProgressed", key |e| e.project_id.to_string(), id |e| id!(e, "ProjectProgressed", e.phase, e.about, e.done);
    /// The copy is whole.
    ProjectImported = "riverrun.projects.ProjectImported", key |e| e.project_id.to_string(), id |e| id!(e, "ProjectImported", e.source);
    /// An import, analysis or proposal ended without success.
    ProjectFailed = "riverrun.projects.ProjectFailed", key |e| e.project_id.to_string(), id |e| id!(e, "ProjectFailed", e.phase, e.about);
    /// The copy was analyzed.
    ProjectAnalyzed = "riverrun.projects.ProjectAnalyzed", key |e| e.project_id.to_string(), id |e| id!(e, "ProjectAnalyzed", e.analysis_id);
    /// A rewrite was proposed or refused.
    ProposalMade = "riverrun.projects.ProposalMade", key |e| e.project_id.to_string(), id |e| id!(e, "ProposalMade", e.proposal_id);
    /// A file of the copy changed.
    FileChanged = "riverrun.projects.FileChanged", key |e| e.project_id.to_string(), id |e| id!(e, "FileChanged", e.change_id);
    /// A file of the copy did not change.
    ChangeRefused = "riverrun.projects.ChangeRefused", key |e| e.project_id.to_string(), id |e| id!(e, "ChangeRefused", e.change_id);
    /// The project is gone.
    ProjectRemoved = "riverrun.projects.ProjectRemoved", key |e| e.project_id.to_string(), id |e| id!(e, "ProjectRemoved", e.change_id);
}

impl ProjectCommand {
    /// The project that is spoken of.
    pub fn project_id(&self) -> ProjectId {
        match self {
            ProjectCommand::ImportProject(e) => e.project_id,
            ProjectCommand::AnalyzeProject(e) => e.project_id,
            ProjectCommand::ImproveFile(e) => e.project_id,
            ProjectCommand::ApplyProposal(e) => e.project_id,
            ProjectCommand::RevertFile(e) => e.project_id,
            ProjectCommand::RemoveProject(e) => e.project_id,
        }
    }
}

impl ProjectEvent {
    /// The project that is spoken of.
    pub fn project_id(&self) -> ProjectId {
        match self {
            ProjectEvent::ProjectProgressed(e) => e.project_id,
            ProjectEvent::ProjectImported(e) => e.project_id,
            ProjectEvent::ProjectFailed(e) => e.project_id,
            ProjectEvent::ProjectAnalyzed(e) => e.project_id,
            ProjectEvent::ProposalMade(e) => e.project_id,
            ProjectEvent::FileChanged(e) => e.project_id,
            ProjectEvent::ChangeRefused(e) => e.project_id,
            ProjectEvent::ProjectRemoved(e) => e.project_id,
        }
    }
}
