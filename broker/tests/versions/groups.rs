//! Groups that are asked about by those who are not in them: their offsets, and members that nobody knows.

use crate::common::offsets::{forget_offset, text};

use super::*;

/// `OffsetCommit` 2 of partition 0 from outside a group.
fn commit_offset(stream: &mut TcpStream, group: &str, topic: &str) {
    let one = 1i32.to_be_bytes();
    let head = [&text(group)[..], &(-1i32).to_be_bytes(), &text(""), &(-1i64).to_be_bytes()].concat();
    let item = [&0i32.to_be_bytes()[..], &7i64.to_be_bytes(), &(-1i16).to_be_bytes()].concat();
    let body = [&head[..], &one, &text(topic), &one, &item].concat();
    let answer = call(stream, &frame(ApiKey::OffsetCommit as i16, 2, false, 1, &body)).unwrap();
    assert_eq!(answer[answer.len() - 2..], [0, 0], "the offset is committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_offsets_when_deleted_then_the_group_is_looked_at_before_the_partitions() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    send(&producer(address), "t", 0, "k", "v").await;
    blocking(move || {
        let mut stream = connect(address);
        for topic in ["t", "absent"] {
            let unknown = (ResponseError::GroupIdNotFound.code(), None);
            assert_eq!(forget_offset(&mut stream, "nobody", topic, 0), unknown, "{topic}");
            let nameless = (ResponseError::InvalidGroupId.code(), None);
            assert_eq!(forget_offset(&mut stream, "", topic, 0), nameless, "{topic}");
        }
        commit_offset(&mut stream, "g", "t");
        let absent = (0, Some(ResponseError::UnknownTopicOrPartition.code()));
        assert_eq!(forget_offset(&mut stream, "g", "absent", 0), absent);
        assert_eq!(forget_offset(&mut stream, "g", "t", 5), absent, "a partition that there is not");
        assert_eq!(forget_offset(&mut stream, "g", "t", 0), (0, Some(0)));
    })
    .await;
    broker.shutdown().await;
}

/// `OffsetCommit` of partition 0 in a version of flexible form, by a member: Kafka's code.
fn commit_as(stream: &mut TcpStream, version: i16, group: &str, member: &str, generation: i32) -> i16 {
    let asked = Asked::default().text(group).i32(generation).text(member).null().array(1).text("t").array(1);
    let asked = asked.i32(0).i64(7).i32(-1).null().end().end().end();
    let mut answer = asked.ask(stream, ApiKey::OffsetCommit, version);
    answer.i32(); // throttle
    assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, "t", 1, 0));
    answer.i16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_members_of_groups_that_are_not_known_when_they_ask_then_they_are_told_so_and_make_none() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    send(&producer(address), "t", 0, "k", "v").await;
    blocking(move || {
        let mut stream = connect(address);
        let (unknown, absent) = (ResponseError::UnknownMemberId.code(), ResponseError::GroupIdNotFound.code());
        assert_eq!(commit_as(&mut stream, 8, "absent", "m", 1), ResponseError::IllegalGeneration.code());
        assert_eq!(commit_as(&mut stream, 9, "absent", "m", 1), absent);
        assert_eq!(commit_as(&mut stream, 9, "g", "m", -1), 0, "of no generation");
        assert_eq!(commit_as(&mut stream, 9, "g", "m", 1), unknown, "its offsets are known");
        let join = Asked::default().text("absent").i32(60_000).i32(60_000).text("m").null().text("consumer");
        let join = join.array(1).text("range").bytes(b"").end().null().end();
        let mut answer = join.ask(&mut stream, ApiKey::JoinGroup, 9);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), unknown);
        let beat = Asked::default().text("").i32(1).text("m").null().end();
        let mut answer = beat.ask(&mut stream, ApiKey::Heartbeat, 4);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), ResponseError::InvalidGroupId.code());
    })
    .await;
    assert!(broker.groups().iter().all(|group| group.id != "absent"), "who is no newcomer makes no group");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_member_that_waits_for_the_others_when_it_leaves_on_the_same_connection_then_both_are_answered_at_once()
{
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let (mut first, mut second) = (connect(address), connect(address));
        let mut answer = join("g", "one").ask(&mut first, ApiKey::JoinGroup, 9);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), 0);
        // The first member does not join again: the second would wait for a minute.
        let leave = Asked::default().text("g").array(1).text("").text("two").null().end().end();
        write_frame(&mut second, &join("g", "two").frame(ApiKey::JoinGroup, 9)).unwrap();
        write_frame(&mut second, &leave.frame(ApiKey::LeaveGroup, 5)).unwrap();
        // Behind correlation id, tagged fields and throttle.
        let errors =
            [(); 2].map(|()| read_frame(&mut second).map(|answer| i16::from_be_bytes([answer[9], answer[10]])));
        assert_eq!(errors, [Some(ResponseError::UnknownMemberId.code()), Some(0)]);
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_newcomer_that_waits_for_the_others_when_its_connection_ends_then_the_group_is_without_it_at_once() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    let newcomer = blocking(move || {
        let (mut first, mut second) = (connect(address), connect(address));
        let mut answer = join("g", "one").ask(&mut first, ApiKey::JoinGroup, 9);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), 0);
        // Nobody would miss it for ten minutes.
        let newcomer = |id: &str| {
            let member = Asked::default().text("g").i32(600_000).i32(600_000).text(id).null().text("consumer");
            member.array(1).text("range").bytes(b"").end().null().end()
        };
        let mut answer = newcomer("").ask(&mut second, ApiKey::JoinGroup, 9);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), ResponseError::MemberIdRequired.code());
        answer.i32(); // generation
        for what in ["protocol type", "protocol", "leader"] {
            assert_eq!(answer.text(), "", "{what}");
        }
        answer.i8(); // whether it need not assign
        write_frame(&mut second, &newcomer(&answer.text()).frame(ApiKey::JoinGroup, 9)).unwrap();
        (first, second)
    })
    .await;
    let members = || broker.groups().first().map_or(0, |group| group.members.len());
    eventually("the newcomer", || members() == 2).await;
    let (_first, second) = newcomer;
    drop(second);
    eventually("the group without it", || members() == 1).await;
    broker.shutdown().await;
}
