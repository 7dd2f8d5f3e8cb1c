//! The indexer: nothing is said to be done before it can be found, and what is to go is gone.

use super::*;

fn notes(name: &str) -> Collection {
    Collection::new("default".parse().unwrap(), name.parse().unwrap())
}

/// The batches of a document version of `chunks` chunks, two a batch.
fn embedded(
    collection: &Collection,
    source: &str,
    version: &str,
    ingest: u32,
    chunks: i32,
    dimensions: usize,
) -> Vec<EmbeddingEvent> {
    let batches = (chunks + 1) / 2;
    let event = |batch: i32| {
        let chunk = |ordinal: i32| {
            let text = format!("{version} words of {source} number {ordinal}");
            let chunk = Chunk {
                chunk_id: ChunkId::derive(&[source, version, &ordinal.to_string()]),
                ordinal,
                start: 0,
                end: text.len() as i64,
                text,
                page: None,
                heading: None,
                layer: 0,
                leaves: Vec::new(),
            };
            let mut vector = vec![0.5; dimensions];
            vector[0] = 1.0 + ordinal as f32;
            EmbeddedChunk::new(chunk, &vector)
        };
        ChunksEmbedded {
            document_id: document_id(collection, source),
            ingest_id: IngestId::derive(&[&ingest.to_string()]),
            namespace: collection.namespace.clone(),
            collection: collection.name.clone(),
            source: source.into(),
            version: version.into(),
            embed_model: format!("model of {dimensions}"),
            batch,
            batches,
            metadata_json: None,
            at: 1,
            dimensions: dimensions as i32,
            chunks: (batch * 2..(batch * 2 + 2).min(chunks)).map(chunk).collect(),
        }
        .into()
    };
    (0..batches).map(event).collect()
}

struct Indexes {
    vectors: EdgeVectors,
    keywords: TantivyIndex,
}

impl Indexes {
    fn open(folder: &Path) -> Self {
        Self {
            vectors: EdgeVectors::open(EdgeConfig::at(folder.join("vectors"))).unwrap(),
            keywords: TantivyIndex::open(TantivyConfig::at(folder.join("keywords"))).unwrap(),
        }
    }

    fn indexer(&self, world: &World) -> (WorkerHandle, CancellationToken) {
        let stop = CancellationToken::new();
        let mut config = RuntimeConfig::new(world.log.clone(), world.producer.clone());
        config.backoff_base = Duration::from_millis(20);
        let indexer = Indexer::new(Arc::new(self.vectors.clone()), Arc::new(self.keywords.clone()));
        (runtime::spawn(indexer, config, stop.clone()), stop)
    }

    async fn found(&self, collection: &Collection, words: &str) -> Vec<String> {
        let hits = self.keywords.search(collection, words, 100, &ChunkFilter::default()).await.unwrap();
        hits.into_iter().map(|hit| hit.chunk.version).collect()
    }
}

async fn send(world: &World, events: Vec<EmbeddingEvent>) {
    world
        .producer
        .send_many(events.iter().map(|event| Outgoing::event(event, "test", None).unwrap()).collect())
        .await
        .unwrap();
}

