//! Licences: of the project as its manifests say, of files as their headers say, and of packages as far as anything says it.

use std::collections::BTreeMap;

use riverrun_schemas::{agreed, counted};
use serde_json::Value;

use super::package_licences::{LicenceTable, classified, in_words, is_vendored, licensed};
use super::packages::Package;
use super::spdx::{Duty, duty};
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::language::Language;

const TOOL: &str = "licences";
/// Before a licence in the head of a file (<https://spdx.dev/learn/handling-license-info>).
const HEADER: &str = "SPDX-License-Identifier:";
/// Lines that are the head of a file.
const HEAD: usize = 30;
/// Packages that a message names.
const MAX_NAMED: usize = 10;

/// A licence that is said somewhere.
struct Said {
    file: String,
    line: usize,
    expression: String,
}

pub(super) fn analyze(files: &Files, table: &LicenceTable) -> Vec<Finding> {
    let manifests = manifests(files);
    let mut found = Vec::new();
    let own: Vec<Duty> = manifests.said.iter().filter_map(|said| known(said, Severity::Low, &mut found)).collect();
    let is_said = !manifests.said.is_empty() || manifests.may_say_it || files.keys().any(|path| is_licence_text(path));
    if let Some(first) = manifests.paths.first().filter(|_| !is_said) {
        let rule = (TOOL, "no-licence", Severity::Info);
        let message = "the project says nowhere under which licence it is";
        found.push(Finding::new(
            rule,
            (first.as_str(), 1, 1),
            message,
            "declare one as an SPDX expression, or put a LICENSE file in",
        ));
    }
    // Without a licence that is known nothing contradicts it.
    let is_closed = !own.is_empty() && own.iter().all(|duty| *duty < Duty::Strong);
    for said in headers(files) {
        if known(&said, Severity::Low, &mut found) == Some(Duty::Strong) && is_closed {
            let rule = (TOOL, "licence-conflict", Severity::Medium);
            let message =
                format!("the file is under {}, which asks for more than the project's licence", said.expression);
            found.push(Finding::new(
                rule,
                (said.file.as_str(), said.line, 1),
                message,
                "ask who wrote it, or take it out",
            ));
        }
    }
    let mut unknown: BTreeMap<String, Vec<Package>> = BTreeMap::new();
    for mut package in licensed(files, table) {
        let Some(expression) = package.licence.take() else {
            unknown.entry(place(&package.file).to_owned()).or_default().push(package);
            continue;
        };
        let said = Said { file: package.file, line: package.line, expression };
        if known(&said, Severity::Info, &mut found) == Some(Duty::Strong) && is_closed {
            let rule = (TOOL, "copyleft-dependency", Severity::Medium);
            let message = format!("{} {} is under {}", package.name, package.version, said.expression);
            let fix =
                "what is given away with it must be under that licence too: take another package, or ask a lawyer";
            found.push(Finding::new(rule, (said.file.as_str(), said.line, 1), message, fix));
        }
    }
    found.extend(unknown.into_values().filter_map(|packages| not_known(&packages)));
    found
}

/// Lock files stand for themselves, installed packages for the folder that they lie in.
fn place(file: &str) -> &str {
    match file.rsplit_once('/').and_then(|(package, _)| package.rsplit_once('/')) {
        Some((folder, _)) if is_vendored(file) => folder,
        _ => file,
    }
}

/// That nothing says under which licence these packages are.
fn not_known(packages: &[Package]) -> Option<Finding> {
    let first = packages.first()?;
    let names: Vec<&str> = packages.iter().take(MAX_NAMED).map(|one| one.name.as_str()).collect();
    let more = packages.len().saturating_sub(MAX_NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (of, are) = (counted(packages.len(), "package"), agreed(packages.len(), "is", "are"));
    let message = format!("nothing here says under which licence {of} {are}: {}{rest}", names.join(", "));
    let fix = "name a table that says it: RIVERRUN_PROJECT_LICENCES";
    Some(Finding::new((TOOL, "licence-not-known", Severity::Info), (first.file.as_str(), first.line, 1), message, fix))
}

/// What an expression asks; one that can't be read is a finding.
fn known(said: &Said, severity: Severity, found: &mut Vec<Finding>) -> Option<Duty> {
    match duty(&said.expression) {
        Ok(duty) => Some(duty),
        Err(why) => {
            let shown: String = said.expression.chars().filter(|c| !c.is_control()).take(100).collect();
            let message = format!("{shown:?} is no SPDX expression: {why}");
            let rule = (TOOL, "unknown-licence", severity);
            found.push(Finding::new(
                rule,
                (said.file.as_str(), said.line, 1),
                message,
                "see https://spdx.org/licenses",
            ));
            None
        }
    }
}

fn is_licence_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_uppercase();
    ["LICENSE", "LICENCE", "COPYING", "UNLICENSE"].iter().any(|start| name.starts_with(start))
}

