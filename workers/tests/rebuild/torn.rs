//! Indexes with as many chunks of a document, which are not the same chunks.

use riverrun_stores::{Comparison, StoredChunk};

use super::*;

/// Chunks that only one of the indexes has.
async fn differing(process: &Process, world: &World) -> usize {
    let mut comparison = Comparison::new(&process.vectors, &process.keywords, &world.notes);
    let mut found = 0;
    while let Some(compared) = comparison.next().await.unwrap() {
        found += compared.vectors.len() + compared.keywords.len();
    }
    found
}

/// The keywords of a document lack a chunk and have one that nobody wrote.
async fn tear(process: &Process, world: &World, name: &str) {
    let kept = process.vectors.chunks(&world.notes, &document(name)).await.unwrap();
    let strange = StoredChunk { chunk_id: ChunkId::derive(&["strange", name]), ..kept[0].clone() };
    process.keywords.delete_document(&world.notes, &document(name), &Versions::All).await.unwrap();
    process.keywords.commit(&world.notes).await.unwrap();
    let torn = kept[1..].iter().cloned().chain([strange]).collect();
    process.keywords.upsert(&world.notes, torn).await.unwrap();
    process.keywords.commit(&world.notes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_chunk_that_lacks_and_one_too_many_when_asked_then_the_document_is_made_again_and_the_others_are_left()
{
    let world = World::new().await;
    let process = world.with_documents().await;
    tear(&process, &world, "a").await;
    process.holds(&world, WHOLE).await;
    assert_eq!(differing(&process, &world).await, 2, "counts agree, chunks do not");

    let done = world.end(world.ask("torn", false).await).await;
    assert_eq!((done.vectors, done.keywords, done.embedded), (5, 5, 0));
    process.holds(&world, WHOLE).await;
    process.finds(&world, "a", "v1").await;
    assert_eq!(differing(&process, &world).await, 0);
    process.end().await;
}
