//! Passes through the whole network. Backward goes layer by layer: what a layer needs is kept from the way forward, or
//! computed again from the layer's input, which takes a third more time and a fraction of the memory (Chen and others,
//! "Training deep nets with sublinear memory cost", 2016). Both give the same numbers.

use std::sync::Arc;

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

use super::backward::Pulled;
use super::batch::Batch;
use super::head::Wanted;
use super::layer::{Kept, Layer, Pass};
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

/// How much each log probability counts in what is learned, by all of them.
type Coefficients<'c> = dyn Fn(&[f32]) -> Vec<f32> + 'c;

/// Gradients of an adapter's matrices, in their order.
pub(crate) struct Gradients(pub(crate) Vec<Tensor>);

/// A base model that can be run forward and backward.
pub(crate) struct Network {
    pub(crate) base: Arc<BaseModel>,
    frequencies: Frequencies,
    operations: Operations,
}

/// What there is of a layer for the way back.
enum Step {
    /// Its input: all else is computed again.
    Input(Tensor),
    /// What the way back that is written out reads.
    Kept(Kept),
    /// What candle's way back goes through.
    Recorded(Recorded),
}

/// A layer's input, and its output, which knows what it was computed from.
struct Recorded {
    input: Tensor,
    output: Tensor,
}

/// An adapter's matrices as candle's way back finds them, and without one.
struct Adapters {
    tracked: AdapterWeights,
    plain: AdapterWeights,
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
        let mut layers = 0..self.base.layers.len();
        layers.try_fold(self.embed(batch)?, |x, number| Ok(self.layer(number, &pass, adapter).forward(x)?.detach()))
    }

    /// Log probabilities of the tokens that are scored.
    pub(crate) fn log_probabilities(&self, batch: &Batch, adapter: &AdapterWeights) -> Result<Vec<f32>, TrainingError> {
        if batch.rows.is_empty() {
            return Ok(Vec::new());
        }
        let hidden = self.scored(&self.hidden(batch, adapter)?, batch)?;
        Ok(self
            .operations
            .score(self.base.head(), &hidden, &batch.targets, Wanted::LogProbabilities)?
            .log_probabilities)
    }

    /// Scores of all tokens of the vocabulary behind each row that is scored.
    #[cfg(test)]
    pub(crate) fn logits(&self, batch: &Batch, adapter: &AdapterWeights) -> Result<Tensor, TrainingError> {
        let hidden = self.scored(&self.hidden(batch, adapter)?, batch)?;
        Ok(hidden.matmul(&self.base.head().t()?)?)
    }

    /// Log probabilities, and the gradients of `Σ coefficient · log probability`, where coefficients count as constants.
    pub(crate) fn gradients(
        &self,
        batch: &Batch,
        adapter: &Adapter,
        dropout: Option<(f32, u64)>,
        memory: Memory,
        coefficients: &Coefficients<'_>,
    ) -> Result<(Vec<f32>, Gradients), TrainingError> {
        let pass = self.pass(batch)?;
        let adapters = Adapters { tracked: adapter.weights(true, dropout), plain: adapter.weights(false, dropout) };
        let (steps, output) = self.forward(batch, &pass, &adapters, memory)?;
        let last = Var::from_tensor(&output)?;
        drop(output);
        let hidden = self.scored(last.as_tensor(), batch)?;
        let wanted = Wanted::Gradients;
        let scores = self.operations.score(self.base.head(), &hidden.detach(), &batch.targets, wanted)?;
        let Some(slopes) = scores.gradient else {
            return Err(TrainingError::Compute("a batch teaches nothing".to_owned()));
        };
        let upper = weighted(&slopes, coefficients(&scores.log_probabilities))?;
        let mut found: Vec<Option<Tensor>> = vec![None; adapter.variables().len()];
        // What comes out of a store may hold on to everything that it was computed from; detached, it does not.
        let mut gradient = pull(&hidden, &upper)?.remove(last.as_tensor()).map(|gradient| gradient.detach());
        drop((hidden, last, slopes, upper));
        for (number, step) in steps.into_iter().enumerate().rev() {
            let Some(upper) = gradient.take() else { break };
            let pulled = self.back(number, step, &upper, (&pass, &adapters, adapter))?;
            for (at, own) in adapter.of_layer(number).zip(pulled.own) {
                found[at] = Some(own);
            }
            gradient = pulled.input;
        }
        // An operation without a backward would lose gradients without a word: every matrix must have one.
        let all = found.into_iter().collect::<Option<Vec<Tensor>>>();
        let all = all.ok_or_else(|| TrainingError::Compute("a trained matrix got no gradient".to_owned()))?;
        Ok((scores.log_probabilities, Gradients(all)))
    }

    fn layer<'l>(&'l self, number: usize, pass: &'l Pass<'l>, adapter: &'l AdapterWeights) -> Layer<'l> {
        Layer { number, weights: &self.base.layers[number], adapter, pass }
    }

    /// What there is of each layer for the way back, and the last hidden states.
    fn forward(
        &self,
        batch: &Batch,
        pass: &Pass<'_>,
        adapters: &Adapters,
        memory: Memory,
    ) -> candle_core::Result<(Vec<Step>, Tensor)> {
        let mut last = self.embed(batch)?;
        let mut steps = Vec::with_capacity(self.base.layers.len());
        for number in 0..self.base.layers.len() {
            let plain = self.layer(number, pass, &adapters.plain);
            let (step, output) = match (memory, pass.operations) {
                (Memory::Recompute, _) => {
                    let output = plain.forward(last.clone())?;
                    (Step::Input(last), output)
                }
                (Memory::Keep, Operations::Fused) => {
                    let kept = plain.keep(last)?;
                    let output = plain.output(&kept)?;
                    (Step::Kept(kept), output)
                }
                (Memory::Keep, Operations::Composed) => {
                    let recorded = record(self.layer(number, pass, &adapters.tracked), &last)?;
                    let output = recorded.output.detach();
                    (Step::Recorded(recorded), output)
                }
            };
            steps.push(step);
            last = output;
        }
        Ok((steps, last))
    }

    /// What comes back through a layer.
    fn back(
        &self,
        number: usize,
        step: Step,
        upper: &Tensor,
        (pass, adapters, adapter): (&Pass<'_>, &Adapters, &Adapter),
    ) -> candle_core::Result<Pulled> {
        let plain = self.layer(number, pass, &adapters.plain);
        let wants_input = number > 0;
        match (step, pass.operations) {
            (Step::Kept(kept), _) => plain.backward(&kept, upper, wants_input),
            (Step::Input(input), Operations::Fused) => plain.backward(&plain.keep(input)?, upper, wants_input),
            (Step::Input(input), Operations::Composed) => {
                let recorded = record(self.layer(number, pass, &adapters.tracked), &input)?;
                drop(input);
                recorded.pull(number, upper, adapter)
            }
            (Step::Recorded(recorded), _) => recorded.pull(number, upper, adapter),
        }
    }
}

