//! Runs: from a request to its command.

use riverrun_agents::catalog;
use riverrun_agents::state::MAX_ITERS;
use riverrun_log::{LogError, Producer, partition_of};
use riverrun_schemas::agent::{AgentCommand, CancelRun, RunRequest, StartRun};
use riverrun_schemas::{CollectionName, Namespace, RunId, SessionName, Topic, now_ms};
use serde_json::Value;

use super::checks::{Checks, one_of};
use crate::error::ApiError;
use crate::wire::RunBody;

/// Longest task, in bytes.
pub(crate) const MAX_TASK: usize = 64 << 10;
/// Most names in a list.
const MAX_NAMES: usize = 100;
/// How many ids are drawn before a session goes without a partition of its own.
const MAX_DRAWS: u32 = 1_000;

/// What there is to choose from.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The tools.
    pub tools: Vec<KnownTool>,
    /// Names of the model providers.
    pub providers: Vec<String>,
}

/// A tool that a run may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTool {
    /// Its name.
    pub name: String,
    /// The only namespace that has it; `None` is every one.
    pub namespace: Option<Namespace>,
    /// The name is only how the names of a server's tools begin, which are listed when the server runs.
    pub is_prefix: bool,
}

impl Known {
    /// The tools of a namespace.
    fn tools_of(&self, namespace: &Namespace) -> impl Iterator<Item = &KnownTool> + Clone {
        let namespace = namespace.clone();
        self.tools.iter().filter(move |tool| tool.namespace.as_ref().is_none_or(|own| *own == namespace))
    }

    /// 422 with the list of those that exist.
    pub fn provider(&self, checks: &mut Checks, given: Option<&str>) {
        one_of(checks, "provider", given, self.providers.iter().map(String::as_str));
    }
}

/// A run request that can be put on the log.
pub fn run_request(body: RunBody, known: &Known) -> Result<RunRequest, ApiError> {
    let mut checks = Checks::default();
    checks.text("task", &body.task, MAX_TASK);
    let agents = catalog();
    one_of(&mut checks, "agent", body.agent.as_deref(), agents.iter().map(|manifest| manifest.name));
    let unknown_agent = checks.has("agent");
    let namespace = checks.namespace(body.namespace.as_deref());
    if let Some(session) = &body.session {
        checks.take("session", session.parse::<SessionName>());
    }
    checks.require(
        body.session.is_some() || body.session_policy.is_none(),
        "session_policy",
        "says what happens in a session, and the request names none",
    );
    checks.label("model", body.model.as_deref());
    known.provider(&mut checks, body.provider.as_deref());
    checks.temperature(body.temperature);
    checks.between("max_iters", body.max_iters, 1..=MAX_ITERS);
    for (index, tool) in body.tools.iter().flatten().enumerate().take(MAX_NAMES + 1) {
        let of_a_server = known.tools_of(&namespace).any(|known| known.is_prefix && tool.starts_with(&known.name));
        if !of_a_server {
            let names = known.tools_of(&namespace).filter(|tool| !tool.is_prefix).map(|tool| tool.name.as_str());
            one_of(&mut checks, &format!("tools[{index}]"), Some(tool), names);
        }
    }
    let collections = collections(&mut checks, body.collections.as_deref());
    for (field, names) in [("tools", &body.tools), ("collections", &body.collections)] {
        let count = names.as_ref().map_or(0, Vec::len);
        checks.require(count <= MAX_NAMES, field, format!("names {count}; at most {MAX_NAMES} are read"));
    }
    let budget = body.budget.unwrap_or_default();
    checks.above_zero("budget.tokens", budget.tokens);
    checks.above_zero("budget.seconds", budget.seconds);
    let metadata_json = checks.metadata(body.metadata.as_ref());
    checks.finish().map_err(|error| if unknown_agent { error.hint("riverrun agents") } else { error })?;
    Ok(RunRequest {
        task: body.task,
        agent: body.agent,
        namespace,
        session: body.session,
        provider: body.provider,
        model: body.model,
        temperature: body.temperature,
        max_iters: body.max_iters,
        tools: body.tools,
        collections,
        budget_tokens: budget.tokens,
        budget_seconds: budget.seconds,
        approval: body.approval.map(Into::into).unwrap_or_default(),
        metadata_json,
        session_policy: body.session_policy.map(Into::into).unwrap_or_default(),
        after: Vec::new(),
        chain: None,
    })
}

