//! Making a fork: the steps that it shares with its source, checked, and the command that starts it.

use std::time::Duration;

use riverrun_agents::catalog;
use riverrun_log::BlobError;
use riverrun_schemas::agent::{AgentCommand, ForkRun, ForkedFrom, RunRequest, SessionPolicy, Step, StepKind};
use riverrun_schemas::{RunId, counted, now_ms};
use riverrun_stores::read_models::run_forks;

use crate::accept::{AcceptedRun, COMPONENT, key_conflict};
use crate::error::ApiError;
use crate::state::AppState;
use crate::submit::{self, Checks, Known, MAX_TASK};
use crate::wire::{ForkBody, RunStatus, RunView};

/// Shared steps up to this size, as JSON in bytes, are in the command; larger ones are in the blob store.
const MAX_INLINE: usize = 64 << 10;
/// How long the read model is waited for when it is behind the step that is asked for.
const CATCH_UP: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Puts a fork on the log, or finds the one that the same key started.
pub(crate) async fn fork(
    state: &AppState,
    source: &RunView,
    key: Option<&str>,
    body: ForkBody,
) -> Result<AcceptedRun, ApiError> {
    let last = source.steps.last().map_or(0, |step| step.seq);
    let mut checks = Checks::default();
    checks.require(
        (0..=last).contains(&body.at_seq),
        "at_seq",
        format!("is {}; run {} has steps 1 to {last}, and 0 shares none", body.at_seq, source.run_id),
    );
    checks.finish()?;
    let at_seq = body.at_seq;
    let original = state
        .hub()
        .request(source.run_id)
        .await?
        .ok_or_else(|| ApiError::internal(format!("the request of {} is not there", source.run_id)))?;
    let other_task = body.task.as_ref().is_some_and(|task| *task != original.task);
    let request = changed(original, body, &state.core().known())?;
    let run_id = match key {
        None => submit::run_id_for(&request, |_| RunId::new()),
        Some(key) => {
            let source = source.run_id.to_string();
            submit::run_id_for(&request, |n| RunId::derive(&["fork", &source, key, &n.to_string()]))
        }
    };
    if let Some(key) = key
        && let Some(known) = known(state, run_id).await?
    {
        return repeat(known, (&request, at_seq), key);
    }
    let steps = shared_steps(state, source.run_id, at_seq).await?;
    if other_task {
        // Of a run that named none, the supervisor's choice is among the shared steps.
        refuse_other_task(request.agent.as_deref().or(source.agent.as_deref()), &steps)?;
    }
    let json = serde_json::to_vec(&steps).map_err(|error| ApiError::internal(error.to_string()))?;
    let (steps, steps_blob) = if json.len() <= MAX_INLINE {
        (steps, None)
    } else {
        let put = state.parts().blobs.put_bytes(json.into(), "application/json").await;
        (Vec::new(), Some(put.map_err(|error| unstorable(&error))?))
    };
    let forked_from = ForkedFrom { run_id: source.run_id, at_seq };
    let command = ForkRun { run_id, forked_from, request, steps, steps_blob, at: now_ms() };
    state.parts().producer.send(&AgentCommand::ForkRun(command.clone()), COMPONENT, None).await?;
    state.hub().remember_accepted(run_id, &command.request, command.at);
    Ok(AcceptedRun { run_id, status: RunStatus::Queued })
}

/// A run with what it was asked to do, where it was started before.
async fn known(state: &AppState, run_id: RunId) -> Result<Option<(RunView, RunRequest)>, ApiError> {
    Ok(state.hub().run(run_id).await?.zip(state.hub().request(run_id).await?))
}

/// The same key with another fork is refused.
fn repeat(
    (run, accepted): (RunView, RunRequest),
    (asked, at_seq): (&RunRequest, i64),
    key: &str,
) -> Result<AcceptedRun, ApiError> {
    // One that no worker has taken yet does not say where it branched off.
    let same_place = run.forked_from.as_ref().is_none_or(|from| from.at_seq == at_seq);
    if same_place && submit::same_request(asked, &accepted) {
        return Ok(AcceptedRun { run_id: run.run_id, status: run.status });
    }
    Err(key_conflict(key, "fork").about_run(run.run_id))
}

fn unstorable(error: &BlobError) -> ApiError {
    ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, error.code(), error.to_string())
        .hint("check the disk and the data folder (RIVERRUN_DATA_DIR), then fork again")
}

