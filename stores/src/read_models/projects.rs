//! Projects, their analyses, proposals and changes. Every event is about one project, so rows are views as JSON that its events
//! fold into. The first event of each thing counts; whatever comes twice changes nothing.

use riverrun_schemas::projects::{
    ChangeRefused, FileChanged, ProjectAnalyzed, ProjectEvent, ProjectFailed, ProjectImported, ProjectProgressed,
    ProposalMade,
};
use riverrun_schemas::{AnalysisId, Namespace, ProjectId, ProposalId};

use crate::error::StoreError;
use crate::sql::DbConnection;

mod queries;
mod removals;
mod rows;
mod table;
#[cfg(test)]
mod tests;

pub use queries::{analyses, analysis, change, done_analyses, open_proposal, project, projects, proposal, proposals};
pub use removals::{RemovalRow, removal};
pub use rows::{AnalysisRow, ChangeRow, ProjectRow, ProposalRow};
use table::{Table, load, save};

async fn save_project(connection: &mut DbConnection, row: &ProjectRow) -> Result<(), StoreError> {
    let id = row.project_id.to_string();
    save(connection, Table::Projects, &id, (row.namespace.as_str(), row.created_at), row).await
}

async fn project_or_new(
    connection: &mut DbConnection,
    project_id: ProjectId,
    namespace: &Namespace,
    at: i64,
) -> Result<ProjectRow, StoreError> {
    let id = project_id.to_string();
    let known = load(connection, Table::Projects, &id, &id).await?;
    Ok(known.unwrap_or_else(|| ProjectRow {
        project_id,
        namespace: namespace.clone(),
        name: String::new(),
        source: String::new(),
        status: "importing".to_owned(),
        files: 0,
        size_bytes: 0,
        skipped: 0,
        languages_json: "[]".to_owned(),
        source_sha256: None,
        base: None,
        tree: None,
        error: None,
        analyses: 0,
        done: 0,
        total: 0,
        created_at: at,
        updated_at: at,
    }))
}

pub(crate) async fn apply(connection: &mut DbConnection, event: &ProjectEvent) -> Result<(), StoreError> {
    match event {
        ProjectEvent::ProjectProgressed(e) => progressed(connection, e).await,
        ProjectEvent::ProjectImported(e) => imported(connection, e).await,
        ProjectEvent::ProjectFailed(e) => failed(connection, e).await,
        ProjectEvent::ProjectAnalyzed(e) => analyzed(connection, e).await,
        ProjectEvent::ProposalMade(e) => proposed(connection, e).await,
        ProjectEvent::FileChanged(e) => changed(connection, e).await,
        ProjectEvent::ChangeRefused(e) => refused(connection, e).await,
        ProjectEvent::ProjectRemoved(e) => removals::removed(connection, e).await,
    }
}

async fn progressed(connection: &mut DbConnection, e: &ProjectProgressed) -> Result<(), StoreError> {
    let mut row = project_or_new(connection, e.project_id, &e.namespace, e.at).await?;
    match e.phase.as_str() {
        "importing" if row.tree.is_none() && row.error.is_none() => {
            row.name.clone_from(&e.name);
            row.source.clone_from(&e.source);
            row.files = row.done.max(e.done);
        }
        "analyzing" => {
            let project = e.project_id.to_string();
            let known = load::<AnalysisRow>(connection, Table::Analyses, &e.about, &project).await?;
            match known {
                Some(known) if known.report.is_some() || known.error.is_some() => return Ok(()),
                Some(_) => {}
                None => {
                    let Ok(analysis_id) = e.about.parse::<AnalysisId>() else { return Ok(()) };
                    (row.done, row.total) = (0, 0);
                    row.status = "analyzing".to_owned();
                    let analysis = empty_analysis(analysis_id, e.at);
                    save(connection, Table::Analyses, &e.about, (&project, e.at), &analysis).await?;
                }
            }
        }
        "improving" => {
            let project = e.project_id.to_string();
            if load::<ProposalRow>(connection, Table::Proposals, &e.about, &project).await?.is_some() {
                return Ok(());
            }
            let Ok(proposal_id) = e.about.parse::<ProposalId>() else { return Ok(()) };
            let proposal = empty_proposal(proposal_id, &e.file, e.at);
            return save(connection, Table::Proposals, &e.about, (&project, e.at), &proposal).await;
        }
        _ => return Ok(()),
    }
    // Work that is done again after a crash begins at nothing, and nobody is told less than before.
    row.done = row.done.max(e.done);
    row.total = row.total.max(e.total);
    row.updated_at = e.at;
    save_project(connection, &row).await
}

