//! What a loaded chat model takes of memory: its weights, the keys and values of its contexts, and the buffers of a computation. The file's header
//! tells it before anything is loaded. The buffers are a bound from above: what llama.cpp puts into them depends on the architecture.

use super::NAME;
use crate::error::ModelError;
use crate::local::gguf::Shape;
use crate::local::pool::{megabytes, product};

/// Bytes of a number in a computation.
const NUMBER_BYTES: u64 = 4;
/// Bytes of a number in the cache of keys and values, which is kept in half precision.
const CACHED_BYTES: u64 = 2;
/// Bytes of a place in the mask of the attention: once in single and once in half precision.
const MASK_BYTES: u64 = 6;
/// The runtime rounds the context of a request up to a multiple of this.
const CONTEXT_STEP: u64 = 256;

/// What a model is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    /// Tokens that each request may have; a model that was trained for fewer has fewer.
    pub(super) context_tokens: u64,
    /// Requests at once.
    pub(super) requests: u64,
    /// Tokens of one computation.
    pub(super) batch_tokens: u64,
}

/// Bytes that a loaded model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    weights: u64,
    cache: u64,
    compute: u64,
}

impl Demand {
    /// Of a file of `weights` bytes. A header that says nothing adds nothing: the runtime says what is wrong with the file.
    pub(super) fn of(weights: u64, shape: &Shape, work: Work) -> Self {
        let context = context(shape, work).next_multiple_of(CONTEXT_STEP);
        let cached = product(&[shape.cached_numbers(), CACHED_BYTES]);
        let outputs = product(&[work.requests, shape.vocabulary, NUMBER_BYTES]);
        let mask = product(&[context, work.batch_tokens, MASK_BYTES]);
        let activations = product(&[shape.widest(), work.batch_tokens, NUMBER_BYTES]);
        let compute = activations.saturating_add(mask).saturating_add(outputs);
        Demand {
            weights,
            cache: product(&[work.requests, context, cached]),
            compute: if cached == 0 { 0 } else { compute },
        }
    }

    /// All of it.
    pub(super) fn total(self) -> u64 {
        self.weights.saturating_add(self.cache).saturating_add(self.compute)
    }

    /// The demand, or why there is no room for it and what would make some.
    pub(super) fn within(self, room: u64, model: &str, shape: &Shape, work: Work) -> Result<Self, ModelError> {
        if self.total() <= room {
            return Ok(self);
        }
        let reason = format!(
            "model {model:?} takes {} MB ({} of weights, {} for {} requests of {} tokens at once, {} to compute), and \
             RIVERRUN_MODEL_MEMORY_MB leaves room for {}; {}",
            megabytes(self.total()),
            megabytes(self.weights),
            megabytes(self.cache),
            work.requests,
            context(shape, work),
            megabytes(self.compute),
            room / 1_000_000,
            self.fix(room, shape, work)
        );
        Err(ModelError::bad_request(NAME, reason))
    }

    fn fix(self, room: u64, shape: &Shape, work: Work) -> String {
        let fits = |work: Work| Demand::of(self.weights, shape, work).total() <= room;
        let shorter = |work: Work| {
            let mut lengths = (1..=context(shape, work).div_ceil(CONTEXT_STEP)).rev().map(|steps| steps * CONTEXT_STEP);
            lengths.find(|tokens| fits(Work { context_tokens: *tokens, ..work }))
        };
        let one = Work { requests: 1, ..work };
        match (shorter(work), shorter(one)) {
            (Some(tokens), _) => format!("lower RIVERRUN_MODEL_CONTEXT_TOKENS to {tokens}, or choose a smaller model"),
            (None, Some(tokens)) => format!(
                "lower RIVERRUN_MODEL_PARALLEL to 1 and RIVERRUN_MODEL_CONTEXT_TOKENS to {tokens}, or choose a smaller model"
            ),
            (None, None) => "choose a smaller model".to_owned(),
        }
    }
}

