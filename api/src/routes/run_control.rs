//! What is said to a run that exists: answers, another look, a branch; and how branches compare.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::response::Response;
use riverrun_schemas::RunId;
use riverrun_schemas::agent::{AgentCommand, DecideApproval, ResumeRun, StepKind};
use riverrun_schemas::now_ms;
use riverrun_stores::read_models::run_tree;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::runs::{accepted_run, ended};
use crate::accept::COMPONENT;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, Path, Query, id};
use crate::forks;
use crate::hub::unknown_run;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wait::until;
use crate::wire::{
    ApprovalBody, ComparedRun, ComparedStep, ForkBody, Problem, RunAccepted, RunComparison, RunTree, RunView, StepView,
};

/// How long the read models may take to show a run that the log knows.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(decide))
        .routes(routes!(resume))
        .routes(routes!(fork))
        .routes(routes!(tree))
        .routes(routes!(compare))
}

async fn known(state: &AppState, run_id: &str) -> Result<RunView, ApiError> {
    let run_id: RunId = id(run_id)?;
    state.hub().run_or_soon(run_id).await?.ok_or_else(|| unknown_run(run_id))
}

/// Answers a run that waits for a person. The first answer to a step counts.
#[utoipa::path(post, path = "/runs/{id}/approvals/{step}", tag = "agents", request_body = ApprovalBody,
    params(("id" = String, Path), ("step" = i64, Path, description = "`step` of an entry of the run's `pending_approvals`")),
    responses((status = 202, body = RunAccepted), (status = 404, body = Problem), (status = 422, body = Problem),
        (status = 409, description = "the step was answered before, or the run has ended", body = Problem)))]
async fn decide(
    State(state): State<AppState>,
    Path((run_id, step)): Path<(String, String)>,
    key: IdempotencyKey,
    Json(body): Json<ApprovalBody>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::default();
    let step = checks.take("step", step.parse::<i64>());
    checks.reason("note", body.note.as_deref());
    checks.finish()?;
    let run = known(&state, &run_id).await?;
    let step = step.unwrap_or_default();
    check_question(&run, step)?;
    let answer = format!("{:?} {:?}", body.decision, key.0);
    let reserved = state.reservations().reserve(&format!("{}/{step}", run.run_id), answer.as_bytes());
    // The read model may not know yet what was just answered. Who says the same again says it for the second time, but with a key.
    let reserved = reserved.filter(|held| held.is_first() || key.0.is_some());
    let held = reserved.ok_or_else(|| decided(&run, step))?;
    let ApprovalBody { decision, note } = body;
    let command = DecideApproval { run_id: run.run_id, step, decision: decision.into(), note, at: now_ms() };
    state.parts().producer.send(&AgentCommand::DecideApproval(command), COMPONENT, None).await?;
    held.keep();
    Ok(accepted_run(run.run_id, run.status))
}

fn check_question(run: &RunView, step: i64) -> Result<(), ApiError> {
    if run.pending_approvals.iter().any(|pending| pending.step == step) {
        return Ok(());
    }
    if run.status.ended() {
        return Err(ended(run).hint(format!("riverrun runs show {}", run.run_id)));
    }
    if run.steps.iter().any(|known| known.seq == step && known.kind == StepKind::Approval) {
        return Err(decided(run, step));
    }
    let pending: Vec<String> = run.pending_approvals.iter().map(|pending| pending.step.to_string()).collect();
    let hint = match pending.is_empty() {
        true => format!("it waits for nobody; riverrun runs show {}", run.run_id),
        false => format!("it waits at step {}", pending.join(", ")),
    };
    let detail = format!("step {step} of run {} asks for no approval", run.run_id);
    Err(ApiError::not_found("approval_not_found", detail).hint(hint).about_run(run.run_id))
}

fn decided(run: &RunView, step: i64) -> ApiError {
    ApiError::conflict("approval_decided", format!("step {step} of run {} was answered before", run.run_id))
        .hint(format!("the first answer counts; riverrun runs show {}", run.run_id))
        .about_run(run.run_id)
}

/// Asks a run to look again: one that waits between two tries of a model call tries at once, one that waits for a person
/// checks whether it still has to.
#[utoipa::path(post, path = "/runs/{id}/resume", tag = "agents", params(("id" = String, Path)),
    responses((status = 202, body = RunAccepted), (status = 404, body = Problem), (status = 409, description = "the run has ended", body = Problem)))]
