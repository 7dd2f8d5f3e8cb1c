//! What an event of a document says of the source behind it: raw metadata, a document of the store for each. Pure.

use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::{BlobRef, CollectionName, DocumentId, IngestId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Change, DocumentKey, KeptDocument};
use crate::read_models::Timestamp;
use crate::read_models::documents::{About, about};

/// So many versions of a source are kept, the newest ones.
pub const MAX_SOURCE_VERSIONS: usize = 32;

/// What is known of a source within a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceDocument {
    /// The document.
    pub document_id: DocumentId,
    /// Its collection.
    pub collection: CollectionName,
    /// Where it comes from: a path, an address, or what a topic calls it.
    pub source: String,
    /// The bytes that were handed in and are not split yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_in: Option<HandedIn>,
    /// The versions that were split, newest last; [`MAX_SOURCE_VERSIONS`] at most.
    pub versions: Vec<SourceVersion>,
}

/// Bytes on their way to becoming a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedIn {
    /// The request.
    pub ingest_id: IngestId,
    /// The bytes as they were found.
    pub content: BlobRef,
    /// When.
    pub at: Timestamp,
}

/// What is known of the bytes that a version was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceVersion {
    /// The version.
    pub version: String,
    /// Media type of the format that the bytes were read as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// How many bytes they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Their SHA-256, lower-case hex: they are the blob of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// What they were decoded from, such as `UTF-8`; left out where the format is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The document's own title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Who the document says that it is by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// How many pages it has, where the format has pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<i32>,
    /// What people should know of it although it could be read, such as pages without text; a few at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// When the bytes were read from where they are.
    #[schema(value_type = String, format = DateTime)]
    pub fetched_at: Timestamp,
    /// When the same bytes were last found there.
    #[schema(value_type = String, format = DateTime)]
    pub seen_at: Timestamp,
}

impl SourceDocument {
    /// What is kept; `None` when it is not of this form, as after another build wrote it.
    pub fn of(kept: &KeptDocument) -> Option<Self> {
        serde_json::from_str(&kept.body).ok()
    }

    /// Takes what the request handed in; what another one did is none of it.
    fn take_handed_in(&mut self, ingest_id: IngestId) -> Option<HandedIn> {
        self.handed_in.take_if(|handed_in| handed_in.ingest_id == ingest_id)
    }
}

/// The document that an event changes something of.
fn subject(event: &IngestEvent) -> Option<About<'_>> {
    match event {
        IngestEvent::DocumentQueued(e) => Some(about!(e)),
        IngestEvent::DocumentUnchanged(e) => Some(about!(e)),
        IngestEvent::DocumentChunked(e) => Some(about!(e)),
        IngestEvent::DocumentFailed(e) => Some(about!(e)),
        IngestEvent::DocumentWithdrawn(e) => Some(about!(e)),
        IngestEvent::DocumentEmbedded(_)
        | IngestEvent::DocumentIndexed(_)
        // It went when it was withdrawn; what was handed in since is not meant.
        | IngestEvent::DocumentDeleted(_)
        // Each of its documents is withdrawn, too.
        | IngestEvent::CollectionWithdrawn(_)
        | IngestEvent::CollectionReembedding(_)
        | IngestEvent::CollectionReembedded(_)
        | IngestEvent::CollectionReembedFailed(_)
        | IngestEvent::CollectionRebuilding(_)
        | IngestEvent::CollectionRebuilt(_)
        | IngestEvent::CollectionRebuildFailed(_)
        | IngestEvent::CollectionTuning(_)
        | IngestEvent::CollectionTuned(_)
        | IngestEvent::CollectionTuneFailed(_)
        | IngestEvent::IngestScanned(_)
        | IngestEvent::IngestFailed(_) => None,
    }
}

/// The document of the store that an event is about.
pub(super) fn key(event: &IngestEvent) -> Option<DocumentKey> {
    subject(event).map(|about| DocumentKey::source(about.namespace, about.document_id))
}

