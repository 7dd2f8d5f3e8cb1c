//! Causal grouped-query attention of each sequence of a pass, of which those that begin alike share tokens. Of its way forward nothing is kept but what came in: heads are turned,
//! scored and weighed again on the way back, as in FlashAttention (Dao and others, 2022), since that costs little beside the
//! projections, and the rest would be most of what a layer keeps.

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use super::batch::Span;
use super::rope::Angles;
use super::{PIECE, product, with_floats, with_three};

/// Sequences that have so many scores in a head are worked on together: they are a few megabytes.
pub(crate) const TOGETHER: usize = 256 * 256;

/// Heads of queries, of keys and values, and numbers of a head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) size: usize,
}

/// Attention of a pass: queries, keys and values are `[tokens, heads × size]`, as the projections give them.
#[derive(Clone, Copy)]
pub(super) struct Attention<'a> {
    pub(super) heads: Heads,
    pub(super) spans: &'a [Span],
    pub(super) angles: &'a Angles,
}

/// A head of keys of a sequence, with the queries that share it.
#[derive(Clone, Copy)]
struct Part<'s> {
    span: &'s Span,
    head: usize,
}

/// What a part is computed from. Queries of its heads lie behind each other, so that keys are not copied for each of them.
struct Prepared {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
}

/// Rows of all heads: how many there are, and the first of those that are meant.
type Place = (usize, usize);

