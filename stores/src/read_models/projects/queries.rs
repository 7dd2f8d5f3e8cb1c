//! What is asked of projects.

use riverrun_schemas::{AnalysisId, ChangeId, Namespace, ProjectId, ProposalId};
use serde::de::DeserializeOwned;
use sqlx::Row;

use super::table::{Table, load};
use super::{AnalysisRow, ChangeRow, ProjectRow, ProposalRow};
use crate::error::StoreError;
use crate::read_models::page::{Page, PageRequest, TimeCursor};
use crate::read_models::runs::from_json;
use crate::sql::Sql;

/// How many are read together where one is looked for.
const FEW: u32 = 50;

pub(super) async fn find<T: DeserializeOwned>(
    sql: &Sql,
    table: Table,
    id: &str,
    project: &str,
) -> Result<Option<T>, StoreError> {
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

/// The analyses of a project that are done, newest first, `limit` at most; those before `before` where one is given.
pub async fn done_analyses(
    sql: &Sql,
    project: ProjectId,
    before: Option<&AnalysisRow>,
    limit: u32,
) -> Result<Vec<AnalysisRow>, StoreError> {
    let cursor = before.map(|row| TimeCursor::encode(row.created_at, &row.analysis_id.to_string()));
    let mut page = PageRequest { limit: Some(limit.max(FEW)), cursor };
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut done = Vec::new();
    // Beside them lie those that failed, as many as there may be.
    loop {
        let found = analyses(sql, project, &page).await?;
        done.extend(found.items.into_iter().filter(|one| one.report.is_some()));
        page.cursor = found.next_cursor;
        if done.len() >= most || page.cursor.is_none() {
            done.truncate(most);
            return Ok(done);
        }
    }
}

/// The proposals of a project, newest first.
pub async fn proposals(sql: &Sql, project: ProjectId, page: &PageRequest) -> Result<Page<ProposalRow>, StoreError> {
    let query = "SELECT view FROM project_proposals WHERE project_id = $1 AND (created_at < $2 OR (created_at = $2 AND proposal_id > $3))
                 ORDER BY created_at DESC, proposal_id LIMIT $4";
    let place = |row: &ProposalRow| (row.created_at, row.proposal_id.to_string());
    list(sql, (Table::Proposals, query), &project.to_string(), page, place).await
}

/// The newest proposal for a file that may be applied; `None` when there is no such proposal.
pub async fn open_proposal(sql: &Sql, project: ProjectId, file: &str) -> Result<Option<ProposalRow>, StoreError> {
    let mut page = PageRequest { limit: Some(FEW), cursor: None };
    loop {
        let found = proposals(sql, project, &page).await?;
        let newest = found.items.into_iter().find(|one| one.file == file && one.status == "proposed");
        page.cursor = found.next_cursor;
        if newest.is_some() || page.cursor.is_none() {
            return Ok(newest);
        }
    }
}
