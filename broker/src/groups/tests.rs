use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::expiry::{Standing, expired, may_begin};
use super::group::{Group, Identity, Join, Joined, Life, Phase, Synced};
use crate::meta::{GroupOffsets, OffsetItem};

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);
/// The connection of everyone who is not said to have another.
const OVER: u64 = 7;

fn join(id: &str, instance: Option<&str>) -> Join {
    Join {
        member_id: id.into(),
        instance_id: instance.map(str::to_owned),
        client_id: "c".into(),
        client_host: "/h".into(),
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::from_static(b"r")), ("sticky".into(), Bytes::from_static(b"s"))],
        must_return: false,
        can_skip_assignment: true,
        connection: OVER,
    }
}

fn do_join(group: &mut Group, now: Instant, join: Join, new_id: &str) -> oneshot::Receiver<Joined> {
    let (sender, receiver) = oneshot::channel();
    group.join(now, join, || new_id.to_owned(), sender);
    receiver
}

fn do_sync(group: &mut Group, now: Instant, id: &str, generation: i32, all: &[&str]) -> oneshot::Receiver<Synced> {
    let (sender, receiver) = oneshot::channel();
    let assignments = all.iter().map(|id| (id.to_string(), Bytes::from(format!("for {id}")))).collect();
    group.sync(now, who(id, generation), Some("consumer"), None, assignments, sender);
    receiver
}

fn who(member_id: &str, generation: i32) -> Identity<'_> {
    Identity { member_id, instance_id: None, generation }
}

/// A stable group of "a" (leader) and "b" in generation 2.
fn pair(now: Instant) -> Group {
    let mut group = Group::default();
    assert_eq!(do_join(&mut group, now, join("", None), "a").try_recv().unwrap().generation, 1);
    let mut second = do_join(&mut group, now, join("", None), "b");
    assert!(second.try_recv().is_err(), "waits for the first to join again");
    assert_eq!(group.heartbeat(now, who("a", 1)), Err(ResponseError::RebalanceInProgress));
    let first = do_join(&mut group, now, join("a", None), "").try_recv().unwrap();
    let second = second.try_recv().unwrap();
    assert_eq!((first.generation, second.generation), (2, 2));
    assert_eq!((first.leader.as_str(), first.members.len(), second.members.len()), ("a", 2, 0));
    assert_eq!(first.protocol.as_deref(), Some("range"), "the protocol preferred by most");
    let mut follower = do_sync(&mut group, now, "b", 2, &[]);
    assert!(follower.try_recv().is_err(), "waits for the leader");
    let leader = do_sync(&mut group, now, "a", 2, &["a", "b"]).try_recv().unwrap();
    assert_eq!((leader.assignment, follower.try_recv().unwrap().assignment), ("for a".into(), "for b".into()));
    assert_eq!(group.phase(), Phase::Stable);
    group
}

#[test]
fn given_a_stable_group_when_a_member_leaves_or_dies_then_the_other_rebalances() {
    let now = Instant::now();
    for dies in [false, true] {
        let mut group = pair(now);
        let later = now + SESSION + Duration::from_millis(1);
        if dies {
            assert_eq!(group.heartbeat(now + SESSION / 2, who("a", 2)), Ok(()));
            assert_eq!(group.next_deadline(), Some(now + SESSION));
            group.tick(later);
        } else {
            assert_eq!(group.leave(later, "b", None), Ok(()));
        }
        assert_eq!(group.heartbeat(later, who("a", 2)), Err(ResponseError::RebalanceInProgress));
        let joined = do_join(&mut group, later, join("a", None), "").try_recv().unwrap();
        assert_eq!((joined.generation, joined.members.len()), (3, 1));
        assert_eq!(group.heartbeat(later, who("b", 2)), Err(ResponseError::UnknownMemberId));
    }
}

