//! WebSockets: `/ws/agent`, `/ws/runs/{id}`, `/ws/ingest/{id}`, `/ws/finetune/{id}`. One session loop for all of them ([`session`]).

mod finetune;
#[cfg(test)]
mod fuzz_tests;
mod session;

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use futures::stream::{self, Stream, StreamExt};
use riverrun_schemas::{IngestId, RunId};
use serde_json::Value;

use crate::accept;
use crate::access::caller;
use crate::access::session::WS_PROTOCOL;
use crate::config::MAX_WS_MESSAGE_BYTES;
use crate::error::ApiError;
use crate::extract::{self, Path, Query, id};
use crate::hub::{StreamEnd, unknown_ingest};
use crate::routes::runs::FollowQuery;
use crate::state::AppState;
use crate::submit;
use crate::wire::{RunBody, RunMessage};
use session::{Closing, Say, close, follow};

/// How long a client may take for its first message.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// What is read at once. Clients say little; of the library's own 128 KiB each socket would keep all, and fill it with zeros each time it
/// is looked at. A longer message takes more for as long as it comes.
const READ_BUFFER_BYTES: usize = 1024;
/// What waits to be written together, at most. Each socket of a client that reads too slowly keeps as much.
const WRITE_BUFFER_BYTES: usize = 8 * 1024;

pub(crate) fn router() -> Router<AppState> {
    Router::new()
        .route("/ws/agent", get(agent))
        .route("/ws/runs/{id}", get(run))
        .route("/ws/ingest/{id}", get(ingest))
        .route("/ws/finetune/{id}", get(finetune::finetune))
}

type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

fn upgrade(given: Upgrade) -> Result<WebSocketUpgrade, ApiError> {
    let upgrade = given.map_err(|rejection| {
        let status = match rejection.status() {
            // Of GET and HEAD, which are all that come here, a WebSocket is opened by the first.
            StatusCode::METHOD_NOT_ALLOWED => StatusCode::BAD_REQUEST,
            other => other,
        };
        ApiError::new(status, "websocket_expected", rejection.body_text())
            .hint("open this path with a WebSocket client, version 13")
    })?;
    let upgrade = upgrade.protocols([WS_PROTOCOL]); // for clients that put their token beside it
    let upgrade = upgrade.read_buffer_size(READ_BUFFER_BYTES).write_buffer_size(WRITE_BUFFER_BYTES);
    Ok(upgrade.max_message_size(MAX_WS_MESSAGE_BYTES).max_frame_size(MAX_WS_MESSAGE_BYTES))
}

/// What a stream says, until it ends or the token that it was opened with is none any more.
fn held<M: Stream<Item = Say>>(messages: M, token_lost: impl Future<Output = ()>) -> impl Stream<Item = Say> {
    let messages = messages.chain(stream::once(async { Say::Close(Closing::Done) }));
    let lost = async {
        token_lost.await;
        Say::Close(revoked())
    };
    stream::select(messages, stream::once(lost))
}

fn revoked() -> Closing {
    Closing::Refused("the token was revoked, or its time is over".to_owned())
}

/// Follows a run from any point.
async fn run(
    State(state): State<AppState>,
    Path(run_id): Path<String>,
    Query(query): Query<FollowQuery>,
    given: Upgrade,
) -> Result<Response, ApiError> {
    let given = upgrade(given)?;
    let run_id: RunId = id(&run_id)?;
    let stream = state.hub().run_stream(run_id, submit::after(query.after)?, query.tokens);
    stream.known().await?;
    let (slot, token_lost) = (state.stream_slot()?, caller::token_lost());
    Ok(given.on_upgrade(move |socket| async move {
        let _slot = slot;
        let _open = state.core().metrics().stream();
        follow(socket, held(stream.into_stream().map(say_of_run), token_lost)).await;
    }))
}

fn say<T: serde::Serialize>(item: Result<T, StreamEnd>) -> Say {
    match item {
        Ok(message) => Say::message(&message),
        Err(StreamEnd::TooSlow) => Say::Close(Closing::TooSlow),
        Err(StreamEnd::Failed(error)) => Say::Close(Closing::Failed(error)),
    }
}

/// Clients refuse frames beyond a size, many of them beyond 1 MiB.
fn say_of_run(item: Result<RunMessage, StreamEnd>) -> Say {
    say(item.map(RunMessage::bounded))
}

