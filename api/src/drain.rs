//! Requests that are refused before all of their body has come. The rest is read for nothing, for a while, so that a client
//! that is still writing sees the answer and not the end of its connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;

/// Most bytes that are read for nothing; behind them the connection ends.
const MAX_BYTES: usize = 64 << 20;
/// How long it is read for nothing at most; behind it the connection ends.
const MAX_TIME: Duration = Duration::from_secs(2);

/// What is left of a body when nobody reads it any more.
type Rest = Arc<Mutex<Option<BodyDataStream>>>;

/// Answers, and reads what is left of the body of a request that was refused.
pub(crate) async fn drain(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let rest = Rest::default();
    // A client that waits for a word before it sends anything sends nothing when it gets an answer instead.
    let waits = request.headers().contains_key(EXPECT);
    let (parts, body) = request.into_parts();
    let lent = Lent { stream: Some(body.into_data_stream()), is_sent: !waits, rest: rest.clone() };
    let response = next.run(Request::from_parts(parts, Body::from_stream(lent))).await;
    let unread = rest.lock().take();
    if let Some(unread) = unread.filter(|_| response.status().is_client_error() || response.status().is_server_error())
    {
        read_away(unread).await;
    }
    response
}

/// Whether it comes to its end or not, the answer is sent behind it.
async fn read_away(mut unread: BodyDataStream) {
    let reading = async {
        let mut room = MAX_BYTES;
        while let Some(Ok(bytes)) = unread.next().await {
            match room.checked_sub(bytes.len()) {
                Some(left) => room = left,
                None => break,
            }
        }
    };
    if tokio::time::timeout(MAX_TIME, reading).await.is_err() {
        tracing::debug!(limit_ms = MAX_TIME.as_millis(), "a refused request is still being sent");
    }
}

/// A body that comes back when it is dropped before its end.
struct Lent {
    /// `None` at its end.
    stream: Option<BodyDataStream>,
    /// Whether the client sends it.
    is_sent: bool,
    rest: Rest,
}

impl Stream for Lent {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.is_sent = true;
        let Some(stream) = self.stream.as_mut() else { return Poll::Ready(None) };
        let polled = stream.poll_next_unpin(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.stream = None;
        }
        polled
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.is_sent {
            *self.rest.lock() = self.stream.take();
        }
    }
}
