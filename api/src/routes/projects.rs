//! Projects: code in isolated copies, analyses, proposals and changes. Every route works in one namespace.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::multipart::Multipart;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use riverrun_projects::ProjectError;
use riverrun_projects::copy::{CopyStore, Tree};
use riverrun_projects::import::{Origin, origin};
use riverrun_schemas::projects::{ImportProject, ProjectCommand};
use riverrun_schemas::{BlobRef, Failure, ProjectId, now_ms};
use riverrun_stores::StoreError;
use riverrun_stores::read_models::keyed::KeyedTable;
use riverrun_stores::read_models::projects::{self, ProjectRow};
use riverrun_stores::read_models::{Timestamp, failure_view};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use super::form;
use super::runs::location;
use crate::accept::COMPONENT;
use crate::config::MAX_UPLOAD_BYTES;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, NamespaceQuery, Path, Query, id};
use crate::keyed::Keyed;
use crate::prefer::Patience;
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wait::until;
use crate::wire::{ImportBody, Page, Problem, ProjectAccepted, ProjectProgressView, ProjectView};

mod analyses;
mod files;
mod page;
mod proposals;
mod removal;

/// How long an answer waits for what was asked to show in the read model.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest text field, in bytes.
const MAX_TEXT: usize = 4_096;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(import).layer(crate::upload_limit()))
        .routes(routes!(list))
        .routes(routes!(show))
        .merge(analyses::router())
        .merge(files::router())
        .merge(proposals::router())
        .merge(removal::router())
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// Most items, 500 at most.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

impl From<ProjectError> for ApiError {
    fn from(error: ProjectError) -> Self {
        match error {
            ProjectError::Source(error) => error.into(),
            ProjectError::Model(error) => error.into(),
            ProjectError::Blob(error) => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.code(), error.to_string()),
            ProjectError::Refused { code: "tools_busy", message, hint } => Self::busy(message).hint(hint),
            ProjectError::Refused { code, message, hint } => Self::new(status_of(code), code, message).hint(hint),
        }
    }
}

/// The status of a refusal with this code.
fn status_of(code: &str) -> StatusCode {
    match code {
        "file_not_found" | "tool_not_found" => StatusCode::NOT_FOUND,
        "registry_unreachable" => StatusCode::SERVICE_UNAVAILABLE,
        "work_broke_off" => StatusCode::INTERNAL_SERVER_ERROR,
        "stale_proposal" | "nothing_to_undo" | "not_imported" => StatusCode::CONFLICT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// What work that was waited for has failed on, as an answer.
fn refusal(failure: Failure, fix: &str) -> ApiError {
    let Failure { code, message, hint } = failure;
    ApiError::new(status_of(&code), code, message).hint(hint.unwrap_or_else(|| fix.to_owned()))
}

async fn project(state: &AppState, given: Option<&str>, text: &str) -> Result<ProjectRow, ApiError> {
    let (namespace, project_id) = (submit::namespace(given)?, id::<ProjectId>(text)?);
    let found = projects::project(&state.parts().sql, &namespace, project_id).await?;
    found.ok_or_else(|| unknown(project_id))
}

fn unknown(project_id: ProjectId) -> ApiError {
    ApiError::not_found("project_not_found", format!("there is no project {project_id}"))
        .hint("riverrun project ls lists them")
}

/// What was looked for; where it is not there and its project was removed meanwhile, 404: it will never come.
async fn or_gone<T>(state: &AppState, row: &ProjectRow, found: Option<T>) -> Result<Option<T>, ApiError> {
    if found.is_none() && projects::project(&state.parts().sql, &row.namespace, row.project_id).await?.is_none() {
        return Err(unknown(row.project_id));
    }
    Ok(found)
}

fn copies(state: &AppState) -> CopyStore {
    CopyStore::new(state.parts().blobs.clone())
}

fn tree_blob(row: &ProjectRow) -> Result<&BlobRef, ApiError> {
    row.tree.as_ref().ok_or_else(|| {
        ApiError::conflict("not_imported", format!("project {} is {}", row.project_id, row.status))
            .hint("wait until it is imported")
    })
}

async fn tree(state: &AppState, row: &ProjectRow) -> Result<Tree, ApiError> {
    Ok(copies(state).tree(tree_blob(row)?).await?)
}

async fn send(state: &AppState, command: ProjectCommand) -> Result<(), ApiError> {
    state.parts().producer.send(&command, COMPONENT, None).await?;
    Ok(())
}

fn view(row: &ProjectRow) -> ProjectView {
    ProjectView {
        project_id: row.project_id.to_string(),
        name: row.name.clone(),
        source: row.source.clone(),
        status: row.status.clone(),
        files: row.files,
        languages: serde_json::from_str(&row.languages_json).unwrap_or_default(),
        size_bytes: row.size_bytes,
        skipped: row.skipped,
        source_sha256: row.source_sha256.clone(),
        error: row.error.as_ref().map(failure_view),
        analyses: row.analyses,
        progress: progress(row),
        created_at: Timestamp(row.created_at),
        updated_at: Timestamp(row.updated_at),
    }
}

/// While something is done.
fn progress(row: &ProjectRow) -> Option<ProjectProgressView> {
    let is_going_on = matches!(row.status.as_str(), "importing" | "analyzing");
    is_going_on.then(|| ProjectProgressView { done: row.done, total: (row.total > 0).then_some(row.total) })
}

/// Copies a folder or archive of the server, a repository, or (as `multipart/form-data` with a field `file`) an archive that is handed
/// in. The original is only read. Waits for the copy, unless `Prefer` says otherwise.
#[utoipa::path(post, path = "/projects/import", tag = "projects", request_body = ImportBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same project"),
        ("Prefer" = Option<String>, Header, description = "`respond-async` does not wait; `wait=N` waits N seconds, 300 at most; 30 when left out")),
    responses((status = 200, description = "it is imported", body = ProjectView), (status = 202, description = "accepted, and not waited for any longer", body = ProjectAccepted), (status = 404, body = Problem), (status = 413, body = Problem), (status = 422, body = Problem)))]
