use proptest::prelude::*;
use riverrun_schemas::ingest::{
    Chunk, ChunksEmbedded, ChunksReady, CollectionReembedded, DocumentDeleted, DocumentFailed, DocumentIndexed,
    EmbeddedChunk, EmbeddingsWithdrawn,
};
use riverrun_schemas::{ChunkId, Failure};

use super::*;

const MODEL: &str = "m";

fn notes() -> Collection {
    Collection::new("default".parse().unwrap(), "notes".parse().unwrap())
}

fn document() -> DocumentId {
    DocumentId::derive(&["d"])
}

/// A request, by a letter.
fn ingest(name: &str) -> IngestId {
    IngestId::derive(&[name])
}

macro_rules! of_document {
    ($event:ident { $($field:tt)* }, $ingest:expr) => {
        $event {
            document_id: document(),
            ingest_id: ingest($ingest),
            namespace: notes().namespace,
            collection: notes().name,
            source: "/d".to_owned(),
            at: 1,
            $($field)*
        }
    };
}

struct World {
    fold: Fold,
    next: i64,
}

impl World {
    fn new() -> Self {
        Self { fold: Fold::new(notes()), next: 0 }
    }

    /// Batches of two chunks of a version, which is named as its request is.
    fn batches(&mut self, version: &str, model: &str, which: std::ops::Range<i32>, batches: i32) -> &mut Self {
        for batch in which {
            let chunk = |ordinal: i32| {
                let chunk = Chunk {
                    chunk_id: ChunkId::derive(&[version, &ordinal.to_string()]),
                    ordinal,
                    start: 0,
                    end: 1,
                    text: "x".to_owned(),
                    page: None,
                    heading: None,
                    layer: 0,
                    leaves: Vec::new(),
                };
                EmbeddedChunk::new(chunk, &[1.0])
            };
            let event = of_document!(
                ChunksEmbedded {
                    version: version.to_owned(),
                    embed_model: model.to_owned(),
                    batch,
                    batches,
                    metadata_json: None,
                    dimensions: 1,
                    chunks: vec![chunk(2 * batch), chunk(2 * batch + 1)],
                },
                version
            );
            let place = self.place();
            self.fold.embedding(&event.into(), place);
        }
        self
    }

    fn place(&mut self) -> Place {
        self.next += 1;
        Place { partition: 0, offset: self.next - 1 }
    }

    fn whole(&mut self, version: &str) -> &mut Self {
        self.batches(version, MODEL, 0..2, 2)
    }

    fn indexed(&mut self, version: &str) -> &mut Self {
        let event = of_document!(
            DocumentIndexed {
                version: version.to_owned(),
                chunks: 4,
                removed_chunks: 0,
                embed_model: MODEL.to_owned(),
                dimensions: 1,
            },
            version
        );
        self.fold.event(&event.into());
        self
    }

    fn failed(&mut self, version: &str) -> &mut Self {
        let event = of_document!(DocumentFailed { stage: "index".to_owned(), error: Failure::new("x", "y") }, version);
        self.fold.event(&event.into());
        self
    }

    fn withdrawn(&mut self, request: &str) -> &mut Self {
        let place = self.place();
        self.fold.embedding(&of_document!(EmbeddingsWithdrawn { tables: 0, rows: 0 }, request).into(), place);
        self
    }

    fn deleted(&mut self, request: &str) -> &mut Self {
        let event = of_document!(DocumentDeleted { vectors: 4, keywords: 4, tables: 0, rows: 0 }, request);
        self.fold.event(&event.into());
        self
    }

    fn reembedded(&mut self, model: &str) -> &mut Self {
        let event = CollectionReembedded {
            ingest_id: ingest("r"),
            namespace: notes().namespace,
            collection: notes().name,
            embed_model: model.to_owned(),
            dimensions: 1,
            documents: 1,
            chunks: 4,
            at: 2,
        };
        self.fold.event(&event.into());
        self
    }

    /// The versions that are wanted whole and coming, and the chunks that are lost.
    fn wants(&self) -> (Option<String>, Option<String>, Option<usize>) {
        let model = self.fold.model().unwrap_or(MODEL);
        let wanted = self.fold.wanted(&document(), model);
        let name = |version: &Version| version.version.clone();
        (wanted.whole.map(|(version, _)| name(version)), wanted.coming.map(name), wanted.lost)
    }
}

fn only(version: &str) -> (Option<String>, Option<String>, Option<usize>) {
    (Some(version.to_owned()), None, None)
}

const NOTHING: (Option<String>, Option<String>, Option<usize>) = (None, None, None);

#[test]
fn given_versions_in_a_row_then_the_last_whole_one_is_wanted_and_what_came_of_the_next() {
    let mut world = World::new();
    assert_eq!(world.wants(), NOTHING);
    assert_eq!(world.whole("a").wants(), only("a"), "the indexer takes it, or has");
    assert_eq!(world.indexed("a").wants(), only("a"));
    assert_eq!(world.batches("b", MODEL, 0..1, 2).wants(), (Some("a".into()), Some("b".into()), None));
    assert_eq!(world.batches("b", MODEL, 1..2, 2).wants(), only("b"));
    assert_eq!(world.indexed("b").wants(), only("b"));
    // The embedder was killed and writes both again.
    assert_eq!(world.whole("a").whole("b").wants(), only("b"));
}

