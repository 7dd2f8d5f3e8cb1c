//! A search over several collections, as agents ask: each is searched by itself, and their best chunks become one list.
//!
//! A collection that can't be searched takes no other along: a note tells of it. Only when none can be searched, it is an error.

use std::cmp::Ordering;

use riverrun_schemas::{Collection, CollectionName, Namespace};

use super::error::RetrievalError;
use super::retriever::Retriever;
use super::types::{SearchItem, SearchRequest};

/// What was found in several collections.
#[derive(Debug, Default)]
pub struct Several {
    /// The best chunks, each with its collection.
    pub found: Vec<(Collection, SearchItem)>,
    /// Which collections were left out, and why. Those that [`Retriever::lacking`] tells of are not told twice.
    pub notes: Vec<String>,
}

impl Retriever {
    /// The best `k` chunks of some collections of a namespace; `None` is every collection of it.
    pub async fn search_several(
        &self,
        namespace: &Namespace,
        collections: Option<&[CollectionName]>,
        query: &str,
        k: usize,
    ) -> Result<Several, RetrievalError> {
        let names = match collections {
            Some(names) => names.to_vec(),
            None => self.collections(namespace).await?,
        };
        let mut several = Several::default();
        let (mut searched, mut failure) = (false, None);
        for name in names {
            let collection = Collection::new(namespace.clone(), name);
            let request = SearchRequest { k, ..SearchRequest::new(collection.clone(), query) };
            match self.search(&request).await {
                Ok(result) => {
                    searched = true;
                    several.found.extend(result.items.into_iter().map(|item| (collection.clone(), item)));
                }
                Err(error) => {
                    tracing::warn!(%collection, %error, "a collection is left out of a search");
                    several.notes.extend(left_out(&collection, &error));
                    failure.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failure.filter(|_| !searched) {
            return Err(error);
        }
        several.found.sort_by(|(_, a), (_, b)| better(a, b));
        several.found.truncate(k);
        Ok(several)
    }
}

fn left_out(collection: &Collection, error: &RetrievalError) -> Option<String> {
    let is_told = matches!(error, RetrievalError::Incomplete { .. });
    (!is_told).then(|| format!("{} was not searched: {error}", collection.quoted()))
}

/// Scores of one kind compare across collections: both are ranks fused, or both are the cross-encoder's. The best chunks of
/// two collections often have equal ranks: then the nearer one by meaning comes first, then by words, ids last.
fn better(a: &SearchItem, b: &SearchItem) -> Ordering {
    let by = |score: fn(&SearchItem) -> Option<f32>| {
        let of = |item: &SearchItem| score(item).unwrap_or(f32::NEG_INFINITY);
        of(b).total_cmp(&of(a))
    };
    b.score
        .total_cmp(&a.score)
        .then_with(|| by(|item| item.scores.dense))
        .then_with(|| by(|item| item.scores.sparse))
        .then_with(|| a.chunk_id.cmp(&b.chunk_id))
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::{ChunkId, DocumentId};
    use serde_json::json;

    use super::super::types::{Scores, Span};
    use super::*;

    fn item(id: &str, score: f64, dense: Option<f32>, sparse: Option<f32>) -> SearchItem {
        SearchItem {
            chunk_id: ChunkId::derive(&[id]),
            document_id: DocumentId::derive(&[id]),
            source: id.to_owned(),
            text: String::new(),
            score,
            scores: Scores { dense, sparse, fused: score, rerank: None },
            span: Span { start: 0, end: 0 },
            chunk: None,
            page: None,
            metadata: json!({}),
        }
    }

    #[test]
    fn given_equal_ranks_in_two_collections_when_they_become_one_list_then_the_nearer_one_comes_first() {
        let best = [
            item("score", 0.9, None, None),
            item("meaning", 0.5, Some(0.8), None),
            item("words", 0.5, Some(0.2), Some(9.0)),
            item("fewer words", 0.5, Some(0.2), Some(3.0)),
            item("no meaning", 0.5, None, Some(99.0)),
        ];
        let mut items = best.to_vec();
        items.reverse();
        items.sort_by(better);
        assert_eq!(items, best);
        let (a, b) = (item("a", 0.5, None, None), item("b", 0.5, None, None));
        assert_eq!(better(&a, &b), a.chunk_id.cmp(&b.chunk_id));
    }
}
