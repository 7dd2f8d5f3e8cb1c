//! What the tests share: settings that never leave this machine, and a server that sends exactly the bytes that a test wants.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod frames;
pub(crate) mod tiny;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use riverrun_models::{ChatRequest, Message, ModelSettings, Models, Provider, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Settings with empty folders, no hub and short time-outs.
pub(crate) fn settings(dir: &std::path::Path) -> ModelSettings {
    ModelSettings {
        models_dir: Some(dir.join("models")),
        cache_dir: dir.join("cache"),
        offline: true,
        timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(2),
        ..ModelSettings::default()
    }
}

/// How long what is to come is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings under which no time-out ends anything before [`closes`] gives up.
pub(crate) fn without_time_outs(settings: &mut ModelSettings) {
    (settings.timeout, settings.idle_timeout) = (2 * PATIENCE, 2 * PATIENCE);
}

/// Waits until the server's connection is closed.
pub(crate) async fn closes(server: &RawServer, name: &str) {
    let closed = tokio::time::timeout(PATIENCE, server.closed.notified()).await;
    assert!(closed.is_ok(), "{name}: the connection stays open");
}

/// A provider of the adapter; what it is asked is asked there.
pub(crate) struct Of {
    models: Models,
    name: &'static str,
}

impl std::ops::Deref for Of {
    type Target = dyn Provider;

    fn deref(&self) -> &Self::Target {
        self.models.provider(Some(self.name)).unwrap()
    }
}

/// The provider of this name at an address, with a key.
pub(crate) fn provider(name: &'static str, address: &str, key: &str, change: impl FnOnce(&mut ModelSettings)) -> Of {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.addresses.insert(name.to_owned(), address.to_owned());
    settings.keys.extend(Secret::new(key).map(|key| (name.to_owned(), key)));
    change(&mut settings);
    Of { models: Models::new(settings).unwrap(), name }
}

pub(crate) fn ask(model: &str, text: &str) -> ChatRequest {
    ChatRequest { model: model.to_owned(), messages: vec![Message::user(text)], ..ChatRequest::default() }
}

/// What a raw server does after the headers.
#[derive(Clone)]
pub(crate) enum Script {
    /// Sends these blocks with a flush and a short pause after each, then ends the body.
    Blocks(Vec<Vec<u8>>),
    /// Sends this block and then nothing, keeping the connection.
    ThenHang(Vec<u8>),
    /// Sends this block for ever.
    Forever(Vec<u8>),
    /// Sends this block and cuts the connection within the body.
    ThenCut(Vec<u8>),
}

/// A server on a free port that answers every request by one script.
pub(crate) struct RawServer {
    pub address: String,
    pub requests: Arc<AtomicUsize>,
    pub closed: Arc<Notify>,
}

impl RawServer {
    pub(crate) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (requests, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counter, notify) = (Arc::clone(&requests), Arc::clone(&closed));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let (script, notify) = (script.clone(), Arc::clone(&notify));
                tokio::spawn(async move {
                    let _ = serve(stream, script).await;
                    notify.notify_one();
                });
            }
        });
        RawServer { address, requests, closed }
    }
}

async fn serve(mut stream: TcpStream, script: Script) -> std::io::Result<()> {
    read_request(&mut stream).await?;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n")
        .await?;
    match script {
        Script::Blocks(blocks) => {
            for block in blocks {
                send(&mut stream, &block).await?;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            stream.write_all(b"0\r\n\r\n").await?;
        }
        Script::ThenHang(block) => {
            send(&mut stream, &block).await?;
            // Returns when the other side closes.
            let _ = stream.read(&mut [0; 16]).await;
        }
        Script::Forever(block) => loop {
            send(&mut stream, &block).await?;
        },
        Script::ThenCut(block) => send(&mut stream, &block).await?,
    }
    Ok(())
}

async fn send(stream: &mut TcpStream, block: &[u8]) -> std::io::Result<()> {
    stream.write_all(format!("{:x}\r\n", block.len()).as_bytes()).await?;
    stream.write_all(block).await?;
    stream.write_all(b"\r\n").await?;
    stream.flush().await
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut seen = Vec::new();
    let mut block = [0; 4096];
    loop {
        let read = stream.read(&mut block).await?;
        seen.extend_from_slice(&block[..read]);
        let text = String::from_utf8_lossy(&seen).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length: usize = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .map_or(0, |value| value.trim().parse().unwrap_or(0));
            if seen.len() >= end + 4 + length {
                return Ok(());
            }
        }
        if read == 0 {
            return Ok(());
        }
    }
}
