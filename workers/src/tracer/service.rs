//! The tracing service as the program knows it: whether it takes spans, and the handing over of spans within bounds.
//!
//! `TRACE-1` nothing here is waited for by a run. `TRACE-2` a run's trace id is named while the service takes spans, and only
//! then. `TRACE-3` spans of an outage are tried until it has lasted [`OtlpConfig::patience`]; then each batch gets one
//! try, what it fails with is counted and its spans are logged.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span as ProtoSpan;
use parking_lot::Mutex;
use riverrun_schemas::{RunId, TraceId};
use tokio_util::sync::CancellationToken;

use super::content::Content;
use super::otlp::{Exporter, Sent, proto};
use super::settings::{OtlpConfig, TracingSettings};
use super::span::Span;

/// Spans of a request, at most.
const MAX_BATCH: usize = 512;
/// Bytes of a request, about: well below what services and the proxies before them take.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// How often the service is asked whether it takes spans while none are sent.
const PROBE_PERIOD: Duration = Duration::from_secs(10);
/// The same while it takes none.
const PROBE_AGAIN: Duration = Duration::from_secs(3);
/// Pauses between tries.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Whether spans are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracingState {
    /// Not configured.
    Off,
    /// Configured with values that can't be.
    Misconfigured,
    /// Not asked yet.
    Unknown,
    /// The service takes spans.
    Up,
    /// It does not.
    Down,
}

/// What is known of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracingStatus {
    /// Whether spans are taken.
    pub state: TracingState,
    /// Where spans go.
    pub address: Option<String>,
    /// What was found.
    pub detail: String,
    /// What to do where spans are not taken.
    pub fix: Option<String>,
    /// How long the last answer took, in milliseconds.
    pub latency_ms: Option<u64>,
}

/// What was counted since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracingFigures {
    /// Spans that the service took.
    pub exported: u64,
    /// Spans that it said it leaves out.
    pub rejected: u64,
    /// Spans given up.
    pub dropped: u64,
    /// Requests that failed.
    pub failures: u64,
}

/// A handle on the service; clones share it.
#[derive(Clone)]
pub struct TracingService {
    inner: Arc<Inner>,
}

enum Setup {
    Off,
    Misconfigured { reason: String, fix: String },
    On(Box<Exporter>),
}

struct Inner {
    setup: Setup,
    told: Mutex<Told>,
    exported: AtomicU64,
    rejected: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
}

/// What the last answers said.
#[derive(Default)]
struct Told {
    up: Option<bool>,
    reason: String,
    fix: Option<&'static str>,
    latency: Option<Duration>,
    last_good: Option<Instant>,
    down_since: Option<Instant>,
}

/// Why a batch was not taken.
enum Failed {
    /// Something about it: a part of it may be taken.
    Refused(String),
    /// The service is away for too long.
    GivenUp(String),
}

impl fmt::Debug for TracingService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracingService").field("status", &self.status()).finish()
    }
}

impl Default for TracingService {
    /// No service.
    fn default() -> Self {
        Self::new(TracingSettings::Off)
    }
}

impl TracingService {
    /// Contacts nothing.
    pub fn new(settings: TracingSettings) -> Self {
        let setup = match settings {
            TracingSettings::Off => Setup::Off,
            TracingSettings::Misconfigured { reason, fix } => Setup::Misconfigured { reason, fix },
            TracingSettings::On(config) => match Exporter::new(*config) {
                Ok(exporter) => Setup::On(Box::new(exporter)),
                Err(reason) => {
                    Setup::Misconfigured { reason, fix: "correct the RIVERRUN_TRACING_ settings".to_owned() }
                }
            },
        };
        Self {
            inner: Arc::new(Inner {
                setup,
                told: Mutex::default(),
                exported: AtomicU64::new(0),
                rejected: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                failures: AtomicU64::new(0),
            }),
        }
    }

    /// Whether there is a service that spans are for.
    pub fn is_on(&self) -> bool {
        self.exporter().is_some()
    }

