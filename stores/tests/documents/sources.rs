//! Metadata of the sources of documents.

use riverrun_schemas::ingest::{
    DocumentChunked, DocumentDeleted, DocumentFailed, DocumentIndexed, DocumentQueued, DocumentUnchanged,
    DocumentWithdrawn, IngestEvent, document_id,
};
use riverrun_schemas::{Collection, DocumentId, Failure, IngestId, Namespace, Topic};
use riverrun_stores::DocumentStore;
use riverrun_stores::documents::{
    DocumentEvent, DocumentKey, DocumentKind, MAX_SOURCE_VERSIONS, SourceDocument, SourceVersion,
};
use riverrun_stores::read_models::{PageRequest, Timestamp};

use super::{Log, blob, ids, log_of, namespace, stores};

fn collection() -> Collection {
    Collection::new(namespace(), "docs".parse().unwrap())
}

fn document(source: &str) -> DocumentId {
    document_id(&collection(), source)
}

macro_rules! event {
    ($name:ident, $source:expr, $ingest:expr, $at:expr, { $($field:ident: $value:expr),* }) => {
        IngestEvent::from($name {
            document_id: document($source),
            ingest_id: IngestId::derive(&[$ingest]),
            namespace: namespace(),
            collection: collection().name,
            source: $source.to_owned(),
            $($field: $value,)*
            at: $at,
        })
    };
}

fn queued(source: &str, ingest: &str, content: &str, at: i64) -> IngestEvent {
    event!(DocumentQueued, source, ingest, at, { content: blob(content) })
}

fn chunked(source: &str, ingest: &str, version: &str, at: i64) -> IngestEvent {
    event!(DocumentChunked, source, ingest, at, {
        version: version.to_owned(),
        text: blob("text"),
        chunks: 1,
        embed_model: "m".to_owned(),
        title: Some("Wings ü 🐕".to_owned()),
        metadata_json: None,
        author: Some("Ann".to_owned()),
        pages: Some(12),
        encoding: None,
        read_as: Some("text/markdown".to_owned()),
        fetched_at: Some(at - 1),
        source_type: None,
        strategy: None,
        chunk_size: 800,
        chunk_overlap: 100,
        chunk_unit: None,
        table: None,
        notes: vec!["1 of 12 pages is a picture without text: page 7".to_owned()]
    })
}

/// As it was written before the event said more.
fn chunked_before(source: &str, ingest: &str, version: &str, at: i64) -> IngestEvent {
    let IngestEvent::DocumentChunked(event) = chunked(source, ingest, version, at) else { unreachable!() };
    DocumentChunked { author: None, pages: None, read_as: None, fetched_at: None, notes: Vec::new(), ..event }.into()
}

fn unchanged(source: &str, ingest: &str, version: &str, at: i64) -> IngestEvent {
    event!(DocumentUnchanged, source, ingest, at, { version: version.to_owned() })
}

fn failed(source: &str, ingest: &str, at: i64) -> IngestEvent {
    let (stage, error) = ("ingest".to_owned(), Failure::new("binary_content", "no text"));
    event!(DocumentFailed, source, ingest, at, { stage: stage, error: error })
}

fn withdrawn(source: &str, at: i64) -> IngestEvent {
    event!(DocumentWithdrawn, source, "removal", at, { tables: 0, rows: 0 })
}

fn deleted(source: &str, at: i64) -> IngestEvent {
    event!(DocumentDeleted, source, "removal", at, { vectors: 1, keywords: 1, tables: 0, rows: 0 })
}

async fn project(store: &dyn DocumentStore, log: &[(i64, Option<DocumentEvent>)]) {
    riverrun_stores::documents::project(store, Topic::IngestEvents, 0, log).await.unwrap();
}

async fn get(store: &dyn DocumentStore, source: &str) -> Option<SourceDocument> {
    let kept = store.get(&DocumentKey::source(&namespace(), document(source))).await.unwrap()?;
    assert_eq!(kept.name, source);
    Some(SourceDocument::of(&kept).unwrap())
}

fn history() -> Log {
    let mut log = log_of(vec![
        queued("/a.pdf", "1", "first", 10),
        chunked("/a.pdf", "1", "v1", 11),
        queued("/b.pdf", "1", "other", 12),
        queued("/a.pdf", "2", "first", 20),
        unchanged("/a.pdf", "2", "v1", 21),
        failed("/b.pdf", "1", 22),
        queued("/c.pdf", "1", "third", 23),
        chunked("/c.pdf", "1", "v1", 24),
        withdrawn("/c.pdf", 25),
        queued("/c.pdf", "3", "again", 26),
        deleted("/c.pdf", 27),
        queued("/a.pdf", "3", "second", 30),
        chunked_before("/a.pdf", "3", "v2", 31),
        event!(DocumentIndexed, "/a.pdf", "3", 32, {
            version: "v2".to_owned(), chunks: 1, removed_chunks: 1, embed_model: "m".to_owned(), dimensions: 2
        }),
    ]);
    log.push((14, None));
    log
}

