//! Puts runs into the conversations that they belong to: when a run has ended, its task and its answer are turns.
//!
//! Their ids follow from the run's, so that whatever comes twice is one turn. A run that failed or was cancelled leaves its
//! task without an answer.

use std::collections::{HashMap, VecDeque};

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_agents::memory::{MAX_TURN_BYTES, shorten_bytes};
use riverrun_log::{AssignedPartition, LogError, Outgoing, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{AgentEvent, RunAccepted, RunFinished};
use riverrun_schemas::memory::{MemoryEvent, TurnRecorded, TurnRole, run_turn_id};
use riverrun_schemas::{Decoded, RunId, Session, Topic};
use riverrun_stores::{RunGate, Verdict};

use super::log_error;
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};

const NAME: &str = "memory-runs";
const PARALLEL: usize = 8;
const MAX_BATCH: usize = 256;
/// Runs that have ended and are still remembered, so that an end that is delivered again gives the same turns.
const MAX_ENDED: usize = 4_096;

/// Records runs as turns.
#[derive(Default)]
pub struct RunRecorder {
    partitions: Mutex<HashMap<i32, Runs>>,
}

/// The runs of a partition.
#[derive(Default)]
struct Runs {
    /// Everything from here on was handed in.
    start: i64,
    /// What lies before was read.
    read: bool,
    known: HashMap<RunId, Run>,
    ended: VecDeque<RunId>,
}

/// A run that was accepted.
struct Run {
    /// `None` for one of no conversation.
    said: Option<(Session, String)>,
    gate: RunGate,
    /// Offset of the end that counts.
    ended_at: Option<i64>,
}

impl Run {
    fn accepted(event: &RunAccepted) -> Self {
        let request = &event.request;
        let name = request.session.as_deref().and_then(|name| name.parse().ok());
        let said = name.map(|name| (Session::new(request.namespace.clone(), name), request.task.clone()));
        Self { said, gate: RunGate::default(), ended_at: None }
    }
}

impl Runs {
    /// Takes an event; gives the run when this is the end of it that counts, at its first delivery and at later ones.
    fn apply(&mut self, event: &AgentEvent, offset: i64) -> Option<&Run> {
        if let AgentEvent::RunAccepted(accepted) = event {
            self.known.entry(accepted.run_id).or_insert_with(|| Run::accepted(accepted));
        }
        let run_id = event.run_id();
        let run = self.known.get_mut(&run_id)?;
        let admitted = run.gate.admit(event) == Verdict::Admitted;
        if admitted && run.gate.ended {
            run.ended_at = Some(offset);
            self.ended.push_back(run_id);
        }
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.get(&run_id).filter(|run| run.ended_at == Some(offset))
    }

    /// Takes what lay on the log before the partition came; runs that had ended are let go of.
    fn take_history(&mut self, before: Runs) {
        for (run_id, run) in before.known.into_iter().filter(|(_, run)| run.ended_at.is_none()) {
            self.known.entry(run_id).or_insert(run);
        }
        self.read = true;
    }
}

impl RunRecorder {
    /// Takes a batch of one run; gives what the run said when its end is in it, and where.
    fn apply(&self, batch: &[Delivery<AgentEvent>]) -> Vec<(Session, String, RunFinished, usize)> {
        let mut partitions = self.partitions.lock();
        let mut said = Vec::new();
        for (index, delivery) in batch.iter().enumerate() {
            let runs = partitions.entry(delivery.position.partition).or_default();
            let Some(run) = runs.apply(&delivery.event, delivery.position.offset) else { continue };
            if let (AgentEvent::RunFinished(end), Some((session, task))) = (&delivery.event, &run.said) {
                said.push((session.clone(), task.clone(), end.clone(), index));
            }
        }
        said
    }

    /// Reads what lies before the partition's start, once, when an event of a run comes whose acceptance was not handed in.
    async fn know(&self, batch: &[Delivery<AgentEvent>], context: &Context) -> Result<(), WorkError> {
        let Some(first) = batch.first() else { return Ok(()) };
        let (number, run_id) = (first.position.partition, first.event.run_id());
        let start = {
            let mut partitions = self.partitions.lock();
            let runs = partitions.entry(number).or_default();
            let is_new = matches!(first.event, AgentEvent::RunAccepted(_));
            if is_new || runs.read || runs.start == 0 || runs.known.contains_key(&run_id) {
                return Ok(());
            }
            runs.start
        };
        let history = history(number, start, context).await.map_err(|error| log_error(&error))?;
        self.partitions.lock().entry(number).or_default().take_history(history);
        Ok(())
    }
}

/// The runs of a partition as they stood before `end`.
async fn history(number: i32, end: i64, context: &Context) -> Result<Runs, LogError> {
    let partition = TopicPartition::new(Topic::AgentEvents.name(), number);
    let mut range = Tail::read_range(&context.log, partition, StartAt::Beginning).await?;
    let mut runs = Runs::default();
    while let Some(record) = range.next().await? {
        if record.offset >= end {
            break;
        }
        if let Ok(Decoded::Event(event)) = context.schemas.decode::<AgentEvent>(&record) {
            runs.apply(&event, record.offset);
        }
    }
    Ok(runs)
}

fn turn(session: &Session, end: &RunFinished, role: TurnRole, text: &str) -> TurnRecorded {
    TurnRecorded {
        namespace: session.namespace.clone(),
        session: session.name.clone(),
        turn_id: run_turn_id(end.run_id, role),
        role,
        text: shorten_bytes(text.trim(), MAX_TURN_BYTES),
        run_id: Some(end.run_id),
        at: end.at,
    }
}

#[async_trait]
impl Worker for RunRecorder {
    type Input = AgentEvent;

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

    async fn handle(&self, batch: &[Delivery<AgentEvent>], context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        self.know(batch, context).await?;
        let mut out = Vec::new();
        for (session, task, end, index) in self.apply(batch) {
            let cause = &batch[index].envelope;
            out.push(self.outgoing(MemoryEvent::from(turn(&session, &end, TurnRole::User, &task)), cause)?);
            if let Some(answer) = end.answer.as_deref().filter(|answer| !answer.trim().is_empty()) {
                out.push(self.outgoing(MemoryEvent::from(turn(&session, &end, TurnRole::Assistant, answer)), cause)?);
            }
        }
        Ok(out)
    }

    async fn assigned(
        &self,
        partitions: &[AssignedPartition],
        _context: &Context,
    ) -> Result<Vec<(TopicPartition, StartAt)>, WorkError> {
        let mut known = self.partitions.lock();
        for one in partitions {
            let runs = Runs { start: one.committed.unwrap_or(one.low), ..Runs::default() };
            known.insert(one.partition.partition, runs);
        }
        Ok(partitions.iter().map(|p| (p.partition.clone(), p.default_start())).collect())
    }

    async fn revoked(&self, partitions: &[TopicPartition]) {
        let mut known = self.partitions.lock();
        for one in partitions {
            known.remove(&one.partition);
        }
    }
}
