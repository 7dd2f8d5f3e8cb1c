//! Accepting commands: what each becomes on the log. Their events are acknowledged before their offsets are committed.

use std::collections::HashSet;

use riverrun_agents::decide::{Ending, Failed};
use riverrun_log::{DeadLetter, GroupConsumer, LogError, Outgoing, Position, Record};
use riverrun_schemas::agent::{
    AgentCommand, AgentEvent, ForkRun, RunAccepted, RunApprovalDecided, RunCancelRequested, RunOutcome, RunRequest,
    RunResumed, SessionPolicy, StartRun,
};
use riverrun_schemas::{Decoded, Failure, RunId, Topic, now_ms};
use tokio_util::sync::CancellationToken;

use super::sessions::SessionKey;
use super::{COMPONENT, Coordinator, GROUP, RETRY_PAUSE, ending, forks, refused};

/// What a batch of commands becomes.
#[derive(Default)]
struct Accepting {
    outgoing: Vec<Outgoing>,
    /// For each of `outgoing`: the run that it opens.
    opens: Vec<Option<RunId>>,
    runs: HashSet<RunId>,
}

impl Accepting {
    fn write(&mut self, event: impl Into<AgentEvent>, cause: &Record) -> Result<(), LogError> {
        let event = event.into();
        let opens = matches!(event, AgentEvent::RunAccepted(_)).then(|| event.run_id());
        self.outgoing.push(Outgoing::caused_by(&event, COMPONENT, &cause.envelope())?.to_partition(cause.partition));
        self.opens.push(opens);
        Ok(())
    }

    fn bury(&mut self, letter: Outgoing) {
        self.outgoing.push(letter);
        self.opens.push(None);
    }

    /// Drops what a command that can't be accepted has led to behind the first `count` records.
    fn back_to(&mut self, count: usize) {
        self.outgoing.truncate(count);
        self.opens.truncate(count);
    }
}

impl Coordinator {
    pub(super) async fn on_commands(
        &mut self,
        group: &GroupConsumer,
        batch: Vec<Record>,
        stop: &CancellationToken,
    ) -> Result<(), LogError> {
        let mut accepting = Accepting::default();
        for record in &batch {
            if !self.partitions.contains_key(&record.partition) {
                continue;
            }
            let before = accepting.outgoing.len();
            // What it would become does not fit on the log.
            if let Err(error) = self.accept(&mut accepting, record).await {
                tracing::warn!(position = %record.position(), error = %error, "command can't be accepted; it goes to the dead letters");
                accepting.back_to(before);
                self.bury(&mut accepting, record, &error);
            }
        }
        let Accepting { outgoing, opens, .. } = accepting;
        let positions = self.write(outgoing, stop).await?;
        for (position, opens) in positions.iter().zip(opens) {
            if *position.topic == *Topic::AgentEvents.name()
                && let Some(state) = self.partitions.get_mut(&position.partition)
            {
                state.wrote(position.offset, opens);
            }
        }
        for record in &batch {
            if let Some(state) = self.partitions.get_mut(&record.partition) {
                state.next_command = state.next_command.max(record.offset + 1);
                state.note_due = true;
                self.progress.position(&record.topic_partition(), state.next_command);
            }
        }
        self.progress.handled(batch.len() as u64);
        self.write_notes(group)
    }

