//! Snapshots: the fold of a long run in the blob store, so that a takeover reads what came since and not the whole run. A cache that
//! processes share has it too, for whoever takes the run over soon.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use riverrun_agents::RunState;
use riverrun_log::blobs::sha256_hex;
use riverrun_log::{BlobStore, LogConfig, LogError, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{AgentEvent, RunSnapshotted};
use riverrun_schemas::{BlobRef, Decoded, Failure, RunId, Topic, now_ms};
use riverrun_stores::Cache;

use super::driver::{Driver, Interrupted};

/// Steps between two snapshots.
pub(super) const EVERY: i64 = 1_000;
/// How long the cache has one: a run that was quiet for longer is taken over in no hurry.
const HOT: Duration = Duration::from_secs(60 * 60);

/// Where folds are kept.
#[derive(Clone, Copy)]
pub(super) struct Shelves<'a> {
    blobs: &'a dyn BlobStore,
    /// `None` where processes share none: the one that has the fold at hand needs no copy beside it.
    cache: Option<&'a dyn Cache>,
}

impl<'a> Shelves<'a> {
    /// The blob store, and the cache where others see it.
    pub(super) fn new(blobs: &'a dyn BlobStore, cache: &'a dyn Cache) -> Self {
        Self { blobs, cache: cache.is_shared().then_some(cache) }
    }
}

/// Keeps the fold; gives the event that points at it.
pub(super) async fn take(
    shelves: Shelves<'_>,
    state: &RunState,
    (accepted_offset, next_offset): (i64, i64),
) -> Result<RunSnapshotted, Failure> {
    let json = serde_json::to_vec(state).map_err(|error| Failure::new("snapshot_failed", error.to_string()))?;
    let json = Bytes::from(json);
    let blob = shelves
        .blobs
        .put_bytes(json.clone(), "application/json")
        .await
        .map_err(|error| Failure::new(error.code(), error.to_string()))?;
    if let Some(cache) = shelves.cache {
        cache.put(&hot(&blob), json.into(), HOT).await;
    }
    Ok(RunSnapshotted {
        run_id: state.run_id,
        epoch: state.epoch(),
        seq: state.last_seq(),
        accepted_offset,
        next_offset,
        state: blob,
        at: now_ms(),
    })
}

/// The fold up to a snapshot at `offset`; from the run's first event when the blob is not to be had. `None` when the run
/// is not on the log.
pub(super) async fn restore(
    shelves: Shelves<'_>,
    log: &LogConfig,
    schemas: &Schemas,
    (partition, offset): (i32, i64),
    snapshot: &RunSnapshotted,
) -> Result<Option<RunState>, LogError> {
    let place = TopicPartition::new(Topic::AgentEvents.name(), partition);
    match load(shelves, snapshot).await {
        // Words to the run may have come between the fold and the event that tells of it.
        Ok(state) => fold(log, schemas, place, snapshot.next_offset..offset, (snapshot.run_id, Some(state))).await,
        Err(error) => {
            tracing::warn!(run_id = %snapshot.run_id, error, "snapshot can't be used; folding the run's events");
            fold(log, schemas, place, snapshot.accepted_offset..offset, (snapshot.run_id, None)).await
        }
    }
}

/// Its key in the cache.
fn hot(blob: &BlobRef) -> String {
    format!("run:{}", blob.sha256)
}

async fn load(shelves: Shelves<'_>, snapshot: &RunSnapshotted) -> Result<RunState, String> {
    let kept = match shelves.cache {
        Some(cache) => cache.get(&hot(&snapshot.state)).await,
        None => None,
    };
    // A cache is never truth: only what has the hash that the log names is the fold.
    if let Some(bytes) = kept.filter(|bytes| sha256_hex(bytes) == snapshot.state.sha256) {
        return read(&bytes, snapshot);
    }
    let bytes = shelves.blobs.get(&snapshot.state).await.map_err(|error| error.to_string())?;
    read(&bytes, snapshot)
}

fn read(bytes: &[u8], snapshot: &RunSnapshotted) -> Result<RunState, String> {
    let state: RunState = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if state.run_id == snapshot.run_id && state.last_seq() == snapshot.seq {
        Ok(state)
    } else {
        Err(format!("it is step {} of {}", state.last_seq(), state.run_id))
    }
}

