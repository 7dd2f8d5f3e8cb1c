//! Start, stop, and figures for people.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::clock::now_ms;
use crate::config::{BrokerConfig, StartError};
use crate::fetch_sessions::FetchSessions;
use crate::figures::{Counters, FiguresHandle};
use crate::groups::group::Phase;
use crate::groups::{Change, Groups};
use crate::housekeeping;
use crate::meta::{Entry, Meta, TopicMeta};
use crate::node::{MAX_LOOKS, Node};
use crate::security::users::Users;
use crate::security::{SecureListener, SecurityError, tls};
use crate::server::{self, Listener};
use crate::storage::files::FileCache;
use crate::storage::flusher::FlushPool;
use crate::storage::journal::{Journal, wait};
use crate::storage::partition::{PartitionStats, Shared};
use crate::storage::trouble::Troubles;
use crate::topics::{Topics, folder_of};
use crate::txn::coordinator::{self, Coordinator};

/// A running broker. Dropping it stops it without waiting; [`shutdown`](Self::shutdown) is the polite way, and `kill -9`
/// loses nothing that was acknowledged either.
pub struct Broker {
    pub(crate) node: Arc<Node>,
    address: SocketAddr,
    secure_address: Option<SocketAddr>,
}

/// A topic in figures.
#[derive(Debug, Clone)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// How long its records are kept, in milliseconds; none is for ever.
    pub retention_ms: Option<i64>,
    /// Its partitions.
    pub partitions: Vec<PartitionStats>,
}

/// A consumer group in figures.
#[derive(Debug, Clone)]
pub struct GroupInfo {
    /// Its name.
    pub id: String,
    /// `Empty`, `PreparingRebalance`, `CompletingRebalance` or `Stable`.
    pub state: &'static str,
    /// Its members.
    pub members: Vec<GroupMemberInfo>,
    /// Topic, partition, committed offset, and the records from there to the end.
    pub offsets: Vec<(String, i32, i64, i64)>,
}

/// A member of a consumer group.
#[derive(Debug, Clone)]
pub struct GroupMemberInfo {
    /// Its id.
    pub id: String,
    /// What it calls itself.
    pub client_id: String,
    /// Where it calls from.
    pub host: String,
}

impl Broker {
    /// Opens the data folder, recovers what is in it, and listens.
    pub async fn start(config: BrokerConfig) -> Result<Self, StartError> {
        let listen = config.listen;
        let (socket, address) = bind(listen).await?;
        let listener = Listener { socket, advertised: config.advertised.clone(), tls: None, users: None };
        let secure = match config.secure.clone() {
            Some(secure) => Some(secure_listener(secure).await?),
            None => None,
        };
        let (told, changes) = mpsc::unbounded_channel();
        let opening = tokio::task::spawn_blocking(move || open(config, Groups::new(told)));
        let node = opening.await.map_err(|error| StartError::DataDir {
            path: listen.to_string().into(),
            error: std::io::Error::other(error),
        })??;
        let node = Arc::new(node);
        let (resuming, timing, keeping, serving) = (node.clone(), node.clone(), node.clone(), node.clone());
        let rosters = node.journal.lock().rosters.clone();
        node.groups.restore(rosters);
        node.tasks.spawn(remember_members(node.clone(), changes));
        let inherited = coordinator::inherit(&node);
        node.tasks.spawn(async move { coordinator::resume(&resuming, inherited).await });
        node.tasks.spawn(coordinator::run_timeouts(timing));
        node.tasks.spawn(housekeeping::run(keeping));
        node.tasks.spawn(node.storage.troubles.clone().look_after(node.shutdown.clone()));
        node.tasks.spawn(server::accept(serving, listener));
        let secure_address = secure.as_ref().map(|(_, address)| *address);
        if let Some((listener, address)) = secure {
            tracing::info!(%address, tls = listener.tls.is_some(), sasl = listener.users.is_some(), "broker listens for others");
            node.tasks.spawn(server::accept(node.clone(), listener));
        }
        tracing::info!(%address, data_dir = %node.config.data_dir.display(), "broker listens");
        Ok(Self { node, address, secure_address })
    }

