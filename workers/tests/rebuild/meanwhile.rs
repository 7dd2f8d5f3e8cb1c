//! What goes on while a collection is made again, and what an earlier state of the indexes lacks.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn given_an_old_copy_of_the_indexes_when_asked_then_what_came_since_is_there_and_what_went_is_gone() {
    let world = World::new().await;
    let process = world.start(GatedModels::embedding(by_length, 0));
    for name in ["a", "b", "c"] {
        world.index_version(name, "v1", 5, OLD).await;
    }
    process.end().await;
    let copy = tempfile::tempdir().unwrap();
    for kind in ["vectors", "keywords"] {
        copy_folder(&world.root(kind), &copy.path().join(kind));
    }
    let process = world.start(GatedModels::embedding(by_length, 0));
    // As many chunks as before: counts alone don't tell.
    world.index_version("a", "v2", 5, OLD).await;
    world.index_version("d", "v1", 2, OLD).await;
    world.withdraw("c").await;
    eventually("the removal", || async { (!process.has(&world).await.0.contains_key(&document("c"))).then_some(()) })
        .await;
    process.end().await;
    for kind in ["vectors", "keywords"] {
        std::fs::remove_dir_all(world.root(kind)).unwrap();
        copy_folder(&copy.path().join(kind), &world.root(kind));
    }
    let process = world.start(GatedModels::embedding(by_length, 0));
    let done = world.end(world.ask("old", false).await).await;
    assert_eq!((done.removed, done.vectors, done.keywords), (1, 7, 7));
    process.holds(&world, &[("a", 5), ("b", 5), ("d", 2)]).await;
    process.finds(&world, "a", "v2").await;
    process.end().await;
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let place = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &place);
        } else {
            std::fs::copy(&path, &place).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_removals_and_new_versions_while_it_is_made_again_then_nothing_old_comes_back() {
    let world = World::new().await;
    world.with_documents().await.end().await;
    world.reembedded().await;
    std::fs::remove_dir_all(world.index("vectors")).unwrap();
    // Vectors of the new model have to be made, and wait.
    let models = GatedModels::embedding(by_length, 0);
    let process = world.start(models.clone());
    let request = world.ask("meanwhile", false).await;
    eventually("the first batch at the model", || async { (models.calls() > 0).then_some(()) }).await;
    assert!(process.gaps.of(&world.notes).is_some(), "searches tell meanwhile");
    world.withdraw("a").await;
    world.withdraw("c").await;
    world.index_version("b", "v3", 4, NEW).await;
    models.open();
    let done = world.end(request).await;
    assert_eq!((done.documents, done.chunks, done.embed_model.as_str()), (1, 4, NEW));
    let only = (counts(&[("b", 4)]), counts(&[("b", 4)]));
    eventually("the removals", || async { (process.has(&world).await == only).then_some(()) }).await;
    process.finds(&world, "b", "v3").await;
    assert_eq!(process.gaps.of(&world.notes), None);
    process.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_kill_half_way_when_it_goes_on_then_all_is_there_and_what_was_done_is_not_done_again() {
    let world = World::new().await;
    world.with_documents().await.end().await;
    world.reembedded().await;
    for kind in ["vectors", "keywords"] {
        std::fs::remove_dir_all(world.index(kind)).unwrap();
    }
    let models = GatedModels::embedding(by_length, 2);
    let process = world.start(models.clone());
    let request = world.ask("killed", false).await;
    eventually("some of it", || async { (models.calls() >= 3).then_some(()) }).await;
    let (vectors, keywords) = process.kill();
    let rest = GatedModels::embedding(by_length, ALL);
    let process = world.start_on(vectors, keywords, rest.clone());
    let done = world.end(request).await;
    assert_eq!((done.documents, done.chunks, done.missing), (3, 17, 0));
    process.holds(&world, WHOLE).await;
    process.finds(&world, "b", "v2").await;
    assert_eq!(process.vectors.info(&world.notes).await.unwrap().unwrap().model, NEW);
    // Once more there is nothing to do.
    let before = rest.calls();
    let again = world.end(world.ask("again", false).await).await;
    assert_eq!((again.vectors, again.keywords, again.embedded, rest.calls()), (0, 0, 0, before));
    process.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_whole_collection_when_it_is_made_afresh_then_the_old_indexes_are_kept_and_the_new_ones_whole() {
    let world = World::new().await;
    let process = world.with_documents().await;
    let done = world.end(world.ask("afresh", true).await).await;
    assert_eq!((done.vectors, done.keywords, done.chunks), (17, 17, 17));
    process.holds(&world, WHOLE).await;
    assert_eq!((world.kept("vectors"), world.kept("keywords")), (1, 1));
    process.end().await;
}
