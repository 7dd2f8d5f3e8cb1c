//! One thing that was found.

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
    /// Follows from tool, rule, file and message, not from the line: the same after lines moved.
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
        let hash = sha256_hex(format!("{tool}\n{rule}\n{file}\n{message}").as_bytes());
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
        }
    }
}
