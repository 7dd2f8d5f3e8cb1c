//! Records that could not be handled: kept byte for byte on `<topic>.dlq` with the reason, to be looked at, sent again or
//! dropped. The dead-letter topic is a log like any other: that a letter was sent again or dropped is a record on it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use riverrun_schemas::framing;
use riverrun_schemas::topics::all_specs;
use serde::Serialize;

use crate::admin::Admin;
use crate::config::LogConfig;
use crate::error::LogError;
use crate::producer::Producer;
use crate::record::{Outgoing, Position, Record, StartAt, TopicPartition};
use crate::tail::Tail;

/// What a topic's dead letters are called.
pub const SUFFIX: &str = ".dlq";
/// A reason is cut to this many characters.
const MAX_REASON_CHARS: usize = 2_000;
/// Most bytes of a record that a letter holds. Its topic takes 4 MiB, of which our own headers need some; a record is larger than that
/// when it came in a compressed batch, where a topic's limit counts compressed bytes.
const MAX_KEPT_BYTES: usize = (4 << 20) - (64 << 10);
/// What a header takes beside its name and value, at most.
const HEADER_BYTES: usize = 10;
/// Headers of ours begin so; they are taken off when a letter is sent again.
const PREFIX: &str = "dlq_";

const TOPIC: &str = "dlq_topic";
const PARTITION: &str = "dlq_partition";
const OFFSET: &str = "dlq_offset";
const GROUP: &str = "dlq_group";
const CODE: &str = "dlq_code";
const REASON: &str = "dlq_reason";
const ATTEMPTS: &str = "dlq_attempts";
const SCHEMA_ID: &str = "dlq_schema_id";
const BYTES: &str = "dlq_bytes";
const MARK: &str = "dlq_mark";
const MARKED: &str = "dlq_marked_offset";

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterState {
    /// Nothing yet.
    Open,
    /// It was sent to its topic again.
    Redriven,
    /// Someone decided that it needs nothing.
    Dropped,
}

impl LetterState {
    fn as_str(self) -> &'static str {
        match self {
            LetterState::Open => "open",
            LetterState::Redriven => "redriven",
            LetterState::Dropped => "dropped",
        }
    }
}

/// A record that could not be handled, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// `<dead-letter topic>:<offset>`: names it in `dlq show` and `dlq redrive`.
    pub id: LetterId,
    /// Where the record lay.
    pub origin: Position,
    /// The group that gave it up.
    pub group: String,
    /// Stable code, for example `bad_body`.
    pub code: String,
    /// In words.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The schema that it claims to be written with, when its frame can be read.
    pub schema_id: Option<u32>,
    /// Bytes of the record, where it is larger than a letter may be: then only the beginning of its payload is here, and of key and
    /// headers what there was room for.
    pub whole_bytes: Option<usize>,
    /// The record's key, unchanged.
    pub key: Option<Bytes>,
    /// The record's bytes, unchanged.
    pub payload: Option<Bytes>,
    /// The record's own headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// When it was given up, in milliseconds since the epoch.
    pub at_ms: i64,
    /// What became of it.
    pub state: LetterState,
}

/// Names a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterId {
    /// The dead-letter topic.
    pub topic: Arc<str>,
    /// Its offset there; a dead-letter topic has one partition.
    pub offset: i64,
}

impl std::fmt::Display for LetterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.topic, self.offset)
    }
}

impl FromStr for LetterId {
    type Err = LogError;

    fn from_str(text: &str) -> Result<Self, LogError> {
        text.rsplit_once(':')
            .filter(|(topic, _)| topic.ends_with(SUFFIX))
            .and_then(|(topic, offset)| {
                Some(Self { topic: topic.into(), offset: offset.parse().ok().filter(|offset| *offset >= 0)? })
            })
            .ok_or_else(|| {
                LogError::NotFound(format!("dead letter {text:?}; ids look like riverrun.ingest.commands{SUFFIX}:0"))
            })
    }
}

