//! What is said about a command besides its result: that work has begun, and that it can't be done.

use riverrun_schemas::projects::{ChangeRefused, ProjectCommand, ProjectEvent, ProjectFailed, ProjectProgressed};
use riverrun_schemas::{ChangeId, Failure, Namespace, ProjectId, ProposalId, now_ms};

/// What a command is about: the phase, and the id that its answer carries.
pub(super) fn subject(command: &ProjectCommand) -> (&'static str, String) {
    match command {
        ProjectCommand::ImportProject(_) => ("importing", String::new()),
        ProjectCommand::AnalyzeProject(e) => ("analyzing", e.analysis_id.to_string()),
        ProjectCommand::ImproveFile(e) => ("improving", e.proposal_id.to_string()),
        ProjectCommand::ApplyProposal(e) => ("applying", e.change_id.to_string()),
        ProjectCommand::RevertFile(e) => ("reverting", e.change_id.to_string()),
        ProjectCommand::RemoveProject(e) => ("removing", e.change_id.to_string()),
    }
}

/// That work has begun, or how far it is, for commands whose work takes a while: what is done, and of how much.
pub(super) fn progressed(command: &ProjectCommand, (done, total): (u64, u64)) -> Option<ProjectEvent> {
    let number = |counted: u64| i64::try_from(counted).unwrap_or(i64::MAX);
    let progress = |project_id: ProjectId, namespace: &Namespace| ProjectProgressed {
        project_id,
        namespace: namespace.clone(),
        phase: subject(command).0.to_owned(),
        about: subject(command).1,
        name: String::new(),
        source: String::new(),
        file: String::new(),
        done: number(done),
        total: number(total),
        at: now_ms(),
    };
    Some(match command {
        ProjectCommand::ImportProject(e) => {
            let (name, source) = (e.name.clone(), e.source.clone());
            ProjectProgressed { name, source, ..progress(e.project_id, &e.namespace) }.into()
        }
        ProjectCommand::AnalyzeProject(e) => progress(e.project_id, &e.namespace).into(),
        ProjectCommand::ImproveFile(e) => {
            ProjectProgressed { file: e.file.clone(), ..progress(e.project_id, &e.namespace) }.into()
        }
        ProjectCommand::ApplyProposal(_) | ProjectCommand::RevertFile(_) | ProjectCommand::RemoveProject(_) => {
            return None;
        }
    })
}

/// The event with which a command ends that can't be done.
pub(super) fn failed(command: &ProjectCommand, phase: &str, about: String, error: Failure) -> ProjectEvent {
    let failed = |project_id: ProjectId, namespace: &Namespace, name: &str, source: &str| ProjectFailed {
        project_id,
        namespace: namespace.clone(),
        phase: phase.to_owned(),
        about: about.clone(),
        name: name.to_owned(),
        source: source.to_owned(),
        error: error.clone(),
        at: now_ms(),
    };
    let refused = |(project_id, namespace): (ProjectId, &Namespace),
                   change_id: ChangeId,
                   proposal_id: Option<ProposalId>,
                   file: &str| {
        ChangeRefused {
            project_id,
            namespace: namespace.clone(),
            change_id,
            proposal_id,
            file: file.to_owned(),
            error: error.clone(),
            at: now_ms(),
        }
    };
    match command {
        ProjectCommand::ImportProject(e) => failed(e.project_id, &e.namespace, &e.name, &e.source).into(),
        ProjectCommand::AnalyzeProject(e) => failed(e.project_id, &e.namespace, "", "").into(),
        ProjectCommand::ImproveFile(e) => failed(e.project_id, &e.namespace, "", "").into(),
        ProjectCommand::ApplyProposal(e) => {
            refused((e.project_id, &e.namespace), e.change_id, Some(e.proposal_id), &e.file).into()
        }
        ProjectCommand::RevertFile(e) => refused((e.project_id, &e.namespace), e.change_id, None, &e.file).into(),
        ProjectCommand::RemoveProject(e) => refused((e.project_id, &e.namespace), e.change_id, None, "").into(),
    }
}
