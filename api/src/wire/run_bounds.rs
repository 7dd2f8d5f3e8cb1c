//! Messages of a run's stream that clients take: WebSocket libraries refuse frames beyond a size, Python's beyond 1 MiB.

use riverrun_agents::memory::shorten_bytes;
use riverrun_stores::read_models::{RunView, StepView, ToolView};
use serde::Serialize;
use serde_json::Value;

use super::RunMessage;

/// Most bytes of a message, apart from what an answer of unusual length adds: three quarters of what Python takes.
const MAX_MESSAGE_BYTES: usize = 768 << 10;
/// A message's own fields, beside the step or the result.
const FRAME_BYTES: usize = 512;
/// Bytes of each text of a step that is cut. JSON writes a control character in six.
const MAX_CUT_BYTES: usize = 16 << 10;

impl RunMessage {
    /// The message, with less in it where it would be too large, which it says.
    pub(crate) fn bounded(self) -> Self {
        match self {
            RunMessage::Step { step, truncated: false } if size(&step) > MAX_MESSAGE_BYTES - FRAME_BYTES => {
                RunMessage::Step { step: cut(step), truncated: true }
            }
            RunMessage::Final { mut result, steps_truncated: false, .. } => {
                let steps = std::mem::take(&mut result.steps);
                let room = (MAX_MESSAGE_BYTES - FRAME_BYTES).saturating_sub(size(&result));
                let fitting = fitting_steps(&steps, room);
                end_with(result, steps, fitting)
            }
            other @ (RunMessage::Start { .. }
            | RunMessage::Step { .. }
            | RunMessage::Token { .. }
            | RunMessage::Final { .. }) => other,
        }
    }
}

/// The end with the first steps.
fn end_with(mut result: Box<RunView>, mut steps: Vec<StepView>, fitting: usize) -> RunMessage {
    if fitting == steps.len() {
        result.steps = steps;
        return RunMessage::Final { result, steps_truncated: false, steps_total: None, steps_rest: None };
    }
    let steps_total = steps.last().map(|step| step.seq);
    steps.truncate(fitting);
    let shown = steps.last().map_or(0, |step| step.seq);
    let steps_rest = Some(format!("/runs/{}/steps?cursor={shown}", result.run_id));
    result.steps = steps;
    RunMessage::Final { result, steps_truncated: true, steps_total, steps_rest }
}

/// How many of the first steps fit into so many bytes of JSON.
pub(crate) fn fitting_steps(steps: &[StepView], bytes: usize) -> usize {
    let mut left = bytes;
    let fits = |step: &&StepView| match left.checked_sub(size(step) + 1) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    steps.iter().take_while(fits).count()
}

fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// The beginnings of a step's texts.
fn cut(step: StepView) -> StepView {
    let text = step.text.map(|text| shorten_bytes(&text, MAX_CUT_BYTES));
    let tool = step.tool.map(|tool| ToolView {
        arguments: cut_value(tool.arguments),
        result: tool.result.map(cut_value),
        error: tool.error.map(|error| shorten_bytes(&error, MAX_CUT_BYTES)),
        ..tool
    });
    StepView { text, tool, ..step }
}

