//! Runs whose fold could not be read when their partition was taken, since the store or the broker was away. Each is tried again,
//! at growing intervals, until it can be read; the other runs of the partition go on meanwhile. No I/O but the tries themselves.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use riverrun_agents::{RunState, decide};
use riverrun_log::LogError;
use riverrun_schemas::RunId;
use riverrun_schemas::agent::{AgentEvent, RunSnapshotted};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::{COMPONENT, Coordinator, ending, snapshots};

/// Before the second try; doubled with each failure up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Tries of one partition at a time.
const MAX_TRIES: usize = 4;

/// The runs of a partition that are set aside.
#[derive(Debug, Default)]
pub(super) struct Asides {
    runs: HashMap<RunId, Aside>,
}

/// A run that waits to be read.
#[derive(Debug)]
pub(super) struct Aside {
    /// Of its snapshot.
    pub(super) offset: i64,
    pub(super) snapshot: RunSnapshotted,
    failures: u32,
    stage: Stage,
    /// What came since the try began that is under way.
    pub(super) later: Vec<(i64, AgentEvent)>,
    /// The claim in force, as far as it was told.
    epoch: i64,
    cancel: Cancel,
}

/// Whether a run was asked to stop.
#[derive(Debug, Clone, Default)]
enum Cancel {
    #[default]
    Unasked,
    Asked(Option<String>),
    /// Its end was written. Whether that counts is known once the run can be read.
    Written,
}

/// A run that was asked to stop before it could be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cancelled {
    pub(super) run_id: RunId,
    pub(super) epoch: i64,
    pub(super) reason: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The next try is due then.
    Waits(Instant),
    /// A try reads what lies before that offset.
    IsRead(i64),
}

/// A try that is due: to fold the run from its snapshot up to `until`.
#[derive(Debug)]
pub(super) struct Try {
    pub(super) snapshot: RunSnapshotted,
    pub(super) until: i64,
}

/// A try that has ended: where, the token that says whether the partition is still ours, the run, and what was read. `None`
/// when the partition went elsewhere meanwhile.
pub(super) type Tried = (i32, CancellationToken, RunId, Option<Result<Option<RunState>, LogError>>);

impl Asides {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn has(&self, run: &RunId) -> bool {
        self.runs.contains_key(run)
    }

    /// Sets a run aside, to be tried at `due`; gives the offset of the snapshot that this one replaces.
    pub(super) fn put(&mut self, offset: i64, snapshot: RunSnapshotted, due: Instant) -> Option<i64> {
        let run_id = snapshot.run_id;
        let earlier = self.runs.remove(&run_id);
        let replaced = earlier.as_ref().map(|earlier| earlier.offset);
        let (told, cancel) = earlier.map_or((0, Cancel::default()), |earlier| (earlier.epoch, earlier.cancel));
        let epoch = told.max(snapshot.epoch);
        let (stage, later) = (Stage::Waits(due), Vec::new());
        self.runs.insert(run_id, Aside { offset, snapshot, failures: 0, stage, later, epoch, cancel });
        replaced
    }

    /// An event of a run that is set aside. It is kept where the try under way does not read so far; else the next one reads it.
    pub(super) fn hear(&mut self, offset: i64, event: AgentEvent) {
        let Some(aside) = self.runs.get_mut(&event.run_id()) else { return };
        if let AgentEvent::RunClaimed(claim) = &event {
            aside.epoch = aside.epoch.max(claim.epoch);
        }
        if let AgentEvent::RunCancelRequested(asked) = &event
            && matches!(aside.cancel, Cancel::Unasked)
        {
            aside.cancel = Cancel::Asked(asked.reason.clone());
        }
        if let AgentEvent::RunFinished(end) = &event
            && end.epoch >= aside.epoch
        {
            aside.cancel = Cancel::Written;
        }
        if let Stage::IsRead(_) = aside.stage {
            aside.later.push((offset, event));
        }
    }

    /// Runs that were asked to stop and whose end is not written yet.
    pub(super) fn cancelled(&self) -> Vec<Cancelled> {
        let asked = self.runs.iter().filter_map(|(run_id, aside)| match &aside.cancel {
            Cancel::Asked(reason) => Some(Cancelled { run_id: *run_id, epoch: aside.epoch, reason: reason.clone() }),
            Cancel::Unasked | Cancel::Written => None,
        });
        asked.collect()
    }

