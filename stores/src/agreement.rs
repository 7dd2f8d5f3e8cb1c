//! Which chunks vectors and keywords hold, read side by side in the order of their ids. A page of each is in memory at a time, however
//! large the collection.

use std::collections::VecDeque;

use riverrun_schemas::{ChunkId, Collection, DocumentId};
use serde::Deserialize;

use crate::error::StoreError;
use crate::keywords::KeywordIndex;
use crate::vectors::VectorStore;

/// Ids of an index that are read together.
const PAGE: usize = 1_000;

/// A chunk, and what it is a part of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ChunkKey {
    /// The chunk.
    pub chunk_id: ChunkId,
    /// Its document.
    pub document_id: DocumentId,
    /// The document's version.
    pub version: String,
}

/// Some of what an index holds, in the order of the chunks' ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPage<T> {
    /// As many as were asked for, or fewer.
    pub items: Vec<T>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<ChunkId>,
}

impl<T> KeyPage<T> {
    /// A page of `items`, of which one more than `limit` was asked for.
    pub(crate) fn of(mut items: Vec<T>, limit: usize, id: impl Fn(&T) -> ChunkId) -> Self {
        let next = items.get(limit).map(id);
        items.truncate(limit);
        Self { items, next }
    }
}

impl<T> Default for KeyPage<T> {
    fn default() -> Self {
        Self { items: Vec::new(), next: None }
    }
}

/// The next chunks of both indexes, by who holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// In both.
    pub both: Vec<ChunkKey>,
    /// In the vectors only.
    pub vectors: Vec<ChunkKey>,
    /// In the keywords only.
    pub keywords: Vec<ChunkKey>,
}

/// One of the two indexes: what was read of it and is not compared yet.
#[derive(Debug)]
struct Side<T> {
    waiting: VecDeque<T>,
    from: Option<ChunkId>,
    at_end: bool,
}

impl<T> Side<T> {
    fn new() -> Self {
        Self { waiting: VecDeque::new(), from: None, at_end: false }
    }

    fn wants_more(&self) -> bool {
        self.waiting.is_empty() && !self.at_end
    }

    fn take(&mut self, page: KeyPage<T>) {
        self.at_end = page.next.is_none();
        self.from = page.next;
        self.waiting.extend(page.items);
    }
}

/// Goes through both indexes of a collection.
pub struct Comparison<'s> {
    vectors: (&'s dyn VectorStore, Side<ChunkKey>),
    keywords: (&'s dyn KeywordIndex, Side<ChunkId>),
    collection: &'s Collection,
    page: usize,
}

impl<'s> Comparison<'s> {
    /// From the first chunk on.
    pub fn new(vectors: &'s dyn VectorStore, keywords: &'s dyn KeywordIndex, collection: &'s Collection) -> Self {
        Self { vectors: (vectors, Side::new()), keywords: (keywords, Side::new()), collection, page: PAGE }
    }

    /// Reads so many ids of an index together.
    #[must_use]
    pub fn in_pages_of(mut self, ids: usize) -> Self {
        self.page = ids.max(1);
        self
    }

    /// The next chunks; `None` when all were there.
    pub async fn next(&mut self) -> Result<Option<Compared>, StoreError> {
        let (vectors, held) = &mut self.vectors;
        while held.wants_more() {
            let page = vectors.keys(self.collection, held.from, self.page).await?;
            held.take(page);
        }
        let (keywords, found) = &mut self.keywords;
        while found.wants_more() {
            let page = keywords.ids(self.collection, found.from, self.page).await?;
            found.take(page);
        }
        if held.waiting.is_empty() && found.waiting.is_empty() {
            return Ok(None);
        }
        let (mut compared, of_keywords) = merge(held, found);
        if !of_keywords.is_empty() {
            compared.keywords = keywords.keys_of(self.collection, &of_keywords).await?;
        }
        Ok(Some(compared))
    }
}

/// Takes from both sides as far as it is known who holds what; the ids are those of the keywords only.
fn merge(vectors: &mut Side<ChunkKey>, keywords: &mut Side<ChunkId>) -> (Compared, Vec<ChunkId>) {
    let (mut compared, mut of_keywords) = (Compared::default(), Vec::new());
    loop {
        let (in_vectors, in_keywords) = match (vectors.waiting.front(), keywords.waiting.front()) {
            (Some(key), Some(id)) => (key.chunk_id <= *id, *id <= key.chunk_id),
            (Some(_), None) if keywords.at_end => (true, false),
            (None, Some(_)) if vectors.at_end => (false, true),
            (Some(_) | None, None) | (None, Some(_)) => return (compared, of_keywords),
        };
        let key = if in_vectors { vectors.waiting.pop_front() } else { None };
        let id = if in_keywords { keywords.waiting.pop_front() } else { None };
        match (key, id) {
            (Some(key), Some(_)) => compared.both.push(key),
            (Some(key), None) => compared.vectors.push(key),
            (None, id) => of_keywords.extend(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> ChunkKey {
        ChunkKey { chunk_id: id(number), document_id: DocumentId::derive(&["d"]), version: "v".to_owned() }
    }

    /// Ids that grow with the number.
    fn id(number: u32) -> ChunkId {
        format!("chk_{number:026}").parse().unwrap()
    }

    fn side<T>(waiting: Vec<T>, at_end: bool) -> Side<T> {
        Side { waiting: waiting.into(), from: None, at_end }
    }

    #[test]
    fn given_two_sides_when_one_may_go_on_then_nothing_is_said_of_what_it_may_hold_yet() {
        let of = |compared: &Compared| {
            let ids = |keys: &[ChunkKey]| keys.iter().map(|key| key.chunk_id).collect::<Vec<_>>();
            (ids(&compared.both), ids(&compared.vectors))
        };
        let mut vectors = side(vec![key(1), key(2), key(5), key(6)], false);
        let mut keywords = side(vec![id(2), id(3), id(5)], false);
        let (compared, of_keywords) = merge(&mut vectors, &mut keywords);
        assert_eq!((of(&compared), of_keywords), ((vec![id(2), id(5)], vec![id(1)]), vec![id(3)]));
        assert_eq!(vectors.waiting, [key(6)]);
        keywords.take(KeyPage::default());
        let (compared, of_keywords) = merge(&mut vectors, &mut keywords);
        assert_eq!((of(&compared), of_keywords), ((vec![], vec![id(6)]), vec![]));
    }

    #[test]
    fn given_one_more_than_asked_for_when_made_a_page_then_it_is_where_the_next_begins() {
        let page = KeyPage::of(vec![id(1), id(2), id(3)], 2, |id| *id);
        assert_eq!(page, KeyPage { items: vec![id(1), id(2)], next: Some(id(3)) });
        assert_eq!(KeyPage::of(vec![id(1)], 1, |id| *id).next, None);
    }
}
