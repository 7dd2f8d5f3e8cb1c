//! Secrets and personal data in the tree. What was found is never quoted.

use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::installed::is_metadata;

const TOOL: &str = "secrets";
/// Longest file that is looked through, in bytes.
const MAX_SCANNED: usize = 4 << 20;
/// So many different addresses of people in one file are a list of people.
const MANY_ADDRESSES: usize = 5;

/// Beginnings of keys that say whose they are, with how many characters follow at least.
const KEYS: &[(&str, usize, &str)] = &[
    ("AKIA", 16, "an access key of AWS"),
    ("ghp_", 36, "a token of GitHub"),
    ("github_pat_", 40, "a token of GitHub"),
    ("glpat-", 20, "a token of GitLab"),
    ("xoxb-", 20, "a token of Slack"),
    ("sk_live_", 16, "a key of Stripe"),
    ("sk-proj-", 24, "a key of OpenAI"),
    ("sk-ant-", 24, "a key of Anthropic"),
    ("AIza", 35, "a key of Google"),
];

const NAMES: &[&str] =
    &["password", "passwd", "secret", "api_key", "apikey", "access_token", "auth_token", "private_key"];
const PLACEHOLDERS: &[&str] =
    &["changeme", "example", "your", "xxxx", "placeholder", "dummy", "test", "<", "${", "{{", "...", "***"];

pub(super) fn analyze(files: &Files) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, content) in files.iter().filter(|(_, content)| content.len() <= MAX_SCANNED) {
        if content.contains(&0) || is_metadata(path) {
            continue;
        }
        let text = String::from_utf8_lossy(content);
        for (index, line) in text.lines().enumerate() {
            scan(path, index + 1, line, &mut found);
        }
        people(path, &text, &mut found);
    }
    found
}

fn scan(path: &str, number: usize, line: &str, found: &mut Vec<Finding>) {
    let fix = "take it out, give out a new one, and read it from the environment";
    if line.contains("-----BEGIN ") && line.contains("PRIVATE KEY-----") {
        found.push(Finding::new((TOOL, "private-key", Severity::Critical), (path, number, 1), "a private key", fix));
    }
    for (prefix, length, what) in KEYS {
        let Some(at) = line.find(prefix) else { continue };
        let rest = &line[at + prefix.len()..];
        let is_start = !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let count = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).count();
        if is_start && count >= *length {
            let rule = (TOOL, "key", Severity::Critical);
            found.push(Finding::new(rule, (path, number, at + 1), format!("{what} in line {number}"), fix));
            return;
        }
    }
    if is_literal(line) {
        let rule = (TOOL, "literal-password", Severity::High);
        found.push(Finding::new(rule, (path, number, 1), format!("a password or key in line {number}"), fix));
    }
}

/// `password = "…"` with something that is no placeholder.
fn is_literal(line: &str) -> bool {
    let Some((left, right)) = line.split_once(['=', ':']) else { return false };
    let name = left.trim().trim_matches(['"', '\'']).to_lowercase();
    if !NAMES.iter().any(|wanted| name.ends_with(wanted)) {
        return false;
    }
    let right = right.trim_start_matches(['=', ' ']);
    let Some(quote) = right.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return false };
    let Some(value) = right[1..].split(quote).next() else { return false };
    let lower = value.to_lowercase();
    value.len() >= 8 && !value.contains(' ') && !PLACEHOLDERS.iter().any(|word| lower.contains(word))
}

fn people(path: &str, text: &str, found: &mut Vec<Finding>) {
    let is_data = [".csv", ".tsv", ".json", ".jsonl", ".sql"].iter().any(|end| path.to_lowercase().ends_with(end));
    if !is_data {
        return;
    }
    let separators = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | '<' | '>');
    let mut addresses: Vec<&str> = text.split(separators).filter(|word| is_address(word)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.len() >= MANY_ADDRESSES {
        let rule = (TOOL, "personal-data", Severity::Medium);
        let message = format!("{} e-mail addresses of people", addresses.len());
        found.push(Finding::new(rule, (path, 1, 1), message, "keep personal data out of the repository"));
    }
}

fn is_address(word: &str) -> bool {
    word.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty() && host.contains('.') && !host.contains('@') && !host.starts_with("example.")
    })
}