/// What the manifests of a project say together.
#[derive(Default)]
struct Manifests {
    /// Those that can be read.
    paths: Vec<String>,
    said: Vec<Said>,
    /// Whether one says it in a text of its own, or to nobody, or can't be read.
    may_say_it: bool,
}

/// What one manifest says.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Nothing,
    /// What is no expression: a text of its own, or that others get no licence.
    Text,
    Expression {
        expression: String,
        /// As it stands in the manifest.
        written: String,
    },
}

impl Word {
    fn expression(text: &str) -> Self {
        Self::Expression { expression: text.to_owned(), written: text.to_owned() }
    }
}

fn manifests(files: &Files) -> Manifests {
    let mut all = Manifests::default();
    for (path, content) in files.iter().filter(|(path, _)| !is_vendored(path)) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let read: fn(&str) -> Option<Word> = match name {
            "pyproject.toml" => in_pyproject,
            "Cargo.toml" => in_cargo,
            "package.json" => in_npm,
            _ => continue,
        };
        let text = std::str::from_utf8(content).ok().map(|text| text.strip_prefix('\u{feff}').unwrap_or(text));
        // One that does not parse is a finding of another analyzer, and may have said it.
        let Some((text, word)) = text.and_then(|text| Some((text, read(text)?))) else {
            all.may_say_it = true;
            continue;
        };
        all.paths.push(path.clone());
        match word {
            Word::Nothing => {}
            Word::Text => all.may_say_it = true,
            Word::Expression { expression, written } => {
                all.said.push(Said { file: path.clone(), line: line_of(text, &written), expression });
            }
        }
    }
    all
}

/// The line where a licence stands: its id may be within other words, too.
fn line_of(text: &str, written: &str) -> usize {
    let is_it = |line: &str| line.contains(written);
    let is_named = |line: &str| is_it(line) && line.to_lowercase().contains("licens");
    let named = text.lines().position(is_named).or_else(|| text.lines().position(is_it));
    named.map_or(1, |index| index + 1)
}

/// `None` for what does not parse. The project's own table goes before Poetry's.
fn in_pyproject(text: &str) -> Option<Word> {
    let all: toml::Table = toml::from_str(text).ok()?;
    let poetry = all.get("tool").and_then(|tool| tool.get("poetry"));
    let mut words = [all.get("project"), poetry].into_iter().flatten().map(of_python);
    Some(words.find(|word| *word != Word::Nothing).unwrap_or(Word::Nothing))
}

/// An expression (PEP 639 and Poetry), a table with a text or a file (PEP 621), or classifiers.
fn of_python(table: &toml::Value) -> Word {
    let licence = table.get("license");
    match licence.and_then(toml::Value::as_str) {
        // Poetry's word for what is under none.
        Some("Proprietary") => return Word::Text,
        Some(expression) => return Word::expression(expression),
        None => {}
    }
    let words = licence.and_then(|licence| licence.get("text")).and_then(toml::Value::as_str);
    if let Some((expression, words)) = words.and_then(|words| Some((in_words(words)?, words))) {
        return Word::Expression { expression, written: words.to_owned() };
    }
    let list = table.get("classifiers").and_then(toml::Value::as_array).into_iter().flatten();
    let classifiers: Vec<&str> =
        list.filter_map(toml::Value::as_str).filter(|one| one.starts_with("License :: ")).collect();
    match (classifiers.first(), classified(classifiers.iter().copied())) {
        (Some(first), Some(expression)) => Word::Expression { expression, written: (*first).to_owned() },
        (first, _) if first.is_some() || licence.is_some() || table.get("license-files").is_some() => Word::Text,
        _ => Word::Nothing,
    }
}

/// `license`, or `license-file`; `license.workspace` is said elsewhere. `None` for what does not parse.
fn in_cargo(text: &str) -> Option<Word> {
    let all: toml::Table = toml::from_str(text).ok()?;
    let of_workspace = all.get("workspace").and_then(|workspace| workspace.get("package"));
    let tables = || [all.get("package"), of_workspace].into_iter().flatten();
    let expression = tables().find_map(|table| table.get("license").and_then(toml::Value::as_str));
    let has_file = tables().any(|table| table.get("license-file").is_some_and(toml::Value::is_str));
    Some(match expression {
        Some(expression) => Word::expression(expression),
        None if has_file => Word::Text,
        None => Word::Nothing,
    })
}

