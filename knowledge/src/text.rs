//! Words and sentences, the same for everything that compares texts.

use std::collections::BTreeSet;
use std::ops::Range;

use riverrun_stores::keywords::unspaced::{self, Pairs, Part};
use unicode_segmentation::UnicodeSegmentation;

/// Words that say nothing about what a sentence is about. English; in other languages short words count as content, which
/// makes the measure a little stricter.
const STOP_WORDS: &[&str] = &[
    "a",
    "about",
    "according",
    "all",
    "also",
    "am",
    "an",
    "and",
    "any",
    "are",
    "as",
    "at",
    "be",
    "because",
    "been",
    "being",
    "but",
    "by",
    "can",
    "could",
    "did",
    "do",
    "does",
    "for",
    "from",
    "had",
    "has",
    "have",
    "he",
    "her",
    "his",
    "how",
    "i",
    "if",
    "in",
    "into",
    "is",
    "it",
    "its",
    "just",
    "may",
    "me",
    "mentioned",
    "might",
    "more",
    "most",
    "my",
    "no",
    "not",
    "of",
    "on",
    "only",
    "or",
    "other",
    "our",
    "provided",
    "said",
    "says",
    "she",
    "should",
    "so",
    "some",
    "source",
    "sources",
    "stated",
    "such",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "to",
    "too",
    "was",
    "we",
    "were",
    "what",
    "when",
    "where",
    "which",
    "while",
    "who",
    "whose",
    "why",
    "will",
    "with",
    "would",
    "yes",
    "you",
    "your",
];

/// The distinct words of a text that carry content, folded so that forms of one word are equal. Scripts without spaces are cut as
/// keyword search cuts them.
pub(crate) fn content_words(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in unspaced::parts(text) {
        match part {
            Part::Spaced(text) => found.extend(spaced_words(text)),
            Part::Run(run) => found.extend(Pairs::of(run).map(|(_, pair)| pair.to_owned())),
        }
    }
    found
}

fn spaced_words(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.unicode_words().map(str::to_lowercase);
    words.filter(|word| !STOP_WORDS.contains(&word.as_str())).map(|word| fold(&word))
}

/// Whether a word carries a number.
pub(crate) fn is_number(word: &str) -> bool {
    word.chars().any(|c| c.is_ascii_digit())
}

/// Cuts common English endings. Crude, but the same on both sides of every comparison.
fn fold(word: &str) -> String {
    if is_number(word) {
        return word.replace(',', "");
    }
    let word = word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word);
    let mut stem = word;
    for (ending, least) in [("ing", 6), ("ed", 5), ("es", 5), ("s", 4), ("e", 4)] {
        if stem.len() >= least && stem.is_ascii() && !stem.ends_with("ss") {
            stem = stem.strip_suffix(ending).unwrap_or(stem);
        }
    }
    match stem.strip_suffix(['y', 'i']) {
        Some(rest) if stem.len() > 3 => format!("{rest}i"),
        _ => stem.to_owned(),
    }
}

/// The sentences of a text as byte ranges without surrounding white space: by UAX #29, with lines joined where one is only
/// wrapped, so that a hard-wrapped paragraph still has whole sentences.
pub(crate) fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for (start, part) in text.split_sentence_bound_indices() {
        let end = start + part.len();
        match found.last_mut().filter(|_| open && !starts_block(part)) {
            Some(last) => last.end = end,
            None => found.push(start..end),
        }
        open = is_wrapped(part);
    }
    found.into_iter().filter_map(|range| trimmed(text, range)).collect()
}

/// Whether a part ends at a line's end but not at a sentence's.
fn is_wrapped(part: &str) -> bool {
    let body = part.strip_suffix("\r\n").or_else(|| part.strip_suffix('\n')).unwrap_or(part);
    let is_heading = body.trim_start().starts_with('#');
    body.len() < part.len()
        && !body.trim().is_empty()
        && !is_heading
        && !body.trim_end().ends_with(['.', '!', '?', ':', '…', '。', '！', '？', '|'])
}

/// Whether a line opens a paragraph, a list item, a heading, a quote, a table or a fence.
fn starts_block(part: &str) -> bool {
    let line = part.trim_start_matches([' ', '\t']);
    let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_item = item.len() < line.len() && item.starts_with(['.', ')']);
    is_item || line.trim().is_empty() || line.starts_with(['#', '>', '|', '*', '-', '+', '`'])
}

fn trimmed(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    let end = range.start + part.trim_end().len();
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        sentences(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn given_prose_lists_and_wrapped_lines_when_split_then_sentences_are_whole() {
        assert_eq!(parts("One two. Three four!  Five?"), ["One two.", "Three four!", "Five?"]);
        assert_eq!(parts("The river\nruns north.\nThen west."), ["The river\nruns north.", "Then west."]);
        assert_eq!(
            parts("# Head\nBody text\n\n- one\n- two\n1. three\n"),
            ["# Head", "Body text", "- one", "- two", "1. three"]
        );
        assert_eq!(parts("a\r\nb\r\n\r\nc"), ["a\r\nb", "c"]);
        assert_eq!(parts("它发源于山。流向北方。"), ["它发源于山。", "流向北方。"]);
        assert_eq!(parts(" \n "), Vec::<&str>::new());
    }

    #[test]
    fn given_forms_of_a_word_when_compared_then_they_are_equal() {
        for (a, b) in [
            ("rivers", "river"),
            ("rises", "rise"),
            ("rising", "rises"),
            ("cities", "city"),
            ("Rhine's", "rhine"),
            ("1,233", "1233"),
            ("flowed", "flows"),
        ] {
            assert_eq!(content_words(a), content_words(b), "{a} {b}");
        }
        assert!(content_words("Yes, it is the one that was mentioned.").len() == 1);
        assert_ne!(content_words("glass"), content_words("gla"));
    }

    #[test]
    fn given_scripts_without_spaces_when_cut_then_their_words_are_pairs() {
        let words: Vec<String> = content_words("Kafka的配置, 水").into_iter().collect();
        assert_eq!(words, ["kafka", "水", "的配", "配置"]);
    }

    proptest! {
        #[test]
        fn sentences_lie_in_order_and_cover_all_words(text in "(\\PC|[ \r\n.]){0,200}") {
            let found = sentences(&text);
            let mut covered = 0;
            for range in &found {
                prop_assert!(text[covered..range.start].trim().is_empty() && range.start < range.end);
                covered = range.end;
            }
            prop_assert!(text[covered..].trim().is_empty());
        }
    }
}
