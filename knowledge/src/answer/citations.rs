//! From a filtered answer and its chunks to checked citations. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use super::support::{self, Words};
use super::types::{AnswerSentence, Attribution, Citation};
use crate::retrieval::{SearchItem, Span};
use crate::text;

/// An answer after the check.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The answer with the numbers that were added.
    pub answer: String,
    /// By number.
    pub citations: Vec<Citation>,
    /// Every sentence of the answer, in order.
    pub sentences: Vec<AnswerSentence>,
}

impl Checked {
    /// Whether it answers the question: models add that the sources do not say more to what they do say.
    pub(super) fn is_answer(&self) -> bool {
        !is_refusal(&self.answer) || self.sentences.iter().any(|sentence| sentence.supported == Some(true))
    }
}

/// A number that stands in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cited {
    /// The number of a chunk, from 1.
    pub n: usize,
    /// Who put it there.
    pub attributed: Attribution,
}

/// A marker and where it stands in the text without markers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marker {
    at: usize,
    written: String,
    cited: Cited,
    sentence: usize,
}

/// Checks an answer that went through [`super::MarkerFilter`] against the chunks that the model saw, numbered from 1 in their
/// order. A sentence that names no source, or none that supports it, gets the number of the chunk that supports it best, if
/// one does.
pub fn check(answer: &str, question: &str, chunks: &[&SearchItem]) -> Checked {
    let (plain, found) = take_out_markers(answer);
    let ranges = text::sentences(&plain);
    let mut markers: Vec<Marker> =
        found.into_iter().map(|(at, written, n)| own_marker(&plain, &ranges, at, written, n)).collect();
    let chunk_words: Vec<Words> = chunks.iter().map(|chunk| Words::of(&chunk.text)).collect();
    let sentence_words: Vec<Words> = ranges.iter().map(|range| Words::of(&plain[range.clone()])).collect();
    let question_words = Words::of(question);
    for (index, range) in ranges.iter().enumerate() {
        let cited = numbers_of(&markers, index);
        if is_supported(&sentence_words[index], &cited, &chunk_words) == Some(true) || is_refusal(&plain[range.clone()])
        {
            continue;
        }
        if let Some(n) =
            best_chunk(&sentence_words[index], &question_words, &chunk_words).filter(|n| !cited.contains(n))
        {
            markers.push(added_marker(&plain, range, index, n));
        }
    }
    // Stable: markers at one place stay in the order in which they were written, added ones behind them.
    markers.sort_by_key(|marker| marker.at);
    let sentences = sentences(&plain, &ranges, &markers, &sentence_words, &chunk_words);
    Checked {
        answer: put_back(&plain, &markers),
        citations: citations(&markers, &sentence_words, chunks, &chunk_words),
        sentences,
    }
}

/// Whether the model said that the chunks do not answer the question.
pub(super) fn is_refusal(sentence: &str) -> bool {
    let words =
        |text: &str| text.to_lowercase().chars().filter(|c| c.is_alphanumeric() || *c == ' ').collect::<String>();
    words(sentence).contains(words(super::prompt::NO_ANSWER).trim())
}

/// Parts text and markers. A marker takes the space before it along.
fn take_out_markers(answer: &str) -> (String, Vec<(usize, String, usize)>) {
    let mut plain = String::with_capacity(answer.len());
    let mut markers = Vec::new();
    let mut rest = answer;
    while let Some(open) = rest.find('[') {
        let (before, from) = rest.split_at(open);
        match marker_at(from) {
            Some((len, n)) => {
                plain.push_str(before);
                let kept = plain.trim_end_matches(' ').len();
                let spaces = plain.split_off(kept);
                markers.push((kept, format!("{spaces}{}", &from[..len]), n));
                rest = &from[len..];
            }
            None => {
                plain.push_str(before);
                plain.push('[');
                rest = &from[1..];
            }
        }
    }
    plain.push_str(rest);
    (plain, markers)
}

fn marker_at(text: &str) -> Option<(usize, usize)> {
    let (digits, _) = text.strip_prefix('[')?.split_once(']')?;
    let n = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    Some((digits.len() + 2, n))
}

/// The sentence that a marker belongs to: the one it stands in or behind; at the beginning of a line, the one that follows.
fn own_marker(plain: &str, ranges: &[Range<usize>], at: usize, written: String, n: usize) -> Marker {
    let opens_line =
        plain[..at].rsplit('\n').next().is_none_or(|line| line.trim_matches([' ', '-', '*', '\t']).is_empty());
    let line_goes_on = !plain[at..].split('\n').next().unwrap_or_default().trim().is_empty();
    let following = ranges.partition_point(|range| range.end <= at);
    let preceding = ranges.partition_point(|range| range.start < at).saturating_sub(1);
    let sentence = if opens_line && line_goes_on { following } else { preceding };
    Marker {
        at,
        written,
        cited: Cited { n, attributed: Attribution::Model },
        sentence: sentence.min(ranges.len().saturating_sub(1)),
    }
}

fn added_marker(plain: &str, range: &Range<usize>, sentence: usize, n: usize) -> Marker {
    let text = &plain[range.clone()];
    let at = range.start + text.trim_end_matches(['.', '!', '?', '…', '。', '！', '？', ':', ';']).len();
    Marker { at, written: format!(" [{n}]"), cited: Cited { n, attributed: Attribution::Overlap }, sentence }
}

