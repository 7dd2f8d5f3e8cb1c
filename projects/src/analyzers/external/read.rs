//! What the tools answer, as findings. Each function answers `None` for what is no answer of its tool.

use serde_json::{Deserializer, Value};

use super::table::PLAIN_ERROR;
use crate::finding::{Finding, Severity};

/// What a tool said.
pub(super) struct Said<'s> {
    pub(super) stdout: &'s str,
    pub(super) stderr: &'s str,
    /// The folder that it read, with a `/` at its end.
    pub(super) prefix: &'s str,
}

impl Said<'_> {
    /// A path within the copy.
    fn short<'f>(&self, file: &'f str) -> &'f str {
        let below = file.find(self.prefix).map_or(file, |at| &file[at + self.prefix.len()..]);
        below.trim_start_matches("./")
    }
}

/// Rules of a type checker that say only that a package is not installed here.
const NOT_INSTALLED: [&str; 3] = ["reportMissingImports", "reportMissingModuleSource", "unresolved-import"];
/// The same of `tsc`: modules, their types, types of node and of elements.
const NOT_INSTALLED_TS: [&str; 8] = ["TS2307", "TS2580", "TS2591", "TS2688", "TS2875", "TS7016", "TS7026", "TS2503"];

fn number(value: &Value) -> usize {
    value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(1)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A list of JSON.
pub(super) fn ruff(said: &Said<'_>) -> Option<Vec<Finding>> {
    let list: Vec<Value> = serde_json::from_str(said.stdout).ok()?;
    let finding = |one: &Value| {
        let file = one["filename"].as_str()?;
        let rule = one["code"].as_str().unwrap_or("syntax");
        let severity = if rule.starts_with('F') || rule.starts_with("E9") { Severity::Medium } else { Severity::Low };
        let place = (said.short(file), number(&one["location"]["row"]), number(&one["location"]["column"]));
        Some(Finding::new(("ruff", rule, severity), place, word(&one["message"]), word(&one["fix"]["message"])))
    };
    Some(list.iter().filter_map(finding).collect())
}

/// `path:line:column` with any path.
fn place(text: &str) -> Option<(&str, usize, usize)> {
    let mut parts = text.rsplitn(3, ':');
    let column = parts.next()?.parse().ok()?;
    let line = parts.next()?.parse().ok()?;
    Some((parts.next()?, line, column))
}

/// A line that a tool is known to write.
enum Line {
    Found(Finding),
    LeftOut,
}

/// Text without any known line is no answer.
fn lines(said: &Said<'_>, line: impl Fn(&str) -> Option<Line>) -> Option<Vec<Finding>> {
    let known: Vec<Line> = said.stdout.lines().filter_map(line).collect();
    if known.is_empty() && !said.stdout.trim().is_empty() {
        return None;
    }
    let found = |line| match line {
        Line::Found(finding) => Some(finding),
        Line::LeftOut => None,
    };
    Some(known.into_iter().filter_map(found).collect())
}

/// `path:line:column: error: message  [rule]`, and notes.
pub(super) fn mypy(said: &Said<'_>) -> Option<Vec<Finding>> {
    lines(said, |line| {
        if let Some((at, _)) = line.split_once(": note: ") {
            return place(at).map(|_| Line::LeftOut);
        }
        let (at, message) = line.split_once(": error: ")?;
        let (file, line, column) = place(at)?;
        let (message, rule) = message.rsplit_once("  [").unwrap_or((message, "error]"));
        let rule = ("mypy", rule.trim_end_matches(']'), Severity::Medium);
        Some(Line::Found(Finding::new(rule, (said.short(file), line, column), message, "")))
    })
}

/// `path:line:column: error[rule] message`, and a count.
pub(super) fn ty(said: &Said<'_>) -> Option<Vec<Finding>> {
    lines(said, |line| {
        if line.starts_with("All checks passed") || line.starts_with("Found ") {
            return Some(Line::LeftOut);
        }
        let (at, rest) = line.split_once(": ")?;
        let (file, line, column) = place(at)?;
        let (level, rest) = rest.split_once('[')?;
        let (rule, message) = rest.split_once("] ")?;
        if NOT_INSTALLED.contains(&rule) {
            return Some(Line::LeftOut);
        }
        let severity = if level == "error" { Severity::Medium } else { Severity::Low };
        Some(Line::Found(Finding::new(("ty", rule, severity), (said.short(file), line, column), message, "")))
    })
}

/// An object with a list of diagnostics, which count from 0.
pub(super) fn pyright(said: &Said<'_>) -> Option<Vec<Finding>> {
    let answer: Value = serde_json::from_str(said.stdout).ok()?;
    let finding = |one: &Value| {
        let rule = one["rule"].as_str().unwrap_or("error");
        if NOT_INSTALLED.contains(&rule) {
            return None;
        }
        let severity = match word(&one["severity"]) {
            "error" => Severity::Medium,
            "warning" => Severity::Low,
            _ => Severity::Info,
        };
        let start = &one["range"]["start"];
        let from_one = |value: &Value| value.as_u64().map_or(1, |_| number(value).saturating_add(1));
        let at = (said.short(one["file"].as_str()?), from_one(&start["line"]), from_one(&start["character"]));
        Some(Finding::new(("pyright", rule, severity), at, word(&one["message"]), ""))
    };
    Some(answer["generalDiagnostics"].as_array()?.iter().filter_map(finding).collect())
}

/// What ESLint says of JavaScript.
pub(super) fn eslint(said: &Said<'_>) -> Option<Vec<Finding>> {
    of_eslint("eslint", said)
}

/// What it says of TypeScript.
pub(super) fn typescript_eslint(said: &Said<'_>) -> Option<Vec<Finding>> {
    of_eslint("typescript-eslint", said)
}

/// The files that ESLint does not parse.
pub(super) fn not_parsed(said: &Said<'_>) -> usize {
    let list: Vec<Value> = serde_json::from_str(said.stdout).unwrap_or_default();
    let is_broken = |one: &&Value| one["messages"].as_array().into_iter().flatten().any(|told| told["fatal"] == true);
    list.iter().filter(is_broken).count()
}

/// A list of files with their messages. That a file does not parse is said by the analyzer of syntax; that a comment names a rule of a
/// plugin which is not used here says nothing of the project.
fn of_eslint(tool: &str, said: &Said<'_>) -> Option<Vec<Finding>> {
    let list: Vec<Value> = serde_json::from_str(said.stdout).ok()?;
    let mut found = Vec::new();
    for one in &list {
        let file = said.short(one["filePath"].as_str()?);
        for message in one["messages"].as_array()? {
            let Some(rule) = message["ruleId"].as_str() else { continue };
            if word(&message["message"]).starts_with("Definition for rule ") {
                continue;
            }
            let severity = if message["severity"] == 2 { Severity::Medium } else { Severity::Low };
            let at = (file, number(&message["line"]), number(&message["column"]));
            let fix = word(&message["suggestions"][0]["desc"]);
            found.push(Finding::new((tool, rule, severity), at, word(&message["message"]), fix));
        }
    }
    Some(found)
}

/// `path(line,column): error TS1: message`; what has no place is about the call and not about the project.
pub(super) fn tsc(said: &Said<'_>) -> Option<Vec<Finding>> {
    lines(said, |line| {
        let (at, rest) = line.split_once("): error ")?;
        let (file, at) = at.rsplit_once('(')?;
        let (row, column) = at.split_once(',')?;
        let (rule, message) = rest.split_once(": ")?;
        let place = (said.short(file), row.parse().ok()?, column.parse().ok()?);
        if NOT_INSTALLED_TS.contains(&rule) {
            return Some(Line::LeftOut);
        }
        Some(Line::Found(Finding::new(("tsc", rule, Severity::Medium), place, message, "")))
    })
}

/// Objects, one a package: by package, by analyzer, a list.
pub(super) fn go_vet(said: &Said<'_>) -> Option<Vec<Finding>> {
    // Before 1.26 it answers on standard error, of which only the beginning is kept.
    if said.stdout.trim().is_empty() && !said.stderr.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for package in Deserializer::from_str(said.stdout).into_iter::<Value>() {
        let package = package.ok()?;
        for analyzers in package.as_object()?.values().filter_map(Value::as_object) {
            for (rule, list) in analyzers {
                for one in list.as_array().into_iter().flatten() {
                    let (file, line, column) = place(word(&one["posn"]))?;
                    let at = (said.short(file), line, column);
                    found.push(Finding::new(
                        ("go-vet", rule.as_str(), Severity::Medium),
                        at,
                        word(&one["message"]),
                        "",
                    ));
                }
            }
        }
    }
    Some(found)
}

/// A line of JSON for each finding. A package that can't be loaded was not looked at: then there is no answer.
pub(super) fn staticcheck(said: &Said<'_>) -> Option<Vec<Finding>> {
    let mut found = Vec::new();
    for one in Deserializer::from_str(said.stdout).into_iter::<Value>() {
        let one = one.ok()?;
        let rule = one["code"].as_str().filter(|code| *code != "compile")?;
        let at = &one["location"];
        let place = (said.short(at["file"].as_str()?), number(&at["line"]), number(&at["column"]));
        let severity = if rule.starts_with("SA") { Severity::Medium } else { Severity::Low };
        found.push(Finding::new(("staticcheck", rule, severity), place, word(&one["message"]), ""));
    }
    Some(found)
}

/// A line of JSON for each message of the compiler, and others.
pub(super) fn clippy(said: &Said<'_>) -> Option<Vec<Finding>> {
    let messages: Vec<Value> = said.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if messages.is_empty() {
        return None;
    }
    let finding = |one: &Value| {
        let message = &one["message"];
        let is_error = message["level"] == "error";
        let rule = message["code"]["code"].as_str().or(is_error.then_some(PLAIN_ERROR))?;
        let span = message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
        let severity = if is_error { Severity::High } else { Severity::Low };
        let at = (said.short(span["file_name"].as_str()?), number(&span["line_start"]), number(&span["column_start"]));
        let help = message["children"].as_array().into_iter().flatten().find(|child| child["level"] == "help");
        Some(Finding::new(
            ("clippy", rule, severity),
            at,
            word(&message["message"]),
            help.map_or("", |help| word(&help["message"])),
        ))
    };
    let about = messages.iter().filter(|one| one["reason"] == "compiler-message");
    Some(about.filter_map(finding).collect())
}
