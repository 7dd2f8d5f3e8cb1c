//! Conversations: what was said, what a model is shown of it, where a memory comes from, and forgetting.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use riverrun_agents::memory::{
    ContextRequest, DEFAULT_RECALL, MAX_RECALL, Memory, MemoryContext, MemoryError, RecalledMemory, Shown, account,
    chat_request, fit,
};
use riverrun_models::{ChatReply, ChatRequest, DeltaSink, FinishReason, ModelError, Models, NoDeltas};
use riverrun_schemas::memory::TurnRole;
use riverrun_schemas::{Session, TurnId};
use riverrun_stores::read_models::{TurnView, WhyView, memory_queries as read};
use serde::Deserialize;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::chat::{deltas, sse, usage};
use super::runs::location;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, Query};
use crate::remember;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{
    ForgetDone, LeftOutView, MemoryChatBody, MemoryChatDone, MemoryContextView, Page, Problem, RecalledView, TurnBody,
};

/// Longest query, in bytes.
const MAX_QUERY: usize = 8 << 10;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(add, turns))
        .routes(routes!(context))
        .routes(routes!(why))
        .routes(routes!(forget))
        .routes(routes!(chat))
}

/// Records something said. The answer comes when the tables have it: what is read next has it too.
#[utoipa::path(post, path = "/memory/turns", tag = "memory", request_body = TurnBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same turn")),
    responses((status = 200, body = TurnView), (status = 202, description = "it is on the log; the tables are behind, so its `seq` is 0", body = TurnView),
        (status = 409, description = "the key was used for another turn, or the conversation is full", body = Problem), (status = 422, body = Problem)))]
async fn add(
    State(state): State<AppState>,
    key: IdempotencyKey,
    Json(body): Json<TurnBody>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::default();
    let session = remember::session(&mut checks, body.namespace.as_deref(), body.session.as_deref());
    let role = remember::role(&mut checks, &body.role);
    remember::turn_text(&mut checks, &body.text);
    checks.finish()?;
    remember::check_room(&state, &session).await?;
    let turn_id = remember::turn_id(&session, key.0.as_deref());
    let turn = remember::record(&state, &session, turn_id, role, &body.text).await?;
    if turn.seq != 0 {
        return Ok(Reply(turn).into_response());
    }
    let place = format!("/memory/turns?namespace={}&session={}", session.namespace, encoded(session.name.as_str()));
    Ok((StatusCode::ACCEPTED, location(&place), Reply(turn)).into_response())
}

/// Text for a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct TurnsQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// The conversation; `default` when left out.
    session: Option<String>,
    /// Most turns of a page; 50 when left out, 500 at most.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// What was said in a conversation, oldest first.
#[utoipa::path(get, path = "/memory/turns", tag = "memory", params(TurnsQuery),
    responses((status = 200, body = Page<TurnView>), (status = 422, body = Problem)))]
