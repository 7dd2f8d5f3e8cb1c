//! Canvases that are kept on the server: `riverrun.canvases`, keyed by namespace and canvas, so that all of a canvas is in one
//! order. Of two that saved the same revision, the first one on the log counts.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::ids::EventId;
use crate::names::{CanvasId, Namespace};

/// Somebody saved a canvas. It counts when its revision is one more than that of the canvas at its place on the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CanvasSaved {
    /// The canvas.
    pub canvas_id: CanvasId,
    /// The namespace.
    pub namespace: Namespace,
    /// The request; one that comes twice is the same one.
    pub save_id: EventId,
    /// Its name for people.
    pub name: String,
    /// Counts from 1.
    pub revision: i64,
    /// JSON of the format `riverrun.canvas`.
    pub document: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A canvas is gone, whatever its revision. The next one of that id begins at revision 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CanvasDeleted {
    /// The canvas.
    pub canvas_id: CanvasId,
    /// The namespace.
    pub namespace: Namespace,
    /// The request.
    pub delete_id: EventId,
    /// Milliseconds since the epoch.
    pub at: i64,
}

event_set! {
    /// Events of canvases.
    CanvasEvent on Canvases;
    /// Somebody saved one.
    CanvasSaved = "riverrun.canvases.CanvasSaved", key |e| format!("{}/{}", e.namespace, e.canvas_id), id |e| e.save_id;
    /// One is gone.
    CanvasDeleted = "riverrun.canvases.CanvasDeleted", key |e| format!("{}/{}", e.namespace, e.canvas_id), id |e| e.delete_id;
}

impl CanvasEvent {
    /// The canvas that is spoken of, with its namespace.
    pub fn canvas(&self) -> (&Namespace, &CanvasId) {
        match self {
            CanvasEvent::CanvasSaved(e) => (&e.namespace, &e.canvas_id),
            CanvasEvent::CanvasDeleted(e) => (&e.namespace, &e.canvas_id),
        }
    }
}