    /// Keeps asking the service whether it takes spans, until `stop`.
    pub fn watch(&self, stop: CancellationToken) {
        match &self.inner.setup {
            Setup::Off => {}
            Setup::Misconfigured { reason, fix } => {
                tracing::warn!(reason, fix, "tracing is misconfigured; runs are not traced and their steps are logged");
            }
            Setup::On(_) => {
                let service = self.clone();
                tokio::spawn(async move { stop.run_until_cancelled(service.keep_asking()).await });
            }
        }
    }

    /// The run's trace, while the service takes spans (`TRACE-2`).
    pub fn trace_id(&self, run_id: RunId) -> Option<String> {
        (self.inner.told.lock().up == Some(true)).then(|| TraceId::from(run_id).to_string())
    }

    /// What is known of the service.
    pub fn status(&self) -> TracingStatus {
        let status = |state, detail: &str, fix: Option<&str>| TracingStatus {
            state,
            address: None,
            detail: detail.to_owned(),
            fix: fix.map(str::to_owned),
            latency_ms: None,
        };
        let exporter = match &self.inner.setup {
            Setup::Off => return status(TracingState::Off, "not set; steps are logged", Some(SET)),
            Setup::Misconfigured { reason, fix } => return status(TracingState::Misconfigured, reason, Some(fix)),
            Setup::On(exporter) => exporter,
        };
        let told = self.inner.told.lock();
        let known = match told.up {
            None => status(TracingState::Unknown, "not asked yet", None),
            Some(true) => {
                let content = if exporter.config().content { "with content" } else { "without content" };
                let detail = format!("takes spans, {content}; project {}", exporter.config().project);
                status(TracingState::Up, &detail, None)
            }
            Some(false) => status(TracingState::Down, &told.reason, told.fix),
        };
        let mut address = exporter.config().endpoint.clone();
        address.set_query(None);
        TracingStatus {
            address: Some(address.to_string()),
            latency_ms: told.latency.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            ..known
        }
    }

