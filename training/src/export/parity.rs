//! The parity gate: the merged model must say what the adapter said.

use std::path::Path;
use std::sync::Arc;

use crate::base::BaseModel;
use crate::error::TrainingError;
use crate::examples::Examples;
use crate::network::{AdapterWeights, Batch, Network};
use crate::text::Encoded;
use crate::trainer::Trained;

/// Log probabilities may differ by so much: 16-bit weights move them by some thousandths.
pub const MAX_DIFFERENCE: f64 = 0.05;
/// Sequences that are compared.
pub(crate) const SEQUENCES: usize = 8;

/// What the adapter says beside its base.
pub struct Said {
    batch: Batch,
    log_probabilities: Vec<f32>,
}

/// How the two agree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parity {
    /// The largest difference of the log probability of a taught token.
    pub max_difference: f64,
    /// Tokens that were compared.
    pub tokens: usize,
}

impl Parity {
    /// Whether they agree.
    pub fn passed(&self) -> bool {
        self.tokens > 0 && self.max_difference <= MAX_DIFFERENCE
    }
}

impl Said {
    /// Of the first of the examples.
    pub fn of(trained: &Trained, examples: &Examples) -> Result<Self, TrainingError> {
        let sequences: Vec<&Encoded> = match examples {
            Examples::Sequences(all) => all.iter().take(SEQUENCES).collect(),
            Examples::Pairs(all) => all.iter().map(|pair| &pair.chosen).take(SEQUENCES).collect(),
        };
        let batch = Batch::of(sequences);
        let network = Network::new(Arc::clone(&trained.base));
        let log_probabilities = network.log_probabilities(&batch, &trained.adapter.weights(false, None))?;
        Ok(Self { batch, log_probabilities })
    }

    /// The log probability of each taught token, sequence by sequence.
    pub fn log_probabilities(&self) -> &[f32] {
        &self.log_probabilities
    }

    /// Compares it with the merged model of `folder`. It is loaded for that: let go of the base before, where memory is short.
    pub fn compare(&self, folder: &Path) -> Result<Parity, TrainingError> {
        let merged = Network::new(Arc::new(BaseModel::load(folder)?));
        let within = merged.log_probabilities(&self.batch, &AdapterWeights::default())?;
        let differences = self.log_probabilities.iter().zip(&within).map(|(one, other)| f64::from((one - other).abs()));
        // A number that is none must not pass for a small one.
        let worse = |most: f64, one: f64| if one.is_nan() { f64::INFINITY } else { most.max(one) };
        Ok(Parity { max_difference: differences.fold(0.0, worse), tokens: within.len() })
    }
}
