//! Spans as OTLP over HTTP has them (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>): protobuf, one POST a batch.

use std::time::{Duration, SystemTime};

use futures::StreamExt;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value as ProtoValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as ProtoSpan, Status};
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, redirect};

use super::settings::OtlpConfig;
use super::span::{Attributes, Mark, Outcome, Side, Span, Value};

/// The parent's flag of a span that is sampled.
const SAMPLED: u32 = 1;
/// An answer is read up to here.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// What a service says of an error is shown up to here.
const MAX_REASON: usize = 200;
/// A service that asks for a longer pause gets this one.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// A client of one service.
#[derive(Debug, Clone)]
pub(super) struct Exporter {
    config: OtlpConfig,
    client: Client,
    headers: HeaderMap,
    resource: Resource,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sent {
    /// Taken; of so many spans the service said that it wants none of them.
    Taken {
        /// Spans that the service left out.
        rejected: u64,
    },
    /// Not now: the service is away, busy, or does not know us.
    Later {
        /// Why.
        reason: String,
        /// What to do.
        fix: &'static str,
        /// When the service wants to be asked again.
        after: Option<Duration>,
    },
    /// Never: something about the batch itself.
    Refused {
        /// Why.
        reason: String,
    },
}

impl Exporter {
    /// A client; connects when it is first used. The reason why not, for a header that is none.
    pub(super) fn new(config: OtlpConfig) -> Result<Self, String> {
        let client = Client::builder()
            .user_agent(concat!("riverrun/", env!("CARGO_PKG_VERSION")))
            .timeout(config.timeout)
            // A redirect would carry keys and content to a place that nobody configured.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| format!("no HTTP client can be made: {error}"))?;
        let (headers, resource) = (headers(&config)?, resource(&config));
        Ok(Self { config, client, headers, resource })
    }

    pub(super) fn config(&self) -> &OtlpConfig {
        &self.config
    }

    /// Bytes that a span takes in a request, about.
    pub(super) fn size(span: &ProtoSpan) -> usize {
        span.encoded_len()
    }

    /// Posts spans; none of them is how a service is asked whether it would take some.
    pub(super) async fn send(&self, spans: &[ProtoSpan]) -> Sent {
        let body = self.request(spans).encode_to_vec();
        let mut request = self.client.post(self.config.endpoint.clone()).headers(self.headers.clone());
        if let Some((public, secret)) = &self.config.keys {
            request = request.basic_auth(public.expose(), Some(secret.expose()));
        }
        match request.body(body).send().await {
            Ok(response) => self.judge(response).await,
            // The address may carry a key in its query; who asks sees it beside this without one.
            Err(error) => Sent::Later { reason: self.safe(&chain(&error.without_url())), fix: START, after: None },
        }
    }

    fn request(&self, spans: &[ProtoSpan]) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope {
            name: "riverrun".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_spans = ScopeSpans { scope: Some(scope), spans: spans.to_vec(), ..ScopeSpans::default() };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: if spans.is_empty() { Vec::new() } else { vec![scope_spans] },
                ..ResourceSpans::default()
            }],
        }
    }

    async fn judge(&self, response: Response) -> Sent {
        let status = response.status();
        let after = retry_after(&response);
        let body = read(response).await;
        if status.is_success() {
            // Services answer in forms of their own here; only what is understood counts.
            let told =
                ExportTraceServiceResponse::decode(body.as_slice()).ok().and_then(|answer| answer.partial_success);
            let rejected = told.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or(0));
            return Sent::Taken { rejected };
        }
        let said = self.safe(&String::from_utf8_lossy(&body));
        let reason = if said.is_empty() { format!("answered {status}") } else { format!("answered {status}: {said}") };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Sent::Later { reason, fix: CHECK_KEYS, after: None },
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                Sent::Later { reason, fix: CHECK_ADDRESS, after: None }
            }
            status if status.is_redirection() => Sent::Later { reason, fix: CHECK_ADDRESS, after: None },
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Sent::Later { reason, fix: WAIT, after },
            status if status.is_server_error() => Sent::Later { reason, fix: LOOK, after },
            _ => Sent::Refused { reason },
        }
    }

    /// Words from outside on one short line, without keys.
    fn safe(&self, text: &str) -> String {
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let keys = self.config.keys.iter().flat_map(|(public, secret)| [public, secret]);
        let headers = self.config.headers.iter().map(|(_, value)| value);
        for secret in keys.chain(headers).chain(&self.config.secrets) {
            text = secret.redact(&text);
        }
        text.truncate(text.floor_char_boundary(MAX_REASON));
        text
    }
}

