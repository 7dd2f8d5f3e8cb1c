//! Drives one run from where its events stand to its end.
//!
//! The driver takes no shortcut past the log: it appends an event, reads it back through the partition's tail, and goes
//! on only if the event counted. A driver that lost its run to another worker therefore learns it from the log itself,
//! before it does anything that could be seen outside. A run that waits for a person has no driver: it lets go, and the
//! coordinator starts another, with a claim of its own, when the answer is on the log.

use std::sync::Arc;
use std::time::Duration;

use riverrun_agents::tools::ToolManifest;
use riverrun_agents::{Action, ModelCall, ModelMode, RunState, decide};
use riverrun_log::{LogError, Position};
use riverrun_models::{ChatReply, ChatRequest, ModelError};
use riverrun_schemas::agent::{AgentEvent, RunAdvanced, RunClaimed, Step};
use riverrun_schemas::tokens::Attempt;
use riverrun_schemas::{Failure, TurnId, Usage, now_ms};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::clock::RunClock;
use super::context::AgentContext;
use super::heard::Heard;
use super::places::Turn;
use super::ready::ReadyRun;
use super::room::{Fit, Meter};
use super::tokens::TokenStream;
use super::{ending, retries};
use crate::failures::model_failure;

mod beginning;

/// An event of the run as it lies on the log.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) offset: i64,
    pub(super) event: AgentEvent,
}

/// Why a driver let go of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The run has its terminal event.
    Ended,
    /// Another worker holds it now.
    Fenced,
    /// Nothing can be done until a person answers.
    Waiting,
    /// The process is stopping or the partition went elsewhere; the run goes on later.
    Stopped,
}

/// How long the log may be away before each next attempt to append.
const APPEND_PAUSE: Duration = Duration::from_millis(500);

/// What a driver leaves behind.
pub(super) struct Released {
    pub(super) left: Left,
    /// The run, when it waits.
    pub(super) rests: Option<ReadyRun>,
}

pub(super) struct Driver {
    pub(super) context: Arc<AgentContext>,
    pub(super) state: RunState,
    clock: RunClock,
    partition: i32,
    pub(super) accepted_offset: i64,
    /// Offset behind the last event in the fold.
    pub(super) next_offset: i64,
    /// The last step that a snapshot holds, or that one was tried at.
    pub(super) snapshot_seq: i64,
    /// Texts that models began to write here.
    texts: u32,
    pub(super) meter: Meter,
    /// What calls used that failed: the next step, or the end, carries it.
    pub(super) failed: Usage,
    inbox: mpsc::UnboundedReceiver<Seen>,
    stop: CancellationToken,
    /// How the run is to end without having begun: a run that it waited for gave no answer.
    ends: Option<decide::Ending>,
    /// The last turn of the run before it in its conversation.
    pub(super) behind: Option<TurnId>,
}

/// What interrupts an action.
pub(super) enum Interrupted {
    /// The state changed in a way that makes the action pointless: decide again.
    Overtaken,
    /// Let go of the run.
    Left(Left),
}

impl Driver {
    pub(super) fn new(context: Arc<AgentContext>, run: ReadyRun, partition: i32, stop: CancellationToken) -> Self {
        let ReadyRun { state, accepted_offset, next_offset, inbox, ends, behind } = run;
        let snapshot_seq = state.last_seq();
        Self {
            context,
            state,
            clock: RunClock::start(),
            partition,
            accepted_offset,
            next_offset,
            snapshot_seq,
            texts: 0,
            meter: Meter::default(),
            failed: Usage::default(),
            inbox,
            stop,
            ends,
            behind,
        }
    }

    pub(super) async fn run(mut self, turn: Turn) -> Released {
        let left = match self.drive(turn).await {
            Ok(left) | Err(Interrupted::Left(left)) => left,
            Err(Interrupted::Overtaken) => Left::Fenced, // `drive` handles this one itself; nothing is lost by letting go
        };
        let Self { state, accepted_offset, next_offset, inbox, .. } = self;
        let rests = (left == Left::Waiting).then_some(ReadyRun {
            state,
            accepted_offset,
            next_offset,
            inbox,
            ends: None,
            behind: None,
        });
        Released { left, rests }
    }

