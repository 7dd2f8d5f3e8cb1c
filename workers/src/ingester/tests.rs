use std::fs;

use riverrun_log::ObjectStoreBlobs;
use riverrun_schemas::ingest::{ChunksWithdrawn, DeleteCollection, DeleteDocument, DocumentIndexed};
use riverrun_schemas::{Decoded, EventSet, IngestId, Namespace};
use riverrun_stores::warehouse::{DuckConfig, DuckWarehouse};
use tempfile::TempDir;

use super::*;
use crate::runtime::testkit::{self, Stack};

mod tables;
mod tokens;

/// A real log, real blobs and a folder of documents.
struct World {
    stack: Stack,
    blobs: Arc<ObjectStoreBlobs>,
    ingester: Ingester,
    dir: TempDir,
}

/// What a worker said, by topic.
#[derive(Debug, Default)]
struct Said {
    commands: Vec<IngestCommand>,
    events: Vec<IngestEvent>,
    chunks: Vec<ChunksReady>,
    withdrawn: Vec<ChunksWithdrawn>,
}

impl Said {
    fn of(outputs: &[Outgoing]) -> Self {
        let mut said = Self::default();
        for output in outputs {
            let bytes = output.payload.as_deref().unwrap();
            if *output.topic == *IngestCommand::TOPIC.name() {
                said.commands.push(known(IngestCommand::decode(bytes).unwrap()));
            } else if *output.topic == *IngestEvent::TOPIC.name() {
                said.events.push(known(IngestEvent::decode(bytes).unwrap()));
            } else {
                match known(ChunkEvent::decode(bytes).unwrap()) {
                    ChunkEvent::ChunksReady(ready) => said.chunks.push(ready),
                    ChunkEvent::ChunksWithdrawn(gone) => said.withdrawn.push(gone),
                }
            }
        }
        said
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.events.iter().map(|event| event.record_name().rsplit('.').next().unwrap()).collect()
    }

    fn submissions(&self) -> Vec<&SubmitDocument> {
        self.commands
            .iter()
            .map(
                |command| {
                    if let IngestCommand::SubmitDocument(submit) = command { submit } else { panic!("{command:?}") }
                },
            )
            .collect()
    }

    /// Code, stage and whether there is a fix, of the only failure.
    fn failure(&self) -> &Failure {
        let failures: Vec<&Failure> = self
            .events
            .iter()
            .filter_map(|event| match event {
                IngestEvent::IngestFailed(e) => Some(&e.error),
                IngestEvent::DocumentFailed(e) => Some(&e.error),
                _ => None,
            })
            .collect();
        assert_eq!(failures.len(), 1, "{self:?}");
        failures[0]
    }
}

fn known<T: std::fmt::Debug>(decoded: Decoded<T>) -> T {
    match decoded {
        Decoded::Event(event) => event,
        Decoded::UnknownType { record } => panic!("{record} is not known"),
    }
}

impl World {
    async fn new(files: &[(&str, &[u8])]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("docs")).unwrap();
        for (name, bytes) in files {
            fs::write(dir.path().join("docs").join(name), bytes).unwrap();
        }
        let stack = Stack::start().await;
        let blobs = Arc::new(ObjectStoreBlobs::local(&dir.path().join("blobs")).unwrap());
        let limits = Limits { max_file_bytes: 10_000, max_files: 100 };
        let ingester = Ingester::new(
            stack.log().clone(),
            Schemas::built_in(),
            blobs.clone(),
            IngesterConfig { limits, ..IngesterConfig::default() },
        );
        Self { stack, blobs, ingester, dir }
    }

    fn path(&self, name: &str) -> String {
        fs::canonicalize(self.dir.path()).unwrap().join("docs").join(name).display().to_string()
    }

    fn start(&self, source: &str) -> StartIngest {
        StartIngest {
            ingest_id: IngestId::new(),
            namespace: Namespace::default(),
            collection: "docs".parse().unwrap(),
            source: source.to_owned(),
            source_type: None,
            embed_model: "m".to_owned(),
            chunk_size: 800,
            chunk_overlap: 100,
            metadata_json: Some(r#"{"team":"a"}"#.to_owned()),
            query: None,
            include: Vec::new(),
            exclude: Vec::new(),
            depth: None,
            sitemap: false,
            content: None,
            table: None,
            strategy: None,
            chunk_unit: None,
            at: 0,
        }
    }

    async fn handle(&self, command: impl Into<IngestCommand>) -> Said {
        Said::of(&testkit::twice(&self.ingester, [command.into()]).await)
    }

    async fn ingest(&self, source: &str) -> Said {
        let started = self.handle(self.start(source)).await;
        self.hand_in(started.submissions()[0].clone()).await
    }

    /// Hands a document in as if its command lay in the partition that its events are in, writes what is said, and says
    /// that it was indexed.
    async fn hand_in(&self, submit: SubmitDocument) -> Said {
        let position = self.stack.send(&[IngestCommand::from(submit.clone())]).await.remove(0);
        let delivery = Delivery { position, ..testkit::deliveries([IngestCommand::from(submit.clone())]).remove(0) };
        let context = testkit::context(NAME);
        let outputs = self.ingester.handle(std::slice::from_ref(&delivery), &context).await.unwrap();
        let said = Said::of(&outputs);
        self.stack.send_records(outputs.clone()).await;
        let ids = |outputs: &[Outgoing]| outputs.iter().map(Outgoing::event_id).collect::<Vec<_>>();
        let again = self.ingester.handle(std::slice::from_ref(&delivery), &context).await.unwrap();
        assert_eq!(ids(&outputs), ids(&again), "a redelivery after the outputs were written says the same");
        if let Some(ready) = said.chunks.first() {
            let indexed = about!(
                submit,
                DocumentIndexed {
                    version: ready.version.clone(),
                    chunks: 1,
                    removed_chunks: 0,
                    embed_model: "m".to_owned(),
                    dimensions: 2,
                }
            );
            self.stack.send(&[IngestEvent::from(indexed)]).await;
            let again = self.ingester.handle(&[delivery], &context).await.unwrap();
            assert_eq!(ids(&outputs), ids(&again), "and so does one after the document was indexed");
        }
        said
    }
}

