//! BM25 as the product of two sparse vectors: what a chunk says of its words, and which words a query has.
//!
//! BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009) is a sum over the words of a query:
//!
//! ```text
//! idf(w) · tf(w)·(K1 + 1) / (tf(w) + K1·(1 - B + B·length/average))
//! ```
//!
//! The second factor depends on the chunk alone and is its weight for the word; the first on the whole collection, and the server
//! puts it on when it searches (the modifier `idf`: ln(1 + (N - n + 0.5)/(n + 0.5)), the same as tantivy's). `K1` and `B` are
//! tantivy's. The average length of a collection changes with every chunk, while weights stay: it is a constant here, so scores of
//! the two engines are close and not equal.

use std::collections::BTreeMap;

use crate::chunk::StoredChunk;
use crate::keywords::words::{analyzer, query_words};

/// How soon one more occurrence of a word says little.
const K1: f32 = 1.2;
/// How much a long chunk is held against its words.
const B: f32 = 0.75;
/// Words of a chunk of the usual size (800 characters), which stands for the average of a collection.
const AVERAGE_WORDS: f32 = 130.0;

/// Place and weight, places in order and each once.
pub(super) type Sparse = Vec<(u32, f32)>;

/// What a chunk says of its words; the heading is searched with the text.
pub(super) fn of_chunk(chunk: &StoredChunk) -> Sparse {
    let mut counts: BTreeMap<u32, f32> = BTreeMap::new();
    let mut length = 0.0;
    let mut analyzer = analyzer();
    for text in std::iter::once(chunk.text.as_str()).chain(chunk.heading.as_deref()) {
        let mut stream = analyzer.token_stream(text);
        while stream.advance() {
            *counts.entry(place(&stream.token().text)).or_default() += 1.0;
            length += 1.0;
        }
    }
    let norm = K1 * (1.0 - B + B * length / AVERAGE_WORDS);
    counts.into_iter().map(|(place, count)| (place, count * (K1 + 1.0) / (count + norm))).collect()
}

/// The words of a query, each once and all alike; empty for a text without a word.
pub(super) fn of_query(query: &str) -> Sparse {
    let places: BTreeMap<u32, f32> = query_words(query).iter().map(|word| (place(word), 1.0)).collect();
    places.into_iter().collect()
}

/// The place of a word among 2³²: FNV-1a (Fowler, Noll and Vo), the same for ever. Two words of one place are one word; of 100,000
/// words about one pair is.
fn place(word: &str) -> u32 {
    word.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use riverrun_schemas::{ChunkId, DocumentId};

    use super::*;

    fn chunk(text: &str, heading: Option<&str>) -> StoredChunk {
        StoredChunk {
            chunk_id: ChunkId::derive(&[text]),
            document_id: DocumentId::derive(&["a"]),
            version: "v1".into(),
            source: "a".into(),
            ordinal: 0,
            start: 0,
            end: 0,
            text: text.into(),
            page: None,
            heading: heading.map(str::to_owned),
            tags: Vec::new(),
            layer: 0,
            leaves: Vec::new(),
        }
    }

    fn weight(chunk: &StoredChunk, word: &str) -> f32 {
        let wanted = of_query(word)[0].0;
        of_chunk(chunk).iter().find(|(place, _)| *place == wanted).map_or(0.0, |(_, weight)| *weight)
    }

    #[test]
    fn given_words_when_they_are_placed_then_the_places_are_those_of_the_published_hash() {
        assert_eq!((place(""), place("a"), place("foobar")), (0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968));
    }

    #[test]
    fn given_chunks_when_they_are_weighed_then_more_of_a_word_says_more_and_length_less() {
        let once = chunk("soup is ready", None);
        let twice = chunk("soup and soup", None);
        let long = chunk(&format!("soup {}", "filler ".repeat(500)), None);
        assert!(weight(&twice, "soup") > weight(&once, "soup"));
        assert!(weight(&once, "soup") > weight(&long, "soup") && weight(&long, "soup") > 0.0);
        assert!(weight(&chunk(&"soup ".repeat(5_000), None), "soup") < K1 + 1.0, "a word alone is never everything");
        assert!(weight(&chunk("first do this", Some("Guides")), "guide") > 0.0, "a heading counts");
        assert_eq!(of_chunk(&chunk("(){}^~", None)), []);
    }

    #[test]
    fn given_a_chunk_of_average_length_when_it_is_weighed_then_a_word_that_is_there_once_weighs_one() {
        let text = (0..130).map(|n| format!("w{n} ")).collect::<String>();
        assert!((weight(&chunk(&text, None), "w7") - 1.0).abs() < 1e-5);
    }

    proptest! {
        #[test]
        fn any_text_gives_places_in_order_each_once_with_weights_that_are_finite(text in "\\PC{0,300}") {
            for sparse in [of_chunk(&chunk(&text, Some(&text))), of_query(&text)] {
                prop_assert!(sparse.windows(2).all(|pair| pair[0].0 < pair[1].0));
                prop_assert!(sparse.iter().all(|(_, weight)| weight.is_finite() && *weight > 0.0));
            }
        }
    }
}