fn numbers_of(markers: &[Marker], sentence: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> =
        markers.iter().filter(|marker| marker.sentence == sentence).map(|marker| marker.cited.n).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Whether the cited chunks together support a sentence; `None` for one that has no content words and so claims nothing.
fn is_supported(sentence: &Words, cited: &[usize], chunks: &[Words]) -> Option<bool> {
    if sentence.is_empty() {
        return None;
    }
    let mut together = Words::default();
    for chunk in cited.iter().filter_map(|n| chunks.get(n.checked_sub(1)?)) {
        together.extend(chunk);
    }
    Some(support::supports(sentence, &together))
}

fn best_chunk(sentence: &Words, question: &Words, chunks: &[Words]) -> Option<usize> {
    let scored =
        chunks.iter().enumerate().map(|(index, chunk)| (index + 1, support::attribution(sentence, question, chunk)));
    // The first of equals: the better ranked chunk.
    let best = scored.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    (best.1 > 0.0).then_some(best.0)
}

fn sentences(
    plain: &str,
    ranges: &[Range<usize>],
    markers: &[Marker],
    words: &[Words],
    chunks: &[Words],
) -> Vec<AnswerSentence> {
    let sentence = |(index, range): (usize, &Range<usize>)| {
        let citations = numbers_of(markers, index);
        let refusal = is_refusal(&plain[range.clone()]);
        let supported = is_supported(&words[index], &citations, chunks).filter(|_| !refusal);
        let own_end = markers
            .iter()
            .filter(|marker| marker.sentence == index)
            .map(|marker| marker.at)
            .fold(range.end, usize::max);
        let shift = |inside: &dyn Fn(&Marker) -> bool| {
            markers.iter().filter(|marker| inside(marker)).map(|marker| marker.written.len()).sum::<usize>()
        };
        let start = range.start
            + shift(&|marker| marker.at < range.start || (marker.at == range.start && marker.sentence < index));
        let end = own_end + shift(&|marker| marker.at < own_end || (marker.at == own_end && marker.sentence <= index));
        AnswerSentence { span: Span { start: start as i64, end: end as i64 }, citations, supported }
    };
    ranges.iter().enumerate().map(sentence).collect()
}

fn put_back(plain: &str, markers: &[Marker]) -> String {
    let mut answer = String::with_capacity(plain.len() + markers.len() * 4);
    let mut done = 0;
    for marker in markers {
        answer.push_str(&plain[done..marker.at]);
        answer.push_str(&marker.written);
        done = marker.at;
    }
    answer.push_str(&plain[done..]);
    answer
}

/// One citation for every number, by number.
fn citations(
    markers: &[Marker],
    sentence_words: &[Words],
    chunks: &[&SearchItem],
    chunk_words: &[Words],
) -> Vec<Citation> {
    let mut by_number: BTreeMap<usize, Vec<&Marker>> = BTreeMap::new();
    for marker in markers {
        by_number.entry(marker.cited.n).or_default().push(marker);
    }
    let citation = |(n, own): (usize, Vec<&Marker>)| {
        let (chunk, words) = (chunks.get(n - 1)?, chunk_words.get(n - 1)?);
        let citing: Vec<&Words> = own.iter().filter_map(|marker| sentence_words.get(marker.sentence)).collect();
        let quote = best_quote(&chunk.text, &citing);
        let span = quote_span(chunk, &quote);
        let from_model = own.iter().any(|marker| marker.cited.attributed == Attribution::Model);
        Some(Citation {
            n,
            chunk_id: chunk.chunk_id,
            document_id: chunk.document_id,
            source: chunk.source.clone(),
            span,
            chunk_span: chunk.chunk_span(),
            leaves: chunk.leaves(),
            page: chunk.page_of(span),
            quote: chunk.text[quote].to_owned(),
            supported: own.iter().any(|marker| cites_rightly(marker, markers, sentence_words, words, chunk_words)),
            attributed: if from_model { Attribution::Model } else { Attribution::Overlap },
        })
    };
    by_number.into_iter().filter(|(n, _)| *n > 0).filter_map(citation).collect()
}

/// Where a quote stands in the document. A summary's words stand nowhere: what it was made of does.
fn quote_span(chunk: &SearchItem, quote: &Range<usize>) -> Span {
    if chunk.is_verbatim() {
        Span { start: chunk.span.start + quote.start as i64, end: chunk.span.start + quote.end as i64 }
    } else {
        chunk.span
    }
}

/// Whether a chunk carries the sentence that cites it: alone, or as a good part of several that do together.
fn cites_rightly(
    marker: &Marker,
    markers: &[Marker],
    sentence_words: &[Words],
    chunk: &Words,
    chunk_words: &[Words],
) -> bool {
    let Some(sentence) = sentence_words.get(marker.sentence) else { return false };
    let together = || is_supported(sentence, &numbers_of(markers, marker.sentence), chunk_words) == Some(true);
    support::supports(sentence, chunk) || (support::share(sentence, chunk) >= support::THRESHOLD / 2.0 && together())
}

/// The sentence of a chunk that is most like one of the citing sentences; the first of equals.
fn best_quote(chunk: &str, citing: &[&Words]) -> Range<usize> {
    let score = |range: &Range<usize>| {
        let words = Words::of(&chunk[range.clone()]);
        citing.iter().map(|sentence| support::likeness(sentence, &words)).fold(0.0, f64::max)
    };
    let scored = text::sentences(chunk).into_iter().map(|range| (score(&range), range));
    scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map_or(0..chunk.len(), |(_, range)| range)
}

#[cfg(test)]
#[path = "citations_tests.rs"]
mod tests;
