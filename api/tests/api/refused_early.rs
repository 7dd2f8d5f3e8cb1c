//! given a request that is refused before its body has come, when the client goes on sending, then it reads the answer.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Api, test};

/// Larger than what sockets hold on their own.
const BODY: usize = 22 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request as a stock client does: all of it, then it reads. Gives the status line.
async fn exchange(api: &Api, head: &str, begins: &str, body_bytes: usize) -> String {
    let talk = async {
        let mut socket = TcpStream::connect(&api.address).await.unwrap();
        let head =
            format!("POST {head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {body_bytes}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(begins.as_bytes()).await.unwrap();
        let filler = vec![b'x'; 64 << 10];
        let mut left = body_bytes - begins.len();
        while left > 0 {
            let part = left.min(filler.len());
            socket.write_all(&filler[..part]).await.unwrap();
            left -= part;
        }
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    tokio::time::timeout(PATIENCE, talk).await.unwrap()
}

#[test]
fn given_bodies_that_are_refused_early_when_they_are_sent_to_their_end_then_the_answer_is_read() {
    test(async |api| {
        let unknown = "--b\r\ncontent-disposition: form-data; name=\"unknown\"\r\n\r\nx\r\n--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n";
        let large = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n";
        let multipart = "content-type: multipart/form-data; boundary=b";
        let json = "content-type: application/json";
        for (head, begins, status) in [
            (format!("/ingest HTTP/1.1\r\n{multipart}"), unknown, "422"),
            (format!("/ingest HTTP/1.1\r\n{multipart}"), large, "413"),
            (format!("/runs HTTP/1.1\r\n{json}"), "{\"task\": \"", "413"),
            ("/runs HTTP/1.1\r\ncontent-type: text/plain".to_owned(), "x", "415"),
            (format!("/nowhere HTTP/1.1\r\n{json}"), "{", "404"),
            (format!("/runs HTTP/1.1\r\n{json}\r\norigin: https://evil.example"), "{", "403"),
        ] {
            let answer = exchange(api, &head, begins, BODY).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {answer}");
        }
    });
}

#[test]
fn given_a_client_that_waits_for_a_word_when_it_is_refused_then_it_is_not_asked_for_its_body() {
    test(async |api| {
        let talk = async {
            let mut socket = TcpStream::connect(&api.address).await.unwrap();
            let head = format!(
                "POST /runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\nexpect: 100-continue\r\ncontent-length: {BODY}\r\n\r\n"
            );
            socket.write_all(head.as_bytes()).await.unwrap();
            let mut answer = vec![0; 64];
            let read = socket.read(&mut answer).await.unwrap();
            String::from_utf8_lossy(&answer[..read]).into_owned()
        };
        let answer = tokio::time::timeout(PATIENCE, talk).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
    });
}
