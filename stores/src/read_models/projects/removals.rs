//! Removals of projects: receipts, which are all that is left. They lie among the answered requests of the project.

use riverrun_schemas::projects::ProjectRemoved;
use riverrun_schemas::{ChangeId, Failure, ProjectId};
use serde::{Deserialize, Serialize};

use super::ProjectRow;
use super::queries::find;
use super::table::{Table, load, save};
use crate::error::StoreError;
use crate::sql::{DbConnection, Sql};

/// What a removal came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemovalRow {
    /// How people called it.
    pub name: String,
    /// Files of the copy.
    pub files: i64,
    /// Their bytes.
    pub size_bytes: i64,
    /// Analyses that went.
    pub analyses: i64,
    /// Proposals that went.
    pub proposals: i64,
    /// Answered changes that went.
    pub changes: i64,
    /// Why it was refused.
    pub error: Option<Failure>,
}

/// A second removal finds nothing and says so.
pub(super) async fn removed(connection: &mut DbConnection, e: &ProjectRemoved) -> Result<(), StoreError> {
    let (id, project) = (e.change_id.to_string(), e.project_id.to_string());
    if load::<RemovalRow>(connection, Table::Changes, &id, &project).await?.is_some() {
        return Ok(());
    }
    let mut removal = RemovalRow::default();
    if let Some(row) = load::<ProjectRow>(connection, Table::Projects, &project, &project).await? {
        removal = RemovalRow {
            name: row.name,
            files: row.files,
            size_bytes: row.size_bytes,
            analyses: clear(connection, "DELETE FROM project_analyses WHERE project_id = $1", &project).await?,
            proposals: clear(connection, "DELETE FROM project_proposals WHERE project_id = $1", &project).await?,
            changes: clear(connection, "DELETE FROM project_changes WHERE project_id = $1", &project).await?,
            error: None,
        };
        clear(connection, "DELETE FROM projects WHERE project_id = $1", &project).await?;
    }
    save(connection, Table::Changes, &id, (&project, e.at), &removal).await
}

async fn clear(connection: &mut DbConnection, statement: &'static str, project: &str) -> Result<i64, StoreError> {
    let done = sqlx::query(statement).bind(project).execute(connection).await?;
    Ok(i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

/// What a removal came to; `None` while it was not done.
pub async fn removal(sql: &Sql, project: ProjectId, id: ChangeId) -> Result<Option<RemovalRow>, StoreError> {
    find(sql, Table::Changes, &id.to_string(), &project.to_string()).await
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::BlobRef;
    use riverrun_schemas::projects::{ProjectEvent, ProjectImported};

    use super::*;
    use crate::read_models::projects::{apply, project};
    use crate::read_models::testing::fresh;

    #[tokio::test]
    async fn given_a_project_when_it_is_removed_twice_then_one_receipt_counts_and_nothing_is_left() {
        let (_folder, sql) = fresh().await;
        let project_id = ProjectId::derive(&["removed"]);
        let namespace: riverrun_schemas::Namespace = "team".parse().unwrap();
        let imported = ProjectImported {
            project_id,
            namespace: namespace.clone(),
            name: "mine".into(),
            source: "/x".into(),
            source_sha256: "s".into(),
            tree: BlobRef { sha256: "0".repeat(64), media_type: "application/json".into(), size_bytes: 1 },
            files: 3,
            size_bytes: 30,
            skipped: 0,
            languages_json: "[]".into(),
            at: 1,
        };
        let removal_of = |word: &str| ProjectRemoved {
            project_id,
            namespace: namespace.clone(),
            change_id: ChangeId::derive(&[word]),
            at: 2,
        };
        let events: Vec<ProjectEvent> =
            vec![imported.into(), removal_of("first").into(), removal_of("first").into(), removal_of("second").into()];
        let mut transaction = sql.begin().await.unwrap();
        for event in &events {
            apply(&mut transaction, event).await.unwrap();
        }
        transaction.commit().await.unwrap();
        assert!(project(&sql, &namespace, project_id).await.unwrap().is_none());
        let of = async |word: &str| removal(&sql, project_id, ChangeId::derive(&[word])).await.unwrap();
        assert_eq!(of("first").await.map(|row| (row.name, row.files)), Some(("mine".to_owned(), 3)));
        assert_eq!(of("second").await, Some(RemovalRow::default()));
        assert_eq!(of("third").await, None);
    }
}
