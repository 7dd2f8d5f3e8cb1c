use std::sync::atomic::AtomicUsize;

use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value as ProtoValue;
use prost::Message;
use riverrun_models::Secret;
use wiremock::{Request, Respond, ResponseTemplate};

use super::super::fold::{Defaults, RunTrace};
use super::super::testing::*;
use super::*;

/// The spans of a run.
fn spans() -> Vec<Span> {
    let mut run = RunTrace::new(&accepted("a"), None, &Defaults::default());
    whole("a").iter().flat_map(|event| run.apply(event, &Defaults::default())).collect()
}

fn service(config: OtlpConfig) -> TracingService {
    TracingService::new(TracingSettings::On(Box::new(config)))
}

/// Nobody listens there.
fn nowhere() -> OtlpConfig {
    OtlpConfig { patience: Duration::ZERO, ..OtlpConfig::new("http://127.0.0.1:1/v1/traces".parse().unwrap()) }
}

/// Answers of the first requests, then 200.
struct InTurn(Vec<ResponseTemplate>, AtomicUsize);

impl Respond for InTurn {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let turn = self.1.fetch_add(1, Ordering::Relaxed);
        self.0.get(turn).cloned().unwrap_or_else(|| ResponseTemplate::new(200))
    }
}

/// Refuses every request that holds this span.
struct Without(&'static str);

impl Respond for Without {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let bad = spans_of(request).iter().any(|span| span.name == self.0);
        ResponseTemplate::new(if bad { 400 } else { 200 })
    }
}

#[tokio::test]
async fn given_a_service_when_spans_are_delivered_then_it_has_them_with_ids_times_and_who_we_are() {
    let receiver = Receiver::taking().await;
    let keys = Some((Secret::new("pk-1").unwrap(), Secret::new("sk-1").unwrap()));
    let headers = vec![("x-team".to_owned(), Secret::new("blue").unwrap())];
    let mut config = OtlpConfig { keys, headers, project: "shop".into(), ..receiver.config() };
    config.endpoint.set_path("/api/public/otel/v1/traces");
    let service = service(config);
    service.deliver(&spans()).await;
    let requests = receiver.requests().await;
    let header = |name: &str| requests[0].headers.get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].url.path(), "/api/public/otel/v1/traces");
    assert_eq!(header("content-type"), "application/x-protobuf");
    assert_eq!(header("authorization"), "Basic cGstMTpzay0x");
    assert_eq!((header("x-team").as_str(), header("x-langfuse-ingestion-version").as_str()), ("blue", "4"));
    let resource = decoded(&requests[0]).resource_spans.remove(0).resource.unwrap();
    let project = resource.attributes.iter().find(|a| a.key == "openinference.project.name").unwrap();
    assert_eq!(project.value.as_ref().unwrap().value, Some(ProtoValue::StringValue("shop".into())));
    let told = receiver.spans().await;
    assert_eq!(told.len(), spans().len());
    let (root, trace) = (told.last().unwrap(), TraceId::from(run_id("a")));
    assert_eq!((root.trace_id.as_slice(), root.span_id.as_slice()), (&trace.bytes()[..], &trace.root().bytes()[..]));
    assert_eq!((root.start_time_unix_nano, root.end_time_unix_nano), (1_000_000_000, 1_910_000_000));
    assert!(root.parent_span_id.is_empty() && told[0].parent_span_id == root.span_id);
    assert_eq!(service.figures(), TracingFigures { exported: told.len() as u64, ..TracingFigures::default() });
    assert_eq!(service.trace_id(run_id("a")), Some(trace.to_string()));
}

#[tokio::test]
async fn given_no_service_when_spans_are_delivered_then_they_are_given_up_and_counted_and_no_trace_is_named() {
    let service = service(nowhere());
    service.deliver(&spans()).await;
    assert_eq!(
        service.figures(),
        TracingFigures { dropped: spans().len() as u64, failures: 1, ..TracingFigures::default() }
    );
    let status = service.status();
    assert_eq!((status.state, service.trace_id(run_id("a"))), (TracingState::Down, None));
    assert!(
        status.fix.unwrap().contains("RIVERRUN_TRACING_ENDPOINT") && status.address.unwrap().contains("127.0.0.1:1")
    );
}

#[tokio::test]
async fn given_a_service_that_fails_for_a_while_when_spans_are_delivered_then_each_arrives_once() {
    let receiver = Receiver::start().await;
    let busy = |status| ResponseTemplate::new(status).insert_header("retry-after", "0");
    receiver.respond(InTurn(vec![busy(503), busy(500), busy(429)], AtomicUsize::new(0))).await;
    let service = service(receiver.config());
    service.deliver(&spans()).await;
    assert_eq!(receiver.requests().await.len(), 4);
    let figures = service.figures();
    assert_eq!((figures.exported, figures.dropped, figures.failures), (spans().len() as u64, 0, 3));
    assert_eq!(service.status().state, TracingState::Up);
}