/// The source's request with what the fork does otherwise. It takes over the answers that the source took over, as
/// answers: they are words from outside, and stay so. It is no part of the source's chain.
fn changed(original: RunRequest, body: ForkBody, known: &Known) -> Result<RunRequest, ApiError> {
    let mut checks = Checks::default();
    if let Some(task) = &body.task {
        checks.text("task", task, MAX_TASK);
    }
    checks.label("model", body.model.as_deref());
    let agents = catalog();
    submit::one_of(&mut checks, "agent", body.agent.as_deref(), agents.iter().map(|manifest| manifest.name));
    known.provider(&mut checks, body.provider.as_deref());
    checks.finish()?;
    let (provider, model) = asked((original.provider, original.model), (body.provider, body.model), known);
    Ok(RunRequest {
        task: body.task.unwrap_or(original.task),
        agent: body.agent.or(original.agent),
        provider,
        model,
        // What the source was to do to others of its session was said of that moment: a branch takes its turn.
        session_policy: SessionPolicy::Enqueue,
        chain: None,
        ..original
    })
}

/// A provider and a model, where they are named.
type Named = (Option<String>, Option<String>);

/// Whom a fork asks. A model that names its provider is asked there, and another provider is not asked for the source's model.
fn asked(source: Named, fork: Named, known: &Known) -> Named {
    let names_provider = |model: &str| {
        model.split_once('/').is_some_and(|(prefix, _)| known.providers.iter().any(|provider| provider == prefix))
    };
    match fork {
        (None, Some(model)) if names_provider(&model) => (None, Some(model)),
        (Some(provider), None) if source.0.as_deref() != Some(provider.as_str()) => (Some(provider), None),
        (provider, model) => (provider.or(source.0), model.or(source.1)),
    }
}

