//! What an analysis came to: for people, as JSON, and as SARIF 2.1.0
//! (<https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>).

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::analyzers::{Analyzed, SECRETS, ToolRun};
use crate::copy::Files;
use crate::finding::{Finding, Severity, sort_worst_first};
use crate::imports::Imports;
use crate::language::{Language, lone_returns};
use crate::masks::Masks;
use crate::review::Review;
use crate::surface::{self, Surface, SurfaceChange};
use crate::text::FileText;

mod columns;
mod comparison;

pub use comparison::{NotCompared, Trend, trend};

/// Files that the figures name, the worst first.
const MAX_FILE_METRICS: usize = 50;

/// Findings, counted: those too that a report does not list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// All.
    pub findings: usize,
    /// By severity; each has an entry.
    pub by_severity: BTreeMap<String, usize>,
    /// By analyzer.
    pub by_tool: BTreeMap<String, usize>,
    /// Files of the copy.
    pub files: usize,
    /// Lines of files whose language is known.
    pub lines: usize,
}

/// Figures of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMetrics {
    /// Its path.
    pub file: String,
    /// Its lines.
    pub lines: usize,
    /// Ways through it.
    pub complexity: usize,
    /// Findings in it.
    pub findings: usize,
}

/// What an analysis came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Counts.
    pub summary: Summary,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// Whether some are only counted.
    pub findings_truncated: bool,
    /// Figures by name.
    pub metrics: BTreeMap<String, f64>,
    /// The worst files first.
    pub file_metrics: Vec<FileMetrics>,
    /// What each analyzer did.
    pub tools: Vec<ToolRun>,
    /// What a model says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
    /// What the project offers to others; reports of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
    /// What became of it since the analysis before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface_change: Option<SurfaceChange>,
    /// Which of its files import which; reports of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports: Option<Imports>,
    /// How long it took.
    pub took_ms: u64,
}

/// How many lines a file has, as its language counts them.
pub fn lines(file: &str, content: &[u8]) -> usize {
    let feeds = content.iter().filter(|byte| **byte == b'\n').count();
    let counts_returns = Language::of(file).is_some_and(Language::ends_lines_with_returns);
    let returns = if counts_returns { lone_returns(content) } else { 0 };
    let is_ended = content.ends_with(b"\n") || returns > 0 && content.ends_with(b"\r");
    feeds + returns + usize::from(!content.is_empty() && !is_ended)
}

impl Report {
    /// Orders and counts.
    pub fn new(files: &Files, analyzed: Analyzed, took_ms: u64) -> Self {
        let mut findings = analyzed.findings;
        redact(files, &mut findings);
        columns::in_characters(files, &mut findings);
        sort_worst_first(&mut findings);
        number(&mut findings);
        let findings_truncated = analyzed.left_out.total() > 0;
        let mut counts = analyzed.left_out;
        findings.iter().for_each(|one| counts.add(one));
        let of_severity = |severity: Severity| counts.by_severity.get(&severity).copied().unwrap_or(0);
        let mut summary = Summary {
            findings: counts.total(),
            by_severity: Severity::ALL.map(|one| (one.as_str().to_owned(), of_severity(one))).into(),
            by_tool: counts.by_tool,
            files: files.len(),
            lines: 0,
        };
        let mut file_metrics = Vec::new();
        for (file, content) in files.iter().filter(|(file, _)| Language::of(file).is_some()) {
            let lines = lines(file, content);
            summary.lines += lines;
            let complexity = analyzed.complexity.get(file).copied().unwrap_or(0);
            let findings = counts.by_file.get(file).copied().unwrap_or(0);
            file_metrics.push(FileMetrics { file: file.clone(), lines, complexity, findings });
        }
        file_metrics.sort_by(|a, b| (b.findings, b.complexity, &a.file).cmp(&(a.findings, a.complexity, &b.file)));
        file_metrics.truncate(MAX_FILE_METRICS);
        let complexity: usize = analyzed.complexity.values().sum();
        let metrics = BTreeMap::from([
            ("lines".to_owned(), summary.lines as f64),
            ("complexity".to_owned(), complexity as f64),
            ("public_names".to_owned(), analyzed.surface.count as f64),
            ("findings_per_1000_lines".to_owned(), per_thousand(summary.findings, summary.lines)),
        ]);
        Self {
            summary,
            findings,
            findings_truncated,
            metrics,
            file_metrics,
            tools: analyzed.tools,
            review: None,
            surface: Some(analyzed.surface),
            surface_change: None,
            imports: Some(analyzed.imports),
            took_ms,
        }
    }

