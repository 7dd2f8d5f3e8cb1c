//! given a run's events, when an agent is asked, then it does this: what the tables of all agent types are written with.

use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, RunAccepted, RunAdvanced, RunClaimed, RunRequest, Step, StepKind, ToolEffect, ToolUse,
};
use riverrun_schemas::{RunId, Usage};
use serde_json::{Value, json};

use super::{Action, Ending, ModelCall, ModelMode, Reply, StepDraft, agent, next};
use crate::state::RunState;
use crate::tools::ToolManifest;

pub(super) fn request(agent: &str) -> RunRequest {
    RunRequest {
        task: "what is 6 times 7?".into(),
        agent: Some(agent.into()),
        max_iters: Some(8),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    }
}

/// A harmless tool, one that changes something outside, and the search.
pub(super) fn tools() -> Vec<ToolManifest> {
    let tool = |name: &str, argument: &str, effect| {
        let schema =
            json!({ "type": "object", "properties": { argument: { "type": "string" } }, "required": [argument] });
        ToolManifest::builtin(name, "does it", schema, effect)
    };
    vec![
        tool("calculator", "expression", ToolEffect::None),
        tool("pay", "expression", ToolEffect::External),
        tool("knowledge_search", "query", ToolEffect::None),
    ]
}

pub(super) fn reply(text: &str) -> Reply {
    Reply { text: text.into(), usage: Usage { prompt_tokens: 10, completion_tokens: 5, cost_usd: None }, cut: false }
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

/// A run that is told what happened, as a worker would write it.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) state: RunState,
    pub(super) tools: Vec<ToolManifest>,
}

impl Given {
    pub(super) fn run(request: RunRequest) -> Self {
        let run_id = RunId::derive(&["test"]);
        let state = RunState::accepted(&RunAccepted { run_id, request, forked_from: None, at: 1_000 });
        Given { state, tools: tools() }.claimed(1)
    }

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
        assert!(!drafts.is_empty(), "an event without steps");
        let first = self.state.last_seq() + 1;
        let name = self.state.agent().unwrap_or("supervisor").to_owned();
        let steps = drafts.into_iter().zip(first..).map(|(draft, seq)| draft.number(seq, &name, 0)).collect();
        let event = RunAdvanced { run_id: self.state.run_id, epoch: self.state.epoch(), steps };
        assert!(self.state.apply(&AgentEvent::RunAdvanced(event)), "the event is void");
        self
    }

    /// The model replies to the call that is due, which is of this mode.
    pub(super) fn replied(self, mode: ModelMode, text: &str) -> Self {
        self.replied_with(mode, &reply(text))
    }

    pub(super) fn replied_with(self, mode: ModelMode, reply: &Reply) -> Self {
        assert_eq!(self.mode(), mode, "another call is due");
        self.told(mode, reply)
    }

    /// The model's reply is taken in, whatever is due.
    pub(super) fn told(self, mode: ModelMode, reply: &Reply) -> Self {
        let agent = agent(self.state.agent().unwrap()).unwrap();
        let drafts = agent.interpret(&self.state, &self.tools, mode, reply);
        self.steps(drafts)
    }

    /// The tool whose call is due returns this.
    pub(super) fn result(self, value: Value) -> Self {
        let Action::CallTool(call) = self.next() else { panic!("no call is due: {:?}", self.next()) };
        self.steps(vec![StepDraft::tool(
            StepKind::ToolResult,
            ToolUse { result_json: Some(value.to_string()), ..call },
        )])
    }

    /// The tool whose call is due fails.
    pub(super) fn fails(self, error: &str) -> Self {
        let Action::CallTool(call) = self.next() else { panic!("no call is due: {:?}", self.next()) };
        self.steps(vec![StepDraft::tool(StepKind::ToolResult, ToolUse { error: Some(error.to_owned()), ..call })])
    }

    /// The steps that the agent appends by itself are written.
    pub(super) fn appended(self) -> Self {
        let Action::Append(drafts) = self.next() else { panic!("nothing to append: {:?}", self.next()) };
        self.steps(drafts)
    }

    pub(super) fn next(&self) -> Action {
        next(&self.state, &self.tools, 2_000)
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
