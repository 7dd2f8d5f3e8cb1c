use riverrun_log::ObjectStoreBlobs;
use riverrun_schemas::Namespace;

use super::*;
use crate::runtime::testkit::Stack;

struct World {
    stack: Stack,
    blobs: Arc<dyn BlobStore>,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Arc::new(ObjectStoreBlobs::local(&dir.path().join("blobs")).unwrap());
        Self { stack: Stack::start().await, blobs, _dir: dir }
    }

    fn target(&self) -> StreamTarget {
        StreamTarget {
            collection: Collection::new(Namespace::default(), "docs".parse().unwrap()),
            embed_model: "m".into(),
            chunk_size: 800,
            chunk_overlap: 100,
            chunk_unit: None,
            source_type: None,
            metadata: Some(Map::from_iter([("team".to_owned(), Value::from("a"))])),
        }
    }

    async fn consume(&self, topic: &str) -> Consumed {
        let idle = Some(Duration::from_millis(300));
        let config = StreamConfig { log: self.stack.log().clone(), topic: topic.into(), target: self.target(), idle };
        consume(config, self.stack.producer(), &self.blobs, CancellationToken::new(), |_| {}).await.unwrap()
    }

    async fn submissions(&self) -> Vec<SubmitDocument> {
        let commands = self.stack.events::<IngestCommand>().await;
        commands
            .into_iter()
            .map(|command| match command {
                IngestCommand::SubmitDocument(submit) => submit,
                other @ (IngestCommand::StartIngest(_)
                | IngestCommand::DeleteDocument(_)
                | IngestCommand::DeleteCollection(_)
                | IngestCommand::ReembedCollection(_)
                | IngestCommand::RebuildCollection(_)
                | IngestCommand::TuneCollection(_)
                | IngestCommand::BuildTree(_)) => panic!("{other:?}"),
            })
            .collect()
    }
}

fn plain(topic: &str, key: Option<&str>, payload: Option<&[u8]>, content_type: Option<&str>) -> Outgoing {
    Outgoing {
        topic: topic.into(),
        partition: Some(0),
        key: key.map(|key| key.as_bytes().to_vec().into()),
        payload: payload.map(|bytes| bytes.to_vec().into()),
        headers: content_type.map(|kind| (CONTENT_TYPE.to_owned(), kind.as_bytes().to_vec())).into_iter().collect(),
    }
}

fn avro(name: &str, text: &str, metadata_json: Option<&str>) -> Outgoing {
    let document = PublishDocument {
        name: name.into(),
        text: text.into(),
        content_type: Some("text/markdown".into()),
        metadata_json: metadata_json.map(str::to_owned),
        at: 1,
    };
    Outgoing::event(&DocumentMessage::from(document), "test", None).unwrap().to_partition(0)
}

fn record(outgoing: Outgoing, offset: i64) -> Record {
    Record {
        topic: outgoing.topic,
        partition: 0,
        offset,
        key: outgoing.key,
        payload: outgoing.payload,
        headers: outgoing.headers,
        timestamp_ms: 0,
    }
}

