//! From the events of a run to its spans. Pure: the same events give the same spans with the same ids, in whichever
//! process and however often, so that a service which has a span already is told nothing new.
//!
//! Names follow the GenAI conventions of OpenTelemetry (<https://github.com/open-telemetry/semantic-conventions-genai>);
//! `openinference.span.kind`, `input.value`, `output.value` and `session.id` are what Phoenix and Langfuse read beside them.

use std::collections::BTreeMap;

use riverrun_agents::tools::KNOWLEDGE_SEARCH;
use riverrun_schemas::agent::{
    AgentEvent, Decision, RunAccepted, RunAdvanced, RunFinished, RunOutcome, RunRequest, Step, StepKind, ToolUse,
};
use riverrun_schemas::{RunId, SpanId, TraceId, Traceparent, Usage};
use riverrun_stores::read_models::run_fold::{RunGate, Verdict};
use serde_json::Value as Json;

use super::content::Content;
use super::span::{Attributes, Mark, Outcome, Side, Span};

/// Tool calls of a run without a result that are remembered; more are told without their beginning.
const MAX_OPEN_CALLS: usize = 64;
/// Things that happened within a run beside its steps that are told; more are left out.
const MAX_MARKS: usize = 32;
/// Documents of a retrieval that are named in its span.
const MAX_DOCUMENTS: usize = 10;

/// What every run of this process shares.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    /// Provider of runs that name none.
    pub(crate) provider: String,
    /// Chat model of runs that name none.
    pub(crate) model: String,
    pub(crate) content: Content,
}

/// What has to be known of a run to tell its next span.
#[derive(Debug, Clone)]
pub(crate) struct RunTrace {
    gate: RunGate,
    run_id: RunId,
    request: Request,
    accepted_at: i64,
    /// Where the time of the next step begins.
    last_at: i64,
    calls: BTreeMap<String, OpenCall>,
    marks: Vec<Mark>,
    outside: Option<Traceparent>,
    claimed: bool,
    counts: Counts,
}

/// What is kept of a request: as much as its spans say.
#[derive(Debug, Clone)]
struct Request {
    provider: String,
    model: String,
    namespace: String,
    session: Option<String>,
    temperature: Option<f64>,
    task: Option<String>,
    metadata: Option<String>,
}

#[derive(Debug, Clone)]
struct OpenCall {
    seq: i64,
    at: i64,
    agent: String,
    tool: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    steps: i64,
    model_calls: i64,
    tool_calls: i64,
    tool_errors: i64,
}

impl RunTrace {
    /// A run that has just been accepted. `outside` is where the record's own `traceparent` points.
    pub(crate) fn new(accepted: &RunAccepted, outside: Option<Traceparent>, defaults: &Defaults) -> Self {
        let mut gate = RunGate::default();
        gate.admit(&AgentEvent::RunAccepted(accepted.clone()));
        let trace = TraceId::from(accepted.run_id);
        Self {
            gate,
            run_id: accepted.run_id,
            request: Request::of(&accepted.request, defaults),
            accepted_at: accepted.at,
            last_at: accepted.at,
            calls: BTreeMap::new(),
            marks: Vec::new(),
            outside: outside.filter(|outside| outside.trace != trace),
            claimed: false,
            counts: Counts::default(),
        }
    }

    /// Whether the run has ended: nothing of it follows.
    pub(crate) fn ended(&self) -> bool {
        self.gate.ended
    }

