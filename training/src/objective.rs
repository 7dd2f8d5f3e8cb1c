//! What is learned: a number for each scored token, which its log probability is to be moved by. Pure.

/// Mean loss of the scored tokens of a whole step, of which this is one pass.
pub(crate) fn supervised(tokens: usize, all: usize) -> Vec<f32> {
    vec![-1.0 / all.max(1) as f32; tokens]
}

/// What a preference loss comes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Preference {
    /// Sum over the pairs of `-ln σ(β · margin)`.
    pub(crate) loss: f64,
    /// Pairs whose better answer is preferred more than by the reference.
    pub(crate) right: usize,
    /// The gradient of the mean loss, by log probability.
    pub(crate) coefficients: Vec<f32>,
}

/// Direct preference optimization (Rafailov and others, 2023). Sequences come in pairs, the better answer first; `sequence`
/// gives the sequence of each log probability. `pairs` are those of the whole step, whose mean is the loss.
pub(crate) fn preference(policy: &[f32], reference: &[f32], sequence: &[usize], beta: f64, pairs: usize) -> Preference {
    let here = sequence.iter().max().map_or(0, |last| last / 2 + 1);
    let mut gains = vec![0f64; 2 * here];
    for ((policy, reference), at) in policy.iter().zip(reference).zip(sequence) {
        gains[*at] += f64::from(*policy) - f64::from(*reference);
    }
    let margins: Vec<f64> = gains.chunks_exact(2).map(|pair| beta * (pair[0] - pair[1])).collect();
    // ln(1 + e^-x), without overflow on either side.
    let loss = margins.iter().map(|x| (-x).max(0.0) + (-x.abs()).exp().ln_1p()).sum();
    let right = margins.iter().filter(|margin| **margin > 0.0).count();
    let slope = |pair: usize| -beta / (1.0 + margins[pair].exp()) / pairs.max(1) as f64;
    let coefficient = |at: &usize| (slope(at / 2) * if at.is_multiple_of(2) { 1.0 } else { -1.0 }) as f32;
    Preference { loss, right, coefficients: sequence.iter().map(coefficient).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_reference_itself_then_the_loss_is_ln_2_and_both_answers_are_pushed_apart() {
        let logs = [-1.0, -2.0, -3.0];
        let found = preference(&logs, &logs, &[0, 0, 1], 0.1, 1);
        assert!((found.loss - std::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(found.right, 0);
        assert_eq!(found.coefficients, [-0.05, -0.05, 0.05]);
    }

    #[test]
    fn given_any_margin_then_the_coefficients_are_the_slope_of_the_loss() {
        let (reference, sequence) = ([-1.0, -1.5, -0.5, -2.0], [0, 1, 2, 3]);
        for policy in [[-0.5, -3.0, -2.0, -0.1], [-40.0, -1.0, -0.1, -60.0]] {
            let mean = |policy: &[f32]| preference(policy, &reference, &sequence, 0.3, 2).loss / 2.0;
            let found = preference(&policy, &reference, &sequence, 0.3, 2);
            for at in 0..policy.len() {
                let (mut more, mut less) = (policy, policy);
                more[at] += 1e-2;
                less[at] -= 1e-2;
                let slope = (mean(&more) - mean(&less)) / f64::from(more[at] - less[at]);
                assert!((slope - f64::from(found.coefficients[at])).abs() < 1e-4, "{policy:?} {at}");
            }
        }
    }
}
