//! The conditions of `--from-runs`: which runs a dataset is made of. Pure.
//!
//! `name=value and name=value …`. A value is a word, or anything between quotes. Numbers may also be asked for as `name<=value`.

use riverrun_api::wire::{RunSummary, RunView};
use riverrun_schemas::Namespace;
use riverrun_schemas::agent::StepKind;
use riverrun_stores::read_models::Timestamp;
use serde_json::{Value, json};

use crate::error::{CliError, Exit};

/// Runs that are looked at, at most.
pub(super) const MAX_RUNS: usize = 5_000;
/// Longest text of conditions, in bytes: a field of the form that takes it.
const MAX_TEXT: usize = 4 << 10;
const METADATA: &str = "metadata.";

/// What the list of runs is asked for.
const LISTED: [&str; 4] = ["agent", "status", "session", "chain"];

/// A bound on a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    value: i64,
    exact: bool,
}

impl Bound {
    fn holds(self, number: i64) -> bool {
        if self.exact { number == self.value } else { number <= self.value }
    }
}

/// Which runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    /// As they were written.
    pub(super) text: String,
    listed: Vec<(&'static str, String)>,
    since: Option<i64>,
    until: Option<i64>,
    steps: Option<Bound>,
    tokens: Option<Bound>,
    tool_errors: Option<Bound>,
    metadata: Vec<(String, String)>,
    limit: Option<usize>,
}

/// What comes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is one of them.
    Yes,
    /// It is none.
    No,
    /// It is none, and no older one is.
    Over,
}

impl Conditions {
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        if text.len() > MAX_TEXT {
            return Err(bad(format!("--from-runs has {} bytes, more than {MAX_TEXT}", text.len())));
        }
        let mut conditions = Self { text: text.trim().to_owned(), ..Self::default() };
        let mut seen: Vec<String> = Vec::new();
        for part in parts(text)? {
            let (name, exact, value) = condition(&part)?;
            if seen.contains(&name) {
                return Err(bad(format!("--from-runs: {name} is asked for twice")));
            }
            conditions.add(&name, exact, value)?;
            seen.push(name);
        }
        Ok(conditions)
    }

    fn add(&mut self, name: &str, exact: bool, value: String) -> Result<(), CliError> {
        let number = |value: &str| match value.parse::<i64>() {
            Ok(number) if number >= 0 => Ok(number),
            Ok(_) | Err(_) => Err(bad(format!("--from-runs: {name} is {value:?}, not a number from 0"))),
        };
        match name {
            "steps" => self.steps = Some(Bound { value: number(&value)?, exact }),
            "tokens" => self.tokens = Some(Bound { value: number(&value)?, exact }),
            "tool_errors" => self.tool_errors = Some(Bound { value: number(&value)?, exact }),
            _ if !exact => return Err(bad(format!("--from-runs: {name} is asked for with =, not with <="))),
            "since" => self.since = Some(time(name, &value)?),
            "until" => self.until = Some(time(name, &value)?),
            "namespace" => own_namespace(&value)?,
            "limit" => match value.parse() {
                Ok(limit) if (1..=MAX_RUNS).contains(&limit) => self.limit = Some(limit),
                Ok(_) | Err(_) => {
                    return Err(bad(format!("--from-runs: limit is {value:?}, not between 1 and {MAX_RUNS}")));
                }
            },
            _ => match (LISTED.into_iter().find(|known| *known == name), name.strip_prefix(METADATA)) {
                (Some(known), _) => self.listed.push((known, value)),
                (None, Some(key)) if !key.is_empty() => self.metadata.push((key.to_owned(), value)),
                (None, _) => return Err(bad(format!("--from-runs: {name:?} can't be asked for"))),
            },
        }
        Ok(())
    }

    /// What the list of runs is asked for: always for those of one namespace.
    pub(super) fn query(&self) -> Vec<(&'static str, Option<String>)> {
        let own = ("namespace", Some(Namespace::default().to_string()));
        self.listed.iter().map(|(name, value)| (*name, Some(value.clone()))).chain([own]).collect()
    }

    /// Examples at most.
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(MAX_RUNS)
    }

    /// By what a list says of a run. Lists begin with the newest.
    pub(super) fn of_summary(&self, run: &RunSummary) -> Fit {
        let at = run.created_at.0;
        if self.since.is_some_and(|since| at < since) {
            return Fit::Over;
        }
        let fits = self.until.is_none_or(|until| at < until)
            && self.steps.is_none_or(|steps| steps.holds(run.steps))
            && self.tokens.is_none_or(|tokens| tokens.holds(run.usage.total_tokens));
        if fits { Fit::Yes } else { Fit::No }
    }

    /// By the whole of a run.
    pub(super) fn of_run(&self, run: &RunView) -> bool {
        self.tool_errors.is_none_or(|most| most.holds(tool_errors(run)))
            && self.metadata.iter().all(|(key, value)| is_said(run.metadata.as_ref(), key, value))
    }
}

