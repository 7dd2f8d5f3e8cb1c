//! Messages of errors and logs: lowercase, without a full stop, and names in double quotes (`{name:?}`, which also escapes what could
//! pass for another line). An identifier in front may have its own case.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::Findings;

const OPENERS: [&str; 6] = ["#[error(\"", "trace!(", "debug!(", "info!(", "warn!(", "error!("];

pub(crate) fn check(root: &Path) -> Findings {
    let mut findings = Vec::new();
    for path in crate::files_ending(root, &["rs"]).filter(|path| !path.starts_with(root.join("xtask"))) {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        for (number, line) in text.lines().enumerate() {
            if let Some(problem) = message(line).and_then(problem) {
                findings.push(format!("{name}:{}: {problem}: {}", number + 1, line.trim()));
            }
        }
    }
    Ok(findings)
}

/// The message on a line that opens an error attribute or a log macro and closes it again.
fn message(line: &str) -> Option<&str> {
    let line = line.trim();
    let opener = OPENERS.iter().find(|opener| line.strip_prefix("tracing::").unwrap_or(line).starts_with(**opener))?;
    let rest = line.split_once(opener.trim_end_matches('"'))?.1;
    // The message is the last literal: fields come before it.
    let end = rest.rfind('"')?;
    let start = rest[..end].rfind('"').map_or(0, |at| at + 1);
    rest[end + 1..].starts_with(')').then(|| &rest[start..end])
}

fn problem(message: &str) -> Option<&'static str> {
    let mut letters = message.chars();
    let (first, second) = (letters.next()?, letters.next().unwrap_or(' '));
    // "Kafka …" is a sentence with a capital; "RIVERRUN_X …" and "HTTP …" are names.
    if first.is_uppercase() && second.is_lowercase() {
        return Some("a message starts lowercase");
    }
    if message.ends_with('.') && !message.ends_with("...") {
        return Some("a message ends without a full stop");
    }
    message.contains("'{").then_some("a message quotes a name as {name:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> bool {
        message(line).and_then(problem).is_some()
    }

    #[test]
    fn given_messages_in_the_house_style_when_checked_then_nothing_is_found() {
        for line in [
            r#"#[error("record of {0} bytes is too short")]"#,
            r#"#[error("there is no tool {name:?}; can't go on")]"#,
            r#"tracing::warn!(error = %error, topic, "cannot commit");"#,
            r#"info!("HTTP answers on {address}");"#,
            r#"let text = "Not a message.";"#,
        ] {
            assert!(!found(line), "{line}");
        }
    }

    #[test]
    fn given_capitals_full_stops_or_single_quotes_when_checked_then_they_are_found() {
        for line in [
            r#"#[error("Record of {0} bytes")]"#,
            r#"#[error("record of {0} bytes.")]"#,
            r#"warn!(error = %error, "Cannot commit");"#,
            r#"tracing::info!("started.");"#,
            r#"#[error("model '{model}' is not there")]"#,
        ] {
            assert!(found(line), "{line}");
        }
    }
}
