//! A report as a page, with the analyses before it.

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use riverrun_projects::page::{POLICY, Page, Point, html};
use riverrun_projects::{Report, report};
use riverrun_stores::read_models::Timestamp;
use riverrun_stores::read_models::projects::{AnalysisRow, ProjectRow};

use super::analyses::{analysis_view, before, read_report};
use crate::error::ApiError;
use crate::state::AppState;

/// Analyses that the page's curves have.
const MAX_POINTS: u32 = 100;

pub(super) async fn answer(
    state: &AppState,
    row: &ProjectRow,
    analysis: &AnalysisRow,
    report: &Report,
) -> Result<Response, ApiError> {
    // Newest first; what came later is no part of this page.
    let earlier = before(state, row, analysis, MAX_POINTS - 1).await?;
    let trend = match earlier.first() {
        // One that can't be read any more is left out.
        Some(before) => read_report(state, row, before).await.ok().map(|before| report::trend(&before, report)),
        None => None,
    };
    let history: Vec<Point> = earlier.iter().rev().chain([analysis]).map(point).collect();
    let at = Timestamp(analysis.created_at).to_string();
    let page = Page { name: &row.name, at: &at, report, history: &history, trend: trend.as_ref() };
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, html(&page)).into_response())
}

fn point(row: &AnalysisRow) -> Point {
    let view = analysis_view(row);
    let of = |severity: &str| view.by_severity.get(severity).copied().unwrap_or(0);
    Point {
        at: view.created_at.to_string(),
        findings: u64::try_from(view.findings).unwrap_or(0),
        serious: of("critical") + of("high"),
    }
}
