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
use kafka_protocol::messages::ApiKey;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::figures::{Counters, OpenConnection};
use crate::handlers::{Answer, Context, RequestError, begin};
use crate::node::Node;
use crate::pace::Pace;
use crate::security::authentication::Authentication;
use crate::security::users::Users;

/// Requests of a connection whose answers are outstanding; a client that sends more waits.
const MAX_IN_FLIGHT: usize = 32;
/// Size from which on a request is large: the next one is read when this one is worked on, or a client could have us hold as many
/// of the largest as may be in flight. Records do not count: a produce request copies them when it begins, which has its own bound.
const LARGE_REQUEST: usize = 1 << 20;
/// Bytes read ahead at a time.
const READ_AHEAD: usize = 64 * 1024;
/// How long answers in the making are still written after the client has closed its side.
const LINGER: Duration = Duration::from_secs(2);
/// Largest request of a client that has not said who it is.
const MAX_UNAUTHENTICATED: usize = 64 * 1024;

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

/// A socket with what is asked of those who connect to it.
pub(crate) struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// Host and port told to clients, if not the address that they have connected to.
    pub advertised: Option<(String, u16)>,
    /// TLS; none speaks plain TCP.
    pub tls: Option<TlsAcceptor>,
    /// Who may speak; none is everyone.
    pub users: Option<Arc<Users>>,
}

