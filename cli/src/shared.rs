//! What processes of a cluster share. Where it is embedded it is in one process, and no other may go on with an empty one of its own.

use crate::settings::Settings;

/// A part that several processes can use only when it is a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// The log.
    Log,
    /// The SQL database of read models and locks, and of documents that no MongoDB has.
    ReadModels,
    /// Vectors of documents and conversations.
    Vectors,
    /// Keywords.
    Keywords,
    /// Large content.
    Blobs,
}

impl Shared {
    /// All of them, the log first.
    pub const ALL: &'static [Self] = &[Self::Log, Self::ReadModels, Self::Vectors, Self::Keywords, Self::Blobs];

    fn is_server(self, settings: &Settings) -> bool {
        match self {
            Self::Log => settings.kafka_brokers.is_some(),
            Self::ReadModels => settings.database_url.is_some(),
            Self::Vectors => settings.qdrant.is_some(),
            // Without a server for vectors that is what is missing.
            Self::Keywords => settings.qdrant.as_ref().is_none_or(|server| server.keywords),
            Self::Blobs => settings.s3.is_some(),
        }
    }

    /// What it is for people, and the setting that makes it a server.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Log => ("the log", "RIVERRUN_KAFKA_BROKERS"),
            Self::ReadModels => ("read models", "RIVERRUN_DATABASE_URL"),
            Self::Vectors => ("vectors", "RIVERRUN_QDRANT_URL"),
            Self::Keywords => ("keywords", "RIVERRUN_QDRANT_KEYWORDS=sparse"),
            Self::Blobs => ("blobs", "RIVERRUN_S3_BUCKET"),
        }
    }
}

/// Those that are embedded, each with the setting that makes it a server.
pub fn missing(needed: &[Shared], settings: &Settings) -> Vec<(&'static str, &'static str)> {
    needed.iter().filter(|part| !part.is_server(settings)).map(|part| part.names()).collect()
}
