//! The broker that this process hosts when no other is named.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use riverrun_broker::{Broker, BrokerConfig, FiguresHandle, SecureListener};

use crate::config::LogConfig;
use crate::error::LogError;

/// How long readers in this process let themselves be held: the broker holds those for long whose connection is quiet, and
/// answers whatever else they ask at once. Each question is work for both sides, and there are some sixteen readers.
const FETCH_WAIT: Duration = Duration::from_secs(3);

/// A broker on loopback within this process. [`stop`](Self::stop) is the polite end; being killed loses nothing that was
/// acknowledged.
pub struct EmbeddedBroker {
    broker: Broker,
}

impl EmbeddedBroker {
    /// Starts over `data_dir`; port 0 takes a free one. One process at a time owns the folder.
    pub async fn start(data_dir: &Path, port: u16) -> Result<Self, LogError> {
        Self::start_with(data_dir, port, None).await
    }

    /// The same, with a second listener for clients beyond this machine.
    pub async fn start_with(data_dir: &Path, port: u16, secure: Option<SecureListener>) -> Result<Self, LogError> {
        let mut config = BrokerConfig::new(data_dir).listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        // The list in deploy/topics.toml is the only one: a misspelt topic is an error, not a new topic.
        config.auto_create_topics = false;
        config.secure = secure;
        let broker = Broker::start(config).await.map_err(|error| LogError::Embedded(error.to_string()))?;
        Ok(Self { broker })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.broker.local_addr()
    }

    /// How to reach it.
    pub fn config(&self, client_id: &str) -> LogConfig {
        LogConfig { fetch_wait: FETCH_WAIT, ..LogConfig::new(self.address().to_string(), client_id) }
    }

    /// The broker itself, for its figures.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Its figures, for as long as it runs.
    pub fn figures(&self) -> FiguresHandle {
        self.broker.figures()
    }

    /// Closes its connections and writes everything; clients should be gone by then.
    pub async fn stop(self) {
        self.broker.shutdown().await;
    }
}