#[tokio::test]
async fn given_what_happens_to_documents_when_it_is_projected_then_each_version_says_what_is_known_of_its_bytes() {
    for store in stores("source-versions").await.all {
        let store = store.as_ref();
        project(store, &history()).await;
        let known = get(store, "/a.pdf").await.unwrap();
        assert_eq!((known.collection, known.source.as_str()), (collection().name, "/a.pdf"), "{:?}", store.info());
        let first = SourceVersion {
            version: "v1".to_owned(),
            media_type: Some("text/markdown".to_owned()),
            size_bytes: Some(5),
            sha256: Some("first".to_owned()),
            encoding: None,
            title: Some("Wings ü 🐕".to_owned()),
            author: Some("Ann".to_owned()),
            pages: Some(12),
            notes: vec!["1 of 12 pages is a picture without text: page 7".to_owned()],
            fetched_at: Timestamp(10),
            seen_at: Timestamp(20),
        };
        // An older event leaves to the bytes that were handed in what they are.
        let second = SourceVersion {
            version: "v2".to_owned(),
            media_type: Some("application/pdf".to_owned()),
            size_bytes: Some(6),
            sha256: Some("second".to_owned()),
            author: None,
            pages: None,
            notes: Vec::new(),
            fetched_at: Timestamp(30),
            seen_at: Timestamp(30),
            ..first.clone()
        };
        assert_eq!(known.versions, [first, second]);
        assert_eq!(known.handed_in, None);
        assert_eq!(get(store, "/b.pdf").await, None, "it never had a version");
        let again = get(store, "/c.pdf").await.unwrap();
        assert_eq!((again.versions, again.handed_in.unwrap().content), (vec![], blob("again")), "handed in anew");
    }
}

#[tokio::test]
async fn given_batches_that_come_twice_and_in_pieces_when_they_are_projected_then_the_sources_are_the_same() {
    for store in stores("source-twice").await.all {
        let store = store.as_ref();
        project(store, &history()).await;
        let whole = (get(store, "/a.pdf").await, get(store, "/c.pdf").await, 15);
        store.clear().await.unwrap();
        assert_eq!(get(store, "/a.pdf").await, None);
        for piece in history() {
            project(store, std::slice::from_ref(&piece)).await;
            project(store, std::slice::from_ref(&piece)).await;
        }
        let next = store.next_offset(Topic::IngestEvents, 0).await.unwrap();
        assert_eq!((get(store, "/a.pdf").await, get(store, "/c.pdf").await, next), whole, "{:?}", store.info());
        assert_eq!(store.next_offset(Topic::Canvases, 0).await.unwrap(), 0, "topics have places of their own");
    }
}

#[tokio::test]
async fn given_documents_that_are_removed_when_their_end_is_projected_then_nothing_of_them_is_listed() {
    for store in stores("source-removed").await.all {
        let store = store.as_ref();
        let names: Vec<String> = (0..5).map(|at| format!("/{at}.pdf")).collect();
        let mut events: Vec<IngestEvent> = Vec::new();
        for name in &names {
            events.extend([queued(name, "1", name, 10), chunked(name, "1", "v1", 11)]);
        }
        project(store, &log_of(events.clone())).await;
        let mut wanted: Vec<String> = names.iter().map(|name| document(name).to_string()).collect();
        wanted.sort();
        assert_eq!(ids(store, DocumentKind::Source, &namespace()).await, wanted, "{:?}", store.info());
        assert_eq!(store.count(DocumentKind::Source, &namespace()).await.unwrap(), 5);
        for other in ["team", "team-b"] {
            let other: Namespace = other.parse().unwrap();
            assert!(ids(store, DocumentKind::Source, &other).await.is_empty());
            assert!(store.get(&DocumentKey::source(&other, document("/0.pdf"))).await.unwrap().is_none());
        }
        assert!(ids(store, DocumentKind::Canvas, &namespace()).await.is_empty());
        let bad = PageRequest { limit: None, cursor: Some("canvas".to_owned()) };
        let error = store.list(DocumentKind::Source, &namespace(), &bad).await.unwrap_err();
        assert_eq!(error.code(), "cursor_invalid");
        events.extend(names.iter().flat_map(|name| [withdrawn(name, 12), deleted(name, 13)]));
        project(store, &log_of(events)).await;
        assert!(ids(store, DocumentKind::Source, &namespace()).await.is_empty());
    }
}

#[tokio::test]
async fn given_more_versions_than_are_kept_when_they_are_projected_then_the_newest_are_there() {
    for store in stores("source-many").await.all {
        let store = store.as_ref();
        let mut events = Vec::new();
        for at in 0..MAX_SOURCE_VERSIONS + 3 {
            let (ingest, moment) = (at.to_string(), i64::try_from(at).unwrap());
            events.extend([queued("/a", &ingest, &ingest, moment), chunked("/a", &ingest, &format!("v{at}"), moment)]);
        }
        project(store, &log_of(events)).await;
        let versions = get(store, "/a").await.unwrap().versions;
        assert_eq!(versions.len(), MAX_SOURCE_VERSIONS, "{:?}", store.info());
        assert_eq!((versions[0].version.as_str(), versions[0].sha256.as_deref()), ("v3", Some("3")));
    }
}
