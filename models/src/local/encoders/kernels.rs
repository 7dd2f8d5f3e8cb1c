//! What an encoder computes between its matrix products, in place and, but for the weights of attention, on all cores.
//!
//! Candle's own operations make a new tensor each, and their threads wait for one another by spinning, which on a machine that has other
//! work to do costs more than the operation.

use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

/// Numbers that one thread takes at a time at least.
const GRAIN: usize = 16 << 10;

/// What follows a dense layer in the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    /// x·Φ(x) with the exact distribution.
    Gelu,
    /// The same by the hyperbolic tangent.
    GeluTanh,
    /// The positive part.
    Relu,
}

impl Activation {
    /// By its name in `config.json`.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "gelu" => Some(Activation::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_approximate" => Some(Activation::GeluTanh),
            "relu" => Some(Activation::Relu),
            _ => None,
        }
    }
}

#[inline(always)]
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * x * (1.0 + 0.044_715 * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

#[inline(always)]
fn relu(x: f32) -> f32 {
    x.max(0.0)
}

/// The error function by the rational approximation that Eigen and XLA use for 32-bit floats.
#[inline(always)]
fn erf(x: f32) -> f32 {
    const ODD: [f32; 7] = [
        -2.726_142_3e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_4e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    const EVEN: [f32; 5] = [-1.456_607_2e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329_3e-3, -1.426_473_9e-2];
    let x = x.clamp(-4.0, 4.0);
    let square = x * x;
    x * polynomial(ODD, square) / polynomial(EVEN, square)
}

/// The highest power first.
#[inline(always)]
fn polynomial<const COUNT: usize>(coefficients: [f32; COUNT], x: f32) -> f32 {
    coefficients.into_iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// The exponential of a number that is not above 0, to some units in the last place, in steps that compilers put side by side, which the
/// system's own is not: with long texts that is most of what attention takes beside its products. After Cephes' `expf`. What is no number
/// stays none.
#[inline(always)]
fn exp_of_negative(x: f32) -> f32 {
    /// Below it the result has no exponent of its own; it is then as good as nothing among weights that sum to 1.
    const LEAST: f32 = -87.0;
    /// 1.5·2²³: beside it a number has no room for a fraction, so it is rounded, and its last bits are the whole number.
    const ROUNDING: f32 = 12_582_912.0;
    /// The logarithm of 2 in two parts, the first of which has few bits.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    const SERIES: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5];
    const EXPONENT_OF_1: u32 = 127;
    const BITS_OF_FRACTION: u32 = 23;
    let x = if x < LEAST { LEAST } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUNDING;
    let power = rounded - ROUNDING;
    let rest = x - power * LN_2[0] - power * LN_2[1];
    let series = polynomial(SERIES, rest);
    let scale = f32::from_bits(rounded.to_bits().wrapping_add(EXPONENT_OF_1) << BITS_OF_FRACTION);
    (series * rest * rest + rest + 1.0) * scale
}

/// Sums that are kept side by side: one by itself would wait for each addition.
pub(super) const LANES: usize = 16;

/// Takes each number of a row up by `step` and joins what comes of it, in an order that follows from the row's length alone.
#[inline(always)]
fn folded(row: &[f32], start: f32, step: impl Fn(f32, f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let blocks = row.chunks_exact(LANES);
    let rest = blocks.remainder();
    for block in blocks {
        for (lane, x) in lanes.iter_mut().zip(block) {
            *lane = step(*lane, *x);
        }
    }
    let rest = rest.iter().fold(start, |all, x| step(all, *x));
    // Halves are joined side by side: one lane after the other, each would wait for the one before.
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for lane in 0..count {
            lanes[lane] = join(lanes[lane], lanes[lane + count]);
        }
    }
    join(rest, lanes[0])
}

#[inline(always)]
fn sum(row: &[f32]) -> f32 {
    folded(row, 0.0, |sum, x| sum + x, |a, b| a + b)
}

#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    // Not `f32::max`, whose rules for what is no number cost more than the comparison.
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    folded(row, f32::NEG_INFINITY, larger, larger)
}

/// Adds a bias to each row.
pub(super) fn add_bias(rows: &mut [f32], bias: &[f32]) {
    each_row(rows, bias.len(), &Biased { bias });
}

/// Adds a bias to each row and applies the activation.
pub(super) fn activate(rows: &mut [f32], bias: &[f32], activation: Activation) {
    // One loop for each: a choice within it would keep it from taking several numbers at a time.
    match activation {
        Activation::Gelu => each_row(rows, bias.len(), &Activated { bias, function: gelu }),
        Activation::GeluTanh => each_row(rows, bias.len(), &Activated { bias, function: gelu_tanh }),
        Activation::Relu => each_row(rows, bias.len(), &Activated { bias, function: relu }),
    }
}

struct Biased<'a> {
    bias: &'a [f32],
}

impl Kernel for Biased<'_> {
    #[inline(always)]
    fn row(&self, row: &mut [f32]) {
        add(row, self.bias);
    }
}

