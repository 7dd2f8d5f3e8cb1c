//! Over two real brokers.

use std::path::Path;

use bytes::Bytes;

use super::*;
use crate::admin::ensure_topics;
use crate::config::LogConfig;
use crate::dead_letters::DeadLetters;
use crate::embedded::EmbeddedBroker;
use crate::producer::Producer;
use crate::record::{Outgoing, StartAt};
use crate::tail::Tail;

use riverrun_schemas::topics::all_specs;

const TOPIC: &str = "riverrun.documents";

async fn broker(folder: &Path) -> (EmbeddedBroker, LogConfig) {
    let broker = EmbeddedBroker::start(folder, 0).await.unwrap();
    let config = broker.config("test");
    ensure_topics(&config, all_specs()).await.unwrap();
    (broker, config)
}

fn record(number: usize) -> Outgoing {
    Outgoing {
        topic: TOPIC.into(),
        partition: Some(2),
        key: number.is_multiple_of(2).then(|| Bytes::from(format!("key {number}"))),
        payload: (!number.is_multiple_of(3)).then(|| Bytes::from(vec![number as u8; number])),
        headers: vec![("n".to_owned(), number.to_string().into_bytes())],
    }
}

async fn fill(config: &LogConfig, numbers: std::ops::Range<usize>) {
    Producer::new(config).unwrap().send_many(numbers.map(record).collect()).await.unwrap();
}

fn place() -> TopicPartition {
    TopicPartition::new(TOPIC, 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_partition_when_it_is_saved_and_restored_then_the_other_broker_has_the_same_records() {
    let folder = tempfile::tempdir().unwrap();
    let (source, from) = broker(&folder.path().join("a")).await;
    fill(&from, 0..50).await;
    let path = folder.path().join("out/2.jsonl");
    let mut asked = Asked::from([(0, 0), (17, 0), (50, 0), (90, 0)]);
    let file = save(&from, &place(), &mut asked, &path).await.unwrap();
    assert_eq!(file.records, 50);
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), [(0, 0), (17, 17), (50, 50), (90, 50)]);
    check_file(&path, &file).unwrap();

    let (target, to) = broker(&folder.path().join("b")).await;
    let producer = Producer::new(&to).unwrap();
    assert!(matches!(verify(&to, &file).await, Err(ArchiveError::Differs { .. })));
    assert_eq!(restore(&to, &producer, &file, &path).await.unwrap(), Restored { found: 0, written: 50 });
    verify(&to, &file).await.unwrap();
    let all = |config: LogConfig| async move {
        let range = Tail::read_range(&config, place(), StartAt::Beginning).await.unwrap();
        range.collect().await.unwrap()
    };
    assert_eq!(all(from.clone()).await, all(to.clone()).await, "times included");
    // Once more changes nothing.
    assert_eq!(restore(&to, &producer, &file, &path).await.unwrap(), Restored { found: 50, written: 0 });
    source.stop().await;
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_try_that_was_cut_off_when_it_is_repeated_then_it_goes_on_and_anything_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (source, from) = broker(&folder.path().join("a")).await;
    fill(&from, 0..30).await;
    let (short, whole) = (folder.path().join("short"), folder.path().join("whole"));
    let first = save(&from, &place(), &mut Asked::new(), &short).await.unwrap();
    fill(&from, 30..40).await;
    let all = save(&from, &place(), &mut Asked::new(), &whole).await.unwrap();

    let (target, to) = broker(&folder.path().join("b")).await;
    let producer = Producer::new(&to).unwrap();
    restore(&to, &producer, &first, &short).await.unwrap();
    assert_eq!(restore(&to, &producer, &all, &whole).await.unwrap(), Restored { found: 30, written: 10 });
    verify(&to, &all).await.unwrap();
    // The target has more than the archive, and then something else.
    assert!(matches!(restore(&to, &producer, &first, &short).await, Err(ArchiveError::NotEmpty { .. })));
    let (other, strange) = broker(&folder.path().join("c")).await;
    fill(&strange, 7..8).await;
    let into = Producer::new(&strange).unwrap();
    assert!(matches!(restore(&strange, &into, &all, &whole).await, Err(ArchiveError::NotEmpty { .. })));

    let text = std::fs::read_to_string(&whole).unwrap();
    for damage in [text.replacen("\"n\"", "\"m\"", 1), text[..text.len() - 5].to_owned(), format!("{text}x\n")] {
        std::fs::write(&whole, damage).unwrap();
        assert!(matches!(check_file(&whole, &all), Err(ArchiveError::Damaged { .. })));
    }
    for broker in [source, target, other] {
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_how_far_a_group_is_when_it_is_told_another_broker_then_it_is_there_with_its_note() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, config) = broker(folder.path()).await;
    fill(&config, 0..9).await;
    assert!(committed(&config, "g", vec![place()]).await.unwrap().is_empty());
    let told = Committed { group: "g".into(), topic: TOPIC.into(), partition: 2, next: 5, note: Some(3) };
    commit(&config, "g", &[told]).await.unwrap();
    let found = committed(&config, "g", vec![place(), TopicPartition::new(TOPIC, 1)]).await.unwrap();
    assert_eq!(found, [GroupPlace { partition: place(), offset: 5, note: Some(3) }]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_dead_letter_that_was_dropped_when_its_topic_is_carried_then_it_still_counts_as_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (source, from) = broker(&folder.path().join("a")).await;
    let producer = Producer::new(&from).unwrap();
    let dead = TopicPartition::new(format!("{TOPIC}{}", crate::dead_letters::SUFFIX), 0);
    let letter = |number: i64| {
        let record = crate::record::Record {
            topic: TOPIC.into(),
            partition: 0,
            offset: number,
            key: None,
            payload: Some(Bytes::from_static(b"x")),
            headers: vec![],
            timestamp_ms: 1,
        };
        crate::dead_letters::DeadLetter::of(&record, "g", "bad", "why", 1)
    };
    producer.send_many((0..3).map(letter).collect()).await.unwrap();
    let letters = DeadLetters::new(&from, producer).unwrap();
    let second = letters.list(Some(TOPIC), 10).await.unwrap()[1].id.clone();
    letters.drop_letter(&second).await.unwrap();
    let path = folder.path().join("dead");
    let file = save(&from, &dead, &mut Asked::new(), &path).await.unwrap();

    let (target, to) = broker(&folder.path().join("b")).await;
    let producer = Producer::new(&to).unwrap();
    restore(&to, &producer, &file, &path).await.unwrap();
    let states = async |config: &LogConfig| -> Vec<String> {
        let letters = DeadLetters::new(config, Producer::new(config).unwrap()).unwrap();
        letters.list(Some(TOPIC), 10).await.unwrap().iter().map(|letter| format!("{:?}", letter.state)).collect()
    };
    assert_eq!(states(&to).await, states(&from).await);
    assert_eq!(states(&to).await, ["Open", "Dropped", "Open"]);
    source.stop().await;
    target.stop().await;
}
