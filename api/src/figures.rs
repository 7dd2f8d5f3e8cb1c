//! What happened in runs, searches and tracing, for `/metrics`. Counters are of this process since it started; what is open
//! now comes from the read model.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use riverrun_knowledge::retrieval::STAGE_BUCKETS;
use riverrun_schemas::agent::{AgentEvent, RunFinished, Step, StepKind};
use riverrun_schemas::now_ms;
use riverrun_stores::read_models::run_counts::open_run_counts;
use riverrun_stores::read_models::run_views::RunStatus;
use riverrun_workers::tracer::{TracingService, TracingState};

use crate::metrics::Page;
use crate::state::AppState;

/// Names of tools, and reasons for an end, that have series of their own; more share one.
const MAX_NAMES: usize = 200;
const OTHER: &str = "other";
/// A driven run without a step for so long is worth a look.
const SILENT_MS: i64 = 10 * 60 * 1_000;

/// Counts the events of runs that count.
#[derive(Default)]
pub struct RunFigures {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    accepted: u64,
    finished: BTreeMap<(&'static str, String), u64>,
    steps: BTreeMap<&'static str, u64>,
    tools: BTreeMap<String, ToolCounts>,
    model_calls: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    cost_usd: f64,
}

#[derive(Default)]
struct ToolCounts {
    calls: u64,
    errors: u64,
    seconds: f64,
}

impl RunFigures {
    /// Counts an event that the gate let through.
    pub fn count(&self, event: &AgentEvent) {
        let mut counts = self.counts.lock();
        match event {
            AgentEvent::RunAccepted(_) => counts.accepted += 1,
            AgentEvent::RunAdvanced(advance) => advance.steps.iter().for_each(|step| counts.step(step)),
            AgentEvent::RunFinished(end) => counts.end(end),
            AgentEvent::RunClaimed(_)
            | AgentEvent::RunCancelRequested(_)
            | AgentEvent::RunApprovalDecided(_)
            | AgentEvent::RunResumed(_)
            | AgentEvent::RunSnapshotted(_) => {}
        }
    }

    fn write(&self, page: &mut Page) {
        let counts = self.counts.lock();
        page.sample("riverrun_runs_accepted_total", "counter", "runs accepted", &[], counts.accepted as f64);
        for ((status, reason), count) in &counts.finished {
            let labels = [("status", *status), ("stop_reason", reason.as_str())];
            page.sample("riverrun_runs_finished_total", "counter", "runs ended", &labels, *count as f64);
        }
        for (kind, count) in &counts.steps {
            page.sample("riverrun_run_steps_total", "counter", "steps of runs", &[("kind", *kind)], *count as f64);
        }
        for (tool, figures) in &counts.tools {
            for (outcome, count) in [("ok", figures.calls - figures.errors), ("error", figures.errors)] {
                let labels = [("tool", tool.as_str()), ("outcome", outcome)];
                page.sample("riverrun_tool_calls_total", "counter", "tool calls of runs", &labels, count as f64);
            }
        }
        for (tool, figures) in &counts.tools {
            let labels = [("tool", tool.as_str())];
            page.sample("riverrun_tool_seconds_total", "counter", "time within tools", &labels, figures.seconds);
        }
        page.sample("riverrun_model_calls_total", "counter", "model calls of runs", &[], counts.model_calls as f64);
        for (direction, tokens) in [("input", counts.prompt_tokens), ("output", counts.completion_tokens)] {
            let labels = [("direction", direction)];
            page.sample("riverrun_model_tokens_total", "counter", "tokens of runs", &labels, tokens as f64);
        }
        page.sample("riverrun_model_cost_usd_total", "counter", "cost of runs where it is known", &[], counts.cost_usd);
    }
}

impl Counts {
    fn step(&mut self, step: &Step) {
        *self.steps.entry(kind_name(step.kind)).or_default() += 1;
        if let Some(usage) = &step.usage {
            self.model_calls += 1;
            self.prompt_tokens += u64::try_from(usage.prompt_tokens).unwrap_or(0);
            self.completion_tokens += u64::try_from(usage.completion_tokens).unwrap_or(0);
            self.cost_usd += usage.cost_usd.unwrap_or(0.0);
        }
        if step.kind == StepKind::ToolResult
            && let Some(tool) = &step.tool
        {
            let known = self.tools.len() < MAX_NAMES || self.tools.contains_key(&tool.name);
            let name = if known { tool.name.as_str() } else { OTHER };
            let counts = self.tools.entry(name.to_owned()).or_default();
            counts.calls += 1;
            counts.errors += u64::from(tool.error.is_some());
            counts.seconds += tool.duration_ms.unwrap_or(0) as f64 / 1_000.0;
        }
    }

    fn end(&mut self, end: &RunFinished) {
        let status = RunStatus::from(end.status).as_str();
        let known = self.finished.len() < MAX_NAMES || self.finished.contains_key(&(status, end.stop_reason.clone()));
        let reason = if known { end.stop_reason.as_str() } else { OTHER };
        *self.finished.entry((status, reason.to_owned())).or_default() += 1;
    }
}

fn kind_name(kind: StepKind) -> &'static str {
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
        StepKind::Unknown => "unknown",
    }
}

/// Everything of it.
pub async fn write(state: &AppState, page: &mut Page) {
    state.hub().figures().write(page);
    write_open_runs(state, page).await;
    write_retrieval(state, page);
    write_tracing(state.core().tracing(), page);
}

