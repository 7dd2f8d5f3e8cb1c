//! Passes through the whole network. Backward goes layer by layer: what a layer needs is kept from the way forward, or
//! computed again from the layer's input, which takes a third more time and a fraction of the memory (Chen and others,
//! "Training deep nets with sublinear memory cost", 2016). Both give the same numbers.

use std::sync::Arc;

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

use super::batch::Batch;
use super::head::Scores;
use super::layer::{Pass, forward};
use super::linear::AdapterWeights;
use super::operations::Operations;
use super::rope::Frequencies;
use crate::base::BaseModel;
use crate::error::TrainingError;
use crate::lora::Adapter;

/// What is done with what layers compute on the way forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// It is kept.
    Keep,
    /// It is computed again on the way back.
    Recompute,
}

/// How much the score of each target counts, when the scores are known and when they are not yet.
type Coefficients<'c> = dyn Fn(Option<&[f32]>) -> Option<Vec<f32>> + 'c;

/// Gradients of an adapter's matrices, in their order.
pub(crate) struct Gradients(pub(crate) Vec<Tensor>);

/// A base model that can be run forward and backward.
pub(crate) struct Network {
    pub(crate) base: Arc<BaseModel>,
    frequencies: Frequencies,
    operations: Operations,
}

/// A layer's input, and its output where it was kept.
struct Step {
    input: Tensor,
    output: Option<Tensor>,
}

impl Network {
    pub(crate) fn new(base: Arc<BaseModel>) -> Self {
        let config = &base.config;
        let frequencies = Frequencies::new(config.head_dim, config.rope_theta, base.rope_factors.as_deref());
        let operations = Operations::of(base.device());
        Self { base, frequencies, operations }
    }

    /// One that computes on the CPU as on another device.
    #[cfg(test)]
    pub(crate) fn composed(base: Arc<BaseModel>) -> Self {
        Self { operations: Operations::Composed, ..Self::new(base) }
    }

    fn pass<'p>(&'p self, batch: &'p Batch) -> candle_core::Result<Pass<'p>> {
        let operations = self.operations;
        let rotation = operations.rotation(&self.frequencies, batch, self.base.device())?;
        Ok(Pass { config: &self.base.config, spans: &batch.spans, rotation, operations })
    }

    fn embed(&self, batch: &Batch) -> candle_core::Result<Tensor> {
        let ids = Tensor::from_slice(&batch.tokens, batch.tokens.len(), self.base.device())?;
        self.base.embeddings.index_select(&ids, 0)
    }

    /// The normed hidden states of the rows that are scored.
    fn scored(&self, last: &Tensor, batch: &Batch) -> candle_core::Result<Tensor> {
        self.normed(last, &batch.rows)
    }

    /// The normed hidden states of some rows.
    pub(super) fn normed(&self, last: &Tensor, rows: &[u32]) -> candle_core::Result<Tensor> {
        let rows = Tensor::from_slice(rows, rows.len(), self.base.device())?;
        self.operations.rms_norm(last, &self.base.norm, self.base.config.norm_eps)?.index_select(&rows, 0)
    }

    /// The last hidden states, before their norm, without a way back.
    pub(super) fn hidden(&self, batch: &Batch, adapter: &AdapterWeights) -> candle_core::Result<Tensor> {
        let pass = self.pass(batch)?;
        let mut layers = self.base.layers.iter().enumerate();
        layers.try_fold(self.embed(batch)?, |x, layer| Ok(forward(&x, layer, &pass, adapter)?.detach()))
    }

    /// Log probabilities of the tokens that are scored.
    pub(crate) fn log_probabilities(&self, batch: &Batch, adapter: &AdapterWeights) -> Result<Vec<f32>, TrainingError> {
        if batch.rows.is_empty() {
            return Ok(Vec::new());
        }
        let hidden = self.scored(&self.hidden(batch, adapter)?, batch)?;
        Ok(self.operations.score(self.base.head(), &hidden, &batch.targets, None)?.log_probabilities)
    }

