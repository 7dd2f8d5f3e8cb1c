//! The embedded vector store, on real files.

mod common;
#[path = "vectors/quantized.rs"]
mod quantized;
#[path = "vectors/swaps.rs"]
mod swaps;

use std::time::{Duration, Instant};

use common::{collection, copy_folder, document, point};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{ChunkFilter, Gaps, StoreError, VectorPoint, VectorStore};

fn open(folder: &std::path::Path) -> EdgeVectors {
    EdgeVectors::open(EdgeConfig::at(folder)).unwrap()
}

fn everywhere() -> ChunkFilter {
    ChunkFilter::default()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_points_then_the_nearest_come_first_with_their_whole_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "mini").await.unwrap();
    let points = vec![
        point("a", "v1", 0, [1.0, 0.0, 0.0, 0.0]),
        point("a", "v1", 1, [0.9, 0.1, 0.0, 0.0]),
        point("b", "v1", 0, [0.0, 0.0, 3.0, 0.0]),
    ];
    store.upsert(&notes, points.clone()).await.unwrap();
    store.flush(&notes).await.unwrap();

    let hits = store.search(&notes, &[2.0, 0.0, 0.0, 0.0], 2, &everywhere()).await.unwrap();
    assert_eq!(hits.iter().map(|hit| &hit.chunk).collect::<Vec<_>>(), [&points[0].chunk, &points[1].chunk]);
    assert!((hits[0].score - 1.0).abs() < 1e-5 && hits[1].score < hits[0].score);

    let only_b = ChunkFilter { documents: vec![document("b")], ..ChunkFilter::default() };
    let hits = store.search(&notes, &[2.0, 0.0, 0.0, 0.0], 5, &only_b).await.unwrap();
    assert_eq!((hits.len(), hits[0].chunk.source.as_str()), (1, "b"));
    assert_eq!(store.search(&notes, &[2.0, 0.0, 0.0, 0.0], 0, &everywhere()).await.unwrap(), []);
    assert_eq!(store.search(&notes, &[2.0, 0.0, 0.0, 0.0], usize::MAX, &everywhere()).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_equal_scores_then_chunk_ids_decide_whatever_the_order_of_writing() {
    let mut orders = Vec::new();
    for reversed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (store, notes) = (open(folder.path()), collection("notes"));
        store.ensure(&notes, 4, "mini").await.unwrap();
        let mut points: Vec<VectorPoint> =
            (0..20).map(|n| point(&format!("s{n}"), "v1", n, [1.0, 0.0, 0.0, 0.0])).collect();
        if reversed {
            points.reverse();
        }
        store.upsert(&notes, points).await.unwrap();
        let hits = store.search(&notes, &[1.0, 0.0, 0.0, 0.0], 7, &everywhere()).await.unwrap();
        let ids: Vec<String> = hits.iter().map(|hit| hit.chunk.chunk_id.to_string()).collect();
        assert!(ids.is_sorted());
        orders.push(ids);
    }
    assert_eq!(orders[0], orders[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_collection_then_another_model_or_length_is_refused_with_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "mini").await.unwrap();
    store.ensure(&notes, 4, "mini").await.unwrap();
    let store = open(folder.path()); // remembered on disk
    for (dimensions, model) in [(4, "large"), (8, "mini")] {
        let error = store.ensure(&notes, dimensions, model).await.unwrap_err();
        assert_eq!(error.code(), "embedding_model_mismatch");
        let text = error.to_string();
        assert!(
            text.contains("mini")
                && text.contains(model)
                && text.contains('4')
                && text.contains(&dimensions.to_string()),
            "{text}"
        );
        assert!(error.hint().unwrap().contains("mini"));
    }
    let wrong = VectorPoint { vector: vec![1.0; 5], ..point("a", "v1", 0, [0.0; 4]) };
    assert!(matches!(
        store.upsert(&notes, vec![wrong]).await,
        Err(StoreError::Dimensions { expected: 4, found: 5, .. })
    ));
    assert!(matches!(store.search(&notes, &[1.0; 3], 1, &everywhere()).await, Err(StoreError::Dimensions { .. })));
    let infinite = point("a", "v1", 0, [f32::NAN, 0.0, 0.0, 0.0]);
    assert!(matches!(store.upsert(&notes, vec![infinite]).await, Err(StoreError::NotFinite(_))));
    assert_eq!(store.count(&notes).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_collection_then_reading_says_so_and_removing_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, none) = (open(folder.path()), collection("none"));
    let error = store.search(&none, &[1.0; 4], 1, &everywhere()).await.unwrap_err();
    assert_eq!(error.code(), "collection_not_found");
    assert!(matches!(store.upsert(&none, vec![point("a", "v", 0, [1.0; 4])]).await, Err(StoreError::NoCollection(_))));
    assert_eq!(store.count(&none).await.unwrap(), 0);
    assert_eq!(store.delete_document_except(&none, &document("a"), "v1").await.unwrap(), 0);
    assert!(!store.drop_collection(&none).await.unwrap());
    assert_eq!(store.info(&none).await.unwrap(), None);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "looking makes no files");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_the_same_points_twice_then_they_are_there_once_and_old_versions_go() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "mini").await.unwrap();
    for _ in 0..2 {
        store
            .upsert(
                &notes,
                vec![point("a", "v1", 0, [1.0; 4]), point("a", "v1", 1, [1.0; 4]), point("b", "v1", 0, [1.0; 4])],
            )
            .await
            .unwrap();
    }
    assert_eq!(store.count(&notes).await.unwrap(), 3);
    store.upsert(&notes, vec![point("a", "v2", 0, [1.0; 4])]).await.unwrap();
    assert_eq!(store.delete_document_except(&notes, &document("a"), "v2").await.unwrap(), 2);
    assert_eq!(store.delete_document_except(&notes, &document("a"), "v2").await.unwrap(), 0);
    store.flush(&notes).await.unwrap();
    let left = store.search(&notes, &[1.0; 4], 9, &everywhere()).await.unwrap();
    let mut left: Vec<_> = left.iter().map(|hit| (hit.chunk.source.as_str(), hit.chunk.version.as_str())).collect();
    left.sort_unstable();
    assert_eq!(left, [("a", "v2"), ("b", "v1")]);
}

