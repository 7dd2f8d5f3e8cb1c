use riverrun_stores::read_models::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A canvas to be kept.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CanvasBody {
    /// The revision that was changed; 0 for a canvas that is new.
    pub revision: i64,
    /// The canvas, in the format of `/canvas.schema.json`; at most 512 KiB. Its `name` is the name in lists.
    #[schema(value_type = Object)]
    pub document: Value,
    /// The namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A canvas in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CanvasEntry {
    /// Its id within the namespace.
    pub canvas_id: String,
    /// The namespace.
    pub namespace: String,
    /// Its name for people.
    pub name: String,
    /// Counts from 1.
    pub revision: i64,
    /// When that was saved.
    #[schema(value_type = String, format = DateTime)]
    pub saved_at: Timestamp,
    /// Length of the canvas as JSON, in bytes.
    pub size_bytes: i64,
}

/// A canvas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CanvasView {
    /// Its id within the namespace.
    pub canvas_id: String,
    /// The namespace.
    pub namespace: String,
    /// Its name for people.
    pub name: String,
    /// Counts from 1; who saves the next one names this one.
    pub revision: i64,
    /// When that was saved.
    #[schema(value_type = String, format = DateTime)]
    pub saved_at: Timestamp,
    /// The canvas, in the format of `/canvas.schema.json`.
    #[schema(value_type = Object)]
    pub document: Value,
}

/// A canvas that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CanvasRemoved {
    /// Its id within the namespace.
    pub canvas_id: String,
    /// The namespace.
    pub namespace: String,
    /// Its last revision.
    pub revision: i64,
    /// Whether lists may still show it for a moment.
    pub pending: bool,
}