    /// Scores of all tokens of the vocabulary behind each row that is scored.
    #[cfg(test)]
    pub(crate) fn logits(&self, batch: &Batch, adapter: &AdapterWeights) -> Result<Tensor, TrainingError> {
        let hidden = self.scored(&self.hidden(batch, adapter)?, batch)?;
        Ok(hidden.matmul(&self.base.head().t()?)?)
    }

    /// Log probabilities, and the gradients of `Σ coefficient · log probability`. `coefficients` gives them for the log
    /// probabilities, or for nothing where they do not depend on them.
    pub(crate) fn gradients(
        &self,
        batch: &Batch,
        adapter: &Adapter,
        dropout: Option<(f32, u64)>,
        memory: Memory,
        coefficients: &Coefficients<'_>,
    ) -> Result<(Vec<f32>, Gradients), TrainingError> {
        let pass = self.pass(batch)?;
        let tracked = adapter.weights(true, dropout);
        let plain = adapter.weights(false, dropout);
        let Steps { steps, last } = self.forward(batch, &pass, (&tracked, &plain), memory)?;
        let last = Var::from_tensor(&last)?;
        let hidden = self.scored(last.as_tensor(), batch)?;
        let scores = self.scores(&hidden.detach(), batch, coefficients)?;
        let Some(upper) = scores.gradient else {
            return Err(TrainingError::Compute("a batch teaches nothing".to_owned()));
        };
        let mut found: Vec<Option<Tensor>> = vec![None; adapter.variables().len()];
        // What comes out of a store may hold on to everything that it was computed from; detached, it does not.
        let mut gradient = pull(&hidden, &upper)?.remove(last.as_tensor()).map(|gradient| gradient.detach());
        for (number, step) in steps.into_iter().enumerate().rev() {
            let Some(upper) = gradient.take() else { break };
            let output = match step.output {
                Some(output) => output,
                None => forward(&step.input, (number, &self.base.layers[number]), &pass, &tracked)?,
            };
            let mut store = pull(&output, &upper)?;
            for at in adapter.of_layer(number) {
                let own = store.remove(adapter.variables()[at].as_tensor());
                found[at] = own.map(|gradient| gradient.detach());
            }
            gradient = store.remove(&step.input).map(|gradient| gradient.detach());
        }
        // An operation without a backward would lose gradients without a word: every matrix must have one.
        let all = found.into_iter().collect::<Option<Vec<Tensor>>>();
        let all = all.ok_or_else(|| TrainingError::Compute("a trained matrix got no gradient".to_owned()))?;
        Ok((scores.log_probabilities, Gradients(all)))
    }

    fn forward(
        &self,
        batch: &Batch,
        pass: &Pass<'_>,
        (tracked, plain): (&AdapterWeights, &AdapterWeights),
        memory: Memory,
    ) -> candle_core::Result<Steps> {
        let mut last = self.embed(batch)?;
        let mut steps = Vec::with_capacity(self.base.layers.len());
        for (number, weights) in self.base.layers.iter().enumerate() {
            // Nothing below the first layer is trained.
            let input = if number == 0 { last } else { Var::from_tensor(&last)?.into_inner() };
            let (output, kept) = match memory {
                Memory::Keep => {
                    let output = forward(&input, (number, weights), pass, tracked)?;
                    (output.detach(), Some(output))
                }
                Memory::Recompute => (forward(&input.detach(), (number, weights), pass, plain)?, None),
            };
            steps.push(Step { input, output: kept });
            last = output;
        }
        Ok(Steps { steps, last })
    }

    fn scores(&self, hidden: &Tensor, batch: &Batch, coefficients: &Coefficients<'_>) -> candle_core::Result<Scores> {
        let score = |known: Option<&[f32]>| self.operations.score(self.base.head(), hidden, &batch.targets, known);
        if let Some(known) = coefficients(None) {
            return score(Some(&known));
        }
        let first = score(None)?;
        let found = coefficients(Some(&first.log_probabilities));
        score(found.as_deref())
    }
}

struct Steps {
    steps: Vec<Step>,
    last: Tensor,
}

/// Gradients of everything below `output`, whose own gradient is `upper`.
fn pull(output: &Tensor, upper: &Tensor) -> candle_core::Result<GradStore> {
    (output * upper)?.sum_all()?.backward()
}