#[test]
fn given_a_rebalance_when_a_member_does_not_come_then_it_is_left_behind_at_the_deadline() {
    let now = Instant::now();
    let mut group = pair(now);
    let mut third = do_join(&mut group, now, join("", None), "c");
    let mut first = do_join(&mut group, now, join("a", None), "");
    // "b" sends heartbeats all the time but never joins.
    let mut at = now;
    while at < now + REBALANCE {
        assert_eq!(group.heartbeat(at, who("b", 2)), Err(ResponseError::RebalanceInProgress));
        group.tick(at);
        assert!(third.try_recv().is_err());
        at += Duration::from_secs(5);
    }
    group.tick(now + REBALANCE);
    assert_eq!(first.try_recv().unwrap().members.len(), 2);
    assert_eq!(third.try_recv().unwrap().generation, 3);
    assert_eq!(group.heartbeat(at, who("b", 2)), Err(ResponseError::UnknownMemberId));
}

#[test]
fn given_members_when_their_connections_end_within_a_rebalance_then_nobody_waits_for_them() {
    let now = Instant::now();
    let over = |connection: u64, join: Join| Join { connection, ..join };
    let mut group = pair(now);
    group.hang_up(now, "b", OVER);
    assert_eq!(group.heartbeat(now, who("b", 2)), Ok(()), "who is in stays");
    // One has its id alone, one waits to join, and the first one rejoins over another connection than before.
    let returns = over(1, Join { must_return: true, ..join("", None) });
    do_join(&mut group, now, returns, "c").try_recv().unwrap();
    let _waits = do_join(&mut group, now, over(2, join("", None)), "Z");
    let mut first = do_join(&mut group, now, over(3, join("a", None)), "");
    group.hang_up(now, "a", OVER);
    assert_eq!(group.members().len(), 3, "who came over another connection since stays");
    group.hang_up(now, "c", 1);
    group.hang_up(now, "Z", 2);
    let mut second = do_join(&mut group, now, join("b", None), "");
    let (first, second) = (first.try_recv().unwrap(), second.try_recv().unwrap());
    assert_eq!((first.generation, first.members.len(), first.leader.as_str()), (3, 2, "a"));
    // Who is to assign goes before it does.
    let mut waits = do_sync(&mut group, now, "b", second.generation, &[]);
    group.hang_up(now, "a", 3);
    assert_eq!(waits.try_recv().unwrap().error, Some(ResponseError::RebalanceInProgress));
    let alone = do_join(&mut group, now, join("b", None), "").try_recv().unwrap();
    assert_eq!((alone.generation, alone.leader.as_str(), alone.members.len()), (4, "b", 1));
    // Within a rebalance nobody waits for one either that was in before.
    do_sync(&mut group, now, "b", 4, &["b"]).try_recv().unwrap();
    let mut last = do_join(&mut group, now, over(5, join("", None)), "d");
    assert!(last.try_recv().is_err());
    group.hang_up(now, "b", OVER);
    assert_eq!(last.try_recv().unwrap().members.len(), 1);
}

#[test]
fn given_a_static_member_that_goes_while_it_waits_when_the_others_have_come_then_it_keeps_its_name_but_does_not_lead() {
    let now = Instant::now();
    let mut group = Group::default();
    let members = [("a", "one"), ("b", "two")].map(|(id, name)| do_join(&mut group, now, join("", Some(name)), id));
    do_join(&mut group, now, join("a", Some("one")), "").try_recv().unwrap();
    drop(members);
    let _follower = do_sync(&mut group, now, "b", 2, &[]);
    do_sync(&mut group, now, "a", 2, &["a", "b"]).try_recv().unwrap();
    let mut third = do_join(&mut group, now, join("", Some("three")), "c");
    drop(do_join(&mut group, now, join("a", Some("one")), ""));
    let second = do_join(&mut group, now, join("b", Some("two")), "").try_recv().unwrap();
    assert_eq!((second.leader.as_str(), second.members.len()), ("b", 3));
    assert_eq!(third.try_recv().unwrap().leader, "b");
}