impl Attention<'_> {
    /// What each token takes from the tokens before it and itself: `[tokens, heads × size]`.
    pub(super) fn forward(self, [q, k, v]: [&Tensor; 3]) -> candle_core::Result<Tensor> {
        let mut output = vec![0f32; q.elem_count()];
        with_three([q, k, v], |given| -> candle_core::Result<()> {
            for round in rounds(self.spans) {
                let parts = self.parts(round);
                let taken = parts.par_iter().map(|part| self.prepared(given, *part)?.taken());
                let taken = taken.collect::<candle_core::Result<Vec<Vec<f32>>>>()?;
                for (part, taken) in parts.iter().zip(&taken) {
                    self.add(&mut output, self.of_queries(*part), part.span.own(), taken);
                }
            }
            Ok(())
        })??;
        Tensor::from_vec(output, q.shape().clone(), &Device::Cpu)
    }

    /// Gradients of queries, keys and values, where that of what was taken is `upper`.
    pub(super) fn backward(self, [q, k, v]: [&Tensor; 3], upper: &[f32]) -> candle_core::Result<[Tensor; 3]> {
        let mut of_q = vec![0f32; q.elem_count()];
        let mut of_k = vec![0f32; k.elem_count()];
        let mut of_v = vec![0f32; v.elem_count()];
        with_three([q, k, v], |given| -> candle_core::Result<()> {
            for round in rounds(self.spans) {
                let parts = self.parts(round);
                let slopes = parts.par_iter().map(|part| self.slopes(given, upper, *part));
                let slopes = slopes.collect::<candle_core::Result<Vec<[Vec<f32>; 3]>>>()?;
                for (part, [q, k, v]) in parts.iter().zip(&slopes) {
                    self.add(&mut of_q, self.of_queries(*part), part.span.own(), q);
                    self.add(&mut of_k, self.of_keys(*part), part.span.places(), k);
                    self.add(&mut of_v, self.of_keys(*part), part.span.places(), v);
                }
            }
            Ok(())
        })??;
        let tensor = |numbers: Vec<f32>, like: &Tensor| Tensor::from_vec(numbers, like.shape().clone(), &Device::Cpu);
        Ok([tensor(of_q, q)?, tensor(of_k, k)?, tensor(of_v, v)?])
    }

    fn parts<'s>(&self, spans: &'s [Span]) -> Vec<Part<'s>> {
        let keys = self.heads.keys;
        spans.iter().flat_map(|span| (0..keys).map(move |head| Part { span, head })).collect()
    }

    /// Heads of queries that share a head of keys.
    fn group(&self) -> usize {
        self.heads.queries / self.heads.keys
    }

    fn of_queries(&self, part: Part<'_>) -> Place {
        (self.heads.queries, part.head * self.group())
    }

    fn of_keys(&self, part: Part<'_>) -> Place {
        (self.heads.keys, part.head)
    }

    /// So many heads of some tokens, one behind the other: `[count × tokens, size]`.
    fn take(
        &self,
        rows: &[f32],
        (all, first): Place,
        tokens: impl Iterator<Item = usize> + Clone,
        count: usize,
    ) -> Vec<f32> {
        let size = self.heads.size;
        let mut taken = Vec::new();
        for head in first..first + count {
            for token in tokens.clone() {
                taken.extend_from_slice(&rows[(token * all + head) * size..][..size]);
            }
        }
        taken
    }

    /// Adds heads to where they were taken from.
    fn add(&self, rows: &mut [f32], (all, first): Place, tokens: impl Iterator<Item = usize> + Clone, heads: &[f32]) {
        let size = self.heads.size;
        let places = (first..all).flat_map(|head| tokens.clone().map(move |token| (token * all + head) * size));
        for (place, numbers) in places.zip(heads.chunks_exact(size)) {
            rows[place..place + size].iter_mut().zip(numbers).for_each(|(row, number)| *row += number);
        }
    }

    fn scale(&self) -> f32 {
        (self.heads.size as f32).sqrt().recip()
    }

    fn prepared(&self, [q, k, v]: [&[f32]; 3], part: Part<'_>) -> candle_core::Result<Prepared> {
        let (span, size) = (part.span, self.heads.size);
        let mut q = self.take(q, self.of_queries(part), span.own(), self.group());
        let mut k = self.take(k, self.of_keys(part), span.places(), 1);
        let v = self.take(v, self.of_keys(part), span.places(), 1);
        self.angles.turn(&mut q, (span.before.len(), span.length), 1.0);
        self.angles.turn(&mut k, (0, span.seen()), 1.0);
        let rows = q.len() / size;
        let q = Tensor::from_vec(q, (rows, size), &Device::Cpu)?;
        let k = Tensor::from_vec(k, (span.seen(), size), &Device::Cpu)?;
        let v = Tensor::from_vec(v, (span.seen(), size), &Device::Cpu)?;
        let mut scores = product(&q, &k.t()?)?;
        softmax(&mut scores, span, self.scale());
        let weights = Tensor::from_vec(scores, (rows, span.seen()), &Device::Cpu)?;
        Ok(Prepared { q, k, v, weights })
    }

    fn slopes(&self, given: [&[f32]; 3], upper: &[f32], part: Part<'_>) -> candle_core::Result<[Vec<f32>; 3]> {
        let (span, size) = (part.span, self.heads.size);
        let Prepared { q, k, v, weights } = self.prepared(given, part)?;
        let (rows, _) = q.dims2()?;
        let upper = self.take(upper, self.of_queries(part), span.own(), self.group());
        let upper = Tensor::from_vec(upper, (rows, size), &Device::Cpu)?;
        let of_v = product(&weights.t()?, &upper)?;
        let mut of_scores = product(&upper, &v.t()?)?;
        with_floats(&weights, |weights| softmax_slopes(&mut of_scores, weights, span, self.scale()))?;
        let of_scores = Tensor::from_vec(of_scores, (rows, span.seen()), &Device::Cpu)?;
        let (mut of_q, mut of_k) = (product(&of_scores, &k)?, product(&of_scores.t()?, &q)?);
        self.angles.turn(&mut of_q, (span.before.len(), span.length), -1.0);
        self.angles.turn(&mut of_k, (0, span.seen()), -1.0);
        Ok([of_q, of_k, of_v])
    }
}

impl Prepared {
    fn taken(&self) -> candle_core::Result<Vec<f32>> {
        product(&self.weights, &self.v)
    }
}

/// Scores of a head.
fn scores(span: &Span) -> usize {
    span.length * span.seen()
}

/// Sequences that are worked on together: so many that there are no more scores at a time than the longest one has.
fn rounds(spans: &[Span]) -> Vec<&[Span]> {
    let most = spans.iter().map(scores).max().unwrap_or(0).max(TOGETHER);
    let (mut rounds, mut rest) = (Vec::new(), spans);
    while !rest.is_empty() {
        let mut sum = 0;
        let fits = |span: &&Span| {
            sum += scores(span);
            sum <= most
        };
        let (round, left) = rest.split_at(rest.iter().take_while(fits).count());
        rounds.push(round);
        rest = left;
    }
    rounds
}

/// How much the query of a row may see. Rows are queries of several heads, position after position.
fn visible(row: usize, span: &Span) -> usize {
    span.before.len() + row % span.length + 1
}