/// Follows an ingest.
async fn ingest(
    State(state): State<AppState>,
    Path(ingest_id): Path<String>,
    given: Upgrade,
) -> Result<Response, ApiError> {
    let given = upgrade(given)?;
    let ingest_id: IngestId = id(&ingest_id)?;
    let stream = state.hub().ingest_stream(ingest_id);
    state.hub().ingest(ingest_id).await?.ok_or_else(|| unknown_ingest(ingest_id))?;
    let (slot, token_lost) = (state.stream_slot()?, caller::token_lost());
    Ok(given.on_upgrade(move |socket| async move {
        let _slot = slot;
        let _open = state.core().metrics().stream();
        let messages = stream.into_stream().map(|item| say(item.map_err(StreamEnd::Failed)));
        follow(socket, held(messages, token_lost)).await;
    }))
}

/// Starts a run from the first message and follows it.
async fn agent(State(state): State<AppState>, given: Upgrade) -> Result<Response, ApiError> {
    let given = upgrade(given)?;
    let (slot, token_lost) = (state.stream_slot()?, caller::token_lost());
    let caller = caller::current();
    Ok(given.on_upgrade(move |mut socket| async move {
        let _slot = slot;
        let _open = state.core().metrics().stream();
        tokio::pin!(token_lost);
        let beginning = begin(&state, &mut socket, token_lost.as_mut());
        let begun = match caller {
            Some(caller) => caller::scope(caller, beginning).await,
            None => beginning.await,
        };
        match begun {
            Ok((run_id, tokens)) => {
                let messages = state.hub().run_stream(run_id, 0, tokens).into_stream().map(say_of_run);
                follow(socket, held(messages, token_lost)).await
            }
            Err(Some(closing)) => close(socket, closing).await,
            Err(None) => {}
        }
    }))
}

/// The run that the first message asks for, unless the token was lost or the process stops before it came; `None` in the error when the client is gone.
async fn begin(
    state: &AppState,
    socket: &mut WebSocket,
    token_lost: impl Future<Output = ()>,
) -> Result<(RunId, bool), Option<Closing>> {
    let text = tokio::select! {
        biased;
        () = token_lost => return Err(Some(revoked())),
        () = state.hub().closed() => return Err(Some(Closing::Failed(ApiError::shutting_down()))),
        text = first_message(socket) => text?,
    };
    let (body, tokens) = request(&text).map_err(|error| Some(Closing::of_request(error)))?;
    let accepted = accept::run(state, None, body).await.map_err(|error| Some(Closing::of_request(error)))?;
    Ok((accepted.run_id, tokens))
}

async fn first_message(socket: &mut WebSocket) -> Result<String, Option<Closing>> {
    let deadline = tokio::time::Instant::now() + FIRST_MESSAGE;
    loop {
        match tokio::time::timeout_at(deadline, socket.recv()).await {
            Err(_) => {
                return Err(Some(Closing::Refused(format!(
                    "no message within {} s; send {{\"task\": …}}",
                    FIRST_MESSAGE.as_secs()
                ))));
            }
            Ok(None) => return Err(None),
            Ok(Some(Err(error))) => return Err(Some(Closing::of_socket(&error))),
            Ok(Some(Ok(Message::Text(text)))) => return Ok(text.to_string()),
            Ok(Some(Ok(Message::Binary(_)))) => {
                return Err(Some(Closing::Unreadable(
                    "the first message must be text: a JSON object with a task".to_owned(),
                )));
            }
            Ok(Some(Ok(Message::Close(_)))) => return Err(None),
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
        }
    }
}

/// A body of `/agent/run`, and whether the client wants tokens too.
fn request(text: &str) -> Result<(RunBody, bool), ApiError> {
    let mut message: Value = extract::parse(text.as_bytes())?;
    let tokens = match message.as_object_mut().and_then(|fields| fields.shift_remove("tokens")) {
        None => false,
        Some(Value::Bool(wanted)) => wanted,
        Some(_) => return Err(ApiError::field("tokens", "must be true or false")),
    };
    Ok((extract::of_value(message)?, tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_first_messages_when_they_are_read_then_tokens_are_apart_and_faults_have_their_close_code() {
        let (body, tokens) = request(r#"{"task": "x", "agent": "react", "tokens": true}"#).unwrap();
        assert_eq!((body.task.as_str(), body.agent.as_deref(), tokens), ("x", Some("react"), true));
        assert!(!request(r#"{"task": "x"}"#).unwrap().1);
        for (text, code) in [
            ("{", 1007),
            ("[]", 1007),
            ("\"x\"", 1007),
            (r#"{"task": 123}"#, 1007),
            (r#"{"task": "x", "tokens": 1}"#, 1007),
            (r#"{"x": 1}"#, 1007),
        ] {
            assert_eq!(Closing::of_request(request(text).unwrap_err()).code(), code, "{text}");
        }
    }
}
