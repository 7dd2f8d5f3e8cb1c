//! Who writes commands is told of a disk that takes none, with the fix and long before the client gives up.

#[path = "../../broker/tests/common/faulty_disk.rs"]
mod faulty_disk;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use faulty_disk::{FaultyDisk, Switches};
use riverrun_broker::{Broker, BrokerConfig};
use riverrun_log::admin::Admin;
use riverrun_log::{LogConfig, Outgoing, Producer};
use riverrun_schemas::TopicSpec;

/// Longest time from a command to its refusal, and from room to the next command that is taken.
const BOUND: Duration = Duration::from_secs(5);

fn command(payload: &'static str) -> Outgoing {
    Outgoing {
        topic: "commands".into(),
        partition: Some(0),
        key: None,
        payload: Some(Bytes::from_static(payload.as_bytes())),
        headers: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn given_a_disk_that_takes_nothing_when_commands_are_written_then_they_are_refused_with_the_fix_until_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let switches = Arc::new(Switches::default());
    let config = BrokerConfig::new(folder.path()).listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let broker = Broker::start(config.with_disk(Arc::new(FaultyDisk(switches.clone())))).await.unwrap();
    let log = LogConfig::new(broker.local_addr().to_string(), "test");
    let admin = Admin::new(&log).unwrap();
    admin.wait_ready(Duration::from_secs(60)).await.unwrap();
    admin
        .ensure_topics(&[TopicSpec { name: "commands".to_owned(), partitions: 1, retention_hours: -1 }])
        .await
        .unwrap();
    let producer = Producer::new(&log).unwrap().told_by(broker.figures());
    producer.send_one(command("before")).await.unwrap();
    for (switch, code) in [(&switches.full, "log_disk_full"), (&switches.syncs_fail, "log_not_writable")] {
        switch.store(true, Ordering::SeqCst);
        // The first finds out, the others are told what is known, however they are written.
        for many in [false, false, true] {
            let since = Instant::now();
            let refused = if many {
                producer.send_many(vec![command("refused"), command("refused")]).await.map(drop)
            } else {
                producer.send_one(command("refused")).await.map(drop)
            };
            let error = refused.expect_err("the disk takes nothing");
            assert!(since.elapsed() < BOUND, "{code} after {:?}", since.elapsed());
            assert_eq!((error.code(), error.retryable()), (code, true), "{error}");
            assert!(error.hint().unwrap().contains(folder.path().to_str().unwrap()), "{error}: {:?}", error.hint());
        }
        switch.store(false, Ordering::SeqCst);
        let since = Instant::now();
        while let Err(error) = producer.send_one(command("after")).await {
            assert!(since.elapsed() < BOUND, "{error} for {:?}", since.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    drop((producer, admin));
    broker.shutdown().await;
}