async fn import(
    State(state): State<AppState>,
    key: IdempotencyKey,
    patience: Patience,
    request: Request,
) -> Result<Response, ApiError> {
    let (body, content) = if form::is_form(&request) {
        let form = form::of(request).await?;
        uploaded(&state, form).await?
    } else {
        let Json(body) = Json::<ImportBody>::from_request(request, &state).await?;
        (body, None)
    };
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    checks.text("source", &body.source, MAX_TEXT);
    checks.finish()?;
    let source = if content.is_some() { body.source.clone() } else { allowed(&state, &body.source).await? };
    let last = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name: String = body.name.as_deref().unwrap_or(last).chars().filter(|c| !c.is_control()).take(200).collect();
    let keyed: Option<Keyed<'_, ProjectId>> = match &key.0 {
        Some(key) => {
            let content = content.as_ref().map(|blob| &blob.sha256);
            let asked = json!({ "name": &name, "source": &source, "content": content });
            Some(Keyed::new(key, "project", &["idempotency-key", namespace.as_str(), key], &asked)?)
        }
        None => None,
    };
    let project_id = match &keyed {
        Some(keyed) => keyed.id(&state.parts().sql, KeyedTable::Projects).await?,
        None => ProjectId::new(),
    };
    let held = keyed.as_ref().map(|keyed| keyed.reserve(state.reservations())).transpose()?;
    let _slot = patience.slot(&state)?;
    let command = ImportProject { project_id, namespace: namespace.clone(), name, source, content, at: now_ms() };
    send(&state, command.into()).await?;
    if let Some(held) = held {
        held.keep();
    }
    let known = || projects::project(&state.parts().sql, &namespace, project_id);
    until(PATIENCE, known).await?;
    let ended = patience.until(|| async {
        let row = known().await?;
        Ok::<_, StoreError>(row.filter(|row| row.tree.is_some() || row.error.is_some()))
    });
    if let Some(row) = ended.await? {
        return match row.error {
            Some(failure) => Err(refusal(failure, "correct the source, and import it again")),
            None => Ok(Reply(view(&row)).into_response()),
        };
    }
    let accepted = ProjectAccepted { project_id: project_id.to_string() };
    Ok((StatusCode::ACCEPTED, location(&format!("/projects/{project_id}")), Reply(accepted)).into_response())
}

/// The source as it goes on the log, when a caller may have it read.
async fn allowed(state: &AppState, source: &str) -> Result<String, ApiError> {
    let config = state.core().config().clone();
    match origin(source)? {
        Origin::Git(riverrun_knowledge::sources::GitAddress::Https(url)) => {
            config.web.check_url(url.as_str())?;
            Ok(source.to_owned())
        }
        Origin::Git(_) | Origin::Folder(_) | Origin::Zip(_) => {
            let source = source.to_owned();
            tokio::task::spawn_blocking(move || submit::resolve_under(&config.ingest_roots, &source))
                .await
                .map_err(|_| ApiError::internal("looking at the source broke off"))?
        }
    }
}

async fn uploaded(state: &AppState, mut form: Multipart) -> Result<(ImportBody, Option<BlobRef>), ApiError> {
    let mut body = ImportBody::default();
    let mut content = None;
    let mut once = form::Once::default();
    while let Some(field) = form::next(&mut form).await? {
        let name = field.name().unwrap_or_default().to_owned();
        once.take(&name)?;
        match name.as_str() {
            "file" => {
                let file = field.file_name().unwrap_or("project.zip").to_owned();
                let bytes = form::bytes(field, MAX_UPLOAD_BYTES).await?;
                body.source = format!("upload/{}", file.rsplit(['/', '\\']).next().unwrap_or_default());
                content = Some(state.parts().blobs.put_bytes(bytes, "application/zip").await?);
            }
            "name" => body.name = Some(form::text(field, MAX_TEXT).await?),
            "namespace" => body.namespace = Some(form::text(field, MAX_TEXT).await?),
            _ => return Err(ApiError::field(&name, "is no field of an import").hint("file, name, namespace")),
        }
    }
    if content.is_none() {
        return Err(ApiError::field("file", "is missing").hint("hand in a .zip as the field `file`"));
    }
    Ok((body, content))
}

/// The projects of a namespace, newest first.
#[utoipa::path(get, path = "/projects", tag = "projects", params(ListQuery), responses((status = 200, body = Page<ProjectView>), (status = 422, body = Problem)))]
async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Page<ProjectView>>, ApiError> {
    let namespace = submit::namespace(query.namespace.as_deref())?;
    let page = submit::page(query.limit, query.cursor)?;
    let found = projects::projects(&state.parts().sql, &namespace, &page).await?;
    Ok(Reply(Page { items: found.items.iter().map(view).collect(), next_cursor: found.next_cursor }))
}

/// A project.
#[utoipa::path(get, path = "/projects/{id}", tag = "projects", params(("id" = String, Path), NamespaceQuery), responses((status = 200, body = ProjectView), (status = 404, body = Problem)))]
async fn show(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
) -> Result<Reply<ProjectView>, ApiError> {
    Ok(Reply(view(&project(&state, query.namespace.as_deref(), &text).await?)))
}