#[tokio::test]
async fn given_a_folder_when_started_then_every_document_is_stored_and_handed_in() {
    let large = vec![b'x'; 10_001];
    let world = World::new(&[
        ("a.txt", b"alpha"),
        ("b.md", b"# Beta"),
        ("c.png", b"x"),
        ("large.txt", &large),
        ("program", b"\x7fELF\0"),
    ])
    .await;
    let said = world.handle(world.start(&world.path(""))).await;
    let submissions = said.submissions();
    let sources: Vec<&str> = submissions.iter().map(|submit| submit.source.as_str()).collect();
    assert_eq!(sources, [world.path("a.txt"), world.path("b.md")]);
    assert_eq!(&world.blobs.get(&submissions[0].content).await.unwrap()[..], b"alpha");
    assert_eq!(submissions[1].content.media_type, "text/markdown");
    assert_eq!(submissions[0].metadata_json.as_deref(), Some(r#"{"team":"a"}"#));
    assert_eq!(said.kinds(), ["DocumentFailed", "IngestScanned"]);
    assert_eq!(said.failure().code, "too_large");
    match said.events.last() {
        Some(IngestEvent::IngestScanned(scanned)) => {
            assert_eq!((scanned.documents, scanned.skipped), (3, 2));
            let left_out: Vec<_> =
                scanned.left_out.iter().map(|row| (row.reason.as_str(), row.extension.as_deref(), row.files)).collect();
            assert_eq!(left_out, [("no_reader", Some(".png"), 1), ("not_text", None, 1)]);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn given_sources_that_cannot_be_read_when_started_then_the_request_fails_with_the_fix() {
    let large = vec![b'x'; 10_001];
    let world = World::new(&[("a.png", b"x"), ("large.txt", &large), ("program", b"\x7fELF\0")]).await;
    let empty = world.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let base = world.start(&world.path("a.png"));
    for (start, code) in [
        (world.start(&world.path("nothing.txt")), "not_found"),
        (world.start("docs/a.txt"), "path_not_absolute"),
        (world.start(empty.to_str().unwrap()), "no_readable_documents"),
        (base.clone(), "unsupported_type"),
        (world.start(&world.path("large.txt")), "too_large"),
        (world.start(&world.path("program")), "unsupported_type"),
        (world.start("/dev/zero"), "special_file"),
        (StartIngest { source_type: Some("word".into()), ..base.clone() }, "unknown_source_type"),
        (StartIngest { chunk_size: 0, ..base.clone() }, "bad_chunk_size"),
        (StartIngest { chunk_size: 100, ..base.clone() }, "bad_chunk_overlap"),
    ] {
        let said = world.handle(start).await;
        assert_eq!(said.kinds(), ["IngestFailed"]);
        assert_eq!(said.failure().code, code);
        assert!(said.failure().hint.is_some(), "{code} has no fix");
        assert!(said.commands.is_empty());
    }
}

#[tokio::test]
async fn given_a_document_when_handed_in_then_chunks_are_spans_of_the_stored_text() {
    let text = format!("# Title\r\n\r\n{}", "A sentence about rivers and mountains. ".repeat(2_000 / 8));
    let world = World::new(&[("a.md", text.as_bytes())]).await;
    let started = world.handle(world.start(&world.path("a.md"))).await;
    assert_eq!(started.kinds(), ["IngestScanned"]);
    let said = world.handle(started.submissions()[0].clone()).await;
    assert_eq!(said.kinds(), ["DocumentQueued", "DocumentChunked"]);
    let Some(IngestEvent::DocumentChunked(chunked)) = said.events.last() else { panic!("{said:?}") };
    assert_eq!(chunked.title.as_deref(), Some("Title"));
    assert_eq!((chunked.encoding.as_deref(), chunked.read_as.as_deref()), (Some("UTF-8"), Some("text/markdown")));
    assert!(chunked.pages.is_none() && chunked.fetched_at.is_some_and(|at| at <= chunked.at), "{chunked:?}");
    let stored = world.blobs.get(&chunked.text).await.unwrap();
    assert_eq!(stored, text.as_bytes());
    let chunks: Vec<&Chunk> = said.chunks.iter().flat_map(|ready| &ready.chunks).collect();
    assert_eq!(chunks.len() as i64, chunked.chunks);
    for (ordinal, chunk) in chunks.iter().enumerate() {
        assert_eq!(&stored[chunk.start as usize..chunk.end as usize], chunk.text.as_bytes());
        assert_eq!(chunk.ordinal as usize, ordinal);
        assert_eq!(chunk.heading.as_deref(), Some("Title"));
    }
    let numbers: Vec<(i32, i32)> = said.chunks.iter().map(|ready| (ready.batch, ready.batches)).collect();
    assert!(numbers.len() > 1, "{numbers:?}");
    assert_eq!(numbers, (0..).zip(vec![numbers.len() as i32; numbers.len()]).collect::<Vec<_>>());
}

#[tokio::test]
async fn given_documents_without_text_when_handed_in_then_they_fail_and_never_succeed_with_nothing() {
    let world = World::new(&[
        ("bin.txt", b"a\0b"),
        ("empty.txt", b""),
        ("blank.md", b" \n\t\n"),
        ("pdf.txt", b"%PDF-1.4"),
        ("bad.txt", b"\xff\xfeh"),
    ])
    .await;
    for (name, code) in [
        ("bin.txt", "binary_content"),
        ("empty.txt", "empty_document"),
        ("blank.md", "empty_document"),
        ("pdf.txt", "binary_content"),
        ("bad.txt", "bad_encoding"),
    ] {
        let started = world.handle(world.start(&world.path(name))).await;
        let said = world.handle(started.submissions()[0].clone()).await;
        assert_eq!(said.kinds(), ["DocumentQueued", "DocumentFailed"], "{name}");
        assert_eq!(said.failure().code, code, "{name}");
        assert!(said.failure().message.contains(name) && said.failure().hint.is_some());
        assert!(said.chunks.is_empty());
    }
}

#[tokio::test]
async fn given_a_blob_that_is_gone_when_handed_in_then_the_document_fails() {
    let world = World::new(&[("a.txt", b"alpha")]).await;
    let started = world.handle(world.start(&world.path("a.txt"))).await;
    let submit = started.submissions()[0].clone();
    world.blobs.delete(&submit.content).await.unwrap();
    let said = world.handle(submit).await;
    assert_eq!(said.failure().code, "blob_not_found");
    assert!(said.failure().hint.as_ref().is_some_and(|hint| hint.contains("docs rm")), "{said:?}");
}

#[tokio::test]
async fn given_a_document_when_ingested_again_then_only_a_change_is_work() {
    let world = World::new(&[("a.txt", b"alpha one")]).await;
    let source = world.path("a.txt");
    assert_eq!(world.ingest(&source).await.kinds(), ["DocumentQueued", "DocumentChunked"]);
    let same = world.ingest(&source).await;
    assert_eq!((same.kinds(), same.chunks.len()), (vec!["DocumentQueued", "DocumentUnchanged"], 0));
    fs::write(&source, "alpha two").unwrap();
    assert_eq!(world.ingest(&source).await.kinds(), ["DocumentQueued", "DocumentChunked"]);
    assert_eq!(world.ingest(&source).await.kinds(), ["DocumentQueued", "DocumentUnchanged"]);
    fs::write(&source, "alpha one").unwrap();
    assert_eq!(world.ingest(&source).await.kinds(), ["DocumentQueued", "DocumentChunked"]);
}

#[tokio::test]
async fn given_a_document_whose_chunks_were_lost_when_it_is_handed_in_again_then_it_is_taken_in_with_the_same_chunks() {
    let world = World::new(&[("a.txt", b"alpha one")]).await;
    let source = world.path("a.txt");
    let first = world.ingest(&source).await;
    let started = world.handle(world.start(&source)).await;
    let submit = SubmitDocument { again: true, ..started.submissions()[0].clone() };
    let again = world.hand_in(submit).await;
    assert_eq!(again.kinds(), ["DocumentQueued", "DocumentChunked"]);
    assert_eq!(again.chunks[0].chunks, first.chunks[0].chunks);
    let IngestEvent::DocumentChunked(chunked) = &again.events[1] else { panic!("{again:?}") };
    assert_eq!((chunked.chunk_size, chunked.chunk_overlap, chunked.chunk_unit.as_deref()), (800, 100, None));
    assert_eq!(world.ingest(&source).await.kinds(), ["DocumentQueued", "DocumentUnchanged"]);
}

#[tokio::test]
async fn given_a_command_that_is_given_up_then_its_request_or_document_ends_as_failed() {
    let world = World::new(&[("a.txt", b"alpha")]).await;
    let start = world.start(&world.path("a.txt"));
    let submit = world.handle(start.clone()).await.submissions()[0].clone();
    for (command, kind) in [(IngestCommand::from(start), "IngestFailed"), (submit.into(), "DocumentFailed")] {
        let delivery = testkit::deliveries([command]).remove(0);
        let said = Said::of(&world.ingester.dead(&delivery, "log_unavailable", "no broker"));
        assert_eq!((said.kinds(), said.failure().code.as_str()), (vec![kind], "log_unavailable"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_document_that_is_to_go_when_handed_in_again_then_it_is_taken_in_anew() {
    let world = World::new(&[("a.txt", b"alpha beta"), ("b.txt", b"gamma delta")]).await;
    let taken = world.ingest(&world.path("a.txt")).await;
    assert_eq!(world.ingest(&world.path("a.txt")).await.kinds(), ["DocumentQueued", "DocumentUnchanged"]);
    let ready = taken.chunks[0].clone();
    let delete = about!(ready, DeleteDocument {});
    let said = world.handle(delete).await;
    assert_eq!((said.kinds(), said.withdrawn.len()), (vec!["DocumentWithdrawn"], 1));
    world.stack.send(&said.events).await;
    assert_eq!(world.ingest(&world.path("a.txt")).await.kinds(), ["DocumentQueued", "DocumentChunked"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_collection_that_is_to_go_then_every_document_of_it_gets_a_command_and_others_none() {
    let world = World::new(&[("a.txt", b"alpha beta"), ("b.txt", b"gamma delta"), ("c.txt", b"epsilon")]).await;
    let (a, b) = (world.ingest(&world.path("a.txt")).await, world.ingest(&world.path("b.txt")).await);
    let gone = world.handle(about!(b.chunks[0].clone(), DeleteDocument {})).await;
    world.stack.send(&gone.events).await;
    let delete = |collection: &str, at| DeleteCollection {
        ingest_id: IngestId::derive(&[collection]),
        namespace: Namespace::default(),
        collection: collection.parse().unwrap(),
        at,
    };
    for (collection, at, expected) in
        [("docs", now_ms(), vec![a.chunks[0].document_id]), ("docs", 0, vec![]), ("other", now_ms(), vec![])]
    {
        let said = world.handle(delete(collection, at)).await;
        let [IngestEvent::CollectionWithdrawn(event)] = said.events.as_slice() else { panic!("{said:?}") };
        let documents: Vec<_> = said
            .commands
            .iter()
            .map(|command| match command {
                IngestCommand::DeleteDocument(delete) => delete.document_id,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((event.documents as usize, documents), (expected.len(), expected), "{collection} {at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_table_that_can_not_be_made_then_the_document_fails_with_the_reason() {
    let world = World::new(&[("a.txt", b"alpha beta")]).await;
    let start = StartIngest { table: Some("t".to_owned()), ..world.start(&world.path("a.txt")) };
    let submit = world.handle(start).await.submissions()[0].clone();
    assert_eq!(submit.table.as_deref(), Some("t"));
    assert_eq!(world.handle(submit.clone()).await.failure().code, "warehouse_missing");
    let World { ingester, dir, stack, blobs } = world;
    let warehouse = DuckWarehouse::open(DuckConfig::at(dir.path().join("warehouse"))).unwrap();
    let world = World { ingester: ingester.with_warehouse(Arc::new(warehouse)), dir, stack, blobs };
    assert_eq!(world.handle(submit).await.failure().code, "not_tabular");
}
