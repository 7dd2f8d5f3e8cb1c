//! Which runs of a chain wait for others, and what those have answered. No I/O.
//!
//! All runs of a chain lie in one partition, and a run is accepted before those that it waits for: so whoever folds the
//! partition from the acceptance of a waiting run on also folds the ends that it waits for, after a crash as well. What
//! comes in another order, or lies elsewhere, is looked for (`strangers`).

use std::collections::{HashMap, HashSet};

use riverrun_agents::decide::Ending;
use riverrun_agents::state::Input;
use riverrun_schemas::agent::{RunFinished, RunOutcome};
use riverrun_schemas::{Failure, RunId};

/// What a run waited for.
#[derive(Debug, PartialEq)]
pub(super) enum Settled {
    /// The answers, in the order in which the run names them.
    Inputs(Vec<Input>),
    /// One of them did not come: the run ends without having begun.
    Ends(Ending),
}

/// The runs that wait for others.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// For each run that waits: those it waits for, with what came of each.
    waiting: HashMap<RunId, Vec<(RunId, Option<Input>)>>,
    /// For each run that is waited for: who waits.
    followers: HashMap<RunId, Vec<RunId>>,
}

impl Chains {
    /// The run waits for these; one that would wait for itself, by whatever way, ends instead.
    pub(super) fn join(&mut self, run: RunId, after: &[RunId]) -> Option<Settled> {
        if let Some(before) = after.iter().find(|before| self.leads_to(**before, run)) {
            return Some(Settled::Ends(circular(*before)));
        }
        for before in after {
            let followers = self.followers.entry(*before).or_default();
            if !followers.contains(&run) {
                followers.push(run);
            }
        }
        self.waiting.insert(run, after.iter().map(|before| (*before, None)).collect());
        None
    }

    /// Whether this run waits for that one, or is it.
    fn leads_to(&self, from: RunId, to: RunId) -> bool {
        let (mut open, mut seen) = (vec![from], HashSet::new());
        while let Some(run) = open.pop() {
            if run == to {
                return true;
            }
            if seen.insert(run) {
                open.extend(self.waiting.get(&run).into_iter().flatten().map(|(before, _)| *before));
            }
        }
        false
    }

    /// The runs that are waited for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &RunId> {
        self.followers.keys()
    }

    /// Whether any run waits for this one.
    pub(super) fn is_awaited(&self, run: &RunId) -> bool {
        self.followers.contains_key(run)
    }

    /// A run has ended: gives the runs that wait for nothing more, each with what came of its waiting.
    pub(super) fn ended(&mut self, finished: &RunFinished) -> Vec<(RunId, Settled)> {
        let followers = self.followers.remove(&finished.run_id).unwrap_or_default();
        followers.into_iter().filter_map(|run| Some((run, self.take_in(run, finished)?))).collect()
    }

    /// There is no such run: gives those that waited for it, each with its end.
    pub(super) fn never_came(&mut self, run: &RunId) -> Vec<(RunId, Settled)> {
        let mut settled = Vec::new();
        for follower in self.followers.remove(run).unwrap_or_default() {
            if self.waiting.contains_key(&follower) {
                self.leave(&follower);
                settled.push((follower, Settled::Ends(unknown(*run))));
            }
        }
        settled
    }

    /// The run waits no longer: it has ended itself.
    pub(super) fn leave(&mut self, run: &RunId) {
        for (before, _) in self.waiting.remove(run).unwrap_or_default() {
            if let Some(followers) = self.followers.get_mut(&before) {
                followers.retain(|other| other != run);
                if followers.is_empty() {
                    self.followers.remove(&before);
                }
            }
        }
    }

    fn take_in(&mut self, run: RunId, finished: &RunFinished) -> Option<Settled> {
        let inputs = self.waiting.get_mut(&run)?;
        if finished.status != RunOutcome::Succeeded {
            self.leave(&run);
            return Some(Settled::Ends(without(finished)));
        }
        for (before, input) in inputs.iter_mut() {
            if *before == finished.run_id {
                *input = Some(Input {
                    run_id: finished.run_id,
                    agent: finished.agent.clone(),
                    text: finished.answer.clone().unwrap_or_default(),
                });
            }
        }
        let all: Option<Vec<Input>> = inputs.iter().map(|(_, input)| input.clone()).collect();
        let all = all?;
        self.waiting.remove(&run);
        Some(Settled::Inputs(all))
    }
}

/// How a run ends that waited for one without an answer.
fn without(finished: &RunFinished) -> Ending {
    let before = finished.run_id;
    let cancelled = finished.status == RunOutcome::Cancelled;
    let (status, code, what) = match cancelled {
        true => (RunOutcome::Cancelled, "predecessor_cancelled", "was cancelled"),
        false => (RunOutcome::Failed, "predecessor_failed", "failed"),
    };
    let failure = Failure::new(code, format!("run {before}, which this one waited for, {what}"))
        .with_hint(format!("riverrun runs show {before}"));
    Ending { status, stop_reason: code, answer: None, error: Some(failure) }
}

/// How a run ends that waited for one that nobody has asked for.
fn unknown(before: RunId) -> Ending {
    let failure =
        Failure::new("predecessor_unknown", format!("run {before}, which this one waited for, is not on the log"))
            .with_hint("start the runs before first, or all of them as one chain (POST /chains)");
    Ending { status: RunOutcome::Failed, stop_reason: "predecessor_unknown", answer: None, error: Some(failure) }
}