/// Folds the run's events within `offsets` on top of what there is.
async fn fold(
    log: &LogConfig,
    schemas: &Schemas,
    place: TopicPartition,
    offsets: Range<i64>,
    (run_id, mut state): (RunId, Option<RunState>),
) -> Result<Option<RunState>, LogError> {
    if offsets.is_empty() {
        return Ok(state);
    }
    let mut range = Tail::read_range(log, place, StartAt::Offset(offsets.start)).await?;
    while let Some(record) = range.next().await? {
        if record.offset >= offsets.end {
            break;
        }
        let Ok(Decoded::Event(event)) = schemas.decode::<AgentEvent>(&record) else { continue };
        if event.run_id() != run_id {
            continue;
        }
        match (&mut state, &event) {
            (Some(state), _) => {
                state.apply(&event);
            }
            (None, AgentEvent::RunAccepted(accepted)) => state = Some(RunState::accepted(accepted)),
            (None, _) => {}
        }
    }
    Ok(state)
}

impl Driver {
    /// Every so many steps the fold goes to the blob store; a run that can't have that goes on without, and whoever cancels it does
    /// not wait for the store.
    pub(super) async fn snapshot_when_due(&mut self) -> Result<(), Interrupted> {
        let is_due = self.state.last_seq() >= self.snapshot_seq.saturating_add(EVERY);
        if !is_due || self.left().is_some() || self.state.cancel_requested.is_some() {
            return Ok(());
        }
        self.snapshot_seq = self.state.last_seq();
        let (context, state) = (self.context.clone(), self.state.clone());
        let offsets = (self.accepted_offset, self.next_offset);
        let taken = tokio::select! {
            biased;
            taken = take(context.shelves(), &state, offsets) => taken,
            interrupted = self.interruption() => return Err(interrupted),
        };
        match taken {
            Ok(snapshot) => self.append(snapshot.into()).await,
            Err(failure) => {
                tracing::warn!(run_id = %self.state.run_id, error = failure.message, "no snapshot taken");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_agents::tools::{Hit, KNOWLEDGE_SEARCH};
    use riverrun_log::{EmbeddedBroker, ObjectStoreBlobs, Producer, admin};
    use riverrun_schemas::agent::*;
    use riverrun_schemas::{ChunkId, DocumentId, topics};
    use riverrun_stores::LocalCache;
    use serde_json::json;

    use super::*;

    fn accepted() -> RunAccepted {
        let request = RunRequest {
            task: "x".into(),
            agent: Some("react".into()),
            temperature: Some(0.1),
            approval: ApprovalPolicy::Never,
            ..RunRequest::default()
        };
        RunAccepted { run_id: RunId::derive(&["snapshot"]), request, forked_from: None, at: 1 }
    }

    /// A call of the search and its result with one passage.
    fn searched(epoch: i64, first: i64) -> RunAdvanced {
        let hit = Hit {
            chunk_id: ChunkId::derive(&[&first.to_string()]),
            document_id: DocumentId::derive(&["d"]),
            source: "/a.md".into(),
            text: "words".into(),
            start: 0,
            end: 5,
            chunk: None,
            page: None,
            score: 0.1,
        };
        let tool = |result: Option<String>| ToolUse {
            call_id: format!("c{first}"),
            name: KNOWLEDGE_SEARCH.into(),
            arguments_json: json!({ "query": first }).to_string(),
            effect: ToolEffect::None,
            result_json: result,
            result_blob: None,
            error: None,
            duration_ms: None,
        };
        let step = |seq, kind, result| Step {
            seq,
            kind,
            agent: "react".into(),
            text: None,
            tool: Some(tool(result)),
            usage: None,
            at: 2,
        };
        let result = Some(json!({ "passages": [hit] }).to_string());
        let steps = vec![step(first, StepKind::ToolCall, None), step(first + 1, StepKind::ToolResult, result)];
        RunAdvanced { run_id: accepted().run_id, epoch, steps }
    }

    #[tokio::test]
    async fn given_a_snapshot_when_a_run_is_restored_then_it_is_the_fold_of_all_events_with_or_without_the_blob() {
        let folder = tempfile::tempdir().unwrap();
        let broker = EmbeddedBroker::start(&folder.path().join("broker"), 0).await.unwrap();
        let log = broker.config("test");
        admin::ensure_topics(&log, topics::all_specs()).await.unwrap();
        let blobs = ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap();
        let producer = Producer::new(&log).unwrap();
        let (run_id, partition) = (accepted().run_id, 2);
        let other = RunAccepted { run_id: RunId::derive(&["other"]), ..accepted() };
        let mut state = RunState::accepted(&accepted());
        let (mut accepted_offset, mut next_offset) = (0, 0);
        let claim = RunClaimed { run_id, epoch: 1, worker: "w".into(), at: 1 };
        let events: Vec<AgentEvent> =
            vec![other.into(), accepted().into(), claim.into(), searched(1, 1).into(), searched(1, 3).into()];
        for event in events {
            let at = producer.send_to_partition(&event, partition, "test", None).await.unwrap();
            if event.run_id() == run_id {
                state.apply(&event);
                next_offset = at.offset + 1;
            }
            if matches!(&event, AgentEvent::RunAccepted(accepted) if accepted.run_id == run_id) {
                accepted_offset = at.offset;
            }
        }
        let (cache, cache_elsewhere) = (LocalCache::default(), LocalCache::default());
        let shelves = Shelves { blobs: &blobs, cache: Some(&cache) };
        let snapshot = take(shelves, &state, (accepted_offset, next_offset)).await.unwrap();
        // Words that come while the snapshot is on its way are not in it.
        let cancel = AgentEvent::from(RunCancelRequested { run_id, reason: Some("enough".into()), at: 3 });
        producer.send_to_partition(&cancel, partition, "test", None).await.unwrap();
        state.apply(&cancel);
        let event = AgentEvent::from(snapshot.clone());
        let place = (partition, producer.send_to_partition(&event, partition, "test", None).await.unwrap().offset);

        let schemas = Schemas::built_in();
        // Another process, whose cache knows nothing.
        let elsewhere = Shelves { blobs: &blobs, cache: Some(&cache_elsewhere) };
        let restored = || restore(elsewhere, &log, &schemas, place, &snapshot);
        assert_eq!(restored().await.unwrap(), Some(state.clone()));
        assert_eq!((state.sources().len(), state.cancel_requested.is_some()), (2, true));
        std::fs::remove_dir_all(folder.path().join("blobs")).unwrap();
        assert_eq!(restored().await.unwrap(), Some(state), "folded again");
    }

    fn one_search() -> RunState {
        let mut state = RunState::accepted(&accepted());
        let claim = RunClaimed { run_id: state.run_id, epoch: 1, worker: "w".into(), at: 1 };
        for event in [AgentEvent::from(claim), searched(1, 1).into()] {
            state.apply(&event);
        }
        state
    }

    #[tokio::test]
    async fn given_a_cache_of_this_process_alone_when_a_fold_is_kept_then_the_blob_store_alone_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap();
        let cache = LocalCache::default();
        let (shelves, state) = (Shelves::new(&blobs, &cache), one_search());
        let snapshot = take(shelves, &state, (0, 3)).await.unwrap();
        assert_eq!(cache.get(&hot(&snapshot.state)).await, None);
        assert_eq!(load(shelves, &snapshot).await, Ok(state));
    }

    #[tokio::test]
    async fn given_a_fold_in_the_cache_when_it_is_loaded_then_no_blob_is_read_and_what_has_another_hash_does_not_count()
    {
        let folder = tempfile::tempdir().unwrap();
        let blobs = ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap();
        let cache = LocalCache::default();
        let shelves = Shelves { blobs: &blobs, cache: Some(&cache) };
        let state = one_search();
        let snapshot = take(shelves, &state, (0, 3)).await.unwrap();
        let key = hot(&snapshot.state);
        let forged = String::from_utf8(cache.get(&key).await.unwrap()).unwrap().replace("words", "other");
        let good = cache.get(&key).await.unwrap();
        cache.put(&key, forged.into_bytes(), HOT).await;
        assert_eq!(load(shelves, &snapshot).await.as_ref(), Ok(&state), "the blob store has it");
        std::fs::remove_dir_all(folder.path().join("blobs")).unwrap();
        assert!(load(shelves, &snapshot).await.is_err(), "what was forged is not taken");
        cache.put(&key, good, HOT).await;
        assert_eq!(load(shelves, &snapshot).await, Ok(state));
    }
}
