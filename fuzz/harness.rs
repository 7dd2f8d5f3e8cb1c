//! Tests with inputs that were made to break something. Each crate that reads bytes of strangers includes this file for its tests
//! and calls [`run`] in modules named `fuzz_tests`; `fuzz/README.md` lists the targets and says how a failure is repeated.
//!
//! Inputs are changes of a real corpus: what is wholly random fails at the first byte and tests nothing behind it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How many inputs are tried, for every target. Where it is said, an input may take no longer than [`TOO_LONG`].
const INPUTS: &str = "RIVERRUN_FUZZ_INPUTS";
/// From which number the inputs are drawn.
const SEED: &str = "RIVERRUN_FUZZ_SEED";
/// Only the input of this number.
const ONLY: &str = "RIVERRUN_FUZZ_ONLY";
/// A folder for `<target>.json`, and for `<target>.now` with the number of the input that is being tried.
const REPORT: &str = "RIVERRUN_FUZZ_REPORT";

/// An input does not grow beyond this.
const MAX_BYTES: usize = 64 << 10;
/// Failures that are looked at before a target gives up.
const MAX_FAILURES: usize = 20;
/// An input that takes longer is named while it runs: whoever waits then knows for what.
const LONG: Duration = Duration::from_secs(30);
/// An input that takes longer, twice, is a failure. The short form, beside all other tests of a busy machine, does not look at it.
const TOO_LONG: Duration = Duration::from_secs(5);

/// What is tried, and from what inputs are made.
pub(crate) struct Target<'a> {
    /// Its name, which reports and `./x fuzz` use.
    pub(crate) name: &'static str,
    /// Whole inputs of the kind; at least one.
    pub(crate) corpus: &'a [Vec<u8>],
    /// Words of the format, to be put in anywhere.
    pub(crate) words: &'a [&'a str],
    /// How many inputs are tried where nothing else is said.
    pub(crate) inputs: u64,
}

/// Tries inputs until all are through, and panics with those that made `check` panic or take too long. The same seed makes the same inputs.
pub(crate) fn run(target: &Target<'_>, check: impl Fn(&[u8])) {
    assert!(!target.corpus.is_empty(), "{}: there is no corpus", target.name);
    let seed = setting(SEED).unwrap_or(1);
    let numbers = match setting(ONLY) {
        Some(only) => only..only + 1,
        None => 0..setting(INPUTS).unwrap_or(target.inputs),
    };
    let report = std::env::var_os(REPORT).map(PathBuf::from);
    let current = &AtomicU64::new(numbers.start);
    let name = target.name;
    let (stop, stopped) = channel::<()>();
    let (tried, failures, slowest) = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut last = u64::MAX;
            while stopped.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                let now = current.load(Ordering::Relaxed);
                if now == last {
                    eprintln!("{name}: input {now} of seed {seed} takes more than {} s", LONG.as_secs());
                }
                last = now;
            }
        });
        let result = all(target, seed, numbers, report.as_deref(), current, check);
        drop(stop);
        result
    });
    if let Some(folder) = &report {
        let line = format!(
            "{{\"target\":\"{name}\",\"seed\":{seed},\"inputs\":{tried},\"seconds\":{:.1},\"slowest_ms\":{},\"slowest_input\":{},\"failures\":[{}]}}\n",
            slowest.total.as_secs_f64(),
            slowest.longest.as_millis(),
            slowest.input,
            failures.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
        );
        std::fs::write(folder.join(format!("{name}.json")), line).expect("the folder of the reports can be written");
        let _ = std::fs::remove_file(folder.join(format!("{name}.now")));
    }
    assert!(
        failures.is_empty(),
        "{name}: inputs {failures:?} of seed {seed} made it panic or took too long (the messages stand above); again with {SEED}={seed} {ONLY}={}",
        failures[0]
    );
}

/// How long inputs took.
struct Times {
    total: Duration,
    longest: Duration,
    input: u64,
}

