//! Which of the runs that others wait for have to be looked for, and for how long. Pure.
//!
//! A stranger is a run that is waited for and not open in the partition: it has ended before the run that waits was
//! accepted, its command comes later or never, or it lies in another partition. What has become of it is on the log, and
//! nowhere else: it is found there by a [`Search`], after a restart again.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use riverrun_schemas::RunId;

use super::lookup::{Looked, Search};

/// A run that is accepted a moment after the one that waits for it, as those of a chain are, is no stranger.
const A_MOMENT: Duration = Duration::from_secs(1);
/// Looks of one partition at a time; who comes later is looked for when one of them has found what it wanted.
const MAX_SEARCHES: usize = 8;

/// The strangers of a partition.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    known: HashMap<RunId, Stranger>,
    /// Searches between two looks.
    idle: Vec<Search>,
    /// How many are looking.
    looking: usize,
}

#[derive(Debug)]
struct Stranger {
    /// Since when it has been missed, by the worker that has the partition now.
    since: Instant,
    /// A search has it.
    looked_for: bool,
    /// It was accepted somewhere: it will end, and until then it is waited for.
    accepted: bool,
}

impl Strangers {
    /// The looks that are due, when these are missing.
    pub(super) fn due(&mut self, now: Instant, missing: &HashSet<RunId>) -> Vec<Search> {
        self.known.retain(|run, _| missing.contains(run));
        for run in missing {
            self.known.entry(*run).or_insert(Stranger { since: now, looked_for: false, accepted: false });
        }
        self.idle.retain_mut(|search| search.keep(|run| missing.contains(run)));
        if self.idle.len() + self.looking < MAX_SEARCHES {
            let begun = self.begin(now);
            self.idle.extend(begun);
        }
        self.looking += self.idle.len();
        std::mem::take(&mut self.idle)
    }

    /// A search for those that have been missed for a moment and that none looks for.
    fn begin(&mut self, now: Instant) -> Option<Search> {
        let new = |stranger: &Stranger| !stranger.looked_for && now.duration_since(stranger.since) >= A_MOMENT;
        let wanted: HashSet<RunId> = self
            .known
            .iter_mut()
            .filter(|(_, stranger)| new(stranger))
            .map(|(run, stranger)| {
                stranger.looked_for = true;
                *run
            })
            .collect();
        (!wanted.is_empty()).then(|| Search::new(wanted))
    }

    /// A look has ended: gives those that have been missed for longer than `patience` and that were not accepted
    /// anywhere when it began. What is found or given up is forgotten: whoever waits for it later looks anew.
    pub(super) fn looked(&mut self, looked: Looked, patience: Duration) -> Vec<RunId> {
        self.looking = self.looking.saturating_sub(1);
        let Looked { mut search, since, whole, ended } = looked;
        for finished in &ended {
            self.known.remove(&finished.run_id);
        }
        for run in search.accepted() {
            if let Some(stranger) = self.known.get_mut(run) {
                stranger.accepted = true;
            }
        }
        let is_lost = |run: &RunId| {
            let missed = self.known.get(run).filter(|stranger| !stranger.accepted);
            whole && missed.is_some_and(|stranger| since.duration_since(stranger.since) >= patience)
        };
        let lost: Vec<RunId> = search.wanted().copied().filter(is_lost).collect();
        for run in &lost {
            self.known.remove(run);
        }
        search.keep(|run| !lost.contains(run));
        self.idle.push(search);
        lost
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::Usage;
    use riverrun_schemas::agent::{AgentEvent, RunAccepted, RunFinished, RunOutcome, RunRequest};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn run(name: &str) -> RunId {
        RunId::derive(&[name])
    }

    fn missing(names: &[&str]) -> HashSet<RunId> {
        names.iter().map(|name| run(name)).collect()
    }

    fn looked(search: Search, since: Instant, whole: bool) -> Looked {
        Looked { search, since, whole, ended: Vec::new() }
    }

    fn accepted(name: &str) -> AgentEvent {
        RunAccepted { run_id: run(name), request: RunRequest::default(), forked_from: None, at: 0 }.into()
    }

    #[test]
    fn given_a_run_that_comes_a_moment_later_when_looks_are_due_then_none_is_begun() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        assert!(strangers.due(now, &missing(&["a"])).is_empty());
        assert!(strangers.due(now + A_MOMENT, &missing(&[])).is_empty(), "it came");
        assert!(strangers.due(now + A_MOMENT * 2, &missing(&["a"])).is_empty(), "missed anew");
        let due = strangers.due(now + A_MOMENT * 3, &missing(&["a"]));
        let [search] = due.as_slice() else { panic!("{due:?}") };
        assert_eq!(search.wanted().collect::<Vec<_>>(), [&run("a")]);
        assert!(strangers.due(now + A_MOMENT * 4, &missing(&["a"])).is_empty(), "one look at a time");
    }