    async fn drive(&mut self, turn: Turn) -> Result<Left, Interrupted> {
        let mut place = self.wait_for(turn).await?;
        self.claim().await?;
        if let Some(ending) = self.ends.take().or_else(|| decide::worker_lost(&self.state)) {
            self.finish(ending).await?;
            return Ok(self.left().unwrap_or(Left::Stopped));
        }
        self.prepare_tools().await?;
        loop {
            match self.advance().await {
                Ok(()) | Err(Interrupted::Overtaken) => {}
                Err(left) => return Err(left),
            }
            self.catch_up();
            if let Some(left) = self.left() {
                return Ok(left);
            }
            if let (Some(place), false) = (&mut place, decide::is_suspect(&self.state)) {
                place.clear();
            }
        }
    }

    fn mine(&self) -> bool {
        self.state.owner() == Some(self.context.worker.as_str())
    }

    /// Why there is nothing left to do here, if so. Only meaningful after a claim was made.
    pub(super) fn left(&self) -> Option<Left> {
        if self.state.finished.is_some() {
            Some(Left::Ended)
        } else if !self.mine() {
            Some(Left::Fenced)
        } else if self.stop.is_cancelled() {
            Some(Left::Stopped)
        } else {
            None
        }
    }

    /// Folds an event that the tail has brought.
    fn take(&mut self, seen: &Seen) {
        self.state.apply(&seen.event);
        self.next_offset = seen.offset + 1;
    }

    /// Takes in what the tail has brought so far.
    fn catch_up(&mut self) {
        while let Ok(seen) = self.inbox.try_recv() {
            self.take(&seen);
        }
    }

    async fn claim(&mut self) -> Result<(), Interrupted> {
        self.catch_up();
        if self.state.finished.is_some() {
            return Err(Interrupted::Left(Left::Ended));
        }
        let claim = RunClaimed {
            run_id: self.state.run_id,
            epoch: self.state.epoch() + 1,
            worker: self.context.worker.clone(),
            at: now_ms(),
        };
        self.append(claim.into()).await?;
        match self.left() {
            None => Ok(()),
            Some(left) => Err(Interrupted::Left(left)),
        }
    }

    async fn advance(&mut self) -> Result<(), Interrupted> {
        let tools =
            match self.context.toolbox.select(&self.state.request.namespace, self.state.request.tools.as_deref()) {
                Ok(tools) => tools,
                // They may not have been got ready.
                Err(_) if self.must_end() => Vec::new(),
                Err(unknown) => return self.fail(Failure::new("unknown_tool", unknown.to_string())).await,
            };
        match decide::next(&self.state, &tools, self.clock.now_ms()) {
            Action::Append(drafts) => self.append_decided(drafts, &tools).await,
            Action::CallModel(call) => self.call_model(call, &tools).await,
            Action::Route => self.route().await,
            Action::CallTool(call) => self.call_tool(call).await,
            Action::Wait => Err(Interrupted::Left(Left::Waiting)),
            Action::Finish(ending) => self.finish(ending).await,
        }
    }

    async fn call_model(&mut self, mut call: ModelCall, tools: &[ToolManifest]) -> Result<(), Interrupted> {
        match self.fit(&call, tools).await? {
            Fit::Whole => {}
            Fit::Without(step) => return self.append_steps(vec![*step]).await,
            Fit::Never(failure) => return self.fail(failure).await,
        }
        let reply = match self.ask(&mut call).await? {
            Ok(reply) => reply,
            Err(error) => {
                return match self.fit_refused(&call, tools, &error).await? {
                    Fit::Without(step) => self.append_steps(vec![*step]).await,
                    Fit::Whole => self.fail(model_failure(&error)).await,
                    Fit::Never(failure) => self.fail(failure).await,
                };
            }
        };
        self.meter.learn(reply.usage.prompt_tokens);
        let usage = self.usage_of(&reply);
        let reply = decide::Reply::of(reply.text, usage, reply.finish);
        match self.state.agent().map(decide::agent) {
            Some(Ok(agent)) => self.append_decided(agent.interpret(&self.state, tools, call.mode, &reply), tools).await,
            Some(Err(unknown)) => self.fail(Failure::new("unknown_agent", unknown.to_string())).await,
            None => Ok(()), // not routed yet: the next decision routes
        }
    }

