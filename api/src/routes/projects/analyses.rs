//! Analyses of a project, their reports, and what changed between two.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use riverrun_projects::report::NotCompared;
use riverrun_projects::surface::{PublicName, SurfaceChange};
use riverrun_projects::{Finding, Report, report};
use riverrun_schemas::projects::AnalyzeProject;
use riverrun_schemas::{AnalysisId, now_ms};
use riverrun_stores::documents::DocumentKey;
use riverrun_stores::read_models::Timestamp;
use riverrun_stores::read_models::keyed::KeyedTable;
use riverrun_stores::read_models::projects::{self, AnalysisRow, ProjectRow};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ListQuery, PATIENCE, or_gone, page, project, refusal, send, tree_blob};
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, NamespaceQuery, OptionalJson, Path, Query, id};
use crate::kept::kept;
use crate::keyed::Keyed;
use crate::prefer::Patience;
use crate::routes::runs::location;
use crate::state::AppState;
use crate::submit;
use crate::wait::until;
use crate::wire::{
    AnalysisAccepted, AnalysisView, AnalyzeBody, FindingView, NotComparedView, Page, Problem, PublicNameView,
    ReportView, SurfaceChangeView, TrendView,
};

const SARIF: &str = "application/sarif+json";

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(analyze))
        .routes(routes!(analyses))
        .routes(routes!(report_of))
        .routes(routes!(trend))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ReportQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// The analysis; the newest when left out.
    analysis: Option<String>,
    /// `json`, `sarif` or `html`; JSON or SARIF as `Accept` says when left out.
    format: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct TrendQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// The earlier analysis; the one before the later when left out.
    from: Option<String>,
    /// The later analysis; the last when left out.
    to: Option<String>,
}

/// Analyzes the copy and answers with the report, as SARIF 2.1.0 with `Accept: application/sarif+json`. Waits for it, unless `Prefer`
/// says otherwise: the analysis goes on in the background.
#[utoipa::path(post, path = "/projects/{id}/analyze", tag = "projects", params(("id" = String, Path), NamespaceQuery,
        ("Prefer" = Option<String>, Header, description = "`respond-async` does not wait; `wait=N` waits N seconds, 300 at most; 30 when left out")), request_body = AnalyzeBody,
    responses((status = 200, description = "the report", body = ReportView), (status = 202, description = "accepted, and not waited for any longer", body = AnalysisAccepted),
        (status = 404, body = Problem), (status = 409, description = "it is not imported, or the key was used with another body", body = Problem), (status = 422, description = "it failed", body = Problem)))]
async fn analyze(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
    patience: Patience,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<AnalyzeBody>,
) -> Result<Response, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    tree_blob(&row)?;
    let review = body.review.unwrap_or(true);
    let keyed: Option<Keyed<'_, AnalysisId>> = match &key.0 {
        Some(key) => {
            let asked = json!({ "review": review, "model": &body.model });
            Some(Keyed::new(key, "analysis", &["idempotency-key", &text, key], &asked)?)
        }
        None => None,
    };
    let analysis_id = match &keyed {
        Some(keyed) => keyed.id(&state.parts().sql, KeyedTable::Analyses).await?,
        None => AnalysisId::new(),
    };
    let _slot = patience.slot(&state)?;
    let held = keyed.as_ref().map(|keyed| keyed.reserve(state.reservations())).transpose()?;
    let command = AnalyzeProject {
        project_id: row.project_id,
        namespace: row.namespace.clone(),
        analysis_id,
        review,
        model: body.model,
        at: now_ms(),
    };
    send(&state, command.into()).await?;
    if let Some(held) = held {
        held.keep();
    }
    let known = || projects::analysis(&state.parts().sql, row.project_id, analysis_id);
    until(PATIENCE, || async { or_gone(&state, &row, known().await?).await }).await?;
    let ended = patience.until(|| async {
        let analysis = known().await?;
        or_gone(&state, &row, analysis.filter(|one| one.report.is_some() || one.error.is_some())).await
    });
    if let Some(analysis) = ended.await? {
        let analysis = succeeded(analysis)?;
        let report = read_report(&state, &row, &analysis).await?;
        return answer(&row, &analysis, &report, accepts_sarif(&headers));
    }
    let accepted = AnalysisAccepted { project_id: text.clone(), analysis_id: analysis_id.to_string() };
    let place = location(&format!("/projects/{text}/report?analysis={analysis_id}"));
    Ok((StatusCode::ACCEPTED, place, Reply(accepted)).into_response())
}

/// The analyses of a project that are done, newest first.
#[utoipa::path(get, path = "/projects/{id}/analyses", tag = "projects", params(("id" = String, Path), ListQuery), responses((status = 200, body = Page<AnalysisView>), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn analyses(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Page<AnalysisView>>, ApiError> {
    let page = submit::page(query.limit, query.cursor)?;
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let found = projects::analyses(&state.parts().sql, row.project_id, &page).await?;
    let items = found.items.iter().filter(|one| one.report.is_some()).map(analysis_view).collect();
    Ok(Reply(Page { items, next_cursor: found.next_cursor }))
}

#[derive(Default, Deserialize)]
struct Counts {
    by_severity: std::collections::BTreeMap<String, u64>,
    metrics: std::collections::BTreeMap<String, f64>,
}

