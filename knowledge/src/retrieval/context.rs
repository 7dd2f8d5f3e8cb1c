//! What stands around a chunk in its document: small chunks are found, larger pieces are read.
//!
//! The pieces are parts of the stored text, byte for byte, so that what is quoted from them has a span as exact as a chunk's
//! own. What a better piece shows is left out of what stands around the others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use async_trait::async_trait;
use riverrun_schemas::{Collection, DocumentId};

use super::types::{SearchItem, Span};

/// Most bytes that are shown before and behind a chunk.
pub const MAX_CONTEXT_BYTES: usize = 20_000;

/// A stored text could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextFailure(pub String);

/// Where the texts are that spans of chunks count in.
#[async_trait]
pub trait StoredTexts: Send + Sync {
    /// The text of a version of a document; `None` when it is not there any more.
    async fn text(
        &self,
        collection: &Collection,
        document: DocumentId,
        version: &str,
    ) -> Result<Option<String>, TextFailure>;
}

/// Stored texts by document and version; `None` is one that is gone.
#[derive(Debug, Default)]
pub(crate) struct Texts(HashMap<(DocumentId, String), Option<String>>);

impl Texts {
    /// Reads the text that an item is of, unless it is here already.
    pub(crate) async fn add(
        &mut self,
        from: &dyn StoredTexts,
        collection: &Collection,
        item: &SearchItem,
    ) -> Result<(), TextFailure> {
        let (document, version) = key(item);
        if let Entry::Vacant(place) = self.0.entry((document, version.clone())) {
            place.insert(from.text(collection, document, &version).await?);
        }
        Ok(())
    }

    /// The text that an item is a part of. A summary is a part of none, and a text that is not what was indexed is not its.
    fn of(&self, item: &SearchItem) -> Option<&str> {
        let text = self.0.get(&key(item))?.as_deref()?;
        let stands = text.get(range(item.span)?)? == item.text;
        stands.then_some(text)
    }
}

fn key(item: &SearchItem) -> (DocumentId, String) {
    (item.document_id, item.version().unwrap_or_default().to_owned())
}

fn range(span: Span) -> Option<Range<usize>> {
    Some(usize::try_from(span.start).ok()?..usize::try_from(span.end).ok()?)
}

/// The bytes of a span with so many before and behind it, cut at characters; `None` when the text has no such span.
pub fn window(text: &str, start: usize, end: usize, around: usize) -> Option<Range<usize>> {
    if start > end || end > text.len() {
        return None;
    }
    let from = text.ceil_char_boundary(start.saturating_sub(around));
    let to = text.floor_char_boundary(end.saturating_add(around).min(text.len()));
    Some(from..to)
}

/// The items, best first, each with so many bytes of its document before and behind it. One that a better piece shows
/// whole is left out; one whose text is not at hand stays as it is.
pub(crate) fn widen(items: &[SearchItem], texts: &Texts, around: usize) -> Vec<SearchItem> {
    let mut shown: HashMap<(DocumentId, String), Vec<Range<usize>>> = HashMap::new();
    let piece = |item: &SearchItem| {
        let found = texts.of(item).zip(range(item.span)).filter(|_| around > 0);
        let Some((text, own)) = found else { return Some(item.clone()) };
        let Some(wide) = window(text, own.start, own.end, around) else { return Some(item.clone()) };
        let before = shown.entry(key(item)).or_default();
        if before.iter().any(|other| other.start <= own.start && own.end <= other.end) {
            return None;
        }
        let piece = without(wide, &own, before);
        let span = Span { start: piece.start as i64, end: piece.end as i64 };
        let wider = item.widened(&text[piece.clone()], span);
        before.push(piece);
        Some(wider)
    };
    items.iter().filter_map(piece).collect()
}