    /// Where the broker listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where the secure listener listens, if there is one.
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.secure_address
    }

    /// Closes connections, writes what is queued, checkpoints every log, and returns.
    pub async fn shutdown(self) {
        self.node.shutdown.cancel();
        self.node.tasks.close();
        self.node.tasks.wait().await;
        let node = self.node.clone();
        let closing = tokio::task::spawn_blocking(move || {
            node.flush.stop();
            node.journal.stop();
            node.topics.all_partitions().iter().for_each(|partition| partition.checkpoint());
        });
        if closing.await.is_err() {
            tracing::error!("closing the logs failed");
        }
        tracing::info!(address = %self.address, "broker stopped");
    }

    /// Every topic with offsets and sizes.
    pub fn topics(&self) -> Vec<TopicInfo> {
        topics(&self.node)
    }

    /// Every consumer group with members, committed offsets and lag.
    pub fn groups(&self) -> Vec<GroupInfo> {
        groups(&self.node)
    }

    /// A handle on the figures that outlives the broker harmlessly.
    pub fn figures(&self) -> FiguresHandle {
        FiguresHandle(Arc::downgrade(&self.node))
    }
}

pub(crate) fn topics(node: &Node) -> Vec<TopicInfo> {
    let topics = node.topics.all().into_iter();
    topics
        .map(|topic| {
            let config = topic.config();
            TopicInfo {
                name: topic.name.clone(),
                retention_ms: config.retention_ms.filter(|_| config.deletes()),
                partitions: topic.partitions().iter().map(|partition| partition.stats()).collect(),
            }
        })
        .collect()
}

/// Writes down who the members of groups are. Nobody waits for that: what a crash takes away is made good by members that join
/// again.
async fn remember_members(node: Arc<Node>, mut changes: mpsc::UnboundedReceiver<Change>) {
    loop {
        let change = tokio::select! {
            biased;
            change = changes.recv() => change,
            () = node.shutdown.cancelled() => changes.try_recv().ok(),
        };
        let Some(Change { group, roster, is_empty }) = change else { return };
        let emptied_ms = is_empty.then(now_ms);
        if let Err(error) = node.journal.lock().record(Entry::GroupMembers { group, roster, emptied_ms }) {
            tracing::debug!(error = %error, "members of a group not remembered");
        }
    }
}

pub(crate) fn groups(node: &Node) -> Vec<GroupInfo> {
    let meta = node.journal.lock();
    let mut ids: Vec<String> = node.groups.ids();
    ids.extend(meta.group_ids().cloned());
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| group(node, &meta, id)).collect()
}

fn group(node: &Node, meta: &Meta, id: String) -> GroupInfo {
    let live = node.groups.peek(&id, |group, _| {
        let members = group.members().iter().map(|(id, member)| GroupMemberInfo {
            id: id.clone(),
            client_id: member.client_id.clone(),
            host: member.client_host.clone(),
        });
        (group.phase().as_str(), members.collect())
    });
    let (state, members) = live.unwrap_or((Phase::Empty.as_str(), Vec::new()));
    let committed = meta.groups.get(&id).into_iter().flat_map(|offsets| offsets.values());
    let offsets = committed
        .map(|item| {
            let end = node.topics.partition(&item.topic, item.partition).map(|found| found.bounds().high_watermark);
            let lag = end.map_or(0, |end| (end - item.offset).max(0));
            (item.topic.clone(), item.partition, item.offset, lag)
        })
        .collect();
    GroupInfo { id, state, members, offsets }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.node.shutdown.cancel();
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let socket = TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
        _ => StartError::Listen { address, error },
    })?;
    let bound = socket.local_addr().map_err(|error| StartError::Listen { address, error })?;
    Ok((socket, bound))
}