const START: &str = "start the tracing service, or correct or unset RIVERRUN_TRACING_ENDPOINT";
const CHECK_KEYS: &str =
    "check RIVERRUN_TRACING_PUBLIC_KEY and RIVERRUN_TRACING_SECRET_KEY, or RIVERRUN_TRACING_HEADERS";
const CHECK_ADDRESS: &str = "check the path of RIVERRUN_TRACING_ENDPOINT";
const WAIT: &str = "nothing: it is tried again";
const LOOK: &str = "look at the log of the tracing service";

fn headers(config: &OtlpConfig) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    if config.is_langfuse() {
        // Without it Langfuse shows traces minutes later.
        headers.insert("x-langfuse-ingestion-version", HeaderValue::from_static("4"));
    }
    for (name, value) in &config.headers {
        let wrong = |what: &str| format!("RIVERRUN_TRACING_HEADERS has {name:?}, which is no {what}");
        let header: HeaderName = name.parse().map_err(|_| wrong("name of a header"))?;
        let mut value: HeaderValue =
            value.expose().parse().map_err(|_| wrong("header with a value of plain characters"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

fn resource(config: &OtlpConfig) -> Resource {
    let mut attributes = Attributes::default();
    attributes
        .set("service.name", "riverrun")
        .set("service.version", env!("CARGO_PKG_VERSION"))
        .set("openinference.project.name", config.project.as_str());
    Resource { attributes: key_values(&attributes), ..Resource::default() }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let told = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    wait_of(told.trim(), SystemTime::now()).map(|wait| wait.min(MAX_RETRY_AFTER))
}

/// `Retry-After`, in seconds or as a date.
fn wait_of(told: &str, now: SystemTime) -> Option<Duration> {
    let until = |at: SystemTime| at.duration_since(now).unwrap_or(Duration::ZERO);
    let seconds = told.parse().ok().map(Duration::from_secs);
    seconds.or_else(|| httpdate::parse_http_date(told).ok().map(until))
}

async fn read(response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        body.extend_from_slice(&piece);
        if body.len() >= MAX_ANSWER_BYTES {
            body.truncate(MAX_ANSWER_BYTES);
            break;
        }
    }
    body
}

/// An error with what is behind it.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// The span in the form of the wire.
pub(super) fn proto(span: &Span) -> ProtoSpan {
    let (code, message) = match &span.outcome {
        Outcome::Unset => (SpanStatus::Unset, String::new()),
        Outcome::Ok => (SpanStatus::Ok, String::new()),
        Outcome::Error(message) => (SpanStatus::Error, message.clone()),
    };
    ProtoSpan {
        trace_id: span.trace.bytes().to_vec(),
        span_id: span.id.bytes().to_vec(),
        parent_span_id: span.parent.map(|id| id.bytes().to_vec()).unwrap_or_default(),
        flags: SAMPLED,
        name: span.name.clone(),
        kind: match span.side {
            Side::Internal => SpanKind::Internal,
            Side::Client => SpanKind::Client,
        }
        .into(),
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end),
        attributes: key_values(&span.attributes),
        events: span.marks.iter().map(event).collect(),
        links: span
            .links
            .iter()
            .map(|link| Link {
                trace_id: link.trace.bytes().to_vec(),
                span_id: link.span.bytes().to_vec(),
                flags: SAMPLED,
                ..Link::default()
            })
            .collect(),
        status: Some(Status { message, code: code.into() }),
        ..ProtoSpan::default()
    }
}

fn event(mark: &Mark) -> Event {
    Event {
        time_unix_nano: nanos(mark.at),
        name: mark.name.to_owned(),
        attributes: key_values(&mark.attributes),
        ..Event::default()
    }
}

fn nanos(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

fn key_values(attributes: &Attributes) -> Vec<KeyValue> {
    let key_value = |(name, value): &(String, Value)| KeyValue {
        key: name.clone(),
        value: Some(AnyValue { value: Some(any(value)) }),
        ..KeyValue::default()
    };
    attributes.0.iter().map(key_value).collect()
}

fn any(value: &Value) -> ProtoValue {
    match value {
        Value::Text(text) => ProtoValue::StringValue(text.clone()),
        Value::Int(number) => ProtoValue::IntValue(*number),
        Value::Float(number) => ProtoValue::DoubleValue(*number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_service_that_asks_for_a_pause_when_it_is_read_then_seconds_and_dates_both_count() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2026 07:28:00 GMT").unwrap();
        for (told, wait) in [
            ("7", Some(7)),
            ("Wed, 21 Oct 2026 07:28:30 GMT", Some(30)),
            ("Wed, 21 Oct 2026 07:27:30 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(wait_of(told, now), wait.map(Duration::from_secs), "{told}");
        }
    }
}
