//! Puts the harness's commands on the log, however long the broker takes to come back.

use std::time::Duration;

use riverrun_log::{LogConfig, LogError, Outgoing, Producer};
use riverrun_schemas::agent::AgentCommand;

use super::harness;
use crate::error::CliError;

/// How long to wait before a write that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Commands {
    producer: Producer,
}

impl Commands {
    pub(super) fn new(brokers: &str, client: &str) -> Result<Self, CliError> {
        let producer =
            Producer::new(&LogConfig::new(brokers, client)).map_err(|error| harness("the producer", error))?;
        Ok(Self { producer })
    }

    /// After a failure all of them are written again: some may be there twice, and whoever accepts them takes each once.
    pub(super) async fn send(&self, commands: impl IntoIterator<Item = AgentCommand>) -> Result<(), CliError> {
        let unwritten = |error: LogError| harness("a command can't be written", error);
        let commands = commands.into_iter().map(|command| Outgoing::event(&command, "chaos", None));
        let commands = commands.collect::<Result<Vec<_>, _>>().map_err(unwritten)?;
        loop {
            match self.producer.send_many(commands.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) if error.retryable() => tokio::time::sleep(RETRY_PAUSE).await,
                Err(error) => return Err(unwritten(error)),
            }
        }
    }
}
