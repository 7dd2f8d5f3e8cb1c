//! The loop of a socket that says what a stream says. Whoever is on the other side may be slow, silent or gone: every wait
//! has a limit.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message};
use futures::{Sink, SinkExt, Stream, StreamExt};
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use crate::error::ApiError;

/// How often the other side is asked whether it is there.
const PING: Duration = Duration::from_secs(20);
/// How long it may be silent, pongs included.
const SILENCE: Duration = Duration::from_secs(60);
/// How long what is there may take to be written; behind it, the client is too slow.
const SEND: Duration = Duration::from_secs(10);
/// How long a closing handshake may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// A close frame has 125 bytes, two of them for the code.
const MAX_REASON: usize = 123;

/// Why a socket is closed.
#[derive(Debug)]
pub(super) enum Closing {
    /// 1000: everything was said.
    Done,
    /// 1007: the message is not what it must be.
    Unreadable(String),
    /// 1008: the message is understood and refused.
    Refused(String),
    /// 1009: the message is too large.
    TooLarge,
    /// 1013: the client is too slow; it may come back.
    TooSlow,
    /// 1011, or 1001 when the process stops.
    Failed(ApiError),
}

impl Closing {
    /// For a first message that starts nothing: the shape is 1007, the content is 1008, and what is not the client's fault 1011.
    pub(super) fn of_request(error: ApiError) -> Self {
        let problem = error.problem();
        let reason = match &problem.hint {
            Some(hint) => format!("{} ({hint})", problem.detail),
            None => problem.detail,
        };
        // A missing or mistyped field is a message that can't be read; serde's words tell it from a value that is refused.
        let mistyped = problem.errors.iter().any(|error| {
            [
                "invalid type",
                "missing field",
                "unknown field",
                "invalid value",
                "unknown variant",
                "must be true or false",
            ]
            .iter()
            .any(|start| error.reason.starts_with(start))
        });
        match problem.status {
            400 => Closing::Unreadable(reason),
            422 if mistyped => Closing::Unreadable(reason),
            401..=499 => Closing::Refused(reason),
            _ => Closing::Failed(error),
        }
    }

    /// For a socket that failed to read.
    pub(super) fn of_socket(error: &axum::Error) -> Self {
        let text = error.to_string();
        if text.contains("too long") || text.contains("too large") || text.contains("exceeds") {
            Closing::TooLarge
        } else {
            Closing::Unreadable(text)
        }
    }

    pub(super) fn code(&self) -> u16 {
        match self {
            Closing::Done => 1000,
            Closing::Unreadable(_) => 1007,
            Closing::Refused(_) => 1008,
            Closing::TooLarge => 1009,
            Closing::TooSlow => 1013,
            Closing::Failed(error) if error.code() == "shutting_down" => 1001,
            Closing::Failed(_) => 1011,
        }
    }

    fn frame(&self) -> CloseFrame {
        let reason = match self {
            Closing::Done => String::new(),
            Closing::Unreadable(reason) | Closing::Refused(reason) => reason.clone(),
            Closing::TooLarge => "a message has at most 64 KiB".to_owned(),
            Closing::TooSlow => "too slow; come back with ?after=<last seq>".to_owned(),
            Closing::Failed(error) => format!("{}: {error}", error.code()),
        };
        let cut = reason
            .char_indices()
            .map(|(at, c)| at + c.len_utf8())
            .take_while(|end| *end <= MAX_REASON)
            .last()
            .unwrap_or(0);
        CloseFrame { code: self.code(), reason: reason[..cut].into() }
    }
}

/// What a stream wants of its socket.
pub(super) enum Say {
    /// Send this.
    Text(String),
    /// Close it.
    Close(Closing),
}

impl Say {
    pub(super) fn message<T: serde::Serialize>(message: &T) -> Self {
        match serde_json::to_string(message) {
            Ok(text) => Say::Text(text),
            Err(error) => Say::Close(Closing::Failed(ApiError::internal(error.to_string()))),
        }
    }
}

/// Sends what the stream says until it ends, the client goes, or something takes too long.
pub(super) async fn follow<S, M>(mut socket: S, messages: M)
where
    S: Sink<Message> + Stream<Item = Result<Message, axum::Error>> + Unpin,
    M: Stream<Item = Say>,
{
    if let Some(closing) = speak(&mut socket, messages).await {
        close(socket, closing).await;
    }
}

