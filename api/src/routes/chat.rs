//! Words to a chat model and texts to an embedding model, for the command line and for tools of one's own.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json as Reply;
use axum::extract::{FromRef, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use riverrun_knowledge::room;
use riverrun_models::{ChatReply, ChatRequest, Cost, EmbedPurpose, FinishReason, Message, Models, NoDeltas, Purpose};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::Json;
use crate::state::{Core, OpenLog};
use crate::submit::Checks;
use crate::wire::{ChatBody, ChatDone, EmbedBody, EmbedDone, Problem, UsageView};

/// Most messages of a conversation.
const MAX_MESSAGES: usize = 500;
/// Most texts of a request.
const MAX_INPUTS: usize = 256;
/// Longest text, in bytes.
const MAX_TEXT: usize = 256 << 10;

pub(super) fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    OpenLog: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(chat)).routes(routes!(embed))
}

/// One message of a chat model, streamed unless `stream` is false.
#[utoipa::path(post, path = "/chat", tag = "models", request_body = ChatBody, responses(
    (status = 200, description = "with `stream: false` this object, else server-sent events: `delta` `{text}`, then `final` with this object, or `error` with a problem document", body = ChatDone),
    (status = 422, body = Problem), (status = 429, description = "all places of streams are taken", body = Problem), (status = 503, body = Problem)))]
async fn chat(
    State(core): State<Core>,
    State(OpenLog(served)): State<OpenLog>,
    Json(body): Json<ChatBody>,
) -> Result<Response, ApiError> {
    let stream = body.stream.unwrap_or(true);
    let provider = body.provider.clone();
    let request = chat_request(body, &core)?;
    let models = core.models_for(None, Purpose::Chat);
    room::check(&models, provider.as_deref(), &request).await?;
    let asked = request.model.clone();
    let cancel = CancellationToken::new();
    let stop = cancel.clone().drop_guard(); // a caller that goes away stops the model
    if !stream {
        let reply = models.chat(provider.as_deref(), request, &mut NoDeltas, cancel).await?;
        drop(stop);
        return Ok(Reply(done(&models, provider.as_deref(), &asked, reply)).into_response());
    }
    // A command that hosts only this has one caller.
    let slot = served.map(|state| state.stream_slot()).transpose()?;
    let events = deltas(move |mut sender| async move {
        let result = models.chat(provider.as_deref(), request, &mut sender, cancel).await;
        result.map(|reply| done(&models, provider.as_deref(), &asked, reply)).map_err(ApiError::from)
    });
    let events = events.map(move |event| {
        let _ = (&stop, &slot);
        event
    });
    Ok(sse(events))
}

fn chat_request(body: ChatBody, core: &Core) -> Result<ChatRequest, ApiError> {
    let mut checks = Checks::default();
    core.known().provider(&mut checks, body.provider.as_deref());
    checks.require(!body.messages.is_empty(), "messages", "must not be empty");
    checks.require(
        body.messages.len() <= MAX_MESSAGES,
        "messages",
        format!("has {}; at most {MAX_MESSAGES} are read", body.messages.len()),
    );
    checks.temperature(body.temperature);
    checks.above_zero("max_tokens", body.max_tokens);
    let mut messages = Vec::with_capacity(body.messages.len());
    for (index, message) in body.messages.into_iter().enumerate().take(MAX_MESSAGES) {
        checks.text(&format!("messages[{index}].content"), &message.content, MAX_TEXT);
        match message.role.as_str() {
            "system" => messages.push(Message::system(message.content)),
            "user" => messages.push(Message::user(message.content)),
            "assistant" => messages.push(Message::assistant(message.content)),
            _ => checks.refuse(&format!("messages[{index}].role"), "must be system, user or assistant"),
        }
    }
    checks.finish()?;
    Ok(ChatRequest {
        model: body.model.unwrap_or_default(),
        messages,
        temperature: body.temperature,
        max_tokens: body.max_tokens,
        ..ChatRequest::default()
    })
}

fn done(models: &Models, provider: Option<&str>, asked: &str, reply: ChatReply) -> ChatDone {
    let cost = models.cost(provider, asked, reply.usage);
    ChatDone {
        text: reply.text,
        model: reply.model,
        finish_reason: finish_name(reply.finish).to_owned(),
        usage: usage(reply.usage, cost),
    }
}

fn finish_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Repetition => "repetition",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Cancelled => "cancelled",
    }
}

/// Tokens and what they cost, as they are shown.
pub(super) fn usage(usage: riverrun_models::Usage, cost: Cost) -> UsageView {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    UsageView {
        prompt_tokens: count(usage.prompt_tokens),
        completion_tokens: count(usage.completion_tokens),
        total_tokens: count(usage.total()),
        cost_usd: cost.usd,
        unpriced_tokens: count(cost.unpriced_tokens),
        cached_prompt_tokens: count(usage.cached_prompt_tokens),
        cache_write_tokens: count(usage.cache_write_tokens),
    }
}

/// Vectors of texts, in their order.
#[utoipa::path(post, path = "/embed", tag = "models", request_body = EmbedBody,
    responses((status = 200, body = EmbedDone), (status = 422, body = Problem), (status = 503, body = Problem)))]
async fn embed(State(core): State<Core>, Json(body): Json<EmbedBody>) -> Result<Reply<EmbedDone>, ApiError> {
    let mut checks = Checks::default();
    core.known().provider(&mut checks, body.provider.as_deref());
    checks.texts("inputs", &body.inputs, MAX_INPUTS, MAX_TEXT);
    checks.finish()?;
    let model = embed_model(&body, core.models());
    let models = core.models_for(None, Purpose::Embed);
    let reply = models.embed(model.as_deref(), body.inputs, EmbedPurpose::Document).await?;
    Ok(Reply(EmbedDone {
        usage: usage(reply.usage, core.models().embed_cost(&reply.model, reply.usage)),
        model: reply.model,
        dimensions: reply.dimensions,
        vectors: reply.vectors,
        truncated: reply.truncated,
    }))
}