    /// Asks the model, once more where that may help: behind a pause where the trouble may pass, and without a schema that is
    /// refused.
    pub(super) async fn ask(&mut self, call: &mut ModelCall) -> Result<Result<ChatReply, ModelError>, Interrupted> {
        let mut attempt = 0;
        loop {
            match self.try_model(call).await? {
                Ok(reply) => return Ok(Ok(reply)),
                // Tools of users bring schemas that not every runtime can hold a reply to: then the model is asked without.
                Err(ModelError::BadRequest { reason, .. }) if call.response_schema.is_some() => {
                    tracing::warn!(run_id = %self.state.run_id, reason, "a call with a schema was refused, trying without it");
                    call.response_schema = None;
                }
                Err(error) => {
                    let Some(pause) = retries::pause(&error, attempt) else { return Ok(Err(error)) };
                    attempt += 1;
                    tracing::warn!(run_id = %self.state.run_id, attempt, ?pause, error = %error, "model call failed, trying again");
                    self.pause(pause).await?;
                }
            }
        }
    }

    /// What the model is asked for a call.
    pub(super) fn request_of(&self, call: &ModelCall) -> ChatRequest {
        ChatRequest {
            model: self.state.request.model.clone().unwrap_or_default(),
            messages: call.messages.clone(),
            response_schema: call.response_schema.clone(),
            temperature: call.mode.temperature().or(self.state.request.temperature.map(|t| t as f32)),
            max_tokens: Some(call.max_tokens),
            ..ChatRequest::default()
        }
    }

    /// One model call, given up when the run is cancelled, lost, out of time or the process stops.
    async fn try_model(&mut self, call: &ModelCall) -> Result<Result<ChatReply, ModelError>, Interrupted> {
        let request = self.request_of(call);
        let context = self.context.clone();
        let provider = self.state.request.provider.clone();
        let cancel = CancellationToken::new();
        let mut heard = Heard::new((call.mode == ModelMode::Answer).then(|| self.begin_text()));
        let finished = {
            let chat = context.models.chat(provider.as_deref(), request, &mut heard, cancel.clone());
            tokio::pin!(chat);
            tokio::select! {
                reply = &mut chat => Ok(reply),
                interrupted = self.interruption() => Err(interrupted),
            }
        };
        let interrupted = match finished {
            Ok(reply) => {
                let used = self.priced(heard.finish().await);
                if reply.is_err() {
                    self.failed += used;
                }
                return Ok(reply);
            }
            Err(interrupted) => interrupted,
        };
        // Dropping the call closes a connection at once; the in-process runtime stops at its next token.
        cancel.cancel();
        let used = self.priced(heard.given_up());
        self.failed += used;
        Err(interrupted)
    }

    fn begin_text(&mut self) -> TokenStream {
        self.texts = self.texts.saturating_add(1);
        let attempt = Attempt { epoch: self.state.epoch(), text: self.texts };
        TokenStream::start(self.context.producer.clone(), self.state.run_id, self.state.last_seq() + 1, attempt)
    }