/// `None` when the client is gone.
async fn speak<S, M>(socket: &mut S, messages: M) -> Option<Closing>
where
    S: Sink<Message> + Stream<Item = Result<Message, axum::Error>> + Unpin,
    M: Stream<Item = Say>,
{
    let mut messages = std::pin::pin!(messages);
    let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let mut unsent = false;
    loop {
        tokio::select! {
            biased;
            received = socket.next() => {
                heard = Instant::now();
                match received? {
                    Ok(Message::Ping(_) | Message::Pong(_)) => {}
                    Ok(Message::Close(_)) => return None,
                    Ok(Message::Text(_) | Message::Binary(_)) => {
                        return Some(Closing::Refused("one run a socket: open another for another task".to_owned()));
                    }
                    Err(error) => return Some(Closing::of_socket(&error)),
                }
            }
            said = messages.next() => {
                let closing = match said {
                    Some(Say::Text(text)) => {
                        hand_over(socket, Message::Text(text.into())).await?;
                        unsent = true;
                        continue;
                    }
                    Some(Say::Close(closing)) => closing,
                    None => Closing::Done,
                };
                flush(socket).await?;
                return Some(closing);
            }
            // For the moment that is all: what came together goes in one write.
            () = std::future::ready(()), if unsent => {
                flush(socket).await?;
                unsent = false;
            }
            _ = ping.tick() => {
                if heard.elapsed() > SILENCE {
                    return None;
                }
                hand_over(socket, Message::Ping(Default::default())).await?;
                unsent = true;
            }
        }
    }
}

/// Puts a message behind those that wait to be written. `None` as for [`unless_slow`].
async fn hand_over<S: Sink<Message> + Unpin>(socket: &mut S, message: Message) -> Option<()> {
    let handed_over = tokio::time::timeout(SEND, socket.feed(message)).await;
    unless_slow(socket, handed_over).await
}

/// Writes what waits. `None` as for [`unless_slow`].
async fn flush<S: Sink<Message> + Unpin>(socket: &mut S) -> Option<()> {
    let flushed = tokio::time::timeout(SEND, socket.flush()).await;
    unless_slow(socket, flushed).await
}

/// `None` when the client is gone, or so slow that it is told to come back, as far as there is room for that.
async fn unless_slow<S: Sink<Message> + Unpin>(
    socket: &mut S,
    done: Result<Result<(), S::Error>, Elapsed>,
) -> Option<()> {
    match done {
        Ok(Ok(())) => Some(()),
        Ok(Err(_)) => None,
        Err(_) => {
            let _ = tokio::time::timeout(FAREWELL, socket.send(Message::Close(Some(Closing::TooSlow.frame())))).await;
            None
        }
    }
}

/// Says why, and waits a moment for the other side to close too.
pub(super) async fn close<S>(mut socket: S, closing: Closing)
where
    S: Sink<Message> + Stream<Item = Result<Message, axum::Error>> + Unpin,
{
    let farewell = async {
        if socket.send(Message::Close(Some(closing.frame()))).await.is_ok() {
            while let Some(Ok(message)) = socket.next().await {
                if matches!(message, Message::Close(_)) {
                    break;
                }
            }
        }
    };
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures::stream;

    use super::*;

    /// Nobody says anything on it; how many messages each write has.
    #[derive(Default)]
    struct Writes {
        waiting: usize,
        written: Vec<usize>,
    }

    impl Stream for Writes {
        type Item = Result<Message, axum::Error>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Pending
        }
    }

    impl Sink<Message> for Writes {
        type Error = axum::Error;

        fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn start_send(mut self: Pin<&mut Self>, _: Message) -> Result<(), Self::Error> {
            self.waiting += 1;
            Ok(())
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            let waiting = std::mem::take(&mut self.waiting);
            self.written.extend(Some(waiting).filter(|waiting| *waiting > 0));
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn given_messages_that_are_there_together_when_they_are_said_then_one_write_has_them_and_a_late_one_has_its_own()
     {
        let text = || Say::Text("x".to_owned());
        let late = stream::once(async move {
            tokio::task::yield_now().await;
            text()
        });
        let messages = stream::iter([text(), text(), text()]).chain(late).chain(stream::iter([text()]));
        let mut socket = Writes::default();
        assert!(matches!(speak(&mut socket, messages).await, Some(Closing::Done)));
        assert_eq!(socket.written, [3, 2]);
    }

    #[test]
    fn given_long_reasons_when_a_frame_is_made_then_it_fits_and_cuts_no_character() {
        let frame = Closing::Refused("ä".repeat(200)).frame();
        assert_eq!((frame.code, frame.reason.len()), (1008, 122));
    }
}
