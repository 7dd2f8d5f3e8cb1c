//! Power cuts, kills and failing calls over a disk in memory.
//!
//! `BROKER_CRASH_SEEDS` says how many power cuts are tried (200 without it), `BROKER_CRASH_FIRST` with which seed they begin;
//! `BROKER_FAILING_PROGRAMMES` in how many programmes each single call fails once (2 without it). A quarter of the power cuts
//! meets three clients whose calls take turns, the others one client; a failure names seed and kind.
//! What must hold after each: whatever was acknowledged is there, at its offset; a transaction is whole or absent; offsets
//! that were committed are; and the partition takes records again.

mod client;
mod dice;
mod several;
mod sim_disk;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Failure, Identity};
use dice::Dice;
use riverrun_broker::{Broker, BrokerConfig, StartError};
use sim_disk::SimDisk;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const TOPICS: [&str; 2] = ["a", "b"];
const TRANSACTIONAL_ID: &str = "x";
const GROUP: &str = "g";
/// Kafka's code for "a transaction of this id is being ended".
const CONCURRENT_TRANSACTIONS: i16 = 51;

/// What the broker has said so far.
#[derive(Default)]
struct Promised {
    /// Topic and offset → value.
    records: BTreeMap<(&'static str, i64), String>,
    committed: Vec<String>,
    aborted: Vec<String>,
    /// Nobody knows, but they are whole or absent.
    undecided: Vec<String>,
    /// Offset of the group; a commit that failed may count nevertheless.
    offsets: Vec<i64>,
    acknowledged_offset: i64,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn start(runtime: &Runtime, folder: &TempDir, disk: &SimDisk, busy: bool) -> Result<Broker, StartError> {
    let mut config = BrokerConfig::new(folder.path()).listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    config = config.with_disk(Arc::new(disk.clone()));
    config.segment_bytes = 700;
    config.journal_compact_bytes = 3_000;
    config.flush_threads = 1;
    config.housekeeping_interval = if busy { Duration::from_millis(3) } else { Duration::from_secs(3600) };
    config.checkpoint_interval = Duration::from_millis(5);
    runtime.block_on(Broker::start(config))
}

fn create_topics(client: &mut Client) -> Result<(), Failure> {
    for topic in TOPICS {
        client.create(topic, &[("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")])?;
    }
    Ok(())
}

/// The programme of one client: records, transactions, offsets. Ends at the first failure; everything said until then is noted.
fn work(
    client: &mut Client,
    dice: &mut Dice,
    promised: &mut Promised,
    next: &mut u64,
    steps: usize,
) -> Result<(), Failure> {
    create_topics(client)?;
    let mut producer: Option<(Identity, i32)> = None;
    for _ in 0..steps {
        *next += 1;
        let value = next.to_string();
        // Every record has a key of its own, so that compaction may move but never remove it.
        match dice.roll(4) {
            0 | 1 => {
                let topic = TOPICS[dice.roll(2)];
                let offset = client.produce(topic, &value, &value, None)?;
                promised.records.insert((topic, offset), value);
            }
            2 => {
                let offset = *next as i64;
                promised.offsets.push(offset);
                client.commit(GROUP, None, TOPICS[0], offset)?;
                promised.acknowledged_offset = offset;
            }
            _ => {
                let (identity, sequence) = match producer.take() {
                    Some(known) => known,
                    None => (client.init(TRANSACTIONAL_ID)?, 0),
                };
                let commit = dice.roll(3) > 0;
                promised.undecided.push(value.clone());
                // Both protocols take turns under the same id.
                let next = if dice.roll(2) == 0 {
                    transaction(client, &identity, sequence, &value, commit)?;
                    (identity, sequence + 1)
                } else {
                    (epoch(client, &identity, sequence, &value, commit)?, 0)
                };
                promised.undecided.pop();
                let list = if commit { &mut promised.committed } else { &mut promised.aborted };
                list.push(value);
                producer = Some(next);
            }
        }
    }
    Ok(())
}

/// A transaction of protocol 1: partitions are added before records come, the epoch stays.
fn transaction(
    client: &mut Client,
    producer: &Identity,
    sequence: i32,
    value: &str,
    commit: bool,
) -> Result<(), Failure> {
    client.add(TRANSACTIONAL_ID, producer, &TOPICS)?;
    for topic in TOPICS {
        client.produce(topic, value, value, Some((TRANSACTIONAL_ID, producer, sequence)))?;
    }
    client.end(TRANSACTIONAL_ID, producer, commit)
}

/// A transaction of protocol 2: records add their partitions, and the next transaction has another epoch.
fn epoch(
    client: &mut Client,
    producer: &Identity,
    sequence: i32,
    value: &str,
    commit: bool,
) -> Result<Identity, Failure> {
    for topic in TOPICS {
        client.produce_joining(topic, value, TRANSACTIONAL_ID, producer, sequence)?;
    }
    client.end_epoch(TRANSACTIONAL_ID, producer, commit)
}

fn verify(client: &mut Client, promised: &mut Promised, what: &str) {
    for topic in TOPICS {
        if client.create(topic, &[("cleanup.policy", "compact")]).is_err() {
            panic!("{what}: {topic} cannot be created");
        }
    }
    // A transaction that was left open is ended by its successor.
    let since = Instant::now();
    let successor = loop {
        match client.init(TRANSACTIONAL_ID) {
            Ok(identity) => break identity,
            Err(Failure::Code(CONCURRENT_TRANSACTIONS)) if since.elapsed() < Duration::from_secs(20) => {
                pause(Duration::from_millis(5));
            }
            Err(failure) => panic!("{what}: no successor, {failure:?}"),
        }
    };
    let read = TOPICS.map(|topic| client.read_committed(topic).unwrap_or_else(|f| panic!("{what}: {topic}: {f:?}")));
    for ((topic, offset), value) in &promised.records {
        let at = TOPICS.iter().position(|other| other == topic).unwrap();
        let found = read[at].iter().find(|(other, _, _)| other == offset);
        assert_eq!(found.map(|(_, _, value)| value), Some(value), "{what}: acknowledged record at {topic} {offset}");
    }
    let count = |at: usize, value: &String| read[at].iter().filter(|(_, _, other)| other == value).count();
    for value in &promised.committed {
        assert_eq!((count(0, value), count(1, value)), (1, 1), "{what}: committed transaction {value}");
    }
    for value in &promised.aborted {
        assert_eq!((count(0, value), count(1, value)), (0, 0), "{what}: aborted transaction {value}");
    }
    for value in std::mem::take(&mut promised.undecided) {
        let found = (count(0, &value), count(1, &value));
        assert!(matches!(found, (0, 0) | (1, 1)), "{what}: transaction {value} is torn: {found:?}");
        let list = if found == (1, 1) { &mut promised.committed } else { &mut promised.aborted };
        list.push(value);
    }
    let committed = client.committed(GROUP, TOPICS[0]).unwrap();
    let allowed = committed == promised.acknowledged_offset
        || committed >= promised.acknowledged_offset && promised.offsets.contains(&committed);
    assert!(allowed || promised.acknowledged_offset == 0, "{what}: offset {committed}");
    promised.acknowledged_offset = committed.max(0);
    // And everything takes records again.
    for topic in TOPICS {
        let offset = client.produce(topic, "again", "again", None).unwrap_or_else(|f| panic!("{what}: {topic}: {f:?}"));
        assert!(read[TOPICS.iter().position(|other| *other == topic).unwrap()].iter().all(|(at, _, _)| *at < offset));
    }
    assert!(successor.id >= 0);
}

/// What is left of a disk on which the broker started after it had been killed, until the power went: what it found and had not
/// synced itself may be what it went on from.
fn started_and_cut_off(runtime: &Runtime, folder: &TempDir, disk: &SimDisk, dice: &mut Dice) -> SimDisk {
    disk.die_at(1 + dice.roll(60) as u64);
    let broker = start(runtime, folder, disk, false);
    let left = disk.after_power_cut(dice);
    if let Ok(broker) = broker {
        runtime.block_on(broker.shutdown());
    }
    left
}

fn power_cuts(runtime: &Runtime, seed: u64) {
    // Every fourth programme is one of several clients.
    let has_several = seed % 4 == 3;
    let what = format!("seed {seed}, {}", if has_several { "several clients" } else { "one client" });
    let folder = TempDir::new().unwrap();
    let mut dice = Dice::new(seed);
    let mut disk = SimDisk::new();
    let mut promised = Promised::default();
    let mut next = 0;
    for _ in 0..2 {
        disk.die_at(1 + dice.roll(300) as u64);
        let busy = dice.roll(2) == 0;
        // The power may go while the broker starts, too.
        if let Ok(broker) = start(runtime, &folder, &disk, busy) {
            let address = broker.local_addr();
            let _ = if has_several {
                several::work(address, &disk, &mut dice, &mut promised, &mut next, 80)
            } else {
                work(&mut Client::connect(address, disk.clone()), &mut dice, &mut promised, &mut next, 40)
            };
            let killed = dice.roll(4) == 0;
            let stopped = if killed { disk.after_kill() } else { disk.after_power_cut(&mut dice) };
            runtime.block_on(broker.shutdown());
            disk = stopped;
            if killed {
                disk = started_and_cut_off(runtime, &folder, &disk, &mut dice);
            }
        } else {
            disk = disk.after_power_cut(&mut dice);
        }
        let broker = start(runtime, &folder, &disk, false).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut client = Client::connect(broker.local_addr(), disk.clone());
        verify(&mut client, &mut promised, &what);
        runtime.block_on(broker.shutdown());
    }
}

/// Runs `job` for each number, so many at a time.
fn for_each(at_a_time: usize, numbers: std::ops::Range<u64>, job: impl Fn(&Runtime, u64) + Sync) {
    let next = AtomicU64::new(numbers.start);
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                let runtime = runtime();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        break;
                    }
                    job(&runtime, number);
                }
            });
        }
    });
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn given_power_cuts_at_any_call_when_started_again_then_what_was_acknowledged_is_there_and_transactions_are_whole() {
    let first = setting("BROKER_CRASH_FIRST", 0);
    for_each(4, first..first + setting("BROKER_CRASH_SEEDS", 200), power_cuts);
}

