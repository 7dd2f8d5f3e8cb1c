//! Sweeps of the blob store: one at a time in a process, on request, and by itself once in a while when nothing else is to do.

use std::time::Duration;

use riverrun_workers::blobs::{SweepReport, claim, sweep};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::state::AppState;

/// Hours that a blob is left alone where nobody says otherwise. An archive or a site may be read for hours before the event that names
/// its first document.
pub(crate) const DEFAULT_GRACE_HOURS: u64 = 24;
/// A process that does not live so long sweeps nothing by itself: a command that hosts its own stack, or one that starts again and again.
const FIRST: Duration = Duration::from_secs(60 * 60);
/// How often it looks whether there is nothing else to do.
const POLL: Duration = Duration::from_secs(60);

/// Of this process. Sweeps of several processes do no harm; each reads the log.
static SWEEPING: Mutex<()> = Mutex::const_new(());

/// Hours in seconds.
pub(crate) fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours.saturating_mul(60 * 60))
}

/// Sweeps once, or tells what that would do; 429 while another one is at work.
pub(crate) async fn once(state: &AppState, grace: Duration, dry_run: bool) -> Result<SweepReport, ApiError> {
    let _turn = SWEEPING.try_lock().map_err(|_| {
        ApiError::busy("the blob store is being swept or checked").hint("try again when that has ended")
    })?;
    let parts = state.parts();
    let report = sweep(&parts.log, &parts.admin, parts.blobs.as_ref(), grace, dry_run).await?;
    if !dry_run {
        tracing::info!(
            set_aside = report.set_aside.blobs,
            removed = report.removed.blobs,
            removed_bytes = report.removed.bytes,
            "blob store swept"
        );
    }
    Ok(report)
}

/// Tells the store whose blobs these are; then sweeps as often as the settings say, until `stop`.
pub(crate) async fn start(state: &AppState, stop: CancellationToken) {
    let parts = state.parts();
    if let Err(error) = claim(&parts.admin, parts.blobs.as_ref()).await {
        tracing::warn!(%error, "the blob store is not swept");
    }
    let every = state.core().config().blob_sweep_hours;
    if every == 0 {
        return;
    }
    let state = state.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = watch(&state, hours(every)) => {}
        }
    });
}

async fn watch(state: &AppState, every: Duration) {
    tokio::time::sleep(FIRST).await;
    loop {
        while !is_idle(state).await {
            tokio::time::sleep(POLL).await;
        }
        if let Err(error) = once(state, hours(DEFAULT_GRACE_HOURS), false).await {
            tracing::warn!(code = error.code(), %error, "blob store not swept, it is tried again later");
        }
        tokio::time::sleep(every).await;
    }
}

/// Whether no worker has anything to do. A broker that does not answer is no moment for it.
async fn is_idle(state: &AppState) -> bool {
    state.lag().await.is_ok_and(|lag| lag.iter().all(|line| line.lag == 0))
}
