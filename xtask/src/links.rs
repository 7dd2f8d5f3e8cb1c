//! Relative links in Markdown files: the file is there, and so is the heading.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::Findings;

pub(crate) fn check(root: &Path) -> Findings {
    let mut findings = Vec::new();
    for path in crate::files_ending(root, &["md"]) {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        for (line, target) in links(&text) {
            if let Some(problem) = problem(root, &path, &text, &target) {
                findings.push(format!("{name}:{line}: {target}: {problem}"));
            }
        }
    }
    Ok(findings)
}

/// Targets of `[text](target)` with their line numbers, outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, content) in prose(text) {
        // Every other part between backticks is code.
        for part in content.split('`').step_by(2) {
            let mut rest = part;
            while let Some((_, after)) = rest.split_once("](") {
                let Some((target, after)) = after.split_once(')') else { break };
                found.push((line, target.split_whitespace().next().unwrap_or_default().to_owned()));
                rest = after;
            }
        }
    }
    found
}

/// Lines outside fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

fn problem(root: &Path, from: &Path, text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    if file.starts_with('/') {
        return Some("links are relative, so that they work in a checkout and on a page".to_owned());
    }
    let there = from.parent().unwrap_or(root).join(file);
    if !file.is_empty() && !there.exists() {
        return Some("no such file".to_owned());
    }
    let anchor = anchor?;
    let other;
    let text = if file.is_empty() {
        text
    } else {
        other = fs::read_to_string(&there).unwrap_or_default();
        &other
    };
    (!headings(text).any(|heading| heading == anchor)).then(|| "no such heading".to_owned())
}

/// Anchors of a page's headings, as GitHub and most others make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("page.md"), text).unwrap();
        fs::write(folder.path().join("other.md"), "# One thing, and two\n").unwrap();
        check(folder.path()).unwrap()
    }

    #[test]
    fn given_links_that_lead_somewhere_when_checked_then_nothing_is_found() {
        let text = "# Here\n[a](other.md) [b](other.md#one-thing-and-two) [c](#here) [d](https://example.org/x) `[e](no.md)`\n```\n[f](no.md)\n```\n";
        assert_eq!(found_in(text), Vec::<String>::new());
    }

    #[test]
    fn given_links_that_lead_nowhere_when_checked_then_each_is_named_with_its_line() {
        for (link, why) in [
            ("no.md", "no such file"),
            ("other.md#no", "no such heading"),
            ("#no", "no such heading"),
            ("/other.md", "relative"),
        ] {
            let found = found_in(&format!("text\nsee [x]({link})\n"));
            assert_eq!(found.len(), 1, "{link}: {found:?}");
            assert!(found[0].starts_with("page.md:2:") && found[0].contains(why), "{}", found[0]);
        }
    }
}