    /// What became of the names that it offers since an earlier report; nothing is known when that one is of an earlier version.
    pub fn surface_since(&self, earlier: &Report) -> Option<SurfaceChange> {
        Some(surface::compare(earlier.surface.as_ref()?, self.surface.as_ref()?))
    }

    /// Whether an analyzer did its work.
    fn has_run(&self, tool: &str) -> bool {
        self.tools.iter().any(|run| run.name == tool && run.has_run())
    }

    /// As SARIF 2.1.0: a run for each analyzer that did its work, and for each that failed at it. One that is not there, or was not to
    /// run, has none.
    pub fn sarif(&self) -> Value {
        let begun = self.tools.iter().filter(|tool| tool.has_run() || has_failed(tool));
        let runs: Vec<Value> = begun.map(|tool| self.run(tool)).collect();
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": runs,
        })
    }

    fn run(&self, tool: &ToolRun) -> Value {
        let own: Vec<&Finding> = self.findings.iter().filter(|finding| finding.tool == tool.name).collect();
        let mut rules: Vec<&str> = own.iter().map(|finding| finding.rule.as_str()).collect();
        rules.sort_unstable();
        rules.dedup();
        let results: Vec<Value> = own.iter().map(|finding| result(finding)).collect();
        let rules: Vec<Value> = rules.into_iter().map(|rule| json!({ "id": rule })).collect();
        let mut run = json!({
            "tool": { "driver": { "name": tool.name, "rules": rules } },
            "columnKind": "unicodeCodePoints",
        });
        // Without results nothing was looked at (3.14.23): an empty list would say that nothing is wrong.
        if tool.has_run() || !results.is_empty() {
            run["results"] = json!(results);
        }
        if let Some(invocation) = invocation(tool) {
            run["invocations"] = json!([invocation]);
        }
        run
    }
}

fn has_failed(tool: &ToolRun) -> bool {
    tool.status == "failed"
}

/// What there is to say of how it ran; an analyzer that ran and has something to tell did not do all of it.
fn invocation(tool: &ToolRun) -> Option<Value> {
    let (level, text) = match (has_failed(tool), tool.detail.as_deref()) {
        (false, told) => ("warning", told?.to_owned()),
        (true, told) => {
            let why = told.unwrap_or("it did not come to its end");
            ("error", tool.fix.as_ref().map_or_else(|| why.to_owned(), |fix| format!("{why}; {fix}")))
        }
    };
    let notification = json!({ "level": level, "message": { "text": text } });
    Some(json!({ "executionSuccessful": !has_failed(tool), "toolExecutionNotifications": [notification] }))
}

/// Takes secrets out of what others say of a file: a type checker quotes the texts that it checks.
fn redact(files: &Files, findings: &mut [Finding]) {
    let mut by_file: HashMap<String, Masks> = HashMap::new();
    for one in findings.iter_mut().filter(|one| one.tool != SECRETS) {
        let Some(content) = files.get(&one.file) else { continue };
        let masks = by_file.entry(one.file.clone()).or_insert_with(|| {
            FileText::read(content).map(|text| Masks::of(&one.file, &text.text)).unwrap_or_default()
        });
        one.message = masks.redact(&one.message).into_owned();
        one.fix = one.fix.take().map(|fix| masks.redact(&fix).into_owned());
    }
}