    /// The spans that `event` ends; none for an event that does not count.
    pub(crate) fn apply(&mut self, event: &AgentEvent, defaults: &Defaults) -> Vec<Span> {
        if self.gate.admit(event) != Verdict::Admitted {
            return Vec::new();
        }
        match event {
            AgentEvent::RunAccepted(_) => Vec::new(),
            AgentEvent::RunClaimed(claim) => self.claimed(claim.epoch, claim.at),
            AgentEvent::RunAdvanced(advance) => self.advanced(advance, defaults),
            AgentEvent::RunCancelRequested(request) => {
                let mut attributes = Attributes::default();
                attributes.set_some(
                    "riverrun.cancel.reason",
                    request.reason.as_deref().and_then(|text| defaults.content.short(text)),
                );
                self.mark("cancel requested", request.at, attributes);
                Vec::new()
            }
            AgentEvent::RunApprovalDecided(answer) => {
                let mut attributes = Attributes::default();
                attributes.set("riverrun.approval.step", answer.step);
                attributes.set("riverrun.approval.decision", decision_name(answer.decision));
                attributes.set_some(
                    "riverrun.approval.note",
                    answer.note.as_deref().and_then(|text| defaults.content.short(text)),
                );
                self.mark("approval decided", answer.at, attributes);
                Vec::new()
            }
            AgentEvent::RunResumed(resumed) => {
                self.mark("resumed", resumed.at, Attributes::default());
                Vec::new()
            }
            // How the fold is kept is no part of what the run did.
            AgentEvent::RunSnapshotted(_) => Vec::new(),
            AgentEvent::RunFinished(end) => self.finished(end, defaults),
        }
    }

    fn trace(&self) -> TraceId {
        TraceId::from(self.run_id)
    }

    fn claimed(&mut self, epoch: i64, at: i64) -> Vec<Span> {
        let waited_from = std::mem::replace(&mut self.last_at, at);
        let mut attributes = Attributes::default();
        attributes.set("riverrun.run.epoch", epoch);
        if std::mem::replace(&mut self.claimed, true) {
            // Whatever was begun before the run changed hands was lost with its worker, and is begun again.
            self.mark("claimed again", at, attributes);
            return Vec::new();
        }
        self.mark("claimed", at, attributes);
        let mut span = self.span("queue", "wait for a worker".to_owned(), self.root(), (waited_from, at));
        span.attributes.set("openinference.span.kind", "CHAIN");
        vec![span]
    }

    fn advanced(&mut self, advance: &RunAdvanced, defaults: &Defaults) -> Vec<Span> {
        let mut spans = Vec::new();
        for step in &advance.steps {
            self.counts.steps += 1;
            let own = self.step(step, defaults);
            let parent = own.iter().find(|span| span.id == self.step_id(step.seq)).map_or(self.root(), |span| span.id);
            spans.extend(step.usage.as_ref().map(|usage| self.model_call(step, usage, parent, defaults)));
            spans.extend(own);
            self.last_at = step.at;
        }
        spans
    }

    /// The spans that a step ends, without its model call.
    fn step(&mut self, step: &Step, defaults: &Defaults) -> Vec<Span> {
        match &step.tool {
            Some(call) if step.kind == StepKind::ToolCall => {
                self.begin_call(step, call);
                Vec::new()
            }
            Some(result) if step.kind == StepKind::ToolResult => self.end_call(step, result, defaults),
            Some(_) | None => vec![self.words(step, defaults)],
        }
    }

    fn words(&self, step: &Step, defaults: &Defaults) -> Span {
        let name = step_name(step.kind);
        let mut span = self.span(&format!("step/{}", step.seq), name.to_owned(), self.root(), (self.last_at, step.at));
        self.about_step(&mut span, step.seq, name, &step.agent);
        span.attributes.set("openinference.span.kind", "CHAIN");
        span.attributes.set_some("output.value", step.text.as_deref().and_then(|text| defaults.content.text(text)));
        span
    }

    fn model_call(&mut self, step: &Step, usage: &Usage, parent: SpanId, defaults: &Defaults) -> Span {
        self.counts.model_calls += 1;
        let Request { provider, model, temperature, .. } = &self.request;
        let mut span =
            self.span(&format!("model/{}", step.seq), format!("chat {model}"), parent, (self.last_at, step.at));
        span.side = Side::Client;
        span.attributes
            .set("openinference.span.kind", "LLM")
            .set("gen_ai.operation.name", "chat")
            .set("gen_ai.provider.name", provider.as_str())
            .set("gen_ai.request.model", model.as_str())
            .set("llm.model_name", model.as_str())
            .set_some("gen_ai.request.temperature", *temperature);
        about_usage(&mut span.attributes, usage);
        let said = match &step.tool {
            Some(tool) => defaults.content.json(&tool.arguments_json),
            None => step.text.as_deref().and_then(|text| defaults.content.text(text)),
        };
        span.attributes.set_some("output.value", said);
        span
    }