async fn secure_listener(secure: SecureListener) -> Result<(Listener, SocketAddr), StartError> {
    if secure.tls.is_none() && secure.users_file.is_none() {
        return Err(SecurityError::Open { address: secure.listen }.into());
    }
    let (socket, address) = bind(secure.listen).await?;
    let (tls_files, users_file) = (secure.tls, secure.users_file);
    // Hashing the passwords of many users takes a moment.
    let read = tokio::task::spawn_blocking(move || {
        let tls = tls_files.as_ref().map(tls::acceptor).transpose()?;
        let users = users_file.as_deref().map(Users::read).transpose()?.map(Arc::new);
        Ok::<_, SecurityError>((tls, users))
    });
    let (tls, users) = read
        .await
        .map_err(|error| StartError::Listen { address: secure.listen, error: std::io::Error::other(error) })??;
    Ok((Listener { socket, advertised: secure.advertised, tls, users }, address))
}

/// Opens the data folder. Blocks.
fn open(config: BrokerConfig, groups: Groups) -> Result<Node, StartError> {
    let root = config.data_dir.clone();
    let fail = |error| StartError::DataDir { path: root.clone(), error };
    std::fs::create_dir_all(&root).map_err(fail)?;
    let lock = std::fs::File::create(root.join("lock")).map_err(fail)?;
    lock.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => StartError::DataDirInUse { path: root.clone() },
        std::fs::TryLockError::Error(error) => fail(error),
    })?;
    let disk = config.disk.clone();
    let troubles = Arc::new(Troubles::new(disk.clone(), root.clone()));
    let journal: Journal<Meta> = Journal::open(disk.clone(), &root, config.journal_compact_bytes, troubles.clone())?;
    let flush = FlushPool::start(config.flush_threads).map_err(fail)?;
    let files = Arc::new(FileCache::new(disk, config.max_open_files));
    let storage = Shared { files, queue: flush.queue().clone(), root: root.clone(), troubles };
    let topics = Topics::default();
    let metas = journal.lock().topics.clone();
    remove_leftovers(&journal, &storage, &metas).map_err(fail)?;
    topics.open_all(&metas, config.segment_bytes, &storage).map_err(fail)?;
    name_cluster(&journal).map_err(fail)?;
    let memory = Arc::new(Semaphore::new(Node::memory_units(&config)));
    Ok(Node {
        config,
        journal,
        topics,
        groups,
        fetch_sessions: FetchSessions::default(),
        counters: Counters::default(),
        coordinator: Coordinator::default(),
        flush,
        storage,
        memory,
        looks: Semaphore::new(MAX_LOOKS),
        shutdown: CancellationToken::new(),
        tasks: TaskTracker::new(),
        admin: tokio::sync::Mutex::new(()),
        _lock: lock,
    })
}

/// Removes folders of topics whose deletion was journaled and then interrupted.
fn remove_leftovers(
    journal: &Journal<Meta>,
    storage: &Shared,
    metas: &std::collections::BTreeMap<String, TopicMeta>,
) -> std::io::Result<()> {
    let disk = storage.files.disk();
    let known: Vec<_> = metas.iter().map(|(name, meta)| folder_of(&storage.root, name, meta.id)).collect();
    let unknown = disk.list(&storage.root.join("topics"))?.into_iter().filter(|folder| !known.contains(folder));
    for folder in unknown {
        // A topic is journaled before its folder is made, so a journal that knows nothing at all is not the one of this folder.
        if journal.lock().cluster_id.is_empty() {
            let message = format!("the journal is missing and {} holds records; restore the journal", folder.display());
            return Err(std::io::Error::other(message));
        }
        tracing::info!(folder = %folder.display(), "folder of a deleted topic removed");
        disk.remove_dir_all(&folder)?;
    }
    Ok(())
}

fn name_cluster(journal: &Journal<Meta>) -> std::io::Result<()> {
    let durable = {
        let mut meta = journal.lock();
        if !meta.cluster_id.is_empty() {
            return Ok(());
        }
        meta.record(Entry::Cluster { id: Uuid::new_v4().simple().to_string() })
    };
    let named = durable.and_then(|durable| futures::executor::block_on(wait(durable)));
    named.map_err(std::io::Error::other)
}
