//! Fetch sessions (KIP-227): a client names its partitions once and then only what has changed.
//!
//! A session is a list of partitions with what the client was last told of each. An answer within a session leaves out
//! partitions of which there is nothing new. Sessions are a convenience: whoever gets none (`session_id` 0), or loses one,
//! goes on with complete requests.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use uuid::Uuid;

/// Most sessions (`max.incremental.fetch.session.cache.slots` of Apache Kafka).
const MAX_SESSIONS: usize = 1_000;
/// Most partitions in all sessions together.
const MAX_PARTITIONS: usize = 200_000;
/// A session that has not been used for this time makes room for a new one.
const IDLE: Duration = Duration::from_secs(120);
/// Ends or does without a session.
const FINAL_EPOCH: i32 = -1;
/// Begins a session.
const INITIAL_EPOCH: i32 = 0;

/// A partition by topic name (or, since version 13, id) and index.
type Key = (String, Uuid, i32);

#[derive(Debug, Clone)]
struct Cached {
    offset: i64,
    leader_epoch: i32,
    max_bytes: i32,
    high_watermark: i64,
    log_start: i64,
}

#[derive(Debug)]
struct Session {
    /// Epoch of the next request.
    epoch: i32,
    by_id: bool,
    used: Instant,
    partitions: IndexMap<Key, Cached>,
}

/// What a request has to do with sessions.
#[derive(Debug)]
pub(crate) struct Use(Kind);

#[derive(Debug)]
enum Kind {
    Without,
    New(IndexMap<Key, Cached>),
    Within(i32),
}

#[derive(Default)]
struct Cache {
    sessions: HashMap<i32, Session>,
    partitions: usize,
}

/// All sessions.
#[derive(Default)]
pub(crate) struct FetchSessions {
    cache: Mutex<Cache>,
}

impl FetchSessions {
    /// Finds the session of a request and replaces the request's topics by those of the session.
    pub(crate) fn begin(&self, version: i16, request: &mut FetchRequest) -> Result<Use, ResponseError> {
        if version < 7 {
            return Ok(Use(Kind::Without));
        }
        let mut cache = self.cache.lock();
        if matches!(request.session_epoch, FINAL_EPOCH | INITIAL_EPOCH) {
            cache.remove(request.session_id);
            let new = request.session_epoch == INITIAL_EPOCH && !request.topics.is_empty();
            return Ok(Use(if new { Kind::New(partitions_of(&request.topics)) } else { Kind::Without }));
        }
        let by_id = version >= 13;
        let before = cache.sessions.get(&request.session_id).ok_or(ResponseError::FetchSessionIdNotFound)?;
        if before.epoch != request.session_epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        if before.by_id != by_id {
            return Err(ResponseError::FetchSessionTopicIdError);
        }
        let size = before.partitions.len();
        let added = partitions_of(&request.topics);
        if cache.partitions + added.len() > MAX_PARTITIONS {
            cache.remove(request.session_id);
            return Err(ResponseError::FetchSessionIdNotFound);
        }
        let session = cache.sessions.get_mut(&request.session_id).ok_or(ResponseError::FetchSessionIdNotFound)?;
        session.epoch = if session.epoch == i32::MAX { 1 } else { session.epoch + 1 };
        session.used = Instant::now();
        session.change(added, &request.forgotten_topics_data);
        request.topics = session.topics();
        let size_now = session.partitions.len();
        cache.partitions = cache.partitions - size + size_now;
        if size_now == 0 {
            // As in Apache Kafka: a session that has forgotten everything is over.
            cache.remove(request.session_id);
            return Ok(Use(Kind::Without));
        }
        Ok(Use(Kind::Within(request.session_id)))
    }

    /// Makes the answer one of its session.
    pub(crate) fn finish(&self, version: i16, session: Use, mut response: FetchResponse) -> FetchResponse {
        let mut cache = self.cache.lock();
        match session.0 {
            Kind::Without => response,
            Kind::New(mut partitions) => {
                for (key, told) in response.responses.iter().flat_map(told) {
                    if let Some(cached) = partitions.get_mut(&key) {
                        cached.take(told);
                    }
                }
                let id = cache.create(version >= 13, partitions);
                response.with_session_id(id)
            }
            Kind::Within(id) => {
                if let Some(session) = cache.sessions.get_mut(&id) {
                    session.reduce(&mut response.responses);
                }
                response.with_session_id(id)
            }
        }
    }
}