/// Findings that are alike get ids of their own, by their order: when one of them goes, one id goes.
fn number(findings: &mut [Finding]) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for one in findings {
        let times = seen.entry(one.id.clone()).or_default();
        *times += 1;
        if *times > 1 {
            one.id = format!("{}-{times}", one.id);
        }
    }
}

fn per_thousand(findings: usize, lines: usize) -> f64 {
    if lines == 0 { 0.0 } else { findings as f64 * 1_000.0 / lines as f64 }
}

fn result(finding: &Finding) -> Value {
    let level = match finding.severity {
        Severity::Critical | Severity::High => "error",
        Severity::Medium => "warning",
        Severity::Low | Severity::Info => "note",
    };
    let mut properties = json!({ "severity": finding.severity.as_str() });
    if let Some(fix) = &finding.fix {
        properties["fix"] = json!(fix);
    }
    json!({
        "ruleId": finding.rule,
        "level": level,
        "message": { "text": finding.message },
        "partialFingerprints": { "riverrun/v2": finding.id },
        "properties": properties,
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(&finding.file) },
            "region": { "startLine": finding.line.max(1), "startColumn": finding.column.max(1) },
        } }],
    })
}

/// A relative reference (RFC 3986).
fn uri(file: &str) -> String {
    file.bytes()
        .map(|byte| match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, status: &str, detail: Option<&str>, fix: Option<&str>) -> ToolRun {
        let (detail, fix) = (detail.map(str::to_owned), fix.map(str::to_owned));
        ToolRun { status: status.to_owned(), detail, fix, ..ToolRun::ran(name, 0) }
    }

    #[test]
    fn given_analyzers_that_ran_failed_and_were_not_there_when_a_report_is_sarif_then_each_that_failed_is_a_run_that_says_so()
     {
        let tools = vec![
            run("clean", "ran", None, None),
            run("partly", "ran", Some("2 files were left out"), None),
            run("broken", "failed", Some("it ended with status 3"), Some("look at its configuration")),
            run("silent", "failed", None, None),
            run("away", "missing", Some("away is not installed"), Some("install it")),
            run("off", "skipped", Some("not allowed"), None),
        ];
        let files = Files::from([("a.py".to_owned(), "y = 1\n".into())]);
        let analyzed = Analyzed { tools, ..Analyzed::default() };
        let sarif = Report::new(&files, analyzed, 1).sarif();
        let told = |run: &Value| {
            let invocation = &run["invocations"][0];
            let notification = &invocation["toolExecutionNotifications"][0];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = text(&run["tool"]["driver"]["name"]);
            let successful = invocation["executionSuccessful"].as_bool();
            (
                name,
                run.get("results").is_some(),
                successful,
                text(&notification["level"]),
                text(&notification["message"]["text"]),
            )
        };
        let runs: Vec<_> = sarif["runs"].as_array().unwrap().iter().map(told).collect();
        let expected = [
            ("clean", true, None, "", ""),
            ("partly", true, Some(true), "warning", "2 files were left out"),
            ("broken", false, Some(false), "error", "it ended with status 3; look at its configuration"),
            ("silent", false, Some(false), "error", "it did not come to its end"),
        ];
        let expected = expected.map(|(name, looked, successful, level, text)| {
            (name.to_owned(), looked, successful, level.to_owned(), text.to_owned())
        });
        assert_eq!(runs, expected);
    }

    #[test]
    fn given_files_of_each_end_when_lines_are_counted_then_they_are_as_many_as_the_language_has() {
        for (file, content, expected) in [
            ("a.py", "", 0),
            ("a.py", "a", 1),
            ("a.py", "a\nb\n", 2),
            ("a.py", "a\r\nb\r\n", 2),
            ("a.py", "a\rb\r", 2),
            ("a.js", "a\rb\nc", 3),
            ("a.rs", "a\rb\r", 1),
        ] {
            assert_eq!(lines(file, content.as_bytes()), expected, "{file} {content:?}");
        }
    }
}
