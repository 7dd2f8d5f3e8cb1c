//! One thing that was found.

use std::collections::BTreeMap;

use riverrun_log::blobs::sha256_hex;
use serde::{Deserialize, Serialize};

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Must not stay.
    Critical,
    /// Very likely a defect.
    High,
    /// Should be looked at.
    Medium,
    /// Could be better.
    Low,
    /// To know.
    Info,
}

impl Severity {
    /// All, the worst first.
    pub const ALL: [Severity; 5] =
        [Severity::Critical, Severity::High, Severity::Medium, Severity::Low, Severity::Info];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::High => "high",
            Severity::Medium => "medium",
            Severity::Low => "low",
            Severity::Info => "info",
        }
    }
}

/// One thing that was found. It never quotes a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Follows from tool, rule, file and message without its numbers: the same after lines moved. The second of a kind in a report
    /// has `-2` at its end, so that one of several that goes is seen.
    pub id: String,
    /// Which analyzer.
    pub tool: String,
    /// Stable name of the rule.
    pub rule: String,
    /// How bad.
    pub severity: Severity,
    /// Path within the copy.
    pub file: String,
    /// Counts from 1.
    pub line: usize,
    /// Counts from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Other files that it is about. They are named in the message, as far as there is room.
    #[serde(skip)]
    pub others: Vec<String>,
}

impl Finding {
    /// A finding at a place; `line` and `column` count from 1.
    pub fn new(
        (tool, rule, severity): (&str, &str, Severity),
        (file, line, column): (&str, usize, usize),
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (message, fix) = (message.into(), fix.into());
        let hash = sha256_hex(format!("{tool}\n{rule}\n{file}\n{}", without_numbers(&message)).as_bytes());
        Self {
            id: format!("fnd_{}", &hash[..16]),
            tool: tool.to_owned(),
            rule: rule.to_owned(),
            severity,
            file: file.to_owned(),
            line,
            column,
            message,
            fix: (!fix.is_empty()).then_some(fix),
            others: Vec::new(),
        }
    }

    /// The same, about other files too.
    pub(crate) fn with_others(self, others: impl IntoIterator<Item = String>) -> Self {
        Self { others: others.into_iter().collect(), ..self }
    }

    /// Whether a change of a file may mend it.
    pub(crate) fn concerns(&self, file: &str) -> bool {
        self.file == file || self.others.iter().any(|other| other == file)
    }
}

/// How many findings there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// By severity.
    pub by_severity: BTreeMap<Severity, usize>,
    /// By analyzer.
    pub by_tool: BTreeMap<String, usize>,
    /// By file.
    pub by_file: BTreeMap<String, usize>,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, finding: &Finding) {
        *self.by_severity.entry(finding.severity).or_default() += 1;
        *self.by_tool.entry(finding.tool.clone()).or_default() += 1;
        *self.by_file.entry(finding.file.clone()).or_default() += 1;
    }

    /// All.
    pub fn total(&self) -> usize {
        self.by_severity.values().sum()
    }
}

/// The worst first, and those that are as bad by their places.
pub(crate) fn sort_worst_first(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        (a.severity, &a.file, a.line, &a.rule, &a.message).cmp(&(b.severity, &b.file, b.line, &b.rule, &b.message))
    });
}

/// A message without numbers that stand alone, such as lines and counts; names and versions keep theirs.
fn without_numbers(message: &str) -> String {
    let chars: Vec<char> = message.chars().collect();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '@' | '=');
    let mut out = String::with_capacity(message.len());
    let mut at = 0;
    while at < chars.len() {
        let end = at + chars[at..].iter().take_while(|c| c.is_ascii_digit()).count();
        let before = at.checked_sub(1).map(|index| chars[index]);
        let after = (chars.get(end).copied(), chars.get(end + 1).copied());
        let is_begun = before.is_some_and(|c| is_part(c) || c == '.');
        let goes_on = match after {
            (Some('.'), Some(next)) => next.is_alphanumeric(),
            (Some(next), _) => is_part(next),
            (None, _) => false,
        };
        if end > at && !is_begun && !goes_on {
            out.push('#');
        } else {
            out.extend(&chars[at..end.max(at + 1)]);
        }
        at = end.max(at + 1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_messages_when_their_numbers_are_taken_out_then_names_and_versions_keep_theirs() {
        for (message, expected) in [
            ("the same as the function at a.py:10", "the same as the function at a.py:#"),
            ("f has 17 ways; more than 15 are hard to test.", "f has # ways; more than # are hard to test."),
            ("a key in line 3.", "a key in line #."),
            ("redefinition of x1 from line 12, 13", "redefinition of x1 from line #, #"),
            ("jinja2 3.1.2 has GHSA-1-2: é", "jinja2 3.1.2 has GHSA-1-2: é"),
            ("take 2.0 or 10", "take 2.0 or #"),
            ("", ""),
        ] {
            assert_eq!(without_numbers(message), expected);
        }
    }
}
