use std::collections::BTreeMap;

use riverrun_stores::read_models::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether everything needed is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HealthView {
    /// `degraded` when a required service is not up.
    pub status: HealthStatus,
    /// The program's version.
    pub version: String,
    /// When it was looked at all this; whoever waits for a lag of zero goes by an answer that is newer than what it waits for.
    #[schema(value_type = String, format = DateTime)]
    pub measured_at: Timestamp,
    /// Everything that the program leans on.
    pub services: Vec<ServiceView>,
    /// Records that each worker had still to handle.
    pub lag: BTreeMap<String, i64>,
}

/// The whole at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// Every required service is up.
    Ok,
    /// At least one is not.
    Degraded,
}

/// One thing that the program leans on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// What stands behind it, such as `embedded` or `sqlite`.
    pub kind: String,
    /// Nothing useful happens without it.
    pub required: bool,
    /// Whether it answers.
    pub status: ServiceStatus,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its version, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What was found.
    pub detail: String,
    /// What to do where it is not up.
    pub fix: Option<String>,
    /// How long it took to answer.
    pub latency_ms: Option<u64>,
}

impl ServiceView {
    /// A service that answers.
    pub fn up(name: &str, kind: &str, required: bool, detail: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            required,
            status: ServiceStatus::Up,
            address: None,
            version: None,
            detail: detail.into(),
            fix: None,
            latency_ms: None,
        }
    }

    /// The same, down, with what to do.
    pub fn down(name: &str, kind: &str, required: bool, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: ServiceStatus::Down, fix: Some(fix.into()), ..Self::up(name, kind, required, detail) }
    }

    /// The same, missing, with what to do.
    pub fn missing(name: &str, kind: &str, required: bool, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: ServiceStatus::Missing, fix: Some(fix.into()), ..Self::up(name, kind, required, detail) }
    }

    /// A part of this program: it has the program's version.
    pub fn built_in(mut self) -> Self {
        self.version = Some(env!("CARGO_PKG_VERSION").to_owned());
        self
    }

    /// Adds where it is.
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Adds how long it took to answer.
    pub fn took(mut self, latency_ms: u64) -> Self {
        self.latency_ms = Some(latency_ms);
        self
    }
}

/// Whether a service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceStatus {
    /// It answers.
    Up,
    /// It is set and does not answer.
    Down,
    /// It is not there or not set.
    Missing,
}

/// One row a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diagnosis {
    /// Whether every required service is up.
    pub status: HealthStatus,
    /// The rows.
    pub services: Vec<ServiceView>,
}

impl HealthStatus {
    /// The whole that follows from its parts.
    pub fn of(services: &[ServiceView]) -> Self {
        let lacking = services.iter().any(|service| service.required && service.status != ServiceStatus::Up);
        if lacking { HealthStatus::Degraded } else { HealthStatus::Ok }
    }
}
