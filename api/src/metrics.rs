//! Figures in the Prometheus text format (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;

use crate::state::Core;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

#[derive(Default)]
struct Route {
    by_status: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

/// What the API counts of itself. The number of series is bounded by the number of routes.
#[derive(Default)]
pub struct Metrics {
    routes: Mutex<BTreeMap<(String, String), Route>>,
    streams: AtomicI64,
}

/// An open stream; it is counted until it is dropped.
pub struct OpenStream<'m>(&'m Metrics);

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    fn answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        let mut routes = self.routes.lock();
        let entry = routes.entry((method.to_owned(), route.to_owned())).or_default();
        *entry.by_status.entry(status).or_default() += 1;
        let seconds = took.as_secs_f64();
        for (bucket, bound) in entry.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
        entry.count += 1;
        entry.seconds += seconds;
    }

    /// Counts a stream as open.
    pub fn stream(&self) -> OpenStream<'_> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        OpenStream(self)
    }

    /// Everything counted here.
    pub fn write(&self, page: &mut Page) {
        let routes = self.routes.lock();
        for ((method, route), counts) in routes.iter() {
            for (status, count) in &counts.by_status {
                page.sample(
                    "riverrun_http_requests_total",
                    "counter",
                    "requests answered",
                    &[("method", method), ("route", route), ("status", &status.to_string())],
                    *count as f64,
                );
            }
        }
        for ((method, route), counts) in routes.iter() {
            const NAME: &str = "riverrun_http_request_duration_seconds";
            page.family(NAME, "histogram", "time until the answer began");
            for (bucket, bound) in counts.buckets.iter().zip(BUCKETS) {
                page.line(
                    &format!("{NAME}_bucket"),
                    &[("method", method), ("route", route), ("le", &bound.to_string())],
                    *bucket as f64,
                );
            }
            page.line(
                &format!("{NAME}_bucket"),
                &[("method", method), ("route", route), ("le", "+Inf")],
                counts.count as f64,
            );
            page.line(&format!("{NAME}_sum"), &[("method", method), ("route", route)], counts.seconds);
            page.line(&format!("{NAME}_count"), &[("method", method), ("route", route)], counts.count as f64);
        }
        page.sample(
            "riverrun_open_streams",
            "gauge",
            "WebSockets, event streams and waiting requests",
            &[],
            self.streams.load(Ordering::Relaxed) as f64,
        );
    }
}

/// A page of samples in the making.
#[derive(Default)]
pub struct Page {
    text: String,
    last: String,
}

impl Page {
    /// What it is answered as.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family, once.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        if self.last != name {
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            name.clone_into(&mut self.last);
        }
    }

    /// One sample of the family begun last.
    pub fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(name);
        if !labels.is_empty() {
            let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
            let _ = write!(self.text, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// One sample with its family.
    pub fn sample(&mut self, name: &str, kind: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.family(name, kind, help);
        self.line(name, labels, value);
    }

    /// The whole page.
    pub fn finish(self) -> String {
        self.text
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Counts every request by its route, never by its path: paths have no bound.
pub async fn count(State(core): State<Core>, request: Request, next: Next) -> Response {
    let method = request.method().as_str().to_owned();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    let since = Instant::now();
    let response = next.run(request).await;
    core.metrics().answered(&method, &route, response.status().as_u16(), since.elapsed());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_requests_when_the_page_is_written_then_each_family_is_described_once() {
        let metrics = Metrics::default();
        metrics.answered("GET", "/runs/{id}", 200, Duration::from_millis(3));
        metrics.answered("GET", "/runs/{id}", 404, Duration::from_millis(3));
        metrics.answered("POST", "/a\"b", 200, Duration::from_secs(3));
        let _open = metrics.stream();
        let mut page = Page::default();
        metrics.write(&mut page);
        let text = page.finish();
        assert_eq!(text.matches("# TYPE riverrun_http_requests_total counter").count(), 1);
        assert!(
            text.contains("riverrun_http_requests_total{method=\"GET\",route=\"/runs/{id}\",status=\"404\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("route=\"/a\\\"b\""));
        assert!(text.contains(
            "riverrun_http_request_duration_seconds_bucket{method=\"GET\",route=\"/runs/{id}\",le=\"0.005\"} 2\n"
        ));
        assert!(text.contains("riverrun_open_streams 1\n"));
    }
}
