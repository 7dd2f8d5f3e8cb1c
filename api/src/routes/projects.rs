//! Projects: code in isolated copies, analyses, proposals and changes. Every route works in one namespace.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json as Reply;
use axum::extract::multipart::Multipart;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use riverrun_projects::copy::{CopyStore, Tree};
use riverrun_projects::import::{Origin, origin};
use riverrun_projects::language::Language;
use riverrun_projects::text::FileText;
use riverrun_projects::{Finding, ProjectError, Report, own_tests, patch, report};
use riverrun_schemas::projects::{
    AnalyzeProject, ApplyProposal, ImportProject, ImproveFile, ProjectCommand, RevertFile,
};
use riverrun_schemas::{AnalysisId, BlobRef, ChangeId, ProjectId, ProposalId, now_ms};
use riverrun_stores::read_models::projects::{self, AnalysisRow, ChangeRow, ProjectRow, ProposalRow};
use riverrun_stores::read_models::{PageRequest, Timestamp, failure_view};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use super::runs::location;
use super::upload;
use crate::accept::COMPONENT;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, NamespaceQuery, OptionalJson, Query, id};
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wait::until;
use crate::wire::{
    AnalysisAccepted, AnalysisView, AnalyzeBody, ApplyBody, FileChangedView, FileTextView, FindingView, ImportBody,
    ImproveBody, Page, Problem, ProjectAccepted, ProjectFileView, ProjectView, ProposalAccepted, ProposalView,
    ReportView, RevertBody, TrendView,
};

/// How long an answer waits for what was asked to show in the read model.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest file that is shown, in bytes.
const MAX_SHOWN: u64 = 1 << 20;
/// Longest text field, in bytes.
const MAX_TEXT: usize = 4_096;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(import).layer(crate::upload_limit()))
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(analyze))
        .routes(routes!(analyses))
        .routes(routes!(report_of))
        .routes(routes!(trend))
        .routes(routes!(files))
        .routes(routes!(file))
        .routes(routes!(improve))
        .routes(routes!(proposals))
        .routes(routes!(proposal))
        .routes(routes!(apply))
        .routes(routes!(revert))
        .routes(routes!(patch_of))
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

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ReportQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// The analysis; the newest when left out.
    analysis: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct TrendQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// The earlier analysis; the last but one when left out.
    from: Option<String>,
    /// The later analysis; the last when left out.
    to: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct FileQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// Path within the copy.
    path: String,
}

impl From<ProjectError> for ApiError {
    fn from(error: ProjectError) -> Self {
        match error {
            ProjectError::Source(error) => error.into(),
            ProjectError::Model(error) => error.into(),
            ProjectError::Blob(error) => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.code(), error.to_string()),
            ProjectError::Refused { code, message, hint } => {
                let status = match code {
                    "file_not_found" => StatusCode::NOT_FOUND,
                    "stale_proposal" | "nothing_to_undo" | "not_imported" => StatusCode::CONFLICT,
                    _ => StatusCode::UNPROCESSABLE_ENTITY,
                };
                Self::new(status, code, message).hint(hint)
            }
        }
    }
}

async fn project(state: &AppState, given: Option<&str>, text: &str) -> Result<ProjectRow, ApiError> {
    let (namespace, project_id) = (submit::namespace(given)?, id::<ProjectId>(text)?);
    let found = projects::project(&state.parts().sql, &namespace, project_id).await?;
    found.ok_or_else(|| {
        ApiError::not_found("project_not_found", format!("there is no project {project_id}"))
            .hint("riverrun project ls lists them")
    })
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
        created_at: Timestamp(row.created_at),
        updated_at: Timestamp(row.updated_at),
    }
}

/// Copies a folder or archive of the server, a repository, or (as `multipart/form-data` with a field `file`) an archive that is handed
/// in. The original is only read.
#[utoipa::path(post, path = "/projects/import", tag = "projects", request_body = ImportBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same project")),
    responses((status = 202, body = ProjectAccepted), (status = 404, body = Problem), (status = 413, body = Problem), (status = 422, body = Problem)))]