/// Softmax of scaled scores over what each query may see, in their place; what lies ahead becomes 0.
fn softmax(scores: &mut [f32], span: &Span, scale: f32) {
    let rows = scores.par_chunks_exact_mut(span.seen()).enumerate();
    rows.with_min_len(PIECE.div_ceil(span.seen())).for_each(|(row, scores)| {
        let (seen, ahead) = scores.split_at_mut(visible(row, span));
        let most = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0f32;
        for score in seen.iter_mut() {
            *score = (scale * (*score - most)).exp();
            sum += *score;
        }
        seen.iter_mut().for_each(|weight| *weight /= sum);
        ahead.fill(0.0);
    });
}

/// Turns gradients of weights into those of their scores.
fn softmax_slopes(slopes: &mut [f32], weights: &[f32], span: &Span, scale: f32) {
    let rows = slopes.par_chunks_exact_mut(span.seen()).zip(weights.par_chunks_exact(span.seen())).enumerate();
    rows.with_min_len(PIECE.div_ceil(span.seen())).for_each(|(row, (slopes, weights))| {
        let (seen, ahead) = slopes.split_at_mut(visible(row, span));
        let along: f32 = weights.iter().zip(seen.iter()).map(|(weight, slope)| weight * slope).sum();
        for (slope, weight) in seen.iter_mut().zip(weights) {
            *slope = scale * weight * (*slope - along);
        }
        ahead.fill(0.0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::rope::Frequencies;
    use crate::rng::Rng;

    const HEADS: Heads = Heads { queries: 4, keys: 2, size: 4 };

    /// Sequences of those lengths, of which each begins with so many tokens of the first one.
    fn spans(lengths: &[(usize, usize)]) -> Vec<Span> {
        let mut start = 0;
        let of = |(length, shared): &(usize, usize)| {
            let span = Span { start, length: *length, before: (0..*shared).collect() };
            start += length;
            span
        };
        lengths.iter().map(of).collect()
    }

    fn numbers(rng: &mut Rng, count: usize) -> Vec<f32> {
        (0..count).map(|_| 2.0 * rng.unit() - 1.0).collect()
    }

    #[test]
    fn given_sequences_then_the_gradients_of_queries_keys_and_values_are_the_slopes_of_what_is_taken() {
        let (spans, tokens) = (spans(&[(3, 0), (1, 0), (5, 0), (2, 3), (1, 2)]), 12);
        let angles = Frequencies::new(HEADS.size, 100.0, None).angles(5);
        let attention = Attention { heads: HEADS, spans: &spans, angles: &angles };
        let mut rng = Rng::of(7, &[]);
        let widths = [HEADS.queries * HEADS.size, HEADS.keys * HEADS.size, HEADS.keys * HEADS.size];
        let given = widths.map(|width| numbers(&mut rng, tokens * width));
        let upper = numbers(&mut rng, tokens * widths[0]);
        let tensors = |given: &[Vec<f32>; 3]| {
            let tensor = |at: usize| Tensor::from_slice(&given[at], (tokens, widths[at]), &Device::Cpu).unwrap();
            [tensor(0), tensor(1), tensor(2)]
        };
        let taken = |given: &[Vec<f32>; 3]| -> f64 {
            let tensors = tensors(given);
            let taken = attention.forward(tensors.each_ref()).unwrap().flatten_all().unwrap();
            let taken = taken.to_vec1::<f32>().unwrap();
            taken.iter().zip(&upper).map(|(one, other)| f64::from(*one) * f64::from(*other)).sum()
        };
        let found = attention.backward(tensors(&given).each_ref(), &upper).unwrap();
        for (which, found) in found.iter().enumerate() {
            let found = found.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            for (at, own) in found.iter().enumerate() {
                let moved = |by: f32| {
                    let mut moved = given.clone();
                    moved[which][at] += by;
                    taken(&moved)
                };
                let slope = (moved(5e-3) - moved(-5e-3)) / 1e-2;
                let own = f64::from(*own);
                assert!((slope - own).abs() < 1e-3 + 1e-2 * own.abs(), "{which} {at}: {slope} and {own}");
            }
        }
    }

    #[test]
    fn given_long_and_short_sequences_then_no_more_are_worked_on_together_than_the_longest_one_has_scores() {
        let counts = |lengths: &[(usize, usize)]| -> Vec<usize> {
            let spans = spans(lengths);
            rounds(&spans).into_iter().map(<[Span]>::len).collect()
        };
        assert_eq!(counts(&[(40, 0), (50, 0), (60, 10), (30, 20)]), [4]);
        assert_eq!(counts(&[(1000, 0), (600, 0), (600, 0), (10, 0), (900, 100)]), [1, 3, 1]);
        assert!(counts(&[]).is_empty());
    }
}