    /// Waits for something that makes the present action pointless.
    pub(super) async fn interruption(&mut self) -> Interrupted {
        let out_of_time = self.time_left();
        tokio::pin!(out_of_time);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Interrupted::Left(Left::Stopped),
                () = &mut out_of_time => return Interrupted::Overtaken,
                seen = self.inbox.recv() => {
                    let Some(seen) = seen else { return Interrupted::Left(Left::Stopped) };
                    self.take(&seen);
                    if let Some(left) = self.left() {
                        return Interrupted::Left(left);
                    }
                    if self.state.cancel_requested.is_some() {
                        return Interrupted::Overtaken;
                    }
                }
            }
        }
    }

    /// Ends when the run's budget in seconds does; never, without one.
    fn time_left(&self) -> impl Future<Output = ()> + use<> {
        let left = self.state.request.budget_seconds.map(|seconds| {
            let left = seconds.saturating_mul(1_000).saturating_sub(self.state.spent_ms(self.clock.now_ms()));
            Duration::from_millis(u64::try_from(left).unwrap_or(0))
        });
        async move {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits before another try. A run that is asked to look again waits no longer.
    async fn pause(&mut self, time: Duration) -> Result<(), Interrupted> {
        let over = tokio::time::sleep(time);
        let out_of_time = self.time_left();
        tokio::pin!(over, out_of_time);
        loop {
            let seen = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Interrupted::Left(Left::Stopped)),
                () = &mut out_of_time => return Err(Interrupted::Overtaken),
                () = &mut over => return Ok(()),
                seen = self.inbox.recv() => seen,
            };
            let Some(seen) = seen else { return Err(Interrupted::Left(Left::Stopped)) };
            self.take(&seen);
            if let Some(left) = self.left() {
                return Err(Interrupted::Left(left));
            }
            if self.state.cancel_requested.is_some() {
                return Err(Interrupted::Overtaken);
            }
            if matches!(seen.event, AgentEvent::RunResumed(_)) {
                return Ok(());
            }
        }
    }

    pub(super) async fn fail(&mut self, failure: Failure) -> Result<(), Interrupted> {
        self.finish(decide::Failed(failure).into()).await
    }

    async fn finish(&mut self, ending: decide::Ending) -> Result<(), Interrupted> {
        let mut finished = ending::of(&self.state, ending);
        finished.usage += self.failed;
        tracing::info!(run_id = %finished.run_id, status = ?finished.status, stop_reason = finished.stop_reason, "run finished");
        self.append(finished.into()).await
    }

    /// Appends what an agent type decided, with what the policy says of the calls in it.
    async fn append_decided(
        &mut self,
        drafts: Vec<decide::StepDraft>,
        tools: &[ToolManifest],
    ) -> Result<(), Interrupted> {
        let drafts = decide::settle(&self.state, tools, &self.context.policy, drafts);
        self.append_steps(drafts).await
    }

    pub(super) async fn append_steps(&mut self, drafts: Vec<decide::StepDraft>) -> Result<(), Interrupted> {
        let agent = self.state.agent().unwrap_or("supervisor").to_owned();
        let first = self.state.last_seq() + 1;
        let steps: Vec<Step> =
            drafts.into_iter().zip(first..).map(|(draft, seq)| draft.number(seq, &agent, now_ms())).collect();
        for step in &steps {
            tracing::info!(run_id = %self.state.run_id, seq = step.seq, kind = ?step.kind, agent = step.agent, "step");
        }
        self.append(RunAdvanced { run_id: self.state.run_id, epoch: self.state.epoch(), steps }.into()).await?;
        self.snapshot_when_due().await
    }

    /// Appends an event and reads it back.
    pub(super) async fn append(&mut self, event: AgentEvent) -> Result<(), Interrupted> {
        let at = loop {
            match self.context.producer.send_to_partition(&event, self.partition, super::COMPONENT, None).await {
                Ok(position) => break position,
                Err(error @ (LogError::TooLarge { .. } | LogError::Encode(_))) => {
                    // An event that can't be written must not stop the run for ever: end it with what is wrong.
                    return self.end_unwritable(&error).await;
                }
                Err(error) => {
                    tracing::warn!(run_id = %self.state.run_id, error = %error, "can't append, trying again");
                    tokio::select! {
                        () = self.stop.cancelled() => return Err(Interrupted::Left(Left::Stopped)),
                        () = tokio::time::sleep(APPEND_PAUSE) => {}
                    }
                }
            }
        };
        self.read_back(&at).await
    }

    async fn end_unwritable(&mut self, error: &LogError) -> Result<(), Interrupted> {
        let failure = Failure::new(error.code(), error.to_string());
        let finished = ending::of(&self.state, decide::Failed(failure).into());
        match self
            .context
            .producer
            .send_to_partition(&AgentEvent::from(finished), self.partition, super::COMPONENT, None)
            .await
        {
            Ok(at) => self.read_back(&at).await,
            Err(error) => {
                tracing::error!(run_id = %self.state.run_id, error = %error, "can't end a run whose event can't be written");
                Err(Interrupted::Left(Left::Stopped))
            }
        }
    }

    async fn read_back(&mut self, at: &Position) -> Result<(), Interrupted> {
        loop {
            let seen = tokio::select! {
                biased;
                () = self.stop.cancelled() => None,
                seen = self.inbox.recv() => seen,
            };
            let Some(seen) = seen else { return Err(Interrupted::Left(Left::Stopped)) };
            self.take(&seen);
            if seen.offset >= at.offset {
                return Ok(());
            }
        }
    }
}