async fn resume(State(state): State<AppState>, Path(run_id): Path<String>) -> Result<Response, ApiError> {
    let run = known(&state, &run_id).await?;
    if run.status.ended() {
        let last = run.steps.iter().rev().find(|step| step.kind != StepKind::Answer).map_or(0, |step| step.seq);
        return Err(
            ended(&run).hint(format!("go on from one of its steps: riverrun runs fork {run_id} --at-seq {last}"))
        );
    }
    let command = ResumeRun { run_id: run.run_id, at: now_ms() };
    state.parts().producer.send(&AgentCommand::ResumeRun(command), COMPONENT, None).await?;
    Ok(accepted_run(run.run_id, run.status))
}

/// Starts a run that shares the first steps of this one and goes on by itself, perhaps with another model, agent or task.
#[utoipa::path(post, path = "/runs/{id}/fork", tag = "agents", request_body = ForkBody,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same fork")),
    responses((status = 202, body = RunAccepted), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn fork(
    State(state): State<AppState>,
    Path(run_id): Path<String>,
    key: IdempotencyKey,
    Json(body): Json<ForkBody>,
) -> Result<Response, ApiError> {
    let source = known(&state, &run_id).await?;
    let fork = forks::fork(&state, &source, key.0.as_deref(), body).await?;
    Ok(accepted_run(fork.run_id, fork.status))
}

/// The runs that branched off this one or wait for it, those that it branched off or waits for, and so on.
#[utoipa::path(get, path = "/runs/{id}/tree", tag = "agents", params(("id" = String, Path)),
    responses((status = 200, body = RunTree), (status = 404, body = Problem)))]
async fn tree(State(state): State<AppState>, Path(run_id): Path<String>) -> Result<Reply<RunTree>, ApiError> {
    let run_id = known(&state, &run_id).await?.run_id;
    // The log may know the run before the read models do.
    let found = until(PATIENCE, || async {
        let tree = run_tree::tree(&state.parts().sql, run_id).await?;
        Ok::<_, ApiError>((!tree.items.is_empty()).then_some(tree))
    });
    Ok(Reply(found.await?.unwrap_or_default().into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct CompareQuery {
    /// The other run; left out, the one that this run branched off.
    with: Option<String>,
}

/// Two runs step by step.
#[utoipa::path(get, path = "/runs/{id}/compare", tag = "agents", params(("id" = String, Path), CompareQuery),
    responses((status = 200, body = RunComparison), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn compare(
    State(state): State<AppState>,
    Path(run_id): Path<String>,
    Query(query): Query<CompareQuery>,
) -> Result<Reply<RunComparison>, ApiError> {
    let run = known(&state, &run_id).await?;
    let source = run.forked_from.as_ref().map(|from| from.run_id);
    let (left, right) = match (query.with, source) {
        (Some(other), _) => (run, known(&state, &other).await?),
        (None, Some(source)) => (known(&state, &source.to_string()).await?, run),
        (None, None) => {
            return Err(ApiError::field("with", format!("must name a run: {run_id} branched off none"))
                .hint(format!("riverrun runs compare {run_id} <other run>")));
        }
    };
    Ok(Reply(comparison(&left, &right)))
}

fn comparison(left: &RunView, right: &RunView) -> RunComparison {
    let count = left.steps.len().max(right.steps.len());
    let steps: Vec<ComparedStep> = (0..count)
        .zip(1..)
        .map(|(index, seq)| {
            let (left, right) = (left.steps.get(index).cloned(), right.steps.get(index).cloned());
            let same = left.as_ref().zip(right.as_ref()).is_some_and(|(left, right)| same(left, right));
            ComparedStep { seq, same, left, right }
        })
        .collect();
    let common = steps.iter().take_while(|step| step.same).count();
    RunComparison {
        left: compared(left),
        right: compared(right),
        common: i64::try_from(common).unwrap_or(i64::MAX),
        steps,
    }
}

/// Times, tokens and the ids of calls differ between runs that do the same.
fn same(left: &StepView, right: &StepView) -> bool {
    let tools = match (&left.tool, &right.tool) {
        (None, None) => true,
        (Some(left), Some(right)) => {
            left.name == right.name
                && left.arguments == right.arguments
                && left.result == right.result
                && left.result_blob == right.result_blob
                && left.error == right.error
        }
        (Some(_), None) | (None, Some(_)) => false,
    };
    tools && left.kind == right.kind && left.agent == right.agent && left.text == right.text
}

fn compared(run: &RunView) -> ComparedRun {
    ComparedRun {
        run_id: run.run_id.to_string(),
        status: run.status,
        agent: run.agent.clone(),
        answer: run.answer.clone(),
        stop_reason: run.stop_reason.clone(),
        usage: run.usage,
    }
}