fn all(
    target: &Target<'_>,
    seed: u64,
    numbers: std::ops::Range<u64>,
    report: Option<&Path>,
    current: &AtomicU64,
    check: impl Fn(&[u8]),
) -> (u64, Vec<u64>, Times) {
    // An input that ends the whole process is found by what stands in this file.
    let note = report.map(|folder| {
        let path = folder.join(format!("{}.now", target.name));
        File::create(path).expect("the folder of the reports can be written")
    });
    let began = Instant::now();
    let mut times = Times { total: Duration::ZERO, longest: Duration::ZERO, input: 0 };
    let (mut tried, mut failures) = (0, Vec::new());
    let limited = setting(INPUTS).is_some();
    let timed = |input: &[u8]| {
        let since = Instant::now();
        let held = catch_unwind(AssertUnwindSafe(|| check(input))).is_ok();
        (held, since.elapsed())
    };
    for number in numbers {
        current.store(number, Ordering::Relaxed);
        if let Some(note) = &note {
            let _ = note.write_all_at(format!("{number:020}").as_bytes(), 0);
        }
        let input = input(target, seed, number);
        let (held, took) = timed(&input);
        // A machine that had something else to do is slow once, an input each time.
        let hangs = held && limited && took > TOO_LONG && timed(&input).1 > TOO_LONG;
        if hangs {
            eprintln!(
                "{}: input {number} of seed {seed} took {:.1} s, at most {} s are allowed",
                target.name,
                took.as_secs_f64(),
                TOO_LONG.as_secs()
            );
        }
        if hangs || !held {
            failures.push(number);
        }
        if took > times.longest {
            times.longest = took;
            times.input = number;
        }
        tried += 1;
        if failures.len() == MAX_FAILURES {
            break;
        }
    }
    times.total = began.elapsed();
    (tried, failures, times)
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

/// The input of that number: one of the corpus, changed up to eight times.
fn input(target: &Target<'_>, seed: u64, number: u64) -> Vec<u8> {
    let mut dice =
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number.wrapping_mul(0xd134_2543_de82_ef95)));
    let mut bytes = dice.pick(target.corpus).clone();
    if dice.roll(50) == 0 {
        // Now and then nothing of the corpus is left.
        let length = dice.roll(300);
        return (0..length).map(|_| dice.byte()).collect();
    }
    for _ in 0..=dice.roll(8) {
        change(&mut bytes, target, &mut dice);
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, target: &Target<'_>, dice: &mut Dice) {
    let at = dice.roll(bytes.len() + 1);
    let end = (at + 1 + dice.roll(64)).min(bytes.len());
    match dice.roll(10) {
        // One bit, one byte.
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
        2 if at < bytes.len() => bytes[at] = *dice.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff, b'"', b'\n', b'%', b'/']),
        // A number of one to eight bytes, in either order: lengths, counts and offsets are such.
        3 | 4 => {
            let width = *dice.pick(&[1, 2, 4, 8]);
            let number = *dice.pick(&[0, 1, 2, 0x7f, 0x80, 0xffff, 0x7fff_ffff, 0x8000_0000, u64::MAX >> 1, u64::MAX]);
            let written: Vec<u8> = match dice.roll(2) {
                0 => number.to_le_bytes()[..width].to_vec(),
                _ => number.to_be_bytes()[8 - width..].to_vec(),
            };
            let until = (at + width).min(bytes.len());
            drop(bytes.splice(at..until, written));
        }
        // The end is gone, a part is gone, a part is there many times.
        5 => bytes.truncate(at),
        6 if at < end => drop(bytes.drain(at..end)),
        7 if at < end => {
            let block = bytes[at..end].repeat(1 + dice.roll(40));
            drop(bytes.splice(at..at, block));
        }
        // The beginning of one and the end of another.
        8 => {
            let other = dice.pick(target.corpus);
            let from = dice.roll(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        9 if !target.words.is_empty() => {
            let word = dice.pick(target.words).as_bytes().to_vec();
            drop(bytes.splice(at..at, word));
        }
        _ => bytes.insert(at, dice.byte()),
    }
}

/// SplitMix64 (G. Steele, D. Lea, C. Flood, Fast splittable pseudorandom number generators, 2014).
struct Dice(u64);

impl Dice {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `sides`, which is at least 1.
    fn roll(&mut self, sides: usize) -> usize {
        (self.draw() >> 33) as usize % sides
    }

    fn byte(&mut self) -> u8 {
        (self.draw() >> 56) as u8
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }
}