    fn begin_call(&mut self, step: &Step, call: &ToolUse) {
        self.counts.tool_calls += 1;
        if self.calls.len() < MAX_OPEN_CALLS {
            let open = OpenCall { seq: step.seq, at: step.at, agent: step.agent.clone(), tool: call.name.clone() };
            self.calls.insert(call.call_id.clone(), open);
        }
    }

    fn end_call(&mut self, step: &Step, result: &ToolUse, defaults: &Defaults) -> Vec<Span> {
        let began = self.calls.remove(&result.call_id);
        let seq = began.as_ref().map_or(step.seq, |call| call.seq);
        let earliest = began.map_or(self.last_at, |call| call.at);
        // A call that waited for a person began after its intent was written.
        let start = result.duration_ms.map_or(earliest, |took| step.at.saturating_sub(took).max(earliest));
        let mut span = self.tool_span(seq, (&result.call_id, &result.name), &step.agent, (start, step.at), defaults);
        self.counts.tool_errors += i64::from(result.error.is_some());
        span.outcome = match &result.error {
            Some(error) => {
                span.attributes.set("error.type", "tool_error");
                Outcome::Error(defaults.content.text(error).unwrap_or_else(|| "the tool failed".to_owned()))
            }
            None => Outcome::Ok,
        };
        let arguments = defaults.content.json(&result.arguments_json);
        let given = result.result_json.as_deref().and_then(|json| defaults.content.json(json));
        span.attributes
            .set_some("gen_ai.tool.call.arguments", arguments.clone())
            .set_some("input.value", arguments)
            .set_some("gen_ai.tool.call.result", given.clone())
            .set_some("output.value", given)
            .set_some("riverrun.tool.result_bytes", result.result_json.as_ref().map(|json| size(json)))
            .set_some("riverrun.tool.result_sha256", result.result_blob.as_ref().map(|blob| blob.sha256.clone()))
            .set_some("riverrun.tool.duration_ms", result.duration_ms);
        let retrieval = (result.name == KNOWLEDGE_SEARCH).then(|| self.retrieval(seq, result, &span, defaults));
        std::iter::once(span).chain(retrieval).collect()
    }

    fn tool_span(
        &self,
        seq: i64,
        (call_id, tool): (&str, &str),
        agent: &str,
        time: (i64, i64),
        defaults: &Defaults,
    ) -> Span {
        let name = defaults.content.label(tool);
        let mut span = self.span(&format!("tool/{seq}"), format!("execute_tool {name}"), self.root(), time);
        self.about_step(&mut span, seq, "tool_call", agent);
        span.attributes
            .set("openinference.span.kind", "TOOL")
            .set("gen_ai.operation.name", "execute_tool")
            .set("gen_ai.tool.name", name.as_str())
            .set("gen_ai.tool.type", "function")
            .set("gen_ai.tool.call.id", call_id)
            .set("tool.name", name);
        span
    }

