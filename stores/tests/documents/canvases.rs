//! Canvases.

use riverrun_schemas::canvases::{CanvasDeleted, CanvasEvent, CanvasSaved};
use riverrun_schemas::{CanvasId, EventId, Namespace, Topic};
use riverrun_stores::documents::{Change, DocumentEvent, DocumentKey, DocumentKind, KeptDocument};
use riverrun_stores::read_models::PageRequest;
use riverrun_stores::{DocumentStore, MongoDocuments};

use super::{Log, log_of, namespace, stores};

fn id(text: &str) -> CanvasId {
    text.parse().unwrap()
}

fn saved(canvas: &str, revision: i64, by: &str) -> CanvasEvent {
    CanvasSaved {
        canvas_id: id(canvas),
        namespace: namespace(),
        save_id: EventId::derive(&[by]),
        name: format!("{canvas} of {by}"),
        revision,
        document: format!("{{\"by\":\"{by}\",\"text\":\"ü 🐕 $where . \"}}"),
        at: 1_700_000_000_000 + revision,
    }
    .into()
}

fn deleted(canvas: &str) -> CanvasEvent {
    CanvasDeleted { canvas_id: id(canvas), namespace: namespace(), delete_id: EventId::derive(&[canvas]), at: 0 }.into()
}

fn log(events: Vec<CanvasEvent>) -> Log {
    log_of(events)
}

async fn project(store: &dyn DocumentStore, records: &[(i64, Option<DocumentEvent>)]) {
    riverrun_stores::documents::project(store, Topic::Canvases, 0, records).await.unwrap();
}

async fn get(store: &dyn DocumentStore, canvas: &str) -> Option<KeptDocument> {
    store.get(&DocumentKey::canvas(&namespace(), &id(canvas))).await.unwrap()
}

/// Everything that a store shows.
async fn shown(store: &dyn DocumentStore) -> (Vec<Option<KeptDocument>>, Vec<String>, i64) {
    let page = store.list(DocumentKind::Canvas, &namespace(), &PageRequest::default()).await.unwrap();
    let ids: Vec<String> = page.items.into_iter().map(|entry| entry.id).collect();
    let mut documents = Vec::new();
    for id in &ids {
        documents.push(get(store, id).await);
    }
    (documents, ids, store.next_offset(Topic::Canvases, 0).await.unwrap())
}

fn history() -> Log {
    let mut log = log(vec![
        saved("a", 1, "ann"),
        saved("a", 2, "bob"),
        saved("a", 2, "cid"),
        saved("b", 1, "ann"),
        deleted("a"),
        deleted("never"),
        saved("a", 1, "dan"),
        saved("a", 5, "eve"),
        saved("c", 1, "ann"),
        deleted("c"),
    ]);
    log.push((10, None));
    log
}

#[tokio::test]
async fn given_two_who_save_the_same_revision_when_both_are_on_the_log_then_the_first_one_counts() {
    for store in stores("first").await.all {
        let store = store.as_ref();
        project(store, &log(vec![saved("a", 1, "ann"), saved("a", 2, "bob"), saved("a", 2, "cid")])).await;
        let kept = get(store, "a").await.unwrap();
        assert_eq!((kept.revision, kept.name.as_str(), kept.offset), (2, "a of bob", 1), "{:?}", store.info());
        assert_eq!(kept.body, "{\"by\":\"bob\",\"text\":\"ü 🐕 $where . \"}");
        assert_eq!(kept.saves, [EventId::derive(&["ann"]).to_string(), EventId::derive(&["bob"]).to_string()]);
    }
}

#[tokio::test]
async fn given_batches_that_come_twice_and_in_pieces_when_they_are_projected_then_the_store_is_the_same() {
    for store in stores("twice").await.all {
        let store = store.as_ref();
        project(store, &history()).await;
        let whole = shown(store).await;
        assert_eq!((whole.1.clone(), whole.2), (vec!["a".to_owned(), "b".to_owned()], 11), "{:?}", store.info());
        project(store, &history()).await;
        assert_eq!(shown(store).await, whole, "twice");
        store.clear().await.unwrap();
        assert_eq!(shown(store).await, (vec![], vec![], 0), "cleared");
        for piece in history().chunks(1) {
            project(store, piece).await;
            project(store, piece).await;
        }
        assert_eq!(shown(store).await, whole, "one by one, each twice");
    }
}

#[tokio::test]
async fn given_changes_without_their_position_when_the_log_is_read_again_then_nothing_older_takes_their_place() {
    for store in stores("cut").await.all {
        let store = store.as_ref();
        project(store, &history()).await;
        let whole = shown(store).await;
        // As after a crash between the changes and the position of another projector: it writes what it knew.
        let late: Vec<Change> =
            vec![Change::Put(KeptDocument { offset: 1, revision: 9, ..get(store, "a").await.unwrap() })];
        store.write(Topic::Canvases, 0, &late, 3).await.unwrap();
        let gone = Change::Remove { key: DocumentKey::canvas(&namespace(), &id("b")), offset: 2 };
        store.write(Topic::Canvases, 0, &[gone], 3).await.unwrap();
        assert_eq!(shown(store).await, whole, "{:?}", store.info());
    }
}

#[tokio::test]
async fn given_many_documents_when_they_are_listed_then_pages_have_each_once_and_nothing_of_another_namespace() {
    for store in stores("pages").await.all {
        let store = store.as_ref();
        let names: Vec<String> = (10..17).map(|at| format!("c{at}")).collect();
        project(store, &log(names.iter().map(|name| saved(name, 1, "ann")).collect())).await;
        for other in ["team", "team-a0", "team-b"] {
            let other: Namespace = other.parse().unwrap();
            let page = store.list(DocumentKind::Canvas, &other, &PageRequest::default()).await.unwrap();
            assert!(page.items.is_empty() && store.count(DocumentKind::Canvas, &other).await.unwrap() == 0);
            assert!(store.get(&DocumentKey::canvas(&other, &id("c10"))).await.unwrap().is_none());
        }
        assert_eq!(store.count(DocumentKind::Canvas, &namespace()).await.unwrap(), 7);
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let request = PageRequest { limit: Some(3), cursor };
            let page = store.list(DocumentKind::Canvas, &namespace(), &request).await.unwrap();
            found.extend(page.items.into_iter().map(|entry| entry.id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, names, "{:?}", store.info());
        let bad = PageRequest { limit: None, cursor: Some("../x".to_owned()) };
        let error = store.list(DocumentKind::Canvas, &namespace(), &bad).await.unwrap_err();
        assert_eq!(error.code(), "cursor_invalid");
    }
}

#[tokio::test]
async fn given_addresses_that_are_none_or_answer_nothing_then_the_error_names_the_setting_and_no_password() {
    let bad = MongoDocuments::open("mongodb://ann:s3cret@h:99999/d").await.err().unwrap();
    assert!(!format!("{bad:?}").contains("s3cret") && bad.hint().unwrap().contains("RIVERRUN_MONGODB_URL"));
    let away = MongoDocuments::open("mongodb://ann:s3cret@127.0.0.1:1/d?serverSelectionTimeoutMS=10").await.unwrap();
    assert!(!away.info().place.contains("s3cret"), "{:?}", away.info());
}