/// A model may carry its provider, as in `ollama/nomic-embed-text`.
fn embed_model(body: &EmbedBody, models: &Models) -> Option<String> {
    match (&body.provider, &body.model) {
        (Some(provider), Some(model)) => Some(format!("{provider}/{model}")),
        (Some(provider), None) => Some(format!("{provider}/{}", models.default_embed_model())),
        (None, model) => model.clone(),
    }
}

/// Pieces of text that wait for a slow reader at most; behind them the model waits.
const MAX_WAITING: usize = 256;

/// What a stream of an answer says.
pub(super) enum Piece<T> {
    /// A piece of what the model thinks before it answers.
    Thought(String),
    /// A piece of text.
    Delta(String),
    /// The whole.
    Final(T),
    /// It failed.
    Error(ApiError),
}

/// Where a model puts its text. It never waits: what a slow reader has no room for goes along with the next piece.
pub(super) struct Sender<T> {
    pieces: mpsc::Sender<Piece<T>>,
    unsent: Arc<Mutex<Unsent>>,
}

/// What there was no room for.
#[derive(Default)]
struct Unsent {
    thoughts: String,
    text: String,
}

impl Unsent {
    /// The next piece of it: thoughts come first.
    fn take<T>(&mut self) -> Option<Piece<T>> {
        if !self.thoughts.is_empty() {
            return Some(Piece::Thought(std::mem::take(&mut self.thoughts)));
        }
        (!self.text.is_empty()).then(|| Piece::Delta(std::mem::take(&mut self.text)))
    }
}

impl<T: Send> Sender<T> {
    fn send(&self, add: impl FnOnce(&mut Unsent)) {
        let mut unsent = self.unsent.lock();
        add(&mut unsent);
        while let Ok(place) = self.pieces.try_reserve() {
            match unsent.take() {
                Some(piece) => place.send(piece),
                None => break,
            }
        }
    }
}

impl<T: Send> riverrun_models::DeltaSink for Sender<T> {
    fn delta(&mut self, text: &str) {
        self.send(|unsent| unsent.text.push_str(text));
    }

    fn thought(&mut self, text: &str) {
        self.send(|unsent| unsent.thoughts.push_str(text));
    }
}

/// Runs a model call beside its stream.
pub(super) fn deltas<T, F, Fut>(call: F) -> impl Stream<Item = Piece<T>> + Send
where
    T: Send + 'static,
    F: FnOnce(Sender<T>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<T, ApiError>> + Send + 'static,
{
    let (pieces, receiver) = mpsc::channel(MAX_WAITING);
    let unsent = Arc::new(Mutex::new(Unsent::default()));
    tokio::spawn(async move {
        let result = call(Sender { pieces: pieces.clone(), unsent: unsent.clone() }).await;
        let mut rest = std::mem::take(&mut *unsent.lock());
        // Nobody may be there any more: then nobody misses anything.
        while let Some(piece) = rest.take() {
            let _ = pieces.send(piece).await;
        }
        let last = match result {
            Ok(whole) => Piece::Final(whole),
            Err(error) => Piece::Error(error),
        };
        let _ = pieces.send(last).await;
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

/// The stream as server-sent events. Thoughts are no part of an answer, and stay out.
pub(super) fn sse<T: serde::Serialize + Send + 'static>(
    pieces: impl Stream<Item = Piece<T>> + Send + 'static,
) -> Response {
    let events = pieces.flat_map(|piece| stream::iter(event(piece)).map(Ok::<_, Infallible>));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

fn event<T: serde::Serialize>(piece: Piece<T>) -> Option<Event> {
    let event = match piece {
        Piece::Thought(_) => return None,
        Piece::Delta(text) => Event::default().event("delta").json_data(serde_json::json!({ "text": text })),
        Piece::Final(whole) => Event::default().event("final").json_data(whole),
        Piece::Error(error) => Event::default().event("error").json_data(error.problem()),
    };
    Some(event.unwrap_or_else(|error| Event::default().event("error").data(error.to_string())))
}

#[cfg(test)]
mod tests {
    use riverrun_models::DeltaSink;

    use super::*;

    #[tokio::test]
    async fn given_a_reader_with_no_room_when_thoughts_and_words_come_then_all_of_them_arrive_and_thoughts_come_first()
    {
        let (sent, more) = (Arc::new(tokio::sync::Notify::new()), 2 * MAX_WAITING);
        let told = sent.clone();
        let mut pieces = Box::pin(deltas(move |mut sender: Sender<()>| async move {
            for _ in 0..more {
                sender.thought("a");
            }
            for _ in 0..more {
                sender.delta("b");
            }
            told.notify_one();
            Ok(())
        }));
        sent.notified().await;
        let (mut thoughts, mut text) = (String::new(), String::new());
        while let Some(piece) = pieces.next().await {
            match piece {
                Piece::Thought(piece) => {
                    assert_eq!(text, "");
                    thoughts.push_str(&piece);
                }
                Piece::Delta(piece) => text.push_str(&piece),
                Piece::Final(()) => break,
                Piece::Error(error) => panic!("{error:?}"),
            }
        }
        assert_eq!((thoughts, text), ("a".repeat(more), "b".repeat(more)));
    }
}
