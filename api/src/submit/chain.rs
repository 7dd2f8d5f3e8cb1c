//! Chains: several runs of which some wait for the answers of others, from a request to their commands. Pure.

use std::collections::{HashMap, HashSet};

use riverrun_agents::state::INPUT;
use riverrun_schemas::agent::{ChainLink, RunRequest};
use riverrun_schemas::{ChainId, Namespace, RunId};

use super::checks::Checks;
use super::runs::{Known, drawn_into, partition_for, run_request};
use crate::error::ApiError;
use crate::wire::{ChainBody, RunBody, SessionMode};

/// Most runs of a chain.
const MAX_RUNS: usize = 64;
/// Most runs that one of them waits for.
const MAX_AFTER: usize = 16;
/// Longest name of a run within its chain, in bytes.
const MAX_NAME: usize = 200;

/// A run of a chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chained {
    /// Its name within the chain.
    pub(crate) name: String,
    /// Drawn so that all runs of a chain lie in one partition.
    pub(crate) run_id: RunId,
    /// What it is to do, and which runs it waits for.
    pub(crate) request: RunRequest,
}

/// The runs of a chain in the order in which their commands are to be written: each before those that it waits for, so
/// that nobody need look for an answer. The ids, that of the chain first, follow from `seed` and the names.
pub(crate) fn chained(body: ChainBody, known: &Known, seed: &str) -> Result<(ChainId, Vec<Chained>), ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    checks.finish()?;
    let order = order(&body)?;
    let mut requests = Vec::with_capacity(body.runs.len());
    for (index, part) in body.runs.into_iter().enumerate() {
        let request = of_the_chain((index, part.name.as_str()), part.run, &namespace, !part.after.is_empty(), known)?;
        requests.push((part.name, part.after, request));
    }
    let partition = partition(&requests, seed)?;
    let ids: HashMap<String, RunId> = requests
        .iter()
        .map(|(name, _, _)| {
            let draw = |n: u32| RunId::derive(&["chain", seed, name, &n.to_string()]);
            (name.clone(), drawn_into(partition, draw))
        })
        .collect();
    let chain_id = drawn_into(partition, |n| ChainId::derive(&["chain", seed, &n.to_string()]));
    let count = i32::try_from(requests.len()).unwrap_or(i32::MAX);
    let mut runs: Vec<Option<Chained>> = requests
        .into_iter()
        .map(|(name, after, request)| {
            let run_id = ids.get(&name).copied()?;
            let after = after.iter().filter_map(|before| ids.get(before).copied()).collect();
            let chain = Some(ChainLink { chain_id, name: name.clone(), runs: count });
            Some(Chained { name, run_id, request: RunRequest { after, chain, ..request } })
        })
        .collect();
    let ordered = order.into_iter().rev().filter_map(|index| runs.get_mut(index).and_then(Option::take));
    Ok((chain_id, ordered.collect()))
}

/// The places of the runs, each behind those that it waits for.
fn order(body: &ChainBody) -> Result<Vec<usize>, ApiError> {
    let mut checks = Checks::default();
    let count = body.runs.len();
    checks.require((1..=MAX_RUNS).contains(&count), "runs", format!("has {count} runs; a chain has 1 to {MAX_RUNS}"));
    checks.finish()?;
    let mut checks = Checks::default();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (index, run) in body.runs.iter().enumerate() {
        let field = format!("runs[{index}].name");
        checks.text(&field, &run.name, MAX_NAME);
        checks.require(places.insert(&run.name, index).is_none(), &field, format!("{:?} is there twice", run.name));
    }
    for (index, run) in body.runs.iter().enumerate() {
        let field = format!("runs[{index}].after");
        let count = run.after.len();
        checks.require(count <= MAX_AFTER, &field, format!("names {count} runs; at most {MAX_AFTER} are waited for"));
        let mut seen = HashSet::new();
        for before in &run.after {
            checks.require(seen.insert(before), &field, format!("names {before:?} twice"));
            let there = places.contains_key(before.as_str());
            checks.require(there, &field, format!("names {before:?}, which is no run of the chain"));
        }
    }
    checks.finish()?;
    let mut order: Vec<usize> = Vec::with_capacity(count);
    let mut placed = vec![false; count];
    while order.len() < count {
        let before = order.len();
        for (index, run) in body.runs.iter().enumerate() {
            let free = run.after.iter().all(|name| places.get(name.as_str()).is_some_and(|place| placed[*place]));
            if !placed[index] && free {
                placed[index] = true;
                order.push(index);
            }
        }
        if order.len() == before {
            let stuck: Vec<&str> = body
                .runs
                .iter()
                .zip(&placed)
                .filter(|(_, placed)| !**placed)
                .map(|(run, _)| run.name.as_str())
                .collect();
            return Err(ApiError::field("runs", format!("wait for each other in a circle: {}", stuck.join(", "))));
        }
    }
    Ok(order)
}

