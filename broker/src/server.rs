//! Connections: accepting them, cutting their bytes into frames, writing answers in order.
//!
//! A connection has a reader and a writer. The reader begins requests and hands their answers to the writer through a short
//! queue; the writer awaits and writes them in order. Produce requests are thereby pipelined into the same sync while
//! everything else of a connection runs one by one. Whatever goes wrong ends that connection and nothing else.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::handlers::{Answer, Context, RequestError, begin};
use crate::node::Node;

/// Requests of a connection whose answers are outstanding; a client that sends more waits.
const MAX_IN_FLIGHT: usize = 32;
/// Bytes read ahead at a time.
const READ_AHEAD: usize = 64 * 1024;
/// How long answers in the making are still written after the client has closed its side.
const LINGER: Duration = Duration::from_secs(2);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("frame of {size} bytes, at most {max} are allowed")]
    FrameTooLarge { size: i64, max: usize },
    #[error("the client stalled for {0:?}")]
    Stalled(Duration),
    #[error("the client was silent for {0:?}")]
    Idle(Duration),
}

/// Accepts connections until shutdown.
pub(crate) async fn accept(node: Arc<Node>, listener: TcpListener) {
    let slots = Arc::new(Semaphore::new(node.config.max_connections));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = node.shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => match slots.clone().try_acquire_owned() {
                Ok(slot) => {
                    let serving = node.clone();
                    node.tasks.spawn(async move {
                        serve(serving, stream, peer).await;
                        drop(slot);
                    });
                }
                Err(_) => {
                    tracing::warn!(%peer, limit = node.config.max_connections, "connection refused, the limit is reached")
                }
            },
            Err(error) => {
                // Out of file handles, mostly: others must close some first.
                tracing::warn!(error = %error, "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(node: Arc<Node>, stream: TcpStream, peer: SocketAddr) {
    let Ok(local) = stream.local_addr() else { return };
    // Without this an answer waits for the client's delayed acknowledgement; a socket that refuses is slow, not wrong.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    let (sender, receiver) = mpsc::channel(MAX_IN_FLIGHT);
    let stall = node.config.stall_timeout;
    let context = Context { node: node.clone(), client_id: String::new(), peer, local };
    let mut writing = std::pin::pin!(write_answers(writer, receiver, stall));
    let ended = tokio::select! {
        ended = read_requests(&context, reader, sender) => match ended {
            Ok(()) => timeout(LINGER, &mut writing).await.unwrap_or(Ok(())),
            error => error,
        },
        ended = &mut writing => ended,
        () = node.shutdown.cancelled() => Ok(()),
    };
    match ended {
        Ok(()) => {}
        Err(ConnectionError::Io(error)) => tracing::debug!(%peer, error = %error, "connection lost"),
        Err(ConnectionError::Idle(after)) => tracing::debug!(%peer, ?after, "idle connection closed"),
        Err(error) => tracing::warn!(%peer, error = %error, "connection closed"),
    }
}

async fn read_requests(
    context: &Context,
    mut reader: OwnedReadHalf,
    answers: mpsc::Sender<Answer>,
) -> Result<(), ConnectionError> {
    let mut buffer = BytesMut::with_capacity(READ_AHEAD);
    while let Some(frame) = read_frame(context, &mut reader, &mut buffer, &answers).await? {
        let answer = begin(context, frame).await?;
        if answers.send(answer).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The next frame without its length; none at the end of the stream.
async fn read_frame(
    context: &Context,
    reader: &mut OwnedReadHalf,
    buffer: &mut BytesMut,
    answers: &mpsc::Sender<Answer>,
) -> Result<Option<Bytes>, ConnectionError> {
    let config = &context.node.config;
    loop {
        let mut wanted = 4;
        if let Some(mut length) = buffer.get(..4) {
            let size = length.get_i32();
            let size = usize::try_from(size)
                .ok()
                .filter(|size| *size <= config.max_frame_bytes)
                .ok_or(ConnectionError::FrameTooLarge { size: i64::from(size), max: config.max_frame_bytes })?;
            wanted = 4 + size;
            if buffer.len() >= wanted {
                buffer.advance(4);
                return Ok(Some(buffer.split_to(size).freeze()));
            }
        }
        // Memory follows the bytes that have come, not the length that was claimed.
        buffer.reserve((wanted - buffer.len()).clamp(4096, READ_AHEAD.max(buffer.len())));
        let between = buffer.is_empty();
        let patience = if between { config.idle_timeout } else { config.stall_timeout };
        match timeout(patience, reader.read_buf(buffer)).await {
            Ok(Ok(0)) if between => return Ok(None),
            Ok(Ok(0)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.into()),
            // While an answer is outstanding the client has every right to be silent.
            Err(_) if between && answers.capacity() < MAX_IN_FLIGHT => {}
            Err(_) if between => return Err(ConnectionError::Idle(patience)),
            Err(_) => return Err(ConnectionError::Stalled(patience)),
        }
    }
}

async fn write_answers(
    mut writer: OwnedWriteHalf,
    mut answers: mpsc::Receiver<Answer>,
    stall: Duration,
) -> Result<(), ConnectionError> {
    while let Some(answer) = answers.recv().await {
        let Some(bytes) = answer.await? else { continue };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match timeout(stall, writer.write(rest)).await {
                Ok(Ok(0)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(Ok(written)) => rest = &rest[written..],
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(ConnectionError::Stalled(stall)),
            }
        }
    }
    Ok(())
}
