//! Documents that others publish for riverrun to take in: `riverrun.documents`.
//!
//! The topic is public. A record in this Avro form is one way; plain bytes with a `content-type` header are the other.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::ids::EventId;

/// A document for whoever takes documents from the topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishDocument {
    /// Names the document for good: the same name again replaces it. Empty: its place on the topic names it.
    pub name: String,
    /// The document.
    pub text: String,
    /// Media type of the text; `None` is plain text.
    pub content_type: Option<String>,
    /// An object of the publisher's, as JSON.
    pub metadata_json: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

event_set! {
    /// What is published.
    DocumentMessage on Documents;
    /// A document.
    PublishDocument = "riverrun.documents.PublishDocument", key |e| e.name.clone(), id |e| EventId::derive(&["document", &e.name, &e.text, &e.at.to_string()]);
}
