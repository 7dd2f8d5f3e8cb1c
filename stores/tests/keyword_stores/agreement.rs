//! Vectors and keywords side by side, by the ids of their chunks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverrun_schemas::{ChunkId, Collection};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::vectors::qdrant::{QdrantConfig, QdrantVectors, Quantization};
use riverrun_stores::{ChunkKey, Comparison, KeywordIndex, VectorPoint, VectorStore};
use tempfile::TempDir;

use crate::common::{document, point};
use crate::{Case, cases, fill, own};

/// A store of vectors and the folder that it needs.
struct Vectors {
    store: Arc<dyn VectorStore>,
    _folder: Option<TempDir>,
}

fn vector_cases() -> Vec<Vectors> {
    let folder = tempfile::tempdir().unwrap();
    let edge = EdgeVectors::open(EdgeConfig::at(folder.path())).unwrap();
    let mut cases = vec![Vectors { store: Arc::new(edge), _folder: Some(folder) }];
    if let Some(url) = std::env::var("RIVERRUN_TEST_QDRANT_URL").ok().filter(|url| !url.is_empty()) {
        let config = QdrantConfig { url, api_key: None, quantization: Quantization::None, keywords: false };
        cases.push(Vectors { store: Arc::new(QdrantVectors::open(config, "agreement").unwrap()), _folder: None });
    }
    cases
}

fn points(source: &str, version: &str, ordinals: std::ops::Range<i32>) -> Vec<VectorPoint> {
    ordinals.map(|ordinal| point(source, version, ordinal, [1.0, ordinal as f32, 0.0, 0.0])).collect()
}

async fn write(vectors: &dyn VectorStore, notes: &Collection, points: Vec<VectorPoint>) {
    vectors.ensure(notes, 4, "mini").await.unwrap();
    vectors.upsert(notes, points).await.unwrap();
    vectors.flush(notes).await.unwrap();
}

/// Chunks in both, in the vectors only and in the keywords only, read in pages of so many.
async fn compared(
    vectors: &dyn VectorStore,
    keywords: &dyn KeywordIndex,
    notes: &Collection,
    page: usize,
) -> [BTreeSet<ChunkId>; 3] {
    let mut found: [Vec<ChunkKey>; 3] = Default::default();
    let mut comparison = Comparison::new(vectors, keywords, notes).in_pages_of(page);
    while let Some(next) = comparison.next().await.unwrap() {
        found[0].extend(next.both);
        found[1].extend(next.vectors);
        found[2].extend(next.keywords);
    }
    found.map(|keys| {
        let ids: BTreeSet<ChunkId> = keys.iter().map(|key| key.chunk_id).collect();
        assert_eq!(ids.len(), keys.len(), "each chunk is met once");
        ids
    })
}

fn ids(points: &[VectorPoint]) -> BTreeSet<ChunkId> {
    points.iter().map(|point| point.chunk.chunk_id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_as_many_chunks_in_both_when_they_are_not_the_same_then_each_is_told_with_the_index_that_has_it() {
    for Vectors { store, _folder } in vector_cases() {
        for Case { index, _folder } in cases() {
            let (vectors, keywords, notes) = (store.as_ref(), index.as_ref(), own("agreement"));
            assert_eq!(
                compared(vectors, keywords, &notes, 3).await,
                [const { BTreeSet::new() }; 3],
                "there is nothing yet"
            );
            let (shared, new, old) = (points("a", "v2", 0..7), points("a", "v2", 7..9), points("b", "v1", 0..2));
            write(vectors, &notes, [shared.clone(), new.clone()].concat()).await;
            let of_keywords = shared.iter().chain(&old).map(|point| point.chunk.clone()).collect();
            fill(keywords, &notes, of_keywords).await;
            assert_eq!(vectors.count(&notes).await.unwrap(), keywords.count(&notes).await.unwrap());
            for page in [1, 2, 3, 1_000] {
                let found = compared(vectors, keywords, &notes, page).await;
                assert_eq!(found, [ids(&shared), ids(&new), ids(&old)], "in pages of {page}");
            }
            let wanted = [document("a"), document("b"), document("nowhere")];
            let counts = |pairs: &[(&str, usize)]| -> BTreeMap<_, _> {
                pairs.iter().map(|(name, chunks)| (document(name), *chunks)).collect()
            };
            assert_eq!(vectors.count_documents(&notes, &wanted).await.unwrap(), counts(&[("a", 9)]));
            assert_eq!(keywords.count_documents(&notes, &wanted).await.unwrap(), counts(&[("a", 7), ("b", 2)]));
            assert_eq!(keywords.count_documents(&notes, &wanted[1..2]).await.unwrap(), counts(&[("b", 2)]));
            assert!(vectors.count_documents(&notes, &[]).await.unwrap().is_empty());
            let known = keywords.keys_of(&notes, &[old[0].chunk.chunk_id, new[0].chunk.chunk_id]).await.unwrap();
            let key =
                ChunkKey { chunk_id: old[0].chunk.chunk_id, document_id: document("b"), version: "v1".to_owned() };
            assert_eq!(known, [key]);
            // What was deleted is held by nobody, also before its terms are merged away.
            keywords.delete_document(&notes, &document("b"), &riverrun_stores::Versions::All).await.unwrap();
            keywords.commit(&notes).await.unwrap();
            assert_eq!(compared(vectors, keywords, &notes, 2).await, [ids(&shared), ids(&new), BTreeSet::new()]);
            vectors.drop_collection(&notes).await.unwrap();
            keywords.drop_collection(&notes).await.unwrap();
        }
    }
}
