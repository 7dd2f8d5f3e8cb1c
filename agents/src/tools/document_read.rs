//! Reads on in a document that a search found.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_schemas::agent::ToolEffect;
use riverrun_schemas::{CollectionName, DocumentId, Namespace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Permission, Tool, ToolContext, ToolError, ToolManifest, parse, schema_of};

/// The tool's name.
pub(crate) const DOCUMENT_READ: &str = "document_read";

/// Most bytes that one call gives.
const MAX_LENGTH: usize = 16_000;
const DEFAULT_LENGTH: usize = 4_000;

/// A stored document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Where it came from.
    pub source: String,
    /// Its own title.
    pub title: Option<String>,
    /// The text that spans of its chunks count in.
    pub text: String,
}

/// A document could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadFailure(pub String);

/// What the tool needs of the stores.
#[async_trait]
pub trait Documents: Send + Sync {
    /// A document of the given collections of a namespace (`None` is every one of it); `None` when it is in none of them.
    async fn read(
        &self,
        namespace: &Namespace,
        collections: Option<&[CollectionName]>,
        document: DocumentId,
    ) -> Result<Option<Document>, ReadFailure>;
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The document_id of a passage that was found
    #[schemars(length(max = 64))]
    document_id: String,
    /// First byte to read, such as the start of a passage; 0 when left out
    #[serde(default)]
    start: Option<usize>,
    /// How many bytes to read, at most 16000
    #[serde(default)]
    #[schemars(range(min = 1, max = 16_000))]
    length: Option<usize>,
}

pub(super) struct DocumentRead {
    documents: Arc<dyn Documents>,
}

impl DocumentRead {
    pub(super) fn new(documents: Arc<dyn Documents>) -> Self {
        Self { documents }
    }
}

#[async_trait]
impl Tool for DocumentRead {
    fn manifest(&self) -> ToolManifest {
        ToolManifest::builtin(
            DOCUMENT_READ,
            "Reads the text of one document around a passage that knowledge_search found. Use it when a passage is cut off.",
            schema_of::<Arguments>(),
            ToolEffect::None,
        )
        .needing(&[Permission::Knowledge])
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { document_id, start, length } = parse(arguments)?;
        let id: DocumentId = document_id
            .trim()
            .parse()
            .map_err(|error| ToolError::Arguments(format!("document_id {document_id:?} is none: {error}")))?;
        let found = self.documents.read(&context.namespace, context.collections.as_deref(), id).await;
        let document = found
            .map_err(|failure| ToolError::Failed(failure.to_string()))?
            .ok_or_else(|| ToolError::Failed(format!("there is no document {id}")))?;
        let (start, end) = span(&document.text, start.unwrap_or(0), length.unwrap_or(DEFAULT_LENGTH));
        Ok(json!({
            "document_id": id,
            "source": document.source,
            "title": document.title,
            "start": start,
            "end": end,
            "total_bytes": document.text.len(),
            "text": document.text[start..end],
        }))
    }
}

/// The bytes asked for, moved outwards to whole characters.
fn span(text: &str, start: usize, length: usize) -> (usize, usize) {
    let start = text.floor_char_boundary(start.min(text.len()));
    let end = text.ceil_char_boundary(start.saturating_add(length.clamp(1, MAX_LENGTH)).min(text.len()));
    (start, end)
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::Collection;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn spans_stay_in_the_text_and_on_whole_characters() {
        let text = "aä😀b";
        for (start, length, expected) in [
            (0, 1, "a"),
            (1, 1, "ä"),
            (2, 1, "ä"),
            (3, 1, "😀"),
            (4, 100, "😀b"),
            (7, 1, "b"),
            (8, 5, ""),
            (usize::MAX, usize::MAX, ""),
        ] {
            let (from, to) = span(text, start, length);
            assert_eq!(&text[from..to], expected, "{start} {length}");
        }
    }

    /// One document in one collection of one namespace.
    struct One;

    fn id() -> DocumentId {
        DocumentId::derive(&["one"])
    }

    #[async_trait]
    impl Documents for One {
        async fn read(
            &self,
            namespace: &Namespace,
            collections: Option<&[CollectionName]>,
            document: DocumentId,
        ) -> Result<Option<Document>, ReadFailure> {
            let own = Collection::new("team".parse().unwrap(), "docs".parse().unwrap());
            let allowed = collections.is_none_or(|names| names.contains(&own.name));
            let there = *namespace == own.namespace && allowed && document == id();
            Ok(there.then(|| Document { source: "a.md".into(), title: None, text: "hello".into() }))
        }
    }

    #[tokio::test]
    async fn given_a_document_when_it_is_read_then_only_within_namespace_and_collections() {
        let tool = DocumentRead::new(Arc::new(One));
        for (namespace, collections, given, expected) in [
            ("team", None, id().to_string(), true),
            ("team", Some(vec!["docs"]), id().to_string(), true),
            ("team", Some(vec!["other"]), id().to_string(), false),
            ("team", Some(vec![]), id().to_string(), false),
            ("team-b", None, id().to_string(), false),
            ("team", None, DocumentId::derive(&["two"]).to_string(), false),
            ("team", None, "../../etc/passwd".to_owned(), false),
        ] {
            let context = ToolContext {
                namespace: namespace.parse().unwrap(),
                collections: collections.map(|names| names.into_iter().map(|name| name.parse().unwrap()).collect()),
                call_id: "c".into(),
                cancel: CancellationToken::new(),
                memory: None,
            };
            let read = tool.call(json!({ "document_id": given, "start": 1, "length": 3 }), &context).await;
            assert_eq!(read.is_ok(), expected, "{namespace} {given}: {read:?}");
            if let Ok(read) = read {
                assert_eq!((&read["text"], &read["end"], &read["total_bytes"]), (&json!("ell"), &json!(4), &json!(5)));
            }
        }
    }
}
