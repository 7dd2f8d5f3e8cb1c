//! How text becomes words: the same for chunks and queries.

use std::collections::HashSet;
use std::sync::LazyLock;

use tantivy::tokenizer::{
    AsciiFoldingFilter, Language, LowerCaser, RawTokenizer, RemoveLongFilter, Stemmer, StopWordFilter, TextAnalyzer,
};

use super::forms::Forms;
use super::tokens::Words;

/// Name of the analyzer in the index; another way of cutting text needs another name. An index of another name is made again from
/// the log.
pub(super) const ANALYZER: &str = "riverrun_en_2";

/// Names that it had: what is on a server under them is of no use any more.
pub(super) const FORMER_ANALYZERS: [&str; 1] = ["riverrun_en_1"];

/// A query of more different words is searched by its first ones.
pub(super) const MAX_QUERY_WORDS: usize = 64;

/// Words of a question that say nothing of what is asked for: the English list of the Natural Language Toolkit, after Porter's
/// of the Snowball project, less what also names something ("vitamin d", "who won"). Many small matches of these would
/// outweigh one of a telling word.
const STOP_WORDS: &str = "\
    a about above after again against ain all am an and any are aren as at be because been before being below \
    between both but by can couldn did didn do does doesn doing don down during each few for from further had hadn \
    has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just \
    ll me mightn more most mustn my myself needn no nor not now of off on once only or other our ours ourselves \
    out over own re s same shan she should shouldn so some such t than that the their theirs them themselves then \
    there these they this those through to too under until up ve very was wasn we were weren what when where which \
    while who whom why will with wouldn you your yours yourself yourselves";

/// A longer run of letters and digits is no word, in bytes.
const MAX_WORD_BYTES: usize = 200;

/// Every word of a chunk, of a query, and those of a query that [`STOP_WORDS`] leaves. Making one puts its words into a set, which takes
/// longer than cutting a query; a copy shares the set.
static CHUNK_WORDS: LazyLock<TextAnalyzer> = LazyLock::new(|| without(Words::of_chunks(), ""));
static ALL_WORDS: LazyLock<TextAnalyzer> = LazyLock::new(|| without(Words::of_queries(), ""));
static TELLING_WORDS: LazyLock<TextAnalyzer> = LazyLock::new(|| without(Words::of_queries(), STOP_WORDS));

/// What chunks are cut by: letters and digits in a row, lower case, without accents, English endings taken off; of scripts without
/// spaces pairs and characters. No word is left out for being common, so that "The Who" can be found.
pub(super) fn analyzer() -> TextAnalyzer {
    CHUNK_WORDS.clone()
}

fn without(tokenizer: Words, words: &str) -> TextAnalyzer {
    let filters = TextAnalyzer::builder(RawTokenizer::default())
        .filter(RemoveLongFilter::limit(MAX_WORD_BYTES))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .filter(StopWordFilter::remove(words.split_whitespace().map(str::to_owned)))
        .filter(Stemmer::new(Language::English))
        .build();
    TextAnalyzer::from(Forms::new(tokenizer, filters))
}

/// The different words of a query, in order; of one that has others too, without [`STOP_WORDS`]. Never parsed: no text has
/// a meaning beyond its words.
pub(super) fn query_words(query: &str) -> Vec<String> {
    let words = words_of(query, TELLING_WORDS.clone());
    if words.is_empty() { words_of(query, ALL_WORDS.clone()) } else { words }
}

fn words_of(query: &str, mut analyzer: TextAnalyzer) -> Vec<String> {
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
        let table: [(&str, &[&str]); 10] = [
            ("Running runs runner", &["run", "runner"]),
            ("Crème brûlée, CAFÉ", &["creme", "brule", "cafe"]),
            ("the who", &["the", "who"]),
            ("Where does the Elbe rise, and what isn't in it?", &["elb", "rise"]),
            ("a:(^\" OR NOT [x TO *]", &["x"]),
            ("E-4021 kafka.offset_reset", &["e", "4021", "kafka", "offset", "reset"]),
            ("(){}^~*?\\\"", &[]),
            ("東京都に行く", &["東京", "京都", "都に", "に行", "行く"]),
            ("水", &["水"]),
            ("What is Kafka的配置?", &["kafka", "的配", "配置"]),
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