    #[test]
    fn given_a_run_that_is_nowhere_when_it_was_looked_for_long_enough_then_it_is_lost_and_not_before() {
        for (seconds, whole, expected) in
            [(1, true, vec![]), (59, true, vec![]), (61, false, vec![]), (60, true, vec![run("a")])]
        {
            let (mut strangers, now) = (Strangers::default(), Instant::now());
            strangers.due(now, &missing(&["a"]));
            let search = strangers.due(now + A_MOMENT, &missing(&["a"])).pop().unwrap();
            let at = now + Duration::from_secs(seconds);
            assert_eq!(strangers.looked(looked(search, at, whole), PATIENCE), expected, "{seconds} s, {whole}");
            let on = strangers.due(at, &missing(&["a"])).len();
            assert_eq!(on, usize::from(expected.is_empty()), "it is looked for on, or for another that waits anew");
        }
    }

    #[test]
    fn given_a_run_that_was_accepted_elsewhere_when_any_time_passes_then_it_is_waited_for() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        strangers.due(now, &missing(&["a", "b"]));
        let mut search = strangers.due(now + A_MOMENT, &missing(&["a", "b"])).pop().unwrap();
        assert!(search.fold(4, accepted("a")).is_none());
        assert_eq!(strangers.looked(looked(search, now + PATIENCE * 9, true), PATIENCE), [run("b")]);
        let due = strangers.due(now + PATIENCE * 9, &missing(&["a"]));
        assert_eq!(due.iter().flat_map(Search::wanted).collect::<Vec<_>>(), [&run("a")], "nobody waits for b any more");
    }

    #[test]
    fn given_a_run_that_was_found_when_another_waits_for_it_before_the_next_look_then_it_is_looked_for_again() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        strangers.due(now, &missing(&["a"]));
        let mut search = strangers.due(now + A_MOMENT, &missing(&["a"])).pop().unwrap();
        let end = RunFinished {
            run_id: run("a"),
            epoch: 0,
            status: RunOutcome::Succeeded,
            agent: "react".into(),
            answer: None,
            citations: Vec::new(),
            usage: Usage::default(),
            stop_reason: "answered".into(),
            error: None,
            at: 0,
        };
        let events = [accepted("a"), end.into()];
        let ended = events.into_iter().filter_map(|event| search.fold(0, event)).collect();
        assert!(strangers.looked(Looked { search, since: now, whole: true, ended }, PATIENCE).is_empty());
        assert!(strangers.due(now + A_MOMENT * 2, &missing(&["a"])).is_empty(), "missed anew");
        assert_eq!(strangers.due(now + A_MOMENT * 3, &missing(&["a"])).len(), 1);
    }

    #[test]
    fn given_ever_more_strangers_when_looks_are_due_then_only_so_many_are_under_way() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        let (mut all, mut under_way) = (HashSet::new(), Vec::new());
        for (name, seconds) in (0..).zip(0..20) {
            all.insert(run(&i32::to_string(&name)));
            under_way.extend(strangers.due(now + Duration::from_secs(seconds), &all));
        }
        assert_eq!(under_way.len(), MAX_SEARCHES);
        let mut free = under_way.pop().unwrap();
        free.keep(|_| false);
        strangers.looked(looked(free, now, true), PATIENCE);
        let next = strangers.due(now + Duration::from_secs(30), &all);
        assert_eq!(next.len(), 1, "all that were left over, together");
        assert!(next[0].wanted().count() > 1);
    }
}
