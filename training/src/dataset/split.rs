//! Which examples are trained on, and which are held out to be measured on.

use crate::rng::Rng;

/// One in so many is held out.
const HELD_OUT: usize = 10;
/// Held out at most: measuring on more takes time and says little more.
const MAX_HELD_OUT: usize = 256;
/// With fewer examples nothing is held out.
const LEAST: usize = 10;
const PURPOSE: u64 = 1;

/// Places of examples in their dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Those that are trained on, in the order of the file.
    pub train: Vec<usize>,
    /// Those that are held out.
    pub held_out: Vec<usize>,
}

impl Split {
    /// The split of `examples` that follows from the seed.
    pub fn of(examples: usize, seed: u64) -> Self {
        let held = if examples < LEAST { 0 } else { (examples / HELD_OUT).clamp(1, MAX_HELD_OUT) };
        let order = Rng::of(seed, &[PURPOSE]).order(examples);
        let (mut held_out, mut train) = (order[..held].to_vec(), order[held..].to_vec());
        held_out.sort_unstable();
        train.sort_unstable();
        Self { train, held_out }
    }
}