impl Cache {
    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.partitions.len();
        }
    }

    /// The new session's id, or 0 if there is no room.
    fn create(&mut self, by_id: bool, partitions: IndexMap<Key, Cached>) -> i32 {
        if self.sessions.len() >= MAX_SESSIONS {
            let idle = self.sessions.iter().filter(|(_, session)| session.used.elapsed() >= IDLE);
            let oldest = idle.min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            match oldest {
                Some(id) => self.remove(id),
                None => return 0,
            }
        }
        if self.partitions + partitions.len() > MAX_PARTITIONS {
            return 0;
        }
        let id = loop {
            let id = (Uuid::new_v4().as_u128() & 0x7fff_ffff) as i32;
            if id != 0 && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        self.partitions += partitions.len();
        self.sessions.insert(id, Session { epoch: 1, by_id, used: Instant::now(), partitions });
        id
    }
}

impl Session {
    fn change(&mut self, added: IndexMap<Key, Cached>, forgotten: &[ForgottenTopic]) {
        for (key, asked) in added {
            match self.partitions.get_mut(&key) {
                Some(cached) => {
                    let (high_watermark, log_start) = (cached.high_watermark, cached.log_start);
                    *cached = Cached { high_watermark, log_start, ..asked };
                }
                None => drop(self.partitions.insert(key, asked)),
            }
        }
        let forgotten: HashSet<Key> = forgotten
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(move |index| (topic.topic.to_string(), topic.topic_id, *index))
            })
            .collect();
        if !forgotten.is_empty() {
            self.partitions.retain(|key, _| !forgotten.contains(key));
        }
    }

    fn topics(&self) -> Vec<FetchTopic> {
        let mut topics: Vec<FetchTopic> = Vec::new();
        for ((name, id, index), cached) in &self.partitions {
            let partition = FetchPartition::default()
                .with_partition(*index)
                .with_current_leader_epoch(cached.leader_epoch)
                .with_fetch_offset(cached.offset)
                .with_partition_max_bytes(cached.max_bytes);
            match topics.last_mut().filter(|last| last.topic_id == *id && last.topic.as_str() == name) {
                Some(last) => last.partitions.push(partition),
                None => topics.push(
                    FetchTopic::default()
                        .with_topic(TopicName(StrBytes::from_string(name.clone())))
                        .with_topic_id(*id)
                        .with_partitions(vec![partition]),
                ),
            }
        }
        topics
    }

    /// Leaves out what the client knows. Partitions that had records go to the end, so that each has its turn.
    fn reduce(&mut self, responses: &mut Vec<FetchableTopicResponse>) {
        let mut served = HashSet::new();
        for topic in responses.iter_mut() {
            let (name, id) = (topic.topic.to_string(), topic.topic_id);
            topic.partitions.retain(|data| {
                let key = (name.clone(), id, data.partition_index);
                let Some(cached) = self.partitions.get_mut(&key) else { return true };
                let has_records = data.records.as_ref().is_some_and(|records| !records.is_empty());
                let moved = data.high_watermark != cached.high_watermark || data.log_start_offset != cached.log_start;
                cached.take(data);
                if has_records {
                    served.insert(key);
                }
                has_records || moved || data.error_code != 0
            });
        }
        responses.retain(|topic| !topic.partitions.is_empty());
        if !served.is_empty() && self.partitions.len() > 1 {
            let (last, first): (Vec<_>, Vec<_>) = self.partitions.drain(..).partition(|(key, _)| served.contains(key));
            self.partitions.extend(first.into_iter().chain(last));
        }
    }
}

impl Cached {
    fn take(&mut self, told: &PartitionData) {
        // After an error the client is told everything again.
        let good = told.error_code == 0;
        self.high_watermark = if good { told.high_watermark } else { -1 };
        self.log_start = if good { told.log_start_offset } else { -1 };
    }
}

fn partitions_of(topics: &[FetchTopic]) -> IndexMap<Key, Cached> {
    let asked = topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(move |asked| {
            let cached = Cached {
                offset: asked.fetch_offset,
                leader_epoch: asked.current_leader_epoch,
                max_bytes: asked.partition_max_bytes,
                high_watermark: -1,
                log_start: -1,
            };
            ((topic.topic.to_string(), topic.topic_id, asked.partition), cached)
        })
    });
    asked.collect()
}

