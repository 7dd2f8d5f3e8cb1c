//! The open runs of a partition, and from where they have to be folded again.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::{RunId, Traceparent};

use super::fold::{Defaults, RunTrace};
use super::span::Span;

/// Open runs of a partition, at most: beyond it, the run that was accepted first is told no further.
const MAX_OPEN_RUNS: usize = 1_000;
/// Ended runs that are remembered, so that a late copy of their acceptance does not open them again.
const MAX_ENDED: usize = 4_096;

/// Where an event lies, and the trace that its record points to.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) offset: i64,
    pub(super) outside: Option<Traceparent>,
}

/// What a batch of events changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    runs: HashMap<RunId, Open>,
    next: i64,
}

#[derive(Debug, Clone)]
struct Open {
    /// Offset of the acceptance.
    first: i64,
    /// Offset of the last event that was folded.
    last: i64,
    run: RunTrace,
}

/// The runs of a partition.
#[derive(Debug, Default)]
pub(super) struct PartitionTraces {
    open: HashMap<RunId, Open>,
    /// The open runs by the offset of their acceptance.
    by_first: BTreeMap<i64, RunId>,
    ended: HashSet<RunId>,
    ended_order: VecDeque<RunId>,
    /// First and last offset of runs whose end is not committed yet.
    uncommitted: Vec<(i64, i64)>,
    /// Everything before it is folded.
    next: i64,
}

impl PartitionTraces {
    /// The spans that events give, and what they change; nothing is changed by asking.
    pub(super) fn preview(&self, events: &[(At, &AgentEvent)], defaults: &Defaults) -> (Vec<Span>, Changes) {
        let mut changes = Changes { next: self.next, ..Changes::default() };
        let mut spans = Vec::new();
        for (at, event) in events.iter().filter(|(at, _)| at.offset >= self.next) {
            spans.extend(self.apply(&mut changes.runs, *at, event, defaults));
            changes.next = at.offset + 1;
        }
        (spans, changes)
    }

    fn apply(&self, changed: &mut HashMap<RunId, Open>, at: At, event: &AgentEvent, defaults: &Defaults) -> Vec<Span> {
        let run_id = event.run_id();
        if !changed.contains_key(&run_id) {
            let known = self.open.get(&run_id).cloned();
            changed.extend(known.or_else(|| self.opened(at, event, defaults)).map(|open| (run_id, open)));
        }
        // Without one, the run began before anything that we know, or has ended.
        let Some(open) = changed.get_mut(&run_id) else { return Vec::new() };
        open.last = at.offset;
        open.run.apply(event, defaults)
    }

    /// The run that an acceptance opens.
    fn opened(&self, at: At, event: &AgentEvent, defaults: &Defaults) -> Option<Open> {
        let AgentEvent::RunAccepted(accepted) = event else { return None };
        let run = || RunTrace::new(accepted, at.outside, defaults);
        (!self.ended.contains(&accepted.run_id)).then(|| Open { first: at.offset, last: at.offset, run: run() })
    }

    /// Keeps what a batch changed.
    pub(super) fn accept(&mut self, changes: Changes) {
        for (run_id, open) in changes.runs {
            if open.run.ended() {
                self.open.remove(&run_id);
                self.by_first.remove(&open.first);
                self.uncommitted.push((open.first, open.last));
                self.remember_end(run_id);
            } else {
                self.by_first.insert(open.first, run_id);
                self.open.insert(run_id, open);
            }
        }
        while self.open.len() > MAX_OPEN_RUNS
            && let Some((_, oldest)) = self.by_first.pop_first()
        {
            tracing::warn!(run_id = %oldest, limit = MAX_OPEN_RUNS, "too many open runs; the oldest is traced no further");
            self.open.remove(&oldest);
            self.remember_end(oldest);
        }
        self.next = self.next.max(changes.next);
    }

    /// Spans of events whose changes are kept at once.
    pub(super) fn fold(&mut self, events: &[(At, &AgentEvent)], defaults: &Defaults) -> Vec<Span> {
        let (spans, changes) = self.preview(events, defaults);
        self.accept(changes);
        spans
    }

    /// Where whoever goes on at `offset` has to fold from, to know the runs that are open there.
    pub(super) fn fold_from(&mut self, offset: i64) -> i64 {
        self.uncommitted.retain(|(_, last)| *last >= offset);
        let ended_later = self.uncommitted.iter().map(|(first, _)| *first).min();
        let open = self.by_first.first_key_value().map(|(first, _)| *first);
        [ended_later, open].into_iter().flatten().fold(offset, i64::min)
    }

    fn remember_end(&mut self, run_id: RunId) {
        if self.ended.insert(run_id) {
            self.ended_order.push_back(run_id);
        }
        while self.ended_order.len() > MAX_ENDED
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }
}
