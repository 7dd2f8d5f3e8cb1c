//! Changes of a copy: a proposal that is written, and a change that is taken back. Both end in one event with the new list of files.

use riverrun_projects::ProjectError;
use riverrun_projects::copy::Entry;
use riverrun_schemas::projects::{ApplyProposal, FileChanged, ProjectEvent, RevertFile};
use riverrun_schemas::{ChangeId, Namespace, ProjectId, ProposalId, now_ms};

use super::Analyzer;
use super::state::State;

/// Which change, of which file.
struct Change<'e> {
    project_id: ProjectId,
    namespace: &'e Namespace,
    change_id: ChangeId,
    proposal_id: Option<ProposalId>,
    file: &'e str,
}

impl Analyzer {
    pub(super) async fn write(&self, e: &ApplyProposal, state: &State) -> Result<ProjectEvent, ProjectError> {
        let made = state.proposals.iter().find(|made| made.proposal_id == e.proposal_id && made.file == e.file);
        let Some((made, after)) = made.and_then(|made| Some((made, made.after.clone()?))) else {
            return Err(ProjectError::refused(
                "no_proposal",
                format!("there is no proposal {} for {}", e.proposal_id, e.file),
                "make one: riverrun project improve",
            ));
        };
        let entry = Entry {
            sha256: after.sha256.clone(),
            size_bytes: u64::try_from(after.size_bytes).unwrap_or(0),
            offset: 0,
            blob: Some(after),
            is_executable: false,
        };
        let change = Change {
            project_id: e.project_id,
            namespace: &e.namespace,
            change_id: e.change_id,
            proposal_id: Some(e.proposal_id),
            file: &e.file,
        };
        self.put_in(state, change, entry, Some(&made.before_sha256)).await
    }

    pub(super) async fn revert(&self, e: &RevertFile, state: &State) -> Result<ProjectEvent, ProjectError> {
        // A file that is not there is told before one that never changed.
        self.copies.tree(state.tree()?).await?.entry(&e.file)?;
        let Some((_, earlier)) = state.undo.iter().rfind(|(file, _)| *file == e.file) else {
            return Err(ProjectError::refused(
                "nothing_to_undo",
                format!("{} is as it was imported", e.file),
                "riverrun project patch shows what was changed",
            ));
        };
        let entry = self.copies.tree(earlier).await?.entry(&e.file)?.clone();
        let change = Change {
            project_id: e.project_id,
            namespace: &e.namespace,
            change_id: e.change_id,
            proposal_id: None,
            file: &e.file,
        };
        self.put_in(state, change, entry, None).await
    }

    /// Puts a content in the place of a file, when that is still as `expected` says.
    async fn put_in(
        &self,
        state: &State,
        change: Change<'_>,
        entry: Entry,
        expected: Option<&str>,
    ) -> Result<ProjectEvent, ProjectError> {
        let mut tree = self.copies.tree(state.tree()?).await?;
        let before_sha256 = tree.entry(change.file)?.sha256.clone();
        if expected.is_some_and(|expected| expected != before_sha256) {
            return Err(ProjectError::refused(
                "stale_proposal",
                format!("{} changed since the proposal was made", change.file),
                "make a new one: riverrun project improve",
            ));
        }
        let after_sha256 = entry.sha256.clone();
        tree.replace(change.file, entry)?;
        Ok(FileChanged {
            project_id: change.project_id,
            namespace: change.namespace.clone(),
            change_id: change.change_id,
            proposal_id: change.proposal_id,
            file: change.file.to_owned(),
            before_sha256,
            after_sha256,
            tree: self.copies.keep_tree(&tree).await?,
            at: now_ms(),
        }
        .into())
    }
}
