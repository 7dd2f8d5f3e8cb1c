//! What lies in the blob store, and taking out of it what nothing names any more.

use axum::Json as Reply;
use axum::extract::State;
use riverrun_log::blobs::KeptBlob;
use riverrun_workers::blobs::{Sum, SweepError};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::blob_sweeps::{DEFAULT_GRACE_HOURS, hours, once};
use crate::error::ApiError;
use crate::extract::{OptionalJson, Query};
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{BlobEntry, BlobList, BlobSum, BlobSweep, BlobSweepBody, Problem, Timestamp};

/// Blobs that a list shows when it names no number, and at most.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 1_000;
/// Hours of grace: an hour is more than anything usual takes from putting a blob to the event that names it.
const MIN_GRACE: u64 = 1;
const MAX_GRACE: u64 = 8_760;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(check)).routes(routes!(sweep_blobs))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// How many are shown; 50 when left out, 1,000 at most.
    limit: Option<usize>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct GraceQuery {
    /// Hours that a blob is left alone after it was written, and again after it was set aside, 1 to 8,760; 24 when left out.
    grace_hours: Option<u64>,
}

/// What lies in the blob store: the largest blobs, and how many there are.
#[utoipa::path(get, path = "/blobs", tag = "log", params(ListQuery), responses((status = 200, body = BlobList), (status = 422, body = Problem), (status = 503, body = Problem)))]
async fn list(State(state): State<AppState>, Query(query): Query<ListQuery>) -> Result<Reply<BlobList>, ApiError> {
    let mut checks = Checks::default();
    checks.between("limit", query.limit, 1..=MAX_LIMIT);
    checks.finish()?;
    let mut kept = state.parts().blobs.kept().await?;
    let sum = |aside: bool| {
        let of = kept.iter().filter(|kept| kept.aside == aside);
        of.fold(BlobSum::default(), |sum, kept| BlobSum { blobs: sum.blobs + 1, bytes: sum.bytes + kept.size_bytes })
    };
    let (in_place, aside) = (sum(false), sum(true));
    kept.sort_by(|a, b| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.sha256.cmp(&b.sha256)));
    kept.truncate(query.limit.unwrap_or(DEFAULT_LIMIT));
    Ok(Reply(BlobList { kept: in_place, aside, items: kept.into_iter().map(entry).collect() }))
}

fn entry(kept: KeptBlob) -> BlobEntry {
    let KeptBlob { sha256, size_bytes, since_ms, aside } = kept;
    BlobEntry { sha256, size_bytes, aside, since: Timestamp(since_ms) }
}

/// What a sweep would do. Reads the log and changes nothing.
#[utoipa::path(get, path = "/blobs/check", tag = "log", params(GraceQuery),
    responses((status = 200, body = BlobSweep), (status = 409, description = "it can't be known what is named", body = Problem),
        (status = 422, body = Problem), (status = 429, description = "another one is at work", body = Problem)))]
async fn check(State(state): State<AppState>, Query(query): Query<GraceQuery>) -> Result<Reply<BlobSweep>, ApiError> {
    swept(&state, query.grace_hours, true).await
}

/// Sets aside what nothing that lives names, and removes what was set aside before the time of grace and is not missed. Answers when
/// it is done; a repeat goes on where one that was cut off has ended.
#[utoipa::path(post, path = "/blobs/sweep", tag = "log", request_body = BlobSweepBody,
    responses((status = 200, body = BlobSweep), (status = 409, description = "it can't be known what is named", body = Problem),
        (status = 422, body = Problem), (status = 429, description = "another one is at work", body = Problem)))]
async fn sweep_blobs(
    State(state): State<AppState>,
    OptionalJson(body): OptionalJson<BlobSweepBody>,
) -> Result<Reply<BlobSweep>, ApiError> {
    swept(&state, body.grace_hours, false).await
}

async fn swept(state: &AppState, grace_hours: Option<u64>, dry_run: bool) -> Result<Reply<BlobSweep>, ApiError> {
    let grace_hours = grace_hours.unwrap_or(DEFAULT_GRACE_HOURS);
    let mut checks = Checks::default();
    checks.between("grace_hours", Some(grace_hours), MIN_GRACE..=MAX_GRACE);
    checks.finish()?;
    let report = once(state, hours(grace_hours), dry_run).await?;
    Ok(Reply(BlobSweep {
        dry_run,
        grace_hours,
        records: report.records,
        named: view(report.living),
        waiting: view(report.waiting),
        set_aside: view(report.set_aside),
        brought_back: view(report.brought_back),
        removed: view(report.removed),
        names: report.names,
    }))
}

fn view(sum: Sum) -> BlobSum {
    BlobSum { blobs: sum.blobs, bytes: sum.bytes }
}

impl From<SweepError> for ApiError {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::Log(error) => error.into(),
            SweepError::Blobs(error) => error.into(),
            SweepError::NoClusterId => ApiError::conflict("blobs_unknown", error.to_string())
                .hint("blobs can only be swept where the log can be told from others"),
            SweepError::Shared { .. } => ApiError::conflict("blobs_shared", error.to_string()).hint(
                "give each log a store of its own; where such a log is gone for good, delete logs/<id> in the store",
            ),
            SweepError::LogCut { .. } => ApiError::conflict("blobs_unknown", error.to_string())
                .hint("set retention.ms of this topic to -1; a log that was cut can't tell which blobs may go"),
        }
    }
}
