//! A collection is searched with another model from one moment on.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn given_a_shadow_of_another_model_when_swapped_then_a_search_sees_wholly_the_old_or_the_new() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "old").await.unwrap();
    let old: Vec<VectorPoint> = (0..30).map(|n| point("a", "v1", n, [1.0, 0.0, 0.0, n as f32])).collect();
    store.upsert(&notes, old.clone()).await.unwrap();
    store.flush(&notes).await.unwrap();
    let chunks = store.chunks(&notes, &document("a")).await.unwrap();
    assert_eq!(chunks, old.into_iter().map(|point| point.chunk).collect::<Vec<_>>());

    let shadows = store.shadows().unwrap();
    for round in 0..3 {
        let (dimensions, model) = (2 + round, format!("new {round}"));
        shadows.ensure(&notes, dimensions, &model).await.unwrap();
        let points = chunks.iter().map(|chunk| VectorPoint { chunk: chunk.clone(), vector: vec![1.0; dimensions] });
        shadows.upsert(&notes, points.collect()).await.unwrap();
        shadows.flush(&notes).await.unwrap();
        assert_eq!(store.list().await.unwrap().len(), 1, "a shadow is no collection");
        assert_ne!(store.info(&notes).await.unwrap().unwrap().model, model, "nobody sees it before the swap");

        let done = std::sync::atomic::AtomicBool::new(false);
        let searching = async {
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                let info = store.info(&notes).await.unwrap().unwrap();
                match store.search(&notes, &vec![1.0; info.dimensions], 50, &everywhere()).await {
                    Ok(hits) => assert_eq!(hits.len(), 30),
                    // It was swapped after the look at its length.
                    Err(StoreError::Dimensions { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let swapping = async {
            store.swap(&notes).await.unwrap();
            done.store(true, std::sync::atomic::Ordering::Release);
        };
        tokio::join!(searching, swapping);
        let info = store.info(&notes).await.unwrap().unwrap();
        assert_eq!((info.model, info.dimensions), (model, dimensions));
        assert_eq!(shadows.info(&notes).await.unwrap(), None);
    }
    assert!(matches!(store.swap(&notes).await, Err(StoreError::NoCollection(_))), "there is no shadow");

    let crashed = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), &crashed.path().join("left"));
    let store = open(&crashed.path().join("left"));
    assert_eq!(store.count(&notes).await.unwrap(), 30);
    assert_eq!(store.info(&notes).await.unwrap().unwrap().model, "new 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_what_swaps_left_that_were_cut_off_then_the_collection_is_the_old_one_and_the_next_swap_works() {
    let folder = tempfile::tempdir().unwrap();
    let (store, notes) = (open(folder.path()), collection("notes"));
    store.ensure(&notes, 4, "old").await.unwrap();
    store.upsert(&notes, vec![point("a", "v1", 0, [1.0; 4])]).await.unwrap();
    store.flush(&notes).await.unwrap();
    // The shadow's points were moved, and the collection was not told yet.
    let shadows = store.shadows().unwrap();
    shadows.ensure(&notes, 2, "new").await.unwrap();
    let points = || vec![VectorPoint { vector: vec![1.0; 2], ..point("a", "v1", 0, [1.0; 4]) }];
    shadows.upsert(&notes, points()).await.unwrap();
    shadows.flush(&notes).await.unwrap();
    drop((store, shadows));
    let physical = notes.physical_name();
    let from = folder.path().join(".shadows").join(&physical).join("shard");
    std::fs::rename(from, folder.path().join(&physical).join("shard-2")).unwrap();

    let store = open(folder.path());
    assert_eq!(store.info(&notes).await.unwrap().unwrap().model, "old");
    assert_eq!(store.search(&notes, &[1.0; 4], 9, &everywhere()).await.unwrap().len(), 1);
    let shadows = store.shadows().unwrap();
    assert_eq!(shadows.count(&notes).await.unwrap(), 0, "it is made again");
    shadows.upsert(&notes, points()).await.unwrap();
    shadows.flush(&notes).await.unwrap();
    store.swap(&notes).await.unwrap();
    assert_eq!(store.info(&notes).await.unwrap().unwrap().model, "new");
    assert_eq!(store.search(&notes, &[1.0; 2], 9, &everywhere()).await.unwrap().len(), 1);
}