    /// The dead letter of a command that was read, and the end of the run that it was to open.
    fn bury(&mut self, accepting: &mut Accepting, record: &Record, error: &LogError) {
        self.progress.dead_letter();
        accepting.bury(DeadLetter::of(record, GROUP, error.code(), &error.to_string(), 1));
        let Ok(Decoded::Event(command)) = self.config.schemas.decode::<AgentCommand>(record) else { return };
        let run_id = command.run_id();
        let Some(state) = self.partitions.get_mut(&record.partition).filter(|state| !state.is_open(&run_id)) else {
            return;
        };
        state.sessions.forget(&run_id);
        let Some(accepted) = refused::acceptance(&command).filter(|_| !state.knows(&run_id)) else { return };
        let failure = Failure::new(error.code(), format!("the run can't be accepted: {error}"))
            .with_hint("start a smaller one; riverrun dlq ls has the command as it was");
        let ended = ending::without_state(run_id, 0, Failed(failure).into());
        let (before, at) = (accepting.outgoing.len(), record.position());
        let told = accepting.write(accepted, record).and_then(|()| accepting.write(ended, record));
        if let Err(error) = told {
            tracing::error!(position = %at, run_id = %run_id, error = %error, "a run that can't be accepted can't be ended either");
            accepting.back_to(before);
        }
    }

    async fn accept(&mut self, accepting: &mut Accepting, record: &Record) -> Result<(), LogError> {
        let command = match self.config.schemas.decode::<AgentCommand>(record) {
            Ok(Decoded::Event(command)) => command,
            Ok(Decoded::UnknownType { record: name }) => {
                self.progress.dead_letter();
                let reason = format!("this version knows no {name}");
                accepting.bury(DeadLetter::of(record, GROUP, "unknown_event_type", &reason, 1));
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(position = %record.position(), error = %error, "command can't be read; it goes to the dead letters");
                self.progress.dead_letter();
                accepting.bury(DeadLetter::of(record, GROUP, error.code(), &error.to_string(), 1));
                return Ok(());
            }
        };
        match command {
            AgentCommand::StartRun(command) => self.accept_start(accepting, record, command),
            AgentCommand::ForkRun(command) => self.accept_fork(accepting, record, command).await,
            AgentCommand::CancelRun(c) => {
                let event = RunCancelRequested { run_id: c.run_id, reason: c.reason, at: c.at };
                self.accept_word(accepting, record, event.into(), "nothing to cancel")
            }
            AgentCommand::DecideApproval(c) => {
                let event =
                    RunApprovalDecided { run_id: c.run_id, step: c.step, decision: c.decision, note: c.note, at: c.at };
                self.accept_word(accepting, record, event.into(), "nothing to decide")
            }
            AgentCommand::ResumeRun(c) => {
                let event = RunResumed { run_id: c.run_id, at: c.at };
                self.accept_word(accepting, record, event.into(), "nothing to resume")
            }
        }
    }

    /// A word to a run that is open.
    fn accept_word(
        &self,
        accepting: &mut Accepting,
        record: &Record,
        event: AgentEvent,
        otherwise: &str,
    ) -> Result<(), LogError> {
        let run_id = event.run_id();
        let open = self.partitions.get(&record.partition).is_some_and(|state| state.is_open(&run_id));
        if !open && !accepting.runs.contains(&run_id) {
            tracing::info!(run_id = %run_id, "run is not open; {otherwise}");
            return Ok(());
        }
        accepting.write(event, record)
    }

    /// Whether the run is there already; remembers it otherwise.
    fn is_copy(&self, accepting: &mut Accepting, record: &Record, run_id: RunId) -> bool {
        let known = self.partitions.get(&record.partition).is_some_and(|state| state.knows(&run_id));
        if known || !accepting.runs.insert(run_id) {
            tracing::info!(run_id = %run_id, "run is known; the command came twice");
            return true;
        }
        false
    }

    fn accept_start(&mut self, accepting: &mut Accepting, record: &Record, command: StartRun) -> Result<(), LogError> {
        let run_id = command.run_id;
        if self.is_copy(accepting, record, run_id) {
            return Ok(());
        }
        let request = self.with_defaults(command.request);
        let ahead = self.ahead_in_session(record.partition, run_id, &request);
        if let (SessionPolicy::Interrupt, false) = (request.session_policy, ahead.is_empty()) {
            for other in &ahead {
                let reason = Some(format!("run {run_id} of the same session took over"));
                accepting.write(RunCancelRequested { run_id: *other, reason, at: now_ms() }, record)?;
            }
        }
        let busy = ahead.first().filter(|_| request.session_policy == SessionPolicy::Reject).copied();
        accepting.write(RunAccepted { run_id, request, forked_from: None, at: now_ms() }, record)?;
        match busy {
            Some(other) => accepting.write(ending::without_state(run_id, 0, session_busy(other)), record),
            None => Ok(()),
        }
    }