    /// What was counted.
    pub fn figures(&self) -> TracingFigures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TracingFigures {
            exported: read(&self.inner.exported),
            rejected: read(&self.inner.rejected),
            dropped: read(&self.inner.dropped),
            failures: read(&self.inner.failures),
        }
    }

    /// Asks the service now, at most for as long as a request may take.
    pub async fn check(&self) {
        if let Some(exporter) = self.exporter() {
            let since = Instant::now();
            let sent = exporter.send(&[]).await;
            match sent {
                // It knows where and who we are, and wants nothing of an empty request: that will do.
                Sent::Taken { .. } | Sent::Refused { .. } => self.is_up(since.elapsed()),
                Sent::Later { reason, fix, .. } => {
                    self.is_down(&reason, fix);
                }
            }
        }
    }

    /// What may leave with spans.
    pub(super) fn content(&self) -> Content {
        let Some(config) = self.exporter().map(Exporter::config) else { return Content::default() };
        let OtlpConfig { keys, headers, secrets, content, .. } = config.clone();
        let keys = keys.into_iter().flat_map(|(public, secret)| [public, secret]);
        Content::new(content, keys.chain(headers.into_iter().map(|(_, value)| value)).chain(secrets))
    }

    /// Hands spans over, or gives them up (`TRACE-3`): done with them in any case when it returns.
    pub(super) async fn deliver(&self, spans: &[Span]) {
        let Some(exporter) = self.exporter() else { return };
        let mut waiting = batches(spans);
        while let Some(mut batch) = waiting.pop_front() {
            match self.hand_over(exporter, &batch).await {
                Ok(rejected) => {
                    let taken = (batch.len() as u64).saturating_sub(rejected);
                    self.inner.exported.fetch_add(taken, Ordering::Relaxed);
                    self.inner.rejected.fetch_add(rejected, Ordering::Relaxed);
                }
                // One bad span must not take the others with it.
                Err(Failed::Refused(_)) if batch.len() > 1 => {
                    let second = batch.split_off(batch.len() / 2);
                    waiting.push_front(second);
                    waiting.push_front(batch);
                }
                Err(Failed::Refused(reason) | Failed::GivenUp(reason)) => self.give_up(&batch, &reason),
            }
        }
    }

    /// Tries until the batch is taken; how many of its spans the service leaves out.
    async fn hand_over(&self, exporter: &Exporter, batch: &[ProtoSpan]) -> Result<u64, Failed> {
        let mut failures = 0;
        loop {
            let since = Instant::now();
            let (reason, fix, after) = match exporter.send(batch).await {
                Sent::Taken { rejected } => {
                    self.is_up(since.elapsed());
                    return Ok(rejected);
                }
                Sent::Refused { reason } => {
                    self.inner.failures.fetch_add(1, Ordering::Relaxed);
                    return Err(Failed::Refused(reason));
                }
                Sent::Later { reason, fix, after } => (reason, fix, after),
            };
            self.inner.failures.fetch_add(1, Ordering::Relaxed);
            let down_for = self.is_down(&reason, fix);
            if down_for >= exporter.config().patience {
                return Err(Failed::GivenUp(reason));
            }
            failures += 1;
            let left = exporter.config().patience.saturating_sub(down_for);
            let wanted = after.map_or_else(|| pause(failures), |after| after.max(FIRST_PAUSE));
            tokio::time::sleep(wanted.min(left)).await;
        }
    }

    fn give_up(&self, batch: &[ProtoSpan], reason: &str) {
        self.inner.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
        tracing::warn!(
            spans = batch.len(),
            reason,
            "the tracing service does not take spans; they are logged and dropped"
        );
        for span in batch {
            let took = span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano);
            let failed =
                span.status.as_ref().map(|status| status.message.as_str()).filter(|message| !message.is_empty());
            tracing::info!(trace_id = %Hex(&span.trace_id), span_id = %Hex(&span.span_id), name = span.name, start_ms = span.start_time_unix_nano / 1_000_000, duration_ms = took / 1_000_000, error = failed, "span");
        }
    }

    async fn keep_asking(&self) {
        loop {
            let heard = self.inner.told.lock().last_good.is_some_and(|at| at.elapsed() < PROBE_PERIOD);
            if !heard {
                self.check().await;
            }
            let up = self.inner.told.lock().up == Some(true);
            tokio::time::sleep(if up { PROBE_PERIOD } else { PROBE_AGAIN }).await;
        }
    }

    fn exporter(&self) -> Option<&Exporter> {
        match &self.inner.setup {
            Setup::On(exporter) => Some(exporter),
            Setup::Off | Setup::Misconfigured { .. } => None,
        }
    }

    fn is_up(&self, took: Duration) {
        let mut told = self.inner.told.lock();
        if told.up == Some(false) {
            tracing::info!("the tracing service takes spans again");
        }
        *told = Told { up: Some(true), latency: Some(took), last_good: Some(Instant::now()), ..Told::default() };
    }

    /// Notes a failure; for how long it has been so.
    fn is_down(&self, reason: &str, fix: &'static str) -> Duration {
        let mut told = self.inner.told.lock();
        if told.up != Some(false) {
            tracing::warn!(reason, fix, "the tracing service takes no spans; runs go on, their steps are logged");
        }
        let since = *told.down_since.get_or_insert_with(Instant::now);
        (told.up, told.reason, told.fix, told.last_good) = (Some(false), reason.to_owned(), Some(fix), None);
        since.elapsed()
    }
}

const SET: &str =
    "nothing: runs do not need it; RIVERRUN_TRACING_ENDPOINT names a service that speaks OTLP, such as Langfuse";

/// Requests within their bounds.
fn batches(spans: &[Span]) -> VecDeque<Vec<ProtoSpan>> {
    let mut batches = VecDeque::new();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for span in spans.iter().map(proto) {
        let size = Exporter::size(&span);
        if !batch.is_empty() && (batch.len() == MAX_BATCH || bytes + size > MAX_BATCH_BYTES) {
            batches.push_back(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += size;
        batch.push(span);
    }
    if !batch.is_empty() {
        batches.push_back(batch);
    }
    batches
}

/// Doubling, with jitter so that the lanes of several processes do not come back together.
fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST_PAUSE);
    doubled.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}

struct Hex<'b>(&'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