    /// The end of a run that was asked to stop is written.
    pub(super) fn end_written(&mut self, run: &RunId) {
        if let Some(aside) = self.runs.get_mut(run) {
            aside.cancel = Cancel::Written;
        }
    }

    /// The tries that are due when everything before `next_event` has been told, those that wait longest first.
    pub(super) fn due(&mut self, now: Instant, next_event: i64) -> Vec<Try> {
        let under_way = self.runs.values().filter(|aside| matches!(aside.stage, Stage::IsRead(_))).count();
        let mut due: Vec<(Instant, &mut Aside)> = self
            .runs
            .values_mut()
            .filter_map(|aside| match aside.stage {
                Stage::Waits(due) if due <= now => Some((due, aside)),
                Stage::Waits(_) | Stage::IsRead(_) => None,
            })
            .collect();
        due.sort_by_key(|(due, aside)| (*due, aside.offset));
        due.into_iter()
            .take(MAX_TRIES.saturating_sub(under_way))
            .map(|(_, aside)| {
                aside.stage = Stage::IsRead(next_event);
                aside.later.clear();
                Try { snapshot: aside.snapshot.clone(), until: next_event }
            })
            .collect()
    }

    /// A try has failed; tells how long the run waits for the next one.
    pub(super) fn failed(&mut self, run: &RunId, now: Instant) -> Option<Duration> {
        let aside = self.runs.get_mut(run)?;
        aside.failures = aside.failures.saturating_add(1);
        aside.later.clear();
        let pause = pause(aside.failures);
        aside.stage = Stage::Waits(now + pause);
        Some(pause)
    }

    /// The run is read: it is set aside no longer. With the offset up to which it was read.
    pub(super) fn take(&mut self, run: &RunId) -> Option<(Aside, i64)> {
        let aside = self.runs.remove(run)?;
        let until = match aside.stage {
            Stage::IsRead(until) => until,
            Stage::Waits(_) => aside.offset + 1,
        };
        Some((aside, until))
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST_PAUSE)
}

impl Coordinator {
    /// Ends the runs that were asked to stop before they could be read: whoever cancels one does not wait for the store. Should such
    /// an end not count, since the claim in force is another, the run ends when it can be read.
    pub(super) async fn end_cancelled_asides(&mut self) {
        for (number, state) in &mut self.partitions {
            for Cancelled { run_id, epoch, reason } in state.asides.cancelled() {
                let end = ending::without_state(run_id, epoch, decide::cancelled(reason.as_deref()));
                match self.context.producer.send_to_partition(&AgentEvent::from(end), *number, COMPONENT, None).await {
                    Ok(_) => state.asides.end_written(&run_id),
                    Err(error) => {
                        tracing::warn!(run_id = %run_id, error = %error, "can't end a run that was cancelled, trying again");
                        return;
                    }
                }
            }
        }
    }

    /// Begins the tries that are due.
    pub(super) fn read_asides(&mut self) {
        let now = Instant::now();
        for (number, state) in &mut self.partitions {
            for Try { snapshot, until } in state.asides_due(now) {
                let (number, stop) = (*number, state.stop.clone());
                let (context, log, schemas) =
                    (self.context.clone(), self.config.log.clone(), self.config.schemas.clone());
                self.restoring.spawn(async move {
                    let run_id = snapshot.run_id;
                    let read = tokio::select! {
                        () = stop.cancelled() => None,
                        read = snapshots::restore(context.shelves(), &log, &schemas, (number, until), &snapshot) => Some(read),
                    };
                    (number, stop, run_id, read)
                });
            }
        }
    }

    /// Takes in what a try has read.
    pub(super) fn on_tried(&mut self, tried: Result<Tried, JoinError>) {
        let (number, stop, run_id, read) = match tried {
            Ok(tried) => tried,
            Err(error) => {
                tracing::error!(error = %error, "reading a run's snapshot broke off for good; it is read at the next start");
                return;
            }
        };
        let (false, Some(read), Some(state)) = (stop.is_cancelled(), read, self.partitions.get_mut(&number)) else {
            return;
        };
        match read {
            Ok(Some(run)) => {
                tracing::info!(run_id = %run_id, "a run that could not be read goes on");
                state.restored(run);
                self.drive_ready(number);
            }
            unread @ (Ok(None) | Err(_)) => {
                let error = why(unread.err());
                let pause = state.asides.failed(&run_id, Instant::now());
                tracing::warn!(run_id = %run_id, error, ?pause, "a run can't be read, trying again");
            }
        }
        self.read_asides();
    }
}