#[test]
fn given_a_newcomer_that_must_return_when_it_does_then_it_is_in_and_else_it_is_forgotten() {
    let now = Instant::now();
    let mut group = Group::default();
    let newcomer = Join { must_return: true, ..join("", None) };
    let told = do_join(&mut group, now, newcomer.clone(), "a").try_recv().unwrap();
    assert_eq!((told.error, told.member_id.as_str()), (Some(ResponseError::MemberIdRequired), "a"));
    assert!(do_join(&mut group, now, join("a", None), "").try_recv().unwrap().error.is_none());
    do_join(&mut group, now, newcomer, "late").try_recv().unwrap();
    group.tick(now + SESSION);
    let refused = do_join(&mut group, now, join("late", None), "").try_recv().unwrap();
    assert_eq!(refused.error, Some(ResponseError::UnknownMemberId));
}

#[test]
fn given_a_static_member_when_it_returns_then_nothing_changes_and_its_old_self_is_fenced() {
    let now = Instant::now();
    let mut group = Group::default();
    do_join(&mut group, now, join("", Some("i")), "old").try_recv().unwrap();
    do_sync(&mut group, now, "old", 1, &["old"]).try_recv().unwrap();
    let back = do_join(&mut group, now, join("", Some("i")), "new").try_recv().unwrap();
    assert_eq!((back.error, back.generation, back.skip_assignment), (None, 1, true));
    assert_eq!(group.phase(), Phase::Stable);
    assert_eq!(do_sync(&mut group, now, "new", 1, &[]).try_recv().unwrap().assignment, "for old");
    let old = Identity { member_id: "old", instance_id: Some("i"), generation: 1 };
    assert_eq!(group.heartbeat(now, old), Err(ResponseError::FencedInstanceId));
    assert_eq!(group.leave(now, "", Some("i")), Ok(()));
    assert_eq!(group.phase(), Phase::Empty);
}

#[test]
fn given_a_static_member_that_returns_after_a_start_when_a_request_under_its_old_id_comes_late_then_nobody_is_fenced() {
    let now = Instant::now();
    let (before, life) = (Life::begin(), Life::begin());
    let (old, new) = (before.new_member_id("i"), life.new_member_id("i"));
    let mut group = Group::within(life);
    do_join(&mut group, now, join("", Some("i")), &new).try_recv().unwrap();
    do_sync(&mut group, now, &new, 1, &[&new]).try_recv().unwrap();
    let late = |member_id| Identity { member_id, instance_id: Some("i"), generation: 1 };
    assert_eq!(group.check_commit(now, late(&old), false), Err(ResponseError::UnknownMemberId));
    assert_eq!(group.heartbeat(now, late(&old)), Err(ResponseError::UnknownMemberId));
    assert_eq!(group.leave(now, &old, Some("i")), Err(ResponseError::UnknownMemberId));
    let rejoined = do_join(&mut group, now, join(&old, Some("i")), "").try_recv().unwrap();
    assert_eq!(rejoined.error, Some(ResponseError::UnknownMemberId));
    assert_eq!(group.check_commit(now, late(&new), false), Ok(()));
    // Whoever is replaced in this life is fenced as ever.
    let third = life.new_member_id("i");
    do_join(&mut group, now, join("", Some("i")), &third).try_recv().unwrap();
    assert_eq!(group.check_commit(now, late(&new), false), Err(ResponseError::FencedInstanceId));
}

