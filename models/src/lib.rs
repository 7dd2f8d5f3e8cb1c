//! The unified model adapter: chat, embeddings and re-ranking behind one trait, by the in-process runtime, servers and hosted services.
//!
//! [`Models`] is what the rest of riverrun uses. `local` needs nothing but model files: GGUF chat models run on llama.cpp, encoders and
//! cross-encoders on candle. What is behind HTTP is a row of a table and one of six wire protocols (`remote`).
//!
//! Invariants:
//! - MODEL-1: nothing is cut silently. A prompt that does not fit is refused; truncated embedding inputs are counted.
//! - MODEL-2: text from outside never becomes a control token of a chat template.
//! - MODEL-3: joined, the deltas of a chat are the text of its reply.
//! - MODEL-4: a key leaves only in the header of its own server.

mod card;
mod catalog;
mod error;
mod estimate;
mod http;
mod hub;
mod local;
mod metering;
mod models;
mod prices;
mod progress;
mod provider;
mod quantization;
mod remote;
mod reranker;
mod secret;
mod settings;
mod spans;
mod split;
mod token_vectors;
mod words;

pub use card::{Known, ModelCard};
pub use catalog::{CatalogEntry, CatalogFile, catalog, find as find_in_catalog, listed_name};
pub use error::ModelError;
pub use local::{Local, NAME as LOCAL, Presence};
pub use metering::{Account, Meter, MeteredCall, Purpose};
pub use models::{Models, ProviderInfo, ProviderKind};
pub use progress::{NoProgress, PullProgress, TerminalProgress, default_progress};
pub use provider::*;
pub use reranker::Reranker;
pub use secret::Secret;
pub use settings::{
    Access, Aws, AwsCredentials, DEFAULT_CHAT_MODEL, DEFAULT_EMBED_MODEL, DEFAULT_HUB_ADDRESS, DEFAULT_OLLAMA_ADDRESS,
    DEFAULT_OPENAI_ADDRESS, DEFAULT_RERANK_MODEL, ModelSettings, SettingError,
};
pub use spans::{EmbedTokenizer, SpansRequest};
pub use token_vectors::{TextTokens, TokenVectors, TokenVectorsRequest};

use words::counted;

/// Checks that a server sent one vector per input, all of one length and finite.
pub(crate) fn checked_dimensions(provider: &str, vectors: &[Vec<f32>], inputs: usize) -> Result<usize, ModelError> {
    let dimensions = vectors.first().map_or(0, Vec::len);
    if vectors.len() != inputs {
        let reason = format!("{} for {}", counted(vectors.len(), "vector"), counted(inputs, "input"));
        return Err(ModelError::bad_response(provider, None, reason));
    }
    if dimensions == 0 || vectors.iter().any(|vector| vector.len() != dimensions) {
        return Err(ModelError::bad_response(provider, None, "vectors are empty or of different lengths"));
    }
    if vectors.iter().flatten().any(|number| !number.is_finite()) {
        return Err(ModelError::bad_response(provider, None, "a vector holds a number that is not finite"));
    }
    Ok(dimensions)
}

#[cfg(test)]
#[path = "../../fuzz/harness.rs"]
mod fuzz;
