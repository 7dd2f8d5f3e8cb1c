//! Writes the running summary of a conversation when its turns overflow the window.
//!
//! The summary is an event as any other: it counts from when it is read back. Until then no other one is asked for, so that
//! turns that come meanwhile cost nothing. A conversation whose summary was forgotten gets a new one from the turns that
//! are left.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_agents::memory::{
    Basis, MemoryModels, SessionFold, Summarize, Window, charged_to, clean, plan, room_for_turns, summary_request,
};
use riverrun_log::{AssignedPartition, Outgoing, StartAt, TopicPartition};
use riverrun_schemas::memory::{MemoryEvent, SummaryWritten};
use riverrun_schemas::{Session, SummaryId, now_ms};

use super::model_error;
use super::sessions::Sessions;
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};

const NAME: &str = "memory-summary";
/// Conversations at a time: a local chat model answers one after the other anyway.
const PARALLEL: usize = 4;
const MAX_BATCH: usize = 64;
/// Summaries on their way that are remembered; those beyond are asked for again, which is more work but never wrong.
const MAX_PENDING: usize = 10_000;

/// Writes summaries.
pub struct Summarizer {
    models: Arc<dyn MemoryModels>,
    window: Window,
    sessions: Sessions,
    pending: Mutex<HashMap<Session, Pending>>,
}

/// A summary that was written and not read back yet.
#[derive(Clone, Copy)]
struct Pending {
    summary_id: SummaryId,
    /// Offset of the event that led to it: that one, delivered again, gives the same summary.
    trigger: i64,
}

impl Summarizer {
    /// With these models, for a window of so many tokens.
    pub fn new(models: Arc<dyn MemoryModels>, window_tokens: usize) -> Self {
        Self { models, window: Window::new(window_tokens), sessions: Sessions::default(), pending: Mutex::default() }
    }

    /// Whether a summary of the conversation is on its way.
    fn waits(&self, session: &Session, batch: &[Delivery<MemoryEvent>]) -> bool {
        let mut pending = self.pending.lock();
        let Some(one) = pending.get(session).copied() else { return false };
        let read_back = |delivery: &Delivery<MemoryEvent>| match &delivery.event {
            MemoryEvent::SummaryWritten(written) => written.summary_id == one.summary_id,
            MemoryEvent::TurnRecorded(_)
            | MemoryEvent::EpisodeRemembered(_)
            | MemoryEvent::NoteWritten(_)
            | MemoryEvent::MemoryForgotten(_) => false,
        };
        let again = batch.iter().any(|delivery| delivery.position.offset <= one.trigger);
        if again || batch.iter().any(read_back) {
            pending.remove(session);
            return false;
        }
        true
    }

    /// The summary that is due, if one is.
    async fn due(&self, session: &Session, basis: Basis) -> Option<Summarize> {
        let mut tokens = Vec::with_capacity(basis.open.len());
        for turn in &basis.open {
            tokens.push(self.models.count_tokens(&turn.text).await);
        }
        if self.window.overflow(&tokens) == 0 {
            return None; // the model is not asked for its size for nothing
        }
        let context = self.models.context_tokens().await;
        let most = context.map_or(usize::MAX, |context| room_for_turns(&basis, context, self.window));
        plan(session, basis, &tokens, self.window, most)
    }

    async fn write(&self, session: &Session, due: &Summarize) -> Result<SummaryWritten, WorkError> {
        let most = u32::try_from(self.window.summary_tokens()).unwrap_or(u32::MAX);
        let written = charged_to(&self.models, session).write(summary_request(due), most.max(1)).await;
        let written = written.map_err(|error| model_error(&error))?;
        let text = clean(&written.text).ok_or_else(|| {
            WorkError::retry("empty_summary", format!("model {} wrote no summary of {session}", written.model))
        })?;
        Ok(SummaryWritten {
            namespace: session.namespace.clone(),
            session: session.name.clone(),
            summary_id: due.summary_id,
            through_seq: due.through_seq,
            previous: due.previous,
            turn_ids: due.turn_ids(),
            text,
            model: written.model,
            at: now_ms(),
        })
    }
}

#[async_trait]
impl Worker for Summarizer {
    type Input = MemoryEvent;

    fn name(&self) -> &'static str {
        NAME
    }

    /// The projector does.
    fn answers_for_topic(&self) -> bool {
        false
    }

    fn lanes(&self) -> Lanes {
        Lanes::PerKey { parallel: PARALLEL, max_batch: MAX_BATCH }
    }

    async fn handle(&self, batch: &[Delivery<MemoryEvent>], context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let Some(last) = batch.last() else { return Ok(Vec::new()) };
        let session = last.event.session();
        let basis = self.sessions.with(&session, batch, context, SessionFold::basis).await?;
        if self.waits(&session, batch) {
            return Ok(Vec::new());
        }
        let Some(due) = self.due(&session, basis).await else { return Ok(Vec::new()) };
        let written = self.write(&session, &due).await?;
        tracing::info!(%session, through_seq = due.through_seq, turns = due.turns.len(), "conversation summarized");
        let mut pending = self.pending.lock();
        if pending.len() >= MAX_PENDING {
            pending.clear();
        }
        pending.insert(session, Pending { summary_id: due.summary_id, trigger: last.position.offset });
        Ok(vec![self.outgoing(MemoryEvent::from(written), &last.envelope)?])
    }

    async fn assigned(
        &self,
        partitions: &[AssignedPartition],
        _context: &Context,
    ) -> Result<Vec<(TopicPartition, StartAt)>, WorkError> {
        Ok(self.sessions.assigned(partitions, false))
    }

    async fn revoked(&self, partitions: &[TopicPartition]) {
        self.sessions.revoked(partitions);
        self.pending.lock().clear();
    }
}