#[test]
fn given_a_stable_group_when_the_broker_starts_again_then_its_members_go_on_and_who_stays_away_is_gone_after_a_session()
{
    let now = Instant::now();
    let life = Life::begin();
    let mut group = Group::within(life);
    do_join(&mut group, now, join("", Some("i")), "static").try_recv().unwrap();
    assert_eq!(group.take_change(), None, "nobody has anything yet");
    do_sync(&mut group, now, "static", 1, &["static"]).try_recv().unwrap();
    let mut second = do_join(&mut group, now, join("", None), "other");
    do_join(&mut group, now, join("static", Some("i")), "").try_recv().unwrap();
    second.try_recv().unwrap();
    do_sync(&mut group, now, "static", 2, &["static", "other"]).try_recv().unwrap();
    let told = group.take_change().unwrap();
    assert_eq!(group.take_change(), None, "told once");
    let read = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
    assert_eq!(told, read);

    let later = now + SESSION * 10;
    let mut group = Group::restored(Life::begin(), read, later);
    let who = |member_id, instance_id| Identity { member_id, instance_id, generation: 2 };
    assert_eq!(group.phase(), Phase::Stable);
    assert_eq!(group.check_commit(later, who("static", Some("i")), false), Ok(()));
    assert_eq!(do_sync(&mut group, later, "static", 2, &[]).try_recv().unwrap().assignment, "for static");
    // A static member that has started again, too, takes its place without a rebalance.
    let back = do_join(&mut group, later, join("", Some("i")), "new").try_recv().unwrap();
    assert_eq!((back.error, back.generation), (None, 2));
    assert!(!group.take_change().unwrap().is_empty());
    group.tick(later + SESSION / 2);
    assert_eq!(group.heartbeat(later + SESSION / 2, who("new", Some("i"))), Ok(()));
    group.tick(later + SESSION);
    assert_eq!(group.heartbeat(later + SESSION, who("new", Some("i"))), Err(ResponseError::RebalanceInProgress));
    assert!(!group.members().contains_key("other"));
    assert_eq!(group.leave(later + SESSION, "", Some("i")), Ok(()));
    assert!(group.take_change().unwrap().is_empty(), "there is nobody to remember");
}

/// What a consumer says of itself: its topics, and the partitions of them that it owns.
fn subscribed(topics: &[&str], owned: &[(&str, &[i32])]) -> Bytes {
    fn text(to: &mut Vec<u8>, name: &str) {
        to.extend(i16::try_from(name.len()).unwrap().to_be_bytes());
        to.extend(name.as_bytes());
    }
    let count = |number: usize| i32::try_from(number).unwrap().to_be_bytes();
    let mut bytes = 1i16.to_be_bytes().to_vec();
    bytes.extend(count(topics.len()));
    topics.iter().for_each(|topic| text(&mut bytes, topic));
    bytes.extend((-1i32).to_be_bytes()); // no user data
    bytes.extend(count(owned.len()));
    for (topic, partitions) in owned {
        text(&mut bytes, topic);
        bytes.extend(count(partitions.len()));
        partitions.iter().for_each(|partition| bytes.extend(partition.to_be_bytes()));
    }
    bytes.into()
}

#[test]
fn given_a_static_member_of_a_cooperative_group_when_it_returns_then_only_other_wishes_make_the_group_rebalance() {
    let now = Instant::now();
    let asks = |id: &str, metadata: Bytes| Join {
        protocols: vec![("cooperative-sticky".into(), metadata)],
        ..join(id, Some("i"))
    };
    let nothing = subscribed(&["t", "u"], &[]);
    let owns = subscribed(&["t", "u"], &[("t", &[0, 1])]);
    for (back, rebalances) in [
        (nothing.clone(), false),
        (owns.clone(), false),
        (subscribed(&["u", "t"], &[]), false),
        (subscribed(&["t"], &[]), true),
        (subscribed(&["t", "u", "v"], &[]), true),
        (Bytes::from_static(b"unreadable"), true),
    ] {
        let mut group = Group::default();
        do_join(&mut group, now, asks("", nothing.clone()), "old").try_recv().unwrap();
        do_sync(&mut group, now, "old", 1, &["old"]).try_recv().unwrap();
        // A member joins again with what it owns when others have come or gone.
        do_join(&mut group, now, asks("old", owns.clone()), "").try_recv().unwrap();
        do_sync(&mut group, now, "old", 2, &["old"]).try_recv().unwrap();
        let told = do_join(&mut group, now, asks("", back.clone()), "new").try_recv().unwrap();
        assert_eq!((told.error, told.generation), (None, if rebalances { 3 } else { 2 }), "{back:?}");
        if !rebalances {
            assert_eq!(do_sync(&mut group, now, "new", 2, &[]).try_recv().unwrap().assignment, "for old");
        }
    }
}