impl DeadLetter {
    /// The record to write for `record`, which `group` gives up after `attempts` tries.
    pub fn of(record: &Record, group: &str, code: &str, reason: &str, attempts: u32) -> Outgoing {
        let mut reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
        let kept = Kept::of(record);
        if let Some(bytes) = kept.whole_bytes {
            let more =
                format!("; only the beginning of its {bytes} bytes is kept, all of them lie at {}", record.position());
            reason.push_str(&more);
        }
        let schema_id =
            framing::unframe(record.payload.as_deref().unwrap_or_default()).ok().map(|(id, _)| id.to_string());
        let ours = [
            (TOPIC, record.topic.to_string()),
            (PARTITION, record.partition.to_string()),
            (OFFSET, record.offset.to_string()),
            (GROUP, group.to_owned()),
            (CODE, code.to_owned()),
            (REASON, reason),
            (ATTEMPTS, attempts.to_string()),
        ];
        let whole = kept.whole_bytes.map(|bytes| (BYTES, bytes.to_string()));
        let ours = ours.into_iter().chain(schema_id.map(|id| (SCHEMA_ID, id))).chain(whole);
        let mut headers = kept.headers;
        headers.extend(ours.map(|(name, value)| (name.to_owned(), value.into_bytes())));
        Outgoing {
            topic: format!("{}{SUFFIX}", record.topic).into(),
            partition: Some(0),
            key: kept.key,
            payload: kept.payload,
            headers,
        }
    }

    /// Understands a record of a dead-letter topic; `None` for one that is no letter.
    pub fn read(record: &Record) -> Option<Self> {
        let text = |name: &str| record.header(name).map(|value| String::from_utf8_lossy(value).into_owned());
        let origin = Position {
            topic: text(TOPIC)?.into(),
            partition: text(PARTITION)?.parse().ok()?,
            offset: text(OFFSET)?.parse().ok()?,
        };
        Some(Self {
            id: LetterId { topic: record.topic.clone(), offset: record.offset },
            origin,
            group: text(GROUP)?,
            code: text(CODE)?,
            reason: text(REASON).unwrap_or_default(),
            attempts: text(ATTEMPTS).and_then(|n| n.parse().ok()).unwrap_or(0),
            schema_id: text(SCHEMA_ID).and_then(|id| id.parse().ok()),
            whole_bytes: text(BYTES).and_then(|bytes| bytes.parse().ok()),
            key: record.key.clone(),
            payload: record.payload.clone(),
            headers: record.headers.iter().filter(|(name, _)| !name.starts_with(PREFIX)).cloned().collect(),
            at_ms: record.timestamp_ms,
            state: LetterState::Open,
        })
    }

    /// The original record, for its original topic. A keyless record goes to its original partition.
    pub fn restored(&self) -> Outgoing {
        Outgoing {
            topic: self.origin.topic.clone(),
            partition: self.key.is_none().then_some(self.origin.partition),
            key: self.key.clone(),
            payload: self.payload.clone(),
            headers: self.headers.clone(),
        }
    }
}

/// What a letter holds of its record.
struct Kept {
    key: Option<Bytes>,
    payload: Option<Bytes>,
    headers: Vec<(String, Vec<u8>)>,
    /// Bytes of the record, where they are not all here.
    whole_bytes: Option<usize>,
}

impl Kept {
    /// All of it; or, where a letter has no room for that, the key, headers one after the other, and the beginning of the payload.
    fn of(record: &Record) -> Self {
        let headers = record.headers.iter().filter(|(name, _)| !name.starts_with(PREFIX));
        let bytes = record.size_bytes() + HEADER_BYTES * record.headers.len();
        if bytes <= MAX_KEPT_BYTES {
            let (key, payload) = (record.key.clone(), record.payload.clone());
            return Self { key, payload, headers: headers.cloned().collect(), whole_bytes: None };
        }
        let mut room = MAX_KEPT_BYTES;
        let mut fits = |bytes: usize| {
            let left = room.checked_sub(bytes);
            room = left.unwrap_or(room);
            left.is_some()
        };
        let key = record.key.clone().filter(|key| fits(key.len()));
        let headers = headers.filter(|(name, value)| fits(name.len() + value.len() + HEADER_BYTES)).cloned().collect();
        let payload = record.payload.as_ref().map(|payload| payload.slice(..payload.len().min(room)));
        Self { key, payload, headers, whole_bytes: Some(record.size_bytes()) }
    }
}

fn mark(id: &LetterId, state: LetterState) -> Outgoing {
    let headers = [(MARK, state.as_str().to_owned()), (MARKED, id.offset.to_string())];
    Outgoing {
        topic: id.topic.clone(),
        partition: Some(0),
        key: None,
        payload: None,
        headers: headers.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes())).collect(),
    }
}

/// The letter that a mark is about, by its offset.
pub(crate) fn marked_offset(record: &Record) -> Option<i64> {
    read_mark(record).map(|(offset, _)| offset)
}

/// The same mark for the letter at another offset.
pub(crate) fn re_mark(record: &mut Record, offset: i64) {
    for (name, value) in &mut record.headers {
        if name == MARKED {
            *value = offset.to_string().into_bytes();
        }
    }
}