/// A layer whose way back candle knows.
fn record(layer: Layer<'_>, input: &Tensor) -> candle_core::Result<Recorded> {
    // Nothing below the first layer is trained.
    let input = if layer.number == 0 { input.clone() } else { Var::from_tensor(input)?.into_inner() };
    let output = layer.forward(input.clone())?;
    Ok(Recorded { input, output })
}

impl Recorded {
    fn pull(self, number: usize, upper: &Tensor, adapter: &Adapter) -> candle_core::Result<Pulled> {
        let mut store = pull(&self.output, upper)?;
        let mut take = |tensor: &Tensor| store.remove(tensor).map(|gradient| gradient.detach());
        let own = adapter.of_layer(number).map(|at| take(adapter.variables()[at].as_tensor()));
        let Some(own) = own.collect::<Option<Vec<Tensor>>>() else {
            candle_core::bail!("a trained matrix of layer {number} got no gradient")
        };
        Ok(Pulled { input: take(&self.input), own })
    }
}

/// Rows of gradients, each times what it counts.
fn weighted(slopes: &Tensor, coefficients: Vec<f32>) -> candle_core::Result<Tensor> {
    let rows = coefficients.len();
    slopes.broadcast_mul(&Tensor::from_vec(coefficients, (rows, 1), slopes.device())?)
}

/// Gradients of everything below `output`, whose own gradient is `upper`.
fn pull(output: &Tensor, upper: &Tensor) -> candle_core::Result<GradStore> {
    (output * upper)?.sum_all()?.backward()
}
