//! What the model reads of what was found, and what it reads less of when its context has no room for all. Pure.
//!
//! What stands around chunks goes before any chunk does: half of it each time, then all of it, then the worst chunks.

use crate::retrieval::{SearchItem, Texts, widen};

/// Bytes around a chunk below which there is no use in showing any.
const LEAST_AROUND: usize = 100;

/// What was found, best first, and the texts that it is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) items: &'a [SearchItem],
    pub(super) texts: &'a Texts,
}

/// What the model reads.
#[derive(Debug)]
pub(super) struct Reading {
    /// In the order of their numbers. Fewer than chunks where one shows others, too.
    pub(super) passages: Vec<SearchItem>,
    /// How many of the chunks, from the best on, are in the passages.
    pub(super) seen: usize,
    around: usize,
}

impl Source<'_> {
    /// All chunks, with so many bytes around each.
    pub(super) fn all(self, around: usize) -> Reading {
        self.reading(self.items.len(), around)
    }

    fn reading(self, seen: usize, around: usize) -> Reading {
        Reading { passages: widen(&self.items[..seen], self.texts, around), seen, around }
    }
}

impl Reading {
    /// The next smaller reading; `None` when this is the least.
    pub(super) fn less(&self, source: Source<'_>) -> Option<Self> {
        match (self.around, self.seen) {
            (0, 0 | 1) => None,
            (0, seen) => Some(source.reading(seen - 1, 0)),
            (around, seen) => Some(source.reading(seen, narrower(around))),
        }
    }

    /// Whether it is the best chunk alone.
    pub(super) fn is_least(&self) -> bool {
        self.around == 0 && self.seen <= 1
    }

    /// What is to be said where less stands around the chunks than was wanted.
    pub(super) fn shortened(&self, wanted: usize) -> Option<String> {
        let around = self.around;
        (around < wanted).then(|| {
            format!(
                "the model read {around} instead of {wanted} bytes around each chunk: its context has no room for more"
            )
        })
    }
}

fn narrower(around: usize) -> usize {
    if around / 2 < LEAST_AROUND { 0 } else { around / 2 }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::{ChunkId, DocumentId};
    use serde_json::json;

    use super::*;
    use crate::retrieval::{Scores, Span};

    fn item(id: &str) -> SearchItem {
        SearchItem {
            chunk_id: ChunkId::derive(&[id]),
            document_id: DocumentId::derive(&[id]),
            source: id.to_owned(),
            text: "x".to_owned(),
            score: 1.0,
            scores: Scores { dense: None, sparse: None, fused: 1.0, rerank: None },
            span: Span { start: 0, end: 1 },
            chunk: None,
            page: None,
            metadata: json!({}),
        }
    }

    #[test]
    fn given_no_room_when_less_is_read_then_surroundings_go_before_chunks_and_the_best_chunk_is_the_least() {
        let (items, texts) = ([item("a"), item("b")], Texts::default());
        let source = Source { items: &items, texts: &texts };
        let mut read = source.all(900);
        let mut steps = vec![(read.around, read.seen)];
        while let Some(less) = read.less(source) {
            assert!(!read.is_least());
            read = less;
            steps.push((read.around, read.seen));
        }
        assert_eq!(steps, [(900, 2), (450, 2), (225, 2), (112, 2), (0, 2), (0, 1)]);
        assert!(read.is_least() && read.passages.len() == 1);
        assert_eq!(read.shortened(0), None);
        assert!(read.shortened(900).unwrap().contains("0 instead of 900 bytes"));
    }
}
