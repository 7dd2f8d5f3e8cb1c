//! What a training comes to on what is held out.

use super::{Session, Watch, batch, sum};
use crate::error::TrainingError;
use crate::examples::Examples;
use crate::network::AdapterWeights;
use crate::objective::preference;
use crate::rollout::{Roles, Rollout};
use crate::text::EncodedPair;

impl Session<'_> {
    /// Mean loss on what was held out; `None` when nothing was.
    pub(super) fn measure(&self, adapter: &AdapterWeights, watch: &dyn Watch) -> Result<Option<f64>, TrainingError> {
        let places: Vec<usize> = (0..self.sets.held_out.len()).collect();
        let (mut loss, mut count) = (0.0, 0);
        for pass in places.chunks(self.plan.batch_size) {
            if watch.stop() {
                return Err(TrainingError::Cancelled);
            }
            let (part, of) = self.held_out(pass, adapter, watch)?;
            loss += part;
            count += of;
        }
        Ok((count > 0).then(|| loss / count as f64))
    }

    /// The sum of the losses of some held-out examples, and of how many numbers it is one.
    fn held_out(
        &self,
        places: &[usize],
        adapter: &AdapterWeights,
        watch: &dyn Watch,
    ) -> Result<(f64, usize), TrainingError> {
        let beta = self.plan.dpo_beta;
        if let (Examples::Pairs(all), Some(head)) = (&self.sets.held_out, &self.reward) {
            let pairs: Vec<(u64, &EncodedPair)> = places.iter().map(|place| (*place as u64, &all[*place])).collect();
            let roles = Roles { network: &self.network, policy: adapter, head };
            let rollout = Rollout::of(&roles, &pairs, (self.plan, 0), &|| watch.stop())?;
            let logs = self.network.log_probabilities(&rollout.batch, adapter)?;
            return Ok((rollout.loss(&logs, beta), places.len()));
        }
        let batch = batch(&self.sets.held_out, places);
        let logs = self.network.log_probabilities(&batch, adapter)?;
        match &self.sets.held_out {
            Examples::Sequences(_) => Ok((-sum(&logs), logs.len())),
            Examples::Pairs(_) => {
                let reference = self.network.log_probabilities(&batch, &AdapterWeights::default())?;
                Ok((preference(&logs, &reference, &batch.sequence, beta, places.len()).loss, places.len()))
            }
        }
    }

    /// Loss of each held-out example.
    pub(super) fn each(&self, adapter: &AdapterWeights, watch: &dyn Watch) -> Result<Vec<f64>, TrainingError> {
        let mut losses = Vec::with_capacity(self.sets.held_out.len());
        for place in 0..self.sets.held_out.len() {
            if watch.stop() {
                return Err(TrainingError::Cancelled);
            }
            let (loss, of) = self.held_out(&[place], adapter, watch)?;
            losses.push(loss / of.max(1) as f64);
        }
        Ok(losses)
    }
}
