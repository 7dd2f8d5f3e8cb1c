//! What stands around a chunk in its document: small chunks are found, larger pieces are read.

use std::collections::HashMap;

use riverrun_knowledge::retrieval::window;
use riverrun_schemas::{Collection, DocumentId};
use riverrun_stores::read_models::{SpanView, documents};
use serde_json::Value;

use crate::error::ApiError;
use crate::state::AppState;
use crate::wire::SearchContext;

/// Adds `context` to each item of an answer: the chunk with `around` bytes before and behind it, cut at characters. A
/// chunk whose document is being removed has none.
pub(super) async fn add(
    state: &AppState,
    collection: &Collection,
    found: &mut Value,
    around: usize,
) -> Result<(), ApiError> {
    let mut texts: HashMap<(String, String), Option<String>> = HashMap::new();
    for item in found["items"].as_array_mut().into_iter().flatten() {
        let (document, version) = (text_of(&item["document_id"]), text_of(&item["metadata"]["version"]));
        let key = (document.clone(), version.clone());
        if !texts.contains_key(&key) {
            let text = stored_text(state, collection, &document, &version).await?;
            texts.insert(key.clone(), text);
        }
        let (start, end) = (position(&item["span"]["start"]), position(&item["span"]["end"]));
        if let Some(context) = texts[&key].as_deref().and_then(|text| shown(text, start, end, around)) {
            item["context"] = serde_json::to_value(context).map_err(|error| ApiError::internal(error.to_string()))?;
        }
    }
    Ok(())
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn position(value: &Value) -> usize {
    value.as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0)
}

async fn stored_text(
    state: &AppState,
    collection: &Collection,
    document: &str,
    version: &str,
) -> Result<Option<String>, ApiError> {
    let Ok(document) = document.parse::<DocumentId>() else { return Ok(None) };
    let Some(blob) = documents::document_text(&state.parts().sql, collection, document, version).await? else {
        return Ok(None);
    };
    let bytes = state.parts().blobs.get(&blob).await?;
    Ok(String::from_utf8(bytes.to_vec()).ok())
}

fn shown(text: &str, start: usize, end: usize, around: usize) -> Option<SearchContext> {
    let range = window(text, start, end, around)?;
    let span = SpanView { start: i64::try_from(range.start).ok()?, end: i64::try_from(range.end).ok()? };
    Some(SearchContext { span, text: text.get(range)?.to_owned() })
}
