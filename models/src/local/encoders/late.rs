//! Late chunking: the whole text goes through the encoder, and the vector of a span is the mean of its tokens, which have seen what stands
//! around them. After Günther et al., "Late Chunking: Contextual Chunk Embeddings Using Long-Context Embedding Models" (2024, arXiv
//! 2409.04701), with their overlapping windows for a text that is longer than the model reads.

use std::ops::Range;

use tokio_util::sync::CancellationToken;

use super::batching;
use super::hidden::Wanted;
use super::layout::Pooling;
use super::sentence::{Embedded, SentenceEncoder};
use super::text::{self, EncodeError};
use super::tokens::Tokens;
use crate::spans::EmbedTokenizer;

/// Tokens of a window that are left free: a piece of a text may have a few more tokens than it had within the text.
const SLACK: usize = 8;
/// Least tokens of a window.
const MIN_WINDOW: usize = 16;

/// A stretch of the text that is encoded at once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Window {
    /// Its bytes.
    bytes: Range<usize>,
    /// The bytes whose tokens count from this window: up to the middle of what it shares with its neighbours.
    own: Range<usize>,
}

/// One vector for each span of `text`, in their order. `prefix` is what the model wants before documents.
pub(super) fn embed(
    encoder: &SentenceEncoder,
    tokens: &Tokens,
    prefix: &str,
    text: &str,
    spans: &[Range<usize>],
    caller: &CancellationToken,
) -> Result<Embedded, EncodeError> {
    if encoder.layout.pooling != Pooling::Mean {
        return Err(EncodeError("late chunking takes the mean of tokens, and this model does not".to_owned()));
    }
    let counted = |text: &str| tokens.tokens(text).map_err(|error| EncodeError(error.to_string()));
    let room = tokens.max_tokens().saturating_sub(counted(prefix)?.len() + SLACK);
    if room < MIN_WINDOW {
        return Err(EncodeError(format!("its window has room for only {room} tokens of a text")));
    }
    let windows = windows(&counted(text)?, text, room);
    let pieces = windows.iter().map(|window| format!("{prefix}{}", &text[window.bytes.clone()])).collect();
    let encodings = encoder.reader.encode::<String>(pieces)?;
    let truncated = encodings.iter().filter(|encoding| !encoding.get_overflowing().is_empty()).count();
    let lengths: Vec<usize> = encodings.iter().map(|encoding| encoding.len()).collect();
    let mut sums: Vec<Sum> = spans.iter().map(|_| Sum::default()).collect();
    for batch in batching::plan(&lengths) {
        text::check_waited_for(caller)?;
        let (ids, types) = text::joined(&encodings[batch.clone()]);
        let hidden = encoder.encoder.forward(&ids, &types, &lengths[batch.clone()], Wanted::All)?;
        let mut rows = hidden.rows();
        for index in batch {
            let (window, encoding) = (&windows[index], &encodings[index]);
            for ((start, end), special) in encoding.get_offsets().iter().zip(encoding.get_special_tokens_mask()) {
                let Some(row) = rows.next() else { continue };
                if *special == 1 || *start < prefix.len() {
                    continue;
                }
                let place = |offset: usize| window.bytes.start + offset - prefix.len();
                let token = place(*start)..place(*end);
                if window.own.contains(&token.start) {
                    add(&mut sums, spans, &token, row);
                }
            }
        }
    }
    let mut vectors = Vec::with_capacity(spans.len());
    for (sum, span) in sums.into_iter().zip(spans) {
        vectors.push(match sum.mean() {
            Some(mean) => encoder.normalized(mean),
            // The tokenizer makes nothing of its characters: what the model says of it alone.
            None => encoder.embed(vec![format!("{prefix}{}", &text[span.clone()])], caller)?.vectors.swap_remove(0),
        });
    }
    Ok(Embedded { vectors, truncated, tokens: lengths.iter().sum::<usize>() as u64 })
}

/// Windows of at most `room` tokens that overlap by half, so that every token has at least a quarter of a window on both sides, except
/// at the ends of the text.
fn windows(tokens: &[Range<usize>], text: &str, room: usize) -> Vec<Window> {
    let mut starts = vec![0];
    let last = |starts: &[usize]| starts.last().copied().unwrap_or(0);
    while last(&starts) + room < tokens.len() {
        starts.push(last(&starts) + room / 2);
    }
    let byte = |token: usize| tokens.get(token).map_or(text.len(), |token| text.floor_char_boundary(token.start));
    let first = |window: usize| if window == 0 { 0 } else { byte(starts[window]) };
    // The middle of what a window shares with the one before it.
    let cut = |window: usize| if window == 0 { 0 } else { byte(starts[window] + room / 4) };
    (0..starts.len())
        .map(|window| {
            let is_last = window + 1 == starts.len();
            let end = if is_last { text.len() } else { byte(starts[window] + room) };
            Window { bytes: first(window)..end, own: cut(window)..if is_last { text.len() } else { cut(window + 1) } }
        })
        .collect()
}

#[derive(Default)]
struct Sum {
    vector: Vec<f32>,
    count: usize,
}

impl Sum {
    fn mean(self) -> Option<Vec<f32>> {
        let count = self.count as f32;
        (self.count > 0).then(|| self.vector.into_iter().map(|sum| sum / count).collect())
    }
}

/// Adds a token to every span that it has a byte in.
fn add(sums: &mut [Sum], spans: &[Range<usize>], token: &Range<usize>, row: &[f32]) {
    for (sum, span) in sums.iter_mut().zip(spans) {
        if token.start.max(span.start) < token.end.min(span.end) {
            sum.vector.resize(row.len(), 0.0);
            sum.vector.iter_mut().zip(row).for_each(|(all, one)| *all += *one);
            sum.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_texts_of_any_length_when_windows_are_laid_then_every_byte_is_owned_once_and_none_is_too_long() {
        for count in [0, 1, 15, 16, 17, 40, 100, 1_001] {
            let text = "ab ".repeat(count);
            let tokens: Vec<Range<usize>> = (0..count).map(|n| n * 3..n * 3 + 2).collect();
            let windows = windows(&tokens, &text, 16);
            let mut owned = 0;
            for window in &windows {
                assert_eq!(window.own.start, owned, "{windows:?}");
                owned = window.own.end;
                assert!(window.bytes.start <= window.own.start && window.own.end <= window.bytes.end, "{window:?}");
                assert!(tokens.iter().filter(|token| window.bytes.contains(&token.start)).count() <= 16);
            }
            assert_eq!(owned, text.len());
        }
    }

    #[test]
    fn given_tokens_when_spans_overlap_then_each_is_the_mean_of_its_own() {
        let spans = [0..4, 2..6, 8..9];
        let mut sums: Vec<Sum> = spans.iter().map(|_| Sum::default()).collect();
        add(&mut sums, &spans, &(0..2), &[1.0, 0.0]);
        add(&mut sums, &spans, &(3..5), &[3.0, 2.0]);
        add(&mut sums, &spans, &(6..6), &[9.0, 9.0]);
        let means: Vec<Option<Vec<f32>>> = sums.into_iter().map(Sum::mean).collect();
        assert_eq!(means, [Some(vec![2.0, 1.0]), Some(vec![3.0, 2.0]), None]);
    }
}