/// Results of tools that are failures.
fn tool_errors(run: &RunView) -> i64 {
    let failed = run.steps.iter().filter(|step| {
        step.kind == StepKind::ToolResult && step.tool.as_ref().is_some_and(|tool| tool.error.is_some())
    });
    i64::try_from(failed.count()).unwrap_or(i64::MAX)
}

/// Whether the caller's own JSON says that of a key: a text as it is, anything else as it is written.
fn is_said(metadata: Option<&Value>, key: &str, value: &str) -> bool {
    match metadata.and_then(|metadata| metadata.get(key)) {
        Some(Value::String(text)) => text == value,
        Some(other) => serde_json::to_string(other).is_ok_and(|written| written == value),
        None => false,
    }
}

/// Datasets belong to the machine, as do the models that are trained on them: no other namespace's runs go into one.
fn own_namespace(value: &str) -> Result<(), CliError> {
    let own = Namespace::default();
    if value == own.as_str() {
        return Ok(());
    }
    let what =
        format!("--from-runs: namespace is {value:?}, and datasets are made of runs of the namespace {own} only");
    Err(CliError::new(Exit::Refused, what).hint(
        "leave namespace out; a dataset belongs to the machine and what is trained on it to every namespace, so texts of another one go in only as a file: --jsonl",
    ))
}

/// A day, or a moment with its zone.
fn time(name: &str, value: &str) -> Result<i64, CliError> {
    let whole = if value.len() == "2026-01-31".len() { format!("{value}T00:00:00Z") } else { value.to_owned() };
    match serde_json::from_value::<Timestamp>(json!(whole)) {
        Ok(time) => Ok(time.0),
        Err(_) => Err(bad(format!(
            "--from-runs: {name} is {value:?}, neither a day (2026-01-31) nor a time (2026-01-31T12:00:00Z)"
        ))),
    }
}

fn bad(what: String) -> CliError {
    CliError::new(Exit::Usage, what).hint(
        "'agent=react and status=succeeded and tool_errors=0'; agent, status, namespace, session, chain, since, until, steps, tokens, tool_errors, limit and metadata.KEY can be asked for",
    )
}

/// Splits at each `and` outside of quotes.
fn parts(text: &str) -> Result<Vec<String>, CliError> {
    const AND: &str = " and ";
    let (mut parts, mut part, mut quoted, mut rest) = (Vec::new(), String::new(), false, text);
    while let Some(next) = rest.chars().next() {
        let is_and = rest.get(..AND.len()).is_some_and(|start| start.eq_ignore_ascii_case(AND));
        if is_and && !quoted {
            parts.push(std::mem::take(&mut part));
            rest = &rest[AND.len()..];
            continue;
        }
        quoted ^= next == '"';
        part.push(next);
        rest = &rest[next.len_utf8()..];
    }
    if quoted {
        return Err(bad(format!("--from-runs: a quote is not closed in {:?}", part.trim())));
    }
    parts.push(part);
    if parts.len() == 1 && parts[0].trim().is_empty() {
        return Ok(Vec::new());
    }
    Ok(parts)
}