/// A value that is too large becomes the beginning of its JSON.
fn cut_value(value: Value) -> Value {
    let json = value.to_string();
    if json.len() <= MAX_CUT_BYTES { value } else { Value::String(shorten_bytes(&json, MAX_CUT_BYTES)) }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::{
        RunAccepted, RunFinished, RunOutcome, RunRequest, Step, StepKind, ToolEffect, ToolUse,
    };
    use riverrun_schemas::{RunId, Usage};
    use riverrun_stores::read_models::{result_view, step_view};

    use super::*;

    /// What Python's `websockets` takes when nothing else is said.
    const TAKEN: usize = 1 << 20;

    fn step(seq: i64, letter: char, length: usize) -> Step {
        let text = Some(String::from_iter(std::iter::repeat_n(letter, length)));
        Step { seq, kind: StepKind::Thought, agent: "react".into(), text, tool: None, usage: None, at: 0 }
    }

    fn ended(steps: &[Step]) -> RunMessage {
        let run_id = RunId::derive(&["bounds"]);
        let accepted = RunAccepted { run_id, request: RunRequest::default(), forked_from: None, at: 0 };
        let finished = RunFinished {
            run_id,
            epoch: 1,
            status: RunOutcome::Succeeded,
            agent: "react".into(),
            answer: Some("done".into()),
            citations: Vec::new(),
            usage: Usage::default(),
            stop_reason: "answered".into(),
            error: None,
            at: 1,
        };
        RunMessage::finale(result_view(&accepted, steps, &finished))
    }

    #[test]
    fn given_runs_of_any_size_when_they_end_then_the_message_is_whole_or_says_what_is_missing_and_where_it_is() {
        for (count, length, whole) in [
            (0, 0, true),
            (10, 100, true),
            (700, 1_000, true),
            (800, 1_000, false),
            (3, 500_000, false),
            (1, 900_000, false),
        ] {
            for letter in ['x', '"', 'ä', '\u{1}'] {
                let steps: Vec<Step> = (1..=count).map(|seq| step(seq, letter, length)).collect();
                let message = ended(&steps);
                let bounded = message.clone().bounded();
                assert!(size(&bounded) <= MAX_MESSAGE_BYTES, "{count} × {length} {letter:?}: {}", size(&bounded));
                if whole && letter == 'x' {
                    assert_eq!(bounded, message, "{count} × {length}");
                    assert!(!serde_json::to_string(&bounded).unwrap().contains("truncated"));
                    continue;
                }
                let RunMessage::Final { result, steps_truncated, steps_total, steps_rest } = bounded else {
                    panic!("another message")
                };
                if steps_truncated {
                    let shown = result.steps.last().map_or(0, |step| step.seq);
                    assert_eq!((steps_total, i64::try_from(result.steps.len())), (Some(count), Ok(shown)));
                    assert!(steps_rest.unwrap().ends_with(&format!("/steps?cursor={shown}")));
                } else {
                    assert_eq!(result.steps.len(), steps.len());
                }
            }
        }
    }

    #[test]
    fn given_a_step_that_is_too_large_when_it_is_said_then_its_texts_are_cut_and_the_rest_is_as_it_was() {
        for letter in ['x', '"', '\u{1}'] {
            let words = String::from_iter(std::iter::repeat_n(letter, 400_000));
            let tool = ToolUse {
                call_id: "call-1".into(),
                name: "read".into(),
                arguments_json: serde_json::json!({ "all": words }).to_string(),
                effect: ToolEffect::None,
                result_json: Some(serde_json::json!([words]).to_string()),
                result_blob: None,
                error: None,
                duration_ms: Some(3),
            };
            let step = step_view(&Step { tool: Some(tool), ..step(7, letter, 400_000) });
            let message = RunMessage::Step { step, truncated: false };
            let bounded = message.bounded();
            assert!(size(&bounded) < TAKEN, "{letter:?}: {}", size(&bounded));
            let RunMessage::Step { step, truncated } = &bounded else { panic!("another message") };
            let tool = step.tool.as_ref().unwrap();
            assert!(*truncated && step.text.as_ref().unwrap().contains("(the beginning of 400000 bytes)"));
            assert_eq!((step.seq, tool.name.as_str(), tool.duration_ms), (7, "read", Some(3)));
            assert!(tool.result.as_ref().unwrap().as_str().unwrap().contains("(the beginning of"));
            assert_eq!(bounded.clone().bounded(), bounded, "once is enough");
        }
        let small = RunMessage::Step { step: step_view(&step(1, 'x', 700_000)), truncated: false };
        assert_eq!(small.clone().bounded(), small);
    }
}
