//! A run that is driven by hand: what a worker does, without a log. The tables of `decide` are written with it too.

use riverrun_agents::decide::{self, Reply, StepDraft};
use riverrun_agents::tools::ToolManifest;
use riverrun_agents::{Action, ModelMode, RunState};
use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, RunAccepted, RunAdvanced, RunClaimed, RunRequest, Step, StepKind, ToolEffect, ToolUse,
};
use riverrun_schemas::{RunId, Usage};
use serde_json::{Value, json};

pub(crate) fn request(agent: &str, task: &str, max_iters: i32) -> RunRequest {
    RunRequest {
        task: task.into(),
        agent: Some(agent.into()),
        max_iters: Some(max_iters),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    }
}

pub(crate) fn tools() -> Vec<ToolManifest> {
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

pub(crate) fn reply(text: &str) -> Reply {
    Reply {
        text: text.into(),
        usage: Usage { prompt_tokens: 10, completion_tokens: 5, cost_usd: None, ..Usage::default() },
        cut: false,
    }
}

#[derive(Clone)]
pub(crate) struct Run {
    pub state: RunState,
    pub tools: Vec<ToolManifest>,
}

impl Run {
    pub(crate) fn new(request: RunRequest) -> Self {
        let run_id = RunId::derive(&["golden"]);
        let mut state = RunState::accepted(&RunAccepted { run_id, request, forked_from: None, at: 1_000 });
        state.apply(&AgentEvent::RunClaimed(RunClaimed { run_id, epoch: 1, worker: "w".into(), at: 0 }));
        Run { state, tools: tools() }
    }

    pub(crate) fn next(&self) -> Action {
        let action = decide::next(&self.state, &self.tools, 2_000);
        assert_eq!(action, decide::next(&self.state, &self.tools, 2_000), "the same state gives the same action");
        action
    }

    /// The steps that a model's reply is turned into.
    pub(crate) fn interpret(&self, mode: ModelMode, reply: &Reply) -> Vec<StepDraft> {
        let agent = decide::agent(self.state.agent().unwrap()).unwrap();
        agent.interpret(&self.state, &self.tools, mode, reply)
    }

    /// The step of a call that has ended so.
    pub(crate) fn returned(call: ToolUse, outcome: Result<Value, String>) -> Vec<StepDraft> {
        let result = match outcome {
            Ok(value) => ToolUse { result_json: Some(value.to_string()), ..call },
            Err(error) => ToolUse { error: Some(error), ..call },
        };
        vec![StepDraft::tool(StepKind::ToolResult, result)]
    }

    /// Writes steps and takes them in.
    pub(crate) fn append(&mut self, drafts: Vec<StepDraft>) -> Vec<Step> {
        assert!(!drafts.is_empty(), "an event has at least one step");
        let name = self.state.agent().unwrap_or("supervisor").to_owned();
        let first = self.state.last_seq() + 1;
        let steps: Vec<Step> =
            drafts.into_iter().zip(first..).map(|(draft, seq)| draft.number(seq, &name, 0)).collect();
        let event = RunAdvanced { run_id: self.state.run_id, epoch: self.state.epoch(), steps: steps.clone() };
        assert!(self.state.apply(&AgentEvent::RunAdvanced(event)), "the event counts");
        steps
    }
}