/// The name, whether it is `=`, and the value.
fn condition(part: &str) -> Result<(String, bool, String), CliError> {
    let part = part.trim();
    let none = || bad(format!("--from-runs: {part:?} is no condition"));
    let (name, value) = part.split_once('=').ok_or_else(none)?;
    let (name, exact) = name.strip_suffix('<').map_or((name, true), |name| (name, false));
    let (name, value) = (name.trim(), value.trim());
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(is_name) || value.is_empty() {
        return Err(none());
    }
    let value = match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
        Some(inside) if !inside.contains('"') => inside,
        Some(_) => return Err(none()),
        None if value.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '=' | ',')) => {
            return Err(bad(format!("--from-runs: the value of {name} is to be put into quotes: {name}=\"…\"")));
        }
        None => value,
    };
    Ok((name.to_owned(), exact, value.to_owned()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn query(text: &str) -> Vec<(&'static str, Option<String>)> {
        Conditions::parse(text).unwrap().query()
    }

    /// A run that has succeeded, with other values in their place.
    pub(crate) fn run(more: &Value) -> RunView {
        let mut view = json!({
            "run_id": "run_01h455vb4pex5vsknk084sn02q", "status": "succeeded", "namespace": "default", "task": "t", "agent": "react",
            "answer": "a", "citations": [], "steps": [], "usage": { "prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3 },
            "stop_reason": null, "trace_id": null, "created_at": "2026-01-01T00:00:00Z", "finished_at": null,
        });
        for (key, value) in more.as_object().unwrap() {
            view[key] = value.clone();
        }
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn given_conditions_then_the_list_is_asked_for_them_and_always_for_the_machines_own_namespace() {
        let own = ("namespace", Some("default".to_owned()));
        assert_eq!(query(""), std::slice::from_ref(&own));
        let asked = query("agent=react AND status = succeeded and session=\"rock and roll\"");
        let said = |name, value: &str| (name, Some(value.to_owned()));
        let wanted = [said("agent", "react"), said("status", "succeeded"), said("session", "rock and roll"), own];
        assert_eq!(asked, wanted);
        assert_eq!(query("namespace=default"), query(""));
        for foreign in ["team", "*", "Default", "default2"] {
            let refused = Conditions::parse(&format!("agent=react and namespace={foreign}")).unwrap_err();
            let told = format!("{refused:?}");
            assert!(told.contains(foreign) && told.contains("Refused") && told.contains("--jsonl"), "{told}");
        }
    }

    #[test]
    fn given_what_is_no_condition_then_it_is_refused_with_what_can_be_asked_for() {
        for text in [
            "agent",
            "agent=",
            "=react",
            "mood=good",
            "status>3",
            "agent=react and x",
            "agent=react and ",
            "agent=react and agent=plan",
            "agent=react, status=succeeded",
            "session=rock roll",
            "session=\"rock",
            "session=\"a\"b\"",
            "agent<=react",
            "tool_errors=few",
            "tool_errors=-1",
            "limit=0",
            "limit=5001",
            "since=yesterday",
            "until=2026-13-01",
            "metadata.=x",
        ] {
            let error = Conditions::parse(text).unwrap_err();
            assert!(format!("{error:?}").contains("tool_errors"), "{text}: {error:?}");
        }
        assert!(Conditions::parse(&format!("agent={}", "a".repeat(MAX_TEXT))).is_err());
    }

    #[test]
    fn given_a_run_then_dates_numbers_failed_tools_and_metadata_are_looked_at() {
        let summary = |at: &str| -> RunSummary {
            serde_json::from_value(json!({
                "run_id": "run_01h455vb4pex5vsknk084sn02q", "status": "succeeded", "namespace": "default", "task": "t", "agent": "react",
                "steps": 4, "usage": { "prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3 }, "stop_reason": null,
                "created_at": at, "finished_at": null,
            }))
            .unwrap()
        };
        let of = |text: &str, at: &str| Conditions::parse(text).unwrap().of_summary(&summary(at));
        let day = "2026-01-02T12:00:00Z";
        assert_eq!(of("since=2026-01-02 and until=2026-01-03", day), Fit::Yes);
        assert_eq!((of("since=2026-01-03", day), of("until=2026-01-02", day)), (Fit::Over, Fit::No));
        assert_eq!(
            (of("steps<=4 and tokens<=3", day), of("steps<=3", day), of("tokens=2", day)),
            (Fit::Yes, Fit::No, Fit::No)
        );
        let step = |error: Option<&str>| {
            json!({ "seq": 1, "kind": "tool_result", "agent": "react", "at": day,
                "tool": { "call_id": "c", "name": "t", "arguments": {}, "error": error } })
        };
        let run =
            run(&json!({ "steps": [step(None), step(Some("no"))], "metadata": { "topic": "birds", "round": 2 } }));
        let fits = |text: &str| Conditions::parse(text).unwrap().of_run(&run);
        assert!(fits("tool_errors<=1 and metadata.topic=birds and metadata.round=2") && fits("tool_errors=1"));
        assert!(!fits("tool_errors=0") && !fits("metadata.topic=fish") && !fits("metadata.none=1"));
    }
}
