//! Which blobs are named by something that lives, folded from the log. Pure.
//!
//! Every record marks what it names, except where it is known that nobody will look: what a removed document or project had, the bytes
//! of a version that another has replaced, a command whose work the events tell of, a snapshot that a later one or the end of its run has
//! replaced, a dataset that another of its name has replaced once nothing is trained on it, what [tunings](super::tunings) had. An event
//! that has no place for a blob names none, whatever hash is in its texts: files may be called by theirs. A record that is not understood
//! marks.
//! Commands come before the events that tell of their work, and events of an aggregate in their order.

use std::collections::{HashMap, HashSet};

use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::finetune::{FinetuneCommand, FinetuneEvent};
use riverrun_schemas::ingest::{ChunkEvent, IngestCommand, IngestEvent};
use riverrun_schemas::projects::{ProjectCommand, ProjectEvent};
use riverrun_schemas::{DocumentId, FinetuneId, IngestId, ProjectId, RunId};

use super::documents::Documents;
use super::hash::Hash;
use super::tunings::Tunings;

/// What the log names.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    /// For as long as the record is on the log.
    named: HashSet<Hash>,
    documents: Documents,
    /// Archives that were handed in, until they are read.
    archives: HashMap<IngestId, Vec<Hash>>,
    /// Documents that were handed in, until there is an event of that.
    submitted: HashMap<(DocumentId, IngestId), Vec<Hash>>,
    /// What is worked on for a document, until it can be found.
    in_work: HashMap<(DocumentId, IngestId), Vec<Hash>>,
    tunings: Tunings,
    /// Code that was handed in, until it is imported.
    imports: HashMap<ProjectId, Vec<Hash>>,
    projects: HashMap<ProjectId, Vec<Hash>>,
    removed_projects: HashSet<ProjectId>,
    /// Of each name the last.
    datasets: HashMap<String, Vec<Hash>>,
    trainings: HashMap<FinetuneId, Training>,
    /// Of each run that goes on the last.
    snapshots: HashMap<RunId, Vec<Hash>>,
}

#[derive(Debug, Clone, Default)]
struct Training {
    dataset: Vec<Hash>,
    /// Highest epoch that was claimed.
    claimed: i64,
    /// Highest epoch that told an end: one of a lost claim is none.
    ended: Option<i64>,
}

impl Marks {
    /// A record that nobody is asked about: dead letters, and what is not understood.
    pub(super) fn record(&mut self, names: Vec<Hash>) {
        self.named.extend(names);
    }

    pub(super) fn ingest_command(&mut self, command: &IngestCommand, names: Vec<Hash>) {
        match command {
            IngestCommand::StartIngest(e) => self.archives.entry(e.ingest_id).or_default().extend(names),
            IngestCommand::SubmitDocument(e) => {
                self.submitted.entry((e.document_id, e.ingest_id)).or_default().extend(names);
            }
            IngestCommand::BuildTree(e) => {
                self.in_work.entry((e.document_id, e.ingest_id)).or_default().extend(names);
            }
            IngestCommand::DeleteDocument(_)
            | IngestCommand::DeleteCollection(_)
            | IngestCommand::ReembedCollection(_)
            | IngestCommand::RebuildCollection(_) => {}
            IngestCommand::TuneCollection(e) => self.tunings.asked(e.ingest_id, names),
        }
    }

    pub(super) fn chunks(&mut self, event: &ChunkEvent, names: Vec<Hash>) {
        match event {
            ChunkEvent::ChunksReady(e) => {
                self.in_work.entry((e.document_id, e.ingest_id)).or_default().extend(names);
            }
            ChunkEvent::ChunksWithdrawn(_) => {}
        }
    }

    pub(super) fn ingest_event(&mut self, event: &IngestEvent, names: Vec<Hash>) {
        match event {
            IngestEvent::DocumentQueued(e) => {
                self.submitted.remove(&(e.document_id, e.ingest_id));
                self.documents.queued(e.document_id, e.ingest_id, names);
            }
            IngestEvent::DocumentChunked(e) => self.documents.chunked(e.document_id, names),
            IngestEvent::DocumentUnchanged(e) => {
                self.submitted.remove(&(e.document_id, e.ingest_id));
                self.documents.unchanged(e.document_id, e.ingest_id);
            }
            IngestEvent::DocumentIndexed(e) => {
                self.in_work.remove(&(e.document_id, e.ingest_id));
                self.documents.indexed(e.document_id, e.ingest_id);
            }
            IngestEvent::DocumentWithdrawn(e) => self.documents.withdrawn(e.document_id, e.ingest_id),
            IngestEvent::IngestScanned(e) => {
                self.archives.remove(&e.ingest_id);
            }
            IngestEvent::IngestFailed(e) => {
                self.archives.remove(&e.ingest_id);
            }
            // One that failed may be handed in again from its dead letter.
            IngestEvent::DocumentFailed(_)
            | IngestEvent::DocumentEmbedded(_)
            | IngestEvent::DocumentDeleted(_)
            | IngestEvent::CollectionReembedding(_)
            | IngestEvent::CollectionReembedded(_)
            | IngestEvent::CollectionReembedFailed(_)
            | IngestEvent::CollectionRebuilding(_)
            | IngestEvent::CollectionRebuilt(_)
            | IngestEvent::CollectionRebuildFailed(_) => {}
            IngestEvent::CollectionTuning(e) => self.tunings.begun(e),
            IngestEvent::CollectionTuned(e) => self.tunings.tuned(e, names),
            IngestEvent::CollectionTuneFailed(e) => self.tunings.failed(e),
            IngestEvent::CollectionWithdrawn(e) => self.tunings.removed(e),
        }
    }