/// The change; `None` when the event does not count or was read before.
pub(super) fn change(before: Option<&KeptDocument>, event: &IngestEvent, offset: i64) -> Option<Change> {
    let about = subject(event).filter(|_| before.is_none_or(|before| before.offset < offset))?;
    let mut source = before.and_then(SourceDocument::of).unwrap_or_else(|| SourceDocument {
        document_id: about.document_id,
        collection: about.collection.clone(),
        source: about.source.to_owned(),
        handed_in: None,
        versions: Vec::new(),
    });
    apply(&mut source, event, &about);
    let key = DocumentKey::source(about.namespace, about.document_id);
    if source.versions.is_empty() && source.handed_in.is_none() {
        return before.map(|_| Change::Remove { key, offset });
    }
    Some(Change::Put(KeptDocument {
        key,
        name: source.source.clone(),
        revision: before.map_or(0, |before| before.revision) + 1,
        at: about.at,
        offset,
        saves: Vec::new(),
        // Texts, numbers and lists of them: can't fail.
        body: serde_json::to_string(&source).unwrap_or_default(),
    }))
}

fn apply(source: &mut SourceDocument, event: &IngestEvent, about: &About<'_>) {
    match event {
        IngestEvent::DocumentQueued(e) => {
            source.handed_in =
                Some(HandedIn { ingest_id: e.ingest_id, content: e.content.clone(), at: Timestamp(e.at) });
        }
        IngestEvent::DocumentChunked(e) => {
            let handed_in = source.take_handed_in(about.ingest_id);
            let found_at = handed_in.as_ref().map_or(Timestamp(about.at), |handed_in| handed_in.at);
            let fetched_at = e.fetched_at.map_or(found_at, Timestamp);
            let content = handed_in.map(|handed_in| handed_in.content);
            source.versions.retain(|version| version.version != e.version);
            source.versions.push(SourceVersion {
                version: e.version.clone(),
                media_type: e.read_as.clone().or_else(|| content.as_ref().map(|content| content.media_type.clone())),
                size_bytes: content.as_ref().map(|content| content.size_bytes),
                sha256: content.map(|content| content.sha256),
                encoding: e.encoding.clone(),
                title: e.title.clone(),
                author: e.author.clone(),
                pages: e.pages,
                notes: e.notes.clone(),
                fetched_at,
                seen_at: fetched_at,
            });
            source.versions.drain(..source.versions.len().saturating_sub(MAX_SOURCE_VERSIONS));
        }
        IngestEvent::DocumentUnchanged(e) => {
            let found_at = source.take_handed_in(about.ingest_id).map_or(Timestamp(about.at), |handed_in| handed_in.at);
            if let Some(version) = source.versions.iter_mut().find(|version| version.version == e.version) {
                version.seen_at = version.seen_at.max(found_at);
            }
        }
        IngestEvent::DocumentFailed(_) => {
            source.take_handed_in(about.ingest_id);
        }
        IngestEvent::DocumentWithdrawn(_) => {
            source.handed_in = None;
            source.versions.clear();
        }
        IngestEvent::DocumentEmbedded(_)
        | IngestEvent::DocumentIndexed(_)
        | IngestEvent::DocumentDeleted(_)
        | IngestEvent::CollectionWithdrawn(_)
        | IngestEvent::CollectionReembedding(_)
        | IngestEvent::CollectionReembedded(_)
        | IngestEvent::CollectionReembedFailed(_)
        | IngestEvent::CollectionRebuilding(_)
        | IngestEvent::CollectionRebuilt(_)
        | IngestEvent::CollectionRebuildFailed(_)
        | IngestEvent::CollectionTuning(_)
        | IngestEvent::CollectionTuned(_)
        | IngestEvent::CollectionTuneFailed(_)
        | IngestEvent::IngestScanned(_)
        | IngestEvent::IngestFailed(_) => {}
    }
}
