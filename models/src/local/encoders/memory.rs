//! What a loaded encoder takes of memory: its weights, its tokenizer, and what its computations hold. The files tell it before anything is
//! loaded. It is a bound from above.

use std::path::Path;

use serde_json::Value;

use super::weights::Weights;
use super::{MAX_RUNNING, NAME, batching, body, gguf, layout};
use crate::error::ModelError;
use crate::local::gguf::{Header, Shape};
use crate::local::pool::{Files, megabytes, product};

/// Bytes of a number in a computation.
const NUMBER_BYTES: u64 = 4;
/// Bytes of a number in a cache of keys and values, which llama.cpp keeps in half precision.
const CACHED_BYTES: u64 = 2;
/// Bytes of a place in llama.cpp's mask of the attention: once in single and once in half precision.
const MASK_BYTES: u64 = 6;
/// Tables of words in both directions, with what merges them, take several times the bytes of a tokenizer's file.
const TOKENIZER_FACTOR: u64 = 8;
/// Matrices of a token's width that a layer holds at once: its input, queries, keys, values, what they gather, and its output.
const WIDE: u64 = 6;
/// Matrices of the width between two layers: gates, what they let through, and a copy.
const INNER: u64 = 3;
/// Matrices of the attention's scores: those of stock candle are scaled, masked and normalized into new ones.
const SCORES: u64 = 3;

/// Bytes that a loaded encoder takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Demand {
    weights: u64,
    tokenizer: u64,
    compute: u64,
}

/// The sizes of an encoder on candle; 0 is what its files do not say.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    hidden: u64,
    inner: u64,
    heads: u64,
    /// Tokens of the longest text.
    longest: u64,
}

impl Sizes {
    fn of(config: &Value) -> Self {
        let number = |names: [&str; 2]| names.iter().find_map(|name| config[*name].as_u64());
        let hidden = number(["hidden_size", "n_embd"]).unwrap_or(0);
        Sizes {
            hidden,
            // nomic-bert's files may leave it out; it is then four times the width.
            inner: number(["intermediate_size", "n_inner"]).unwrap_or(hidden.saturating_mul(4)),
            heads: number(["num_attention_heads", "n_head"]).unwrap_or(0),
            longest: body::max_tokens(config).map_or(0, |tokens| tokens as u64),
        }
    }

    /// Bytes that the computations hold that may run at once.
    fn compute(self) -> u64 {
        // A text that is longer than a batch is one by itself.
        let tokens = self.longest.max(batching::MAX_TOKENS as u64);
        let wide = product(&[WIDE, self.hidden]).saturating_add(product(&[INNER, self.inner]));
        let activations = product(&[tokens, wide]);
        // Texts of one length may be computed together: as many as a batch takes.
        let scores = product(&[SCORES, self.heads, tokens, self.longest]);
        product(&[MAX_RUNNING as u64, NUMBER_BYTES, activations.saturating_add(scores)])
    }
}

impl Demand {
    /// Of an encoder on candle. What can't be read adds nothing: loading it says what is wrong.
    pub(super) fn of_candle(folder: &Path, weights: &Path) -> Self {
        let tokenizer = Files::of(&folder.join("tokenizer.json"), None).bytes;
        Demand {
            weights: Weights::bytes_of(weights).unwrap_or(0),
            tokenizer: product(&[tokenizer, TOKENIZER_FACTOR]),
            compute: layout::config(folder).map_or(0, |config| Sizes::of(&config).compute()),
        }
    }

    /// Of an encoder on llama.cpp.
    pub(super) fn of_gguf(weights: &Path) -> Self {
        Demand::of_header(Files::of(weights, None).bytes, &Header::read(weights))
    }