#[tokio::test]
async fn given_answers_that_are_no_yes_when_the_service_is_asked_then_it_is_down_with_the_fix_and_no_key_shows() {
    for (answer, fix) in [
        (ResponseTemplate::new(401).set_body_string("key sk-canary is wrong"), "RIVERRUN_TRACING_PUBLIC_KEY"),
        (ResponseTemplate::new(403), "RIVERRUN_TRACING_PUBLIC_KEY"),
        (ResponseTemplate::new(404), "path of RIVERRUN_TRACING_ENDPOINT"),
        (
            ResponseTemplate::new(302).insert_header("location", "http://127.0.0.1:1/"),
            "path of RIVERRUN_TRACING_ENDPOINT",
        ),
        (ResponseTemplate::new(500), "log of the tracing service"),
        (ResponseTemplate::new(200).set_delay(Duration::from_secs(60)), "start the tracing service"),
    ] {
        let receiver = Receiver::start().await;
        receiver.answer(answer).await;
        let keys = Some((Secret::new("pk-canary").unwrap(), Secret::new("sk-canary").unwrap()));
        let service = service(OtlpConfig { keys, timeout: Duration::from_millis(300), ..receiver.config() });
        service.check().await;
        let status = service.status();
        assert_eq!((status.state, service.trace_id(run_id("a"))), (TracingState::Down, None), "{status:?}");
        assert!(status.fix.as_ref().unwrap().contains(fix), "{status:?}");
        assert!(!format!("{status:?} {service:?}").contains("canary"), "{status:?}");
        receiver.answer(ResponseTemplate::new(200)).await;
        service.check().await;
        assert_eq!(service.status().state, TracingState::Up);
    }
}

#[tokio::test]
async fn given_a_service_that_hangs_when_spans_are_delivered_then_the_time_out_ends_each_try() {
    let receiver = Receiver::start().await;
    receiver.answer(ResponseTemplate::new(200).set_delay(Duration::from_secs(60))).await;
    let limits = (Duration::from_millis(100), Duration::from_millis(250));
    let service = service(OtlpConfig { timeout: limits.0, patience: limits.1, ..receiver.config() });
    tokio::time::timeout(Duration::from_secs(20), service.deliver(&spans())).await.unwrap();
    assert_eq!(service.figures().dropped, spans().len() as u64);
    // The outage has lasted long enough: what comes next gets one try.
    let before = service.figures().failures;
    service.deliver(&spans()).await;
    assert_eq!(service.figures().failures, before + 1);
}

#[tokio::test]
async fn given_a_span_that_is_refused_when_it_is_delivered_with_others_then_the_others_arrive() {
    let receiver = Receiver::start().await;
    receiver.respond(Without("retrieval")).await;
    let service = service(receiver.config());
    service.deliver(&spans()).await;
    let figures = service.figures();
    assert_eq!((figures.exported, figures.dropped), (spans().len() as u64 - 1, 1));
}

#[tokio::test]
async fn given_a_service_that_takes_some_when_spans_are_delivered_then_those_left_out_are_counted() {
    let receiver = Receiver::start().await;
    let partial = ExportTracePartialSuccess { rejected_spans: 2, error_message: "too old".into() };
    let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    receiver.answer(ResponseTemplate::new(200).set_body_bytes(body)).await;
    let service = service(receiver.config());
    service.deliver(&spans()).await;
    assert_eq!((service.figures().exported, service.figures().rejected), (spans().len() as u64 - 2, 2));
}

#[test]
fn given_more_than_a_request_may_hold_when_spans_are_divided_then_each_part_is_within_bounds_and_none_is_lost() {
    let mut large = spans();
    for span in &mut large {
        span.attributes.set("output.value", "x".repeat(MAX_BATCH_BYTES / 3));
    }
    let many: Vec<Span> = large.iter().cloned().chain(spans().into_iter().cycle().take(2 * MAX_BATCH)).collect();
    let parts = batches(&many);
    assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), many.len());
    for part in &parts {
        assert!(part.len() <= MAX_BATCH && part.iter().map(Exporter::size).sum::<usize>() <= MAX_BATCH_BYTES);
    }
    assert!(batches(&[]).is_empty());
}

#[tokio::test]
async fn given_settings_that_can_not_be_when_spans_are_delivered_then_nothing_happens_and_diagnose_can_tell() {
    let bad_header = vec![("no header".to_owned(), Secret::new("x").unwrap())];
    for (settings, state) in [
        (TracingSettings::Off, TracingState::Off),
        (
            TracingSettings::Misconfigured {
                reason: "RIVERRUN_TRACING_ENDPOINT is no address".into(),
                fix: "correct it".into(),
            },
            TracingState::Misconfigured,
        ),
        (TracingSettings::On(Box::new(OtlpConfig { headers: bad_header, ..nowhere() })), TracingState::Misconfigured),
    ] {
        let service = TracingService::new(settings);
        service.deliver(&spans()).await;
        service.check().await;
        let status = service.status();
        assert_eq!((status.state, service.is_on(), service.trace_id(run_id("a"))), (state, false, None));
        assert!(status.fix.is_some());
        assert_eq!(service.figures(), TracingFigures::default());
    }
}
