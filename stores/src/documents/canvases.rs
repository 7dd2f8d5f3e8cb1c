//! What an event of a canvas does to it. Pure.

use riverrun_schemas::canvases::CanvasEvent;

use super::{Change, DocumentKey, KeptDocument};

/// So many requests are remembered: whoever saved finds its own among them as long as no more came behind it.
const MAX_SAVES: usize = 32;

/// The change; `None` when the event does not count: it was read before, somebody else was first, or there is nothing to remove.
pub(super) fn change(before: Option<&KeptDocument>, event: &CanvasEvent, offset: i64) -> Option<Change> {
    if before.is_some_and(|before| before.offset >= offset) {
        return None;
    }
    let (namespace, id) = event.canvas();
    let key = DocumentKey::canvas(namespace, id);
    match event {
        CanvasEvent::CanvasSaved(saved) => {
            if saved.revision != before.map_or(0, |before| before.revision) + 1 {
                return None;
            }
            let mut saves = before.map(|before| before.saves.clone()).unwrap_or_default();
            saves.push(saved.save_id.to_string());
            saves.drain(..saves.len().saturating_sub(MAX_SAVES));
            Some(Change::Put(KeptDocument {
                key,
                name: saved.name.clone(),
                revision: saved.revision,
                at: saved.at,
                offset,
                saves,
                body: saved.document.clone(),
            }))
        }
        CanvasEvent::CanvasDeleted(_) => before.map(|_| Change::Remove { key, offset }),
    }
}
