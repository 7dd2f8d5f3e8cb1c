//! One end of a move: the broker of the settings, the blob store and the data folder, with nobody else at work on it.

use riverrun_api::stack;
use riverrun_log::admin::{Admin, GroupTopics};
use riverrun_log::{EmbeddedBroker, LogConfig, LogError, ObjectStoreBlobs, TopicPartition};
use riverrun_schemas::topics::all_specs;
use riverrun_schemas::{Topic, TopicSpec};
use riverrun_workers::runtime::group_of;

use crate::error::{CliError, Exit};
use crate::host;
use crate::lock::{DataLock, Owner};
use crate::settings::Settings;

const BROKER_PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

pub(super) struct Place {
    pub log: LogConfig,
    pub admin: Admin,
    pub blobs: ObjectStoreBlobs,
    broker: Option<EmbeddedBroker>,
    _lock: DataLock,
}

impl Place {
    /// Only the broker: no worker runs.
    pub(super) async fn open(settings: &Settings, command: &str) -> Result<Self, CliError> {
        let lock = host::own_for_move(settings, command).await?;
        lock.tell(&Owner {
            pid: std::process::id(),
            command: command.to_owned(),
            api_url: None,
            brokers: String::new(),
            needs_token: false,
        })?;
        let blobs = stack::blobs(&settings.data_dir, settings.s3.as_ref()).map_err(|error| {
            CliError::new(Exit::Failed, error.to_string())
                .hint("check the data folder, or RIVERRUN_S3_BUCKET and its companions")
        })?;
        let (broker, mut log) = match &settings.kafka_brokers {
            Some(brokers) => (None, LogConfig::new(brokers.clone(), "riverrun-transfer")),
            None => {
                let folder = settings.data_dir.join("broker");
                let broker = EmbeddedBroker::start(&folder, 0).await.map_err(down)?;
                let log = broker.config("riverrun-transfer");
                (Some(broker), log)
            }
        };
        log.extra = settings.kafka_extra.clone();
        let admin = Admin::new(&log).map_err(down)?;
        admin.wait_ready(BROKER_PATIENCE).await.map_err(down)?;
        Ok(Self { log, admin, blobs, broker, _lock: lock })
    }

    pub(super) async fn close(self) {
        if let Some(broker) = self.broker {
            broker.stop().await;
        }
    }

    /// The partitions of the topics that are there and carried.
    pub(super) async fn partitions(&self) -> Result<Vec<TopicPartition>, CliError> {
        let there = self.admin.topics().await.map_err(down)?;
        let of = |spec: &TopicSpec| {
            let found = there.iter().find(|topic| topic.name == spec.name)?;
            let name: std::sync::Arc<str> = found.name.as_str().into();
            Some((0..found.partitions).map(move |number| TopicPartition::new(name.clone(), number)))
        };
        Ok(carried().filter_map(of).flatten().collect())
    }

    /// One past the last offset of each carried partition.
    pub(super) async fn ends(&self, partitions: &[TopicPartition]) -> Result<Vec<i64>, CliError> {
        let mut topics: Vec<String> = partitions.iter().map(|partition| partition.topic.to_string()).collect();
        topics.dedup();
        let asked = GroupTopics { group: group_of("agent"), topics };
        Ok(self.admin.lag(&[asked]).await.map_err(down)?.into_iter().map(|line| line.end).collect())
    }
}

/// The topics that are carried: all but what models were writing at some moment.
pub(super) fn carried() -> impl Iterator<Item = &'static TopicSpec> {
    all_specs().iter().filter(|spec| !spec.name.starts_with(Topic::Tokens.name()))
}

pub(super) fn down(error: LogError) -> CliError {
    let hint = error.hint().map(str::to_owned);
    CliError::new(Exit::ServiceDown, error.to_string()).hint("check RIVERRUN_KAFKA_BROKERS").maybe_hint(hint)
}