#[test]
fn given_incompatible_protocols_when_joining_then_the_newcomer_is_refused() {
    let now = Instant::now();
    let mut group = pair(now);
    for foreign in [
        Join { protocols: vec![("other".into(), Bytes::new())], ..join("", None) },
        Join { protocol_type: "connect".into(), ..join("", None) },
        Join { protocols: Vec::new(), ..join("", None) },
    ] {
        let refused = do_join(&mut group, now, foreign, "x").try_recv().unwrap();
        assert_eq!(refused.error, Some(ResponseError::InconsistentGroupProtocol));
    }
    assert_eq!(group.phase(), Phase::Stable, "the group is not disturbed");
}

#[test]
fn given_commits_when_checked_then_only_current_members_and_lone_consumers_of_empty_groups_may() {
    let now = Instant::now();
    let mut group = pair(now);
    assert_eq!(group.check_commit(now, who("a", 2), false), Ok(()));
    assert_eq!(group.check_commit(now, who("a", 1), false), Err(ResponseError::IllegalGeneration));
    assert_eq!(group.check_commit(now, who("x", 2), false), Err(ResponseError::UnknownMemberId));
    assert_eq!(group.check_commit(now, who("", -1), false), Err(ResponseError::UnknownMemberId));
    assert_eq!(group.check_commit(now, who("", -1), true), Ok(()), "a transactional producer of an old version");
    let mut empty = Group::default();
    for member in ["", "a"] {
        assert_eq!(empty.check_commit(now, who(member, -1), false), Ok(()), "{member}");
    }
    assert_eq!(empty.check_commit(now, who("a", 0), false), Err(ResponseError::UnknownMemberId));
}

#[test]
fn given_a_leader_that_never_assigns_when_time_is_up_then_it_is_dropped_and_the_others_begin_anew() {
    let now = Instant::now();
    let mut group = pair(now);
    let mut third = do_join(&mut group, now, join("", None), "c");
    let (mut a, mut b) = (do_join(&mut group, now, join("a", None), ""), do_join(&mut group, now, join("b", None), ""));
    assert_eq!(a.try_recv().unwrap().leader, "a");
    b.try_recv().unwrap();
    third.try_recv().unwrap();
    let mut waiting = do_sync(&mut group, now, "b", 3, &[]);
    group.tick(now + REBALANCE);
    assert_eq!(waiting.try_recv().unwrap().error, Some(ResponseError::RebalanceInProgress));
    assert_eq!(group.members().keys().collect::<Vec<_>>(), ["b"]);
}

/// A consumer's subscription (`ConsumerProtocolSubscription` version 0).
fn subscription(topics: &[&str]) -> Bytes {
    let mut out = vec![0, 0];
    out.extend((topics.len() as u32).to_be_bytes());
    for topic in topics {
        out.extend((topic.len() as u16).to_be_bytes());
        out.extend(topic.as_bytes());
    }
    out.extend((-1i32).to_be_bytes());
    Bytes::from(out)
}

/// A group of one member in its first generation.
fn alone(now: Instant, protocol_type: &str, metadata: Bytes) -> Group {
    let mut group = Group::default();
    let protocols = vec![("range".into(), metadata)];
    let join = Join { protocol_type: protocol_type.into(), protocols, ..join("", None) };
    assert_eq!(do_join(&mut group, now, join, "a").try_recv().unwrap().error, None);
    group
}

#[test]
fn given_groups_of_every_kind_when_offsets_are_to_be_deleted_then_what_is_consumed_is_kept() {
    let now = Instant::now();
    let unused = Group::default();
    assert_eq!((unused.check_offset_delete(), unused.is_subscribed_to("t")), (Ok(()), false), "a name for offsets");

    let mut consumers = alone(now, "consumer", subscription(&["t", "u"]));
    assert_eq!(consumers.check_offset_delete(), Ok(()));
    assert!(consumers.is_subscribed_to("u") && !consumers.is_subscribed_to("other"));
    consumers.leave(now, "a", None).unwrap();
    assert!(!consumers.is_subscribed_to("u"), "nobody is left");

    let unreadable = alone(now, "consumer", Bytes::from_static(b"r"));
    assert!(unreadable.is_subscribed_to("any"));

    let mut workers = alone(now, "connect", subscription(&["t"]));
    assert_eq!(workers.check_offset_delete(), Err(ResponseError::NonEmptyGroup));
    workers.leave(now, "a", None).unwrap();
    assert_eq!(workers.check_offset_delete(), Ok(()));
    workers.kill();
    assert_eq!(workers.check_offset_delete(), Err(ResponseError::GroupIdNotFound));
}

