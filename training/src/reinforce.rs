//! Learning from rewards: what a sampled answer's log probability is to be moved by. Pure.

/// Answers that are sampled to each prompt.
pub(crate) const SAMPLES: usize = 4;

/// What sampled answers come to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reinforced {
    /// Less the sum of the rewards, each without what its answer has moved away from the reference.
    pub(crate) loss: f64,
    /// The gradient of the mean loss as it is estimated, by log probability.
    pub(crate) coefficients: Vec<f32>,
}

/// How answers are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    /// What a nat costs by which an answer is likelier than by the reference.
    pub(crate) beta: f64,
    /// Answers to each prompt, one behind the other; two at least.
    pub(crate) samples: usize,
    /// Answers of the whole step, whose mean is the loss.
    pub(crate) answers: usize,
}

/// REINFORCE with the mean of the other answers to the same prompt as its baseline (RLOO; Ahmadian and others, "Back to basics:
/// revisiting REINFORCE-style optimization for learning from human feedback in LLMs", 2024). `sequence` gives the answer of each log
/// probability, and `rewards` has one for each answer.
pub(crate) fn leave_one_out(
    policy: &[f32],
    reference: &[f32],
    sequence: &[usize],
    rewards: &[f64],
    terms: Terms,
) -> Reinforced {
    let mut kept = rewards.to_vec();
    for ((policy, reference), at) in policy.iter().zip(reference).zip(sequence) {
        kept[*at] -= terms.beta * (f64::from(*policy) - f64::from(*reference));
    }
    let others = terms.samples.saturating_sub(1).max(1) as f64;
    let advantages: Vec<f64> = kept
        .chunks(terms.samples.max(1))
        .flat_map(|group| {
            let sum: f64 = group.iter().sum();
            group.iter().map(move |reward| reward - (sum - reward) / others)
        })
        .collect();
    let coefficient = |at: &usize| (-advantages[*at] / terms.answers.max(1) as f64) as f32;
    Reinforced { loss: -kept.iter().sum::<f64>(), coefficients: sequence.iter().map(coefficient).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_two_answers_then_the_better_one_is_pushed_up_by_what_it_is_better_and_the_other_down() {
        let terms = Terms { beta: 0.5, samples: 2, answers: 2 };
        // The first has two tokens and is likelier than by the reference by 1 nat, which costs it 0.5.
        let found = leave_one_out(&[-1.0, -1.0, -3.0], &[-1.5, -1.5, -3.0], &[0, 0, 1], &[2.0, 1.0], terms);
        assert_eq!(found.loss, -2.5);
        assert_eq!(found.coefficients, [-0.25, -0.25, 0.25]);
    }

    #[test]
    fn given_answers_that_are_worth_the_same_then_nothing_moves_and_groups_are_compared_in_themselves() {
        let terms = Terms { beta: 0.1, samples: 3, answers: 6 };
        let logs = [-1.0; 6];
        let found = leave_one_out(&logs, &logs, &[0, 1, 2, 3, 4, 5], &[4.0, 4.0, 4.0, 0.0, 0.0, 3.0], terms);
        assert_eq!(found.coefficients[..3], [0.0; 3]);
        // Advantages -1.5, -1.5 and 3, over six answers.
        assert_eq!(found.coefficients[3..], [0.25, 0.25, -0.5]);
    }

    fn log_softmax(scores: &[f64]) -> Vec<f64> {
        let sum: f64 = scores.iter().map(|score| score.exp()).sum();
        scores.iter().map(|score| score - sum.ln()).collect()
    }

    #[test]
    fn given_every_pair_of_answers_as_often_as_it_comes_then_the_mean_gradient_is_the_slope_of_the_expected_loss() {
        let (rewards, beta) = ([1.0, -0.5, 2.0], 0.3);
        let reference = log_softmax(&[0.2, 0.1, -0.4]);
        let expected_loss = |scores: &[f64]| {
            let logs = log_softmax(scores);
            let worth = |at: usize| rewards[at] - beta * (logs[at] - reference[at]);
            -(0..3).map(|at| logs[at].exp() * worth(at)).sum::<f64>()
        };
        let scores = [0.5, -0.3, 0.1];
        let logs = log_softmax(&scores);
        let terms = Terms { beta, samples: 2, answers: 2 };
        let mut gradient = [0.0; 3];
        for (one, other) in (0..3).flat_map(|one| (0..3).map(move |other| (one, other))) {
            let of = |from: &[f64]| [from[one] as f32, from[other] as f32];
            let found = leave_one_out(&of(&logs), &of(&reference), &[0, 1], &[rewards[one], rewards[other]], terms);
            for (drawn, coefficient) in [one, other].into_iter().zip(found.coefficients) {
                for (score, slope) in gradient.iter_mut().enumerate() {
                    let own = f64::from(u8::from(score == drawn)) - logs[score].exp();
                    *slope += (logs[one] + logs[other]).exp() * f64::from(coefficient) * own;
                }
            }
        }
        for (at, own) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut scores = scores;
                scores[at] += by;
                expected_loss(&scores)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - own).abs() < 1e-5, "{at}: {slope} and {own}");
        }
    }
}
