use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use riverrun_log::ObjectStoreBlobs;
use riverrun_log::admin::Admin;
use riverrun_schemas::Namespace;

use super::*;
use crate::runtime::testkit::Stack;

/// Gives these answers, one after the other, and the last one from then on. `Err` takes nothing.
struct Door(Mutex<VecDeque<Result<Option<IngestId>, ()>>>);

#[derive(Debug)]
enum Refused {
    Shut,
    Stream(StreamError),
}

impl From<StreamError> for Refused {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl Door {
    fn of(answers: impl IntoIterator<Item = Result<Option<IngestId>, ()>>) -> Self {
        Self(Mutex::new(answers.into_iter().collect()))
    }
}

impl Gate for Door {
    type Refusal = Refused;

    async fn ask(&self) -> Result<Option<IngestId>, Refused> {
        let mut answers = self.0.lock();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        answer.unwrap().map_err(|()| Refused::Shut)
    }
}

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
        self.through(topic, Door::of([Ok(None)]), |_| {}).await.unwrap()
    }

    async fn through(
        &self,
        topic: &str,
        door: Door,
        change: impl FnOnce(&mut StreamConfig),
    ) -> Result<Consumed, Refused> {
        let mut config = StreamConfig {
            log: self.stack.log().clone(),
            topic: topic.into(),
            target: self.target(),
            idle: Some(Duration::from_millis(300)),
            create_topic: false,
            from_beginning: false,
        };
        change(&mut config);
        consume(config, self.stack.producer(), &self.blobs, &door, CancellationToken::new(), |_| {}).await
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

/// Two documents on the topic.
async fn two_documents(world: &World, topic: &str) {
    let words = |text: &str| plain(topic, None, Some(text.as_bytes()), None);
    world.stack.send_records(vec![words("one"), words("two")]).await;
}

#[tokio::test]
async fn given_a_collection_that_takes_nothing_when_a_topic_is_consumed_then_nothing_is_passed_over_and_it_goes_on_once_that_is_mended()
 {
    let world = World::new().await;
    let topic = Topic::Documents.name();
    assert_eq!(world.consume(topic).await.documents, 0);
    two_documents(&world, topic).await;
    // Before it begins, and in front of the batch.
    for answers in [vec![Err(())], vec![Ok(None), Err(())]] {
        let refused = world.through(topic, Door::of(answers), |_| {}).await.unwrap_err();
        assert!(matches!(refused, Refused::Shut), "{refused:?}");
        assert!(world.submissions().await.is_empty());
        assert!(world.stack.letters(Topic::Documents).await.is_empty());
    }
    let mended = world.consume(topic).await;
    assert_eq!((mended.records, mended.documents, mended.began_again), (2, 2, false));
    assert_eq!(world.submissions().await.len(), 2);
}

#[tokio::test]
async fn given_a_collection_that_was_removed_when_its_topic_is_consumed_then_it_is_filled_from_the_beginning_once() {
    let world = World::new().await;
    let topic = Topic::Documents.name();
    two_documents(&world, topic).await;
    assert_eq!(world.consume(topic).await.documents, 2);
    let (first, second) = (Some(IngestId::new()), Some(IngestId::new()));
    // Removed between two commands, and while one reads on.
    for (what, answers, last) in
        [("between", vec![Ok(first)], first), ("meanwhile", vec![Ok(first), Ok(second), Ok(second)], second)]
    {
        if what == "meanwhile" {
            two_documents(&world, topic).await;
        }
        let records = if what == "meanwhile" { 4 } else { 2 };
        let again = world.through(topic, Door::of(answers), |_| {}).await.unwrap();
        assert_eq!((again.records, again.documents, again.began_again), (records, records, true), "{what}");
        let rest = world.through(topic, Door::of([Ok(last)]), |_| {}).await.unwrap();
        assert_eq!(rest, Consumed::default(), "{what}");
    }
    // A request that was answered before the removal is another one; a document is the same.
    let submissions = world.submissions().await;
    let requests: HashSet<IngestId> = submissions.iter().map(|submit| submit.ingest_id).collect();
    let documents: HashSet<_> = submissions.iter().map(|submit| submit.document_id).collect();
    assert_eq!((submissions.len(), requests.len(), documents.len()), (8, 8, 4));
}

#[tokio::test]
async fn given_a_topic_that_was_read_when_it_is_asked_for_from_its_beginning_then_all_of_it_is_handed_in_again_and_then_no_more()
 {
    let world = World::new().await;
    let topic = Topic::Documents.name();
    two_documents(&world, topic).await;
    let anew = async |begins| {
        let change = |config: &mut StreamConfig| config.from_beginning = begins;
        let consumed = world.through(topic, Door::of([Ok(None)]), change).await.unwrap();
        (consumed.documents, consumed.began_again)
    };
    assert_eq!(anew(true).await, (2, false));
    assert_eq!(anew(false).await, (0, false));
    for _ in 0..2 {
        assert_eq!(anew(true).await, (2, true));
        assert_eq!(anew(false).await, (0, false));
    }
    let requests: HashSet<IngestId> = world.submissions().await.iter().map(|submit| submit.ingest_id).collect();
    assert_eq!(requests.len(), 6);
}

#[tokio::test]
async fn given_a_topic_that_is_not_there_when_consumed_then_it_is_refused_by_name_unless_it_is_to_be_made() {
    let world = World::new().await;
    let known = async || Admin::new(world.stack.log()).unwrap().topics().await.unwrap();
    let refused = world.through("slip", Door::of([Ok(None)]), |_| {}).await.unwrap_err();
    assert!(matches!(&refused, Refused::Stream(StreamError::NoTopic(topic)) if topic == "slip"), "{refused:?}");
    assert!(known().await.iter().all(|topic| topic.name != "slip"));
    let made = world.through("slip", Door::of([Ok(None)]), |config| config.create_topic = true).await.unwrap();
    assert_eq!(made, Consumed::default());
    assert!(known().await.iter().any(|topic| topic.name == "slip"));
    let wrong = world.through("../x", Door::of([Ok(None)]), |_| {}).await.unwrap_err();
    assert!(matches!(wrong, Refused::Stream(StreamError::WrongTopic(_))), "{wrong:?}");
}

#[tokio::test]
async fn given_a_topic_of_ones_own_when_consumed_then_it_is_read() {
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
fn given_a_record_then_its_request_depends_on_its_place_collection_and_reading_only() {
    let at = |offset| record(plain("t", Some("k"), Some(b"x"), None), offset);
    let docs = Collection::new(Namespace::default(), "docs".parse().unwrap());
    let other = Collection::new(Namespace::default(), "other".parse().unwrap());
    let first = Reading::default();
    let other_payload = record(plain("t", None, Some(b"y"), None), 1);
    assert_eq!(ingest_id(&at(1), &docs, first), ingest_id(&other_payload, &docs, first));
    assert_ne!(ingest_id(&at(1), &docs, first), ingest_id(&at(2), &docs, first));
    assert_ne!(ingest_id(&at(1), &docs, first), ingest_id(&at(1), &other, first));
    let again = Reading { removal: Some(IngestId::new()), anew: None };
    assert_ne!(ingest_id(&at(1), &docs, first), ingest_id(&at(1), &docs, again));
    assert_eq!(ingest_id(&at(1), &docs, again), ingest_id(&at(1), &docs, again));
}