async fn turns(
    State(state): State<AppState>,
    Query(query): Query<TurnsQuery>,
) -> Result<Reply<Page<TurnView>>, ApiError> {
    let mut checks = Checks::default();
    let session = remember::session(&mut checks, query.namespace.as_deref(), query.session.as_deref());
    let page = checks.page(query.limit, query.cursor);
    checks.finish()?;
    let found = read::turns(&state.parts().sql, &session, &page).await?;
    Ok(Reply(Page { items: found.items, next_cursor: found.next_cursor }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ContextQuery {
    /// What recalled memories should resemble; nothing is recalled without it.
    query: Option<String>,
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// The conversation; `default` when left out.
    session: Option<String>,
    /// Most memories to recall; 5 when left out, 20 at most.
    k: Option<usize>,
}

/// What of a conversation a model is shown: the running summary, the newest turns within the window, and what resembles the query.
#[utoipa::path(get, path = "/memory/context", tag = "memory", params(ContextQuery),
    responses((status = 200, body = MemoryContextView), (status = 422, body = Problem)))]
async fn context(
    State(state): State<AppState>,
    Query(query): Query<ContextQuery>,
) -> Result<Reply<MemoryContextView>, ApiError> {
    let mut checks = Checks::default();
    let session = remember::session(&mut checks, query.namespace.as_deref(), query.session.as_deref());
    if let Some(text) = &query.query {
        checks.text("query", text, MAX_QUERY);
    }
    let k = query.k.unwrap_or(DEFAULT_RECALL);
    checks.between("k", Some(k), 1..=MAX_RECALL);
    checks.finish()?;
    let request = ContextRequest { query: query.query, k, reserved_tokens: 0 };
    let found = state.parts().memory.context(&session, &request).await?;
    Ok(Reply(context_view(found)))
}

fn context_view(context: MemoryContext) -> MemoryContextView {
    let recalled = |memory: RecalledMemory| RecalledView {
        id: memory.id,
        kind: memory.kind,
        text: memory.text,
        score: memory.score,
        turn_ids: memory.turn_ids,
        run_id: memory.run_id.map(|id| id.to_string()),
    };
    MemoryContextView {
        turns: context.turns,
        summary: context.summary,
        episodes: context.episodes.into_iter().map(recalled).collect(),
        tokens: context.tokens,
        window_tokens: context.window_tokens,
        turns_left_out: context.turns_left_out,
        notes: context.notes,
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct WhyQuery {
    /// A turn, summary, episode or note.
    id: String,
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// The conversation; `default` when left out.
    session: Option<String>,
}

/// Where a memory comes from: the turns, and the run where there was one.
#[utoipa::path(get, path = "/memory/why", tag = "memory", params(WhyQuery),
    responses((status = 200, body = WhyView), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn why(State(state): State<AppState>, Query(query): Query<WhyQuery>) -> Result<Reply<WhyView>, ApiError> {
    let mut checks = Checks::default();
    let session = remember::session(&mut checks, query.namespace.as_deref(), query.session.as_deref());
    checks.finish()?;
    let found = read::why(&state.parts().sql, &session, &query.id).await?;
    found.map(Reply).ok_or_else(|| remember::unknown(&session, Some(&query.id)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ForgetQuery {
    /// A turn, summary, episode or note; the whole conversation when left out.
    id: Option<String>,
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// The conversation. Always named, since this can't be undone.
    session: String,
}

/// Forgets a memory with everything that was made from it, or a whole conversation, and tells what is gone from each index.
#[utoipa::path(delete, path = "/memory", tag = "memory", params(ForgetQuery),
    responses((status = 200, body = ForgetDone), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn forget(
    State(state): State<AppState>,
    Query(query): Query<ForgetQuery>,
) -> Result<Reply<ForgetDone>, ApiError> {
    let mut checks = Checks::default();
    let session = remember::session(&mut checks, query.namespace.as_deref(), Some(&query.session));
    checks.finish()?;
    remember::forget(&state, &session, query.id.as_deref()).await.map(Reply)
}

/// One message of a chat model that remembers the conversation, streamed unless `stream` is false. Both sides are recorded.
#[utoipa::path(post, path = "/memory/chat", tag = "memory", request_body = MemoryChatBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key gets the first answer")),
    responses((status = 200, description = "with `stream: false` this object, else server-sent events: `delta` `{text}`, then `final` with this object, or `error` with a problem document", body = MemoryChatDone),
        (status = 409, description = "the key was used for other words, or the conversation is full", body = Problem), (status = 422, body = Problem), (status = 503, body = Problem)))]
async fn chat(
    State(state): State<AppState>,
    key: IdempotencyKey,
    Json(body): Json<MemoryChatBody>,
) -> Result<Response, ApiError> {
    let stream = body.stream.unwrap_or(true);
    let talk = prepare(&state, key.0.as_deref(), body).await?;
    let slot = stream.then(|| state.stream_slot()).transpose()?;
    // Before the answer begins: a key that stands for other words is still a status.
    remember::record(&state, &talk.session, talk.turn_id, TurnRole::User, &talk.text).await?;
    let cancel = CancellationToken::new();
    let stop = cancel.clone().drop_guard(); // a caller that goes away stops the model; what it said stays recorded
    let Some(slot) = slot else {
        let done = answer(&state, talk, &mut NoDeltas, cancel).await?;
        drop(stop);
        return Ok(Reply(done).into_response());
    };
    let pieces = deltas(move |mut sender| async move { answer(&state, talk, &mut sender, cancel).await });
    Ok(sse(pieces.map(move |piece| {
        let _ = (&stop, &slot);
        piece
    })))
}

/// Words that can be said.
struct Talk {
    session: Session,
    turn_id: TurnId,
    text: String,
    provider: Option<String>,
    /// Without messages.
    base: ChatRequest,
    shown: Shown,
    /// Held until the answer is recorded: a repeat of the key that comes meanwhile, also to a stream, waits for it.
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Talk {
    /// The turn of the answer follows from that of the words.
    fn answer_id(&self) -> TurnId {
        TurnId::derive(&["answer", &self.turn_id.to_string()])
    }
}

/// Checks the words and reads what the model is shown beside them.
async fn prepare(state: &AppState, key: Option<&str>, body: MemoryChatBody) -> Result<Talk, ApiError> {
    let mut checks = Checks::default();
    let session = remember::session(&mut checks, body.namespace.as_deref(), body.session.as_deref());
    remember::turn_text(&mut checks, &body.text);
    state.core().known().provider(&mut checks, body.provider.as_deref());
    checks.temperature(body.temperature);
    checks.finish()?;
    let turn_id = remember::turn_id(&session, key);
    let turn = match key {
        Some(_) => Some(state.turns().take(&turn_id.to_string()).await),
        None => None,
    };
    remember::check_room(state, &session).await?;
    let memory = &state.parts().memory;
    let tokens = memory.models().count_tokens(&body.text).await;
    if tokens > memory.window_tokens() {
        let reason = format!("has {tokens} tokens; the window has {}", memory.window_tokens());
        return Err(ApiError::field("text", reason).hint("say less at once, or raise RIVERRUN_MEMORY_WINDOW_TOKENS"));
    }
    let request = ContextRequest { query: Some(body.text.clone()), k: DEFAULT_RECALL, reserved_tokens: tokens };
    let context = memory.context(&session, &request).await?;
    let base =
        ChatRequest { model: body.model.unwrap_or_default(), temperature: body.temperature, ..ChatRequest::default() };
    let models = state.core().models();
    let shown = fit(models, body.provider.as_deref(), &base, Shown::whole(context), &body.text, None).await?;
    Ok(Talk { session, turn_id, text: body.text, provider: body.provider, base, shown, _turn: turn })
}

/// Asks the model. Where its server finds the conversation too large, whatever was counted, less of it is shown.
async fn ask(
    models: &Models,
    talk: &mut Talk,
    sink: &mut dyn DeltaSink,
    cancel: CancellationToken,
) -> Result<ChatReply, ModelError> {
    let provider = talk.provider.clone();
    loop {
        let request = chat_request(&talk.base, &talk.shown.context, &talk.text);
        let mut has_said = false;
        let mut watched = |piece: &str| {
            has_said = true;
            sink.delta(piece);
        };
        match models.chat(provider.as_deref(), request, &mut watched, cancel.clone()).await {
            Err(error @ ModelError::ContextOverflow { .. }) if !has_said => {
                let shown = std::mem::take(&mut talk.shown);
                talk.shown = fit(models, provider.as_deref(), &talk.base, shown, &talk.text, Some(error)).await?;
            }
            replied => return replied,
        }
    }
}

/// Asks the model about words that are recorded, and records the answer; gives the one that is there for a repeat.
async fn answer(
    state: &AppState,
    mut talk: Talk,
    sink: &mut dyn DeltaSink,
    cancel: CancellationToken,
) -> Result<MemoryChatDone, ApiError> {
    let answer_id = talk.answer_id();
    let done = |text: String, model: Option<String>, used: riverrun_models::Usage, talk: &Talk| MemoryChatDone {
        text,
        model,
        usage: usage(used, state.core().models().cost(talk.provider.as_deref(), &talk.base.model, used)),
        turn_id: talk.turn_id,
        answer_turn_id: answer_id,
        turns_shown: talk.shown.context.turns.len(),
        recalled: talk.shown.context.episodes.iter().map(|memory| memory.id.clone()).collect(),
        summarized: talk.shown.context.summary.is_some(),
        left_out: talk.shown.left_out.map(LeftOutView::from),
        notes: talk.shown.context.notes.clone(),
    };
    if let Some(known) = read::turn(&state.parts().sql, &talk.session, answer_id).await? {
        sink.delta(&known.text);
        return Ok(done(known.text, None, riverrun_models::Usage::default(), &talk));
    }
    let models = state.core().models().charged_to(account(&talk.session));
    let reply = ask(&models, &mut talk, sink, cancel).await?;
    let text = riverrun_agents::memory::shorten_bytes(&reply.text, riverrun_agents::memory::MAX_TURN_BYTES);
    if !text.trim().is_empty() {
        remember::record(state, &talk.session, answer_id, TurnRole::Assistant, &text).await?;
    }
    let went_in_circles = reply.finish == FinishReason::Repetition;
    let mut said = done(reply.text, Some(reply.model), reply.usage, &talk);
    if went_in_circles {
        said.notes.push("the model said the same over and over, and the answer was ended there".to_owned());
    }
    Ok(said)
}

impl From<MemoryError> for ApiError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Store(error) => error.into(),
            MemoryError::Log(error) => error.into(),
            MemoryError::Model(error) => error.into(),
            MemoryError::Full { .. } => {
                ApiError::conflict("session_full", error.to_string()).hint("forget some of it: riverrun memory forget")
            }
        }
    }
}
