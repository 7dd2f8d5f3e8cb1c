//! What a project is, folded from its events.

use riverrun_log::{StartAt, Tail, TopicPartition};
use riverrun_projects::ProjectError;
use riverrun_schemas::projects::{ProjectCommand, ProjectEvent, ProposalMade};
use riverrun_schemas::{BlobRef, Decoded, Topic};

use crate::runtime::{Context, Delivery, WorkError};

/// A project as its events tell it.
#[derive(Default)]
pub(super) struct State {
    answered: Vec<String>,
    pub(super) failed: bool,
    /// Whether it is gone.
    pub(super) removed: bool,
    pub(super) tree: Option<BlobRef>,
    /// Of the last analysis.
    pub(super) report: Option<BlobRef>,
    pub(super) proposals: Vec<ProposalMade>,
    /// Files with the list of files before their change, oldest first.
    pub(super) undo: Vec<(String, BlobRef)>,
}

impl State {
    fn apply(&mut self, event: ProjectEvent) {
        match event {
            ProjectEvent::ProjectProgressed(_) => {}
            ProjectEvent::ProjectImported(e) => {
                if self.tree.is_none() {
                    self.tree = Some(e.tree);
                }
            }
            ProjectEvent::ProjectFailed(e) => {
                self.failed |= e.about.is_empty();
                self.answered.push(e.about);
            }
            ProjectEvent::ProjectAnalyzed(e) => {
                self.answered.push(e.analysis_id.to_string());
                self.report = Some(e.report);
            }
            ProjectEvent::ProposalMade(e) => {
                self.answered.push(e.proposal_id.to_string());
                self.proposals.push(e);
            }
            ProjectEvent::FileChanged(e) => {
                if self.is_answered(&e.change_id.to_string()) {
                    return;
                }
                self.answered.push(e.change_id.to_string());
                match (e.proposal_id, self.tree.replace(e.tree)) {
                    (Some(_), Some(before)) => self.undo.push((e.file, before)),
                    (None, _) => {
                        if let Some(at) = self.undo.iter().rposition(|(file, _)| *file == e.file) {
                            self.undo.remove(at);
                        }
                    }
                    (Some(_), None) => {}
                }
            }
            ProjectEvent::ChangeRefused(e) => self.answered.push(e.change_id.to_string()),
            ProjectEvent::ProjectRemoved(e) => {
                self.removed = true;
                self.answered.push(e.change_id.to_string());
            }
        }
    }

    pub(super) fn is_answered(&self, id: &str) -> bool {
        self.answered.iter().any(|answered| answered == id)
    }

    pub(super) fn tree(&self) -> Result<&BlobRef, ProjectError> {
        self.tree.as_ref().ok_or_else(|| {
            ProjectError::refused("not_imported", "the project has no copy", "import it first: riverrun project import")
        })
    }
}

/// Folds the project's events: they are in the partition of the same number.
pub(super) async fn fold(delivery: &Delivery<ProjectCommand>, context: &Context) -> Result<State, WorkError> {
    let project_id = delivery.event.project_id();
    let partition = TopicPartition::new(Topic::ProjectsEvents.name(), delivery.position.partition);
    let mut range = Tail::read_range(&context.log, partition, StartAt::Beginning).await?;
    let mut state = State::default();
    while let Some(record) = range.next().await? {
        if let Ok(Decoded::Event(event)) = context.schemas.decode::<ProjectEvent>(&record)
            && event.project_id() == project_id
        {
            state.apply(event);
        }
    }
    Ok(state)
}
