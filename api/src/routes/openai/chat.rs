//! A chat of a model.

use std::convert::Infallible;

use axum::Json as Reply;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use riverrun_knowledge::room;
use riverrun_models::{ChatReply, DeltaSink, FinishReason, LOCAL, Purpose, ToolCall};
use riverrun_schemas::EventId;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::error::error_body;
use super::forced::Forced;
use super::{now, request, thinking, usage};
use crate::error::ApiError;
use crate::routes::chat::{Piece, deltas};
use crate::state::AppState;
use crate::submit::namespace;
use crate::wire::openai::CompletionBody;

/// Answers a chat of a model.
pub(super) async fn complete(state: AppState, body: CompletionBody) -> Result<Response, ApiError> {
    let streams = body.stream.unwrap_or(false);
    let with_usage = body.stream_options.as_ref().is_some_and(|options| options.include_usage);
    let shown = body.model.clone();
    let namespace = body.namespace.as_deref().map(|name| namespace(Some(name))).transpose()?;
    let at_most_one = body.parallel_tool_calls == Some(false);
    let only_here = thinking::only_here(&body);
    let (request, forced) = request::chat_request(body)?;
    let models = state.core().models_for(namespace, Purpose::Chat);
    if let Some(field) = models.leaves_out(None, &request)? {
        return Err(ApiError::field(field, "is not among the choices of the model's service; leave it out"));
    }
    if let Some(field) = only_here
        // Whose models are told whether to think.
        && models.who_chats(None, Some(&request.model))?.0 != LOCAL
    {
        return Err(ApiError::field(field, "is only passed on to models in the process; leave it out"));
    }
    room::check(&models, None, &request).await?;
    let cancel = CancellationToken::new();
    let stop = cancel.clone().drop_guard(); // a caller that goes away stops the model
    let head = Head::new(&shown);
    if !streams {
        let mut thoughts = Thoughts::default();
        let reply = models.chat(None, request, &mut thoughts, cancel).await?;
        drop(stop);
        return Ok(Reply(head.whole(&settled(forced, at_most_one, reply), thoughts)).into_response());
    }
    let slot = state.stream_slot()?;
    let first = head.first();
    let held_back = forced.is_some(); // the text of a call is no content
    let pieces = deltas(move |mut sender| async move {
        let reply = models.chat(None, request, &mut sender, cancel).await;
        reply.map(|reply| settled(forced, at_most_one, reply)).map_err(ApiError::from)
    });
    let chunks = pieces.flat_map(move |piece| {
        let _ = (&stop, &slot);
        stream::iter(match piece {
            Piece::Thought(text) => vec![head.chunk(json!({"reasoning_content": text}), None)],
            Piece::Delta(_) if held_back => Vec::new(),
            Piece::Delta(text) => vec![head.chunk(json!({"content": text}), None)],
            Piece::Final(reply) => head.last(&reply, with_usage),
            Piece::Error(error) => vec![error_body(&error.problem())],
        })
    });
    Ok(sse(stream::iter([first]).chain(chunks)))
}

/// What a model thought before its answer.
#[derive(Debug, Default)]
struct Thoughts(String);

impl DeltaSink for Thoughts {
    fn delta(&mut self, _text: &str) {}

    fn thought(&mut self, text: &str) {
        self.0.push_str(text);
    }
}

/// The reply, as a call where the client insisted on one, with one call where it wants no more.
fn settled(forced: Option<Forced>, at_most_one: bool, reply: ChatReply) -> ChatReply {
    let mut reply = match forced {
        Some(forced) => forced.into_call(reply),
        None => reply,
    };
    if at_most_one {
        reply.tool_calls.truncate(1);
    }
    reply
}

/// What all chunks of an answer have in common.
#[derive(Debug, Clone)]
pub(super) struct Head {
    id: String,
    model: String,
    created: u64,
}

impl Head {
    pub(super) fn new(model: &str) -> Self {
        Self { id: format!("chatcmpl-{}", EventId::new()), model: model.to_owned(), created: now() }
    }

    /// A `chat.completion.chunk`.
    pub(super) fn chunk(&self, delta: Value, finish: Option<&str>) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    }

    /// The chunk that says whose message it is. Only the first may: clients join the texts of a field, its role too.
    pub(super) fn first(&self) -> Value {
        self.chunk(json!({"role": "assistant", "content": ""}), None)
    }

    /// The chunk behind the last one, for clients that asked for it.
    pub(super) fn usage_chunk(&self, usage: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": [], "usage": usage,
        })
    }

    /// A `chat.completion`.
    pub(super) fn completion(&self, message: Value, finish: &str, usage: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": null}], "usage": usage,
        })
    }

    fn whole(&self, reply: &ChatReply, thoughts: Thoughts) -> Value {
        let mut message = json!({"role": "assistant", "content": reply.text, "refusal": null});
        if !thoughts.0.is_empty() {
            message["reasoning_content"] = Value::String(thoughts.0);
        }
        if !reply.tool_calls.is_empty() {
            message["tool_calls"] = wire_calls(&reply.tool_calls);
            if reply.text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        let used = tokens(reply);
        self.completion(message, finish_reason(reply.finish), used)
    }

    /// What comes behind the text.
    fn last(&self, reply: &ChatReply, with_usage: bool) -> Vec<Value> {
        let mut chunks = Vec::new();
        if !reply.tool_calls.is_empty() {
            let mut calls = wire_calls(&reply.tool_calls);
            for (index, call) in calls.as_array_mut().into_iter().flatten().enumerate() {
                call["index"] = json!(index);
            }
            chunks.push(self.chunk(json!({"tool_calls": calls}), None));
        }
        chunks.push(self.chunk(json!({}), Some(finish_reason(reply.finish))));
        if with_usage {
            chunks.push(self.usage_chunk(tokens(reply)));
        }
        chunks
    }
}

fn tokens(reply: &ChatReply) -> Value {
    usage(reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_prompt_tokens)
}

fn wire_calls(calls: &[ToolCall]) -> Value {
    let call = |call: &ToolCall| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments(call)}});
    calls.iter().map(call).collect()
}

/// The arguments as the model wrote them: what is no JSON is kept as a text.
fn arguments(call: &ToolCall) -> String {
    match &call.arguments {
        Value::String(written) => written.clone(),
        arguments => arguments.to_string(),
    }
}

fn finish_reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::Cancelled => "stop",
        // Its clients know no other word for an answer that is not whole.
        FinishReason::Length | FinishReason::Repetition => "length",
        FinishReason::ToolCalls => "tool_calls",
    }
}

/// The chunks as OpenAI's clients read them, with their end.
pub(super) fn sse(chunks: impl Stream<Item = Value> + Send + 'static) -> Response {
    let events = chunks.map(|chunk| chunk.to_string()).chain(stream::iter(["[DONE]".to_owned()]));
    let events = events.map(|data| Ok::<_, Infallible>(Event::default().data(data)));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
