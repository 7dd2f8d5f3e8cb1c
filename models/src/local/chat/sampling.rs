//! How the next token is chosen.

use llama_cpp_2::sampling::LlamaSampler;

use crate::error::ModelError;
use crate::provider::ChatRequest;

/// Low, because small models wander at high ones.
const DEFAULT_TEMPERATURE: f32 = 0.2;
const DEFAULT_TOP_P: f32 = 0.95;
const DEFAULT_TOP_K: u32 = 40;
const DEFAULT_MIN_P: f32 = 0.05;
/// The repeat penalty looks back so many tokens.
const PENALTY_TOKENS: i32 = 64;

/// The choice of a request, checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampling {
    draw: Draw,
    /// 1 is none.
    repeat_penalty: f32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Draw {
    /// Always the likeliest.
    Greedy,
    /// One of the likeliest ones.
    Random { temperature: f32, top_k: i32, top_p: f32, min_p: f32, seed: u32 },
}

impl Sampling {
    pub(super) fn of(request: &ChatRequest) -> Result<Self, ModelError> {
        let temperature = request.temperature.unwrap_or(DEFAULT_TEMPERATURE);
        let top_p = request.top_p.unwrap_or(DEFAULT_TOP_P);
        let top_k = request.top_k.unwrap_or(DEFAULT_TOP_K);
        let min_p = request.min_p.unwrap_or(DEFAULT_MIN_P);
        let repeat_penalty = request.repeat_penalty.unwrap_or(1.0);
        for (holds, fault) in [
            ((0.0..=5.0).contains(&temperature), format!("temperature {temperature} is not between 0 and 5")),
            (top_p > 0.0 && top_p <= 1.0, format!("top_p {top_p} is not above 0 and at most 1")),
            (top_k > 0 && top_k <= 1 << 20, format!("top_k {top_k} is not between 1 and {}", 1 << 20)),
            ((0.0..=1.0).contains(&min_p), format!("min_p {min_p} is not between 0 and 1")),
            (
                (0.5..=2.0).contains(&repeat_penalty),
                format!("repeat_penalty {repeat_penalty} is not between 0.5 and 2"),
            ),
        ] {
            if !holds {
                return Err(ModelError::bad_request(super::NAME, fault));
            }
        }
        if temperature == 0.0 {
            return Ok(Sampling { draw: Draw::Greedy, repeat_penalty });
        }
        // The runtime's seeds have 32 bits; both halves count.
        let seed = request.seed.map_or_else(rand::random, |seed| (seed ^ (seed >> 32)) as u32);
        let top_k = i32::try_from(top_k).unwrap_or(i32::MAX);
        Ok(Sampling { draw: Draw::Random { temperature, top_k, top_p, min_p, seed }, repeat_penalty })
    }

    /// The chain of samplers; a constraint comes first, so that only what it allows is compared.
    pub(super) fn chain(self, constraint: Option<LlamaSampler>, vocabulary: i32) -> LlamaSampler {
        let mut samplers: Vec<LlamaSampler> = constraint.into_iter().collect();
        if self.repeat_penalty != 1.0 {
            samplers.push(LlamaSampler::penalties(vocabulary, PENALTY_TOKENS, self.repeat_penalty, 0.0, 0.0));
        }
        match self.draw {
            Draw::Greedy => samplers.push(LlamaSampler::greedy()),
            Draw::Random { temperature, top_k, top_p, min_p, seed } => samplers.extend([
                LlamaSampler::top_k(top_k),
                LlamaSampler::top_p(top_p, 1),
                LlamaSampler::min_p(min_p, 1),
                LlamaSampler::temp(temperature),
                LlamaSampler::dist(seed),
            ]),
        }
        LlamaSampler::chain_simple(samplers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(change: impl FnOnce(&mut ChatRequest)) -> Result<Sampling, ModelError> {
        let mut request = ChatRequest { seed: Some(1 << 32), ..ChatRequest::default() };
        change(&mut request);
        Sampling::of(&request)
    }

    #[test]
    fn given_settings_when_they_are_read_then_zero_is_greedy_and_defaults_fill_the_rest() {
        let greedy = of(|request| request.temperature = Some(0.0)).unwrap();
        assert_eq!(greedy, Sampling { draw: Draw::Greedy, repeat_penalty: 1.0 });
        let usual =
            Draw::Random { temperature: DEFAULT_TEMPERATURE, top_k: 40, top_p: DEFAULT_TOP_P, min_p: 0.05, seed: 1 };
        assert_eq!(of(|_| ()).unwrap().draw, usual);
    }

    #[test]
    fn given_nonsense_when_it_is_read_then_it_is_refused() {
        let changes: [fn(&mut ChatRequest); 9] = [
            |request| request.temperature = Some(-1.0),
            |request| request.temperature = Some(f32::NAN),
            |request| request.temperature = Some(9.0),
            |request| request.top_p = Some(0.0),
            |request| request.top_p = Some(1.5),
            |request| request.top_k = Some(0),
            |request| request.min_p = Some(f32::NAN),
            |request| request.repeat_penalty = Some(0.0),
            |request| request.repeat_penalty = Some(f32::INFINITY),
        ];
        for change in changes {
            assert_eq!(of(change).unwrap_err().code(), "model_bad_request");
        }
    }
}
