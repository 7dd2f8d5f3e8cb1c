//! Attention among the tokens of each text, from what a layer made of them.

use std::ops::Range;

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::kernels::{LANES, softmax, widest};
use super::matrix::{Matrix, multiply};

/// Tokens of a text whose products the kernels of matrices cost more to begin than they take.
const SHORT: usize = 64;
/// Tokens that one thread asks for at a time.
const QUERIES: usize = 128;
/// Rows of a small product that are made at once: one by itself would wait for each addition.
const TILE: usize = 4;

/// The heads of a layer. A row of queries, keys and values has them behind one another, each `count · size` numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) count: usize,
    pub(super) size: usize,
}

/// For each head, the bias of each distance (key − query) within a text, beginning at −(length − 1).
pub(super) type Biases = Vec<Vec<f32>>;

/// A text among those of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    /// Where its tokens begin.
    pub(super) start: usize,
    pub(super) length: usize,
    /// How many of its tokens ask, from the first one on; all of them are asked.
    pub(super) asking: usize,
    pub(super) biases: Option<&'a Biases>,
}

/// Some of the tokens of a text that ask, and the rows of what they gather.
struct Part<'a> {
    text: Text<'a>,
    queries: Range<usize>,
    mixed: &'a mut [f32],
}

/// What a thread needs beside its part.
#[derive(Default)]
struct Scratch {
    keys: Vec<f32>,
    weights: Vec<f32>,
}

/// Puts what each asking token gathers from the tokens of its text into the rows of `mixed`, text by text. `qkv` has a row for each token.
pub(super) fn attend(mixed: &mut [f32], qkv: &[f32], texts: &[Text<'_>], heads: Heads) {
    let width = heads.count * heads.size;
    let mut parts = Vec::with_capacity(texts.len());
    let mut rest = mixed;
    for text in texts {
        for first in (0..text.asking).step_by(QUERIES) {
            let queries = first..text.asking.min(first + QUERIES);
            let (mixed, behind) = rest.split_at_mut(queries.len() * width);
            parts.push(Part { text: *text, queries, mixed });
            rest = behind;
        }
    }
    parts.into_par_iter().for_each_init(Scratch::default, |scratch, mut part| {
        for head in 0..heads.count {
            widest().dispatch(Gathering { part: &mut part, qkv, heads, head, scratch });
        }
    });
}

/// The work of one head for a part.
struct Gathering<'a, 'p> {
    part: &'a mut Part<'p>,
    qkv: &'a [f32],
    heads: Heads,
    head: usize,
    scratch: &'a mut Scratch,
}

impl NullaryFnOnce for Gathering<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.part.gather(self.qkv, self.heads, self.head, self.scratch);
    }
}

impl Part<'_> {
    #[inline(always)]
    fn gather(&mut self, qkv: &[f32], heads: Heads, head: usize, scratch: &mut Scratch) {
        let (length, size, width) = (self.text.length, heads.size, heads.count * heads.size);
        let from =
            |kind: usize, token: usize| &qkv[(self.text.start + token) * 3 * width + kind * width + head * size..];
        let (queries, keys, values) = (from(0, self.queries.start), from(1, 0), from(2, 0));
        let out = &mut self.mixed[head * size..];
        if length <= SHORT && size.is_multiple_of(LANES) {
            let padded = length.next_multiple_of(LANES);
            transpose(&mut scratch.keys, keys, length, padded, size, 3 * width);
            scratch.weights.resize(self.queries.len() * padded, 0.0);
            let weights = &mut scratch.weights[..self.queries.len() * padded];
            small_product(weights, padded, queries, 3 * width, &scratch.keys, padded, size, padded);
            weigh(weights, padded, self.text, self.queries.clone(), head, size);
            small_product(out, width, weights, padded, values, 3 * width, length, size);
        } else {
            let count = self.queries.len();
            scratch.weights.resize(count * length, 0.0);
            let weights = &mut scratch.weights[..count * length];
            let queries = Matrix::of_rows(queries, count, size, 3 * width);
            let keys = Matrix::of_rows(keys, length, size, 3 * width).transposed();
            multiply(weights, length, queries, keys);
            weigh(weights, length, self.text, self.queries.clone(), head, size);
            let weights = Matrix::of_rows(weights, count, length, length);
            let values = Matrix::of_rows(values, length, size, 3 * width);
            multiply(out, width, weights, values);
        }
    }
}

/// Makes weights of scores, in rows of `stride` numbers.
#[inline(always)]
fn weigh(scores: &mut [f32], stride: usize, text: Text<'_>, queries: Range<usize>, head: usize, size: usize) {
    let scale = 1.0 / (size as f32).sqrt();
    for (row, query) in scores.chunks_mut(stride).zip(queries) {
        let bias = text.biases.map(|biases| &biases[head][text.length - 1 - query..][..text.length]);
        softmax(&mut row[..text.length], scale, bias);
    }
}