#[tokio::test]
async fn given_documents_on_a_topic_when_consumed_twice_then_each_is_handed_in_once() {
    let world = World::new().await;
    let topic = Topic::Documents.name();
    let stack = &world.stack;
    stack
        .send_records(vec![
            plain(topic, None, Some(b"plain words"), None),
            avro("notes", "# Notes", Some(r#"{"by":"ann"}"#)),
        ])
        .await;
    let first = world.consume(topic).await;
    assert_eq!((first.records, first.documents, first.dead_letters, first.ingests.len()), (2, 2, 0, 2));
    assert_eq!(world.consume(topic).await, Consumed::default(), "the group goes on where it was");
    stack.send_records(vec![plain(topic, Some("a.md"), Some(b"# A"), None)]).await;
    assert_eq!(world.consume(topic).await.documents, 1);
    let mut found: Vec<(String, Option<String>, Option<String>)> = world
        .submissions()
        .await
        .into_iter()
        .map(|submit| (submit.source, submit.source_type, submit.metadata_json))
        .collect();
    found.sort();
    let own = Some(r#"{"team":"a"}"#.to_owned());
    let both = Some(r#"{"team":"a","by":"ann"}"#.to_owned());
    let kind = |name: &str| Some(name.to_owned());
    assert_eq!(
        found,
        [
            (format!("kafka://{topic}/0/0"), kind("text"), own.clone()),
            (format!("kafka://{topic}/a.md"), kind("markdown"), own),
            (format!("kafka://{topic}/notes"), kind("markdown"), both),
        ]
    );
    let scanned = stack.events::<IngestEvent>().await;
    assert_eq!(
        scanned.iter().filter(|event| matches!(event, IngestEvent::IngestScanned(e) if e.documents == 1)).count(),
        3
    );
}

#[tokio::test]
async fn given_records_that_are_no_documents_when_consumed_then_each_is_a_dead_letter_and_the_next_goes_on() {
    let world = World::new().await;
    let topic = Topic::Documents.name();
    let framed = |id: u32, body: &[u8]| riverrun_schemas::framing::frame(id, body);
    let foreign = riverrun_schemas::registry::newest(Topic::IngestCommands, "riverrun.ingest.StartIngest").unwrap().id;
    world
        .stack
        .send_records(vec![
            plain(topic, None, None, None),
            plain(topic, None, Some(b"\0"), None),
            plain(topic, None, Some(&framed(999_999, b"x")), None),
            plain(topic, None, Some(&framed(foreign, b"x")), None),
            plain(topic, None, Some(&framed(61, b"\xff\xff\xff\xff\x0f")), None),
            avro("x", "text", Some("[1]")),
            plain(topic, None, Some(b"good words"), None),
        ])
        .await;
    let consumed = world.consume(topic).await;
    assert_eq!((consumed.records, consumed.documents, consumed.dead_letters), (7, 1, 6));
    let mut codes: Vec<String> =
        world.stack.letters(Topic::Documents).await.into_iter().map(|letter| letter.code).collect();
    codes.sort();
    assert_eq!(codes, ["bad_body", "bad_frame", "bad_metadata", "tombstone", "unknown_schema_id", "wrong_topic"]);
}

#[tokio::test]
async fn given_a_topic_of_ones_own_when_consumed_then_it_is_made_and_read() {
    let world = World::new().await;
    ensure_topic(world.stack.log(), "notes").await.unwrap();
    world.stack.send_records(vec![plain("notes", None, Some(b"words"), None)]).await;
    assert_eq!(world.consume("notes").await.documents, 1);
    for topic in [
        "riverrun.ingest.commands",
        "riverrun.documents.dlq",
        "__consumer_offsets",
        "../x",
        "",
        "a b",
        "x.dlq",
        &"x".repeat(250),
    ] {
        assert!(matches!(ensure_topic(world.stack.log(), topic).await, Err(StreamError::WrongTopic(_))), "{topic}");
    }
}

#[test]
fn given_what_records_say_of_themselves_when_read_then_type_and_name_follow_or_lies_end_as_text() {
    let target = StreamTarget {
        collection: Collection::new(Namespace::default(), "docs".parse().unwrap()),
        embed_model: "m".into(),
        chunk_size: 800,
        chunk_overlap: 100,
        chunk_unit: None,
        source_type: None,
        metadata: None,
    };
    let arrived = |outgoing| {
        let arrived = read(&record(outgoing, 7), &Schemas::built_in(), &target).unwrap();
        (arrived.source, arrived.source_type)
    };
    let named = |name: &str| format!("kafka://t/{name}");
    for (key, payload, content_type, source, kind) in [
        (None, &b"words"[..], None, named("0/7"), "text"),
        (Some("a.csv"), b"a,b", None, named("a.csv"), "csv"),
        (Some("user.1234"), b"words", None, named("user.1234"), "text"),
        (Some("k"), b"<html><p>x", None, named("k"), "html"),
        (Some("k"), b"x", Some("text/html; charset=utf-8"), named("k"), "html"),
        // A lie about the type is found out by the reader of that type, which fails the document.
        (Some("k"), b"words", Some("application/pdf"), named("k"), "pdf"),
        (Some("k"), b"words", Some("application/octet-stream"), named("k"), "text"),
        (Some("k"), b"\x89PNG\x01\x02", Some("no media type at all"), named("k"), "text"),
        (Some("a\nb"), b"words", None, named("0/7"), "text"),
        (Some(" "), b"", None, named("0/7"), "text"),
    ] {
        assert_eq!(
            arrived(plain("t", key, Some(payload), content_type)),
            (source, kind.to_owned()),
            "{key:?} {content_type:?}"
        );
    }
    let huge = vec![b'x'; MAX_DOCUMENT + 1];
    assert_eq!(
        read(&record(plain("t", None, Some(&huge), None), 0), &Schemas::built_in(), &target).unwrap_err().code,
        "too_large"
    );
}

#[test]
fn given_a_record_then_its_request_depends_on_its_place_and_collection_only() {
    let at = |offset| record(plain("t", Some("k"), Some(b"x"), None), offset);
    let docs = Collection::new(Namespace::default(), "docs".parse().unwrap());
    let other = Collection::new(Namespace::default(), "other".parse().unwrap());
    assert_eq!(ingest_id(&at(1), &docs), ingest_id(&record(plain("t", None, Some(b"y"), None), 1), &docs));
    assert_ne!(ingest_id(&at(1), &docs), ingest_id(&at(2), &docs));
    assert_ne!(ingest_id(&at(1), &docs), ingest_id(&at(1), &other));
}
