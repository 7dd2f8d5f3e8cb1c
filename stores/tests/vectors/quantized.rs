//! Vectors that are long enough to be kept in four bits a number as well: what is found is what comparing the whole vectors finds.

use std::time::{Duration, Instant};

use riverrun_schemas::ChunkId;
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{VectorPoint, VectorStore};

use crate::common::{collection, copy_folder, document, point};
use crate::{everywhere, open};

const DIMENSIONS: usize = 96;
const WANTED: usize = 10;

/// Numbers from -1 to 1 by a linear congruential generator (Knuth's MMIX constants).
fn vector(seed: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    for _ in 0..8 {
        next();
    }
    (0..DIMENSIONS).map(|_| next()).collect()
}

fn points(numbers: std::ops::Range<usize>) -> Vec<VectorPoint> {
    let made = |n: usize| VectorPoint { vector: vector(n), ..point(&format!("s{n}"), "v1", n as i32, [0.0; 4]) };
    numbers.map(made).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}

/// The nearest by comparing everything, best first.
fn nearest(points: &[VectorPoint], query: &[f32]) -> Vec<(ChunkId, f64)> {
    let mut all: Vec<_> = points.iter().map(|point| (point.chunk.chunk_id, cosine(&point.vector, query))).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(WANTED);
    all
}

/// How many of the nearest to 40 queries are found, of 400, each with its score.
async fn found(store: &EdgeVectors, points: &[VectorPoint]) -> usize {
    let mut found = 0;
    for query in (0..40).map(|n| vector(1_000_000 + n)) {
        let expected = nearest(points, &query);
        let hits = store.search(&collection("notes"), &query, WANTED, &everywhere()).await.unwrap();
        assert_eq!(hits.len(), WANTED);
        for hit in hits {
            let known = expected.iter().find(|(id, _)| *id == hit.chunk.chunk_id);
            found += usize::from(known.is_some());
            assert!(
                known.is_none_or(|(_, score)| (score - f64::from(hit.score)).abs() < 1e-4),
                "{known:?} {}",
                hit.score
            );
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn given_long_vectors_when_the_process_is_killed_and_goes_on_then_what_is_found_is_what_comparing_all_finds() {
    let (folder, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let notes = collection("notes");
    let store = open(folder.path());
    store.ensure(&notes, DIMENSIONS, "mini").await.unwrap();
    let all = points(0..2_000);
    store.upsert(&notes, all[..1_200].to_vec()).await.unwrap();
    store.flush(&notes).await.unwrap();
    assert_eq!(found(&store, &all[..1_200]).await, 400);
    store.upsert(&notes, all[1_200..].to_vec()).await.unwrap();
    copy_folder(folder.path(), after.path());

    let again = open(after.path());
    // What the log hands in again, with a document that is deleted and one whose vector is another now.
    again.upsert(&notes, all[1_200..].to_vec()).await.unwrap();
    assert_eq!(again.delete_document_except(&notes, &document("s5"), "v2").await.unwrap(), 1);
    let mut all = all;
    all[7].vector = vector(777_777);
    again.upsert(&notes, vec![all[7].clone()]).await.unwrap();
    all.remove(5);
    again.flush(&notes).await.unwrap();
    assert_eq!(again.count(&notes).await.unwrap(), 1_999);
    assert_eq!(found(&again, &all).await, 400);
    drop(again);
    assert_eq!(found(&open(after.path()), &all).await, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_process_that_ended_before_the_graph_was_built_when_the_next_one_searches_then_it_builds_it_and_finds_nearly_all()
 {
    let folder = tempfile::tempdir().unwrap();
    let (notes, all) = (collection("notes"), points(0..3_000));
    let of = |numbers: usize| EdgeConfig {
        index_after_numbers: numbers,
        index_at_rest: Duration::from_millis(50),
        ..EdgeConfig::at(folder.path())
    };
    let store = EdgeVectors::open(of(usize::MAX)).unwrap();
    store.ensure(&notes, DIMENSIONS, "mini").await.unwrap();
    store.upsert(&notes, all.clone()).await.unwrap();
    store.flush(&notes).await.unwrap();
    assert_eq!(store.indexed_points(&notes).await.unwrap(), 0);
    drop(store);

    let store = EdgeVectors::open(of(1_000 * DIMENSIONS)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.indexed_points(&notes).await.unwrap() < 3_000 {
        assert!(Instant::now() < deadline, "no graph was built");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Neighbours of random vectors are the hardest to find by a graph.
    let found = found(&store, &all).await;
    assert!(found >= 360, "{found} of 400");
}
