//! What else the newest versions say that librdkafka does not speak: topics by id, and which protocol of transactions is spoken.

use crate::common::wire::Asked;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_topic_ids_when_produced_to_then_known_ones_take_records() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        let asked = Asked::default().array(1).uuid([0; 16]).text("a").end().i8(0).i8(0).end();
        let mut answer = asked.ask(&mut client.0, ApiKey::Metadata, 13);
        answer.pass_cluster();
        assert_eq!((answer.array(), answer.i16(), answer.text().as_str()), (1, 0, "a"));
        let id = answer.uuid();
        assert_eq!(client.produce_by_id(id), (0, true));
        let mut unknown = id;
        unknown[15] ^= 1;
        assert_eq!(client.produce_by_id(unknown), (code(ResponseError::UnknownTopicId), true));
    })
    .await;
    assert_eq!(committed(&broker).await[0], ["first", "by id"]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_versions_when_asked_for_then_the_feature_says_which_protocol_is_spoken() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        for version in 3..=4 {
            let asked = Asked::default().text("test").text("1").end();
            let mut answer = asked.ask(&mut client.0, ApiKey::ApiVersions, version);
            assert_eq!(answer.i16(), 0);
            for _ in 0..answer.array() {
                answer.i16();
                answer.i16();
                answer.i16();
                answer.tagged();
            }
            answer.i32(); // throttle
            let mut tagged = answer.tagged();
            let numbers: Vec<usize> = tagged.iter().map(|(number, _)| *number).collect();
            let (supported, epoch, finalized) = (0, 1, 2);
            // Older clients cannot read that the lowest level is 0.
            let expected = if version >= 4 { vec![supported, epoch, finalized] } else { vec![epoch, finalized] };
            assert_eq!(numbers, expected, "version {version}");
            for (number, field) in &mut tagged {
                if *number == epoch {
                    assert!(field.i64() >= 0);
                    continue;
                }
                assert_eq!((field.array(), field.text().as_str()), (1, "transaction.version"));
                // Finalized features have the higher level first.
                let levels = (field.i16(), field.i16());
                assert_eq!(levels, if *number == supported { (0, 2) } else { (2, 2) });
            }
        }
    })
    .await;
    broker.shutdown().await;
}
