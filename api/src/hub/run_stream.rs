//! One run as a stream: the same for WebSocket, server-sent events and whoever waits for the end.

use std::collections::VecDeque;
use std::time::Duration;

use futures::stream::{self, Stream};
use riverrun_schemas::RunId;
use riverrun_schemas::tokens::Attempt;
use riverrun_stores::read_models::{run_heads, runs};

use super::Hub;
use super::draft::{Draft, Piece};
use super::live::{Listener, Note};
use crate::error::ApiError;
use crate::wire::{PendingApprovalView, RunMessage, RunStatus, RunView, StepView};

/// How long a run that nobody knows is waited for: another process may have accepted it a moment ago.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(2);
/// How old an id may be whose run is on its way here. Clocks of machines may be so far apart, too.
const YOUNG_MS: i64 = 10_000;
/// How often the read model is looked at while the log says nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Why a stream ends before the run does.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StreamEnd {
    /// The reader was too slow; it may come back with `after`.
    #[error("the reader was too slow")]
    TooSlow,
    /// Something failed.
    #[error(transparent)]
    Failed(#[from] ApiError),
}

enum Phase {
    Begin,
    Live(Listener),
    Ended,
}

/// Every step behind `after` once and in order, then one end.
pub struct RunStream {
    hub: Hub,
    run_id: RunId,
    last: i64,
    tokens: bool,
    draft: Draft,
    phase: Phase,
    ready: VecDeque<RunMessage>,
}

impl RunStream {
    pub(super) fn new(hub: Hub, run_id: RunId, after: i64, tokens: bool) -> Self {
        Self {
            hub,
            run_id,
            last: after.max(0),
            tokens,
            draft: Draft::default(),
            phase: Phase::Begin,
            ready: VecDeque::new(),
        }
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// The next message; `None` behind the end. An error ends the stream.
    pub async fn next(&mut self) -> Option<Result<RunMessage, StreamEnd>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(Ok(message));
            }
            if let Err(end) = self.advance().await? {
                self.phase = Phase::Ended;
                return Some(Err(end));
            }
        }
    }

    /// As a `Stream`.
    pub fn into_stream(self) -> impl Stream<Item = Result<RunMessage, StreamEnd>> + Send {
        stream::unfold(self, |mut this| async move { this.next().await.map(|item| (item, this)) })
    }

    /// Waits for the end and gives the run with all its steps; comes back by itself when it was too slow.
    pub async fn result(self) -> Result<RunView, ApiError> {
        self.wait(false).await
    }

    /// The same, or the run as it is once it waits for a person: for who could wait for that without an end.
    pub async fn settled(self) -> Result<RunView, ApiError> {
        self.wait(true).await
    }

    async fn wait(mut self, ends_at_question: bool) -> Result<RunView, ApiError> {
        loop {
            match self.next().await {
                Some(Ok(RunMessage::Final { result, .. })) => return Ok(*result),
                Some(Ok(RunMessage::Step { step, .. }))
                    if ends_at_question && PendingApprovalView::of(&step).is_some() =>
                {
                    // It may have been answered meanwhile.
                    let run = self.hub.run(self.run_id).await?.ok_or_else(|| unknown(self.run_id))?;
                    if run.status == RunStatus::WaitingApproval {
                        return Ok(run);
                    }
                }
                Some(Ok(RunMessage::Start { .. } | RunMessage::Step { .. } | RunMessage::Token { .. })) => {}
                Some(Err(StreamEnd::Failed(error))) => return Err(error),
                Some(Err(StreamEnd::TooSlow)) => self = RunStream::new(self.hub, self.run_id, self.last, self.tokens),
                None => return Err(ApiError::internal(format!("the stream of {} ended without an end", self.run_id))),
            }
        }
    }

    /// Whether the run is there; waits a little for one that nobody knows yet. Called before anything is promised.
    pub async fn known(&self) -> Result<RunView, ApiError> {
        self.soon().await?.ok_or_else(|| unknown(self.run_id))
    }

    /// The run; one that nobody knows yet is waited for a little.
    pub(super) async fn soon(&self) -> Result<Option<RunView>, ApiError> {
        // In line before it is looked for, as in `HUB-1`: what comes in between is heard.
        let (_, mut listener, _) = self.hub.listen(self.run_id, false);
        if let Some(run) = self.hub.run(self.run_id).await? {
            return Ok(Some(run));
        }
        let _ = tokio::time::timeout(UNKNOWN_PATIENCE, listener.next()).await;
        self.hub.run(self.run_id).await
    }

    /// Fills `ready`; `None` behind the end.
    async fn advance(&mut self) -> Option<Result<(), StreamEnd>> {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Begin => Some(self.begin().await.map_err(StreamEnd::from)),
            Phase::Live(listener) => Some(self.listen(listener).await),
            Phase::Ended => None,
        }
    }

    /// `HUB-1`: first a place in the line and a copy of what is kept, then the read model.
    async fn begin(&mut self) -> Result<(), ApiError> {
        let (notes, listener, pending) = self.hub.listen(self.run_id, self.tokens);
        let row = run_heads::head(&self.hub.inner.sql, self.run_id).await?;
        if row.is_none() && notes.is_empty() && !pending {
            return Err(unknown(self.run_id));
        }
        let agent = row
            .as_ref()
            .and_then(|row| row.agent.clone())
            .or_else(|| notes.iter().find_map(|note| note.accepted()?.agent.clone()));
        self.ready.push_back(RunMessage::Start { run_id: self.run_id.to_string(), agent });
        if row.is_some() {
            self.read_steps().await?;
        }
        if row.is_some_and(|row| row.status.ended()) {
            return self.finish().await;
        }
        for note in &notes {
            if self.take(note).await? {
                return Ok(());
            }
        }
        if self.hub.is_unread(self.run_id) {
            return self.finish().await;
        }
        self.phase = Phase::Live(listener);
        Ok(())
    }

    async fn listen(&mut self, mut listener: Listener) -> Result<(), StreamEnd> {
        match tokio::time::timeout(LOOK_AGAIN, listener.next()).await {
            Ok(Some(note)) => {
                if !self.take(&note).await? {
                    self.phase = Phase::Live(listener);
                }
            }
            Ok(None) if listener.was_cut_off() => return Err(StreamEnd::TooSlow),
            Ok(None) => {
                return Err(StreamEnd::Failed(ApiError::shutting_down().about_run(self.run_id)));
            }
            Err(_) => {
                let row = run_heads::head(&self.hub.inner.sql, self.run_id).await.map_err(ApiError::from)?;
                if row.is_some() {
                    self.read_steps().await?;
                }
                if row.is_some_and(|row| row.status.ended()) || self.hub.is_unread(self.run_id) {
                    self.finish().await?;
                } else {
                    self.phase = Phase::Live(listener);
                }
            }
        }
        Ok(())
    }

    async fn read_steps(&mut self) -> Result<(), ApiError> {
        let steps = runs::steps(&self.hub.inner.sql, self.run_id, self.last).await?;
        steps.into_iter().for_each(|step| self.push(step));
        Ok(())
    }

    fn push(&mut self, step: StepView) {
        if step.seq > self.last {
            self.last = step.seq;
            self.ready.push_back(RunMessage::Step { step, truncated: false });
        }
    }

    fn hear(&mut self, seq: i64, attempt: Option<Attempt>, text: &str) {
        if seq <= self.last {
            return;
        }
        let restart = match self.draft.take(seq, attempt) {
            Piece::Next => false,
            Piece::Anew => true,
            Piece::Void => return,
        };
        self.ready.push_back(RunMessage::Token { seq, text: text.to_owned(), restart });
    }

    /// Whether this was the end.
    async fn take(&mut self, note: &Note) -> Result<bool, ApiError> {
        match note {
            Note::Accepted { .. } | Note::Claimed | Note::CancelRequested => Ok(false),
            // A question that was told already is not told again; the end has it with its answer.
            Note::Decided(..) => {
                note.answer(self.ready.iter_mut().filter_map(|message| match message {
                    RunMessage::Step { step, .. } => Some(step),
                    RunMessage::Start { .. } | RunMessage::Token { .. } | RunMessage::Final { .. } => None,
                }));
                Ok(false)
            }
            Note::Steps(steps) => {
                steps.iter().for_each(|step| self.push(step.clone()));
                Ok(false)
            }
            Note::Token { seq, attempt, text } => {
                self.hear(*seq, *attempt, text);
                Ok(false)
            }
            Note::Finished(_) => self.finish().await.map(|()| true),
        }
    }

    async fn finish(&mut self) -> Result<(), ApiError> {
        let result = self.hub.run(self.run_id).await?.ok_or_else(|| unknown(self.run_id))?;
        // Behind a gap in what the hub could read, the last steps are in the read model alone.
        for step in &result.steps {
            if step.seq > self.last {
                self.push(step.clone());
            }
        }
        self.ready.push_back(RunMessage::finale(result));
        Ok(())
    }
}