async fn import(State(state): State<AppState>, key: IdempotencyKey, request: Request) -> Result<Response, ApiError> {
    let (body, content) = if upload::is_multipart(&request) {
        let form = upload::form(request).await?;
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
    let project_id = match &key.0 {
        Some(key) => ProjectId::derive(&["idempotency-key", namespace.as_str(), key]),
        None => ProjectId::new(),
    };
    let command = ImportProject { project_id, namespace: namespace.clone(), name, source, content, at: now_ms() };
    send(&state, command.into()).await?;
    until(PATIENCE, || projects::project(&state.parts().sql, &namespace, project_id)).await?;
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
    let unreadable = |error: axum::extract::multipart::MultipartError| {
        ApiError::new(error.status(), "invalid_multipart", error.body_text())
    };
    let mut body = ImportBody::default();
    let mut content = None;
    while let Some(field) = form.next_field().await.map_err(unreadable)? {
        let name = field.name().unwrap_or_default().to_owned();
        match name.as_str() {
            "file" => {
                let file = field.file_name().unwrap_or("project.zip").to_owned();
                let bytes = field.bytes().await.map_err(unreadable)?;
                body.source = format!("upload/{}", file.rsplit(['/', '\\']).next().unwrap_or_default());
                content = Some(state.parts().blobs.put_bytes(bytes, "application/zip").await?);
            }
            "name" => body.name = Some(field.text().await.map_err(unreadable)?),
            "namespace" => body.namespace = Some(field.text().await.map_err(unreadable)?),
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
    let page = PageRequest { limit: query.limit, cursor: query.cursor };
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

/// Analyzes the copy in the background.
#[utoipa::path(post, path = "/projects/{id}/analyze", tag = "projects", params(("id" = String, Path), NamespaceQuery), request_body = AnalyzeBody,
    responses((status = 202, body = AnalysisAccepted), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn analyze(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
    OptionalJson(body): OptionalJson<AnalyzeBody>,
) -> Result<Response, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    tree_blob(&row)?;
    let analysis_id = match &key.0 {
        Some(key) => AnalysisId::derive(&["idempotency-key", &text, key]),
        None => AnalysisId::new(),
    };
    let command = AnalyzeProject {
        project_id: row.project_id,
        namespace: row.namespace.clone(),
        analysis_id,
        review: body.review.unwrap_or(true),
        model: body.model,
        at: now_ms(),
    };
    send(&state, command.into()).await?;
    until(PATIENCE, || projects::analysis(&state.parts().sql, row.project_id, analysis_id)).await?;
    let accepted = AnalysisAccepted { project_id: text.clone(), analysis_id: analysis_id.to_string() };
    let place = location(&format!("/projects/{text}/report?analysis={analysis_id}"));
    Ok((StatusCode::ACCEPTED, place, Reply(accepted)).into_response())
}

/// The analyses of a project that are done, newest first.
#[utoipa::path(get, path = "/projects/{id}/analyses", tag = "projects", params(("id" = String, Path), ListQuery), responses((status = 200, body = Page<AnalysisView>), (status = 404, body = Problem)))]
async fn analyses(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Page<AnalysisView>>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let page = PageRequest { limit: query.limit, cursor: query.cursor };
    let found = projects::analyses(&state.parts().sql, row.project_id, &page).await?;
    let items = found.items.iter().filter(|one| one.report.is_some()).map(analysis_view).collect();
    Ok(Reply(Page { items, next_cursor: found.next_cursor }))
}

#[derive(Default, Deserialize)]
struct Counts {
    by_severity: std::collections::BTreeMap<String, u64>,
    metrics: std::collections::BTreeMap<String, f64>,
}

fn analysis_view(row: &AnalysisRow) -> AnalysisView {
    let counts: Counts = serde_json::from_str(&row.counts_json).unwrap_or_default();
    AnalysisView {
        analysis_id: row.analysis_id.to_string(),
        created_at: Timestamp(row.created_at),
        findings: row.findings,
        by_severity: counts.by_severity,
        metrics: counts.metrics,
    }
}

fn not_analyzed(text: &str) -> ApiError {
    ApiError::not_found("not_analyzed", format!("project {text} has no such analysis that is done"))
        .hint(format!("riverrun project analyze {text}"))
}

/// The analyses that are done, newest first.
async fn done(state: &AppState, row: &ProjectRow) -> Result<Vec<AnalysisRow>, ApiError> {
    let page = PageRequest { limit: Some(500), cursor: None };
    let found = projects::analyses(&state.parts().sql, row.project_id, &page).await?;
    Ok(found.items.into_iter().filter(|one| one.report.is_some()).collect())
}

async fn named(state: &AppState, row: &ProjectRow, text: &str) -> Result<AnalysisRow, ApiError> {
    let found = projects::analysis(&state.parts().sql, row.project_id, id(text)?).await?;
    let found = found.ok_or_else(|| not_analyzed(&row.project_id.to_string()))?;
    match &found.error {
        Some(error) => Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error.code.clone(), error.message.clone())
            .hint(error.hint.clone().unwrap_or_else(|| "analyze it again".to_owned()))),
        None => Ok(found),
    }
}

async fn read_report(state: &AppState, row: &ProjectRow, analysis: &AnalysisRow) -> Result<Report, ApiError> {
    let blob = analysis.report.as_ref().ok_or_else(|| not_analyzed(&row.project_id.to_string()))?;
    let bytes = state.parts().blobs.get(blob).await?;
    serde_json::from_slice(&bytes).map_err(|error| ApiError::internal(format!("the report can't be read: {error}")))
}

/// The report of an analysis; as SARIF 2.1.0 with `Accept: application/sarif+json`.
#[utoipa::path(get, path = "/projects/{id}/report", tag = "projects", params(("id" = String, Path), ReportQuery), responses((status = 200, body = ReportView), (status = 404, body = Problem)))]
async fn report_of(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<ReportQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let analysis = match &query.analysis {
        Some(analysis) => named(&state, &row, analysis).await?,
        None => done(&state, &row).await?.into_iter().next().ok_or_else(|| not_analyzed(&text))?,
    };
    let report = read_report(&state, &row, &analysis).await?;
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("application/sarif+json") {
        return Ok(([(CONTENT_TYPE, "application/sarif+json")], report.sarif().to_string()).into_response());
    }
    let value = serde_json::to_value(&report).map_err(|error| ApiError::internal(error.to_string()))?;
    let mut view: ReportView = serde_json::from_value(value).map_err(|error| ApiError::internal(error.to_string()))?;
    view.project_id = text;
    view.analysis_id = analysis.analysis_id.to_string();
    view.created_at = Timestamp(analysis.created_at).to_string();
    Ok(Reply(view).into_response())
}

fn finding_view(one: Finding) -> FindingView {
    FindingView {
        id: one.id,
        tool: one.tool,
        rule: one.rule,
        severity: one.severity.as_str().to_owned(),
        file: one.file,
        line: one.line as u64,
        column: one.column as u64,
        message: one.message,
        fix: one.fix,
    }
}

/// What is different between two analyses.
#[utoipa::path(get, path = "/projects/{id}/trend", tag = "projects", params(("id" = String, Path), TrendQuery), responses((status = 200, body = TrendView), (status = 404, body = Problem)))]
async fn trend(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<TrendQuery>,
) -> Result<Reply<TrendView>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let mut newest = done(&state, &row).await?.into_iter();
    let (last, before) = (newest.next(), newest.next());
    let to = match &query.to {
        Some(to) => named(&state, &row, to).await?,
        None => last.clone().ok_or_else(|| not_analyzed(&text))?,
    };
    let from = match &query.from {
        Some(from) => named(&state, &row, from).await?,
        // With one analysis nothing changed.
        None => before.or(last).ok_or_else(|| not_analyzed(&text))?,
    };
    let found = report::trend(&read_report(&state, &row, &from).await?, &read_report(&state, &row, &to).await?);
    Ok(Reply(TrendView {
        from: from.analysis_id.to_string(),
        to: to.analysis_id.to_string(),
        new: found.new.into_iter().map(finding_view).collect(),
        fixed: found.fixed.into_iter().map(finding_view).collect(),
        unchanged: found.unchanged as u64,
    }))
}

/// The files of the copy, by path.
#[utoipa::path(get, path = "/projects/{id}/files", tag = "projects", params(("id" = String, Path), ListQuery), responses((status = 200, body = Page<ProjectFileView>), (status = 404, body = Problem)))]
async fn files(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Page<ProjectFileView>>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let tree = tree(&state, &row).await?;
    let mut counts: HashMap<String, u64> = HashMap::new();
    if let Some(analysis) = done(&state, &row).await?.first() {
        for finding in read_report(&state, &row, analysis).await?.findings {
            *counts.entry(finding.file).or_default() += 1;
        }
    }
    let limit = query.limit.unwrap_or(50).clamp(1, 500) as usize;
    let after = query.cursor.unwrap_or_default();
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

/// Asks a model for a rewrite of one file.
#[utoipa::path(post, path = "/projects/{id}/improve", tag = "projects", params(("id" = String, Path), NamespaceQuery), request_body = ImproveBody,
    responses((status = 202, body = ProposalAccepted), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn improve(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
    Json(body): Json<ImproveBody>,
) -> Result<Response, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let candidates = body.candidates.unwrap_or(1);
    let tests = body.tests.unwrap_or_default();
    let mut checks = Checks::default();
    checks.text("file", &body.file, MAX_TEXT);
    checks.require(
        (1..=4).contains(&candidates),
        "candidates",
        format!("is {candidates}, which is not between 1 and 4"),
    );
    checks.finish()?;
    tree(&state, &row).await?.entry(&body.file)?;
    if !tests.is_empty() {
        own_tests::check(&tests)?;
    }
    let proposal_id = match &key.0 {
        Some(key) => ProposalId::derive(&["idempotency-key", &text, key]),
        None => ProposalId::new(),
    };
    let command = ImproveFile {
        project_id: row.project_id,
        namespace: row.namespace.clone(),
        proposal_id,
        file: body.file,
        instruction: body.instruction,
        model: body.model,
        candidates,
        tests,
        at: now_ms(),
    };
    send(&state, command.into()).await?;
    until(PATIENCE, || projects::proposal(&state.parts().sql, row.project_id, proposal_id)).await?;
    let place = location(&format!("/projects/{text}/proposals/{proposal_id}"));
    let accepted = ProposalAccepted { proposal_id: proposal_id.to_string() };
    Ok((StatusCode::ACCEPTED, place, Reply(accepted)).into_response())
}

fn proposal_view(row: &ProposalRow) -> ProposalView {
    ProposalView {
        proposal_id: row.proposal_id.to_string(),
        file: row.file.clone(),
        status: row.status.clone(),
        diff: row.diff.clone(),
        before_sha256: row.before_sha256.clone(),
        after_sha256: row.after.as_ref().map(|blob| blob.sha256.clone()),
        findings_before: row.findings_before,
        findings_after: row.findings_after,
        improves: row.improves,
        note: row.note.clone(),
        model: row.model.clone(),
        total_tokens: row.prompt_tokens.saturating_add(row.completion_tokens),
        tests: row.tests_json.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        created_at: Timestamp(row.created_at),
    }
}

/// The proposals of a project, newest first.
#[utoipa::path(get, path = "/projects/{id}/proposals", tag = "projects", params(("id" = String, Path), ListQuery), responses((status = 200, body = Page<ProposalView>), (status = 404, body = Problem)))]
async fn proposals(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Page<ProposalView>>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let page = PageRequest { limit: query.limit, cursor: query.cursor };
    let found = projects::proposals(&state.parts().sql, row.project_id, &page).await?;
    Ok(Reply(Page { items: found.items.iter().map(proposal_view).collect(), next_cursor: found.next_cursor }))
}

/// A proposal.
#[utoipa::path(get, path = "/projects/{id}/proposals/{proposal}", tag = "projects", params(("id" = String, Path), ("proposal" = String, Path), NamespaceQuery), responses((status = 200, body = ProposalView), (status = 404, body = Problem)))]
async fn proposal(
    State(state): State<AppState>,
    Path((text, proposal)): Path<(String, String)>,
    Query(query): Query<NamespaceQuery>,
) -> Result<Reply<ProposalView>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let found = projects::proposal(&state.parts().sql, row.project_id, id(&proposal)?).await?;
    found.as_ref().map(proposal_view).map(Reply).ok_or_else(|| no_proposal(&proposal))
}

fn no_proposal(what: &str) -> ApiError {
    ApiError::not_found("no_proposal", format!("there is no proposal {what}"))
        .hint("riverrun project improve <id> --file <file> makes one")
}

fn confirmed(confirm: bool) -> Result<(), ApiError> {
    let mut checks = Checks::default();
    checks.require(confirm, "confirm", "must be true: the file of the copy is changed");
    checks.finish()
}

async fn changed(state: &AppState, row: &ProjectRow, change_id: ChangeId) -> Result<Reply<FileChangedView>, ApiError> {
    let found = until(PATIENCE, || projects::change(&state.parts().sql, row.project_id, change_id)).await?;
    let Some(ChangeRow { file, after_sha256, error, .. }) = found else {
        return Err(ApiError::busy("the analyzer is at work on the project; the change is made after that"));
    };
    match error {
        None => Ok(Reply(FileChangedView { file, after_sha256 })),
        Some(failure) => {
            let status = match failure.code.as_str() {
                "file_not_found" | "no_proposal" => StatusCode::NOT_FOUND,
                _ => StatusCode::CONFLICT,
            };
            let answer = ApiError::new(status, failure.code, failure.message);
            Err(answer.hint(failure.hint.unwrap_or_else(|| "try it again".to_owned())))
        }
    }
}

fn change_id(key: &IdempotencyKey, text: &str) -> ChangeId {
    match &key.0 {
        Some(key) => ChangeId::derive(&["idempotency-key", text, key]),
        None => ChangeId::new(),
    }
}

/// Writes a proposal to the copy, never to the original.
#[utoipa::path(post, path = "/projects/{id}/apply", tag = "projects", params(("id" = String, Path), NamespaceQuery), request_body = ApplyBody,
    responses((status = 200, body = FileChangedView), (status = 404, body = Problem), (status = 409, description = "the copy changed since the proposal", body = Problem), (status = 422, body = Problem)))]