    pub(super) fn project_command(&mut self, command: &ProjectCommand, names: Vec<Hash>) {
        match command {
            ProjectCommand::ImportProject(e) => self.imports.entry(e.project_id).or_default().extend(names),
            ProjectCommand::AnalyzeProject(_)
            | ProjectCommand::ImproveFile(_)
            | ProjectCommand::ApplyProposal(_)
            | ProjectCommand::RevertFile(_)
            | ProjectCommand::RemoveProject(_) => {}
        }
    }

    pub(super) fn project_event(&mut self, event: &ProjectEvent, names: Vec<Hash>) {
        let project = event.project_id();
        match event {
            ProjectEvent::ProjectRemoved(_) => {
                self.removed_projects.insert(project);
            }
            ProjectEvent::ProjectImported(_) => {
                self.imports.remove(&project);
                self.projects.entry(project).or_default().extend(names);
            }
            ProjectEvent::ProjectProgressed(_)
            | ProjectEvent::ProjectFailed(_)
            | ProjectEvent::ProjectAnalyzed(_)
            | ProjectEvent::ProposalMade(_)
            | ProjectEvent::FileChanged(_)
            | ProjectEvent::ChangeRefused(_) => self.projects.entry(project).or_default().extend(names),
        }
    }

    pub(super) fn finetune_command(&mut self, command: &FinetuneCommand, names: Vec<Hash>) {
        match command {
            FinetuneCommand::StartFinetune(e) => self.trainings.entry(e.job_id).or_default().dataset.extend(names),
        }
    }

    pub(super) fn finetune_event(&mut self, event: &FinetuneEvent, names: Vec<Hash>) {
        match event {
            FinetuneEvent::DatasetRegistered(e) => {
                self.datasets.insert(e.name.clone(), names);
            }
            FinetuneEvent::FinetuneAccepted(e) => self.trainings.entry(e.job_id).or_default().dataset.extend(names),
            FinetuneEvent::FinetuneClaimed(e) => {
                let training = self.trainings.entry(e.job_id).or_default();
                training.claimed = training.claimed.max(e.epoch);
            }
            FinetuneEvent::FinetuneFinished(e) => {
                let training = self.trainings.entry(e.job_id).or_default();
                training.ended = training.ended.max(Some(e.epoch));
            }
            // A version that is retired is kept, and so is the dataset that it names.
            FinetuneEvent::ModelRegistered(_) => self.record(names),
            FinetuneEvent::ModelStaged(_)
            | FinetuneEvent::ModelProbed(_)
            | FinetuneEvent::ModelUsed(_)
            | FinetuneEvent::FinetuneProgressed(_)
            | FinetuneEvent::FinetuneCancelRequested(_) => {}
        }
    }

    pub(super) fn agent_event(&mut self, event: &AgentEvent, names: Vec<Hash>) {
        match event {
            AgentEvent::RunSnapshotted(e) => {
                self.snapshots.insert(e.run_id, names);
            }
            AgentEvent::RunFinished(e) => {
                self.snapshots.remove(&e.run_id);
            }
            AgentEvent::RunAdvanced(_) => self.record(names),
            AgentEvent::RunAccepted(_)
            | AgentEvent::RunClaimed(_)
            | AgentEvent::RunCancelRequested(_)
            | AgentEvent::RunApprovalDecided(_)
            | AgentEvent::RunResumed(_) => {}
        }
    }

    /// What is named by something that lives. Blobs may name further ones.
    pub(super) fn living(self) -> HashSet<Hash> {
        let mut living = self.named;
        living.extend(self.documents.living());
        living.extend(self.archives.into_values().flatten());
        living.extend(self.submitted.into_values().chain(self.in_work.into_values()).flatten());
        living.extend(self.tunings.living());
        let removed = self.removed_projects;
        let projects = self.projects.into_iter().chain(self.imports).filter(|(project, _)| !removed.contains(project));
        living.extend(projects.flat_map(|(_, names)| names));
        living.extend(self.datasets.into_values().flatten());
        let trainings = self.trainings.into_values().filter(|training| !training.is_over());
        living.extend(trainings.flat_map(|training| training.dataset));
        living.extend(self.snapshots.into_values().flatten());
        living
    }
}

impl Training {
    fn is_over(&self) -> bool {
        self.ended.is_some_and(|epoch| epoch >= self.claimed)
    }
}

#[cfg(test)]
mod tests;
