//! Whether a training made anything better: losses of the same held-out examples before and after, and how sure that is.

use crate::rng::Rng;

const PURPOSE: u64 = 6;
/// Resamples of the examples.
const RESAMPLES: usize = 2_000;
/// Examples without which nothing is said: of fewer, resamples are so much alike that the interval is narrower than what is known.
pub const LEAST_HELD_OUT: usize = 8;

/// By how much the loss of held-out examples fell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    /// Mean over the examples; above 0 is better.
    pub mean: f64,
    /// Lower end of the interval that has the mean with 95% confidence.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Examples that it is taken from.
    pub examples: usize,
}

impl Gain {
    /// From the losses of the same examples before and after: the percentile bootstrap (Efron, 1979), with draws that follow
    /// from the seed. `None` for fewer than [`LEAST_HELD_OUT`].
    pub(crate) fn of(before: &[f64], after: &[f64], seed: u64) -> Option<Self> {
        let gains: Vec<f64> = before.iter().zip(after).map(|(before, after)| before - after).collect();
        if gains.len() < LEAST_HELD_OUT {
            return None;
        }
        let examples = gains.len();
        let mut rng = Rng::of(seed, &[PURPOSE]);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| (0..examples).map(|_| gains[rng.below(examples)]).sum::<f64>() / examples as f64)
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| means[((means.len() - 1) as f64 * part).round() as usize];
        let mean = gains.iter().sum::<f64>() / examples as f64;
        Some(Self { mean, low: at(0.025), high: at(0.975), examples })
    }

    /// Whether it is above 0 with that confidence.
    pub fn is_sure(&self) -> bool {
        self.low > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_losses_then_a_gain_is_sure_only_where_the_examples_agree() {
        let before = [3.0, 2.5, 2.8, 3.1, 2.9, 3.3, 2.7, 3.2];
        let better: Vec<f64> = before.iter().map(|loss| loss - 0.5).collect();
        let sure = Gain::of(&before, &better, 1).unwrap();
        assert!(sure.is_sure() && (sure.mean - 0.5).abs() < 1e-9 && sure.high < 0.51, "{sure:?}");
        let mixed = [3.4, 2.1, 3.2, 2.6, 3.3, 2.9, 3.1, 2.8];
        let unsure = Gain::of(&before, &mixed, 1).unwrap();
        assert!(!unsure.is_sure() && unsure.low < unsure.mean && unsure.mean < unsure.high, "{unsure:?}");
        assert_eq!(Gain::of(&before, &mixed, 1), Some(unsure));
    }

    #[test]
    fn given_fewer_than_eight_examples_then_nothing_is_said_however_much_they_agree() {
        let (before, after) = ([3.0; LEAST_HELD_OUT], [1.0; LEAST_HELD_OUT]);
        assert_eq!(Gain::of(&before[1..], &after[1..], 1), None);
        assert!(Gain::of(&before, &after, 1).is_some_and(|gain| gain.is_sure()));
    }
}
