use riverrun_schemas::ingest::LeafRun;
use riverrun_schemas::{ChunkId, DocumentId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// No search gives more hits than this; a larger `k` is cut to it.
pub const MAX_HITS: usize = 1_000;

/// How many hits beyond `k` an index is asked for, so that equal scores around the cut are ordered by chunk id and not by
/// where they happen to lie. More equal scores than this at the cut: which of them are given is up to the index.
pub(crate) const TIE_SLACK: usize = 32;

/// A chunk as the indexes hold it: enough to show and to cite it without asking anybody else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredChunk {
    /// Derived from document, version and span.
    pub chunk_id: ChunkId,
    /// The document.
    pub document_id: DocumentId,
    /// The document's version.
    pub version: String,
    /// Where the document came from.
    pub source: String,
    /// Place among the document's chunks, from 0.
    pub ordinal: i32,
    /// First byte in the stored text.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
    /// `stored_text[start..end]`, or the summary.
    pub text: String,
    /// Page, from 1, where the format has pages.
    pub page: Option<i32>,
    /// The headings above it, joined by ` > `.
    pub heading: Option<String>,
    /// What filters look at, see [`metadata_tags`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// 0 is a span of the text; above it is a summary of what lies below.
    #[serde(default, skip_serializing_if = "is_leaf")]
    pub layer: i32,
    /// Of a summary: the chunks that it was made of, in reading order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<LeafRun>,
}

fn is_leaf(layer: &i32) -> bool {
    *layer == 0
}

/// Most tags of a chunk; metadata beyond it can't be filtered by.
pub const MAX_TAGS: usize = 64;
/// Longest tag in bytes; a longer value can't be filtered by.
pub const MAX_TAG_BYTES: usize = 256;

/// A field of a document's metadata with one of its values, as both indexes hold it. `None` for a value that is no text,
/// number or truth, or is too long.
pub fn metadata_tag(field: &str, value: &Value) -> Option<String> {
    let value = match value {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    // The length keeps apart what could be field or value.
    let tag = format!("{}:{field}={value}", field.len());
    (tag.len() <= MAX_TAG_BYTES).then_some(tag)
}

/// The tags of a JSON object: one for each field, and one for each item of a field that is a list.
pub fn metadata_tags(metadata_json: &str) -> Vec<String> {
    let Ok(Value::Object(fields)) = serde_json::from_str(metadata_json) else { return Vec::new() };
    let of = |(field, value): (&String, &Value)| -> Vec<String> {
        match value {
            Value::Array(items) => items.iter().filter_map(|item| metadata_tag(field, item)).collect(),
            single => metadata_tag(field, single).into_iter().collect(),
        }
    };
    fields.iter().flat_map(of).take(MAX_TAGS).collect()
}

/// Which chunks a search may find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkFilter {
    /// Only those of these documents; empty for all.
    pub documents: Vec<DocumentId>,
    /// Only those that have, of each of these lists, one of its tags ([`metadata_tag`]).
    pub tags: Vec<Vec<String>>,
}

/// Which versions of a document are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Versions {
    /// Every one.
    All,
    /// Only this one.
    Only(String),
    /// Every one but this.
    Except(String),
}

/// Those of an index's hits that may be among the best `k`, whatever their chunk ids: what chunks hold is read for these alone.
pub(crate) fn contenders<H>(mut hits: Vec<H>, k: usize, score: impl Fn(&H) -> f32) -> Vec<H> {
    hits.sort_by(|a, b| score(b).total_cmp(&score(a)));
    if let Some(least) = k.checked_sub(1).and_then(|last| hits.get(last)).map(&score) {
        hits.retain(|hit| score(hit).total_cmp(&least).is_ge());
    }
    hits
}

/// Best first; equal scores by chunk id.
pub(crate) fn in_order<H>(mut hits: Vec<H>, k: usize, key: impl Fn(&H) -> (f32, ChunkId)) -> Vec<H> {
    hits.sort_by(|a, b| {
        let ((score_a, id_a), (score_b, id_b)) = (key(a), key(b));
        // As text: the order that everybody sees.
        score_b.total_cmp(&score_a).then_with(|| id_a.to_string().cmp(&id_b.to_string()))
    });
    hits.truncate(k);
    hits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn whatever_the_scores_then_the_best_of_the_contenders_are_the_best_of_all(scores in prop::collection::vec(0..6u8, 0..30), k in 0..12usize) {
            let hits: Vec<(f32, ChunkId)> = scores.iter().map(|score| (f32::from(*score), ChunkId::new())).collect();
            let some = contenders(hits.clone(), k, |(score, _)| *score);
            prop_assert_eq!(in_order(some.clone(), k, |hit| *hit), in_order(hits, k, |hit| *hit));
            if let Some((least, _)) = k.checked_sub(1).and_then(|last| some.get(last)) {
                prop_assert!(some.iter().skip(k).all(|(score, _)| score == least), "only equal ones are too many");
            }
        }
    }

    #[test]
    fn given_metadata_when_tagged_then_scalars_and_items_are_tags_and_nothing_is_mistaken() {
        assert_eq!(
            metadata_tags(r#"{"team":"a","year":2024,"live":true,"none":null,"deep":{"x":1},"tags":["x",1,[2]]}"#),
            ["4:team=\"a\"", "4:year=2024", "4:live=true", "4:tags=\"x\"", "4:tags=1"]
        );
        assert!(metadata_tags("[1]").is_empty() && metadata_tags("{").is_empty());
        assert_ne!(metadata_tag("a=", &json!("b")), metadata_tag("a", &json!("=b")));
        assert_ne!(metadata_tag("a", &json!("1")), metadata_tag("a", &json!(1)));
        assert_eq!(metadata_tag("a", &json!("x".repeat(300))), None);
    }
}
