//! Cards of models: measured here, kept on the log. They belong to the machine, as models do, and to no namespace.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use riverrun_models::{Known, ModelCard, Models, Purpose};
use riverrun_schemas::finetune::ModelProbed;
use riverrun_schemas::now_ms;
use riverrun_stores::read_models::{ModelCardView, Timestamp, model_cards};
use riverrun_stores::{Sql, StoreError};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{Json, Query};
use crate::routes::finetune::tell;
use crate::state::AppState;
use crate::submit::{Checks, to_i64};
use crate::wait::until;
use crate::wire::{Items, ProbeBody, Problem};

/// How long an answer waits for the read model.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest name of a model, in bytes.
const MAX_MODEL: usize = 512;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(cards)).routes(routes!(probe))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct CardsQuery {
    /// Cards of this provider's models; of every one's when left out.
    provider: Option<String>,
    /// Cards of this model.
    model: Option<String>,
}

/// What was measured of models, the newest first, at most 500: the last card of each model, provider and machine.
#[utoipa::path(get, path = "/models/cards", tag = "models", params(CardsQuery),
    responses((status = 200, body = Items<ModelCardView>)))]
async fn cards(
    State(state): State<AppState>,
    Query(query): Query<CardsQuery>,
) -> Result<Reply<Items<ModelCardView>>, ApiError> {
    let found = model_cards::cards(&state.parts().sql, query.provider.as_deref(), query.model.as_deref());
    Ok(Reply(Items { items: found.await? }))
}

/// Measures a chat model with a few questions, some of them long, and keeps what was found as its card. It takes as long as the model needs for some
/// twenty answers, and what they cost at a hosted service; one model is measured at a time. A caller that goes away ends it, and nothing is kept.
#[utoipa::path(post, path = "/models/probe", tag = "models", request_body = ProbeBody,
    responses((status = 200, body = ModelCardView), (status = 422, body = Problem), (status = 429, body = Problem), (status = 503, description = "the provider does not answer", body = Problem)))]
async fn probe(State(state): State<AppState>, Json(body): Json<ProbeBody>) -> Result<Reply<ModelCardView>, ApiError> {
    let mut checks = Checks::default();
    state.core().known().provider(&mut checks, body.provider.as_deref());
    checks.text("model", &body.model, MAX_MODEL);
    checks.finish()?;
    let _slot = state.stream_slot()?;
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard(); // a caller that goes away stops the model
    let models = state.core().models_for(None, Purpose::Probe);
    let card = models.measure(body.provider.as_deref(), &body.model, &cancel).await?;
    let event = probed(card);
    tell(&state, event.clone()).await?;
    let view = shown(event);
    wait_for(&state, &view).await?;
    Ok(Reply(view))
}

fn probed(card: ModelCard) -> ModelProbed {
    ModelProbed {
        provider: card.provider,
        model: card.model,
        machine: card.machine,
        context_tokens: card.context_tokens.map(to_i64),
        usable_context_tokens: card.usable_context_tokens.map(to_i64),
        questions: to_i64(card.questions),
        valid_json: to_i64(card.valid_json),
        valid_tool_calls: to_i64(card.valid_tool_calls),
        prompt_tokens_per_s: card.prompt_tokens_per_s,
        tokens_per_s: card.tokens_per_s,
        at: now_ms(),
    }
}

/// The row that an event becomes.
fn shown(event: ModelProbed) -> ModelCardView {
    ModelCardView {
        provider: event.provider,
        model: event.model,
        machine: event.machine,
        context_tokens: event.context_tokens,
        usable_context_tokens: event.usable_context_tokens,
        questions: event.questions,
        valid_json: event.valid_json,
        valid_tool_calls: event.valid_tool_calls,
        prompt_tokens_per_s: event.prompt_tokens_per_s,
        tokens_per_s: event.tokens_per_s,
        measured_at: Timestamp(event.at),
    }
}

/// Whoever has the answer finds the card at once.
async fn wait_for(state: &AppState, view: &ModelCardView) -> Result<(), ApiError> {
    until(PATIENCE, || async {
        let found = model_cards::cards(&state.parts().sql, Some(&view.provider), Some(&view.model)).await?;
        Ok::<_, StoreError>(found.into_iter().find(|found| found.measured_at >= view.measured_at))
    })
    .await?;
    Ok(()) // it is on the log, and shows when the projector comes to it
}

/// Lets models be gone by as their cards say that were made before, on whatever machine. Without them everything works as before.
pub(crate) async fn recall(sql: &Sql, models: &Models) {
    let found = match model_cards::cards(sql, None, None).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(error = %error, "the cards of models can't be read; models are used as if they had none");
            return;
        }
    };
    // The newest come first: they are told last.
    for card in found.iter().rev() {
        let count = |number: i64| usize::try_from(number).unwrap_or(0);
        let context = card.context_tokens.map(count).filter(|tokens| *tokens > 0);
        models.know(&card.provider, &card.model, Known::of(context, count(card.questions), count(card.valid_json)));
    }
}