async fn apply(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
    Json(body): Json<ApplyBody>,
) -> Result<Reply<FileChangedView>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    confirmed(body.confirm)?;
    let proposal_id: ProposalId = match &body.proposal_id {
        Some(proposal) => id(proposal)?,
        None => {
            let page = PageRequest { limit: Some(500), cursor: None };
            let found = projects::proposals(&state.parts().sql, row.project_id, &page).await?;
            let newest = found.items.into_iter().find(|one| one.file == body.file && one.status == "proposed");
            newest.ok_or_else(|| no_proposal(&format!("for {:?}", body.file)))?.proposal_id
        }
    };
    let change_id = change_id(&key, &text);
    let command = ApplyProposal {
        project_id: row.project_id,
        namespace: row.namespace.clone(),
        change_id,
        proposal_id,
        file: body.file,
        at: now_ms(),
    };
    send(&state, command.into()).await?;
    changed(&state, &row, change_id).await
}

/// Takes the last change of a file back.
#[utoipa::path(post, path = "/projects/{id}/revert", tag = "projects", params(("id" = String, Path), NamespaceQuery), request_body = RevertBody,
    responses((status = 200, body = FileChangedView), (status = 404, body = Problem), (status = 409, description = "nothing to undo", body = Problem), (status = 422, body = Problem)))]
async fn revert(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
    Json(body): Json<RevertBody>,
) -> Result<Reply<FileChangedView>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    confirmed(body.confirm)?;
    let change_id = change_id(&key, &text);
    let command = RevertFile {
        project_id: row.project_id,
        namespace: row.namespace.clone(),
        change_id,
        file: body.file,
        at: now_ms(),
    };
    send(&state, command.into()).await?;
    changed(&state, &row, change_id).await
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
    let patch = patch::patch(&copies.files(&base).await?, &copies.files(&now).await?);
    Ok(([(CONTENT_TYPE, "text/x-patch")], patch).into_response())
}
