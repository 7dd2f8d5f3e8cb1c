//! One ingest as a stream: its row in the read model, whenever the log said something about it.

use std::time::Duration;

use futures::stream::{self, Stream};
use riverrun_schemas::{IngestId, Topic};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Hub, Seen};
use crate::error::ApiError;
use crate::wire::{IngestMessage, IngestView};

/// Changes that come closer together are told as one.
const GATHER: Duration = Duration::from_millis(50);
/// How often the read model is asked whether it has what the log said.
const POLL: Duration = Duration::from_millis(20);
/// How often it is asked while the log says nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long an ingest that is not in the read model is waited for.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of an ingest.
pub struct IngestStream {
    hub: Hub,
    ingest_id: IngestId,
    seen: watch::Receiver<Seen>,
    told: Option<IngestView>,
    started: bool,
    ended: bool,
    since: Instant,
}

impl IngestStream {
    pub(super) fn new(hub: Hub, ingest_id: IngestId) -> Self {
        let seen = hub.listen_to_ingest(ingest_id);
        Self { hub, ingest_id, seen, told: None, started: false, ended: false, since: Instant::now() }
    }

    /// The next message; `None` behind the end.
    pub async fn next(&mut self) -> Option<Result<IngestMessage, ApiError>> {
        if self.ended {
            return None;
        }
        if !self.started {
            self.started = true;
            return Some(Ok(IngestMessage::Start { ingest_id: self.ingest_id.to_string() }));
        }
        let next = self.change().await;
        if let Ok(IngestMessage::Final { .. }) | Err(_) = &next {
            self.ended = true;
        }
        Some(next)
    }

    /// As a `Stream`.
    pub fn into_stream(self) -> impl Stream<Item = Result<IngestMessage, ApiError>> + Send {
        stream::unfold(self, |mut this| async move { this.next().await.map(|item| (item, this)) })
    }

    async fn change(&mut self) -> Result<IngestMessage, ApiError> {
        loop {
            let seen = self.seen.borrow_and_update().clone();
            self.wait_for_projection(&seen).await?;
            if let Some(view) = self.hub.ingest(self.ingest_id).await? {
                if view.ended() {
                    return Ok(IngestMessage::Final { ingest: Box::new(view) });
                }
                if self.told.as_ref() != Some(&view) {
                    self.told = Some(view.clone());
                    return Ok(IngestMessage::Progress { ingest: Box::new(view) });
                }
            } else if self.since.elapsed() > UNKNOWN_PATIENCE {
                return Err(unknown(self.ingest_id));
            }
            let wait = if self.told.is_none() { POLL * 5 } else { LOOK_AGAIN };
            match tokio::time::timeout(wait, self.seen.changed()).await {
                Ok(Ok(())) => tokio::time::sleep(GATHER).await,
                Ok(Err(_)) => return Err(ApiError::shutting_down()),
                Err(_) => {}
            }
        }
    }

    /// Waits until the read model has what the log said, at most as long as between two looks.
    async fn wait_for_projection(&self, seen: &Seen) -> Result<(), ApiError> {
        let until = Instant::now() + LOOK_AGAIN;
        while !seen.is_empty() && Instant::now() < until {
            let projected = self.hub.projected(Topic::IngestEvents).await?;
            if seen.iter().all(|(partition, offset)| projected.get(partition).is_some_and(|next| next > offset)) {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

/// 404 for an ingest that nobody knows.
pub(crate) fn unknown(ingest_id: IngestId) -> ApiError {
    ApiError::not_found("ingest_not_found", format!("there is no ingest {ingest_id}"))
        .hint("an ingest that was just accepted shows within a second; `riverrun docs ls` lists what was taken in")
}
