//! `/ws/finetune/{id}`: a training from any step, live or ended. What is told is in the read model, whose rows come in order.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures::StreamExt;
use futures::stream::{self, Stream};
use riverrun_schemas::FinetuneId;
use riverrun_stores::read_models::{JobView, StepLossView, finetune};
use serde::Deserialize;

use super::session::follow;
use super::{Upgrade, held, say, upgrade};
use crate::access::caller;
use crate::error::ApiError;
use crate::extract::{Path, Query, id};
use crate::hub::StreamEnd;
use crate::routes::finetune::unknown_job;
use crate::state::AppState;
use crate::submit;
use crate::wire::FinetuneMessage;

/// How often the read model is asked.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AfterQuery {
    /// Only steps behind this one.
    #[serde(default)]
    after: i64,
}

/// Follows a training.
pub(super) async fn finetune(
    State(state): State<AppState>,
    Path(job_id): Path<String>,
    Query(query): Query<AfterQuery>,
    given: Upgrade,
) -> Result<Response, ApiError> {
    let given = upgrade(given)?;
    let job_id: FinetuneId = id(&job_id)?;
    let after = submit::after(query.after)?;
    finetune::job(&state.parts().sql, job_id).await?.ok_or_else(|| unknown_job(job_id))?;
    let (slot, token_lost) = (state.stream_slot()?, caller::token_lost());
    Ok(given.on_upgrade(move |socket| async move {
        let _slot = slot;
        let _open = state.core().metrics().stream();
        let messages = messages(state.clone(), job_id, after);
        let messages = messages.map(|item| say(item.map_err(StreamEnd::Failed)));
        follow(socket, held(messages, token_lost)).await;
    }))
}

struct Follower {
    state: AppState,
    job_id: FinetuneId,
    after: i64,
    max_steps: i64,
    steps: VecDeque<StepLossView>,
    started: bool,
    ended: bool,
}

fn messages(
    state: AppState,
    job_id: FinetuneId,
    after: i64,
) -> impl Stream<Item = Result<FinetuneMessage, ApiError>> + Send {
    let follower =
        Follower { state, job_id, after, max_steps: 0, steps: VecDeque::new(), started: false, ended: false };
    stream::unfold(follower, |mut follower| async move {
        if follower.ended {
            return None;
        }
        let next = follower.next().await;
        follower.ended = matches!(&next, Err(_) | Ok(FinetuneMessage::Final { .. }));
        Some((next, follower))
    })
}

impl Follower {
    async fn job(&self) -> Result<JobView, ApiError> {
        finetune::job(&self.state.parts().sql, self.job_id).await?.ok_or_else(|| unknown_job(self.job_id))
    }

    async fn next(&mut self) -> Result<FinetuneMessage, ApiError> {
        if !self.started {
            self.started = true;
            let job = self.job().await?;
            self.max_steps = job.max_steps;
            return Ok(FinetuneMessage::Start { job: Box::new(job) });
        }
        loop {
            if let Some(step) = self.steps.pop_front() {
                self.after = step.step;
                return Ok(FinetuneMessage::Progress { seq: step.step, max_steps: self.max_steps, step });
            }
            // The job first: when it has ended, all of its steps are in the rows that are read next.
            let job = self.job().await?;
            self.steps = finetune::steps(&self.state.parts().sql, self.job_id, self.after).await?.into();
            if self.steps.is_empty() {
                if job.ended() {
                    return Ok(FinetuneMessage::Final { job: Box::new(job) });
                }
                tokio::select! {
                    () = self.state.hub().closed() => return Err(ApiError::shutting_down()),
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                }
            }
        }
    }
}
