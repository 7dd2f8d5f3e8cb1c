//! The secure listener, as stock clients find it.

mod common;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{FutureProducer, FutureRecord};
use riverrun_broker::{Broker, SecureListener, SecurityError, StartError, TlsFiles};
use tempfile::TempDir;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn tls() -> TlsFiles {
    TlsFiles { certificate: data("server.pem"), key: data("server-key.pem") }
}

fn users(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("users");
    std::fs::write(&path, "# for the tests\nann=correct horse\nbob=battery=staple\n").unwrap();
    path
}

async fn start_secure(
    folder: &TempDir,
    tls: Option<TlsFiles>,
    users_file: Option<PathBuf>,
) -> Result<Broker, StartError> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = config(folder);
    config.secure = Some(SecureListener { listen, advertised: None, tls, users_file });
    config.stall_timeout = Duration::from_secs(2);
    Broker::start(config).await
}

fn secure_client(address: SocketAddr, tls: bool, sasl: Option<(&str, &str, &str)>) -> ClientConfig {
    let mut config = client(address);
    config.set(
        "security.protocol",
        match (tls, sasl.is_some()) {
            (false, false) => "PLAINTEXT",
            (false, true) => "SASL_PLAINTEXT",
            (true, false) => "SSL",
            (true, true) => "SASL_SSL",
        },
    );
    config.set("ssl.ca.location", data("server.pem").to_str().unwrap());
    if let Some((mechanism, name, password)) = sasl {
        config.set("sasl.mechanisms", mechanism).set("sasl.username", name).set("sasl.password", password);
    }
    config
}

async fn produces(config: &ClientConfig, patience: Duration) -> bool {
    let mut config = config.clone();
    config.set("message.timeout.ms", patience.as_millis().to_string());
    let producer: FutureProducer = config.create().unwrap();
    producer.send(FutureRecord::to("t").partition(0).key("k").payload("v"), PATIENCE).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn given_every_kind_of_secure_listener_when_clients_come_then_those_who_may_get_in_and_no_others() {
    for (with_tls, with_users) in [(true, false), (false, true), (true, true)] {
        let folder = TempDir::new().unwrap();
        let broker = start_secure(&folder, with_tls.then(tls), with_users.then(|| users(&folder))).await.unwrap();
        let address = broker.secure_addr().unwrap();
        let good: &[Option<(&str, &str, &str)>] = if with_users {
            &[
                Some(("PLAIN", "ann", "correct horse")),
                Some(("SCRAM-SHA-256", "bob", "battery=staple")),
                Some(("SCRAM-SHA-512", "ann", "correct horse")),
            ]
        } else {
            &[None]
        };
        for who in good {
            let config = secure_client(address, with_tls, *who);
            assert!(produces(&config, PATIENCE).await, "tls {with_tls}, {who:?}");
            // What a client is told of the cluster leads back to the listener that it came by.
            let consumer: BaseConsumer = config.create().unwrap();
            let told = blocking(move || consumer.fetch_metadata(None, PATIENCE).unwrap().brokers()[0].port()).await;
            assert_eq!(told, i32::from(address.port()));
        }
        let mut bad = vec![secure_client(address, !with_tls, good[0])];
        if with_users {
            bad.push(secure_client(address, with_tls, None));
            for who in [("PLAIN", "ann", "wrong"), ("SCRAM-SHA-256", "ann", "wrong"), ("SCRAM-SHA-512", "eve", "x")] {
                bad.push(secure_client(address, with_tls, Some(who)));
            }
        }
        for config in bad {
            assert!(!produces(&config, Duration::from_millis(1500)).await, "let in: {config:?}");
        }
        // The loopback listener is as it was.
        assert!(produces(&client(broker.local_addr()), PATIENCE).await);
        let figures = broker.figures();
        assert!(figures.read().unwrap().requests > 0);
        broker.shutdown().await;
        assert!(figures.read().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn given_a_client_that_says_nothing_when_others_come_then_it_holds_nothing_up_and_is_sent_away() {
    let folder = TempDir::new().unwrap();
    let broker = start_secure(&folder, Some(tls()), Some(users(&folder))).await.unwrap();
    let address = broker.secure_addr().unwrap();
    let mut silent: Vec<_> = (0..20).map(|_| connect(address)).collect();
    let config = secure_client(address, true, Some(("SCRAM-SHA-256", "ann", "correct horse")));
    assert!(produces(&config, PATIENCE).await);
    blocking(move || silent.iter_mut().for_each(|stream| assert!(read_frame(stream).is_none(), "closed"))).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn given_settings_that_protect_nothing_or_cannot_be_read_when_started_then_the_error_names_them() {
    let folder = TempDir::new().unwrap();
    let missing = TlsFiles { certificate: data("no.pem"), key: data("server-key.pem") };
    let swapped = TlsFiles { certificate: data("server-key.pem"), key: data("server-key.pem") };
    for (tls, users_file, expected) in [
        (None, None, "let everyone in"),
        (Some(missing), None, "no.pem"),
        (Some(swapped), None, "server-key.pem"),
        (None, Some(folder.path().join("nobody")), "nobody"),
    ] {
        let refused = start_secure(&folder, tls, users_file).await;
        match refused {
            Err(StartError::Security(error)) => {
                assert!(error.to_string().contains(expected), "{error}");
                assert_eq!(matches!(error, SecurityError::Open { .. }), expected == "let everyone in");
            }
            other => panic!("{expected}: {:?}", other.map(|_| ())),
        }
    }
}