fn empty_analysis(analysis_id: AnalysisId, at: i64) -> AnalysisRow {
    AnalysisRow { analysis_id, report: None, findings: 0, counts_json: "{}".to_owned(), error: None, created_at: at }
}

fn empty_proposal(proposal_id: ProposalId, file: &str, at: i64) -> ProposalRow {
    ProposalRow {
        proposal_id,
        file: file.to_owned(),
        status: "proposing".to_owned(),
        diff: String::new(),
        before_sha256: String::new(),
        after: None,
        findings_before: 0,
        findings_after: 0,
        improves: false,
        note: None,
        error: None,
        model: String::new(),
        prompt_tokens: 0,
        completion_tokens: 0,
        tests_json: None,
        created_at: at,
    }
}

async fn imported(connection: &mut DbConnection, e: &ProjectImported) -> Result<(), StoreError> {
    let mut row = project_or_new(connection, e.project_id, &e.namespace, e.at).await?;
    if row.base.is_some() || row.error.is_some() {
        return Ok(());
    }
    row.name.clone_from(&e.name);
    row.source.clone_from(&e.source);
    row.status = "imported".to_owned();
    row.files = e.files;
    row.size_bytes = e.size_bytes;
    row.skipped = e.skipped;
    row.languages_json.clone_from(&e.languages_json);
    row.source_sha256 = Some(e.source_sha256.clone());
    row.base = Some(e.tree.clone());
    row.tree = Some(e.tree.clone());
    row.updated_at = e.at;
    save_project(connection, &row).await
}

async fn failed(connection: &mut DbConnection, e: &ProjectFailed) -> Result<(), StoreError> {
    let project = e.project_id.to_string();
    let mut row = project_or_new(connection, e.project_id, &e.namespace, e.at).await?;
    match e.phase.as_str() {
        "importing" if row.base.is_none() && row.error.is_none() => {
            row.name.clone_from(&e.name);
            row.source.clone_from(&e.source);
            row.status = "failed".to_owned();
            row.error = Some(e.error.clone());
        }
        "analyzing" => {
            let Ok(analysis_id) = e.about.parse::<AnalysisId>() else { return Ok(()) };
            let known = load::<AnalysisRow>(connection, Table::Analyses, &e.about, &project).await?;
            let mut analysis = known.unwrap_or_else(|| empty_analysis(analysis_id, e.at));
            if analysis.report.is_some() || analysis.error.is_some() {
                return Ok(());
            }
            analysis.error = Some(e.error.clone());
            save(connection, Table::Analyses, &e.about, (&project, analysis.created_at), &analysis).await?;
            if row.tree.is_none() {
                return Ok(());
            }
            row.status = if row.analyses > 0 { "analyzed" } else { "imported" }.to_owned();
        }
        "improving" => {
            let Ok(proposal_id) = e.about.parse::<ProposalId>() else { return Ok(()) };
            let known = load::<ProposalRow>(connection, Table::Proposals, &e.about, &project).await?;
            let mut proposal = known.unwrap_or_else(|| empty_proposal(proposal_id, "", e.at));
            if proposal.status != "proposing" {
                return Ok(());
            }
            proposal.status = "refused".to_owned();
            proposal.note = Some(e.error.message.clone());
            proposal.error = Some(e.error.clone());
            return save(connection, Table::Proposals, &e.about, (&project, proposal.created_at), &proposal).await;
        }
        _ => return Ok(()),
    }
    row.updated_at = e.at;
    save_project(connection, &row).await
}

