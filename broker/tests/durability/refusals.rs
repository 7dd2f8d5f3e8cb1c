//! What clients are refused of groups' offsets is not there, neither at once nor after a start.

use std::net::{SocketAddr, TcpStream};

use crate::common::offsets::{commit_offset, delete_group, forget_offset, offset_of};

use super::*;

/// A change of offsets, and Kafka's code that answers it.
type Attempt = fn(&mut TcpStream) -> i16;

const ATTEMPTS: [(&str, Attempt); 4] = [
    ("a commit", |stream| commit_offset(stream, "g", "t", 2)),
    ("the first commit of a group", |stream| commit_offset(stream, "new", "t", 2)),
    ("the deletion of an offset", |stream| forget_offset(stream, "g", "t", 0).0),
    ("the deletion of a group", |stream| delete_group(stream, "g")),
];

fn offsets(address: SocketAddr) -> [(i16, i64); 2] {
    let mut stream = connect(address);
    ["g", "new"].map(|group| offset_of(&mut stream, group, "t"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_changes_of_offsets_that_were_refused_when_asked_for_then_all_is_as_it_was() {
    let folder = TempDir::new().unwrap();
    let switches = Arc::new(Switches::default());
    let mut config = config(&folder).with_disk(Arc::new(FaultyDisk(switches.clone())));
    config.housekeeping_interval = PATIENCE;
    let broker = Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    create(&broker, "t", 1, &[]).await;
    let as_it_was: [(i16, i64); 2] = [(0, 1), (0, -1)];
    assert_eq!(blocking(move || commit_offset(&mut connect(address), "g", "t", 1)).await, 0);
    for (fails, switch) in [("full", &switches.full), ("sync", &switches.syncs_fail)] {
        for (what, attempt) in ATTEMPTS {
            switch.store(true, Ordering::SeqCst);
            let answer = blocking(move || attempt(&mut connect(address))).await;
            assert_eq!(answer, ResponseError::CoordinatorNotAvailable.code(), "{what}, {fails}");
            assert_eq!(blocking(move || offsets(address)).await, as_it_was, "{what}, {fails}");
            assert!(broker.groups().iter().all(|group| group.id != "new"), "{what}, {fails}");
            switch.store(false, Ordering::SeqCst);
            let taken = || commit_offset(&mut connect(address), "other", "t", 1) == 0;
            eventually("the journal takes changes again", taken).await;
        }
    }
    broker.shutdown().await;
    let broker = start(&folder).await;
    let address = broker.local_addr();
    assert_eq!(blocking(move || offsets(address)).await, as_it_was, "after a start");
    broker.shutdown().await;
}