    fn of_header(weights: u64, header: &Header) -> Self {
        let tokens = u64::from(gguf::BATCH_TOKENS);
        let encodes = header.architecture.contains("bert");
        // Encoders predict no words and keep no keys and values; models that were made of chat models do both.
        let shape = if encodes { Shape { vocabulary: 0, ..header.shape } } else { header.shape };
        let cache = if encodes { 0 } else { product(&[shape.cached_numbers(), tokens, CACHED_BYTES]) };
        let activations = product(&[shape.widest(), tokens, NUMBER_BYTES]);
        let scores = product(&[shape.most_heads(), tokens, tokens, NUMBER_BYTES]);
        let mask = product(&[tokens, tokens, MASK_BYTES]);
        let compute = [cache, activations, scores, mask].into_iter().fold(0_u64, u64::saturating_add);
        Demand { weights, tokenizer: 0, compute }
    }

    /// All of it, or why there is no room for it and what would make some.
    pub(super) fn within(self, room: u64, model: &str) -> Result<u64, ModelError> {
        let total = self.weights.saturating_add(self.tokenizer).saturating_add(self.compute);
        if total <= room {
            return Ok(total);
        }
        let reason = format!(
            "model {model:?} takes {} MB ({} of weights, {} of its tokenizer, {} to compute), and RIVERRUN_MODEL_MEMORY_MB leaves room \
             for {}; raise it to {}, or choose a smaller model",
            megabytes(total),
            megabytes(self.weights),
            megabytes(self.tokenizer),
            megabytes(self.compute),
            room / 1_000_000,
            megabytes(total)
        );
        Err(ModelError::bad_request(NAME, reason))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn given_configurations_when_what_they_compute_with_is_counted_then_names_of_every_family_are_known() {
        let bert = json!({
            "model_type": "bert", "hidden_size": 384, "intermediate_size": 1_536, "num_attention_heads": 12,
            "num_hidden_layers": 6, "vocab_size": 30_522, "max_position_embeddings": 512, "layer_norm_eps": 1e-12,
        });
        let activations = 2_048 * (6 * 384 + 3 * 1_536);
        let scores = 3 * 12 * 2_048 * 512;
        assert_eq!(Sizes::of(&bert).compute(), 2 * 4 * (activations + scores));
        let nomic = json!({"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_positions": 8_192});
        let scores = 3 * 12 * 2_048 * 2_048;
        assert_eq!(Sizes::of(&nomic).compute(), 2 * 4 * (2_048 * (6 * 768 + 3 * 3_072) + scores));
        assert_eq!(Sizes::of(&json!({})).compute(), 0);
        let absurd = json!({"model_type": "nomic_bert", "n_embd": u64::MAX, "n_head": u64::MAX, "n_positions": 8_192});
        assert_eq!(Sizes::of(&absurd).compute(), u64::MAX);
    }

    #[test]
    fn given_headers_of_gguf_files_when_they_are_counted_then_only_models_made_of_chat_models_keep_keys_and_words() {
        let shape = Shape { layers: 6, embedding: 384, vocabulary: 30_522, ..Shape::default() };
        let of = |architecture: &str| {
            Demand::of_header(7, &Header { architecture: architecture.to_owned(), pooling: Some(1), shape })
        };
        let (bert, qwen) = (of("bert"), of("qwen3"));
        assert_eq!((bert.weights, bert.tokenizer), (7, 0));
        assert_eq!(bert.compute, 2_048 * 2 * 384 * 4 + 2_048 * 2_048 * 6);
        assert_eq!(qwen.compute - bert.compute, 30_522 * 2_048 * 4, "no heads, so no keys");
    }

    #[test]
    fn given_little_room_when_an_encoder_is_to_be_loaded_then_the_numbers_and_the_fix_are_told() {
        let demand = Demand { weights: 90_000_000, tokenizer: 4_000_000, compute: 5_500_000 };
        assert_eq!(demand.within(99_500_000, "m").unwrap(), 99_500_000);
        let told = demand.within(99_000_000, "m").unwrap_err().to_string();
        let numbers = "\"m\" takes 100 MB (90 of weights, 4 of its tokenizer, 6 to compute)";
        assert!(told.contains(numbers), "{told}");
        assert!(told.contains("RIVERRUN_MODEL_MEMORY_MB leaves room for 99; raise it to 100, or choose"), "{told}");
    }
}
