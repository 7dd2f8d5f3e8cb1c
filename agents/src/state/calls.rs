//! Tool calls that have an intent on the log and no result yet: what each waits for, and whether it may have been made.
//! `AGENT-4`: one with an outside effect that may have been made is made again only when a person says so.

use riverrun_schemas::agent::{Decision, RunApprovalDecided, Step, StepKind, ToolUse};
use serde::{Deserialize, Serialize};

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Yes or no.
    pub approved: bool,
    /// Why, in words.
    pub note: Option<String>,
}

/// A question to a person about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// `seq` of the approval step.
    pub seq: i64,
    /// The call was made and what came of it is not known; otherwise the question is whether to make it.
    pub outcome_unknown: bool,
    /// The answer, once it is there.
    pub answer: Option<Answer>,
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The intent.
    pub tool: ToolUse,
    /// The last question about it.
    pub question: Option<Question>,
    /// The claim under which the call was first allowed to be made: whoever holds a later one can't know whether it was.
    /// `None` while a person is asked, and until the first claim behind the answer.
    armed: Option<i64>,
}

/// What an open call asks of the worker that holds the run.
#[derive(Debug, Clone, PartialEq)]
pub enum CallNeeds<'c> {
    /// Make it.
    Call,
    /// Ask a person: it may have taken effect, and must not be repeated on a guess.
    AskOutcome,
    /// Say that a person refused it.
    Refuse(&'c Question, &'c Answer),
    /// A person's answer.
    Person,
    /// A claim behind the person's answer: only under it is known that nobody has made the call since.
    Claim,
}

impl OpenCall {
    /// What it needs under the claim `epoch`.
    pub fn needs(&self, epoch: i64) -> CallNeeds<'_> {
        match (&self.question, self.armed) {
            (Some(Question { answer: None, .. }), _) => CallNeeds::Person,
            (Some(question @ Question { answer: Some(answer), .. }), _) if !answer.approved => {
                CallNeeds::Refuse(question, answer)
            }
            (_, None) => CallNeeds::Claim,
            (_, Some(armed)) if armed < epoch && !self.tool.effect.repeatable() => CallNeeds::AskOutcome,
            (_, Some(_)) => CallNeeds::Call,
        }
    }
}

/// The open calls of a run, in the order of their intents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenCalls(Vec<OpenCall>);

impl OpenCalls {
    pub(super) fn all(&self) -> &[OpenCall] {
        &self.0
    }

    /// What a person was asked about a call last.
    pub(super) fn question(&self, call_id: &str) -> Option<&Question> {
        self.0.iter().find(|call| call.tool.call_id == call_id)?.question.as_ref()
    }

    /// Every call waits for a person, and there is one.
    pub(super) fn all_wait(&self) -> bool {
        let unanswered = |call: &OpenCall| call.question.as_ref().is_some_and(|question| question.answer.is_none());
        !self.0.is_empty() && self.0.iter().all(unanswered)
    }

    pub(super) fn step(&mut self, step: &Step, epoch: i64) {
        let Some(tool) = &step.tool else { return };
        match step.kind {
            StepKind::ToolCall => {
                self.0.push(OpenCall { tool: tool.clone(), question: None, armed: Some(epoch) });
            }
            StepKind::Approval => {
                if let Some(call) = self.0.iter_mut().find(|call| call.tool.call_id == tool.call_id) {
                    call.question =
                        Some(Question { seq: step.seq, outcome_unknown: tool.error.is_some(), answer: None });
                    call.armed = None;
                }
            }
            StepKind::ToolResult => self.0.retain(|call| call.tool.call_id != tool.call_id),
            StepKind::Route
            | StepKind::Plan
            | StepKind::Thought
            | StepKind::Reflection
            | StepKind::Critique
            | StepKind::Answer
            | StepKind::Compaction
            | StepKind::Unknown => {}
        }
    }

    pub(super) fn answer(&mut self, event: &RunApprovalDecided) {
        let asked = |call: &&mut OpenCall| call.question.as_ref().is_some_and(|question| question.seq == event.step);
        if let Some(question) = self.0.iter_mut().find(asked).and_then(|call| call.question.as_mut()) {
            let approved = match event.decision {
                Decision::Approve => true,
                Decision::Deny | Decision::Unknown => false,
            };
            question.answer = Some(Answer { approved, note: event.note.clone() });
        }
    }

    pub(super) fn claimed(&mut self, epoch: i64) {
        for call in &mut self.0 {
            let answered = call.question.as_ref().is_none_or(|question| question.answer.is_some());
            if answered && call.armed.is_none() {
                call.armed = Some(epoch);
            }
        }
    }
}
