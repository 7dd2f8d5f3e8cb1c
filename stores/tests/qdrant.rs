//! What every vector store must do: on the embedded one always, and on a Qdrant server where RIVERRUN_TEST_QDRANT_URL names one.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{collection, document, point};
use qdrant_client::Qdrant;
use qdrant_client::qdrant::{CreateAliasBuilder, CreateCollectionBuilder, Distance, VectorParamsBuilder};
use riverrun_schemas::Collection;
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::vectors::qdrant::{QdrantConfig, QdrantVectors, Quantization};
use riverrun_stores::{ChunkFilter, StoreError, VectorPoint, VectorStore, Versions};
use tempfile::TempDir;

/// A store and the folder that it needs.
struct Case {
    store: Arc<dyn VectorStore>,
    _folder: Option<TempDir>,
}

fn cases() -> Vec<Case> {
    let folder = tempfile::tempdir().unwrap();
    let edge = EdgeVectors::open(EdgeConfig::at(folder.path())).unwrap();
    let mut cases = vec![Case { store: Arc::new(edge), _folder: Some(folder) }];
    if let Some(url) = std::env::var("RIVERRUN_TEST_QDRANT_URL").ok().filter(|url| !url.is_empty()) {
        for quantization in Quantization::ALL {
            let config = QdrantConfig { url: url.clone(), api_key: None, quantization, keywords: false };
            cases.push(Case { store: Arc::new(QdrantVectors::open(config, "test").unwrap()), _folder: None });
        }
    }
    cases
}

