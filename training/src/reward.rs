//! The reward model: a linear head on the base's last hidden state of an answer, learned from preferences (Bradley and Terry, 1952;
//! as Ouyang and others, "Training language models to follow instructions with human feedback", 2022, do it, but with the network
//! frozen). Pure.

/// Rounds of descent; each is a pass over all pairs.
const ROUNDS: usize = 500;
/// How strongly weights are drawn to 0, as a part of the mean squared length of a difference: pairs that can be told apart wholly
/// would else have no best weights.
const RIDGE: f64 = 1e-3;

/// Gives an answer its reward.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RewardHead {
    pub(crate) weights: Vec<f32>,
}

impl RewardHead {
    /// Learns from the differences between the hidden states of the better and the worse answer. The loss is convex, and steps are so
    /// short that it falls with each.
    pub(crate) fn learn(differences: &[Vec<f32>]) -> Self {
        let width = differences.first().map_or(0, Vec::len);
        let squares = |difference: &Vec<f32>| dot(&floats(difference), difference);
        let length = differences.iter().map(squares).sum::<f64>() / differences.len().max(1) as f64;
        let ridge = RIDGE * length;
        let mut weights = vec![0f64; width];
        let rate = 1.0 / (length / 4.0 + ridge).max(f64::MIN_POSITIVE);
        for _ in 0..ROUNDS {
            let (_, gradient) = bradley_terry(&weights, differences, ridge);
            weights.iter_mut().zip(gradient).for_each(|(weight, slope)| *weight -= rate * slope);
        }
        Self { weights: weights.into_iter().map(|weight| weight as f32).collect() }
    }

    /// The reward of an answer.
    pub(crate) fn reward(&self, hidden: &[f32]) -> f64 {
        self.weights.iter().zip(hidden).map(|(weight, number)| f64::from(*weight) * f64::from(*number)).sum()
    }
}

fn floats(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|number| f64::from(*number)).collect()
}

fn dot(weights: &[f64], numbers: &[f32]) -> f64 {
    weights.iter().zip(numbers).map(|(weight, number)| weight * f64::from(*number)).sum()
}

/// The mean of `-ln σ(w · difference)` with `ridge / 2 · |w|²`, and its gradient.
fn bradley_terry(weights: &[f64], differences: &[Vec<f32>], ridge: f64) -> (f64, Vec<f64>) {
    let mut loss = ridge / 2.0 * weights.iter().map(|weight| weight * weight).sum::<f64>();
    let mut gradient: Vec<f64> = weights.iter().map(|weight| ridge * weight).collect();
    let count = differences.len().max(1) as f64;
    for difference in differences {
        let margin = dot(weights, difference);
        // ln(1 + e^-x), without overflow on either side.
        loss += ((-margin).max(0.0) + (-margin.abs()).exp().ln_1p()) / count;
        let slope = -1.0 / (1.0 + margin.exp()) / count;
        gradient.iter_mut().zip(difference).for_each(|(sum, number)| *sum += slope * f64::from(*number));
    }
    (loss, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_no_weights_then_the_loss_is_ln_2_and_the_gradient_goes_half_against_the_difference() {
        let (loss, gradient) = bradley_terry(&[0.0, 0.0], &[vec![1.0, -2.0]], 0.1);
        assert!((loss - std::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(gradient, [-0.5, 1.0]);
    }

    #[test]
    fn given_any_weights_then_the_gradient_is_the_slope_of_the_loss() {
        let differences = [vec![1.0, -2.0, 0.5], vec![-0.3, 0.2, 4.0], vec![0.0, 1.5, -1.0]];
        for weights in [[0.4, -0.7, 0.2], [-9.0, 8.0, 20.0]] {
            let (_, gradient) = bradley_terry(&weights, &differences, 0.3);
            for (at, own) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut weights = weights;
                    weights[at] += by;
                    bradley_terry(&weights, &differences, 0.3).0
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((slope - own).abs() < 1e-6, "{weights:?} {at}: {slope} and {own}");
            }
        }
    }

    #[test]
    fn given_pairs_that_differ_in_one_direction_then_the_better_answers_get_more() {
        let mut rng = crate::rng::Rng::of(3, &[]);
        let hidden: Vec<Vec<f32>> = (0..40).map(|_| (0..6).map(|_| rng.unit() - 0.5).collect()).collect();
        let pairs: Vec<(&Vec<f32>, &Vec<f32>)> = hidden
            .chunks_exact(2)
            .map(|pair| if pair[0][2] > pair[1][2] { (&pair[0], &pair[1]) } else { (&pair[1], &pair[0]) })
            .collect();
        let differences: Vec<Vec<f32>> = pairs
            .iter()
            .map(|(better, worse)| better.iter().zip(worse.iter()).map(|(one, other)| one - other).collect())
            .collect();
        let head = RewardHead::learn(&differences);
        let most = head.weights.iter().map(|weight| weight.abs()).fold(0.0, f32::max);
        assert_eq!(head.weights[2], most, "{:?}", head.weights);
        let right = pairs.iter().filter(|(better, worse)| head.reward(better) > head.reward(worse)).count();
        assert!(right >= 18, "{right} of 20");
        assert_eq!(RewardHead::learn(&[]).weights, Vec::<f32>::new());
    }
}