/// Steps 1 to `at_seq`, without the tokens that the source has paid for.
async fn shared_steps(state: &AppState, source: RunId, at_seq: i64) -> Result<Vec<Step>, ApiError> {
    let count = usize::try_from(at_seq).unwrap_or(0);
    let until = tokio::time::Instant::now() + CATCH_UP;
    let steps = loop {
        let steps = run_forks::first_steps(&state.parts().sql, source, at_seq).await?;
        if steps.len() == count {
            break steps;
        }
        if tokio::time::Instant::now() > until {
            let wanted = counted(at_seq, "step");
            let detail = format!("the read model has {} of {wanted} of {source}", steps.len());
            return Err(ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "read_model_behind", detail)
                .hint("it catches up by itself: fork again in a moment"));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    refuse_cuts(&steps)?;
    Ok(steps.into_iter().map(|step| Step { usage: None, ..step }).collect())
}

/// A branch begins where nothing is under way: behind a call's result, and before the answer.
fn refuse_cuts(steps: &[Step]) -> Result<(), ApiError> {
    let results = |call_id: &str| {
        steps.iter().any(|step| {
            step.kind == StepKind::ToolResult && step.tool.as_ref().is_some_and(|tool| tool.call_id == call_id)
        })
    };
    let open = steps
        .iter()
        .filter(|step| step.kind == StepKind::ToolCall)
        .find(|step| step.tool.as_ref().is_some_and(|tool| !results(&tool.call_id)));
    if let Some(call) = open {
        return Err(ApiError::field("at_seq", format!("cuts off step {}, a call without its result", call.seq))
            .hint(format!("fork before the call (at_seq {}) or at its result", call.seq - 1)));
    }
    if let Some(answer) = steps.last().filter(|step| step.kind == StepKind::Answer) {
        return Err(ApiError::field("at_seq", format!("is step {}, the answer: nothing is left to do", answer.seq))
            .hint(format!("fork before it: at_seq {}", answer.seq - 1)));
    }
    Ok(())
}

/// A plan, or the judgement of a draft, is of the task as it stood: an agent that goes on from one needs that task.
fn refuse_other_task(agent: Option<&str>, steps: &[Step]) -> Result<(), ApiError> {
    let found = agent.and_then(|name| riverrun_agents::agent(name).ok());
    let bound = found.map(|agent| agent.bound_to_task()).unwrap_or_default();
    match steps.iter().find(|step| bound.contains(&step.kind)) {
        None => Ok(()),
        Some(step) => {
            let agent = agent.unwrap_or_default();
            let reason =
                format!("can't be another one: {agent} would go on from step {}, made for the old one", step.seq);
            let hint =
                format!("fork before that step (at_seq {}), with another agent, or without another task", step.seq - 1);
            Err(ApiError::field("task", reason).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::{ToolEffect, ToolUse};

    use super::*;

    fn step(seq: i64, kind: StepKind) -> Step {
        let tool = ToolUse {
            call_id: "c".into(),
            name: "pay".into(),
            arguments_json: "{}".into(),
            effect: ToolEffect::External,
            result_json: None,
            result_blob: None,
            error: None,
            duration_ms: None,
        };
        let of_tool = matches!(kind, StepKind::ToolCall | StepKind::Approval | StepKind::ToolResult);
        let tool = of_tool.then_some(tool);
        Step { seq, kind, agent: "react".into(), text: None, tool, usage: None, at: 0 }
    }

    #[test]
    fn given_a_source_with_a_policy_for_its_session_when_it_is_forked_then_the_branch_takes_its_turn() {
        for session_policy in [SessionPolicy::Enqueue, SessionPolicy::Reject, SessionPolicy::Interrupt] {
            let original = RunRequest { session: Some("s".into()), session_policy, ..RunRequest::default() };
            let body: ForkBody = serde_json::from_value(serde_json::json!({ "at_seq": 1 })).unwrap();
            let request = changed(original, body, &Known::default()).unwrap();
            assert_eq!((request.session.as_deref(), request.session_policy), (Some("s"), SessionPolicy::Enqueue));
        }
    }

    #[test]
    fn given_another_model_or_provider_when_a_run_is_forked_then_no_provider_is_asked_for_a_model_of_another() {
        let named =
            |provider: Option<&str>, model: Option<&str>| (provider.map(str::to_owned), model.map(str::to_owned));
        let known = Known { providers: vec!["ollama".into(), "openai".into()], ..Known::default() };
        let source = named(Some("ollama"), Some("small"));
        for (fork, expected) in [
            (named(None, None), source.clone()),
            (named(None, Some("large")), named(Some("ollama"), Some("large"))),
            (named(None, Some("openai/gpt-4o")), named(None, Some("openai/gpt-4o"))),
            (named(None, Some("owner/large")), named(Some("ollama"), Some("owner/large"))),
            (named(Some("openai"), None), named(Some("openai"), None)),
            (named(Some("ollama"), None), source.clone()),
            (named(Some("openai"), Some("gpt-4o")), named(Some("openai"), Some("gpt-4o"))),
        ] {
            assert_eq!(asked(source.clone(), fork.clone(), &known), expected, "{fork:?}");
        }
    }

    #[test]
    fn given_a_plan_or_a_judgement_when_a_fork_behind_it_has_another_task_then_who_would_go_on_from_it_refuses() {
        use StepKind::{Critique, Plan, Reflection, Thought};
        for (agent, kind, passes) in [
            ("plan_execute", Plan, false),
            ("reflexion", Critique, false),
            ("reflexion", Reflection, false),
            ("critic", Critique, false),
            ("react", Plan, true),
            ("react", Critique, true),
            ("plan_execute", Critique, true),
            ("critic", Thought, true),
        ] {
            let steps = [step(1, Thought), step(2, kind), step(3, Thought)];
            let refused = refuse_other_task(Some(agent), &steps);
            assert_eq!(refused.is_ok(), passes, "{agent} {kind:?}");
            assert!(refuse_other_task(Some(agent), &steps[..1]).is_ok(), "{agent}");
            if let Err(error) = refused {
                assert!(error.to_string().contains("step 2"), "{error}");
            }
        }
        assert!(refuse_other_task(None, &[]).is_ok());
    }

    #[test]
    fn given_a_run_when_it_is_cut_anywhere_then_only_whole_beginnings_pass() {
        use StepKind::{Answer, Approval, Thought, ToolCall, ToolResult};
        let kinds = [Thought, ToolCall, Approval, ToolResult, Thought, Answer];
        let steps: Vec<Step> = kinds.into_iter().zip(1..).map(|(kind, seq)| step(seq, kind)).collect();
        let passes: Vec<bool> = (0..=steps.len()).map(|count| refuse_cuts(&steps[..count]).is_ok()).collect();
        assert_eq!(passes, [true, true, false, false, true, true, false]);
    }
}
