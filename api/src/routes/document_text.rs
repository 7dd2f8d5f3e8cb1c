//! The stored text of documents, which the spans of citations count in.

use std::ops::Range;

use axum::Json;
use axum::extract::State;
use riverrun_schemas::{Collection, DocumentId};
use riverrun_stores::read_models::{SpanView, documents as read};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::documents::unknown;
use crate::error::ApiError;
use crate::extract::{Path, Query, id};
use crate::state::AppState;
use crate::submit::{Checks, to_i64};
use crate::wire::{DocumentText, Problem};

/// Most bytes of one answer: 256 KiB; what is behind them is asked for with the next `start`.
const MAX_RANGE: usize = 256 << 10;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(text))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct TextQuery {
    /// The document's namespace; `default` when left out.
    namespace: Option<String>,
    /// The version; left out, the one that a search finds.
    version: Option<String>,
    /// First byte; 0 when left out.
    start: Option<usize>,
    /// First byte after the part. At most 256 KiB are answered.
    end: Option<usize>,
}

/// A part of a document's stored text: what the span of a citation names.
#[utoipa::path(get, path = "/documents/{id}/text", tag = "knowledge", params(("id" = String, Path), TextQuery),
    responses((status = 200, body = DocumentText), (status = 404, description = "no such document, or it has no such version", body = Problem),
        (status = 422, body = Problem)))]
async fn text(
    State(state): State<AppState>,
    Path(document): Path<String>,
    Query(query): Query<TextQuery>,
) -> Result<Json<DocumentText>, ApiError> {
    let document_id: DocumentId = id(&document)?;
    let mut checks = Checks::default();
    let namespace = checks.namespace(query.namespace.as_deref());
    let start = query.start.unwrap_or(0);
    checks.require(query.end.is_none_or(|end| end >= start), "end", format!("lies before start, which is {start}"));
    checks.finish()?;
    let parts = state.parts();
    let found = read::document_in(&parts.sql, &namespace, document_id)
        .await?
        .ok_or_else(|| unknown(document_id, &namespace))?;
    let version = query
        .version
        .or_else(|| found.indexed_version.clone())
        .ok_or_else(|| no_text(document_id, "it is still being read in"))?;
    let collection = Collection::new(found.namespace.clone(), found.collection.clone());
    let blob = read::document_text(&parts.sql, &collection, document_id, &version)
        .await?
        .ok_or_else(|| no_text(document_id, &format!("it has no version {version:?}")))?;
    let bytes = parts.blobs.get(&blob).await?;
    let stored = std::str::from_utf8(&bytes).map_err(|error| {
        ApiError::internal(format!("the stored text of document {document_id} is no UTF-8: {error}"))
    })?;
    let range = whole(stored, start, query.end);
    Ok(Json(DocumentText {
        document_id,
        namespace: found.namespace,
        collection: found.collection,
        source: found.source,
        title: found.title,
        version,
        size_bytes: stored.len(),
        span: SpanView { start: to_i64(range.start), end: to_i64(range.end) },
        text: stored[range].to_owned(),
    }))
}

fn no_text(document_id: DocumentId, why: &str) -> ApiError {
    ApiError::not_found("document_text_not_found", format!("document {document_id} has no such text: {why}"))
        .hint("GET /documents/{id} lists its versions")
}

/// The range in whole characters, within the text and within what one answer holds.
fn whole(text: &str, start: usize, end: Option<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(start.min(text.len()));
    let most = start.saturating_add(MAX_RANGE).min(text.len());
    let end = end.unwrap_or(most).clamp(start, most);
    start..text.ceil_char_boundary(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_range_when_it_is_made_whole_then_no_character_is_cut_and_nothing_asked_for_is_missing() {
        let text = "aäß€𝄞z";
        for start in 0..=text.len() + 2 {
            for end in (start..=text.len() + 2).map(Some).chain([None, Some(usize::MAX)]) {
                let range = whole(text, start, end);
                assert!(text.get(range.clone()).is_some(), "{start}..{end:?} became {range:?}");
                let asked = start.min(text.len())..end.unwrap_or(usize::MAX).min(text.len());
                assert!(range.start <= asked.start && range.end >= asked.end, "{asked:?} became {range:?}");
            }
        }
    }

    #[test]
    fn given_a_long_text_when_all_of_it_is_asked_for_then_the_answer_is_bounded_and_goes_on_where_it_ended() {
        let text = "€".repeat(MAX_RANGE);
        let (mut at, mut read) = (0, String::new());
        while at < text.len() {
            let range = whole(&text, at, None);
            assert!(range.len() < MAX_RANGE + 4 && range.end > at);
            at = range.end;
            read.push_str(&text[range]);
        }
        assert_eq!(read, text);
    }
}