#[test]
fn given_a_member_that_never_comes_for_its_assignment_when_time_is_up_then_its_partitions_go_to_the_others() {
    let now = Instant::now();
    let patient = |id: &str| Join { session_timeout: REBALANCE * 10, ..join(id, None) };
    for comes in [true, false] {
        let mut group = pair(now);
        let mut leader = do_join(&mut group, now, patient("a"), "");
        let follower = do_join(&mut group, now, patient("b"), "").try_recv().unwrap();
        assert_eq!((leader.try_recv().unwrap().generation, follower.generation), (3, 3));
        do_sync(&mut group, now, "a", 3, &["a", "b"]).try_recv().unwrap();
        if comes {
            do_sync(&mut group, now, "b", 3, &[]).try_recv().unwrap();
        }
        // Its heartbeats are good: to the group it is at work.
        assert_eq!(group.heartbeat(now, who("b", 3)), Ok(()));
        group.tick(now + REBALANCE - Duration::from_millis(1));
        assert_eq!((group.phase(), group.members().len()), (Phase::Stable, 2));
        group.tick(now + REBALANCE);
        let expected = if comes { (Phase::Stable, 2) } else { (Phase::PreparingRebalance, 1) };
        assert_eq!((group.phase(), group.members().len()), expected);
        assert!(group.members().contains_key("a"));
    }
}

#[test]
fn given_a_broker_that_was_down_for_long_when_it_starts_then_offsets_stay_until_their_owners_could_come() {
    let (minute, day) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));
    assert!(!may_begin(Duration::ZERO, 7 * day) && !may_begin(9 * minute, 7 * day));
    assert!(may_begin(10 * minute, 7 * day));
    assert!(may_begin(minute, minute), "who keeps them for less waits no longer than that");
}

#[test]
fn given_old_offsets_when_looked_at_then_what_members_need_and_what_was_left_lately_stays() {
    let item = |topic: &str, committed_ms| OffsetItem {
        topic: topic.into(),
        partition: 0,
        offset: 7,
        leader_epoch: -1,
        metadata: String::new(),
        committed_ms,
    };
    let committed = [("other", 10), ("t", 10), ("young", 90)];
    let offsets: GroupOffsets =
        committed.iter().map(|(topic, at)| (((*topic).to_owned(), 0), item(topic, *at))).collect();
    let gone = |group: Option<&Group>, emptied_ms| -> Vec<String> {
        let expired = expired(&offsets, &Standing { group, emptied_ms }, 50);
        expired.into_iter().map(|(topic, _)| topic).collect()
    };
    let now = Instant::now();
    let nobody = Group::default();
    for group in [None, Some(&nobody)] {
        assert_eq!(gone(group, None), ["other", "t"], "there never was a member");
        assert_eq!(gone(group, Some(20)), ["other", "t"], "the last one went long ago");
        assert!(gone(group, Some(60)).is_empty(), "the last one went a moment ago");
    }
    let mut consumers = alone(now, "consumer", subscription(&["t"]));
    assert!(gone(Some(&consumers), None).is_empty(), "who needs what is not settled");
    do_sync(&mut consumers, now, "a", 1, &["a"]).try_recv().unwrap();
    assert_eq!(gone(Some(&consumers), None), ["other"], "nobody is subscribed to it");
    let mut workers = alone(now, "connect", subscription(&[]));
    let (sender, mut receiver) = oneshot::channel();
    workers.sync(now, who("a", 1), None, None, Vec::new(), sender);
    assert_eq!(receiver.try_recv().unwrap().error, None);
    assert!(gone(Some(&workers), None).is_empty(), "only consumers say what they need");
}