    /// The search within a use of the search tool.
    fn retrieval(&self, seq: i64, result: &ToolUse, tool: &Span, defaults: &Defaults) -> Span {
        let mut span = self.span(&format!("retrieval/{seq}"), "retrieval".to_owned(), tool.id, (tool.start, tool.end));
        span.outcome = tool.outcome.clone();
        span.attributes.set("openinference.span.kind", "RETRIEVER").set("gen_ai.operation.name", "retrieval");
        let given: Json =
            result.result_json.as_deref().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        let passages = given["passages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let query = given["query"].as_str().and_then(|query| defaults.content.text(query));
        span.attributes
            .set_some("gen_ai.retrieval.query.text", query.clone())
            .set_some("input.value", query)
            .set("riverrun.retrieval.passages", i64::try_from(passages.len()).unwrap_or(i64::MAX));
        for (index, passage) in passages.iter().take(MAX_DOCUMENTS).enumerate() {
            let named = |field: &str| format!("retrieval.documents.{index}.document.{field}");
            if let Some(id) = passage["chunk_id"].as_str() {
                span.attributes.set(named("id"), defaults.content.label(id));
            }
            if let Some(score) = passage["score"].as_f64() {
                span.attributes.set(named("score"), score);
            }
            let text = passage["text"].as_str().and_then(|text| defaults.content.text(text));
            if let Some(text) = text {
                span.attributes.set(named("content"), text);
            }
        }
        span
    }

    fn finished(&mut self, end: &RunFinished, defaults: &Defaults) -> Vec<Span> {
        let mut spans: Vec<Span> = std::mem::take(&mut self.calls)
            .into_iter()
            .map(|(call_id, OpenCall { seq, at, agent, tool })| {
                let mut span = self.tool_span(seq, (&call_id, &tool), &agent, (at, end.at), defaults);
                span.outcome = Outcome::Error("the run ended before the call gave a result".to_owned());
                span.attributes.set("error.type", "no_result");
                span
            })
            .collect();
        spans.push(self.whole(end, defaults));
        spans
    }

    /// The root, which the run's end completes.
    fn whole(&mut self, end: &RunFinished, defaults: &Defaults) -> Span {
        let agent = defaults.content.label(&end.agent);
        let mut span = self.span("root", format!("invoke_agent {agent}"), self.root(), (self.accepted_at, end.at));
        span.parent = None;
        span.links = self.outside.into_iter().collect();
        span.marks = std::mem::take(&mut self.marks);
        span.outcome = match (end.status, &end.error) {
            (RunOutcome::Succeeded, _) => Outcome::Ok,
            (RunOutcome::Cancelled, _) => Outcome::Unset,
            (RunOutcome::Failed | RunOutcome::Unknown, Some(error)) => Outcome::Error(
                defaults.content.text(&error.message).unwrap_or_else(|| defaults.content.label(&error.code)),
            ),
            (RunOutcome::Failed | RunOutcome::Unknown, None) => Outcome::Error(end.stop_reason.clone()),
        };
        let Request { model, provider, task, metadata, temperature, .. } = &self.request;
        let Counts { steps, model_calls, tool_calls, tool_errors } = self.counts;
        let answer = end.answer.as_deref().and_then(|answer| defaults.content.text(answer));
        span.attributes
            .set("openinference.span.kind", "AGENT")
            .set("gen_ai.operation.name", "invoke_agent")
            .set("gen_ai.agent.name", agent)
            .set("gen_ai.provider.name", provider.as_str())
            .set("gen_ai.request.model", model.as_str())
            .set_some("gen_ai.request.temperature", *temperature)
            .set("riverrun.run.status", outcome_name(end.status))
            .set("riverrun.run.stop_reason", end.stop_reason.as_str())
            .set("riverrun.run.epoch", end.epoch)
            .set("riverrun.run.steps", steps)
            .set("riverrun.run.model_calls", model_calls)
            .set("riverrun.run.tool_calls", tool_calls)
            .set("riverrun.run.tool_errors", tool_errors)
            .set("riverrun.run.citations", i64::try_from(end.citations.len()).unwrap_or(i64::MAX))
            .set_some("input.value", task.clone())
            .set_some("output.value", answer)
            .set_some("metadata", metadata.clone())
            .set_some("error.type", end.error.as_ref().map(|error| defaults.content.label(&error.code)));
        // The sum stands under names of its own: a service that adds up the model calls would count it twice.
        span.attributes
            .set("riverrun.run.input_tokens", end.usage.prompt_tokens)
            .set("riverrun.run.output_tokens", end.usage.completion_tokens)
            .set_some("riverrun.run.cost_usd", end.usage.cost_usd);
        span
    }

    fn root(&self) -> SpanId {
        self.trace().root()
    }

    fn step_id(&self, seq: i64) -> SpanId {
        self.trace().span(&format!("step/{seq}"))
    }

    /// A span of this run with what all of them say. Clocks of several machines may disagree: no span ends before it begins.
    fn span(&self, id: &str, name: String, parent: SpanId, (start, end): (i64, i64)) -> Span {
        let mut attributes = Attributes::default();
        attributes
            .set("riverrun.run.id", self.run_id.to_string())
            .set("riverrun.namespace", self.request.namespace.as_str())
            .set_some("session.id", self.request.session.clone())
            .set_some("gen_ai.conversation.id", self.request.session.clone());
        Span {
            trace: self.trace(),
            id: self.trace().span(id),
            parent: Some(parent),
            name,
            side: Side::Internal,
            start: start.min(end),
            end,
            attributes,
            marks: Vec::new(),
            links: Vec::new(),
            outcome: Outcome::Unset,
        }
    }

    fn about_step(&self, span: &mut Span, seq: i64, kind: &str, agent: &str) {
        span.attributes.set("riverrun.step.seq", seq).set("riverrun.step.kind", kind).set("gen_ai.agent.name", agent);
    }

    fn mark(&mut self, name: &'static str, at: i64, attributes: Attributes) {
        if self.marks.len() < MAX_MARKS {
            self.marks.push(Mark { name, at, attributes });
        }
    }
}

/// A provider under the name that the conventions have for it, where they have one.
fn conventional(provider: &str) -> String {
    match provider {
        "azure" => "azure.ai.openai",
        "bedrock" => "aws.bedrock",
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        other => other,
    }
    .to_owned()
}

impl Request {
    fn of(request: &RunRequest, defaults: &Defaults) -> Self {
        let label = |text: &String| defaults.content.label(text);
        Self {
            provider: conventional(&request.provider.as_ref().map_or_else(|| defaults.provider.clone(), label)),
            model: request.model.as_ref().map_or_else(|| defaults.model.clone(), label),
            namespace: request.namespace.to_string(),
            session: request.session.as_ref().map(label),
            temperature: request.temperature,
            task: defaults.content.text(&request.task),
            metadata: request.metadata_json.as_deref().and_then(|json| defaults.content.json(json)),
        }
    }
}

fn about_usage(attributes: &mut Attributes, usage: &Usage) {
    attributes
        .set("gen_ai.usage.input_tokens", usage.prompt_tokens)
        .set("gen_ai.usage.output_tokens", usage.completion_tokens)
        .set("llm.token_count.prompt", usage.prompt_tokens)
        .set("llm.token_count.completion", usage.completion_tokens)
        .set("llm.token_count.total", usage.total_tokens())
        .set_some("gen_ai.usage.cost", usage.cost_usd)
        .set_some("llm.cost.total", usage.cost_usd);
}

fn size(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

fn step_name(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Route => "route",
        StepKind::Plan => "plan",
        StepKind::Thought => "thought",
        StepKind::ToolCall => "tool_call",
        StepKind::ToolResult => "tool_result",
        StepKind::Approval => "approval",
        StepKind::Reflection => "reflection",
        StepKind::Critique => "critique",
        StepKind::Answer => "answer",
        StepKind::Compaction => "compaction",
        StepKind::Unknown => "step",
    }
}

fn decision_name(decision: Decision) -> &'static str {
    match decision {
        Decision::Approve => "approve",
        Decision::Deny => "deny",
        Decision::Unknown => "unknown",
    }
}

fn outcome_name(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Succeeded => "succeeded",
        RunOutcome::Failed => "failed",
        RunOutcome::Cancelled => "cancelled",
        RunOutcome::Unknown => "unknown",
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
