//! How text becomes words: the same for chunks and queries.

use std::collections::HashSet;

use tantivy::tokenizer::{
    AsciiFoldingFilter, Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, TextAnalyzer,
};

/// Name of the analyzer in the index; another way of cutting text needs another name.
pub(super) const ANALYZER: &str = "riverrun_en_1";

/// A query of more different words is searched by its first ones.
pub(super) const MAX_QUERY_WORDS: usize = 64;

/// A longer run of letters and digits is no word, in bytes.
const MAX_WORD_BYTES: usize = 200;

/// Letters and digits in a row, lower case, without accents, English endings taken off. No word is left out for being
/// common: BM25 gives it next to no weight, and "The Who" is found.
pub(super) fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(SimpleTokenizer::default())
        .filter(RemoveLongFilter::limit(MAX_WORD_BYTES))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .filter(Stemmer::new(Language::English))
        .build()
}

/// The different words of a query, in order. Never parsed: no text has a meaning beyond its words.
pub(super) fn query_words(query: &str) -> Vec<String> {
    let mut analyzer = analyzer();
    let mut stream = analyzer.token_stream(query);
    let (mut words, mut seen) = (Vec::new(), HashSet::new());
    while words.len() < MAX_QUERY_WORDS && stream.advance() {
        let word = &stream.token().text;
        if !word.is_empty() && seen.insert(word.clone()) {
            words.push(word.clone());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_cut_folded_and_stemmed() {
        let table: [(&str, &[&str]); 6] = [
            ("Running runs runner", &["run", "runner"]),
            ("Crème brûlée, CAFÉ", &["creme", "brule", "cafe"]),
            ("the who", &["the", "who"]),
            ("a:(^\" OR NOT [x TO *]", &["a", "or", "not", "x", "to"]),
            ("E-4021 kafka.offset_reset", &["e", "4021", "kafka", "offset", "reset"]),
            ("(){}^~*?\\\"", &[]),
        ];
        for (query, words) in table {
            assert_eq!(query_words(query), words, "{query}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_at_most_so_many_words(query in ".{0,400}") {
            prop_assert!(query_words(&query).len() <= MAX_QUERY_WORDS);
        }
    }
}