/// Tokens that a request may have.
fn context(shape: &Shape, work: Work) -> u64 {
    let trained = Some(shape.context).filter(|tokens| *tokens > 0).unwrap_or(u64::MAX);
    work.context_tokens.min(trained).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::gguf::PerLayer;

    const USUAL: Work = Work { context_tokens: 8_192, requests: 2, batch_tokens: 128 };

    /// SmolLM2 135M, Qwen2.5 0.5B and Qwen3 0.6B, as their files say.
    fn smol() -> Shape {
        shape([8_192, 30, 576, 49_152], 1_536, (9, 3))
    }

    fn qwen25() -> Shape {
        shape([32_768, 24, 896, 151_936], 4_864, (14, 2))
    }

    fn qwen3() -> Shape {
        Shape { key: 128, value: 128, ..shape([40_960, 28, 1_024, 151_936], 3_072, (16, 8)) }
    }

    fn shape(sizes: [u64; 4], feed_forward: u64, heads: (u64, u64)) -> Shape {
        let [context, layers, embedding, vocabulary] = sizes;
        Shape {
            context,
            layers,
            embedding,
            vocabulary,
            feed_forward: PerLayer::Same(feed_forward),
            heads: PerLayer::Same(heads.0),
            cached_heads: PerLayer::Same(heads.1),
            ..Shape::default()
        }
    }

    #[test]
    fn given_headers_of_models_when_their_cache_is_counted_then_it_is_what_the_runtime_keeps() {
        let cache = |shape: &Shape, work: Work| Demand::of(0, shape, work).cache;
        assert_eq!(cache(&smol(), USUAL), 2 * 8_192 * 30 * 3 * (64 + 64) * 2);
        assert_eq!(cache(&qwen25(), USUAL), 2 * 8_192 * 24 * 2 * (64 + 64) * 2);
        assert_eq!(cache(&qwen3(), USUAL), 2 * 8_192 * 28 * 8 * (128 + 128) * 2);
        // No more than the model was trained for, however much is asked for.
        let whole = Work { context_tokens: 1 << 20, requests: 1, ..USUAL };
        assert_eq!(cache(&qwen3(), whole), 4_480 << 20);
        let odd = Work { context_tokens: 1_000, requests: 1, ..USUAL };
        assert_eq!(cache(&smol(), odd), cache(&smol(), Work { context_tokens: 1_024, ..odd }));
        let each = PerLayer::Each { sum: 30, most: 3 };
        assert_eq!(cache(&Shape { cached_heads: each, ..smol() }, USUAL), 2 * 8_192 * 30 * (64 + 64) * 2);
        let unsaid = Shape { cached_heads: PerLayer::default(), ..smol() };
        assert_eq!(cache(&unsaid, USUAL), 3 * cache(&smol(), USUAL), "as many as heads");
    }

    #[test]
    fn given_a_header_when_what_a_computation_takes_is_counted_then_it_is_no_less_than_is_reported_of_the_runtime() {
        // Reported of llama.cpp for Llama 3 8B with batches of 512: 258.5 MiB. Not measured in this project.
        let llama = shape([8_192, 32, 4_096, 128_256], 14_336, (32, 8));
        let compute = Demand::of(0, &llama, Work { requests: 1, batch_tokens: 512, ..USUAL }).compute;
        assert!((517 << 19..320 << 20).contains(&compute), "{compute}");
    }

    #[test]
    fn given_headers_that_say_nothing_or_too_much_when_they_are_counted_then_weights_are_left_or_it_is_too_much() {
        let demand = Demand::of(7, &Shape::default(), USUAL);
        assert_eq!((demand.total(), demand.cache, demand.compute), (7, 0, 0));
        let most = u64::MAX;
        let absurd = shape([most, most, most, most], most, (1, most));
        assert_eq!(Demand::of(7, &absurd, USUAL).total(), most);
    }

    #[test]
    fn given_little_room_when_a_model_is_to_be_loaded_then_the_numbers_and_a_fix_that_holds_are_told() {
        let weights = 400_000_000;
        let demand = Demand::of(weights, &qwen3(), USUAL);
        let refusal = |room: u64| demand.within(room, "m", &qwen3(), USUAL).unwrap_err().to_string();
        assert_eq!(demand.within(demand.total(), "m", &qwen3(), USUAL).unwrap(), demand);
        let told = refusal(1_000_000_000);
        assert!(told.contains("400 of weights, 1880 for 2 requests of 8192 tokens at once"), "{told}");
        assert!(told.contains("leaves room for 1000; lower RIVERRUN_MODEL_CONTEXT_TOKENS to 2048,"), "{told}");
        let fixed = Work { context_tokens: 2_048, ..USUAL };
        assert!(Demand::of(weights, &qwen3(), fixed).total() <= 1_000_000_000);
        let more = Work { context_tokens: 2_048 + CONTEXT_STEP, ..USUAL };
        assert!(Demand::of(weights, &qwen3(), more).total() > 1_000_000_000);
        let told = refusal(weights + 115_000_000);
        assert!(told.contains("RIVERRUN_MODEL_PARALLEL to 1 and RIVERRUN_MODEL_CONTEXT_TOKENS to 256,"), "{told}");
        assert!(refusal(weights).ends_with("; choose a smaller model"), "{}", refusal(weights));
    }
}