fn indexed(events: &[IngestEvent]) -> Vec<&DocumentIndexed> {
    events
        .iter()
        .filter_map(|event| if let IngestEvent::DocumentIndexed(event) = event { Some(event) } else { None })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_chunks_with_vectors_then_they_are_found_before_it_is_said_and_old_versions_are_gone() {
    let world = World::new().await;
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    let collection = notes("notes");
    send(&world, embedded(&collection, "/a", "old", 1, 5, 8)).await;
    send(&world, embedded(&collection, "/b", "old", 1, 2, 8)).await;
    until("both documents", || async { (indexed(&world.ingest_events().await).len() == 2).then_some(()) }).await;
    assert_eq!(
        (indexes.vectors.count(&collection).await.unwrap(), indexes.keywords.count(&collection).await.unwrap()),
        (7, 7)
    );

    send(&world, embedded(&collection, "/a", "new", 2, 3, 8)).await;
    let events = until("the new version", || async {
        Some(world.ingest_events().await).filter(|events| indexed(events).len() == 3)
    })
    .await;
    let last = indexed(&events).into_iter().find(|event| event.version == "new").unwrap();
    assert_eq!((last.chunks, last.removed_chunks, last.dimensions, last.embed_model.as_str()), (3, 5, 8, "model of 8"));
    assert_eq!(
        (indexes.vectors.count(&collection).await.unwrap(), indexes.keywords.count(&collection).await.unwrap()),
        (5, 5)
    );
    assert_eq!(indexes.found(&collection, "old").await.len(), 2, "those of /b");
    let hits = indexes
        .vectors
        .search(
            &collection,
            &[1.0; 8],
            100,
            &ChunkFilter { documents: vec![document_id(&collection, "/a")], ..ChunkFilter::default() },
        )
        .await
        .unwrap();
    assert!(
        hits.len() == 3
            && hits.iter().all(|hit| hit.chunk.version == "new" && hit.chunk.text.contains("new words of /a"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_everything_twice_and_a_kill_between_then_there_is_one_copy() {
    let world = World::new().await;
    let collection = notes("notes");
    let indexes = Indexes::open(world.folder.path());
    let (indexer, _) = indexes.indexer(&world);
    for n in 0..20 {
        send(&world, embedded(&collection, &format!("/{n}"), "v", 1, 4, 8)).await;
    }
    until("some document", || async { (!indexed(&world.ingest_events().await).is_empty()).then_some(()) }).await;
    indexer.kill();
    for n in 0..20 {
        send(&world, embedded(&collection, &format!("/{n}"), "v", 1, 4, 8)).await;
    }
    let (_indexer, _) = indexes.indexer(&world);
    let all = |events: &Vec<IngestEvent>| {
        let mut ids: Vec<_> = indexed(events).into_iter().map(|event| event.document_id).collect();
        ids.sort();
        ids.dedup();
        ids.len() == 20 && indexed(events).len() >= 40
    };
    let events = until("all documents", || async { Some(world.ingest_events().await).filter(all) }).await;
    assert!(events.iter().all(|event| matches!(event, IngestEvent::DocumentIndexed(_))), "nothing failed");
    assert_eq!(
        (indexes.vectors.count(&collection).await.unwrap(), indexes.keywords.count(&collection).await.unwrap()),
        (80, 80)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_documents_that_can_not_be_indexed_then_they_fail_with_the_fix_and_the_others_do_not() {
    let world = World::new().await;
    let collection = notes("notes");
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    send(&world, embedded(&collection, "/good", "v", 1, 3, 8)).await;
    send(&world, embedded(&notes("other"), "/also good", "v", 1, 3, 16)).await;
    until("the good ones", || async { Some(world.ingest_events().await).filter(|events| indexed(events).len() == 2) })
        .await;
    // Another model.
    send(&world, embedded(&collection, "/other model", "v", 1, 2, 16)).await;
    // A vector cut off.
    let mut cut = embedded(&collection, "/cut", "v", 1, 2, 8);
    let EmbeddingEvent::ChunksEmbedded(event) = &mut cut[0] else { panic!("nothing was withdrawn") };
    event.chunks[1].vector.truncate(9);
    send(&world, cut).await;
    // A batch that never came.
    let mut gap = embedded(&collection, "/gap", "v", 1, 6, 8);
    gap.remove(1);
    send(&world, gap).await;
    send(&world, embedded(&collection, "/good too", "v", 1, 3, 8)).await;
    let failures = |events: &[IngestEvent]| {
        let failed = events.iter().filter_map(|event| {
            if let IngestEvent::DocumentFailed(event) = event { Some(event.clone()) } else { None }
        });
        let mut failed: Vec<_> =
            failed.map(|event| (event.source, event.stage, event.error.code, event.error.hint.is_some())).collect();
        failed.sort();
        failed.dedup();
        failed
    };
    let events = until("the ends", || async {
        Some(world.ingest_events().await).filter(|events| indexed(events).len() == 3 && failures(events).len() == 3)
    })
    .await;
    let expected =
        [("/cut", "vector_damaged"), ("/gap", "chunks_missing"), ("/other model", "embedding_model_mismatch")];
    assert_eq!(
        failures(&events),
        expected.map(|(source, code)| (source.to_owned(), "index".to_owned(), code.to_owned(), true))
    );
    assert_eq!(
        (indexes.vectors.count(&collection).await.unwrap(), indexes.keywords.count(&collection).await.unwrap()),
        (6, 6),
        "nothing of the failed ones is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_whole_ingest_then_the_read_model_ends_it() {
    let world = World::new().await;
    let sql = world.sql().await;
    let (_projector, _) = world.projector(&sql);
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    let collection = notes("notes");
    let ingest_id = IngestId::derive(&["1"]);
    let scanned = IngestScanned {
        ingest_id,
        namespace: collection.namespace.clone(),
        collection: collection.name.clone(),
        source: "/notes".into(),
        documents: 2,
        skipped: 0,
        left_out: Vec::new(),
        at: 1,
    };
    world.producer.send(&IngestEvent::from(scanned), "test", None).await.unwrap();
    send(&world, embedded(&collection, "/a", "v", 1, 3, 8)).await;
    send(&world, embedded(&collection, "/b", "v", 1, 1, 8)).await;
    let view = until("the end of the ingest", || async {
        documents::ingest(&sql, Within::EveryNamespace, ingest_id).await.unwrap().filter(|view| view.status.ended())
    })
    .await;
    assert_eq!((view.documents.indexed, view.documents.failed), (2, 0));
    let collection = documents::collection(&sql, &collection).await.unwrap().unwrap();
    assert_eq!((collection.documents, collection.chunks, collection.embedding.dimensions), (2, 4, 8));
}

fn withdrawn(collection: &Collection, source: &str, request: u32) -> EmbeddingEvent {
    EmbeddingsWithdrawn {
        document_id: document_id(collection, source),
        ingest_id: IngestId::derive(&[&request.to_string()]),
        namespace: collection.namespace.clone(),
        collection: collection.name.clone(),
        source: source.into(),
        tables: 1,
        rows: 20,
        at: 1,
    }
    .into()
}

fn deleted(events: &[IngestEvent]) -> Vec<&DocumentDeleted> {
    events
        .iter()
        .filter_map(|event| if let IngestEvent::DocumentDeleted(event) = event { Some(event) } else { None })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_document_that_is_withdrawn_then_nothing_of_it_is_found_and_the_receipt_counts() {
    let world = World::new().await;
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    let (collection, other) = (notes("notes"), notes("other"));
    send(&world, embedded(&collection, "/a", "v1", 1, 5, 8)).await;
    send(&world, embedded(&collection, "/b", "v1", 1, 3, 8)).await;
    send(&world, embedded(&other, "/a", "v1", 1, 2, 8)).await;
    // Twice, as after a crash between removal and receipt.
    send(&world, vec![withdrawn(&collection, "/a", 2), withdrawn(&collection, "/a", 2)]).await;
    let events = until("two receipts", || async {
        Some(world.ingest_events().await).filter(|events| deleted(events).len() == 2 && indexed(events).len() == 3)
    })
    .await;
    let receipts = deleted(&events);
    assert_eq!((receipts[0].vectors, receipts[0].keywords, receipts[0].tables, receipts[0].rows), (5, 5, 1, 20));
    assert_eq!((receipts[1].vectors, receipts[1].keywords), (0, 0));
    let gone = document_id(&collection, "/a");
    for documents in
        [indexes.vectors.documents(&collection).await.unwrap(), indexes.keywords.documents(&collection).await.unwrap()]
    {
        assert_eq!(documents.into_iter().collect::<Vec<_>>(), [(document_id(&collection, "/b"), 3)], "{gone}");
    }
    assert_eq!(indexes.found(&other, "words").await.len(), 2, "the same source elsewhere stays");

    // The last one takes the collection with it: it may come back with another model.
    send(&world, vec![withdrawn(&collection, "/b", 3)]).await;
    until("the last receipt", || async {
        Some(world.ingest_events().await).filter(|events| deleted(events).len() == 3)
    })
    .await;
    assert!(indexes.vectors.info(&collection).await.unwrap().is_none());
    send(&world, embedded(&collection, "/a", "v2", 4, 1, 16)).await;
    until("the document of another model", || async {
        Some(world.ingest_events().await).filter(|events| indexed(events).len() == 4)
    })
    .await;
    assert_eq!(indexes.found(&collection, "words").await, ["v2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_removal_between_two_versions_then_the_read_model_counts_only_what_is_there() {
    let world = World::new().await;
    let sql = world.sql().await;
    let (_projector, _) = world.projector(&sql);
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    let collection = notes("notes");
    let document = document_id(&collection, "/a");
    let request = IngestId::derive(&["2"]);
    send(&world, embedded(&collection, "/a", "v1", 1, 4, 8)).await;
    until("the first version", || async { documents::collection(&sql, &collection).await.unwrap() }).await;
    let gone = DocumentWithdrawn {
        document_id: document,
        ingest_id: request,
        namespace: collection.namespace.clone(),
        collection: collection.name.clone(),
        source: "/a".into(),
        tables: 1,
        rows: 20,
        at: 2,
    };
    for _ in 0..2 {
        world.producer.send(&IngestEvent::from(gone.clone()), "test", None).await.unwrap();
    }
    send(&world, vec![withdrawn(&collection, "/a", 2), withdrawn(&collection, "/a", 2)]).await;
    let receipt = until("the receipt", || async {
        deletions::deletion(&sql, request).await.unwrap().filter(|view| view.is_done())
    })
    .await;
    assert_eq!((receipt.documents, receipt.vectors, receipt.keywords, receipt.tables, receipt.rows), (1, 4, 4, 1, 20));
    assert!(documents::collection(&sql, &collection).await.unwrap().is_none());
    assert!(documents::document_in(&sql, &collection.namespace, document).await.unwrap().is_none());
    send(&world, embedded(&collection, "/a", "v2", 3, 2, 8)).await;
    let back = until("the second version", || async { documents::collection(&sql, &collection).await.unwrap() }).await;
    assert_eq!((back.documents, back.chunks), (1, 2));
}