/// Tests share a server.
fn own(name: &str) -> Collection {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    collection(&format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

fn everywhere() -> ChunkFilter {
    ChunkFilter::default()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_points_when_they_are_searched_then_the_nearest_that_the_filter_lets_through_come_first() {
    for Case { store, _folder } in cases() {
        let notes = own("notes");
        store.ensure(&notes, 4, "mini").await.unwrap();
        let mut near = point("a", "v1", 0, [1.0, 0.0, 0.0, 0.0]);
        near.chunk.tags = vec!["4:team=\"a\"".into(), "4:live=true".into()];
        let points = vec![near, point("a", "v1", 1, [0.9, 0.1, 0.0, 0.0]), point("b", "v1", 0, [0.0, 0.0, 3.0, 0.0])];
        store.upsert(&notes, points.clone()).await.unwrap();
        store.flush(&notes).await.unwrap();
        let query = [2.0, 0.0, 0.0, 0.0];
        let hits = store.search(&notes, &query, 2, &everywhere()).await.unwrap();
        assert_eq!(hits.iter().map(|hit| &hit.chunk).collect::<Vec<_>>(), [&points[0].chunk, &points[1].chunk]);
        assert!((hits[0].score - 1.0).abs() < 1e-4 && hits[1].score < hits[0].score);
        let only_b = ChunkFilter { documents: vec![document("b")], ..everywhere() };
        let hits = store.search(&notes, &query, 5, &only_b).await.unwrap();
        assert_eq!(hits.iter().map(|hit| hit.chunk.source.as_str()).collect::<Vec<_>>(), ["b"]);
        let tags = vec![vec!["4:team=\"b\"".into(), "4:team=\"a\"".into()], vec!["4:live=true".into()]];
        let tagged = store.search(&notes, &query, 5, &ChunkFilter { tags, ..everywhere() }).await.unwrap();
        assert_eq!((tagged.len(), tagged[0].chunk.chunk_id), (1, points[0].chunk.chunk_id));
        assert_eq!(store.search(&notes, &query, 0, &everywhere()).await.unwrap(), []);
        assert_eq!(store.search(&notes, &query, usize::MAX, &everywhere()).await.unwrap().len(), 3);
        assert!(store.drop_collection(&notes).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_document_when_its_points_are_read_back_then_each_has_the_direction_that_it_was_written_with() {
    for Case { store, _folder } in cases() {
        let notes = own("notes");
        assert_eq!(store.points(&notes, &document("a")).await.unwrap(), []);
        store.ensure(&notes, 4, "mini").await.unwrap();
        let written = [point("a", "v1", 0, [2.0, 0.0, 0.0, 0.0]), point("a", "v2", 1, [0.0, 0.0, -3.0, 0.0])];
        store.upsert(&notes, [written.to_vec(), vec![point("b", "v1", 0, [1.0; 4])]].concat()).await.unwrap();
        let mut read = store.points(&notes, &document("a")).await.unwrap();
        read.sort_by_key(|point| point.chunk.ordinal);
        for (read, written) in read.iter().zip(&written) {
            assert_eq!(read.chunk, written.chunk);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let lengths = (dot(&read.vector, &read.vector) * dot(&written.vector, &written.vector)).sqrt();
            assert!(dot(&read.vector, &written.vector) / lengths > 0.9999, "{read:?}");
        }
        assert_eq!(read.len(), 2);
        assert!(store.drop_collection(&notes).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_versions_when_they_are_written_twice_and_removed_then_the_others_are_there_once() {
    for Case { store, _folder } in cases() {
        let notes = own("notes");
        store.ensure(&notes, 4, "mini").await.unwrap();
        for version in ["v1", "v2", "v2"] {
            let points = (0..3).map(|n| point("a", version, n, [1.0, n as f32, 0.0, 0.0])).collect();
            store.upsert(&notes, points).await.unwrap();
        }
        store.upsert(&notes, vec![point("b", "v1", 0, [1.0; 4])]).await.unwrap();
        store.flush(&notes).await.unwrap();
        let (a, b) = (document("a"), document("b"));
        assert_eq!(store.count(&notes).await.unwrap(), 7);
        assert_eq!(store.documents(&notes).await.unwrap(), BTreeMap::from([(a, 6), (b, 1)]));
        let chunks = store.chunks(&notes, &a).await.unwrap();
        let places: Vec<_> = chunks.iter().map(|chunk| (chunk.version.as_str(), chunk.ordinal)).collect();
        assert_eq!(places, [("v1", 0), ("v1", 1), ("v1", 2), ("v2", 0), ("v2", 1), ("v2", 2)]);
        assert_eq!(store.count_document(&notes, &a, &Versions::Only("v1".into())).await.unwrap(), 3);
        assert_eq!(store.delete_document_except(&notes, &a, "v2").await.unwrap(), 3);
        assert_eq!(store.delete_document_except(&notes, &a, "v2").await.unwrap(), 0);
        assert_eq!(store.delete_document(&notes, &a, &Versions::All).await.unwrap(), 3);
        assert_eq!(store.documents(&notes).await.unwrap(), BTreeMap::from([(b, 1)]));
        store.drop_collection(&notes).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_another_model_or_length_or_no_collection_when_it_is_used_then_it_is_refused() {
    for Case { store, _folder } in cases() {
        let (notes, none) = (own("notes"), own("none"));
        store.ensure(&notes, 4, "mini").await.unwrap();
        store.ensure(&notes, 4, "mini").await.unwrap();
        for (dimensions, model) in [(4, "large"), (8, "mini")] {
            let error = store.ensure(&notes, dimensions, model).await.unwrap_err();
            assert_eq!(error.code(), "embedding_model_mismatch");
        }
        let wrong = VectorPoint { vector: vec![1.0; 5], ..point("a", "v1", 0, [0.0; 4]) };
        assert!(matches!(
            store.upsert(&notes, vec![wrong]).await,
            Err(StoreError::Dimensions { expected: 4, found: 5, .. })
        ));
        let found = store.search(&notes, &[1.0; 3], 1, &everywhere()).await;
        assert!(matches!(found, Err(StoreError::Dimensions { .. })), "{found:?}");
        let infinite = point("a", "v1", 0, [f32::NAN, 0.0, 0.0, 0.0]);
        assert!(matches!(store.upsert(&notes, vec![infinite]).await, Err(StoreError::NotFinite(_))));
        assert_eq!(store.count(&notes).await.unwrap(), 0);

        assert_eq!(store.search(&none, &[1.0; 4], 1, &everywhere()).await.unwrap_err().code(), "collection_not_found");
        assert!(matches!(
            store.upsert(&none, vec![point("a", "v", 0, [1.0; 4])]).await,
            Err(StoreError::NoCollection(_))
        ));
        assert_eq!(store.count(&none).await.unwrap(), 0);
        assert_eq!(store.delete_document_except(&none, &document("a"), "v1").await.unwrap(), 0);
        assert!(store.documents(&none).await.unwrap().is_empty());
        assert!(store.chunks(&none, &document("a")).await.unwrap().is_empty());
        assert_eq!(store.info(&none).await.unwrap(), None);
        assert!(!store.drop_collection(&none).await.unwrap());
        assert!(store.drop_collection(&notes).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_shadow_when_it_is_swapped_again_and_again_then_searches_see_the_new_and_the_shadow_is_gone() {
    for Case { store, _folder } in cases() {
        let notes = own("notes");
        let shadows = store.shadows().unwrap();
        store.ensure(&notes, 4, "first").await.unwrap();
        store.upsert(&notes, vec![point("a", "v1", 0, [1.0; 4])]).await.unwrap();
        store.flush(&notes).await.unwrap();
        for (round, model) in [(1, "second"), (2, "third"), (3, "fourth")] {
            assert_eq!(shadows.info(&notes).await.unwrap(), None);
            shadows.ensure(&notes, 3, model).await.unwrap();
            let new = VectorPoint { vector: vec![1.0; 3], ..point("a", "v1", round, [0.0; 4]) };
            shadows.upsert(&notes, vec![new.clone()]).await.unwrap();
            shadows.flush(&notes).await.unwrap();
            let listed = |list: Vec<riverrun_stores::CollectionInfo>| {
                list.into_iter().filter(|info| info.collection == notes).count()
            };
            assert_eq!((listed(store.list().await.unwrap()), listed(shadows.list().await.unwrap())), (1, 1));
            store.swap(&notes).await.unwrap();
            assert_eq!(store.info(&notes).await.unwrap().unwrap().model, model);
            assert_eq!(store.chunks(&notes, &document("a")).await.unwrap(), [new.chunk]);
            assert_eq!(shadows.count(&notes).await.unwrap(), 0);
        }
        assert!(store.swap(&notes).await.is_err(), "there is no shadow");
        assert!(store.drop_collection(&notes).await.unwrap());
        assert_eq!(store.info(&notes).await.unwrap(), None);
    }
}

/// As a server before 1.16 made it.
#[tokio::test(flavor = "multi_thread")]
async fn given_data_that_remembers_nothing_when_its_collection_is_removed_as_the_error_says_then_it_goes() {
    let Some(url) = std::env::var("RIVERRUN_TEST_QDRANT_URL").ok().filter(|url| !url.is_empty()) else { return };
    let client = Qdrant::from_url(&url).skip_compatibility_check().build().unwrap();
    let config = QdrantConfig { url, api_key: None, quantization: Quantization::None, keywords: false };
    // An area of its own: no list of another test meets it.
    let (store, notes) = (QdrantVectors::open(config, "forgotten").unwrap(), own("notes"));
    let data = format!("riverrun.forgotten.data1.{}", notes.physical_name());
    let vectors = VectorParamsBuilder::new(4, Distance::Cosine);
    client.create_collection(CreateCollectionBuilder::new(data.as_str()).vectors_config(vectors)).await.unwrap();
    let live = format!("riverrun.forgotten.live.{}", notes.physical_name());
    client.create_alias(CreateAliasBuilder::new(data, live)).await.unwrap();
    let error = store.info(&notes).await.unwrap_err();
    assert!(error.hint().unwrap().contains("riverrun collections rm"), "{error}");
    assert!(store.drop_collection(&notes).await.unwrap());
    assert_eq!(store.info(&notes).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_server_when_it_is_asked_then_the_error_can_be_tried_again_and_names_the_fix() {
    let url = "http://127.0.0.1:1".to_owned();
    let quantization = Quantization::None;
    let config = QdrantConfig { url, api_key: Some("s3cret".into()), quantization, keywords: true };
    let store = QdrantVectors::open(config, "test").unwrap();
    let error = store.info(&own("notes")).await.unwrap_err();
    assert!(error.retryable() && error.code() == "store_server_down", "{error}");
    assert!(error.hint().unwrap().contains("RIVERRUN_QDRANT_URL") && !error.to_string().contains("s3cret"), "{error}");
    assert!(error.to_string().contains("Connection refused") && !error.to_string().contains("Error("), "{error}");
}
