//! Why a stack does not start, and the fix.

use riverrun_log::{BlobError, LogError, RegistryError};
use riverrun_stores::{StoreError, WarehouseError};

use super::READY_PATIENCE;
use crate::hub::HubError;

/// A part of the stack does not start.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The broker does not start or does not answer.
    #[error("broker: {0}")]
    Broker(LogError),
    /// The log can't be used.
    #[error("log: {0}")]
    Log(#[from] LogError),
    /// The schema registry is not there, or does not take this build's schemas.
    #[error("schema registry: {0}")]
    Registry(#[from] RegistryError),
    /// A store can't be opened.
    #[error("{part}: {source}")]
    Store {
        /// Which.
        part: &'static str,
        /// Why.
        source: StoreError,
    },
    /// The warehouse can't be opened.
    #[error("warehouse: {0}")]
    Warehouse(#[from] WarehouseError),
    /// The blob store can't be opened.
    #[error("blobs: {0}")]
    Blobs(#[from] BlobError),
    /// The API can't follow the log.
    #[error("streams: {0}")]
    Hub(#[from] HubError),
    /// Workers have no partitions.
    #[error("workers have no partitions after {seconds} s: {waiting}", seconds = READY_PATIENCE.as_secs())]
    NotReady {
        /// Which, and why where that is known.
        waiting: String,
    },
}

impl StackError {
    /// The service that is not there, as `diagnose` names it.
    pub fn service(&self) -> &'static str {
        match self {
            StackError::Broker(_) | StackError::Log(_) | StackError::Hub(HubError::Log(_)) => "broker",
            StackError::Registry(_) => "schema registry",
            StackError::Store { part, .. } => part,
            StackError::Blobs(_) => "blobs",
            StackError::Warehouse(_) => "warehouse",
            StackError::Hub(HubError::Store(_)) => "sql",
            StackError::NotReady { .. } => "workers",
        }
    }

    /// The fix.
    pub fn hint(&self) -> String {
        let known = match self {
            StackError::Broker(error) | StackError::Log(error) => error.hint().map(str::to_owned),
            StackError::Store { source, .. } | StackError::Hub(HubError::Store(source)) => source.hint(),
            StackError::Hub(HubError::Log(error)) => error.hint().map(str::to_owned),
            StackError::Registry(error) => Some(error.hint()),
            StackError::Warehouse(error) => error.hint(),
            StackError::Blobs(_) => Some(
                "check the disk and the data folder (RIVERRUN_DATA_DIR), or the bucket (RIVERRUN_S3_BUCKET, RIVERRUN_S3_ENDPOINT) and its key"
                    .to_owned(),
            ),
            StackError::NotReady { .. } => None,
        };
        known.unwrap_or_else(|| "check the disk and the data folder (RIVERRUN_DATA_DIR), then try again".to_owned())
    }
}
