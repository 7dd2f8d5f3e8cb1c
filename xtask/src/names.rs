//! ARCHITECTURE.md by its names: each invariant, type, path and file that it names is in the code, and each invariant of the code is
//! in it. A map of streets that are gone is worse than none.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::Findings;

const PAGE: &str = "ARCHITECTURE.md";
/// Standards that are called as invariants are.
const STANDARDS: [&str; 2] = ["UTF-8", "SHA-256"];

pub(crate) fn check(root: &Path) -> Findings {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut words = HashSet::new();
    let mut held = BTreeMap::new();
    for file in crate::files_ending(root, &["rs", "py"]) {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        words.extend(words_of(&text).map(str::to_owned));
        let place = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        held.extend(held_in(&text).map(|name| (name.to_owned(), place.clone())));
    }
    let is_there = |name: &str| if name.contains('/') { root.join(name).exists() } else { words.contains(name) };
    let mut findings = Vec::new();
    for (number, line) in page.lines().enumerate() {
        let missing = names(root, line).into_iter().filter(|name| !is_there(name));
        findings.extend(missing.map(|name| format!("{PAGE}:{}: {name}: not in the code", number + 1)));
    }
    let mapped: HashSet<String> = page.lines().flat_map(row).collect();
    let unmapped = held.into_iter().filter(|(name, _)| !mapped.contains(name));
    findings.extend(unmapped.map(|(name, place)| format!("{place}: {name}: not in the table of invariants of {PAGE}")));
    Ok(findings)
}

/// Words as they stand in code and comments, with the hyphen that names of invariants have.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).filter(|word| !word.is_empty())
}

/// What a line names that must be found.
fn names(root: &Path, line: &str) -> Vec<String> {
    // Every other part between backticks is code.
    let code = line.split('`').skip(1).step_by(2);
    row(line).into_iter().chain(code.flat_map(|code| parts(root, code))).collect()
}

/// The invariants that a row of the table begins with.
fn row(line: &str) -> Vec<String> {
    let names = line.strip_prefix("| ").and_then(|row| row.split_once(" |")).map_or("", |(names, _)| names);
    names.split(", ").flat_map(numbered).collect()
}

/// The invariants that a file names, as comments write them.
fn held_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').filter(|word| {
        let is_name = |(kind, number): (&str, &str)| {
            kind.len() > 2 && kind.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u32>().is_ok()
        };
        word.split_once('-').is_some_and(is_name) && !STANDARDS.contains(word)
    })
}

/// `MEM-3…5` are three names; what is no name of an invariant is none.
fn numbered(name: &str) -> Vec<String> {
    let Some((kind, numbers)) = name.split_once('-') else { return Vec::new() };
    let (first, last) = numbers.split_once('…').unwrap_or((numbers, numbers));
    match (first.parse::<u32>(), last.parse::<u32>()) {
        (Ok(first), Ok(last)) if kind.chars().all(|c| c.is_ascii_uppercase()) => {
            (first..=last).map(|number| format!("{kind}-{number}")).collect()
        }
        _ => Vec::new(),
    }
}

/// A path from the root, the parts of `a::b::C`, or the name of a type. Other code is of shells, topics and settings.
fn parts(root: &Path, code: &str) -> Vec<String> {
    let is_path = code.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    if let (true, Some((top, _))) = (is_path, code.split_once('/')) {
        return if root.join(top).is_dir() { vec![code.to_owned()] } else { Vec::new() };
    }
    let code = code.split('(').next().unwrap_or_default();
    let is_type = code.starts_with(|c: char| c.is_uppercase()) && code.contains(|c: char| c.is_lowercase());
    if code.contains("::") || is_type && code.chars().all(char::is_alphanumeric) {
        return code.split("::").map(str::to_owned).collect();
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_an_invariant_of_the_code_that_the_map_does_not_have_when_checked_then_it_is_named_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(PAGE), "| name | what |\n|---|---|\n| KEPT-1…2 | kept |\n").unwrap();
        let quoted = |names: &[&str]| names.iter().map(|name| format!("//! `{name}` holds\n")).collect::<String>();
        fs::write(folder.path().join("a.rs"), quoted(&["KEPT-1", "KEPT-2", "UTF-8", "AB-1", "some-1"])).unwrap();
        assert_eq!(check(folder.path()).unwrap(), Vec::<String>::new());
        fs::write(folder.path().join("b.rs"), quoted(&["LOST-7"])).unwrap();
        let found = check(folder.path()).unwrap();
        assert!(found.len() == 1 && found[0].starts_with("b.rs: LOST-7: "), "{found:?}");
    }

    #[test]
    fn given_a_line_when_it_is_read_then_what_must_be_in_the_code_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("log")).unwrap();
        for (line, expected) in [
            ("| MEM-1, MEM-3…5 | kept (`log/src`) |", vec!["MEM-1", "MEM-3", "MEM-4", "MEM-5", "log/src"]),
            ("| `folder/` | what | ", vec![]),
            ("2. `RunAccepted` by `agents::decide::next(state)`", vec!["RunAccepted", "agents", "decide", "next"]),
            ("`POST /runs`, `riverrun.agent.events`, `RIVERRUN_X`, `epoch + 1`, `202`, `./x demo`", vec![]),
        ] {
            assert_eq!(names(folder.path(), line), expected, "{line}");
        }
    }

    #[test]
    fn given_names_that_are_there_or_not_when_checked_then_only_the_others_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("log")).unwrap();
        fs::write(folder.path().join("log/a.rs"), "//! `RUN-1`: once.\nstruct Tail;\n").unwrap();
        let page = "| RUN-1, RUN-2 | once (`log/a.rs`, `log/b.rs`) |\n\n`Tail` and `Head`\n";
        fs::write(folder.path().join(PAGE), page).unwrap();
        let found = check(folder.path()).unwrap();
        let expected = ["1: RUN-2", "1: log/b.rs", "3: Head"];
        assert_eq!(found, expected.map(|what| format!("{PAGE}:{what}: not in the code")));
    }

    #[test]
    fn the_repository_has_every_name_of_its_map() {
        assert_eq!(check(&crate::root()).unwrap(), Vec::<String>::new());
    }
}
