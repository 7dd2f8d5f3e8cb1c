use serde::{Deserialize, Serialize};

/// Content kept outside the log (claim check), found by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobRef {
    /// Lower-case hex of the content's SHA-256.
    pub sha256: String,
    /// Length of the content in bytes.
    pub size_bytes: i64,
    /// RFC 6838 media type, for example `text/plain`.
    pub media_type: String,
}

/// Tokens that model calls used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub prompt_tokens: i64,
    /// Tokens written.
    pub completion_tokens: i64,
    /// US dollars; `None` when the price is not known. Of a sum, those of the calls whose price is.
    pub cost_usd: Option<f64>,
    /// Tokens of calls that somebody charges for and whose price is not known: `cost_usd` is without them.
    #[serde(default)]
    pub unpriced_tokens: i64,
    /// Of the tokens read, those that the provider had in a cache.
    #[serde(default)]
    pub cached_prompt_tokens: i64,
    /// Of the tokens read, those that the provider put into a cache, where it charges for that.
    #[serde(default)]
    pub cache_write_tokens: i64,
}

impl Usage {
    /// Tokens read and written together.
    pub fn total_tokens(&self) -> i64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cost_usd = match (self.cost_usd, other.cost_usd) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.unpriced_tokens = self.unpriced_tokens.saturating_add(other.unpriced_tokens);
        self.cached_prompt_tokens = self.cached_prompt_tokens.saturating_add(other.cached_prompt_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
    }
}

/// Why something ended without success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable, lower snake case, for example `model_runtime_down`.
    pub code: String,
    /// What failed and the value it failed on.
    pub message: String,
    /// The fix; a command where there is one.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: None }
    }

    /// The same failure with the fix added.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Milliseconds since the epoch, UTC. Used for labels only: order is always by offset or sequence.
pub fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}