fn told(topic: &FetchableTopicResponse) -> impl Iterator<Item = (Key, &PartitionData)> {
    topic.partitions.iter().map(move |data| ((topic.topic.to_string(), topic.topic_id, data.partition_index), data))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn request(id: i32, epoch: i32, partitions: &[(i32, i64)]) -> FetchRequest {
        let partitions = partitions
            .iter()
            .map(|(index, offset)| {
                FetchPartition::default()
                    .with_partition(*index)
                    .with_fetch_offset(*offset)
                    .with_partition_max_bytes(100)
            })
            .collect::<Vec<_>>();
        let topic = FetchTopic::default().with_topic(TopicName("t".into())).with_partitions(partitions);
        let topics = if topic.partitions.is_empty() { Vec::new() } else { vec![topic] };
        FetchRequest::default().with_session_id(id).with_session_epoch(epoch).with_topics(topics)
    }

    /// Answers every partition of a request with this high watermark and records for those with the index `with_records`.
    fn answer(request: &FetchRequest, high_watermark: i64, with_records: Option<i32>) -> FetchResponse {
        let responses = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let records = if with_records == Some(asked.partition) { &b"records"[..] } else { b"" };
                PartitionData::default()
                    .with_partition_index(asked.partition)
                    .with_high_watermark(high_watermark)
                    .with_log_start_offset(0)
                    .with_records(Some(Bytes::from_static(records)))
            });
            FetchableTopicResponse::default().with_topic(topic.topic.clone()).with_partitions(partitions.collect())
        });
        FetchResponse::default().with_responses(responses.collect())
    }

    fn indexes(topics: &FetchResponse) -> Vec<i32> {
        topics.responses.iter().flat_map(|topic| &topic.partitions).map(|data| data.partition_index).collect()
    }

    #[test]
    fn given_a_session_when_nothing_is_new_then_nothing_is_said_and_what_is_new_is() {
        let sessions = FetchSessions::default();
        let mut first = request(0, INITIAL_EPOCH, &[(0, 0), (1, 0), (2, 0)]);
        let session = sessions.begin(12, &mut first).unwrap();
        let answered = sessions.finish(12, session, answer(&first, 5, None));
        let id = answered.session_id;
        assert!(id != 0);
        assert_eq!(indexes(&answered), [0, 1, 2], "the first answer is complete");
        for (epoch, high_watermark, with_records, expected) in
            [(1, 5, None, vec![]), (2, 5, Some(0), vec![0]), (3, 6, None, vec![1, 2, 0]), (4, 6, None, vec![])]
        {
            let mut next = request(id, epoch, &[]);
            let session = sessions.begin(12, &mut next).unwrap();
            assert_eq!(next.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>(), 3);
            let answered = sessions.finish(12, session, answer(&next, high_watermark, with_records));
            assert_eq!((answered.session_id, indexes(&answered)), (id, expected), "epoch {epoch}");
        }
        // One is moved, one forgotten.
        let forgotten = ForgottenTopic::default().with_topic(TopicName("t".into())).with_partitions(vec![2]);
        let mut next = request(id, 5, &[(1, 7)]).with_forgotten_topics_data(vec![forgotten]);
        sessions.begin(12, &mut next).unwrap();
        let mut asked: Vec<(i32, i64)> =
            next.topics.iter().flat_map(|topic| &topic.partitions).map(|p| (p.partition, p.fetch_offset)).collect();
        asked.sort_unstable();
        assert_eq!(asked, [(0, 0), (1, 7)]);
    }

    #[test]
    fn given_wrong_sessions_when_asked_for_then_the_client_is_told_and_begins_anew() {
        let sessions = FetchSessions::default();
        let refused = |id, epoch, version| sessions.begin(version, &mut request(id, epoch, &[])).err();
        assert_eq!(refused(7, 1, 12), Some(ResponseError::FetchSessionIdNotFound));
        let mut first = request(0, INITIAL_EPOCH, &[(0, 0)]);
        let session = sessions.begin(12, &mut first).unwrap();
        let id = sessions.finish(12, session, answer(&first, 5, None)).session_id;
        assert_eq!(refused(id, 2, 12), Some(ResponseError::InvalidFetchSessionEpoch));
        assert_eq!(refused(id, 1, 13), Some(ResponseError::FetchSessionTopicIdError));
        assert_eq!(refused(id, FINAL_EPOCH, 12), None, "the end of a session");
        assert_eq!(refused(id, 1, 12), Some(ResponseError::FetchSessionIdNotFound));
        assert_eq!(sessions.cache.lock().partitions, 0);
    }

    #[test]
    fn given_more_clients_than_sessions_when_they_come_then_the_late_ones_do_without() {
        let sessions = FetchSessions::default();
        for number in 0..=MAX_SESSIONS {
            let mut first = request(0, INITIAL_EPOCH, &[(0, 0)]);
            let session = sessions.begin(12, &mut first).unwrap();
            let id = sessions.finish(12, session, answer(&first, 5, None)).session_id;
            assert_eq!(id == 0, number == MAX_SESSIONS);
        }
    }
}
