//! A bare axum server, and a client that asks a server as often as it answers: what `./x bench` measures the API beside, and with.
//!
//! `hello serve ADDRESS:PORT`, or `hello ask ADDRESS:PORT PATH CONNECTIONS SECONDS`, which prints JSON.

use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

const END_OF_HEAD: &[u8] = b"\r\n\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address] => serve(address).await,
        ["ask", address, path, connections, seconds] => {
            ask(address, path, connections.parse()?, Duration::from_secs_f64(seconds.parse()?)).await
        }
        _ => Err("usage: hello serve ADDRESS:PORT | hello ask ADDRESS:PORT PATH CONNECTIONS SECONDS".into()),
    }
}

async fn serve(address: &str) -> Result<(), Failure> {
    let app = Router::new().route("/", get(|| async { "Hello, World!" }));
    axum::serve(TcpListener::bind(address).await?, app).await?;
    Ok(())
}

/// Asks over some connections at once, each with the next question when the last is answered.
async fn ask(address: &str, path: &str, connections: usize, time: Duration) -> Result<(), Failure> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").into_bytes();
    let began = Instant::now();
    let mut askers = JoinSet::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(address).await?;
        askers.spawn(ask_until(stream, request.clone(), began + time));
    }
    let mut took = Vec::new();
    while let Some(asked) = askers.join_next().await {
        took.extend(asked??);
    }
    let seconds = began.elapsed().as_secs_f64();
    took.sort_unstable();
    let percentile = |hundredths: usize| took.get(took.len() * hundredths / 100).map(Duration::as_secs_f64);
    let found = serde_json::json!({ "requests": took.len(), "seconds": seconds, "p50_s": percentile(50), "p99_s": percentile(99) });
    writeln!(std::io::stdout(), "{found}")?;
    Ok(())
}

async fn ask_until(mut stream: TcpStream, request: Vec<u8>, until: Instant) -> Result<Vec<Duration>, Failure> {
    stream.set_nodelay(true)?;
    let (mut took, mut reply) = (Vec::new(), Vec::new());
    while Instant::now() < until {
        let asked = Instant::now();
        stream.write_all(&request).await?;
        reply.clear();
        while !is_whole(&reply)? {
            if stream.read_buf(&mut reply).await? == 0 {
                return Err("the server closed a connection".into());
            }
        }
        took.push(asked.elapsed());
    }
    Ok(took)
}

/// Whether a reply has come to its end. One that is no success is an error.
fn is_whole(reply: &[u8]) -> Result<bool, Failure> {
    let Some(end) = reply.windows(END_OF_HEAD.len()).position(|bytes| bytes == END_OF_HEAD) else { return Ok(false) };
    let (head, body) = (std::str::from_utf8(&reply[..end])?, &reply[end + END_OF_HEAD.len()..]);
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(format!("the server answered {head}").into());
    }
    let field = |wanted: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
    };
    match field("content-length") {
        Some(length) => Ok(body.len() >= length.parse::<usize>()?),
        None => Ok(body.ends_with(LAST_CHUNK)),
    }
}