/// The keys of a text as columns; those that fill up the last lanes are 0.
#[inline(always)]
fn transpose(out: &mut Vec<f32>, keys: &[f32], length: usize, padded: usize, size: usize, stride: usize) {
    out.clear();
    out.resize(size * padded, 0.0);
    for (token, key) in keys.chunks(stride).take(length).enumerate() {
        for (row, number) in out.chunks_exact_mut(padded).zip(&key[..size]) {
            row[token] = *number;
        }
    }
}

/// `left · right` for few rows: `depth` numbers of each row of `left`, and as many rows of `right`, whose `columns` are whole lanes. Rows
/// lie as far apart as their strides say; there are as many as `out` has.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn small_product(
    out: &mut [f32],
    out_stride: usize,
    left: &[f32],
    left_stride: usize,
    right: &[f32],
    right_stride: usize,
    depth: usize,
    columns: usize,
) {
    for (out, left) in out.chunks_mut(TILE * out_stride).zip(left.chunks(TILE * left_stride)) {
        for column in (0..columns).step_by(LANES) {
            let right = &right[column..];
            if out.len() > (TILE - 1) * out_stride {
                let rows: [&[f32]; TILE] = std::array::from_fn(|row| &left[row * left_stride..][..depth]);
                put(out, out_stride, column, tile(rows, right, right_stride));
            } else {
                for (out, left) in out.chunks_mut(out_stride).zip(left.chunks(left_stride)) {
                    put(out, out_stride, column, tile([&left[..depth]], right, right_stride));
                }
            }
        }
    }
}

#[inline(always)]
fn put<const ROWS: usize>(out: &mut [f32], stride: usize, column: usize, sums: [[f32; LANES]; ROWS]) {
    for (row, sums) in sums.iter().enumerate() {
        out[row * stride + column..][..LANES].copy_from_slice(sums);
    }
}

/// One piece of a product: rows of the left, lanes of the right.
#[inline(always)]
fn tile<const ROWS: usize>(left: [&[f32]; ROWS], right: &[f32], stride: usize) -> [[f32; LANES]; ROWS] {
    let mut sums = [[0.0; LANES]; ROWS];
    for at in 0..left[0].len() {
        let right = &right[at * stride..][..LANES];
        for (sums, left) in sums.iter_mut().zip(left) {
            let factor = left[at];
            for (sum, number) in sums.iter_mut().zip(right) {
                *sum += factor * number;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between −1 and 1 without an order.
    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|n| (n * 7919 % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    /// Attention by its definition, in double precision.
    fn plainly(qkv: &[f32], text: Text<'_>, heads: Heads) -> Vec<f32> {
        let width = heads.count * heads.size;
        let at = |token: usize, kind: usize, head: usize, number: usize| {
            f64::from(qkv[(text.start + token) * 3 * width + kind * width + head * heads.size + number])
        };
        let mut mixed = Vec::new();
        for query in 0..text.asking {
            for head in 0..heads.count {
                let weights: Vec<f64> = (0..text.length)
                    .map(|key| {
                        let dot: f64 = (0..heads.size).map(|n| at(query, 0, head, n) * at(key, 1, head, n)).sum();
                        let bias = text.biases.map_or(0.0, |biases| biases[head][text.length - 1 + key - query]);
                        (dot / (heads.size as f64).sqrt() + f64::from(bias)).exp()
                    })
                    .collect();
                let sum: f64 = weights.iter().sum();
                mixed.extend((0..heads.size).map(|number| {
                    let gathered = weights.iter().enumerate().map(|(key, weight)| weight * at(key, 2, head, number));
                    (gathered.sum::<f64>() / sum) as f32
                }));
            }
        }
        mixed
    }

    #[test]
    fn given_texts_of_any_length_and_heads_of_any_size_when_they_attend_then_it_is_as_defined() {
        let lengths = [1, 3, 4, 15, 16, 17, 64, 65, 130, 300];
        for (count, size) in [(2, 32), (1, 64), (3, 16), (2, 20), (1, 1)] {
            for asking in [1, usize::MAX] {
                let heads = Heads { count, size };
                let qkv = numbers(lengths.iter().sum::<usize>() * 3 * count * size);
                let biases: Vec<Biases> = lengths.iter().map(|length| vec![numbers(2 * length - 1); count]).collect();
                let mut start = 0;
                let texts: Vec<Text<'_>> = lengths
                    .iter()
                    .zip(&biases)
                    .map(|(length, biases)| {
                        start += length;
                        let biases = (length % 2 == 1).then_some(biases);
                        Text { start: start - length, length: *length, asking: asking.min(*length), biases }
                    })
                    .collect();
                let expected: Vec<f32> = texts.iter().flat_map(|text| plainly(&qkv, *text, heads)).collect();
                let mut mixed = vec![f32::NAN; expected.len()];
                attend(&mut mixed, &qkv, &texts, heads);
                let furthest = mixed.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(furthest < 1e-5 && mixed.iter().all(|x| x.is_finite()), "{heads:?}, {asking}: {furthest}");
            }
        }
    }
}