/// Accepts connections until shutdown.
pub(crate) async fn accept(node: Arc<Node>, listener: Listener) {
    let listener = Arc::new(listener);
    let slots = Arc::new(Semaphore::new(node.config.max_connections));
    loop {
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            () = node.shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => match slots.clone().try_acquire_owned() {
                Ok(slot) => {
                    let (serving, listener) = (node.clone(), listener.clone());
                    node.tasks.spawn(async move {
                        serve(serving, &listener, stream, peer).await;
                        drop(slot);
                    });
                }
                Err(_) => {
                    Counters::add(&node.counters.refused, 1);
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

async fn serve(node: Arc<Node>, listener: &Listener, stream: TcpStream, peer: SocketAddr) {
    let Ok(local) = stream.local_addr() else { return };
    let _open = OpenConnection::new(&node.counters);
    // Without this an answer waits for the client's delayed acknowledgement; a socket that refuses is slow, not wrong.
    let _ = stream.set_nodelay(true);
    let advertised = listener.advertised.clone();
    let context = Context {
        node: node.clone(),
        client_id: String::new(),
        peer,
        local,
        advertised,
        pace: Pace::default(),
        attendance: Arc::default(),
    };
    // A password may travel as it is where nobody can listen in.
    let plain = listener.tls.is_some() || local.ip().is_loopback();
    let authentication = Authentication::new(listener.users.clone(), plain);
    let ended = match &listener.tls {
        None => {
            let (reader, writer) = stream.into_split();
            converse(&context, authentication, reader, writer).await
        }
        Some(tls) => {
            let stall = node.config.stall_timeout;
            let shaken = tokio::select! {
                shaken = timeout(stall, tls.accept(stream)) => shaken,
                () = node.shutdown.cancelled() => return,
            };
            match shaken {
                Ok(Ok(stream)) => {
                    let (reader, writer) = tokio::io::split(stream);
                    converse(&context, authentication, reader, writer).await
                }
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(ConnectionError::Stalled(stall)),
            }
        }
    };
    context.attendance.end(&node.groups);
    match ended {
        Ok(()) => {}
        Err(ConnectionError::Io(error)) => tracing::debug!(%peer, error = %error, "connection lost"),
        Err(error @ ConnectionError::Request(RequestError::Unauthenticated { .. })) => {
            Counters::add(&node.counters.unauthenticated, 1);
            tracing::warn!(%peer, error = %error, "connection closed");
        }
        Err(ConnectionError::Idle(after)) => tracing::debug!(%peer, ?after, "idle connection closed"),
        Err(error) => tracing::warn!(%peer, error = %error, "connection closed"),
    }
}

async fn converse(
    context: &Context,
    authentication: Authentication,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
) -> Result<(), ConnectionError> {
    let (sender, receiver) = mpsc::channel(MAX_IN_FLIGHT);
    let mut writing = std::pin::pin!(write_answers(context, writer, receiver));
    tokio::select! {
        ended = read_requests(context, authentication, reader, sender) => match ended {
            Ok(()) => {
                // Before answers that it waits for: others wait for it.
                context.attendance.end(&context.node.groups);
                timeout(LINGER, &mut writing).await.unwrap_or(Ok(()))
            }
            error => error,
        },
        ended = &mut writing => ended,
        () = context.node.shutdown.cancelled() => Ok(()),
    }
}

async fn read_requests(
    context: &Context,
    mut authentication: Authentication,
    mut reader: impl AsyncRead + Unpin,
    answers: mpsc::Sender<Answer>,
) -> Result<(), ConnectionError> {
    let config = &context.node.config;
    let mut buffer = BytesMut::with_capacity(READ_AHEAD);
    loop {
        // Whoever has not said who it is neither stays for long nor sends much.
        let (idle, max) = if authentication.is_done() {
            (config.idle_timeout, config.max_frame_bytes)
        } else {
            (config.stall_timeout, config.max_frame_bytes.min(MAX_UNAUTHENTICATED))
        };
        let Some(frame) = read_frame(context, &mut reader, &mut buffer, &answers, idle, max).await? else {
            return Ok(());
        };
        Counters::add(&context.node.counters.requests, 1);
        Counters::add(&context.node.counters.received, 4 + frame.len() as u64);
        let is_held = frame.len() > LARGE_REQUEST && !is_produce(&frame);
        let answer = begin(context, &mut authentication, frame).await?;
        if answers.send(answer).await.is_err() {
            return Ok(());
        }
        if is_held && answers.reserve_many(MAX_IN_FLIGHT).await.is_err() {
            return Ok(());
        }
    }
}

/// Whether the request in a frame is one to produce: its key stands first.
fn is_produce(frame: &[u8]) -> bool {
    frame.starts_with(&(ApiKey::Produce as i16).to_be_bytes())
}

/// The next frame without its length; none at the end of the stream.
async fn read_frame(
    context: &Context,
    reader: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    answers: &mpsc::Sender<Answer>,
    idle: Duration,
    max: usize,
) -> Result<Option<Bytes>, ConnectionError> {
    loop {
        let mut wanted = 4;
        if let Some(mut length) = buffer.get(..4) {
            let size = length.get_i32();
            let size = usize::try_from(size)
                .ok()
                .filter(|size| *size <= max)
                .ok_or(ConnectionError::FrameTooLarge { size: i64::from(size), max })?;
            wanted = 4 + size;
            if buffer.len() >= wanted {
                buffer.advance(4);
                return Ok(Some(buffer.split_to(size).freeze()));
            }
        }
        // Memory follows the bytes that have come, not the length that was claimed.
        buffer.reserve((wanted - buffer.len()).clamp(4096, READ_AHEAD.max(buffer.len())));
        let between = buffer.is_empty();
        let patience = if between { idle } else { context.node.config.stall_timeout };
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
    context: &Context,
    mut writer: impl AsyncWrite + Unpin,
    mut answers: mpsc::Receiver<Answer>,
) -> Result<(), ConnectionError> {
    let stall = context.node.config.stall_timeout;
    while let Some(answer) = answers.recv().await {
        let Some(bytes) = answer.await? else { continue };
        Counters::add(&context.node.counters.sent, bytes.len() as u64);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match timeout(stall, writer.write(rest)).await {
                Ok(Ok(0)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(Ok(written)) => rest = &rest[written..],
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(ConnectionError::Stalled(stall)),
            }
        }
        // TLS holds records back until it is told to send them.
        timeout(stall, writer.flush()).await.map_err(|_| ConnectionError::Stalled(stall))??;
    }
    // A client that is gone already does not mind.
    let _ = timeout(stall, writer.shutdown()).await;
    Ok(())
}
