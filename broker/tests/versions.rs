//! Every announced request in every announced version: generated from its shape, decoded, answered, encoded; and what
//! happens when the bytes are wrong.

#[path = "versions/answers.rs"]
mod answers;
mod common;
#[path = "versions/groups.rs"]
mod groups;
#[path = "versions/requests.rs"]
mod requests;

use std::net::TcpStream;

use common::wire::{Asked, frame, join};
use common::*;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use requests::{Dice, body};
use riverrun_broker::versions::{ANNOUNCED, is_flexible};
use riverrun_broker::wire::shape::check;
use tempfile::TempDir;

fn api_versions(stream: &mut TcpStream) -> Option<Vec<u8>> {
    call(stream, &frame(ApiKey::ApiVersions as i16, 0, false, 77, &[]))
}

async fn broker(folder: &TempDir) -> riverrun_broker::Broker {
    let mut config = config(folder);
    config.min_session_timeout = std::time::Duration::from_millis(50);
    riverrun_broker::Broker::start(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_every_announced_version_when_called_then_it_is_answered() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut dice = Dice(7);
        let mut stream = connect(address);
        let mut correlation = 0;
        for api in ANNOUNCED {
            for version in api.min..=api.max {
                for _ in 0..12 {
                    correlation += 1;
                    let body = body(api.key, version, &mut dice);
                    assert_eq!(check(api.key, version, &body), Ok(body.len()), "{:?} {version}", api.key);
                    let frame = frame(api.key as i16, version, is_flexible(api.key, version), correlation, &body);
                    let answer = call(&mut stream, &frame);
                    let answer = answer
                        .unwrap_or_else(|| panic!("{:?} version {version} is not answered: {body:02x?}", api.key));
                    assert_eq!(answer[..4], correlation.to_be_bytes(), "{:?} {version}", api.key);
                }
            }
        }
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_newer_client_when_it_asks_for_versions_then_it_is_told_ours_in_version_0() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut stream = connect(address);
        let answer = call(&mut stream, &frame(ApiKey::ApiVersions as i16, 99, false, 5, &[0, 0])).unwrap();
        assert_eq!(answer[..6], [0, 0, 0, 5, 0, 35]);
        let count = u32::from_be_bytes(answer[6..10].try_into().unwrap());
        assert_eq!(count as usize, ANNOUNCED.len());
        assert!(api_versions(&mut stream).is_some(), "the connection goes on");
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_wrong_bytes_when_sent_then_that_connection_ends_and_no_other() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut dice = Dice(11);
        let mut bystander = connect(address);
        let mut wrong: Vec<Vec<u8>> = vec![
            // Lengths of frames that cannot be.
            i32::MAX.to_be_bytes().to_vec(),
            (-1i32).to_be_bytes().to_vec(),
            // No header, an unknown request, an unannounced version.
            [&[0, 0, 0, 3][..], b"abc"].concat(),
            framed(frame(999, 0, false, 1, &[])),
            framed(frame(ApiKey::Fetch as i16, 99, true, 1, &[])),
            framed(frame(ApiKey::Vote as i16, 0, true, 1, &[])),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        ];
        for api in ANNOUNCED {
            // Arrays and texts that claim more than there is, and requests cut short.
            let flexible = is_flexible(api.key, api.max);
            let lie = if flexible { vec![0xff, 0xff, 0xff, 0xff, 0x07] } else { vec![0x7f; 64] };
            wrong.push(framed(frame(api.key as i16, api.max, flexible, 1, &lie)));
            let whole = body(api.key, api.max, &mut dice);
            let cut = framed(frame(api.key as i16, api.max, flexible, 1, &whole[..whole.len().saturating_sub(1)]));
            wrong.push(cut);
        }
        for bytes in wrong {
            let mut stream = connect(address);
            std::io::Write::write_all(&mut stream, &bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Answered or closed, but not left open.
            while read_frame(&mut stream).is_some() {}
            assert!(api_versions(&mut bystander).is_some(), "after {bytes:02x?}");
        }
        // Random damage to good requests.
        for _ in 0..2_000 {
            let api = ANNOUNCED[dice.roll(ANNOUNCED.len())];
            let version = api.min + dice.roll((api.max - api.min + 1) as usize) as i16;
            let mut bytes = body(api.key, version, &mut dice);
            for _ in 0..=dice.roll(3) {
                if !bytes.is_empty() {
                    let at = dice.roll(bytes.len());
                    bytes[at] ^= 1 << dice.roll(8);
                }
            }
            let _ = check(api.key, version, &bytes);
        }
        assert!(api_versions(&mut bystander).is_some());
    })
    .await;
    broker.shutdown().await;
}

fn framed(frame: Vec<u8>) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_too_many_connections_when_one_more_comes_then_it_is_closed_and_a_place_is_free_later() {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.max_connections = 3;
    let broker = riverrun_broker::Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    blocking(move || {
        let mut held: Vec<TcpStream> = (0..3).map(|_| connect(address)).collect();
        held.iter_mut().for_each(|stream| assert!(api_versions(stream).is_some()));
        assert!(api_versions(&mut connect(address)).is_none());
        held.pop();
        let since = std::time::Instant::now();
        while api_versions(&mut connect(address)).is_none() {
            assert!(since.elapsed() < PATIENCE, "the place is free again");
        }
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_stalled_request_when_time_is_up_then_the_connection_is_closed() {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.stall_timeout = std::time::Duration::from_millis(100);
    let broker = riverrun_broker::Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    blocking(move || {
        let mut stream = connect(address);
        std::io::Write::write_all(&mut stream, &[0, 0, 0, 50, 1]).unwrap();
        assert!(read_frame(&mut stream).is_none(), "closed without an answer");
    })
    .await;
    broker.shutdown().await;
}
