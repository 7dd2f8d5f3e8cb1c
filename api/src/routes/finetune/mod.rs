//! Fine-tuning: datasets, trainings, versions of models. They belong to the machine, as models do, and to no namespace.

mod datasets;
mod jobs;
mod plan;
mod versions;

use riverrun_log::Outgoing;
use riverrun_schemas::finetune::FinetuneEvent;
use riverrun_stores::read_models::PageRequest;
use riverrun_training::TrainingError;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;

use crate::accept::COMPONENT;
use crate::error::ApiError;
use crate::state::AppState;
use crate::submit;
use crate::wire::FieldError;

pub(crate) use jobs::unknown_job;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(datasets::router()).merge(jobs::router()).merge(versions::router())
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// Most entries; 50 when left out, 500 at most.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

impl PageQuery {
    fn page(self) -> Result<PageRequest, ApiError> {
        submit::page(self.limit, self.cursor)
    }
}

/// Puts an event on the log.
pub(super) async fn tell(state: &AppState, event: impl Into<FinetuneEvent>) -> Result<(), ApiError> {
    let event: FinetuneEvent = event.into();
    state.parts().producer.send_one(Outgoing::event(&event, COMPONENT, None)?).await?;
    Ok(())
}

impl From<TrainingError> for ApiError {
    fn from(error: TrainingError) -> Self {
        use axum::http::StatusCode;
        let (code, text, hint) = (error.code(), error.to_string(), error.hint());
        let answer = match &error {
            TrainingError::Setting { field, reason } => ApiError::field(field, reason.clone()),
            TrainingError::Dataset(found) => {
                let told = found.errors.iter().map(|remark| FieldError::new(remark.place(), remark.reason.clone()));
                ApiError::invalid_lines(text, told.collect())
            }
            TrainingError::CudaRequired { .. } | TrainingError::Base { .. } | TrainingError::DoesNotFit { .. } => {
                ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, text)
            }
            TrainingError::Io { .. } => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, text),
            TrainingError::Diverged { .. }
            | TrainingError::Checkpoint { .. }
            | TrainingError::Cancelled
            | TrainingError::Compute(_) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, code, text),
        };
        match hint {
            Some(hint) => answer.hint(hint),
            None => answer,
        }
    }
}