fn read_mark(record: &Record) -> Option<(i64, LetterState)> {
    let state = [LetterState::Redriven, LetterState::Dropped]
        .into_iter()
        .find(|state| record.header(MARK) == Some(state.as_str().as_bytes()))?;
    let offset = std::str::from_utf8(record.header(MARKED)?).ok()?.parse().ok()?;
    Some((offset, state))
}

/// Folds a dead-letter topic: the newest `limit` letters, oldest first, with what became of them. A letter that was
/// written twice, because its writer died between writing and committing, counts once.
#[derive(Debug)]
struct Fold {
    limit: usize,
    letters: VecDeque<DeadLetter>,
    seen: HashSet<(String, Position)>,
    marks: HashMap<i64, LetterState>,
}

impl Fold {
    fn new(limit: usize) -> Self {
        Self { limit, letters: VecDeque::new(), seen: HashSet::new(), marks: HashMap::new() }
    }

    fn apply(&mut self, record: &Record) {
        if let Some((offset, state)) = read_mark(record) {
            self.marks.insert(offset, state);
        } else if let Some(letter) = DeadLetter::read(record)
            && self.seen.insert((letter.group.clone(), letter.origin.clone()))
        {
            self.letters.push_back(letter);
            if self.letters.len() > self.limit {
                self.letters.pop_front();
            }
        }
    }

    fn finish(self) -> Vec<DeadLetter> {
        let Self { letters, marks, .. } = self;
        letters
            .into_iter()
            .map(|mut letter| {
                letter.state = marks.get(&letter.id.offset).copied().unwrap_or(LetterState::Open);
                letter
            })
            .collect()
    }
}

/// Lists, shows and handles dead letters.
pub struct DeadLetters {
    config: LogConfig,
    admin: Admin,
    producer: Producer,
}

impl DeadLetters {
    /// Those of the broker that `config` names.
    pub fn new(config: &LogConfig, producer: Producer) -> Result<Self, LogError> {
        Ok(Self { config: config.clone(), admin: Admin::new(config)?, producer })
    }