/// Whether a run of that id may have been accepted a moment ago: an id that follows from a key does not tell when.
pub(super) fn may_be_on_its_way(run_id: RunId, now_ms: i64) -> bool {
    run_id.as_uuid().get_timestamp().is_none_or(|drawn| {
        let (seconds, nanos) = drawn.to_unix();
        let drawn_ms = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000) + i64::from(nanos / 1_000_000);
        (now_ms - YOUNG_MS..now_ms + YOUNG_MS).contains(&drawn_ms)
    })
}

/// 404 for a run that nobody knows.
pub(crate) fn unknown(run_id: RunId) -> ApiError {
    ApiError::not_found("run_not_found", format!("there is no run {run_id}")).hint("riverrun runs ls")
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::now_ms;

    use super::*;

    #[test]
    fn given_ids_of_any_age_when_nobody_knows_their_runs_then_only_young_ones_and_those_of_keys_may_come_yet() {
        let (now, drawn) = (now_ms(), RunId::new());
        for (id, at, may_come) in [
            (drawn, now, true),
            (drawn, now + YOUNG_MS * 2, false),
            (drawn, now - YOUNG_MS * 2, false),
            ("run_01h455vb4pex5vsknk084sn02q".parse().unwrap(), now, false),
            ("run_7zzzzzzzzzzzzzzzzzzzzzzzzz".parse().unwrap(), now, true),
            (RunId::derive(&["idempotency-key", "default", "k"]), now, true),
        ] {
            assert_eq!(may_be_on_its_way(id, at), may_come, "{id}");
        }
    }
}
