//! given a run's events, when an agent is asked, then it does this: what the tables of all agent types are written with.

use riverrun_schemas::agent::{AgentEvent, RunClaimed, RunRequest, Step, StepKind, ToolUse};
use serde_json::{Value, json};

use super::{Action, Ending, ModelCall, ModelMode, Reply, StepDraft};
use crate::state::NOT_SENT;

/// What the tests from outside drive runs with.
#[path = "../../tests/common/mod.rs"]
mod common;

/// A run that is told what happened, as a worker would write it.
pub(super) use common::Run as Given;

pub(super) fn request(agent: &str) -> RunRequest {
    common::request(agent, "what is 6 times 7?", 8)
}

/// An action that uses a tool.
pub(super) fn calls(tool: &str, expression: &str) -> String {
    let argument = if tool == "knowledge_search" { "query" } else { "expression" };
    json!({ "thought": "it helps", "tool": tool, "arguments": { argument: expression } }).to_string()
}

/// An action that is a way out.
pub(super) fn leaves(exit: &str) -> String {
    json!({ "thought": "enough", "tool": exit, "arguments": {} }).to_string()
}

impl Given {
    pub(super) fn claimed(mut self, epoch: i64) -> Self {
        let claim = RunClaimed { run_id: self.state.run_id, epoch, worker: format!("w{epoch}"), at: 0 };
        assert!(self.state.apply(&AgentEvent::RunClaimed(claim)));
        self
    }

    pub(super) fn without_tools(mut self) -> Self {
        self.tools.clear();
        self
    }

    pub(super) fn steps(mut self, drafts: Vec<StepDraft>) -> Self {
        self.append(drafts);
        self
    }

    /// The model replies to the call that is due, which is of this mode.
    pub(super) fn replied(self, mode: ModelMode, text: &str) -> Self {
        self.replied_with(mode, &common::reply(text))
    }

    pub(super) fn replied_with(self, mode: ModelMode, reply: &Reply) -> Self {
        assert_eq!(self.mode(), mode, "another call is due");
        self.told(mode, reply)
    }

    /// The model's reply is taken in, whatever is due.
    pub(super) fn told(self, mode: ModelMode, reply: &Reply) -> Self {
        let drafts = self.interpret(mode, reply);
        self.steps(drafts)
    }

    /// The tool whose call is due returns this.
    pub(super) fn result(self, value: Value) -> Self {
        self.ended(Ok(value))
    }

    /// The tool whose call is due fails.
    pub(super) fn fails(self, error: &str) -> Self {
        self.ended(Err(error.to_owned()))
    }

    /// The tool whose call is due reaches nobody.
    pub(super) fn reaches_nobody(self) -> Self {
        let Action::CallTool(call) = self.next() else { panic!("no call is due: {:?}", self.next()) };
        let (result_json, error) = (Some(NOT_SENT.to_owned()), Some("it does not answer".to_owned()));
        self.steps(vec![StepDraft::tool(StepKind::ToolResult, ToolUse { result_json, error, ..call })])
    }

    fn ended(self, outcome: Result<Value, String>) -> Self {
        let Action::CallTool(call) = self.next() else { panic!("no call is due: {:?}", self.next()) };
        self.steps(Self::returned(call, outcome))
    }

    /// The steps that the agent appends by itself are written.
    pub(super) fn appended(self) -> Self {
        let Action::Append(drafts) = self.next() else { panic!("nothing to append: {:?}", self.next()) };
        self.steps(drafts)
    }

    pub(super) fn call(&self) -> ModelCall {
        match self.next() {
            Action::CallModel(call) => call,
            other => panic!("no model call: {other:?}"),
        }
    }

    pub(super) fn mode(&self) -> ModelMode {
        self.call().mode
    }

    pub(super) fn ending(&self) -> Ending {
        match self.next() {
            Action::Finish(ending) => ending,
            other => panic!("no end: {other:?}"),
        }
    }

    pub(super) fn last(&self) -> &Step {
        self.state.steps.last().unwrap()
    }

    /// The kinds of the steps so far.
    pub(super) fn kinds(&self) -> Vec<StepKind> {
        self.state.steps.iter().map(|step| step.kind).collect()
    }

    /// The whole prompt of the call that is due.
    pub(super) fn prompt(&self) -> String {
        self.call().messages.iter().map(|message| message.content.clone()).collect::<Vec<_>>().join("\n")
    }

    /// The tools and ways out that the call that is due lets the model name.
    pub(super) fn choices(&self) -> Vec<String> {
        let schema = self.call().response_schema.expect("a schema");
        let branches = schema["anyOf"].as_array().expect("branches").clone();
        branches.iter().map(|b| b["properties"]["tool"]["enum"][0].as_str().unwrap().to_owned()).collect()
    }
}