/// The request of one run; what is wrong with it is named with its place.
fn of_the_chain(
    (index, name): (usize, &str),
    run: RunBody,
    namespace: &Namespace,
    waits: bool,
    known: &Known,
) -> Result<RunRequest, ApiError> {
    let mut checks = Checks::default();
    checks.require(
        run.namespace.as_ref().is_none_or(|own| own == namespace.as_str()),
        &format!("runs[{index}].run.namespace"),
        format!("must be left out or be {:?}: a chain lies in one namespace", namespace.as_str()),
    );
    checks.require(
        !waits || matches!(run.session_policy, None | Some(SessionMode::Enqueue)),
        &format!("runs[{index}].run.session_policy"),
        "must be left out or be enqueue: the run waits for others",
    );
    // A model would be shown the place itself, and nothing that stands for it.
    checks.require(
        waits || !run.task.contains(INPUT),
        &format!("runs[{index}].run.task"),
        format!(
            "has {INPUT}, and {name:?} waits for no run whose answer could stand there: name it in \"after\", or write in its place what is meant"
        ),
    );
    checks.finish()?;
    let run = RunBody { namespace: Some(namespace.to_string()), ..run };
    run_request(run, known).map_err(|error| error.below(&format!("runs[{index}].run")))
}

/// Where the chain lies: in the partition of its session, else wherever its seed falls.
fn partition(requests: &[(String, Vec<String>, RunRequest)], seed: &str) -> Result<i32, ApiError> {
    let sessions: HashSet<&str> = requests.iter().filter_map(|(_, _, request)| request.session.as_deref()).collect();
    if sessions.len() > 1 {
        return Err(ApiError::field("runs", "name more than one session: the runs of a chain share one, or have none"));
    }
    let in_session = requests.iter().find(|(_, _, request)| request.session.is_some());
    Ok(match in_session {
        Some((_, _, request)) => {
            partition_for(&format!("{}\0{}", request.namespace, request.session.as_deref().unwrap_or_default()))
        }
        None => partition_for(seed),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn made(body: Value) -> Result<Vec<Chained>, ApiError> {
        chained(serde_json::from_value(body).unwrap(), &Known::default(), "seed").map(|(_, runs)| runs)
    }

    fn run(name: &str, after: &[&str]) -> Value {
        let task = if after.is_empty() { "begin" } else { INPUT };
        json!({"name": name, "after": after, "run": {"task": task, "tools": []}})
    }

    #[test]
    fn given_a_diamond_when_it_is_made_then_waiting_runs_come_first_and_all_lie_in_one_partition() {
        let diamond = || json!({"runs": [run("end", &["left", "right"]), run("left", &["start"]), run("right", &["start"]), run("start", &[])]});
        let runs = made(diamond()).unwrap();
        let place = |name: &str| runs.iter().position(|run| run.name == name).unwrap();
        assert!(place("end") < place("left") && place("left") < place("start") && place("right") < place("start"));
        let id = |name: &str| runs[place(name)].run_id;
        assert_eq!(runs[place("end")].request.after, vec![id("left"), id("right")]);
        let partitions: HashSet<i32> = runs.iter().map(|run| partition_for(&run.run_id.to_string())).collect();
        assert_eq!(partitions.len(), 1);
        assert_eq!(made(diamond()).unwrap(), runs, "the same seed gives the same runs");
        let links: Vec<&ChainLink> = runs.iter().filter_map(|run| run.request.chain.as_ref()).collect();
        assert_eq!(links.len(), 4);
        for (link, run) in links.iter().zip(&runs) {
            assert_eq!((link.chain_id, link.name.as_str(), link.runs), (links[0].chain_id, run.name.as_str(), 4));
            assert!(partitions.contains(&partition_for(&link.chain_id.to_string())), "beside its runs");
        }
    }

    #[test]
    fn given_a_session_when_a_chain_is_made_then_it_lies_in_the_sessions_partition() {
        let mut body = json!({"runs": [run("a", &[]), run("b", &["a"])]});
        body["runs"][1]["run"]["session"] = json!("talk");
        let expected = partition_for(&format!("{}\0talk", Namespace::default()));
        for run in made(body.clone()).unwrap() {
            assert_eq!(partition_for(&run.run_id.to_string()), expected);
        }
        body["runs"][0]["run"]["session"] = json!("another");
        assert_eq!(made(body).unwrap_err().problem().status, 422);
    }

    #[test]
    fn given_chains_that_can_not_be_when_they_are_made_then_each_fault_is_named_at_its_place() {
        let many: Vec<Value> = (0..=MAX_RUNS).map(|n| run(&n.to_string(), &[])).collect();
        let mut reject = json!({"runs": [run("a", &[]), run("b", &["a"])]});
        reject["runs"][1]["run"]["session"] = json!("talk");
        reject["runs"][1]["run"]["session_policy"] = json!("reject");
        let mut elsewhere = json!({"namespace": "team", "runs": [run("a", &[])]});
        elsewhere["runs"][0]["run"]["namespace"] = json!("team-b");
        let mut unknown = json!({"runs": [run("a", &[])]});
        unknown["runs"][0]["run"]["agent"] = json!("root");
        let mut nothing_before = json!({"runs": [run("a", &[]), run("b", &[]), run("c", &["b"])]});
        nothing_before["runs"][1]["run"]["task"] = json!("Shorten: {{input}}");
        for (body, field) in [
            (json!({"runs": []}), "runs"),
            (json!({ "runs": many }), "runs"),
            (json!({"runs": [run("a", &["b"]), run("b", &["a"])]}), "runs"),
            (json!({"runs": [run("a", &["a"])]}), "runs"),
            (json!({"runs": [run("a", &[]), run("a", &[])]}), "runs[1].name"),
            (json!({"runs": [run(" ", &[])]}), "runs[0].name"),
            (json!({"runs": [run("a", &["nobody"])]}), "runs[0].after"),
            (json!({"runs": [run("a", &[]), run("b", &["a", "a"])]}), "runs[1].after"),
            (json!({"namespace": "../x", "runs": [run("a", &[])]}), "namespace"),
            (reject, "runs[1].run.session_policy"),
            (elsewhere, "runs[0].run.namespace"),
            (unknown, "runs[0].run.agent"),
            (nothing_before, "runs[1].run.task"),
        ] {
            let problem = made(body.clone()).unwrap_err().problem();
            let named = problem.errors.first().map(|error| error.field.as_str());
            assert_eq!((problem.status, named), (422, Some(field)), "{body:.200}");
        }
    }

    #[test]
    fn given_a_task_with_a_place_for_answers_when_a_chain_is_made_then_only_a_run_that_waits_may_have_it() {
        for task in [INPUT, "Shorten: {{input}}", "{{input}}\n{{input}}"] {
            let mut body = json!({"runs": [run("say \"it\"", &[]), run("b", &["say \"it\""])]});
            body["runs"][1]["run"]["task"] = json!(task);
            assert_eq!(made(body.clone()).map(|runs| runs.len()).ok(), Some(2), "{task}");
            body["runs"][0]["run"]["task"] = json!(task);
            let problem = made(body).unwrap_err().problem();
            assert_eq!((problem.status, problem.errors.len()), (422, 1), "{task}");
            let reason = &problem.errors[0].reason;
            for part in ["\"say \\\"it\\\"\"", "\"after\""] {
                assert!(reason.contains(part), "{reason} names {part}");
            }
        }
        // What only looks like the place is a task like any other.
        for task in ["{input}", "{{ input }}", "{{INPUT}}"] {
            let mut body = json!({"runs": [run("a", &[])]});
            body["runs"][0]["run"]["task"] = json!(task);
            assert!(made(body).is_ok(), "{task}");
        }
    }
}