/// Before the same is asked again.
#[expect(clippy::disallowed_methods, reason = "the client blocks a thread of its own, on which no runtime works")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Tries until it works: a call that fails once may cost an answer, but nothing that was acknowledged.
fn persist(disk: &SimDisk, client: &mut Client, promised: &mut Promised, next: &mut u64, seed: u64) {
    let since = Instant::now();
    let mut dice = Dice::new(seed);
    loop {
        match work(client, &mut dice, promised, next, 6) {
            Ok(()) => return,
            Err(failure) => {
                assert!(since.elapsed() < Duration::from_secs(20), "call {seed}: {failure:?} for ever");
                assert!(!disk.is_dead());
                pause(Duration::from_millis(100));
            }
        }
    }
}

/// Runs a programme of which the call with this number fails; whether it made so many calls.
fn one_failing_call(runtime: &Runtime, programme: u64, number: u64) -> bool {
    let what = format!("programme {programme}, call {number}");
    let folder = TempDir::new().unwrap();
    let disk = SimDisk::new();
    disk.fail_at(number + 1);
    // Retention, checkpoints and compaction take part in every other one.
    let busy = programme % 2 == 1;
    let broker = match start(runtime, &folder, &disk, busy) {
        Ok(broker) => broker,
        Err(_) => start(runtime, &folder, &disk, busy).unwrap_or_else(|error| panic!("{what}: {error}")),
    };
    let (mut promised, mut next) = (Promised::default(), 0);
    let mut client = Client::connect(broker.local_addr(), disk.clone());
    persist(&disk, &mut client, &mut promised, &mut next, programme);
    let failed = disk.has_failed();
    let left = disk.after_power_cut(&mut Dice::new(number));
    runtime.block_on(broker.shutdown());
    let broker = start(runtime, &folder, &left, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut client = Client::connect(broker.local_addr(), left);
    verify(&mut client, &mut promised, &what);
    runtime.block_on(broker.shutdown());
    failed
}

#[test]
fn given_any_one_call_that_fails_when_the_client_goes_on_then_nothing_acknowledged_is_lost() {
    const MOST_CALLS: u64 = 2_000;
    for programme in 0..setting("BROKER_FAILING_PROGRAMMES", 2) {
        let beyond = AtomicBool::new(false);
        // Most of the time they wait before they try again.
        for_each(8, 0..MOST_CALLS, |runtime, number| {
            if !beyond.load(Ordering::Relaxed) && !one_failing_call(runtime, programme, number) {
                beyond.store(true, Ordering::Relaxed);
            }
        });
        assert!(beyond.into_inner(), "programme {programme} makes more than {MOST_CALLS} calls");
    }
}
