//! Removing a project: a command on the log, and a receipt of what went.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use riverrun_schemas::projects::RemoveProject;
use riverrun_schemas::{ChangeId, ProjectId, now_ms};
use riverrun_stores::read_models::projects::{self, RemovalRow};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{PATIENCE, project, send, unknown};
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, NamespaceQuery, Path, Query, id};
use crate::state::AppState;
use crate::submit;
use crate::wait::until;
use crate::wire::{Problem, ProjectRemovedView};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(remove_project))
}

/// Removes a project with its analyses and proposals, and says what went. The original was never anything else than read.
#[utoipa::path(delete, path = "/projects/{id}", tag = "projects", params(("id" = String, Path), NamespaceQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same removal")),
    responses((status = 200, description = "gone", body = ProjectRemovedView), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 429, description = "the analyzer is at work on it; it is removed after that", body = Problem)))]
async fn remove_project(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
) -> Result<Reply<ProjectRemovedView>, ApiError> {
    let namespace = submit::namespace(query.namespace.as_deref())?;
    let project_id: ProjectId = id(&text)?;
    // The namespace is part of what a key stands for: a stranger with the same key gets no receipt of the owner.
    let place = format!("remove {} {text}", namespace.as_str());
    let change_id = match &key.0 {
        Some(key) => ChangeId::derive(&["idempotency-key", &place, key]),
        None => ChangeId::new(),
    };
    let sql = &state.parts().sql;
    let found = match projects::removal(sql, project_id, change_id).await? {
        Some(known) => Some(known),
        None => {
            let row = project(&state, query.namespace.as_deref(), &text).await?;
            send(&state, RemoveProject { project_id, namespace: row.namespace, change_id, at: now_ms() }.into())
                .await?;
            until(PATIENCE, || projects::removal(sql, project_id, change_id)).await?
        }
    };
    let Some(row) = found else {
        return Err(ApiError::busy("the analyzer is at work on the project; it is removed after that"));
    };
    // Another removal came first and has taken all of it.
    if row == RemovalRow::default() {
        return Err(unknown(project_id));
    }
    if let Some(error) = row.error {
        let answer = ApiError::new(StatusCode::CONFLICT, error.code, error.message);
        return Err(answer.hint(error.hint.unwrap_or_else(|| "try it again".to_owned())));
    }
    Ok(Reply(ProjectRemovedView {
        project_id: text,
        name: row.name,
        files: row.files,
        size_bytes: row.size_bytes,
        analyses: row.analyses,
        proposals: row.proposals,
        changes: row.changes,
    }))
}
