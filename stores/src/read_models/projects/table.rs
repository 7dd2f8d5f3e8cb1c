//! Where the rows lie.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::runs::from_json;
use crate::sql::DbConnection;

#[derive(Clone, Copy)]
pub(super) enum Table {
    Projects,
    Analyses,
    Proposals,
    Changes,
}

impl Table {
    pub(super) fn name(self) -> &'static str {
        match self {
            Table::Projects => "projects",
            Table::Analyses => "project_analyses",
            Table::Proposals => "project_proposals",
            Table::Changes => "project_changes",
        }
    }

    pub(super) fn select(self) -> &'static str {
        match self {
            Table::Projects => "SELECT view FROM projects WHERE project_id = $1 AND project_id = $2",
            Table::Analyses => "SELECT view FROM project_analyses WHERE analysis_id = $1 AND project_id = $2",
            Table::Proposals => "SELECT view FROM project_proposals WHERE proposal_id = $1 AND project_id = $2",
            Table::Changes => "SELECT view FROM project_changes WHERE change_id = $1 AND project_id = $2",
        }
    }

    pub(super) fn upsert(self) -> &'static str {
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

pub(super) async fn load<T: DeserializeOwned>(
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
pub(super) async fn save<T: Serialize>(
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
