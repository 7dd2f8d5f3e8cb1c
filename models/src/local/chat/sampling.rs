//! How the next token is chosen.

use llama_cpp_2::sampling::LlamaSampler;

use crate::error::ModelError;
use crate::provider::ChatRequest;

/// Low, because small models wander at high ones.
const DEFAULT_TEMPERATURE: f32 = 0.2;
const DEFAULT_TOP_P: f32 = 0.95;
const TOP_K: i32 = 40;
const MIN_P: f32 = 0.05;

/// The choice of a request, checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sampling {
    /// Always the likeliest.
    Greedy,
    /// Drawn from the likeliest ones.
    Drawn { temperature: f32, top_p: f32, seed: u32 },
}

impl Sampling {
    pub(super) fn of(request: &ChatRequest) -> Result<Self, ModelError> {
        let temperature = request.temperature.unwrap_or(DEFAULT_TEMPERATURE);
        let top_p = request.top_p.unwrap_or(DEFAULT_TOP_P);
        if !(0.0..=5.0).contains(&temperature) {
            return Err(ModelError::bad_request(
                super::NAME,
                format!("temperature {temperature} is not between 0 and 5"),
            ));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(ModelError::bad_request(super::NAME, format!("top_p {top_p} is not above 0 and at most 1")));
        }
        if temperature == 0.0 {
            return Ok(Sampling::Greedy);
        }
        // The runtime's seeds have 32 bits; both halves count.
        let seed = request.seed.map_or_else(rand::random, |seed| (seed ^ (seed >> 32)) as u32);
        Ok(Sampling::Drawn { temperature, top_p, seed })
    }

    /// The chain of samplers; a constraint comes first, so that only what it allows is compared.
    pub(super) fn chain(self, constraint: Option<LlamaSampler>) -> LlamaSampler {
        let mut samplers: Vec<LlamaSampler> = constraint.into_iter().collect();
        match self {
            Sampling::Greedy => samplers.push(LlamaSampler::greedy()),
            Sampling::Drawn { temperature, top_p, seed } => samplers.extend([
                LlamaSampler::top_k(TOP_K),
                LlamaSampler::top_p(top_p, 1),
                LlamaSampler::min_p(MIN_P, 1),
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

    #[test]
    fn given_settings_when_they_are_read_then_zero_is_greedy_and_nonsense_is_refused() {
        let of = |temperature, top_p| {
            Sampling::of(&ChatRequest { temperature, top_p, seed: Some(1 << 32), ..ChatRequest::default() })
        };
        assert_eq!(of(Some(0.0), None), Ok(Sampling::Greedy));
        assert_eq!(
            of(None, None),
            Ok(Sampling::Drawn { temperature: DEFAULT_TEMPERATURE, top_p: DEFAULT_TOP_P, seed: 1 })
        );
        for (temperature, top_p) in
            [(Some(-1.0), None), (Some(f32::NAN), None), (Some(9.0), None), (None, Some(0.0)), (None, Some(1.5))]
        {
            assert_eq!(of(temperature, top_p).unwrap_err().code(), "model_bad_request");
        }
    }
}
