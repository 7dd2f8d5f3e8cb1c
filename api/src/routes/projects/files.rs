//! The files of a copy, and what was changed in them.

use std::collections::HashMap;

use axum::Json as Reply;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use riverrun_projects::language::Language;
use riverrun_projects::text::FileText;
use riverrun_projects::{aside, patch};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::analyses::{newest, read_report};
use super::{ListQuery, copies, project, tree};
use crate::error::ApiError;
use crate::extract::{NamespaceQuery, Query};
use crate::state::AppState;
use crate::submit;
use crate::wire::{FileTextView, Page, Problem, ProjectFileView};

/// Largest file that is shown, in bytes.
const MAX_SHOWN: u64 = 1 << 20;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(files)).routes(routes!(file)).routes(routes!(patch_of))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct FileQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// Path within the copy.
    path: String,
}

/// The files of the copy, by path.
#[utoipa::path(get, path = "/projects/{id}/files", tag = "projects", params(("id" = String, Path), ListQuery), responses((status = 200, body = Page<ProjectFileView>), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn files(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Page<ProjectFileView>>, ApiError> {
    let page = submit::page(query.limit, query.cursor)?;
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let tree = tree(&state, &row).await?;
    let mut counts: HashMap<String, u64> = HashMap::new();
    if let Some(analysis) = newest(&state, &row).await? {
        for finding in read_report(&state, &row, &analysis).await?.findings {
            *counts.entry(finding.file).or_default() += 1;
        }
    }
    let limit = usize::try_from(page.limit()).unwrap_or(usize::MAX);
    let after = page.cursor.unwrap_or_default();
    let mut rest = tree.entries.iter().filter(|(path, _)| path.as_str() > after.as_str());
    let items: Vec<ProjectFileView> = rest
        .by_ref()
        .take(limit)
        .map(|(path, entry)| ProjectFileView {
            path: path.clone(),
            size_bytes: entry.size_bytes,
            language: Language::of(path).map(|language| language.name().to_owned()),
            findings: counts.get(path).copied().unwrap_or(0),
        })
        .collect();
    let next_cursor = rest.next().and_then(|_| items.last().map(|item| item.path.clone()));
    Ok(Reply(Page { items, next_cursor }))
}

/// The text of a file of the copy.
#[utoipa::path(get, path = "/projects/{id}/file", tag = "projects", params(("id" = String, Path), FileQuery), responses((status = 200, body = FileTextView), (status = 404, body = Problem), (status = 413, body = Problem), (status = 415, body = Problem)))]
async fn file(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<FileQuery>,
) -> Result<Reply<FileTextView>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let tree = tree(&state, &row).await?;
    let entry = tree.entry(&query.path)?;
    if entry.size_bytes > MAX_SHOWN {
        return Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "file_too_large",
            format!("{} has more than {MAX_SHOWN} bytes", query.path),
        ));
    }
    let content = copies(&state).file(&tree, &query.path).await?;
    let Some(shown) = FileText::read(&content) else {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_text",
            format!("{} is no text", query.path),
        ));
    };
    Ok(Reply(FileTextView { file: query.path, sha256: entry.sha256.clone(), text: shown.text }))
}

/// Everything that was changed in the copy, as `git apply` takes it.
#[utoipa::path(get, path = "/projects/{id}/patch", tag = "projects", params(("id" = String, Path), NamespaceQuery), responses((status = 200, content_type = "text/x-patch", body = String), (status = 404, body = Problem)))]
async fn patch_of(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
) -> Result<Response, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let now = tree(&state, &row).await?;
    let copies = copies(&state);
    let base = match &row.base {
        Some(base) => copies.tree(base).await?,
        None => now.clone(),
    };
    let (before, after) = copies.changed(&base, &now).await?;
    let patch = aside("comparing the files", move || patch::patch(&before, &after)).await?;
    Ok(([(CONTENT_TYPE, "text/x-patch")], patch).into_response())
}
