use riverrun_log::{EmbeddedBroker, Producer, admin};
use riverrun_schemas::ingest::{DocumentChunked, DocumentFailed, DocumentIndexed, DocumentUnchanged};
use riverrun_schemas::{BlobRef, Failure};

use super::*;
use crate::about::about;
use crate::about::testing::of;

fn chunked(ingest: &str, version: &str) -> IngestEvent {
    let text = BlobRef { sha256: "0".repeat(64), size_bytes: 1, media_type: "text/plain".into() };
    about!(
        of("d", ingest),
        DocumentChunked {
            version: version.into(),
            text,
            chunks: 1,
            embed_model: "m".into(),
            title: None,
            metadata_json: None,
            author: None,
            pages: None,
            encoding: None,
            read_as: None,
            fetched_at: None,
            source_type: None,
            strategy: None,
            chunk_size: 800,
            chunk_overlap: 100,
            chunk_unit: None,
            table: None,
            notes: Vec::new()
        }
    )
    .into()
}

fn indexed(ingest: &str, version: &str) -> IngestEvent {
    about!(
        of("d", ingest),
        DocumentIndexed {
            version: version.into(),
            chunks: 1,
            removed_chunks: 0,
            embed_model: "m".into(),
            dimensions: 2
        }
    )
    .into()
}

fn unchanged(ingest: &str, version: &str) -> IngestEvent {
    about!(of("d", ingest), DocumentUnchanged { version: version.into() }).into()
}

fn failed(ingest: &str, stage: &str) -> IngestEvent {
    about!(of("d", ingest), DocumentFailed { stage: stage.into(), error: Failure::new("x", "y") }).into()
}

fn decide(events: &[IngestEvent], ingest: &str, version: &str) -> Decision {
    let mut versions = Versions::default();
    events.iter().for_each(|event| versions.apply(event));
    versions.decide(IngestId::derive(&[ingest]), DocumentId::derive(&["d"]), version)
}

#[test]
fn given_what_was_before_when_deciding_then_only_a_wholly_indexed_last_version_is_unchanged() {
    use Decision::{Take, Unchanged};
    for (before, version, expected) in [
        (vec![], "v1", Take),
        (vec![chunked("a", "v1")], "v1", Take),
        (vec![chunked("a", "v1"), indexed("a", "v1")], "v1", Unchanged),
        (vec![chunked("a", "v1"), indexed("a", "v1")], "v2", Take),
        (vec![chunked("a", "v1"), indexed("a", "v1"), unchanged("b", "v1")], "v1", Unchanged),
        // Another version is on its way: the collection will hold that one.
        (vec![chunked("a", "v1"), indexed("a", "v1"), chunked("b", "v2")], "v1", Take),
        (vec![chunked("a", "v1"), chunked("b", "v2"), indexed("a", "v1")], "v1", Take),
        (vec![chunked("a", "v1"), chunked("b", "v2"), indexed("a", "v1"), indexed("b", "v2")], "v2", Unchanged),
        // Part of v2 may be in the collection.
        (vec![chunked("a", "v1"), indexed("a", "v1"), chunked("b", "v2"), failed("b", "index")], "v1", Take),
        (vec![chunked("a", "v1"), chunked("b", "v2"), failed("b", "embed"), indexed("a", "v1")], "v1", Take),
        // It never got as far as the collection.
        (vec![chunked("a", "v1"), indexed("a", "v1"), failed("b", "ingest")], "v1", Unchanged),
        // An end without a beginning says nothing.
        (vec![indexed("a", "v1")], "v1", Take),
    ] {
        assert_eq!(decide(&before, "z", version), expected, "{version} after {before:?}");
    }
}

#[test]
fn given_a_command_that_was_answered_when_it_comes_again_then_the_answer_is_the_same() {
    let events = [chunked("a", "v1"), indexed("a", "v1"), unchanged("b", "v1"), chunked("c", "v2"), indexed("c", "v2")];
    assert_eq!(decide(&events, "a", "v1"), Decision::Take);
    assert_eq!(decide(&events, "b", "v1"), Decision::Unchanged);
    assert_eq!(decide(&events, "c", "v2"), Decision::Take);
    assert_eq!(decide(&events, "d", "v2"), Decision::Unchanged);
}

#[test]
fn given_more_answers_than_are_remembered_then_memory_stays_bounded() {
    let mut versions = Versions::default();
    for n in 0..MAX_ANSWERS + 10 {
        versions.apply(&unchanged(&n.to_string(), "v1"));
    }
    assert_eq!((versions.answers.len(), versions.order.len()), (MAX_ANSWERS, MAX_ANSWERS));
}

#[tokio::test]
async fn given_events_on_the_log_when_deciding_then_they_are_read_to_their_end_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let broker = EmbeddedBroker::start(dir.path(), 0).await.unwrap();
    let log = broker.config("test");
    admin::ensure_topics(&log, riverrun_schemas::topics::all_specs()).await.unwrap();
    let producer = Producer::new(&log).unwrap();
    let history = History::new(log, Schemas::built_in());
    let document = DocumentId::derive(&["d"]);
    let decide = |partition: i32| history.decide(partition, IngestId::derive(&["z"]), document, "v1");
    let partition = producer.send(&chunked("a", "v1"), "test", None).await.unwrap().partition;
    assert_eq!(decide(partition).await.unwrap(), Decision::Take);
    producer.send(&indexed("a", "v1"), "test", None).await.unwrap();
    assert_eq!(decide(partition).await.unwrap(), Decision::Unchanged);
    producer.send(&chunked("b", "v2"), "test", None).await.unwrap();
    assert_eq!(decide(partition).await.unwrap(), Decision::Take);
    assert_eq!(decide((partition + 1) % 6).await.unwrap(), Decision::Take, "an empty partition has an end too");
    drop(history);
    broker.stop().await;
}

#[tokio::test]
async fn given_a_reader_that_nobody_asks_when_time_passes_then_it_is_closed_and_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let broker = EmbeddedBroker::start(dir.path(), 0).await.unwrap();
    let log = broker.config("test");
    admin::ensure_topics(&log, riverrun_schemas::topics::all_specs()).await.unwrap();
    let producer = Producer::new(&log).unwrap();
    let history = History { idle: Duration::from_millis(50), ..History::new(log, Schemas::built_in()) };
    let document = DocumentId::derive(&["d"]);
    let decide = |partition: i32| history.decide(partition, IngestId::derive(&["z"]), document, "v1");
    let partition = producer.send(&chunked("a", "v1"), "test", None).await.unwrap().partition;
    assert_eq!(decide(partition).await.unwrap(), Decision::Take);
    let fold = history.partitions.lock()[&partition].clone();
    let closed = async {
        while fold.lock().await.tail.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), closed).await.expect("an idle reader is closed");
    producer.send(&indexed("a", "v1"), "test", None).await.unwrap();
    assert_eq!(decide(partition).await.unwrap(), Decision::Unchanged);
    history.forget([partition]);
    assert!(history.partitions.lock().is_empty());
    assert_eq!(decide(partition).await.unwrap(), Decision::Unchanged, "what was forgotten is read again");
    drop(history);
    broker.stop().await;
}