/// Why a run could not be read. Without an error its blob was not to be had, and its first event is on the log no longer.
pub(super) fn why(error: Option<LogError>) -> String {
    error.map_or_else(
        || "its snapshot is not to be had, and the log has its first event no longer".to_owned(),
        |error| error.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::BlobRef;
    use riverrun_schemas::agent::{RunCancelRequested, RunClaimed, RunResumed};

    use super::*;

    fn run(name: &str) -> RunId {
        RunId::derive(&[name])
    }

    fn snapshot(name: &str) -> RunSnapshotted {
        let state = BlobRef { sha256: "0".repeat(64), size_bytes: 1, media_type: "application/json".into() };
        RunSnapshotted { run_id: run(name), epoch: 1, seq: 1, accepted_offset: 0, next_offset: 2, state, at: 0 }
    }

    fn tried(asides: &mut Asides, now: Instant, next_event: i64) -> Vec<(RunId, i64)> {
        asides.due(now, next_event).into_iter().map(|due| (due.snapshot.run_id, due.until)).collect()
    }

    #[test]
    fn given_a_run_that_can_not_be_read_when_tries_fail_then_the_pauses_grow_to_a_bound_and_never_end() {
        let pauses: Vec<u64> = (1..=7).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);

        let (mut asides, begin) = (Asides::default(), Instant::now());
        assert_eq!(asides.put(5, snapshot("a"), begin), None);
        assert_eq!(tried(&mut asides, begin, 9), [(run("a"), 9)]);
        assert!(tried(&mut asides, begin, 9).is_empty(), "one try at a time");
        assert_eq!(asides.failed(&run("a"), begin), Some(FIRST_PAUSE));
        assert!(tried(&mut asides, begin, 9).is_empty(), "not before its pause is over");
        assert_eq!(tried(&mut asides, begin + FIRST_PAUSE, 12), [(run("a"), 12)]);
    }

    #[test]
    fn given_a_try_under_way_when_events_come_then_they_are_kept_and_else_left_to_the_next_try() {
        let (mut asides, now) = (Asides::default(), Instant::now());
        let resumed = || AgentEvent::from(RunResumed { run_id: run("a"), at: 0 });
        asides.put(5, snapshot("a"), now);
        asides.hear(7, resumed());
        tried(&mut asides, now, 8);
        asides.hear(8, resumed());
        let (aside, until) = asides.take(&run("a")).unwrap();
        assert_eq!((aside.later, until, asides.is_empty()), (vec![(8, resumed())], 8, true));
    }

    #[test]
    fn given_a_run_that_is_asked_to_stop_when_it_can_not_be_read_then_its_end_is_written_once_under_the_newest_claim() {
        let (mut asides, now) = (Asides::default(), Instant::now());
        let run_id = run("a");
        asides.put(5, snapshot("a"), now);
        assert!(asides.cancelled().is_empty());
        asides.hear(6, RunClaimed { run_id, epoch: 4, worker: "w".into(), at: 0 }.into());
        for reason in ["enough", "too late"] {
            asides.hear(7, RunCancelRequested { run_id, reason: Some(reason.into()), at: 0 }.into());
        }
        let cancelled = || vec![Cancelled { run_id, epoch: 4, reason: Some("enough".into()) }];
        assert_eq!(asides.cancelled(), cancelled());
        asides.put(8, snapshot("a"), now);
        assert_eq!(asides.cancelled(), cancelled(), "an older claim's snapshot takes nothing back");
        asides.end_written(&run_id);
        assert!(asides.cancelled().is_empty());
    }

    #[test]
    fn given_many_runs_that_can_not_be_read_when_they_are_due_then_a_few_are_tried_at_a_time_the_longest_waiting_first()
    {
        let (mut asides, begin) = (Asides::default(), Instant::now());
        let names: Vec<String> = (0..MAX_TRIES + 2).map(|n| n.to_string()).collect();
        for (name, offset) in names.iter().zip(0..) {
            asides.put(offset, snapshot(name), begin);
        }
        let first: Vec<RunId> = tried(&mut asides, begin, 9).into_iter().map(|(run, _)| run).collect();
        assert_eq!(first, names[..MAX_TRIES].iter().map(|name| run(name)).collect::<Vec<_>>());
        asides.failed(&first[0], begin);
        assert_eq!(tried(&mut asides, begin + LONGEST_PAUSE, 9), [(run(&names[MAX_TRIES]), 9)]);
    }
}