/// Draws the id of a run from `draw(0)`, `draw(1)`, …: the first, or in a session the first that Kafka's clients put into
/// the session's partition. So all runs of a session have one order, and whoever knows a run's id still finds its
/// partition from nothing else.
pub fn run_id_for(request: &RunRequest, draw: impl Fn(u32) -> RunId) -> RunId {
    match &request.session {
        None => draw(0),
        Some(session) => drawn_into(partition_for(&format!("{}\0{session}", request.namespace)), draw),
    }
}

/// One id for each partition that [`run_id_for`] might have chosen.
pub(crate) fn possible_run_ids(draw: impl Fn(u32) -> RunId) -> Vec<RunId> {
    (0..Topic::AgentCommands.spec().partitions).map(|partition| drawn_into(partition, &draw)).collect()
}

pub(super) fn drawn_into<I: ToString>(partition: i32, draw: impl Fn(u32) -> I) -> I {
    let fits = |id: &I| partition_for(&id.to_string()) == partition;
    // Each draw fits with a chance of one in the number of partitions.
    (0..MAX_DRAWS).map(&draw).find(fits).unwrap_or_else(|| draw(0))
}

pub(super) fn partition_for(key: &str) -> i32 {
    partition_of(key.as_bytes(), Topic::AgentCommands.spec().partitions)
}

fn collections(checks: &mut Checks, given: Option<&[String]>) -> Option<Vec<String>> {
    for (index, name) in given?.iter().enumerate().take(MAX_NAMES + 1) {
        checks.take(&format!("collections[{index}]"), name.parse::<CollectionName>());
    }
    given.map(<[String]>::to_vec)
}

/// What a request leaves to defaults was filled in when it was accepted.
fn fits<T: PartialEq>(asked: &Option<T>, accepted: &Option<T>) -> bool {
    asked.is_none() || asked == accepted
}

/// The same of the model: one that names its provider was taken apart.
fn fits_model(asked: &RunRequest, accepted: &RunRequest) -> bool {
    let both = accepted.provider.as_ref().zip(accepted.model.as_ref());
    let joined = both.map(|(provider, model)| format!("{provider}/{model}"));
    fits(&asked.provider, &accepted.provider)
        && (fits(&asked.model, &accepted.model) || (asked.provider.is_none() && asked.model == joined))
}

/// The order of fields makes no other object.
fn same_metadata(asked: &RunRequest, accepted: &RunRequest) -> bool {
    let read = |request: &RunRequest| serde_json::from_str::<Value>(request.metadata_json.as_deref()?).ok();
    asked.metadata_json == accepted.metadata_json || read(asked).is_some_and(|fields| Some(fields) == read(accepted))
}

/// Whether a request asks for what an accepted one was.
pub fn same_request(asked: &RunRequest, accepted: &RunRequest) -> bool {
    asked.task == accepted.task
        && asked.namespace == accepted.namespace
        && asked.approval == accepted.approval
        && same_metadata(asked, accepted)
        && asked.session == accepted.session
        && asked.session_policy == accepted.session_policy
        && asked.after == accepted.after
        // Those that were accepted before chains had ids are known by what they wait for.
        && fits(&accepted.chain, &asked.chain)
        && fits(&asked.agent, &accepted.agent)
        && fits_model(asked, accepted)
        && fits(&asked.temperature, &accepted.temperature)
        && fits(&asked.max_iters, &accepted.max_iters)
        && fits(&asked.tools, &accepted.tools)
        && fits(&asked.collections, &accepted.collections)
        && fits(&asked.budget_tokens, &accepted.budget_tokens)
        && fits(&asked.budget_seconds, &accepted.budget_seconds)
}