    /// The newest `limit` letters of one topic (the topic itself or its dead-letter topic), or of each.
    pub async fn list(&self, topic: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>, LogError> {
        let wanted =
            topic.map(|topic| if topic.ends_with(SUFFIX) { topic.to_owned() } else { format!("{topic}{SUFFIX}") });
        let there: HashSet<String> = self.admin.topics().await?.into_iter().map(|t| t.name).collect();
        if let Some(missing) = wanted.as_ref().filter(|topic| !there.contains(*topic)) {
            return Err(LogError::NotFound(format!("topic {missing:?}")));
        }
        let known = all_specs()
            .iter()
            .map(|spec| &spec.name)
            .filter(|name| name.ends_with(SUFFIX) && there.contains(*name))
            .cloned();
        let topics: Vec<String> = wanted.map_or_else(|| known.collect(), |topic| vec![topic]);
        let mut letters = Vec::new();
        for topic in topics {
            letters.extend(self.read(&topic, limit).await?);
        }
        Ok(letters)
    }

    async fn read(&self, topic: &str, limit: usize) -> Result<Vec<DeadLetter>, LogError> {
        let mut range = Tail::read_range(&self.config, TopicPartition::new(topic, 0), StartAt::Beginning).await?;
        let mut fold = Fold::new(limit);
        while let Some(record) = range.next().await? {
            fold.apply(&record);
        }
        Ok(fold.finish())
    }

    /// One letter.
    pub async fn show(&self, id: &LetterId) -> Result<DeadLetter, LogError> {
        let missing = || LogError::NotFound(format!("dead letter {id}"));
        self.list(Some(&id.topic), usize::MAX).await?.into_iter().find(|letter| letter.id == *id).ok_or_else(missing)
    }

    /// Sends the original bytes to the original topic again, then marks the letter. A letter that was handled already is
    /// sent again only with `again`; one that does not hold all of its record never is.
    pub async fn redrive(&self, id: &LetterId, again: bool) -> Result<Position, LogError> {
        let letter = self.show(id).await?;
        if letter.state != LetterState::Open && !again {
            return Err(LogError::NotFound(format!("open dead letter {id}: it was {} already", letter.state.as_str())));
        }
        if let Some(bytes) = letter.whole_bytes {
            let topic = letter.origin.topic.to_string();
            return Err(LogError::TooLarge { topic, bytes, limit: MAX_KEPT_BYTES });
        }
        let position = self.producer.send_one(letter.restored()).await?;
        self.producer.send_one(mark(id, LetterState::Redriven)).await?;
        Ok(position)
    }

    /// Marks the letter as needing nothing.
    pub async fn drop_letter(&self, id: &LetterId) -> Result<(), LogError> {
        self.show(id).await?;
        self.producer.send_one(mark(id, LetterState::Dropped)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: i64, payload: &'static [u8]) -> Record {
        Record {
            topic: "riverrun.ingest.commands".into(),
            partition: 3,
            offset,
            key: Some(Bytes::from_static(b"k")),
            payload: Some(Bytes::from_static(payload)),
            headers: vec![("ce_id".into(), b"e".to_vec())],
            timestamp_ms: 0,
        }
    }

    fn landed(out: &Outgoing, offset: i64) -> Record {
        Record {
            topic: out.topic.clone(),
            partition: 0,
            offset,
            key: out.key.clone(),
            payload: out.payload.clone(),
            headers: out.headers.clone(),
            timestamp_ms: 9,
        }
    }

    #[test]
    fn a_letter_carries_the_record_unchanged_and_gives_it_back() {
        for payload in [&b"\0\0\0\x03\xe7abc"[..], b"garbage", b""] {
            let out = DeadLetter::of(&record(17, payload), "riverrun.ingester", "bad_body", "why", 3);
            assert_eq!(&*out.topic, "riverrun.ingest.commands.dlq");
            let letter = DeadLetter::read(&landed(&out, 5)).unwrap();
            assert_eq!(letter.origin, record(17, payload).position());
            assert_eq!((letter.code.as_str(), letter.reason.as_str(), letter.attempts), ("bad_body", "why", 3));
            assert_eq!(letter.schema_id, (payload.len() == 8).then_some(999));
            let back = letter.restored();
            assert_eq!(
                (back.payload.as_deref(), back.key.as_deref(), &*back.topic),
                (Some(payload), Some(&b"k"[..]), "riverrun.ingest.commands")
            );
            assert_eq!(back.headers, record(17, payload).headers);
            assert_eq!(letter.id.to_string().parse::<LetterId>().unwrap(), letter.id);
        }
    }

    #[test]
    fn given_a_record_that_is_larger_than_its_letter_may_be_then_the_letter_fits_and_says_what_is_missing() {
        let topic_takes: usize = crate::admin::DEAD_LETTER_MAX_BYTES.parse().unwrap();
        let large = || Bytes::from(vec![b'x'; 6 << 20]);
        let usual = record(17, b"x");
        let (key, header) = (Some(large()), ("ce_large".to_owned(), large().to_vec()));
        let many = (0..1_000_000).map(|_| (String::new(), Vec::new())).collect();
        for (what, whole) in [
            ("payload", Record { payload: Some(large()), ..record(17, b"x") }),
            ("key", Record { key, ..record(17, b"x") }),
            ("header", Record { headers: vec![header, usual.headers[0].clone()], ..record(17, b"x") }),
            ("headers", Record { headers: many, ..record(17, b"x") }),
        ] {
            let reason = "\u{10ffff}".repeat(MAX_REASON_CHARS);
            let out = DeadLetter::of(&whole, "riverrun.ingester", "bad_body", &reason, 3);
            let landed = landed(&out, 0);
            assert!(landed.size_bytes() + HEADER_BYTES * (landed.headers.len() + 10) < topic_takes, "{what}");
            let letter = DeadLetter::read(&landed).unwrap();
            assert_eq!(letter.whole_bytes, Some(whole.size_bytes()), "{what}");
            assert!(letter.reason.ends_with(&format!("all of them lie at {}", whole.position())), "{what}");
            assert_eq!(letter.key.is_none(), what == "key");
        }
    }

    #[test]
    fn a_letter_written_twice_counts_once_and_marks_change_its_state() {
        let out = DeadLetter::of(&record(17, b"x"), "g", "c", "r", 1);
        let other = DeadLetter::of(&record(18, b"x"), "g", "c", "r", 1);
        let mut fold = Fold::new(10);
        let first = landed(&out, 0);
        for letter in [
            &first,
            &landed(&out, 1),
            &landed(&other, 2),
            &landed(&mark(&LetterId { topic: out.topic.clone(), offset: 0 }, LetterState::Redriven), 3),
        ] {
            fold.apply(letter);
        }
        let states: Vec<_> = fold.finish().into_iter().map(|l| (l.id.offset, l.state)).collect();
        assert_eq!(states, [(0, LetterState::Redriven), (2, LetterState::Open)]);
    }

    #[test]
    fn only_ids_of_dead_letters_are_ids() {
        for bad in [
            "",
            "a:1",
            "riverrun.tokens.dlq",
            "riverrun.tokens.dlq:-1",
            "riverrun.tokens.dlq:x",
            "riverrun.tokens.dlq@1",
        ] {
            assert!(bad.parse::<LetterId>().is_err(), "{bad}");
        }
    }
}