/// How a run ends that would wait for itself.
fn circular(before: RunId) -> Ending {
    let message = format!("run {before}, which this one was to wait for, waits for it in turn");
    let failure = Failure::new("predecessor_circular", message).with_hint("start them without the circle");
    Ending { status: RunOutcome::Failed, stop_reason: "predecessor_circular", answer: None, error: Some(failure) }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::Usage;

    use super::*;

    fn run(name: &str) -> RunId {
        RunId::derive(&[name])
    }

    fn finished(name: &str, status: RunOutcome) -> RunFinished {
        RunFinished {
            run_id: run(name),
            epoch: 1,
            status,
            agent: "react".into(),
            answer: (status == RunOutcome::Succeeded).then(|| format!("the answer of {name}")),
            citations: Vec::new(),
            usage: Usage::default(),
            stop_reason: "answered".into(),
            error: None,
            at: 0,
        }
    }

    #[test]
    fn given_a_join_when_its_inputs_come_in_any_order_then_it_has_all_of_them_in_its_own_order() {
        for order in [["a", "b"], ["b", "a"]] {
            let mut chains = Chains::default();
            chains.join(run("join"), &[run("a"), run("b")]);
            assert!(chains.is_awaited(&run("a")) && !chains.is_awaited(&run("join")));
            assert!(chains.ended(&finished(order[0], RunOutcome::Succeeded)).is_empty(), "one is missing");
            let settled = chains.ended(&finished(order[1], RunOutcome::Succeeded));
            let [(waiter, Settled::Inputs(inputs))] = settled.as_slice() else { panic!("{settled:?}") };
            let texts: Vec<&str> = inputs.iter().map(|input| input.text.as_str()).collect();
            assert_eq!((*waiter, texts), (run("join"), vec!["the answer of a", "the answer of b"]));
            assert!(chains.waiting.is_empty() && chains.followers.is_empty());
        }
    }

    #[test]
    fn given_a_run_without_an_answer_when_it_ends_then_all_that_wait_for_it_end_with_its_name() {
        for (status, ends, code) in [
            (RunOutcome::Failed, RunOutcome::Failed, "predecessor_failed"),
            (RunOutcome::Cancelled, RunOutcome::Cancelled, "predecessor_cancelled"),
            (RunOutcome::Unknown, RunOutcome::Failed, "predecessor_failed"),
        ] {
            let mut chains = Chains::default();
            chains.join(run("x"), &[run("a"), run("b")]);
            chains.join(run("y"), &[run("a")]);
            let settled = chains.ended(&finished("a", status));
            assert_eq!(settled.len(), 2);
            for (_, settled) in settled {
                let Settled::Ends(ending) = settled else { panic!("{settled:?}") };
                assert_eq!((ending.status, ending.stop_reason), (ends, code));
                assert!(ending.error.unwrap().message.contains(&run("a").to_string()));
            }
            assert!(chains.ended(&finished("b", RunOutcome::Succeeded)).is_empty());
            assert!(chains.waiting.is_empty() && chains.followers.is_empty());
        }
    }

    #[test]
    fn given_a_run_that_never_was_when_it_is_given_up_then_all_that_wait_for_it_end_and_nothing_is_kept() {
        let mut chains = Chains::default();
        assert!(chains.join(run("x"), &[run("a"), run("b")]).is_none());
        assert!(chains.join(run("y"), &[run("a"), run("a")]).is_none());
        let settled = chains.never_came(&run("a"));
        assert_eq!(settled.len(), 2);
        for (_, settled) in settled {
            let Settled::Ends(ending) = settled else { panic!("{settled:?}") };
            assert_eq!((ending.status, ending.stop_reason), (RunOutcome::Failed, "predecessor_unknown"));
            assert!(ending.error.unwrap().message.contains(&run("a").to_string()));
        }
        assert!(chains.never_came(&run("a")).is_empty());
        assert!(chains.waiting.is_empty() && chains.followers.is_empty());
    }

    #[test]
    fn given_runs_in_a_circle_when_the_last_one_joins_then_it_ends_and_the_others_follow() {
        for length in 1..5 {
            let mut chains = Chains::default();
            let name = |n: usize| run(&(n % length).to_string());
            for n in 1..length {
                assert!(chains.join(name(n), &[name(n + 1)]).is_none(), "{n} of {length}");
            }
            let Some(Settled::Ends(ending)) = chains.join(name(0), &[name(1)]) else { panic!("{length} are a circle") };
            assert_eq!((ending.status, ending.stop_reason), (RunOutcome::Failed, "predecessor_circular"));
            assert_eq!(chains.is_awaited(&name(0)), length > 1, "who waits for it hears of its end");
        }
    }

    #[test]
    fn given_a_run_that_was_cancelled_while_it_waited_when_the_other_ends_then_nothing_is_kept_of_it() {
        let mut chains = Chains::default();
        chains.join(run("x"), &[run("a")]);
        chains.leave(&run("x"));
        assert!(!chains.is_awaited(&run("a")));
        assert!(chains.ended(&finished("a", RunOutcome::Succeeded)).is_empty());
    }
}
