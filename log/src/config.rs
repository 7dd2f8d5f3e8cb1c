use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use crate::registry::Schemas;

/// How long a broker may hold a reader's question when there is nothing to read. Whatever the reader wants to know besides waits
/// behind it, and so does a partition that it pauses and takes up again, as the client does with all of them while its group rebalances:
/// those that stay where they are go on within so long.
const FETCH_WAIT: Duration = Duration::from_millis(300);

/// How to reach the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// `host:port`, several joined by commas.
    pub brokers: String,
    /// Names this process in the broker's log.
    pub client_id: String,
    /// How long the broker may hold a reader's question when there is nothing to read. In whole milliseconds.
    pub fetch_wait: Duration,
    /// Raw librdkafka settings, for TLS and SASL. They win over everything that is set here.
    pub extra: BTreeMap<String, String>,
    /// What records are read with.
    pub schemas: Schemas,
}

/// The first of raw librdkafka settings that the client does not take: its name, and what the client says of it. Nothing is connected
/// to, so that what only a broker can refuse is not found.
pub fn refused_setting(extra: &BTreeMap<String, String>) -> Option<(&str, String)> {
    extra.iter().find_map(|(name, value)| {
        let reason = match ClientConfig::new().set(name, value).create_native_config() {
            Ok(_) => return None,
            // The whole text of the error has the value, which may be a password under a name that was misspelt.
            Err(KafkaError::ClientConfig(_, reason, _, _)) => reason,
            Err(error) => error.to_string(),
        };
        Some((name.as_str(), reason))
    })
}

impl LogConfig {
    /// A broker without TLS or SASL.
    pub fn new(brokers: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            client_id: client_id.into(),
            fetch_wait: FETCH_WAIT,
            extra: BTreeMap::new(),
            schemas: Schemas::built_in(),
        }
    }

    /// What every client has in common.
    fn base(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", &self.client_id)
            .set("socket.nagle.disable", "true")
            .set("socket.keepalive.enable", "true")
            // A broker that restarts is back within a second; the default of 10 s would be most of the outage.
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            .set("allow.auto.create.topics", "false")
            .set_log_level(RDKafkaLogLevel::Info);
        config
    }

    fn with_extra(&self, mut config: ClientConfig) -> ClientConfig {
        for (key, value) in &self.extra {
            config.set(key, value);
        }
        config
    }

    /// For requests that are not about records.
    pub(crate) fn admin(&self) -> ClientConfig {
        self.with_extra(self.base())
    }

    /// For an idempotent producer: acknowledged by every replica, in order, once.
    pub(crate) fn producer(&self) -> ClientConfig {
        let mut config = self.base();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // The hash of the Java client, so that both put a key into the same partition.
            .set("partitioner", "murmur2_random")
            // Records still gather while earlier requests are on their way; waiting for more would only add latency.
            .set("linger.ms", "0")
            .set("message.timeout.ms", "30000")
            .set("request.timeout.ms", "10000")
            .set("retry.backoff.ms", "50")
            .set("retry.backoff.max.ms", "1000")
            // Dead letters carry foreign bytes: let the broker's own limit decide.
            .set("message.max.bytes", "8388608")
            .set("queue.buffering.max.kbytes", "65536");
        self.with_extra(config)
    }

    /// For a producer whose records and offsets come into being together.
    pub(crate) fn transactional(&self, transactional_id: &str) -> ClientConfig {
        let mut config = self.producer();
        config.set("transactional.id", transactional_id).set("transaction.timeout.ms", "60000");
        config
    }

    /// What readers have in common.
    fn reader(&self) -> ClientConfig {
        let mut config = self.base();
        config
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("isolation.level", "read_committed")
            // Every start offset is explicit, so a reset means that records fell off the log: it is reported, not silent.
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "false")
            .set("fetch.wait.max.ms", self.fetch_wait.as_millis().to_string())
            .set("fetch.error.backoff.ms", "50")
            // Read ahead a little: at most 1,000 records or 16 MiB wait in the client, and it fetches again at once when they are taken.
            .set("fetch.queue.backoff.ms", "5")
            .set("queued.min.messages", "1000")
            .set("queued.max.messages.kbytes", "16384");
        config
    }

    /// For a reader outside of any group. librdkafka wants a group id nevertheless; it joins none and commits nothing.
    pub(crate) fn tail(&self) -> ClientConfig {
        let mut config = self.reader();
        config.set("group.id", "riverrun.tail");
        self.with_extra(config)
    }

    /// For asking what a group has committed, without joining it.
    pub(crate) fn observer(&self, group: &str) -> ClientConfig {
        let mut config = self.reader();
        config.set("group.id", group);
        self.with_extra(config)
    }

    /// For a member of a group.
    pub(crate) fn member(&self, group: &super::GroupConfig) -> ClientConfig {
        let mut config = self.reader();
        config
            .set("group.id", &group.group)
            // At the end of a partition it is seen whether marks of transactions lie behind its last record.
            .set("enable.partition.eof", "true")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", group.session_timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", group.heartbeat.as_millis().to_string())
            // Only a guard against a stuck loop: the loop polls all the time, whatever the work takes.
            .set("max.poll.interval.ms", group.session_timeout.as_millis().max(300_000).to_string());
        if let Some(instance) = &group.instance {
            config.set("group.instance.id", instance);
        }
        self.with_extra(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_settings_win_over_ours() {
        let mut config = LogConfig::new("h:1", "c");
        config.extra.insert("security.protocol".into(), "ssl".into());
        config.extra.insert("linger.ms".into(), "7".into());
        let producer = config.producer();
        assert_eq!(producer.get("security.protocol"), Some("ssl"));
        assert_eq!(producer.get("linger.ms"), Some("7"));
        assert_eq!(producer.get("enable.idempotence"), Some("true"));
    }
}
