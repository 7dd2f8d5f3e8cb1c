//! What the broker counts, for metrics and for people.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::broker::{GroupInfo, TopicInfo, groups, topics};
use crate::node::Node;
use crate::storage::trouble::{StorageTrouble, lasting};

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Counters {
    /// Connections that are open.
    pub connections: AtomicU64,
    /// Connections that were refused because of the limit.
    pub refused: AtomicU64,
    /// Connections that ended because a client could not say who it is.
    pub unauthenticated: AtomicU64,
    /// Requests read.
    pub requests: AtomicU64,
    /// Bytes of requests.
    pub received: AtomicU64,
    /// Bytes of answers.
    pub sent: AtomicU64,
}

impl Counters {
    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// An open connection; counted until it is dropped.
pub(crate) struct OpenConnection<'c>(&'c Counters);

impl<'c> OpenConnection<'c> {
    /// Counts one.
    pub(crate) fn new(counters: &'c Counters) -> Self {
        Counters::add(&counters.connections, 1);
        Self(counters)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Figures of one moment.
#[derive(Debug, Clone)]
pub struct Figures {
    /// Connections that are open.
    pub connections: u64,
    /// Connections refused because of the limit, since the start.
    pub refused_connections: u64,
    /// Connections ended for want of authentication, since the start.
    pub unauthenticated_connections: u64,
    /// Requests read, since the start.
    pub requests: u64,
    /// Bytes of requests, since the start.
    pub received_bytes: u64,
    /// Bytes of answers, since the start.
    pub sent_bytes: u64,
    /// Topics with offsets and sizes.
    pub topics: Vec<TopicInfo>,
    /// Groups with offsets and lag.
    pub groups: Vec<GroupInfo>,
}

/// Gives the figures of a broker for as long as it runs. It keeps nothing of the broker alive.
#[derive(Clone)]
pub struct FiguresHandle(pub(crate) Weak<Node>);

impl FiguresHandle {
    /// The figures now; none once the broker has stopped.
    pub fn read(&self) -> Option<Figures> {
        let node = self.0.upgrade()?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &node.counters;
        Some(Figures {
            connections: count(&counters.connections),
            refused_connections: count(&counters.refused),
            unauthenticated_connections: count(&counters.unauthenticated),
            requests: count(&counters.requests),
            received_bytes: count(&counters.received),
            sent_bytes: count(&counters.sent),
            topics: topics(&node),
            groups: groups(&node),
        })
    }

    /// What keeps the broker from writing, from the first failure until writing works again; a disk that is about to be full counts
    /// as full. None where nothing does, and once the broker has stopped.
    pub fn storage_trouble(&self) -> Option<StorageTrouble> {
        self.0.upgrade()?.storage.troubles.now()
    }

    /// Resolves with what keeps the broker from writing once that has lasted for `grace`: never, while nothing does.
    pub async fn lasting_storage_trouble(&self, grace: Duration) -> StorageTrouble {
        let changes = self.0.upgrade().map(|node| node.storage.troubles.subscribe());
        match changes {
            Some(changes) => lasting(changes, grace).await,
            None => std::future::pending().await,
        }
    }
}
