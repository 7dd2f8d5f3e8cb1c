//! Projects, their analyses, proposals and changes. Every event is about one project, so rows are views as JSON that its events
//! fold into. The first event of each thing counts; whatever comes twice changes nothing.

use riverrun_schemas::projects::{
    ChangeRefused, FileChanged, ProjectAnalyzed, ProjectEvent, ProjectFailed, ProjectImported, ProjectProgressed,
    ProposalMade,
};
use riverrun_schemas::{AnalysisId, BlobRef, ChangeId, Failure, Namespace, ProjectId, ProposalId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::page::{Page, PageRequest, TimeCursor};
use crate::read_models::runs::from_json;
use crate::sql::{DbConnection, Sql};

mod removals;
#[cfg(test)]
mod tests;

pub use removals::{RemovalRow, removal};

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

#[derive(Clone, Copy)]
enum Table {
    Projects,
    Analyses,
    Proposals,
    Changes,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Projects => "projects",
            Table::Analyses => "project_analyses",
            Table::Proposals => "project_proposals",
            Table::Changes => "project_changes",
        }
    }

    fn select(self) -> &'static str {
        match self {
            Table::Projects => "SELECT view FROM projects WHERE project_id = $1 AND project_id = $2",
            Table::Analyses => "SELECT view FROM project_analyses WHERE analysis_id = $1 AND project_id = $2",
            Table::Proposals => "SELECT view FROM project_proposals WHERE proposal_id = $1 AND project_id = $2",
            Table::Changes => "SELECT view FROM project_changes WHERE change_id = $1 AND project_id = $2",
        }
    }

    fn upsert(self) -> &'static str {
        match self {
            Table::Projects => {
                "INSERT INTO projects (project_id, namespace, created_at, view) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (project_id) DO UPDATE SET view = excluded.view"
            }
            Table::Analyses => {
                "INSERT INTO project_analyses (analysis_id, project_id, created_at, view) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (analysis_id) DO UPDATE SET view = excluded.view"
            }
            Table::Proposals => {
                "INSERT INTO project_proposals (proposal_id, project_id, created_at, view) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (proposal_id) DO UPDATE SET view = excluded.view"
            }
            Table::Changes => {
                "INSERT INTO project_changes (change_id, project_id, created_at, view) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (change_id) DO UPDATE SET view = excluded.view"
            }
        }
    }
}

async fn load<T: DeserializeOwned>(
    connection: &mut DbConnection,
    table: Table,
    id: &str,
    project: &str,
) -> Result<Option<T>, StoreError> {
    let row = sqlx::query(table.select()).bind(id).bind(project).fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(None) };
    let text: String = row.try_get("view")?;
    from_json(table.name(), id, &text).map(Some)
}

/// `owner` is the namespace of a project, and the project of everything else.
async fn save<T: Serialize>(
    connection: &mut DbConnection,
    table: Table,
    id: &str,
    (owner, at): (&str, i64),
    value: &T,
) -> Result<(), StoreError> {
    // Texts, numbers and lists of them: can't fail.
    let text = serde_json::to_string(value).unwrap_or_default();
    sqlx::query(table.upsert()).bind(id).bind(owner).bind(at).bind(text).execute(connection).await?;
    Ok(())
}

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

async fn find<T: DeserializeOwned>(sql: &Sql, table: Table, id: &str, project: &str) -> Result<Option<T>, StoreError> {
    let attempt = async {
        let mut connection = sql.reader().acquire().await?;
        load(&mut connection, table, id, project).await
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}

/// A project of a namespace; `None` when there is no such project there.
pub async fn project(
    sql: &Sql,
    namespace: &Namespace,
    project_id: ProjectId,
) -> Result<Option<ProjectRow>, StoreError> {
    let id = project_id.to_string();
    let row: Option<ProjectRow> = find(sql, Table::Projects, &id, &id).await?;
    Ok(row.filter(|row| row.namespace == *namespace))
}

/// An analysis of a project.
pub async fn analysis(sql: &Sql, project: ProjectId, id: AnalysisId) -> Result<Option<AnalysisRow>, StoreError> {
    find(sql, Table::Analyses, &id.to_string(), &project.to_string()).await
}

/// A proposal of a project.
pub async fn proposal(sql: &Sql, project: ProjectId, id: ProposalId) -> Result<Option<ProposalRow>, StoreError> {
    find(sql, Table::Proposals, &id.to_string(), &project.to_string()).await
}

/// What became of a change.
pub async fn change(sql: &Sql, project: ProjectId, id: ChangeId) -> Result<Option<ChangeRow>, StoreError> {
    find(sql, Table::Changes, &id.to_string(), &project.to_string()).await
}

async fn list<T: DeserializeOwned>(
    sql: &Sql,
    (table, query): (Table, &'static str),
    owner: &str,
    page: &PageRequest,
    place: impl Fn(&T) -> (i64, String),
) -> Result<Page<T>, StoreError> {
    let limit = page.limit();
    let after = page.cursor.as_deref().map(TimeCursor::decode).transpose()?;
    let (at, id) = after.map_or((i64::MAX, String::new()), |cursor| (cursor.at, cursor.id));
    let attempt = async {
        let rows = sqlx::query(query).bind(owner).bind(at).bind(id).bind(limit + 1).fetch_all(sql.reader()).await?;
        rows.iter()
            .map(|row| {
                let text: String = row.try_get("view")?;
                from_json(table.name(), owner, &text)
            })
            .collect::<Result<Vec<T>, StoreError>>()
    };
    let items = attempt.await.map_err(|error: StoreError| error.at(sql.path()))?;
    Ok(Page::of(items, limit, |item| {
        let (at, id) = place(item);
        TimeCursor::encode(at, &id)
    }))
}

/// The projects of a namespace, newest first.
pub async fn projects(sql: &Sql, namespace: &Namespace, page: &PageRequest) -> Result<Page<ProjectRow>, StoreError> {
    let query =
        "SELECT view FROM projects WHERE namespace = $1 AND (created_at < $2 OR (created_at = $2 AND project_id > $3))
                 ORDER BY created_at DESC, project_id LIMIT $4";
    let place = |row: &ProjectRow| (row.created_at, row.project_id.to_string());
    list(sql, (Table::Projects, query), namespace.as_str(), page, place).await
}

/// The analyses of a project, newest first.
pub async fn analyses(sql: &Sql, project: ProjectId, page: &PageRequest) -> Result<Page<AnalysisRow>, StoreError> {
    let query = "SELECT view FROM project_analyses WHERE project_id = $1 AND (created_at < $2 OR (created_at = $2 AND analysis_id > $3))
                 ORDER BY created_at DESC, analysis_id LIMIT $4";
    let place = |row: &AnalysisRow| (row.created_at, row.analysis_id.to_string());
    list(sql, (Table::Analyses, query), &project.to_string(), page, place).await
}

/// The proposals of a project, newest first.
pub async fn proposals(sql: &Sql, project: ProjectId, page: &PageRequest) -> Result<Page<ProposalRow>, StoreError> {
    let query = "SELECT view FROM project_proposals WHERE project_id = $1 AND (created_at < $2 OR (created_at = $2 AND proposal_id > $3))
                 ORDER BY created_at DESC, proposal_id LIMIT $4";
    let place = |row: &ProposalRow| (row.created_at, row.proposal_id.to_string());
    list(sql, (Table::Proposals, query), &project.to_string(), page, place).await
}