struct Activated<'a, F> {
    bias: &'a [f32],
    function: F,
}

impl<F: Fn(f32) -> f32 + Sync> Kernel for Activated<'_, F> {
    #[inline(always)]
    fn row(&self, row: &mut [f32]) {
        for (x, bias) in row.iter_mut().zip(self.bias) {
            *x = (self.function)(*x + bias);
        }
    }
}

/// Attention weights from the products of one query with all keys: scaled, with a bias for each key, and summing to 1.
#[inline(always)]
pub(super) fn softmax(scores: &mut [f32], scale: f32, bias: Option<&[f32]>) {
    match bias {
        None => scores.iter_mut().for_each(|x| *x *= scale),
        Some(bias) => {
            for (x, bias) in scores.iter_mut().zip(bias) {
                *x = *x * scale + bias;
            }
        }
    }
    let largest = largest(scores);
    scores.iter_mut().for_each(|x| *x = exp_of_negative(*x - largest));
    let inverse = 1.0 / sum(scores);
    scores.iter_mut().for_each(|x| *x *= inverse);
}

/// A layer norm's weights.
pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) epsilon: f32,
}

impl Norm {
    /// Normalizes each row.
    pub(super) fn apply(&self, rows: &mut [f32]) {
        each_row(rows, self.weight.len(), self);
    }

    /// Adds a bias to each row and normalizes it.
    pub(super) fn apply_with(&self, rows: &mut [f32], bias: &[f32]) {
        each_row(rows, self.weight.len(), &BiasedNorm { bias, norm: self });
    }
}

impl Kernel for Norm {
    #[inline(always)]
    fn row(&self, row: &mut [f32]) {
        let count = row.len() as f32;
        let mean = sum(row) / count;
        let variance = folded(row, 0.0, |sum, x| sum + (x - mean) * (x - mean), |a, b| a + b) / count;
        let scale = 1.0 / (variance + self.epsilon).sqrt();
        for ((x, weight), bias) in row.iter_mut().zip(&self.weight).zip(&self.bias) {
            *x = (*x - mean) * scale * weight + bias;
        }
    }
}

struct BiasedNorm<'a> {
    bias: &'a [f32],
    norm: &'a Norm,
}

impl Kernel for BiasedNorm<'_> {
    #[inline(always)]
    fn row(&self, row: &mut [f32]) {
        add(row, self.bias);
        self.norm.row(row);
    }
}

/// Adds the numbers of `other` to those of `row`.
#[inline(always)]
pub(super) fn add(row: &mut [f32], other: &[f32]) {
    for (x, other) in row.iter_mut().zip(other) {
        *x += other;
    }
}

/// The widest numbers side by side that the processor has: what is built for any processor has four.
pub(super) fn widest() -> Arch {
    Arch::new()
}

/// What is done to each row by itself.
trait Kernel: Sync {
    /// To be inlined: only then it takes the widest numbers.
    fn row(&self, row: &mut [f32]);
}

/// Rows that a thread takes at a time.
struct Rows<'a, K> {
    numbers: &'a mut [f32],
    width: usize,
    kernel: &'a K,
}

impl<K: Kernel> NullaryFnOnce for Rows<'_, K> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for row in self.numbers.chunks_exact_mut(self.width) {
            self.kernel.row(row);
        }
    }
}

