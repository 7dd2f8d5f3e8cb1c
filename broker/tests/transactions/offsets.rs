//! Offsets that a transaction commits, and what others do to them before it ends.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_offsets_when_committed_by_protocol_2_then_they_add_their_group_and_count_with_the_commit() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    let producer = blocking(move || {
        let mut client = Client::connect(address);
        let producer = client.init(TIMEOUT_MS);
        assert_eq!(client.commit_offset(3, producer, "a", 1), code(ResponseError::InvalidTxnState));
        assert_eq!(client.commit_offset(4, producer, "a", 1), code(ResponseError::TransactionAbortable));
        assert_eq!(client.commit_offset(5, producer, "a", 1), 0);
        assert_eq!(client.state(), "Ongoing");
        let next = client.end(5, producer, false).1;
        assert_eq!(client.commit_offset(5, next, "a", 1), 0);
        next
    })
    .await;
    let offsets = |broker: &Broker| broker.groups().into_iter().flat_map(|group| group.offsets).collect::<Vec<_>>();
    assert!(offsets(&broker).is_empty(), "one is aborted, the other open");
    let ended = blocking(move || Client::connect(address).end(5, producer, true)).await;
    assert_eq!(ended, (0, (producer.0, producer.1 + 1)));
    assert_eq!(offsets(&broker), vec![("a".to_owned(), 0, 1, 0)]);
    broker.shutdown().await;
}