/// A database that does not answer leaves these out; `/health` says why.
async fn write_open_runs(state: &AppState, page: &mut Page) {
    let now = now_ms();
    let Ok(open) = open_run_counts(&state.parts().sql, now - SILENT_MS).await else { return };
    for (status, runs) in &open.by_status {
        page.sample(
            "riverrun_runs_open",
            "gauge",
            "runs that have not ended",
            &[("status", status.as_str())],
            *runs as f64,
        );
    }
    let oldest = open.oldest_at.map_or(0, |at| (now - at).max(0));
    page.sample(
        "riverrun_runs_oldest_open_seconds",
        "gauge",
        "age of the oldest run that has not ended",
        &[],
        oldest as f64 / 1_000.0,
    );
    page.sample(
        "riverrun_runs_silent",
        "gauge",
        "running runs without a step for ten minutes",
        &[],
        open.silent as f64,
    );
}

fn write_retrieval(state: &AppState, page: &mut Page) {
    const NAME: &str = "riverrun_retrieval_stage_seconds";
    for stage in state.parts().retriever.figures().stages() {
        page.family(NAME, "histogram", "time of the stages of searches");
        for (bucket, bound) in stage.buckets.iter().zip(STAGE_BUCKETS) {
            let bound = bound.to_string();
            page.line(&format!("{NAME}_bucket"), &[("stage", stage.name), ("le", &bound)], *bucket as f64);
        }
        page.line(&format!("{NAME}_bucket"), &[("stage", stage.name), ("le", "+Inf")], stage.count as f64);
        page.line(&format!("{NAME}_sum"), &[("stage", stage.name)], stage.seconds);
        page.line(&format!("{NAME}_count"), &[("stage", stage.name)], stage.count as f64);
    }
}

/// Whether spans arrive; nothing where runs are not traced.
pub fn write_tracing(tracing: &TracingService, page: &mut Page) {
    if !tracing.is_on() {
        return;
    }
    let up = tracing.status().state == TracingState::Up;
    page.sample(
        "riverrun_tracing_up",
        "gauge",
        "1 while the tracing service takes spans",
        &[],
        f64::from(u8::from(up)),
    );
    let figures = tracing.figures();
    for (what, spans) in [("exported", figures.exported), ("rejected", figures.rejected), ("dropped", figures.dropped)]
    {
        page.sample(
            "riverrun_tracing_spans_total",
            "counter",
            "spans by what became of them",
            &[("what", what)],
            spans as f64,
        );
    }
    page.sample(
        "riverrun_tracing_failures_total",
        "counter",
        "requests that the tracing service did not take",
        &[],
        figures.failures as f64,
    );
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::{RunAdvanced, RunOutcome, ToolEffect, ToolUse};
    use riverrun_schemas::{RunId, Usage};

    use super::*;

    fn step(seq: i64, kind: StepKind) -> Step {
        Step { seq, kind, agent: "react".into(), text: None, tool: None, usage: None, at: 0 }
    }

    fn result(seq: i64, tool: &str, error: Option<&str>) -> Step {
        let tool = ToolUse {
            call_id: seq.to_string(),
            name: tool.to_owned(),
            arguments_json: "{}".into(),
            effect: ToolEffect::None,
            result_json: None,
            result_blob: None,
            error: error.map(str::to_owned),
            duration_ms: Some(500),
        };
        Step { tool: Some(tool), ..step(seq, StepKind::ToolResult) }
    }

    #[test]
    fn given_events_of_runs_when_they_are_counted_then_the_page_shows_them_and_has_bounds() {
        let (figures, run_id) = (RunFigures::default(), RunId::derive(&["a"]));
        let usage = Some(Usage { prompt_tokens: 7, completion_tokens: 3, cost_usd: Some(0.5), ..Usage::default() });
        let mut steps = vec![
            Step { usage, ..step(1, StepKind::Thought) },
            result(2, "clock", None),
            result(3, "clock", Some("no")),
        ];
        steps.extend((0..2 * MAX_NAMES).map(|n| result(4 + n as i64, &format!("tool-{n}"), None)));
        figures.count(&RunAdvanced { run_id, epoch: 1, steps }.into());
        let end = RunFinished {
            run_id,
            epoch: 1,
            status: RunOutcome::Failed,
            agent: "react".into(),
            answer: None,
            citations: Vec::new(),
            usage: Usage::default(),
            stop_reason: "max_iters".into(),
            error: None,
            at: 0,
        };
        figures.count(&end.into());
        let mut page = Page::default();
        figures.write(&mut page);
        let text = page.finish();
        for line in [
            "riverrun_runs_finished_total{status=\"failed\",stop_reason=\"max_iters\"} 1\n",
            "riverrun_run_steps_total{kind=\"thought\"} 1\n",
            "riverrun_tool_calls_total{tool=\"clock\",outcome=\"error\"} 1\n",
            "riverrun_tool_calls_total{tool=\"clock\",outcome=\"ok\"} 1\n",
            "riverrun_tool_seconds_total{tool=\"clock\"} 1\n",
            "riverrun_model_tokens_total{direction=\"input\"} 7\n",
            "riverrun_model_cost_usd_total 0.5\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("outcome=\"ok\"").count(), MAX_NAMES + 1);
    }
}
