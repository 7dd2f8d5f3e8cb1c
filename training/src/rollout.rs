//! Answers of the policy to the prompts of preferences, with what the reward model gives for them.

use crate::error::TrainingError;
use crate::network::{AdapterWeights, Batch, Network, Start};
use crate::plan::Plan;
use crate::reinforce::{Reinforced, SAMPLES, Terms, leave_one_out};
use crate::reward::RewardHead;
use crate::rng::Rng;
use crate::text::EncodedPair;

const PURPOSE: u64 = 7;
/// Tokens of a sampled answer, at most.
const MAX_ANSWER: usize = 128;

/// Sampled answers, [`SAMPLES`] to each prompt.
pub(crate) struct Rollout {
    pub(crate) batch: Batch,
    /// Log probabilities by the base.
    reference: Vec<f32>,
    /// One for each answer.
    rewards: Vec<f64>,
}

/// Who answers, and who judges.
pub(crate) struct Roles<'r> {
    pub(crate) network: &'r Network,
    pub(crate) policy: &'r AdapterWeights,
    pub(crate) head: &'r RewardHead,
}

impl Rollout {
    /// Samples answers. What is drawn follows from the plan's seed, the step (0 for what is held out) and the key of the pair.
    pub(crate) fn of(
        roles: &Roles<'_>,
        pairs: &[(u64, &EncodedPair)],
        (plan, step): (&Plan, u64),
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, TrainingError> {
        let starts = pairs.iter().flat_map(|(key, pair)| {
            (0..SAMPLES as u64).map(move |sample| start(pair, plan, Rng::of(plan.seed, &[PURPOSE, step, *key, sample])))
        });
        let answers = roles.network.sample(starts.collect(), roles.policy, stop)?;
        let batch = Batch::of(&answers);
        let base = AdapterWeights::default();
        let reference = roles.network.log_probabilities(&batch, &base)?;
        let ends = roles.network.ends(&batch, &base)?;
        Ok(Self { rewards: ends.iter().map(|end| roles.head.reward(end)).collect(), batch, reference })
    }

    /// What the answers come to with the policy's log probabilities; `prompts` are those of the whole step.
    pub(crate) fn reinforced(&self, policy: &[f32], beta: f64, prompts: usize) -> Reinforced {
        let terms = Terms { beta, samples: SAMPLES, answers: SAMPLES * prompts };
        leave_one_out(policy, &self.reference, &self.batch.sequence, &self.rewards, terms)
    }

    /// The mean loss of each prompt's answers, summed up.
    pub(crate) fn loss(&self, policy: &[f32], beta: f64) -> f64 {
        self.reinforced(policy, beta, 1).loss / SAMPLES as f64
    }
}

/// An answer begins behind the prompt of a pair, and is over where its better answer was.
fn start(pair: &EncodedPair, plan: &Plan, rng: Rng) -> Start {
    let taught = &pair.chosen.taught;
    let length = taught.iter().position(|taught| *taught).unwrap_or(taught.len());
    let prompt = pair.chosen.ids[..length].to_vec();
    let end = pair.chosen.ids.last().copied().unwrap_or_default();
    let limit = plan.seq_len.saturating_sub(length).clamp(1, MAX_ANSWER);
    Start { prompt, end, limit, rng }
}
