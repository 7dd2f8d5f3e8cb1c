//! Programs that others make: a linter and a type checker, used when they are installed. They read a temporary folder in the
//! sandbox, without network. Those that execute code of the project (cargo, tsc with plugins) are not started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riverrun_agents::tools::sandbox::{Confinement, Finished, Invocation, Sandbox};
use serde_json::Value;

use super::{MAX_FINDINGS, ToolRun};
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::folder::{lay_out, on_path};
use crate::language::Language;

/// The programs, with what installs them.
const PROGRAMS: [(&str, &str); 2] = [("ruff", "pip install ruff"), ("mypy", "pip install mypy")];

/// How long one may take.
const MAX_TIME: Duration = Duration::from_secs(120);
/// Most bytes that one may say.
const MAX_OUTPUT: usize = 32 << 20;

pub(super) async fn analyze(files: &Files, sandbox: Option<&Sandbox>) -> Vec<(ToolRun, Vec<Finding>)> {
    let python: Vec<(&String, &bytes::Bytes)> =
        files.iter().filter(|(path, _)| Language::of(path) == Some(Language::Python)).collect();
    let mut runs = Vec::new();
    if python.is_empty() {
        return runs;
    }
    let folder = match lay_out(python.iter().copied()) {
        Ok(folder) => folder,
        Err(error) => {
            let why = format!("there is no place for its files: {error}");
            return PROGRAMS
                .iter()
                .map(|(name, _)| (told(name, "failed", why.clone(), "free some space"), Vec::new()))
                .collect();
        }
    };
    for (name, install) in PROGRAMS {
        let begun = Instant::now();
        let (mut run, found) = match (on_path(name).and_then(|program| program.canonicalize().ok()), sandbox) {
            (None, _) => (told(name, "missing", format!("{name} is not installed"), install), Vec::new()),
            (_, None) => {
                (told(name, "skipped", "this program has no sandbox".to_owned(), "use the riverrun binary"), Vec::new())
            }
            (Some(program), Some(sandbox)) => start(name, program, folder.path(), sandbox).await,
        };
        run.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        runs.push((run, found));
    }
    runs
}

fn told(name: &str, status: &str, detail: String, fix: &str) -> ToolRun {
    ToolRun {
        name: name.to_owned(),
        status: status.to_owned(),
        findings: 0,
        took_ms: 0,
        detail: Some(detail),
        fix: Some(fix.to_owned()),
    }
}

async fn start(name: &str, program: PathBuf, folder: &Path, sandbox: &Sandbox) -> (ToolRun, Vec<Finding>) {
    let place = folder.display().to_string();
    let arguments: Vec<String> = match name {
        "ruff" => vec!["check", "--isolated", "--no-cache", "--exit-zero", "--output-format", "json", place.as_str()],
        _ => vec![
            "--config-file=",
            "--no-incremental",
            "--ignore-missing-imports",
            "--show-column-numbers",
            "--no-error-summary",
            "--no-color-output",
            "--cache-dir=/dev/null",
            place.as_str(),
        ],
    }
    .into_iter()
    .map(str::to_owned)
    .collect();
    // A Python program lies in `bin` beside the `lib` that it needs.
    let home = program.parent().and_then(Path::parent).map(Path::to_owned);
    let confinement = Confinement {
        read: home.into_iter().chain([folder.to_owned()]).collect(),
        memory_bytes: 0,
        cpu_seconds: MAX_TIME.as_secs(),
        processes: 256,
        ..Confinement::default()
    };
    let invocation = Invocation {
        program,
        arguments,
        environment: BTreeMap::new(),
        stdin: None,
        confinement,
        max_output: MAX_OUTPUT,
    };
    let fix = "run it by hand to see why";
    match tokio::time::timeout(MAX_TIME, sandbox.run(invocation)).await {
        Err(_) => (told(name, "failed", format!("no answer within {} s", MAX_TIME.as_secs()), fix), Vec::new()),
        Ok(Err(error)) => (told(name, "failed", error.to_string(), fix), Vec::new()),
        Ok(Ok(finished)) => read(name, &finished, &format!("{place}/")),
    }
}

fn read(name: &str, finished: &Finished, prefix: &str) -> (ToolRun, Vec<Finding>) {
    let text = String::from_utf8_lossy(&finished.stdout);
    let found = if name == "ruff" { ruff(&text, prefix) } else { Some(mypy(&text, prefix)) };
    let is_done = finished.code.is_some_and(|code| code <= 1);
    match found.filter(|_| is_done) {
        None => {
            let why: String = finished.stderr.chars().take(300).collect();
            (told(name, "failed", format!("it broke off: {why}"), "run it by hand to see why"), Vec::new())
        }
        Some(mut found) => {
            found.truncate(MAX_FINDINGS);
            let run = ToolRun {
                name: name.to_owned(),
                status: "ran".to_owned(),
                findings: found.len(),
                took_ms: 0,
                detail: None,
                fix: None,
            };
            (run, found)
        }
    }
}

fn ruff(text: &str, prefix: &str) -> Option<Vec<Finding>> {
    let list: Vec<Value> = serde_json::from_str(text).ok()?;
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(1);
    let finding = |one: &Value| {
        let file = one["filename"].as_str()?;
        let rule = one["code"].as_str().unwrap_or("syntax");
        let severity = if rule.starts_with('F') || rule.starts_with("E9") { Severity::Medium } else { Severity::Low };
        let place = (short(file, prefix), number(&one["location"]["row"]), number(&one["location"]["column"]));
        let fix = one["fix"]["message"].as_str().unwrap_or_default();
        Some(Finding::new(("ruff", rule, severity), place, one["message"].as_str().unwrap_or_default(), fix))
    };
    Some(list.iter().filter_map(finding).collect())
}

/// `path:line:column: error: message  [rule]`
fn mypy(text: &str, prefix: &str) -> Vec<Finding> {
    let finding = |line: &str| {
        let (place, message) = line.split_once(": error: ")?;
        let mut parts = place.rsplitn(3, ':');
        let column = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok()?;
        let file = parts.next()?;
        let (message, rule) = message.rsplit_once("  [").unwrap_or((message, "error]"));
        let rule = ("mypy", rule.trim_end_matches(']'), Severity::Medium);
        Some(Finding::new(rule, (short(file, prefix), number, column), message, ""))
    };
    text.lines().filter_map(finding).collect()
}

fn short<'f>(file: &'f str, prefix: &str) -> &'f str {
    file.find(prefix).map_or(file, |at| &file[at + prefix.len()..])
}
