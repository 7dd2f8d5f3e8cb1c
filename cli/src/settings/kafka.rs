//! Raw settings of the Kafka client.

use std::collections::BTreeMap;

use riverrun_log::refused_setting;

use super::{CLIENTS_BROKERS, KAFKA_BROKERS, KAFKA_PREFIX, Values, fix, misspelt};
use crate::error::{CliError, Exit};

/// How a broker elsewhere is reached: the embedded one takes its own clients without.
const REACHING: [&str; 3] = ["security.", "sasl.", "ssl."];

impl Values {
    /// What of the environment is a raw setting of the Kafka client.
    pub(super) fn kafka_extra(&self) -> Result<BTreeMap<String, String>, CliError> {
        let mut extra: BTreeMap<String, String> = self
            .given
            .iter()
            .filter(|(name, value)| name.as_str() != KAFKA_BROKERS && !value.is_empty())
            .filter_map(|(name, value)| {
                Some((name.strip_prefix(KAFKA_PREFIX)?.to_lowercase().replace('_', "."), value.clone()))
            })
            .collect();
        if let Some(name) = CLIENTS_BROKERS.into_iter().find(|name| self.text(name).is_some()) {
            let message = format!("setting {name} is what the Kafka client calls {KAFKA_BROKERS}");
            return Err(CliError::new(Exit::Usage, message)
                .hint(format!("set {KAFKA_BROKERS} instead of it (environment or .env)")));
        }
        if let Some((property, reason)) = refused_setting(&extra) {
            let name = format!("{KAFKA_PREFIX}{}", property.to_uppercase().replace('.', "_"));
            let message = format!("setting {name} is none that the Kafka client takes as {property:?}: {reason}");
            let brokers = [KAFKA_BROKERS, CLIENTS_BROKERS[0], CLIENTS_BROKERS[1]].map(str::to_owned);
            let meant = match misspelt::nearest(&name, &brokers.into()) {
                Some(_) => format!("did you mean {KAFKA_BROKERS}? else "),
                None => String::new(),
            };
            return Err(CliError::new(Exit::Usage, message).hint(format!("{meant}{}", fix(&name))));
        }
        if self.text(KAFKA_BROKERS).is_none() {
            extra.retain(|name, _| !REACHING.iter().any(|start| name.starts_with(start)));
        }
        Ok(extra)
    }
}
