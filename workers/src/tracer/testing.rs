//! Runs, and a service that they are told to, for the tests of the tracer.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span as ProtoSpan;
use prost::Message;
use riverrun_schemas::agent::*;
use riverrun_schemas::{Failure, RunId, Usage};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::settings::OtlpConfig;

pub(super) fn run_id(name: &str) -> RunId {
    RunId::derive(&[name])
}

pub(super) fn accepted(run: &str) -> RunAccepted {
    let request = RunRequest {
        task: "how many? my key is sk-abcdefghijklmnop".into(),
        agent: Some("react".into()),
        namespace: "shop".parse().unwrap(),
        session: Some("s-1".into()),
        temperature: Some(0.5),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    };
    RunAccepted { run_id: run_id(run), request, forked_from: None, at: 1_000 }
}

pub(super) fn claimed(run: &str, epoch: i64, at: i64) -> AgentEvent {
    RunClaimed { run_id: run_id(run), epoch, worker: format!("worker-{epoch}"), at }.into()
}

pub(super) fn words(seq: i64, kind: StepKind, at: i64) -> Step {
    Step { seq, kind, agent: "react".into(), text: Some(format!("words {seq}")), tool: None, usage: None, at }
}

pub(super) fn with_usage(step: Step, prompt: i64, completion: i64) -> Step {
    let usage =
        Usage { prompt_tokens: prompt, completion_tokens: completion, cost_usd: Some(0.25), ..Usage::default() };
    Step { usage: Some(usage), ..step }
}

fn tool(name: &str, call: &str) -> ToolUse {
    ToolUse {
        call_id: call.to_owned(),
        name: name.to_owned(),
        arguments_json: r#"{"query":"beds","password":"hunter2"}"#.into(),
        effect: ToolEffect::None,
        result_json: None,
        result_blob: None,
        error: None,
        duration_ms: None,
    }
}

pub(super) fn call(seq: i64, name: &str, call: &str, at: i64) -> Step {
    Step { tool: Some(tool(name, call)), text: None, ..words(seq, StepKind::ToolCall, at) }
}

pub(super) fn result(seq: i64, name: &str, call: &str, given: Result<&str, &str>, took: i64, at: i64) -> Step {
    let tool = ToolUse {
        result_json: given.ok().map(str::to_owned),
        error: given.err().map(str::to_owned),
        duration_ms: Some(took),
        ..tool(name, call)
    };
    Step { tool: Some(tool), text: None, ..words(seq, StepKind::ToolResult, at) }
}

pub(super) fn advanced(run: &str, epoch: i64, steps: Vec<Step>) -> AgentEvent {
    RunAdvanced { run_id: run_id(run), epoch, steps }.into()
}

pub(super) fn finished(run: &str, epoch: i64, status: RunOutcome, at: i64) -> AgentEvent {
    let failed = status == RunOutcome::Failed;
    RunFinished {
        run_id: run_id(run),
        epoch,
        status,
        agent: "react".into(),
        answer: (!failed).then(|| "four [1]".into()),
        citations: Vec::new(),
        usage: Usage { prompt_tokens: 30, completion_tokens: 12, cost_usd: Some(0.5), ..Usage::default() },
        stop_reason: if failed { "error".into() } else { "answered".into() },
        error: failed.then(|| Failure::new("model_runtime_down", "the runtime at http://x is down")),
        at,
    }
    .into()
}

/// A run that thinks, searches and answers.
pub(super) fn whole(run: &str) -> Vec<AgentEvent> {
    const FOUND: &str = r#"{"query":"beds","passages":[{"chunk_id":"chk_1","score":0.5,"text":"a bed"}]}"#;
    vec![
        accepted(run).into(),
        claimed(run, 1, 1_100),
        advanced(run, 1, vec![words(1, StepKind::Route, 1_110)]),
        advanced(
            run,
            1,
            vec![with_usage(words(2, StepKind::Thought, 1_400), 20, 5), call(3, "knowledge_search", "c-1", 1_401)],
        ),
        advanced(run, 1, vec![result(4, "knowledge_search", "c-1", Ok(FOUND), 50, 1_460)]),
        advanced(run, 1, vec![with_usage(words(5, StepKind::Answer, 1_900), 10, 7)]),
        finished(run, 1, RunOutcome::Succeeded, 1_910),
    ]
}

/// A small OTLP service: it decodes what comes and keeps it.
pub(super) struct Receiver {
    server: MockServer,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        Self { server: MockServer::start().await }
    }

    /// Takes everything.
    pub(super) async fn taking() -> Self {
        let receiver = Self::start().await;
        receiver.answer(ResponseTemplate::new(200)).await;
        receiver
    }

    /// Answers so from now on, until told otherwise.
    pub(super) async fn answer(&self, answer: ResponseTemplate) {
        self.server.reset().await;
        Mock::given(method("POST")).respond_with(answer).mount(&self.server).await;
    }

    /// Answers as `respond` says.
    pub(super) async fn respond(&self, respond: impl Respond + 'static) {
        Mock::given(method("POST")).respond_with(respond).mount(&self.server).await;
    }

    pub(super) fn config(&self) -> OtlpConfig {
        let config = OtlpConfig::new(format!("{}/v1/traces", self.server.uri()).parse().unwrap());
        OtlpConfig { patience: Duration::from_secs(10), ..config }
    }

    pub(super) async fn requests(&self) -> Vec<Request> {
        self.server.received_requests().await.unwrap()
    }

    /// The spans of all requests, in the order in which they came.
    pub(super) async fn spans(&self) -> Vec<ProtoSpan> {
        self.requests().await.iter().flat_map(spans_of).collect()
    }
}

pub(super) fn decoded(request: &Request) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(request.body.as_slice()).unwrap()
}

pub(super) fn spans_of(request: &Request) -> Vec<ProtoSpan> {
    decoded(request).resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans).collect()
}
