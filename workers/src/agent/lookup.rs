//! Looking through the whole log for the ends of runs that others wait for and that the fold of their partition does not
//! bring. It costs a reading of all run events, and happens only for runs that are not open in the partition.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use riverrun_log::{LogConfig, LogError, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{AgentEvent, RunFinished};
use riverrun_schemas::{Decoded, RunId, Topic};
use riverrun_stores::read_models::run_fold::{RunGate, Verdict};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::Coordinator;

/// A look through the log that goes on where it stopped.
#[derive(Debug)]
pub(super) struct Search {
    wanted: HashSet<RunId>,
    /// The next offset of each partition; empty before the first look.
    next: HashMap<i32, i64>,
    /// What counts of each run, in each partition that has something of it: whoever writes commands by hand may have put
    /// one anywhere. An event that is read again does not count again.
    gates: HashMap<(RunId, i32), RunGate>,
}

/// What a look has found.
#[derive(Debug)]
pub(super) struct Looked {
    /// It goes on with what it has not found.
    pub(super) search: Search,
    /// When the look began.
    pub(super) since: Instant,
    /// It has seen everything that was on the log then.
    pub(super) whole: bool,
    /// The ends that it found.
    pub(super) ended: Vec<RunFinished>,
}

/// A look that has ended, the partition that asked for it, and the token that says whether that is still ours.
pub(super) type Answer = (i32, CancellationToken, Looked);

impl Search {
    pub(super) fn new(wanted: HashSet<RunId>) -> Self {
        Self { wanted, next: HashMap::new(), gates: HashMap::new() }
    }

    /// What it has not found yet.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &RunId> {
        self.wanted.iter()
    }

    /// Looks only for these any longer; whether any is left.
    pub(super) fn keep(&mut self, keep: impl Fn(&RunId) -> bool) -> bool {
        self.wanted.retain(&keep);
        self.gates.retain(|(run, _), _| keep(run));
        !self.wanted.is_empty()
    }

    /// Those of them that were accepted and have not ended.
    pub(super) fn accepted(&self) -> impl Iterator<Item = &RunId> {
        self.gates.iter().filter(|(_, gate)| gate.accepted).map(|((run, _), _)| run)
    }

    /// Reads to the end that the log has now. A look that breaks off is made again with the next one.
    pub(super) async fn look(mut self, log: &LogConfig, schemas: &Schemas, since: Instant) -> Looked {
        let mut ended = Vec::new();
        let read = self.read(log, schemas, &mut ended).await;
        if let Err(error) = &read {
            tracing::warn!(error = %error, "looking for runs that others wait for broke off, trying again");
        }
        Looked { search: self, since, whole: read.is_ok(), ended }
    }

    async fn read(&mut self, log: &LogConfig, schemas: &Schemas, ended: &mut Vec<RunFinished>) -> Result<(), LogError> {
        let starts = (0..Topic::AgentEvents.spec().partitions).map(|number| {
            let start = self.next.get(&number).map_or(StartAt::Beginning, |next| StartAt::Offset(*next));
            (TopicPartition::new(Topic::AgentEvents.name(), number), start)
        });
        let mut tail = Tail::open_telling_ends(log, starts.collect()).await?;
        while !tail.has_caught_up() {
            match tail.next_or_end().await {
                Ok(Some(record)) => ended.extend(self.take(schemas, &record)),
                Ok(None) => {}
                Err(gap @ LogError::OutOfRange { .. }) => {
                    tracing::warn!(error = %gap, "looking for runs that others wait for");
                }
                Err(error) => return Err(error),
            }
        }
        self.next = tail.positions().iter().map(|(place, next)| (place.partition, *next)).collect();
        Ok(())
    }

    /// Takes in a record; gives the end of a run that is wanted.
    fn take(&mut self, schemas: &Schemas, record: &Record) -> Option<RunFinished> {
        let key = std::str::from_utf8(record.key.as_deref()?).ok()?;
        let run_id = key.parse::<RunId>().ok().filter(|run_id| self.wanted.contains(run_id))?;
        match schemas.decode::<AgentEvent>(record) {
            Ok(Decoded::Event(event)) if event.run_id() == run_id => self.fold(record.partition, event),
            Ok(Decoded::Event(_) | Decoded::UnknownType { .. }) | Err(_) => None,
        }
    }

    /// Takes in an event of a wanted run; gives its end when that counts.
    pub(super) fn fold(&mut self, partition: i32, event: AgentEvent) -> Option<RunFinished> {
        let run_id = event.run_id();
        let counts = self.gates.entry((run_id, partition)).or_default().admit(&event) == Verdict::Admitted;
        match event {
            AgentEvent::RunFinished(finished) if counts => {
                self.keep(|wanted| *wanted != run_id);
                Some(finished)
            }
            AgentEvent::RunFinished(_)
            | AgentEvent::RunAccepted(_)
            | AgentEvent::RunClaimed(_)
            | AgentEvent::RunAdvanced(_)
            | AgentEvent::RunCancelRequested(_)
            | AgentEvent::RunApprovalDecided(_)
            | AgentEvent::RunResumed(_)
            | AgentEvent::RunSnapshotted(_) => None,
        }
    }
}

impl Coordinator {
    /// Begins the looks that are due.
    pub(super) fn look_for_strangers(&mut self) {
        let now = Instant::now();
        for (number, state) in &mut self.partitions {
            for search in state.searches_due(now) {
                let (number, stop) = (*number, state.stop.clone());
                let (log, schemas) = (self.config.log.clone(), self.config.schemas.clone());
                self.searches.spawn(async move { (number, stop, search.look(&log, &schemas, now).await) });
            }
        }
    }

    /// Takes in what a look has found.
    pub(super) fn on_looked(&mut self, answer: Result<Answer, JoinError>) {
        let (number, stop, looked) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(error = %error, "looking for runs that others wait for broke off for good; they are looked for at the next start");
                return;
            }
        };
        if let (false, Some(state)) = (stop.is_cancelled(), self.partitions.get_mut(&number)) {
            state.looked(looked, self.config.predecessor_patience);
            self.drive_ready(number);
        }
    }
}
