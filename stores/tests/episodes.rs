//! Vectors of conversations, over the real store.

use std::sync::Arc;

use proptest::prelude::*;
use riverrun_schemas::Session;
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{EpisodePoint, Episodes};

fn session(namespace: &str, name: &str) -> Session {
    Session::new(namespace.parse().unwrap(), name.parse().unwrap())
}

fn point(id: &str, vector: [f32; 2]) -> EpisodePoint {
    EpisodePoint { id: id.into(), text: format!("words of {id}"), vector: vector.to_vec() }
}

fn open() -> (tempfile::TempDir, Episodes) {
    let folder = tempfile::tempdir().unwrap();
    let vectors = EdgeVectors::open(EdgeConfig::at(folder.path().join("memory"))).unwrap();
    (folder, Episodes::new(Arc::new(vectors)))
}

fn ids(hits: Vec<riverrun_stores::EpisodeHit>) -> Vec<String> {
    hits.into_iter().map(|hit| hit.id).collect()
}

#[tokio::test]
async fn given_memories_of_many_conversations_when_one_recalls_then_only_its_own_come_nearest_first() {
    let (_folder, episodes) = open();
    // Names that begin alike, that differ in case, and that would join to the same text.
    let names = [("a", "s"), ("a", "s1"), ("a", "S"), ("a-b", "s"), ("a", "b-s"), ("a", "b/s"), ("b", "s")];
    for (namespace, name) in names {
        let own = session(namespace, name);
        let points = vec![point("epi_near", [1.0, 0.1]), point("epi_far", [0.0, 1.0])];
        episodes.remember(&own, "mini", 2, points).await.unwrap();
    }
    for (namespace, name) in names {
        let own = session(namespace, name);
        assert_eq!(ids(episodes.recall(&own, "mini", &[1.0, 0.0], 10).await.unwrap()), ["epi_near", "epi_far"]);
        assert_eq!(episodes.count(&own, None).await.unwrap(), 2);
    }
    assert!(episodes.recall(&session("nobody", "s"), "mini", &[1.0, 0.0], 10).await.unwrap().is_empty());
    assert!(episodes.recall(&session("a", "nobody"), "mini", &[1.0, 0.0], 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn given_memories_of_two_models_when_some_are_forgotten_then_they_are_gone_of_both_and_the_rest_stays() {
    let (_folder, episodes) = open();
    let (own, other) = (session("a", "s"), session("a", "t"));
    for one in [&own, &other] {
        episodes.remember(one, "mini", 2, vec![point("epi_1", [1.0, 0.0]), point("epi_2", [0.0, 1.0])]).await.unwrap();
        episodes.remember(one, "large", 2, vec![point("epi_1", [1.0, 0.0])]).await.unwrap();
    }
    assert_eq!(episodes.forget(&own, Some(&["epi_1".to_owned()])).await.unwrap(), 2);
    assert_eq!(episodes.forget(&own, Some(&["epi_1".to_owned()])).await.unwrap(), 0);
    assert_eq!(ids(episodes.recall(&own, "mini", &[1.0, 0.0], 10).await.unwrap()), ["epi_2"]);
    assert_eq!(episodes.forget(&own, None).await.unwrap(), 1);
    assert_eq!(episodes.count(&own, None).await.unwrap(), 0);
    assert_eq!(episodes.count(&other, None).await.unwrap(), 3);
}

#[tokio::test]
async fn given_a_memory_that_comes_twice_when_it_is_written_then_there_is_one() {
    let (_folder, episodes) = open();
    let own = session("a", "s");
    for _ in 0..2 {
        episodes.remember(&own, "mini", 2, vec![point("epi_1", [1.0, 0.0])]).await.unwrap();
    }
    assert_eq!(episodes.count(&own, None).await.unwrap(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Whatever two conversations are called, neither finds what is the other's.
    #[test]
    fn two_conversations_never_share_a_memory(a in "[a-z0-9-]{1,4}", b in "[ -~]{1,4}", c in "[a-z0-9-]{1,4}", d in "[ -~]{1,4}") {
        let pair = |n: &str, s: &str| Some(Session::new(n.parse().ok()?, s.parse().ok()?));
        if let (Some(x), Some(y)) = (pair(&a, &b), pair(&c, &d)) {
            let (_folder, episodes) = open();
            tokio::runtime::Runtime::new().unwrap().block_on(async {
                episodes.remember(&x, "mini", 2, vec![point("epi_x", [1.0, 0.0])]).await.unwrap();
                let found = episodes.recall(&y, "mini", &[1.0, 0.0], 5).await.unwrap();
                prop_assert_eq!(found.len(), usize::from(x == y));
                Ok(())
            })?;
        }
    }
}
