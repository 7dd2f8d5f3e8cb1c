//! The tasks that read the log for the hub.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use riverrun_log::dead_letters::SUFFIX;
use riverrun_log::{DeadLetter, LogConfig, LogError, Record, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::tokens::{Attempt, TokenEvent};
use riverrun_schemas::{Decoded, EventSet, IngestId, Topic};
use tokio_util::sync::CancellationToken;

use super::Hub;

/// Pause before a lost reader is opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Opens the events at the offsets that the read model has reached, and the dead letters of commands at their end.
pub(super) async fn open_events(log: &LogConfig, starts: &HashMap<(String, i32), i64>) -> Result<Tail, LogError> {
    let mut partitions = Vec::new();
    for topic in [Topic::AgentEvents, Topic::IngestEvents] {
        for partition in 0..topic.spec().partitions {
            let start = match starts.get(&(topic.name().to_owned(), partition)) {
                Some(offset) => StartAt::Offset(*offset),
                None => StartAt::Beginning,
            };
            partitions.push((TopicPartition::new(topic.name(), partition), start));
        }
    }
    // What this process accepts from now on can only become a dead letter from now on.
    for commands in [Topic::AgentCommands, Topic::IngestCommands] {
        partitions.push((TopicPartition::new(format!("{}{SUFFIX}", commands.name()), 0), StartAt::End));
    }
    Tail::open(log, partitions).await
}

/// Hands events to the hub until `stop`.
pub(super) async fn read_events(hub: Hub, mut tail: Tail, stop: CancellationToken) {
    hub.inner.reading.store(true, Ordering::Relaxed);
    loop {
        let record = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            record = tail.next() => record,
        };
        match record {
            Ok(record) => {
                hub.inner.reading.store(true, Ordering::Relaxed);
                take(&hub, &record);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    () = hub.wait_for_room() => {}
                }
            }
            // Listeners look into the read model from time to time, so that a gap here delays what they see and loses nothing.
            Err(error @ LogError::OutOfRange { .. }) => tracing::warn!(error = %error, "streams skip a gap in the log"),
            Err(error) => {
                if hub.inner.reading.swap(false, Ordering::Relaxed) {
                    tracing::warn!(error = %error, "streams can't read the log");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    hub.inner.reading.store(false, Ordering::Relaxed);
}

fn take(hub: &Hub, record: &Record) {
    if &*record.topic == Topic::AgentEvents.name() {
        if let Some(event) = event::<AgentEvent>(hub, record) {
            hub.on_run_event(record.partition, record.offset, &event);
        }
    } else if record.topic.ends_with(SUFFIX) {
        if let Some(letter) = DeadLetter::read(record) {
            hub.on_dead_letter(&letter);
        }
    } else if let Some(event) = event::<IngestEvent>(hub, record) {
        hub.on_ingest_event(ingest_of(&event), record.partition, record.offset);
    }
}

fn event<E: EventSet>(hub: &Hub, record: &Record) -> Option<E> {
    match hub.inner.schemas.decode::<E>(record) {
        Ok(Decoded::Event(event)) => Some(event),
        Ok(Decoded::UnknownType { .. }) => None,
        Err(error) => {
            hub.inner.undecodable.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(position = %record.position(), error = %error, "record is no event");
            None
        }
    }
}

fn ingest_of(event: &IngestEvent) -> IngestId {
    match event {
        IngestEvent::IngestScanned(e) => e.ingest_id,
        IngestEvent::IngestFailed(e) => e.ingest_id,
        IngestEvent::DocumentQueued(e) => e.ingest_id,
        IngestEvent::DocumentUnchanged(e) => e.ingest_id,
        IngestEvent::DocumentChunked(e) => e.ingest_id,
        IngestEvent::DocumentEmbedded(e) => e.ingest_id,
        IngestEvent::DocumentIndexed(e) => e.ingest_id,
        IngestEvent::DocumentFailed(e) => e.ingest_id,
        IngestEvent::DocumentWithdrawn(e) => e.ingest_id,
        IngestEvent::DocumentDeleted(e) => e.ingest_id,
        IngestEvent::CollectionWithdrawn(e) => e.ingest_id,
        IngestEvent::CollectionReembedding(e) => e.ingest_id,
        IngestEvent::CollectionReembedded(e) => e.ingest_id,
        IngestEvent::CollectionReembedFailed(e) => e.ingest_id,
        IngestEvent::CollectionRebuilding(e) => e.ingest_id,
        IngestEvent::CollectionRebuilt(e) => e.ingest_id,
        IngestEvent::CollectionRebuildFailed(e) => e.ingest_id,
        IngestEvent::CollectionTuning(e) => e.ingest_id,
        IngestEvent::CollectionTuned(e) => e.ingest_id,
        IngestEvent::CollectionTuneFailed(e) => e.ingest_id,
    }
}

/// Hands what models write to the hub until `stop`. Best effort: whatever is lost stands in the step that follows.
pub(super) async fn read_tokens(hub: Hub, log: LogConfig, stop: CancellationToken) {
    let run = async {
        loop {
            match open_tokens(&log).await {
                Ok(mut tail) => loop {
                    match tail.next().await {
                        Ok(record) => {
                            if let Some(TokenEvent::TokenDelta(delta)) = event::<TokenEvent>(&hub, &record) {
                                let attempt = record.header(Attempt::HEADER).and_then(Attempt::from_header);
                                hub.on_token(&delta, attempt);
                            }
                        }
                        Err(error) => tracing::debug!(error = %error, "tokens can't be read"),
                    }
                },
                Err(error) => {
                    tracing::warn!(error = %error, "tokens can't be read");
                    tokio::time::sleep(REOPEN_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = run => {}
    }
}

async fn open_tokens(log: &LogConfig) -> Result<Tail, LogError> {
    let name = Topic::Tokens.name();
    let partitions = (0..Topic::Tokens.spec().partitions)
        .map(|partition| (TopicPartition::new(name, partition), StartAt::End))
        .collect();
    Tail::open(log, partitions).await
}