/// What of a window no other piece shows; the chunk's own bytes stay in any case.
fn without(window: Range<usize>, own: &Range<usize>, others: &[Range<usize>]) -> Range<usize> {
    let (mut from, mut to) = (window.start, window.end);
    for other in others {
        if other.start < own.start && other.end > from {
            from = other.end.min(own.start);
        }
        if other.end > own.end && other.start < to {
            to = other.start.max(own.end);
        }
    }
    from..to
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use proptest::prelude::*;
    use riverrun_schemas::ChunkId;
    use serde_json::json;

    use super::*;
    use crate::retrieval::Scores;

    const TEXT: &str =
        "Der Zaun ist zwölf Meter lang. 𝄞 Das Tor ist grün und aus Eiche. Hinter ihm beginnt der Garten.";

    fn document() -> DocumentId {
        DocumentId::derive(&["a.md"])
    }

    fn texts(text: Option<&str>) -> Texts {
        Texts(HashMap::from([((document(), "v1".to_owned()), text.map(str::to_owned))]))
    }

    fn item(text: &str, span: Range<usize>) -> SearchItem {
        SearchItem {
            chunk_id: ChunkId::derive(&[&format!("{span:?}")]),
            document_id: document(),
            source: "a.md".to_owned(),
            text: text.to_owned(),
            score: 1.0,
            scores: Scores { dense: None, sparse: None, fused: 1.0, rerank: None },
            span: Span { start: span.start as i64, end: span.end as i64 },
            chunk: None,
            page: Some(3),
            metadata: json!({"version": "v1"}),
        }
    }

    fn chunk(words: &str) -> SearchItem {
        let start = TEXT.find(words).unwrap();
        item(words, start..start + words.len())
    }

    fn shown(items: &[SearchItem], around: usize) -> Vec<String> {
        widen(items, &texts(Some(TEXT)), around).into_iter().map(|item| item.text).collect()
    }

    #[test]
    fn given_a_span_when_widened_then_no_character_is_cut_and_the_ends_hold() {
        let text = "ääbcdöö";
        let shown = |start, end, around| window(text, start, end, around).map(|range| &text[range]);
        assert_eq!(shown(4, 7, 1), Some("bcd"));
        assert_eq!(shown(4, 7, 2), Some("äbcdö"));
        assert_eq!(shown(4, 7, usize::MAX), Some(text));
        assert_eq!(shown(4, 100, 1), None);
    }

    #[test]
    fn given_chunks_of_one_document_when_widened_then_what_a_better_one_shows_is_left_out_of_the_rest() {
        let (gate, garden) = (chunk("Das Tor ist grün"), chunk("beginnt der Garten"));
        assert_eq!(shown(from_ref(&gate), 5), ["𝄞 Das Tor ist grün und "]);
        assert_eq!(
            shown(&[gate.clone(), garden.clone()], 20),
            ["lf Meter lang. 𝄞 Das Tor ist grün und aus Eiche. Hint", "er ihm beginnt der Garten."]
        );
        let within = chunk("und aus");
        assert_eq!(shown(&[gate.clone(), within.clone()], 20).len(), 1, "the better one shows it whole");
        assert_eq!(shown(&[within.clone(), gate.clone()], 3), ["n und aus Ei", " Das Tor ist grün"]);
        assert_eq!(
            shown(&[within, gate.clone()], 8),
            ["t grün und aus Eiche. ", "g. 𝄞 Das Tor ist grün"],
            "a chunk's own bytes stay"
        );
        assert_eq!(shown(&[gate.clone(), garden], 0), ["Das Tor ist grün", "beginnt der Garten"]);
        let wide = widen(from_ref(&gate), &texts(Some(TEXT)), 5).remove(0);
        assert_eq!((wide.chunk_span(), wide.chunk_id, wide.score), (gate.span, gate.chunk_id, gate.score));
    }

    #[test]
    fn given_a_text_that_is_gone_or_another_when_widened_then_the_chunk_stays_as_it_is() {
        let gate = chunk("Das Tor ist grün");
        let summary = item("A garden behind a gate.", 0..TEXT.len());
        for (item, text) in [
            (&gate, None),
            (&gate, Some("Ein ganz anderer Text, der ebenso lang ist, aber nichts vom Tor und seinen Farben sagt.")),
            (&gate, Some("kurz")),
            (&summary, Some(TEXT)),
        ] {
            assert_eq!(widen(from_ref(item), &texts(text), 50), from_ref(item));
        }
        assert_eq!(widen(from_ref(&gate), &Texts::default(), 50), [gate]);
    }

    #[test]
    fn given_a_widened_chunk_when_bytes_of_it_are_cited_then_they_have_its_page_only_within_the_chunk() {
        let gate = chunk("Das Tor ist grün");
        let wide = widen(from_ref(&gate), &texts(Some(TEXT)), 30).remove(0);
        let at = |start: i64| wide.page_of(Span { start, end: start + 1 });
        assert_eq!((at(gate.span.start), at(gate.span.end - 1)), (Some(3), Some(3)));
        assert_eq!((at(gate.span.start - 1), at(gate.span.end)), (None, None));
        assert_eq!(gate.page_of(Span { start: 0, end: 1 }), Some(3), "a chunk that is shown alone is on its page");
    }

    proptest! {
        #[test]
        fn pieces_are_the_stored_bytes_and_hold_every_chunk(
            spans in prop::collection::vec((0..TEXT.len(), 1..30usize), 1..6),
            around in 0..60usize,
        ) {
            let cut = |(start, length): &(usize, usize)| {
                let from = TEXT.floor_char_boundary(*start);
                let to = TEXT.ceil_char_boundary((start + length).min(TEXT.len()));
                item(&TEXT[from..to], from..to)
            };
            let items: Vec<SearchItem> = spans.iter().map(cut).collect();
            let pieces = widen(&items, &texts(Some(TEXT)), around);
            for piece in &pieces {
                prop_assert_eq!(&TEXT[range(piece.span).unwrap()], piece.text.as_str());
            }
            for item in &items {
                let holds = |piece: &SearchItem| piece.span.start <= item.span.start && item.span.end <= piece.span.end;
                prop_assert!(pieces.iter().any(holds), "{:?} is in none of {:?}", item.span, pieces);
            }
        }
    }
}