async fn analyzed(connection: &mut DbConnection, e: &ProjectAnalyzed) -> Result<(), StoreError> {
    let (id, project) = (e.analysis_id.to_string(), e.project_id.to_string());
    let known = load::<AnalysisRow>(connection, Table::Analyses, &id, &project).await?;
    let mut analysis = known.unwrap_or_else(|| empty_analysis(e.analysis_id, e.at));
    if analysis.report.is_some() || analysis.error.is_some() {
        return Ok(());
    }
    analysis.report = Some(e.report.clone());
    analysis.findings = e.findings;
    analysis.counts_json.clone_from(&e.counts_json);
    save(connection, Table::Analyses, &id, (&project, analysis.created_at), &analysis).await?;
    let mut row = project_or_new(connection, e.project_id, &e.namespace, e.at).await?;
    row.status = "analyzed".to_owned();
    row.analyses += 1;
    row.updated_at = e.at;
    save_project(connection, &row).await
}

async fn proposed(connection: &mut DbConnection, e: &ProposalMade) -> Result<(), StoreError> {
    let (id, project) = (e.proposal_id.to_string(), e.project_id.to_string());
    let known = load::<ProposalRow>(connection, Table::Proposals, &id, &project).await?;
    let known = known.unwrap_or_else(|| empty_proposal(e.proposal_id, &e.file, e.at));
    if known.status != "proposing" {
        return Ok(());
    }
    let row = ProposalRow {
        proposal_id: e.proposal_id,
        file: e.file.clone(),
        status: if e.after.is_some() { "proposed" } else { "refused" }.to_owned(),
        diff: e.diff.clone(),
        before_sha256: e.before_sha256.clone(),
        after: e.after.clone(),
        findings_before: e.findings_before,
        findings_after: e.findings_after,
        improves: e.improves,
        note: e.note.clone(),
        error: None,
        model: e.model.clone(),
        prompt_tokens: e.prompt_tokens,
        completion_tokens: e.completion_tokens,
        tests_json: e.tests_json.clone(),
        created_at: known.created_at,
    };
    save(connection, Table::Proposals, &id, (&project, row.created_at), &row).await
}

async fn proposal_becomes(
    connection: &mut DbConnection,
    project: &str,
    proposal: Option<ProposalId>,
    status: &str,
) -> Result<(), StoreError> {
    let Some(id) = proposal.map(|id| id.to_string()) else { return Ok(()) };
    let known = load::<ProposalRow>(connection, Table::Proposals, &id, project).await?;
    let Some(mut row) = known.filter(|row| row.status == "proposed") else { return Ok(()) };
    row.status = status.to_owned();
    save(connection, Table::Proposals, &id, (project, row.created_at), &row).await
}

async fn changed(connection: &mut DbConnection, e: &FileChanged) -> Result<(), StoreError> {
    let (id, project) = (e.change_id.to_string(), e.project_id.to_string());
    if load::<ChangeRow>(connection, Table::Changes, &id, &project).await?.is_some() {
        return Ok(());
    }
    let change =
        ChangeRow { change_id: e.change_id, file: e.file.clone(), after_sha256: e.after_sha256.clone(), error: None };
    save(connection, Table::Changes, &id, (&project, e.at), &change).await?;
    proposal_becomes(connection, &project, e.proposal_id, "applied").await?;
    let mut row = project_or_new(connection, e.project_id, &e.namespace, e.at).await?;
    row.tree = Some(e.tree.clone());
    row.updated_at = e.at;
    save_project(connection, &row).await
}

async fn refused(connection: &mut DbConnection, e: &ChangeRefused) -> Result<(), StoreError> {
    let (id, project) = (e.change_id.to_string(), e.project_id.to_string());
    if load::<ChangeRow>(connection, Table::Changes, &id, &project).await?.is_some() {
        return Ok(());
    }
    let change = ChangeRow {
        change_id: e.change_id,
        file: e.file.clone(),
        after_sha256: String::new(),
        error: Some(e.error.clone()),
    };
    save(connection, Table::Changes, &id, (&project, e.at), &change).await?;
    let stale = e.proposal_id.filter(|_| e.error.code == "stale_proposal");
    proposal_becomes(connection, &project, stale, "stale").await
}
