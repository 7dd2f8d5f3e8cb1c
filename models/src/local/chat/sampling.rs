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
/// The other two count in the whole answer, as OpenAI says; in a longer one they count in its last part.
const ANSWER_TOKENS: i32 = 1 << 15;

/// The choice of a request, checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampling {
    draw: Draw,
    penalties: Penalties,
}

/// What makes tokens less likely that came before.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Penalties {
    /// 1 is none.
    repeat: f32,
    /// 0 is none.
    frequency: f32,
    /// 0 is none.
    presence: f32,
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
        let penalties = Penalties::of(request);
        let Penalties { repeat, frequency, presence } = penalties;
        for (holds, fault) in [
            ((0.0..=5.0).contains(&temperature), format!("temperature {temperature} is not between 0 and 5")),
            (top_p > 0.0 && top_p <= 1.0, format!("top_p {top_p} is not above 0 and at most 1")),
            (top_k > 0 && top_k <= 1 << 20, format!("top_k {top_k} is not between 1 and {}", 1 << 20)),
            ((0.0..=1.0).contains(&min_p), format!("min_p {min_p} is not between 0 and 1")),
            ((0.5..=2.0).contains(&repeat), format!("repeat_penalty {repeat} is not between 0.5 and 2")),
            ((-2.0..=2.0).contains(&frequency), format!("frequency_penalty {frequency} is not between -2 and 2")),
            ((-2.0..=2.0).contains(&presence), format!("presence_penalty {presence} is not between -2 and 2")),
        ] {
            if !holds {
                return Err(ModelError::bad_request(super::NAME, fault));
            }
        }
        if temperature == 0.0 {
            return Ok(Sampling { draw: Draw::Greedy, penalties });
        }
        // The runtime's seeds have 32 bits; both halves count.
        let seed = request.seed.map_or_else(rand::random, |seed| (seed ^ (seed >> 32)) as u32);
        let top_k = i32::try_from(top_k).unwrap_or(i32::MAX);
        Ok(Sampling { draw: Draw::Random { temperature, top_k, top_p, min_p, seed }, penalties })
    }

    /// The chain of samplers; a constraint comes first, so that only what it allows is compared.
    pub(super) fn chain(self, constraint: Option<LlamaSampler>, vocabulary: i32) -> LlamaSampler {
        let mut samplers: Vec<LlamaSampler> = constraint.into_iter().collect();
        samplers.extend(self.penalties.samplers(vocabulary));
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

impl Penalties {
    fn of(request: &ChatRequest) -> Self {
        Penalties {
            repeat: request.repeat_penalty.unwrap_or(1.0),
            frequency: request.frequency_penalty.unwrap_or(0.0),
            presence: request.presence_penalty.unwrap_or(0.0),
        }
    }

    /// A sampler for each window: they look back differently far.
    fn samplers(self, vocabulary: i32) -> impl Iterator<Item = LlamaSampler> {
        let Penalties { repeat, frequency, presence } = self;
        let lately = move || LlamaSampler::penalties(vocabulary, PENALTY_TOKENS, repeat, 0.0, 0.0);
        let in_all = move || LlamaSampler::penalties(vocabulary, ANSWER_TOKENS, 1.0, frequency, presence);
        let lately = (repeat != 1.0).then(lately);
        let in_all = (frequency != 0.0 || presence != 0.0).then(in_all);
        lately.into_iter().chain(in_all)
    }
}

#[cfg(test)]
mod tests {
    use llama_cpp_2::token::LlamaToken;
    use llama_cpp_2::token::data::LlamaTokenData;
    use llama_cpp_2::token::data_array::LlamaTokenDataArray;

    use super::*;

    fn of(change: impl FnOnce(&mut ChatRequest)) -> Result<Sampling, ModelError> {
        let mut request = ChatRequest { seed: Some(1 << 32), ..ChatRequest::default() };
        change(&mut request);
        Sampling::of(&request)
    }

    #[test]
    fn given_settings_when_they_are_read_then_zero_is_greedy_and_defaults_fill_the_rest() {
        let greedy = of(|request| request.temperature = Some(0.0)).unwrap();
        let penalties = Penalties { repeat: 1.0, frequency: 0.0, presence: 0.0 };
        assert_eq!(greedy, Sampling { draw: Draw::Greedy, penalties });
        let usual =
            Draw::Random { temperature: DEFAULT_TEMPERATURE, top_k: 40, top_p: DEFAULT_TOP_P, min_p: 0.05, seed: 1 };
        assert_eq!(of(|_| ()).unwrap().draw, usual);
    }

    #[test]
    fn given_nonsense_when_it_is_read_then_it_is_refused() {
        let changes: [fn(&mut ChatRequest); 12] = [
            |request| request.temperature = Some(-1.0),
            |request| request.temperature = Some(f32::NAN),
            |request| request.temperature = Some(9.0),
            |request| request.top_p = Some(0.0),
            |request| request.top_p = Some(1.5),
            |request| request.top_k = Some(0),
            |request| request.min_p = Some(f32::NAN),
            |request| request.repeat_penalty = Some(0.0),
            |request| request.repeat_penalty = Some(f32::INFINITY),
            |request| request.frequency_penalty = Some(2.5),
            |request| request.frequency_penalty = Some(f32::NAN),
            |request| request.presence_penalty = Some(-2.5),
        ];
        for change in changes {
            assert_eq!(of(change).unwrap_err().code(), "model_bad_request");
        }
    }

    #[test]
    fn given_penalties_when_the_next_token_is_drawn_then_those_of_the_answer_are_less_likely() {
        let next = |change: fn(&mut ChatRequest)| {
            let sampling = of(|request| {
                request.temperature = Some(0.0);
                change(request);
            });
            let mut sampler = sampling.unwrap().chain(None, 3);
            // The answer has the first token twice, and the second one once.
            for token in [0, 0, 1] {
                sampler.accept(LlamaToken(token));
            }
            let logits = [(0, 5.0), (1, 4.5), (2, 3.2)];
            let candidates = logits.map(|(id, logit)| LlamaTokenData::new(LlamaToken(id), logit, 0.0));
            let mut tokens = LlamaTokenDataArray::new(candidates.to_vec(), false);
            tokens.apply_sampler(&mut sampler);
            tokens.selected_token().unwrap().0
        };
        assert_eq!(next(|_| ()), 0, "nothing is taken off");
        assert_eq!(next(|request| request.frequency_penalty = Some(1.0)), 1, "3, 3.5, 3.2");
        assert_eq!(next(|request| request.presence_penalty = Some(1.0)), 0, "4, 3.5, 3.2");
        assert_eq!(next(|request| request.presence_penalty = Some(2.0)), 2, "3, 2.5, 3.2");
        assert_eq!(next(|request| request.repeat_penalty = Some(2.0)), 2, "2.5, 2.25, 3.2");
        assert_eq!(next(|request| request.frequency_penalty = Some(-1.0)), 0, "7, 5.5, 3.2");
    }
}
