//! A member of a collection's group at work: from the topic to what is handed in, a batch at a time.

use std::collections::HashMap;
use std::time::Duration;

use riverrun_log::{CommitOffset, GroupConsumer, LogError, Record, SessionEvent, TopicPartition};
use riverrun_schemas::IngestId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::reading::Places;
use super::{Consumed, Gate, Intake, StreamError};

/// Records that are taken together: their documents are stored at a time, their commands written at a time.
const BATCH: usize = 64;

/// How long the next record of a batch may take.
const BATCH_WAIT: Duration = Duration::from_millis(5);

/// Why a member reads no further.
pub(super) enum End {
    /// Nothing came for a while, or it is stopped.
    Over,
    /// Everything in the collection was removed meanwhile.
    Removed,
}

/// What stays the same however often the group is joined.
pub(super) struct Session<'s, G> {
    pub(super) intake: Intake<'s>,
    pub(super) gate: &'s G,
    pub(super) idle: Option<Duration>,
    pub(super) stop: CancellationToken,
}

impl<G: Gate> Session<'_, G> {
    /// What the gate says; `None` when it is stopped before.
    pub(super) async fn ask(&self) -> Result<Option<Option<IngestId>>, G::Refusal> {
        tokio::select! {
            removal = self.gate.ask() => removal.map(Some),
            () = self.stop.cancelled() => Ok(None),
        }
    }

    /// Reads as a member of the group until it ends.
    pub(super) async fn read(
        &self,
        member: &mut GroupConsumer,
        places: &mut Places,
        consumed: &mut Consumed,
        progress: &mut impl FnMut(&Consumed),
    ) -> Result<End, G::Refusal> {
        let Self { intake, idle, stop, .. } = self;
        let mut last = Instant::now();
        let mut assigned = false;
        loop {
            let until = idle.filter(|_| assigned && places.all_read()).map(|idle| last + idle);
            let event = tokio::select! {
                event = member.next() => event.map_err(StreamError::from)?,
                () = stop.cancelled() => return Ok(End::Over),
                () = wait_until(until) => return Ok(End::Over),
            };
            let (batch, then) = match event {
                SessionEvent::Record(record) => fill(member, record).await.map_err(StreamError::from)?,
                other => (Vec::new(), Some(other)),
            };
            if !batch.is_empty() {
                if !intake.settle(&batch, stop).await {
                    return Ok(End::Over);
                }
                match self.ask().await? {
                    None => return Ok(End::Over),
                    Some(removal) if !places.still_of(removal) => return Ok(End::Removed),
                    Some(_) => {}
                }
                let ends = ends(&batch, places);
                intake.take(batch, places, consumed, stop).await?;
                member.commit_now(&ends, Duration::from_secs(10)).await.map_err(StreamError::from)?;
                progress(consumed);
                last = Instant::now();
            }
            match then {
                Some(SessionEvent::Assigned(partitions)) => {
                    member.start(&places.assigned(&partitions)).map_err(StreamError::from)?;
                    consumed.began_again |= places.began_again();
                    (last, assigned) = (Instant::now(), true);
                }
                Some(SessionEvent::Revoked { partitions, .. }) => {
                    member.release(&partitions).map_err(StreamError::from)?;
                    places.revoked(&partitions);
                }
                Some(SessionEvent::End(partition)) => {
                    if places.ended(partition) {
                        last = Instant::now();
                    }
                }
                // What was told before it is handed in.
                Some(SessionEvent::Passed { partition, next }) => {
                    member.commit(&[places.commit(partition, next)]).map_err(StreamError::from)?;
                }
                Some(SessionEvent::Trouble(error)) => {
                    tracing::warn!(%error, "the topic can't be read for now");
                    if !error.retryable() {
                        return Err(StreamError::from(error).into());
                    }
                }
                Some(SessionEvent::Committed { .. } | SessionEvent::OutOfRange(_) | SessionEvent::Record(_)) | None => {
                }
            }
        }
    }
}

async fn wait_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The records that are there already, up to a batch; another event ends it.
async fn fill(member: &mut GroupConsumer, first: Record) -> Result<(Vec<Record>, Option<SessionEvent>), LogError> {
    let mut batch = vec![first];
    while batch.len() < BATCH {
        match tokio::time::timeout(BATCH_WAIT, member.next()).await {
            Err(_) => break,
            Ok(event) => match event? {
                SessionEvent::Record(record) => batch.push(record),
                other => return Ok((batch, Some(other))),
            },
        }
    }
    Ok((batch, None))
}

/// The next offset of each partition behind a batch.
fn ends(batch: &[Record], places: &Places) -> Vec<CommitOffset> {
    let mut ends: HashMap<TopicPartition, i64> = HashMap::new();
    for record in batch {
        ends.insert(record.topic_partition(), record.offset + 1);
    }
    ends.into_iter().map(|(partition, offset)| places.commit(partition, offset)).collect()
}