/// An expression, or one of the values that npm has for what is under none; the objects of old manifests, too. `None` for what does
/// not parse.
fn in_npm(text: &str) -> Option<Word> {
    let all: Value = serde_json::from_str(text).ok()?;
    let mut old = all["licenses"].as_array().into_iter().flatten();
    let of = |licence: &Value| licence.as_str().or_else(|| licence["type"].as_str()).map(str::to_owned);
    let licence = of(&all["license"]).or_else(|| old.find_map(of));
    Some(match licence.as_deref() {
        None => Word::Nothing,
        Some("UNLICENSED") => Word::Text,
        Some(text) if text.starts_with("SEE LICENSE IN ") => Word::Text,
        Some(expression) => Word::expression(expression),
    })
}

/// The licences that heads of source files name.
fn headers(files: &Files) -> Vec<Said> {
    let mut found = Vec::new();
    for (path, content) in files.iter().filter(|(path, _)| Language::of(path).is_some()) {
        let head = content.split(|byte| *byte == b'\n').take(HEAD).enumerate();
        for (index, line) in head {
            let line = String::from_utf8_lossy(line);
            let Some((before, rest)) = line.split_once(HEADER) else { continue };
            // In the middle of a line it is spoken of.
            if before.contains(|c: char| c.is_alphanumeric() || c == '"' || c == '\'') {
                continue;
            }
            let rest = rest.trim().trim_end_matches("*/").trim_end_matches("-->").trim();
            found.push(Said { file: path.clone(), line: index + 1, expression: rest.to_owned() });
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        let table = LicenceTable::read("crates.io viral AGPL-3.0-only\ncrates.io nice MIT\n").unwrap();
        analyze(&files, &table).into_iter().map(|one| one.rule).collect()
    }

    #[test]
    fn given_projects_when_their_licences_are_looked_at_then_what_is_missing_wrong_or_in_conflict_is_found() {
        let mine = ("package.json", "{\"license\": \"MIT\"}");
        let lock = |licence: &str| {
            format!("{{\"packages\": {{\"node_modules/a\": {{\"version\": \"1.0.0\", \"license\": \"{licence}\"}}}}}}")
        };
        let none: [&str; 0] = [];
        assert_eq!(rules(&[mine]), none);
        assert_eq!(rules(&[("package.json", "{}")]), ["no-licence"]);
        assert_eq!(rules(&[("package.json", "{}"), ("LICENSE.md", "text")]), none);
        assert_eq!(rules(&[("a.py", "x = 1")]), none);
        assert_eq!(rules(&[("Cargo.toml", "[package]\nlicense = \"My own\"")]), ["unknown-licence"]);
        assert_eq!(rules(&[mine, ("package-lock.json", lock("GPL-3.0-only").as_str())]), ["copyleft-dependency"]);
        assert_eq!(rules(&[mine, ("package-lock.json", lock("(GPL-3.0-only OR MIT)").as_str())]), none);
        assert_eq!(
            rules(&[
                ("package.json", "{\"license\": \"GPL-3.0-only\"}"),
                ("package-lock.json", lock("GPL-3.0-only").as_str())
            ]),
            none
        );
        assert_eq!(rules(&[mine, ("a.js", "// SPDX-License-Identifier: AGPL-3.0-only\n")]), ["licence-conflict"]);
        assert_eq!(
            rules(&[
                mine,
                ("a.js", "/* SPDX-License-Identifier: MIT */\n"),
                ("b.js", "s = 'SPDX-License-Identifier: AGPL-3.0-only'")
            ]),
            none
        );
    }

    #[test]
    fn given_manifests_with_any_documented_word_for_a_licence_when_they_are_looked_at_then_it_counts_as_said() {
        let classifiers = "classifiers = [\"Topic :: MIT\", \"License :: OSI Approved :: MIT License\"]\n";
        let classified = format!("[project]\n{classifiers}");
        let of_text = format!("[project]\nlicense = {{text = \"MIT, see below\"}}\n{classifiers}");
        let none: [&str; 0] = [];
        for (path, text, expected) in [
            ("pyproject.toml", "[tool.poetry]\nlicense = \"MIT\"\n", &none[..]),
            ("pyproject.toml", "[tool.poetry]\nlicense = \"Proprietary\"\n", &none[..]),
            ("pyproject.toml", "[project]\nlicense = {text = \"MIT\"}\n", &none[..]),
            ("pyproject.toml", "[project]\nlicense = {text = \"MIT License\"}\n", &none[..]),
            ("pyproject.toml", "[project]\nlicense = {file = \"terms.txt\"}\n", &none[..]),
            ("pyproject.toml", of_text.as_str(), &none[..]),
            ("pyproject.toml", classified.as_str(), &none[..]),
            ("pyproject.toml", "[project]\nname = \"m\"\n", &["no-licence"][..]),
            ("pyproject.toml", "[project]\nlicense = \"My own\"\n", &["unknown-licence"][..]),
            ("Cargo.toml", "[package]\nlicense-file = \"terms.txt\"\n", &none[..]),
            ("Cargo.toml", "[package]\nname = \"m\"\n", &["no-licence"][..]),
            ("package.json", "{\"license\": \"UNLICENSED\"}", &none[..]),
            ("package.json", "{\"license\": \"SEE LICENSE IN terms.txt\"}", &none[..]),
            ("package.json", "{\"license\": {\"type\": \"MIT\"}}", &none[..]),
            ("package.json", "{\"licenses\": [{\"type\": \"MIT\"}]}", &none[..]),
            ("package.json", "{\"license\": \"unlicensed\"}", &["unknown-licence"][..]),
        ] {
            assert_eq!(rules(&[(path, text)]), expected, "{path} {text}");
        }
        let copyleft = "[project]\nname = \"submit\"\nlicense = \"MIT\"\n";
        assert_eq!(line_of(copyleft, "MIT"), 3);
        assert_eq!(line_of("name = \"MIT\"\nlicense = {text = \"MIT\"}\n", "MIT"), 2, "where the licence stands");
    }

    #[test]
    fn given_manifests_that_do_not_parse_when_licences_are_looked_at_then_nobody_says_that_there_is_none() {
        let none: [&str; 0] = [];
        for (path, text) in [
            ("package.json", "{\"name\": \"m\", \"dependencies\": {\"lodash\": \"*\"}"),
            ("pyproject.toml", "[project"),
            ("Cargo.toml", "[package"),
        ] {
            assert_eq!(rules(&[(path, text)]), none, "{path}");
            assert_eq!(rules(&[(path, text), ("a/package.json", "{}")]), none, "{path}: it may be said there");
        }
        assert_eq!(rules(&[("package.json", "{}")]), ["no-licence"]);
    }

    #[test]
    fn given_packages_of_python_and_rust_when_their_licences_are_looked_at_then_what_is_installed_or_in_the_table_is_known()
     {
        let mine = ("Cargo.toml", "[package]\nname = \"m\"\nlicense = \"MIT\"");
        let lock =
            |name: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\nsource = \"registry+x\"\n");
        let none: [&str; 0] = [];
        assert_eq!(rules(&[mine, ("Cargo.lock", lock("nice").as_str())]), none);
        assert_eq!(rules(&[mine, ("Cargo.lock", lock("viral").as_str())]), ["copyleft-dependency"]);
        assert_eq!(rules(&[mine, ("Cargo.lock", lock("other").as_str())]), ["licence-not-known"]);
        let vendored =
            |licence: &str| format!("[package]\nname = \"other\"\nversion = \"1.0.0\"\nlicense = \"{licence}\"\n");
        for (licence, expected) in [("MIT/Apache-2.0", &none[..]), ("GPL-3.0-only", &["copyleft-dependency"][..])] {
            let (lock, manifest) = (lock("other"), vendored(licence));
            let files = [mine, ("Cargo.lock", lock.as_str()), ("vendor/other/Cargo.toml", manifest.as_str())];
            assert_eq!(rules(&files), expected, "{licence}");
        }
        let closed = ("pyproject.toml", "[project]\nname = \"m\"\nlicense = \"MIT\"");
        let metadata = "Name: Viral\nVersion: 2.0\nClassifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)\n\n";
        let installed = (".venv/lib/python3.12/site-packages/viral-2.0.dist-info/METADATA", metadata);
        assert_eq!(rules(&[closed, ("requirements.txt", "viral==2.0\n")]), ["licence-not-known"]);
        assert_eq!(rules(&[closed, ("requirements.txt", "viral==2.0\n"), installed]), ["copyleft-dependency"]);
        assert_eq!(rules(&[closed, installed]), ["copyleft-dependency"]);
        // Another version may be under another licence.
        let other = rules(&[closed, ("requirements.txt", "viral==1.0\n"), installed]);
        assert_eq!(other, ["copyleft-dependency", "licence-not-known"]);
    }
}