/// VEC-1.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_crash_then_what_was_flushed_is_there_and_writing_goes_on() {
    let (folder, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let notes = collection("notes");
    let store = open(folder.path());
    store.ensure(&notes, 4, "mini").await.unwrap();
    let points = |range: std::ops::Range<i32>| {
        range.map(|n| point(&format!("s{n}"), "v1", n, [1.0, n as f32, 0.0, 0.0])).collect::<Vec<_>>()
    };
    store.upsert(&notes, points(0..300)).await.unwrap();
    store.flush(&notes).await.unwrap();
    store.upsert(&notes, points(300..700)).await.unwrap();
    copy_folder(folder.path(), after.path());

    let again = open(after.path());
    let there = again.count(&notes).await.unwrap();
    assert!((300..=700).contains(&there), "{there} of 300 flushed points");
    // What the log hands in again.
    again.upsert(&notes, points(300..700)).await.unwrap();
    assert_eq!(again.delete_document_except(&notes, &document("s1"), "v2").await.unwrap(), 1);
    again.flush(&notes).await.unwrap();
    drop(again);
    let again = open(after.path());
    assert_eq!(again.count(&notes).await.unwrap(), 699);
    let near = again
        .search(
            &notes,
            &[1.0, 650.0, 0.0, 0.0],
            1,
            &ChunkFilter { documents: vec![document("s650")], ..ChunkFilter::default() },
        )
        .await
        .unwrap();
    assert_eq!(near[0].chunk.ordinal, 650);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_more_collections_than_may_be_open_then_none_mixes_with_another_and_dropping_one_leaves_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let store = EdgeVectors::open(EdgeConfig { max_open: 2, ..EdgeConfig::at(folder.path()) }).unwrap();
    let collections: Vec<_> = (0..5).map(|n| collection(&format!("c{n}"))).collect();
    for (n, each) in collections.iter().enumerate() {
        store.ensure(each, 4, "mini").await.unwrap();
        store.upsert(each, vec![point(&format!("only in c{n}"), "v1", 0, [1.0; 4])]).await.unwrap();
    }
    // Not flushed yet: too many stay open rather than lose anything.
    for each in &collections {
        store.flush(each).await.unwrap();
    }
    for (n, each) in collections.iter().enumerate() {
        let hits = store.search(each, &[1.0; 4], 9, &everywhere()).await.unwrap();
        assert_eq!(hits.iter().map(|hit| hit.chunk.source.clone()).collect::<Vec<_>>(), [format!("only in c{n}")]);
    }
    assert!(store.drop_collection(&collections[1]).await.unwrap());
    let left: Vec<String> = store.list().await.unwrap().iter().map(|info| info.collection.name.to_string()).collect();
    assert_eq!(left, ["c0", "c2", "c3", "c4"]);
    assert_eq!(store.count(&collections[1]).await.unwrap(), 0);
    // The name is free for another model.
    store.ensure(&collections[1], 8, "large").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_many_at_once_then_searches_and_writes_of_one_collection_all_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "mini").await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..4i32 {
        let (store, notes) = (store.clone(), notes.clone());
        tasks.spawn(async move {
            for round in 0..10 {
                let n = worker * 10 + round;
                store.ensure(&notes, 4, "mini").await.unwrap();
                store.upsert(&notes, vec![point(&format!("s{n}"), "v1", n, [1.0, n as f32, 0.0, 0.0])]).await.unwrap();
                store.flush(&notes).await.unwrap();
                store.search(&notes, &[1.0; 4], 3, &ChunkFilter::default()).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(store.count(&notes).await.unwrap(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_collection_that_grows_then_a_graph_is_built_and_finds_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (
        EdgeVectors::open(EdgeConfig {
            index_after_numbers: 2_000,
            index_at_rest: Duration::from_millis(50),
            ..EdgeConfig::at(folder.path())
        })
        .unwrap(),
        collection("notes"),
    );
    store.ensure(&notes, 4, "mini").await.unwrap();
    let vector = |n: i32| [(n as f32).sin(), (n as f32).cos(), (n as f32 * 0.7).sin(), 0.3];
    for batch in 0..6 {
        let points = (batch * 200..(batch + 1) * 200).map(|n| point(&format!("s{n}"), "v1", n, vector(n))).collect();
        store.upsert(&notes, points).await.unwrap();
        store.flush(&notes).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.indexed_points(&notes).await.unwrap() < 500 {
        assert!(Instant::now() < deadline, "no graph was built");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(store.count(&notes).await.unwrap(), 1200);
    for n in (0..1200).step_by(97) {
        let hits = store.search(&notes, &vector(n), 3, &everywhere()).await.unwrap();
        assert!((hits[0].score - 1.0).abs() < 1e-4, "point {n} is not found by its own vector");
    }
    store.upsert(&notes, vec![point("late", "v1", 5000, [0.0, 0.0, 0.0, -1.0])]).await.unwrap();
    store.flush(&notes).await.unwrap();
    assert_eq!(store.search(&notes, &[0.0, 0.0, 0.0, -1.0], 1, &everywhere()).await.unwrap()[0].chunk.source, "late");
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.count(&notes).await.unwrap(), 1201);
    assert!(store.indexed_points(&notes).await.unwrap() >= 500, "the graph is kept");
    assert_eq!(store.search(&notes, &[0.0, 0.0, 0.0, -1.0], 1, &everywhere()).await.unwrap()[0].chunk.source, "late");
    assert_eq!(store.delete_document_except(&notes, &document("s7"), "v2").await.unwrap(), 1);
    store.flush(&notes).await.unwrap();
    assert_eq!(store.count(&notes).await.unwrap(), 1200);
}

/// The write-ahead log that the engine never shortens does not grow without end.
#[tokio::test(flavor = "multi_thread")]
async fn given_much_writing_then_the_write_ahead_log_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "mini").await.unwrap();
    let text = "words ".repeat(40_000);
    for round in 0..60 {
        let large = |n: i32| {
            let mut point = point(&format!("s{n}"), "v1", n, [1.0, round as f32, n as f32, 0.0]);
            point.chunk.text = text.clone();
            point
        };
        store.upsert(&notes, (0..12).map(large).collect()).await.unwrap();
        if round % 3 == 0 {
            store.flush(&notes).await.unwrap();
        }
    }
    store.flush(&notes).await.unwrap();
    let wal = folder.path().join(notes.physical_name()).join("shard/wal");
    let closed = std::fs::read_dir(&wal)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("closed-"))
        .count();
    assert!(closed <= 17, "{closed} finished files");
    assert_eq!(store.count(&notes).await.unwrap(), 12);
    let hits = store
        .search(
            &notes,
            &[1.0, 59.0, 0.0, 0.0],
            1,
            &ChunkFilter { documents: vec![document("s0")], ..ChunkFilter::default() },
        )
        .await
        .unwrap();
    assert_eq!(hits[0].chunk.text, text);
}

/// As when the disk is gone or full.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_folder_that_vanishes_then_flushing_fails_with_a_short_reason_and_closing_is_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "mini").await.unwrap();
    store.upsert(&notes, vec![point("a", "v1", 0, [1.0; 4])]).await.unwrap();
    std::fs::remove_dir_all(folder.path()).unwrap();
    let error = store.flush(&notes).await.unwrap_err();
    assert!(error.retryable() && error.code() == "index_failed" && error.to_string().len() < 600, "{error}");
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_damaged_files_then_the_collection_is_set_aside_and_named_and_others_work() {
    let folder = tempfile::tempdir().unwrap();
    let (notes, other) = (collection("notes"), collection("other"));
    let store = open(folder.path());
    for each in [&notes, &other] {
        store.ensure(each, 4, "mini").await.unwrap();
        store.upsert(each, vec![point("a", "v1", 0, [1.0; 4])]).await.unwrap();
        store.flush(each).await.unwrap();
    }
    drop(store);
    std::fs::write(folder.path().join("default__notes/shard/edge_config.json"), "{").unwrap();
    let segments = folder.path().join("default__notes/shard/segments");
    for segment in std::fs::read_dir(&segments).unwrap() {
        for file in std::fs::read_dir(segment.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                std::fs::write(path, "damaged").unwrap();
            }
        }
    }
    let gaps = Gaps::default();
    let store = EdgeVectors::open_telling(EdgeConfig::at(folder.path()), gaps.clone()).unwrap();
    let error = store.search(&notes, &[1.0; 4], 1, &everywhere()).await.unwrap_err();
    assert!(matches!(error, StoreError::NoCollection(_)), "{error}");
    let damaged = store.damaged();
    assert!(damaged.len() == 1 && damaged[0].collection == notes && damaged[0].reason.contains("default__notes"));
    assert!(damaged[0].kept_at.join("collection.json").exists(), "{damaged:?}");
    assert!(gaps.of(&notes).is_some() && gaps.of(&other).is_none());
    assert_eq!(store.search(&other, &[1.0; 4], 1, &everywhere()).await.unwrap().len(), 1);
    // It can be filled again, also with another model.
    store.ensure(&notes, 4, "maxi").await.unwrap();
    store.upsert(&notes, vec![point("a", "v1", 0, [1.0; 4])]).await.unwrap();
    store.flush(&notes).await.unwrap();
    store.verify(&notes).await.unwrap();
    assert_eq!(store.count(&notes).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_descriptions_that_are_garbage_then_the_others_are_listed_and_the_collection_is_none() {
    for garbage in ["", "{", "\u{0}\u{0}\u{0}", "[]"] {
        let folder = tempfile::tempdir().unwrap();
        let (notes, other) = (collection("notes"), collection("other"));
        let store = open(folder.path());
        for each in [&notes, &other] {
            store.ensure(each, 4, "mini").await.unwrap();
        }
        std::fs::write(folder.path().join("default__notes/collection.json"), garbage).unwrap();
        let listed: Vec<_> = store.list().await.unwrap().into_iter().map(|info| info.collection).collect();
        assert_eq!(listed, [other]);
        assert_eq!(store.info(&notes).await.unwrap(), None);
        store.ensure(&notes, 8, "maxi").await.unwrap();
        assert_eq!(store.list().await.unwrap().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_collection_that_somebody_sets_aside_then_it_is_kept_and_nobody_calls_it_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    assert!(!store.set_aside(&notes, "a test").await.unwrap(), "there is none");
    store.ensure(&notes, 4, "mini").await.unwrap();
    store.upsert(&notes, vec![point("a", "v1", 0, [1.0; 4])]).await.unwrap();
    assert!(store.set_aside(&notes, "a test").await.unwrap());
    assert_eq!((store.info(&notes).await.unwrap(), store.damaged()), (None, Vec::new()));
    assert_eq!(std::fs::read_dir(folder.path().join(".set-aside")).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_tags_then_only_points_that_have_one_of_each_list_are_found_and_documents_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "mini").await.unwrap();
    let tagged = |source: &str, ordinal: i32, tags: &[&str]| {
        let mut point = point(source, "v1", ordinal, [1.0, 0.0, 0.0, 0.0]);
        point.chunk.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        point
    };
    let points = vec![tagged("a", 0, &["t=1", "y=a"]), tagged("b", 0, &["t=1"]), tagged("b", 1, &[])];
    store.upsert(&notes, points).await.unwrap();
    store.flush(&notes).await.unwrap();
    for (lists, expected) in [
        (vec![vec!["t=1"]], vec!["a", "b"]),
        (vec![vec!["t=1"], vec!["y=b", "y=a"]], vec!["a"]),
        (vec![vec!["t=2"]], vec![]),
        (vec![], vec!["a", "b", "b"]),
    ] {
        let tags = lists.iter().map(|list| list.iter().map(|tag| (*tag).to_owned()).collect()).collect();
        let filter = ChunkFilter { tags, ..ChunkFilter::default() };
        let hits = store.search(&notes, &[1.0, 0.0, 0.0, 0.0], 10, &filter).await.unwrap();
        let mut found: Vec<&str> = hits.iter().map(|hit| hit.chunk.source.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{lists:?}");
    }
    let counted: Vec<_> = store.documents(&notes).await.unwrap().into_iter().collect();
    let mut expected = vec![(document("a"), 1), (document("b"), 2)];
    expected.sort();
    assert_eq!(counted, expected);
    assert!(store.documents(&collection("none")).await.unwrap().is_empty());
}
