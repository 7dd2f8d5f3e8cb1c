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
const SEQUENCES: usize = 8;

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

/// Compares the adapter beside its base with the merged model of `folder`, on the first of the examples.
pub fn compare(trained: &Trained, folder: &Path, examples: &Examples) -> Result<Parity, TrainingError> {
    let sequences: Vec<&Encoded> = match examples {
        Examples::Sequences(all) => all.iter().take(SEQUENCES).collect(),
        Examples::Pairs(all) => all.iter().map(|pair| &pair.chosen).take(SEQUENCES).collect(),
    };
    let batch = Batch::of(sequences);
    let beside = Network::new(Arc::clone(&trained.base))
        .log_probabilities(&batch, &trained.adapter.weights(false, None))?;
    let merged = Network::new(Arc::new(BaseModel::load(folder)?));
    let within = merged.log_probabilities(&batch, &AdapterWeights::default())?;
    let differences = beside.iter().zip(&within).map(|(one, other)| f64::from((one - other).abs()));
    // A number that is none must not pass for a small one.
    let max_difference = differences.fold(0.0, |most: f64, one| if one.is_nan() { f64::INFINITY } else { most.max(one) });
    Ok(Parity { max_difference, tokens: beside.len() })
}