pub(super) fn analysis_view(row: &AnalysisRow) -> AnalysisView {
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

/// The newest analysis that is done.
pub(super) async fn newest(state: &AppState, row: &ProjectRow) -> Result<Option<AnalysisRow>, ApiError> {
    Ok(projects::done_analyses(&state.parts().sql, row.project_id, None, 1).await?.pop())
}

/// The analyses that were done before another one, newest first.
pub(super) async fn before(
    state: &AppState,
    row: &ProjectRow,
    analysis: &AnalysisRow,
    limit: u32,
) -> Result<Vec<AnalysisRow>, ApiError> {
    Ok(projects::done_analyses(&state.parts().sql, row.project_id, Some(analysis), limit).await?)
}

async fn named(state: &AppState, row: &ProjectRow, text: &str) -> Result<AnalysisRow, ApiError> {
    let found = projects::analysis(&state.parts().sql, row.project_id, id(text)?).await?;
    succeeded(found.ok_or_else(|| not_analyzed(&row.project_id.to_string()))?)
}

fn succeeded(analysis: AnalysisRow) -> Result<AnalysisRow, ApiError> {
    match analysis.error {
        Some(failure) => Err(refusal(failure, "analyze it again")),
        None => Ok(analysis),
    }
}

fn accepts_sarif(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).is_some_and(|accept| accept.contains(SARIF))
}

/// A report as JSON of ours or as SARIF.
fn answer(row: &ProjectRow, analysis: &AnalysisRow, report: &Report, is_sarif: bool) -> Result<Response, ApiError> {
    if is_sarif {
        return Ok(([(CONTENT_TYPE, SARIF)], report.sarif().to_string()).into_response());
    }
    let value = serde_json::to_value(report).map_err(|error| ApiError::internal(error.to_string()))?;
    let mut view: ReportView = serde_json::from_value(value).map_err(|error| ApiError::internal(error.to_string()))?;
    view.project_id = row.project_id.to_string();
    view.analysis_id = analysis.analysis_id.to_string();
    view.created_at = Timestamp(analysis.created_at).to_string();
    Ok(Reply(view).into_response())
}

/// From the document store, or where that does not have it, from the blob store.
pub(super) async fn read_report(
    state: &AppState,
    row: &ProjectRow,
    analysis: &AnalysisRow,
) -> Result<Report, ApiError> {
    let blob = analysis.report.as_ref().ok_or_else(|| not_analyzed(&row.project_id.to_string()))?;
    let key = DocumentKey::report(&row.namespace, row.project_id, analysis.analysis_id);
    if let Some(report) = kept(state, &key).await.and_then(|kept| serde_json::from_str(&kept.body).ok()) {
        return Ok(report);
    }
    let bytes = state.parts().blobs.get(blob).await?;
    serde_json::from_slice(&bytes).map_err(|error| ApiError::internal(format!("the report can't be read: {error}")))
}

/// The report of an analysis; as SARIF 2.1.0 with `format=sarif` or `Accept: application/sarif+json`, as a page with `format=html`.
#[utoipa::path(get, path = "/projects/{id}/report", tag = "projects", params(("id" = String, Path), ReportQuery), responses((status = 200, body = ReportView), (status = 404, body = Problem)))]
async fn report_of(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<ReportQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let format = match query.format.as_deref() {
        None if accepts_sarif(&headers) => "sarif",
        None => "json",
        Some(known @ ("json" | "sarif" | "html")) => known,
        Some(other) => return Err(ApiError::field("format", format!("is {other:?}")).hint("json, sarif or html")),
    };
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let analysis = match &query.analysis {
        Some(analysis) => named(&state, &row, analysis).await?,
        None => newest(&state, &row).await?.ok_or_else(|| not_analyzed(&text))?,
    };
    let report = read_report(&state, &row, &analysis).await?;
    if format == "html" {
        return page::answer(&state, &row, &analysis, &report).await;
    }
    answer(&row, &analysis, &report, format == "sarif")
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

fn not_compared_view(NotCompared { tool, why }: NotCompared) -> NotComparedView {
    NotComparedView { tool, why }
}

fn surface_view(change: SurfaceChange) -> SurfaceChangeView {
    let views = |names: Vec<PublicName>| {
        names.into_iter().map(|PublicName { file, name }| PublicNameView { file, name }).collect::<Vec<_>>()
    };
    SurfaceChangeView {
        added_count: change.added_count as u64,
        removed_count: change.removed_count as u64,
        added: views(change.added),
        removed: views(change.removed),
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
    let to = match &query.to {
        Some(to) => named(&state, &row, to).await?,
        None => newest(&state, &row).await?.ok_or_else(|| not_analyzed(&text))?,
    };
    let from = match &query.from {
        Some(from) => named(&state, &row, from).await?,
        // The one before it. Since the first nothing changed.
        None => before(&state, &row, &to, 1).await?.pop().unwrap_or_else(|| to.clone()),
    };
    let found = report::trend(&read_report(&state, &row, &from).await?, &read_report(&state, &row, &to).await?);
    Ok(Reply(TrendView {
        from: from.analysis_id.to_string(),
        to: to.analysis_id.to_string(),
        new: found.new.into_iter().map(finding_view).collect(),
        fixed: found.fixed.into_iter().map(finding_view).collect(),
        unchanged: found.unchanged as u64,
        not_compared: found.not_compared.into_iter().map(not_compared_view).collect(),
        surface: found.surface.map(surface_view),
    }))
}