#[test]
fn given_versions_that_failed_or_were_refused_then_what_was_indexed_stays_wanted() {
    let mut world = World::new();
    world.whole("a").indexed("a");
    assert_eq!(world.batches("b", MODEL, 0..1, 2).failed("b").wants(), only("a"));
    assert_eq!(world.batches("c", "other", 0..2, 2).wants(), only("a"), "vectors of another model are refused");
    assert_eq!(world.whole("e").failed("e").wants(), only("a"));
    // After the model changed what was indexed before is wanted all the same, with vectors that are made anew.
    assert_eq!(world.reembedded("other").wants(), only("c"), "of the new model, and nobody said that it failed");
    assert_eq!(world.failed("c").wants(), only("a"));
}

#[test]
fn given_removals_then_nothing_before_them_is_wanted_whichever_topic_is_heard_of_first() {
    let ends = Ends::from([(0, 100)]);
    for late in [false, true] {
        let mut world = World::new();
        world.whole("a").indexed("a");
        if late {
            world.withdrawn("w").deleted("w");
        } else {
            world.deleted("w").withdrawn("w");
        }
        assert_eq!(world.wants(), NOTHING);
        assert!(world.fold.wanted(&document(), MODEL).is_gone(&ends));
        world.whole("b");
        assert_eq!(world.wants(), only("b"), "it was handed in again");
    }
    let mut world = World::new();
    world.whole("a").indexed("a").withdrawn("w");
    assert_eq!(world.wants(), NOTHING, "what was indexed goes, also before that is said");
    let wanted = world.fold.wanted(&document(), MODEL);
    assert!(
        wanted.is_gone(&ends) && !wanted.is_gone(&Ends::from([(0, 2)])),
        "a removal behind the end is the indexer's"
    );
}

#[test]
fn given_embeddings_that_are_gone_then_their_chunks_are_looked_for_and_missed() {
    let mut world = World::new();
    world.indexed("a");
    assert_eq!(world.wants(), (None, None, Some(4)));
    assert!(world.fold.lacks_embeddings(MODEL));
    // Half of it fell off the log.
    world.batches("a", MODEL, 1..2, 2);
    assert_eq!(world.wants(), (None, None, Some(4)));
    for batch in 0..2 {
        let chunk = |ordinal: i32| Chunk {
            chunk_id: ChunkId::derive(&[&ordinal.to_string()]),
            ordinal,
            start: 0,
            end: 1,
            text: "x".to_owned(),
            page: None,
            heading: None,
            layer: 0,
            leaves: Vec::new(),
        };
        let ready = of_document!(
            ChunksReady {
                version: "a".to_owned(),
                embed_model: MODEL.to_owned(),
                batch,
                batches: 2,
                metadata_json: None,
                chunks: vec![chunk(2 * batch), chunk(2 * batch + 1)],
                context: None,
            },
            "a"
        );
        world.fold.chunks(&ready.into(), Place { partition: 3, offset: i64::from(batch) });
    }
    assert_eq!(world.wants(), only("a"));
    let origin = world.fold.wanted(&document(), MODEL).whole.map(|(version, origin)| (version.chunks(), origin));
    assert_eq!(origin, Some((4, Origin::Chunks)));
}

/// Whether the document that was indexed with `a` is awaited, handed in again as `again`.
fn awaited(world: &World) -> bool {
    world.fold.is_awaited(&document(), ingest("a"), ingest("again"))
}

#[test]
fn given_a_lost_document_that_is_handed_in_again_then_it_is_awaited_until_it_ends_in_any_way() {
    let mut world = World::new();
    world.indexed("a");
    assert_eq!(world.fold.indexed_by(&document()), Some(ingest("a")));
    assert!(awaited(&world) && awaited(world.batches("again", MODEL, 0..2, 2)), "its chunks are not found yet");
    assert!(!awaited(world.indexed("again")));
    for end in [World::failed, World::deleted] {
        let mut world = World::new();
        assert!(!awaited(end(world.indexed("a"), "again")));
    }
    let mut world = World::new();
    assert!(!awaited(world.indexed("a").whole("b").indexed("b")), "somebody handed in something newer");
    assert!(awaited(World::new().indexed("a").failed("b")), "that was another request");
}

#[test]
fn given_events_of_another_collection_then_they_count_for_nothing() {
    let mut world = World::new();
    world.whole("a").indexed("a");
    let elsewhere = Collection::new("default".parse().unwrap(), "papers".parse().unwrap());
    let mut other = World { fold: Fold::new(elsewhere), next: 0 };
    other.whole("a").indexed("a").withdrawn("w");
    assert_eq!(other.fold.all(MODEL).count(), 0);
    assert_eq!(world.fold.all(MODEL).count(), 1);
}

proptest! {
    /// However versions and removals follow each other, and however far the indexer's word is behind: what is wanted is what an
    /// indexer that has done everything has.
    #[test]
    fn given_any_history_then_what_is_wanted_is_what_the_indexer_would_have(
        history in prop::collection::vec((0..6usize, prop::bool::ANY), 1..30), told in 0..30usize,
    ) {
        let mut world = World::new();
        let mut found: Option<String> = None;
        let mut words: Vec<(bool, String)> = Vec::new();
        for (step, (which, removal)) in history.iter().enumerate() {
            let name = format!("{which}-{step}");
            if *removal {
                world.withdrawn(&name);
                found = None;
            } else {
                world.whole(&name);
                found = Some(name.clone());
            }
            words.push((*removal, name));
        }
        for (removal, name) in words.iter().take(told) {
            if *removal { world.deleted(name); } else { world.indexed(name); }
        }
        let (whole, coming, _) = world.wants();
        prop_assert_eq!((whole, coming), (found, None));
    }
}
