use riverrun_schemas::{CollectionName, DocumentId, Namespace};
use riverrun_stores::read_models::SpanView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of the stored text of a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentText {
    /// The document.
    #[schema(value_type = String)]
    pub document_id: DocumentId,
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its collection.
    #[schema(value_type = String)]
    pub collection: CollectionName,
    /// Where it came from.
    pub source: String,
    /// Its own title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The version whose text it is.
    pub version: String,
    /// Length of the whole text, in bytes.
    pub size_bytes: usize,
    /// Which part it is: what was asked for, widened to whole characters and cut to what one answer holds.
    pub span: SpanView,
    /// `stored_text[span.start..span.end]`.
    pub text: String,
}