/// Puts a run on the log.
pub async fn submit_run(
    producer: &Producer,
    run_id: RunId,
    request: RunRequest,
    component: &str,
) -> Result<StartRun, LogError> {
    let command = StartRun { run_id, request, at: now_ms() };
    producer.send(&AgentCommand::StartRun(command.clone()), component, None).await?;
    Ok(command)
}

/// Asks a run to stop.
pub async fn cancel_run(
    producer: &Producer,
    run_id: RunId,
    reason: Option<String>,
    component: &str,
) -> Result<(), ApiError> {
    let mut checks = Checks::default();
    checks.reason("reason", reason.as_deref());
    checks.finish()?;
    let command = CancelRun { run_id, reason, at: now_ms() };
    producer.send(&AgentCommand::CancelRun(command), component, None).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known() -> Known {
        let tool = |name: &str, namespace: Option<&str>, is_prefix| KnownTool {
            name: name.into(),
            namespace: namespace.map(|name| name.parse().unwrap()),
            is_prefix,
        };
        let tools = vec![tool("clock", None, false), tool("orders", Some("team"), false), tool("time__", None, true)];
        Known { tools, providers: vec!["local".into()] }
    }

    fn request(body: Value) -> Result<RunRequest, ApiError> {
        run_request(serde_json::from_value(body).unwrap(), &known())
    }

    #[test]
    fn given_run_bodies_that_can_not_be_when_they_are_checked_then_every_fault_is_named() {
        let long = "x".repeat(MAX_TASK + 1);
        for (body, fields) in [
            (json!({"task": ""}), vec!["task"]),
            (json!({"task": " \n\t"}), vec!["task"]),
            (json!({"task": long}), vec!["task"]),
            (json!({"task": "a\u{0}b"}), vec!["task"]),
            (json!({"task": "x", "agent": "root"}), vec!["agent"]),
            (json!({"task": "x", "agent": ""}), vec!["agent"]),
            (json!({"task": "x", "namespace": "../x"}), vec!["namespace"]),
            (json!({"task": "x", "namespace": "a__b"}), vec!["namespace"]),
            (json!({"task": "x", "provider": "nobody"}), vec!["provider"]),
            (json!({"task": "x", "temperature": 9}), vec!["temperature"]),
            (json!({"task": "x", "max_iters": 0}), vec!["max_iters"]),
            (json!({"task": "x", "tools": ["clock", "rm"]}), vec!["tools[1]"]),
            (json!({"task": "x", "collections": ["a__b"]}), vec!["collections[0]"]),
            (json!({"task": "x", "budget": {"tokens": -1, "seconds": 0}}), vec!["budget.tokens", "budget.seconds"]),
            (json!({"task": "", "agent": "nobody", "namespace": "%"}), vec!["task", "agent", "namespace"]),
        ] {
            let problem = request(body.clone()).unwrap_err().problem();
            let named: Vec<_> = problem.errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!((problem.status, named), (422, fields), "{body:.200}");
        }
        let unknown = request(json!({"task": "x", "agent": "root"})).unwrap_err().problem();
        assert!(unknown.detail.contains("react") && unknown.hint.is_some(), "{unknown:?}");
    }

    #[test]
    fn given_tools_when_a_run_names_them_then_only_those_of_its_namespace_are_known() {
        let fits = |namespace: &str, tool: &str| {
            request(json!({"task": "x", "namespace": namespace, "tools": [tool]})).is_ok()
        };
        for (namespace, tool, expected) in [
            ("team", "clock", true),
            ("team", "orders", true),
            ("team-b", "orders", false),
            ("tea", "orders", false),
            ("team", "time__now", true),
            ("team", "time", false),
            ("team", "time__", true),
        ] {
            assert_eq!(fits(namespace, tool), expected, "{namespace} {tool}");
        }
        let told = request(json!({"task": "x", "tools": ["orders"]})).unwrap_err().problem();
        assert!(!told.errors[0].reason.contains("orders,"), "no tool of another namespace is listed: {told:?}");
    }

    #[test]
    fn given_a_whole_body_when_it_is_checked_then_all_of_it_is_in_the_request() {
        let request = request(json!({
            "task": "x", "agent": "react", "namespace": "team-1", "session": "s", "provider": "local", "model": "m", "temperature": 0,
            "max_iters": 3, "tools": ["clock"], "collections": ["docs"], "budget": {"tokens": 10, "seconds": 20}, "approval": "always", "metadata": {"a": 1}
        }))
        .unwrap();
        assert_eq!(request.namespace.as_str(), "team-1");
        assert_eq!((request.budget_tokens, request.budget_seconds), (Some(10), Some(20)));
        assert_eq!(request.metadata_json.as_deref(), Some("{\"a\":1}"));
        assert!(same_request(&request, &request));
        let filled = RunRequest { max_iters: Some(8), temperature: Some(0.2), ..request.clone() };
        let asked = RunRequest { max_iters: None, temperature: None, ..request.clone() };
        assert!(same_request(&asked, &filled));
        assert!(!same_request(&RunRequest { task: "y".into(), ..asked }, &filled));
    }

    #[test]
    fn given_a_model_that_names_its_provider_when_it_was_taken_apart_then_the_request_is_still_the_same() {
        let named = |provider: Option<&str>, model: Option<&str>| RunRequest {
            provider: provider.map(str::to_owned),
            model: model.map(str::to_owned),
            ..RunRequest::default()
        };
        let accepted = named(Some("local"), Some("owner/m"));
        for (provider, model, same) in [
            (None, None, true),
            (Some("local"), None, true),
            (Some("local"), Some("owner/m"), true),
            (None, Some("owner/m"), true),
            (None, Some("local/owner/m"), true),
            (Some("local"), Some("local/owner/m"), false),
            (None, Some("local/m"), false),
            (None, Some("other/owner/m"), false),
            (Some("other"), None, false),
        ] {
            assert_eq!(same_request(&named(provider, model), &accepted), same, "{provider:?} {model:?}");
        }
        let unknown = named(None, Some("local/m"));
        assert!(same_request(&unknown, &unknown), "where nobody would answer it stays as it was asked for");
    }

    #[test]
    fn given_metadata_in_another_order_when_requests_are_compared_then_they_are_the_same_and_others_are_not() {
        let with =
            |metadata: Option<&str>| RunRequest { metadata_json: metadata.map(str::to_owned), ..RunRequest::default() };
        let accepted = with(Some(r#"{"a":1,"b":{"c":2,"d":3}}"#));
        for (metadata, same) in [
            (Some(r#"{"a":1,"b":{"c":2,"d":3}}"#), true),
            (Some(r#"{"b":{"d":3,"c":2},"a":1}"#), true),
            (Some(r#"{"a":1,"b":{"c":2}}"#), false),
            (Some("{}"), false),
            (None, false),
        ] {
            assert_eq!(same_request(&with(metadata), &accepted), same, "{metadata:?}");
        }
        assert!(same_request(&with(None), &with(None)));
    }

    #[test]
    fn given_a_session_when_ids_are_drawn_then_all_its_runs_have_one_partition_and_others_are_as_drawn() {
        let of_session = |session: Option<&str>| {
            request(match session {
                Some(session) => json!({"task": "x", "session": session}),
                None => json!({"task": "x"}),
            })
            .unwrap()
        };
        let derived = |key: usize| move |n: u32| RunId::derive(&[&key.to_string(), &n.to_string()]);
        for session in ["a", "b", "c"] {
            let request = of_session(Some(session));
            let partitions: Vec<i32> =
                (0..20).map(|key| partition_for(&run_id_for(&request, derived(key)).to_string())).collect();
            assert!(partitions.iter().all(|partition| *partition == partitions[0]), "{session}: {partitions:?}");
            assert!(possible_run_ids(derived(1)).contains(&run_id_for(&request, derived(1))));
        }
        assert_eq!(run_id_for(&of_session(None), derived(1)), derived(1)(0));
        assert_eq!(possible_run_ids(derived(1)).len(), 6);
        assert!(possible_run_ids(derived(1)).contains(&derived(1)(0)));
    }
}