fn each_row(rows: &mut [f32], width: usize, kernel: &impl Kernel) {
    let width = width.max(1);
    let several = rows.par_chunks_mut(width * (GRAIN / width).max(1));
    several.for_each(|numbers| widest().dispatch(Rows { numbers, width, kernel }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(actual: &[f32], expected: &[f32]) {
        assert_eq!(actual.len(), expected.len());
        for (a, b) in actual.iter().zip(expected) {
            assert!((a - b).abs() < 2e-6, "{actual:?} is not {expected:?}");
        }
    }

    #[test]
    fn given_values_of_the_tables_when_erf_is_computed_then_they_agree_to_the_precision_of_floats() {
        let table = [
            (0.0, 0.0),
            (0.1, 0.112_462_92),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (2.0, 0.995_322_3),
            (3.0, 0.999_977_9),
            (9.0, 1.0),
        ];
        for (x, expected) in table {
            assert_near(&[erf(x), erf(-x)], &[expected, -expected]);
        }
        // From the tables of the normal distribution: Φ(1) = 0.8413447.
        assert_near(&[gelu(1.0), gelu(-20.0)], &[0.841_344_7, 0.0]);
        assert_near(&[relu(-1.0), relu(2.0)], &[0.0, 2.0]);
        assert!((gelu_tanh(1.0) - 0.8412).abs() < 1e-4);
    }

    #[test]
    fn given_numbers_up_to_zero_when_their_exponentials_are_computed_then_they_are_those_of_the_system() {
        for step in 0..87_000 {
            let x = -0.001 * step as f32;
            let (actual, expected) = (f64::from(exp_of_negative(x)), f64::from(x).exp());
            assert!((actual / expected - 1.0).abs() < 4e-7, "{x}: {actual} is not {expected}");
        }
        assert_eq!(exp_of_negative(0.0), 1.0);
        for far in [-87.1, -1e30, f32::NEG_INFINITY] {
            assert!(exp_of_negative(far) < 1e-37, "{far}");
        }
        assert!(exp_of_negative(f32::NAN).is_nan(), "what is no number is not hidden");
    }

    #[test]
    fn given_rows_of_any_length_when_they_are_folded_then_every_number_counts_once() {
        for length in 0..70_u16 {
            let row: Vec<f32> = (0..length).map(|n| f32::from(n * 37 % 70)).collect();
            // Whole numbers this small are added exactly in any order.
            assert_eq!(sum(&row), row.iter().sum::<f32>(), "{length}");
            assert_eq!(largest(&row), row.iter().copied().fold(f32::NEG_INFINITY, f32::max), "{length}");
            let negative: Vec<f32> = row.iter().map(|x| x - 100.0).collect();
            assert_eq!(largest(&negative), negative.iter().copied().fold(f32::NEG_INFINITY, f32::max), "{length}");
        }
    }

    #[test]
    fn given_scores_when_they_become_weights_then_they_sum_to_one_and_the_bias_of_each_key_counts() {
        let weights = |mut scores: Vec<f32>, bias: Option<&[f32]>| {
            softmax(&mut scores, 0.5, bias);
            scores
        };
        assert_near(&weights(vec![0.0, 2.0 * 3.0_f32.ln()], None), &[0.25, 0.75]);
        assert_near(&weights(vec![1.0; 4], None), &[0.25; 4]);
        assert_near(&weights(vec![0.0; 2], Some(&[0.0, 100.0])), &[0.0, 1.0]);
        assert_near(&weights(vec![-7.0], None), &[1.0]);
    }

    #[test]
    fn given_rows_when_they_are_normalized_then_mean_and_variance_are_those_of_the_weights() {
        let norm = Norm { weight: vec![1.0, 2.0], bias: vec![0.0, 1.0], epsilon: 0.0 };
        let mut rows = [1.0, 3.0, 0.0, 1.0];
        norm.apply_with(&mut rows, &[1.0, 1.0]);
        assert_near(&rows, &[-1.0, 3.0, -1.0, 3.0]);
        norm.apply(&mut rows);
        assert_near(&rows, &[-1.0, 3.0, -1.0, 3.0]);
        add_bias(&mut rows, &[1.0, -3.0]);
        assert_near(&rows, &[0.0, 0.0, 0.0, 0.0]);
        activate(&mut rows, &[-1.0, 2.0], Activation::Relu);
        assert_near(&rows, &[0.0, 2.0, 0.0, 2.0]);
    }
}