    /// The open runs that stand before this one in its session; it is put behind them. One that waits for others comes into its
    /// session when they have answered.
    fn ahead_in_session(&mut self, partition: i32, run_id: RunId, request: &RunRequest) -> Vec<RunId> {
        if !request.after.is_empty() {
            return Vec::new();
        }
        match (SessionKey::of(request), self.partitions.get_mut(&partition)) {
            (Some(session), Some(state)) => state.sessions.join(session, run_id),
            _ => Vec::new(),
        }
    }

    async fn accept_fork(
        &mut self,
        accepting: &mut Accepting,
        record: &Record,
        command: ForkRun,
    ) -> Result<(), LogError> {
        let run_id = command.run_id;
        let copied = self.partitions.get(&record.partition).and_then(|state| state.copied_steps(&run_id));
        if copied.is_none() && self.is_copy(accepting, record, run_id) {
            return Ok(());
        }
        let steps = forks::steps(self.context.blobs.as_ref(), &command).await;
        if copied.is_none() {
            let request = self.with_defaults(command.request);
            self.ahead_in_session(record.partition, run_id, &request);
            let forked_from = Some(command.forked_from.clone());
            accepting.write(RunAccepted { run_id, request, forked_from, at: now_ms() }, record)?;
        }
        match steps {
            // A crash may have cut the copying short: it goes on where it stopped.
            Ok(steps) => {
                for event in forks::copies(run_id, steps, copied.unwrap_or(0)) {
                    if let Err(error) = accepting.write(event, record) {
                        let failure = Failure::new(error.code(), error.to_string());
                        return accepting.write(ending::without_state(run_id, 0, Failed(failure).into()), record);
                    }
                }
                Ok(())
            }
            Err(failure) => accepting.write(ending::without_state(run_id, 0, Failed(failure).into()), record),
        }
    }

    fn with_defaults(&self, request: RunRequest) -> RunRequest {
        // Written down, so that a run that goes on tomorrow goes on with the same model, and is traced and accounted under the one that
        // answers. Where nobody would answer it stays as it was asked for: the run's first call says what is wrong with it.
        let answering = self.context.models.who_chats(request.provider.as_deref(), request.model.as_deref());
        let (provider, model) = match answering {
            Ok((provider, model)) => (Some(provider), Some(model)),
            Err(_) => (request.provider, request.model),
        };
        RunRequest {
            max_iters: request.max_iters.or(Some(self.config.default_max_iters)),
            temperature: request.temperature.or(Some(self.config.default_temperature)),
            provider,
            model,
            ..request
        }
    }

    async fn write(&self, outgoing: Vec<Outgoing>, stop: &CancellationToken) -> Result<Vec<Position>, LogError> {
        if outgoing.is_empty() {
            return Ok(Vec::new());
        }
        loop {
            match self.context.producer.send_many(outgoing.clone()).await {
                Ok(positions) => return Ok(positions),
                Err(error) if error.retryable() && !stop.is_cancelled() => {
                    tracing::warn!(error = %error, "can't accept commands, trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn session_busy(other: RunId) -> Ending {
    let failure = Failure::new("session_busy", format!("run {other} of the same session goes on")).with_hint(format!(
        "wait for it, cancel it (riverrun runs cancel {other}), or ask with session_policy enqueue"
    ));
    Ending { status: RunOutcome::Failed, stop_reason: "session_busy", answer: None, error: Some(failure) }
}
