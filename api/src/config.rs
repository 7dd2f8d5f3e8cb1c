//! What an operator decides about the API. Read from the environment by the command line, never here.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use riverrun_agents::memory::{DEFAULT_WINDOW_TOKENS, MAX_WINDOW_TOKENS};
use riverrun_knowledge::chunking::ChunkUnit;
use riverrun_knowledge::retrieval::Fusion;
use riverrun_knowledge::web::WebPolicy;
pub use riverrun_projects::settings::{Programs, ProjectSettings};
pub use riverrun_projects::tools::FOLDER as PROJECT_TOOLS_FOLDER;

use crate::access::tokens::Tokens;

/// Largest JSON body, in bytes: 1 MiB. Larger ones get 413.
pub const MAX_JSON_BYTES: usize = 1 << 20;
/// Largest multipart body, in bytes: 64 MiB. Larger ones get 413.
pub const MAX_UPLOAD_BYTES: usize = 64 << 20;
/// Largest file of a multipart body, in bytes: 20 MiB. Larger ones get 413.
pub const MAX_FILE_BYTES: usize = 20 << 20;
/// Most files of a multipart body; more get 422.
pub const MAX_FILES: usize = 100;
/// Largest message that a WebSocket client may send, in bytes: 64 KiB. A larger one closes the socket with 1009.
pub const MAX_WS_MESSAGE_BYTES: usize = 64 << 10;
/// Streams and waiting requests that are open at once when nothing else is set; more get 429.
pub const DEFAULT_STREAMS: usize = 2_048;
/// Most that may be set: each is an open file.
pub const MAX_STREAMS: usize = 1_000_000;

/// What an operator decides about the API.
#[derive(Debug, Clone, Default)]
pub struct ApiConfig {
    /// Host names that requests may be for, besides those of loopback and the bind address.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages that may use the API from a browser, such as `https://console.example`, besides those of loopback.
    pub allowed_origins: Vec<String>,
    /// Bearer tokens; with none, and without a file of them, everyone who reaches the port may do everything.
    pub tokens: Tokens,
    /// A file of more tokens, looked at again as it changes; it need not be there.
    pub tokens_file: Option<PathBuf>,
    /// Requests a minute for each token that has no limit of its own; 0 is no limit.
    pub rate_per_token: u32,
    /// Requests a minute for each namespace; 0 is no limit.
    pub rate_per_namespace: u32,
    /// Streams and waiting requests that are open at once; 0 is [`DEFAULT_STREAMS`].
    pub max_streams: usize,
    /// Hours between two sweeps of the blob store by itself; 0 is none.
    pub blob_sweep_hours: u64,
    /// Folders that `POST /ingest` may read from. Canonical paths.
    pub ingest_roots: Vec<PathBuf>,
    /// Hosts of databases that `POST /ingest` may read from, as `host` or `host:port`.
    pub ingest_databases: Vec<String>,
    /// Which programs projects may start, and what their versions are checked against.
    pub projects: ProjectSettings,
    /// Which hosts may be asked for pages and repositories beyond the public internet.
    pub web: WebPolicy,
    /// Most characters, or tokens, of a chunk.
    pub chunk_size: usize,
    /// Characters, or tokens, that neighbouring chunks share at most.
    pub chunk_overlap: usize,
    /// What both count.
    pub chunk_unit: ChunkUnit,
    /// Results of a search that names no number.
    pub rag_top_k: usize,
    /// How a search that does not say it fuses.
    pub rag_fusion: Fusion,
    /// Bytes around each chunk that the model reads, of a question that names no number and of agents' searches.
    pub rag_context_bytes: usize,
    /// Iterations of a run that names no number.
    pub agent_max_iters: i32,
    /// Temperature of a run that names none.
    pub agent_temperature: f64,
    /// Tokens of a conversation's window; 0 is the default of memory.
    pub memory_window_tokens: usize,
    /// Variables that were meant for settings and are none.
    pub misspelt: Vec<Misspelt>,
}

/// A variable that is no setting, and the setting that it was most likely meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misspelt {
    /// The variable.
    pub name: String,
    /// The setting.
    pub meant: String,
}

impl fmt::Display for Misspelt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no setting and is not read: did you mean {}?", self.name, self.meant)
    }
}

impl Misspelt {
    /// All of them in one text.
    pub fn told(all: &[Misspelt]) -> String {
        all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// [`ApiConfig`], shared.
pub type SharedConfig = Arc<ApiConfig>;
