//! What is said to the server, and what its errors mean.

use qdrant_client::qdrant::{Condition, Filter, PointStruct, Vectors};
use qdrant_client::{Payload, QdrantError};
use riverrun_schemas::DocumentId;
use serde_json::Value;

use crate::chunk::{ChunkFilter, StoredChunk, Versions};
use crate::error::StoreError;

pub(super) const SERVICE: &str = "Qdrant";
/// gRPC's code for what is not there.
const NOT_FOUND: i32 = 5;

/// The fields of a chunk that filters look at.
pub(super) const FIELDS: [&str; 3] = [DOCUMENT_ID, VERSION, TAGS];
/// The fields of a chunk that say whose it is.
pub(super) const KEY_FIELDS: [&str; 3] = [CHUNK_ID, DOCUMENT_ID, VERSION];
const CHUNK_ID: &str = "chunk_id";
pub(super) const DOCUMENT_ID: &str = "document_id";
const VERSION: &str = "version";
const TAGS: &str = "tags";

pub(super) fn failed(url: &str, error: &QdrantError) -> StoreError {
    StoreError::Server {
        service: SERVICE,
        address: url.to_owned(),
        reason: match error {
            QdrantError::ResponseError { status } => words(status.message()),
            other => other.to_string(),
        },
        fix: "start the server, or check RIVERRUN_QDRANT_URL (its gRPC port, usually 6334) and RIVERRUN_QDRANT_API_KEY"
            .to_owned(),
    }
}

/// What a server said. Of a connection that failed the client has the library's picture of the system's error, in which its words stand.
fn words(message: &str) -> String {
    let of_the_system = message
        .strip_prefix("Failed to connect to ")
        .and_then(|picture| picture.split("message: \"").nth(1)?.split('"').next());
    of_the_system.map_or_else(|| message.to_owned(), |told| format!("can't connect: {told}"))
}

pub(crate) fn is_missing(error: &QdrantError) -> bool {
    matches!(error, QdrantError::ResponseError { status } if i32::from(status.code()) == NOT_FOUND)
}

/// A chunk as the server keeps it, found by these vectors. Its id is the chunk's: written twice it is there once.
pub(crate) fn stored_point(chunk: &StoredChunk, vectors: impl Into<Vectors>) -> PointStruct {
    let payload = match serde_json::to_value(chunk) {
        Ok(Value::Object(fields)) => Payload::from(fields),
        Ok(_) | Err(_) => unreachable!("a chunk is always a JSON object"),
    };
    PointStruct::new(chunk.chunk_id.as_uuid().to_string(), vectors, payload)
}

/// Those that a search may find; `None` is every one.
pub(crate) fn allowed(filter: &ChunkFilter) -> Option<Filter> {
    let mut conditions: Vec<Condition> =
        filter.tags.iter().map(|tags| Condition::matches(TAGS, tags.clone())).collect();
    if !filter.documents.is_empty() {
        let documents: Vec<String> = filter.documents.iter().map(ToString::to_string).collect();
        conditions.push(Condition::matches(DOCUMENT_ID, documents));
    }
    (!conditions.is_empty()).then(|| Filter::must(conditions))
}

pub(crate) fn of_document(document: &DocumentId, versions: &Versions) -> Filter {
    let mut filter = Filter::must([Condition::matches(DOCUMENT_ID, document.to_string())]);
    match versions {
        Versions::All => {}
        Versions::Only(version) => filter.must.push(Condition::matches(VERSION, version.clone())),
        Versions::Except(version) => filter.must_not.push(Condition::matches(VERSION, version.clone())),
    }
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> DocumentId {
        DocumentId::derive(&["a"])
    }

    #[test]
    fn given_a_filter_when_it_is_said_to_the_server_then_each_list_is_a_condition() {
        assert_eq!(allowed(&ChunkFilter::default()), None);
        let filter =
            ChunkFilter { documents: vec![document()], tags: vec![vec!["x".into()], vec!["y".into(), "z".into()]] };
        let said = allowed(&filter).unwrap();
        assert_eq!(said.must.len(), 3);
        assert!(said.must.contains(&Condition::matches(TAGS, vec!["y".to_owned(), "z".to_owned()])));
        assert!(said.must.contains(&Condition::matches(DOCUMENT_ID, vec![document().to_string()])));
    }

    #[test]
    fn given_versions_of_a_document_when_they_are_said_to_the_server_then_just_those_are_meant() {
        let counts = |versions: &Versions| {
            let filter = of_document(&document(), versions);
            (filter.must.len(), filter.must_not.len())
        };
        assert_eq!(counts(&Versions::All), (1, 0));
        assert_eq!(counts(&Versions::Only("v1".into())), (2, 0));
        assert_eq!(counts(&Versions::Except("v1".into())), (1, 1));
    }
}
