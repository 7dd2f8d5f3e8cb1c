//! Runs that can't be accepted as they were asked for: what of the request is kept beside the end that says why. Pure.

use riverrun_schemas::agent::{AgentCommand, RunAccepted, RunRequest};

/// Longest task that is kept whole, in characters: one with all the names fits on the log whatever its script.
const MAX_TASK_CHARS: usize = 4_000;
/// Longest name that is kept, in bytes. Longer ones are no names.
const MAX_NAME_BYTES: usize = 200;
/// Stands where a task was cut.
const CUT: &str = "…";

/// The acceptance of a run that ends with it; `None` for a command that opens none. What it may use is none of what it asked for: a fork
/// of it must not have more.
pub(super) fn acceptance(command: &AgentCommand) -> Option<RunAccepted> {
    let (run_id, request, forked_from, at) = match command {
        AgentCommand::StartRun(c) => (c.run_id, &c.request, None, c.at),
        AgentCommand::ForkRun(c) => (c.run_id, &c.request, Some(c.forked_from.clone()), c.at),
        AgentCommand::CancelRun(_) | AgentCommand::DecideApproval(_) | AgentCommand::ResumeRun(_) => return None,
    };
    Some(RunAccepted { run_id, request: kept(request), forked_from, at })
}

fn kept(asked: &RunRequest) -> RunRequest {
    let name = |given: &Option<String>| given.clone().filter(|name| name.len() <= MAX_NAME_BYTES);
    RunRequest {
        task: cut(&asked.task),
        agent: name(&asked.agent),
        namespace: asked.namespace.clone(),
        session: name(&asked.session),
        provider: name(&asked.provider),
        model: name(&asked.model),
        temperature: asked.temperature,
        max_iters: asked.max_iters,
        tools: asked.tools.as_ref().map(|_| Vec::new()),
        collections: asked.collections.as_ref().map(|_| Vec::new()),
        budget_tokens: asked.budget_tokens,
        budget_seconds: asked.budget_seconds,
        approval: asked.approval,
        metadata_json: None,
        session_policy: asked.session_policy,
        // It waits for nobody any more.
        after: Vec::new(),
        chain: asked.chain.clone().filter(|link| link.name.len() <= MAX_NAME_BYTES),
    }
}

fn cut(task: &str) -> String {
    match task.char_indices().nth(MAX_TASK_CHARS) {
        Some((end, _)) => format!("{}{CUT}", &task[..end]),
        None => task.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use riverrun_log::{MAX_EVENT_BYTES, Outgoing};
    use riverrun_schemas::agent::{AgentEvent, CancelRun, ChainLink, ForkRun, ForkedFrom, StartRun};
    use riverrun_schemas::{ChainId, RunId};

    use super::*;

    fn start(request: RunRequest) -> AgentCommand {
        StartRun { run_id: RunId::derive(&["refused"]), request, at: 7 }.into()
    }

    #[test]
    fn given_requests_of_any_size_when_they_are_refused_then_what_is_kept_fits_on_the_log() {
        let large = || "\u{10ffff}".repeat(MAX_EVENT_BYTES);
        let names = || Some(vec!["name".repeat(64); 10_000]);
        let chain = Some(ChainLink { chain_id: ChainId::derive(&["c"]), name: large(), runs: 2 });
        for (what, request) in [
            ("task", RunRequest { task: large(), ..RunRequest::default() }),
            ("names", RunRequest { agent: Some(large()), model: Some(large()), ..RunRequest::default() }),
            ("more names", RunRequest { session: Some(large()), provider: Some(large()), ..RunRequest::default() }),
            ("lists", RunRequest { tools: names(), collections: names(), ..RunRequest::default() }),
            ("metadata", RunRequest { metadata_json: Some(large()), ..RunRequest::default() }),
            ("after", RunRequest { after: vec![RunId::derive(&["before"]); 50_000], ..RunRequest::default() }),
            ("chain", RunRequest { chain, ..RunRequest::default() }),
        ] {
            let kept = acceptance(&start(request)).unwrap();
            assert!(Outgoing::event(&AgentEvent::from(kept), "test", None).is_ok(), "{what}");
        }
    }

    #[test]
    fn given_a_request_when_it_is_refused_then_its_words_are_kept_and_nothing_that_it_might_use() {
        let asked = RunRequest {
            task: "count".into(),
            session: Some("s".into()),
            model: Some("m".into()),
            tools: Some(vec!["clock".into()]),
            metadata_json: Some("{}".into()),
            after: vec![RunId::derive(&["before"])],
            ..RunRequest::default()
        };
        let kept = acceptance(&start(asked.clone())).unwrap();
        let expected = RunRequest { tools: Some(Vec::new()), metadata_json: None, after: Vec::new(), ..asked.clone() };
        assert_eq!((kept.request, kept.forked_from, kept.at), (expected, None, 7));
        let forked_from = ForkedFrom { run_id: RunId::derive(&["source"]), at_seq: 3 };
        let fork = ForkRun {
            run_id: RunId::derive(&["fork"]),
            forked_from: forked_from.clone(),
            request: asked,
            steps: Vec::new(),
            steps_blob: None,
            at: 8,
        };
        assert_eq!(acceptance(&fork.into()).unwrap().forked_from, Some(forked_from));
        let cancel = CancelRun { run_id: RunId::derive(&["refused"]), reason: None, at: 9 };
        assert_eq!(acceptance(&cancel.into()), None);
    }
}
