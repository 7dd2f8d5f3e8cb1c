//! Licences: of the project as its manifests say, of files as their headers say, and of packages as far as anything says it.

use std::collections::BTreeMap;

use riverrun_schemas::{agreed, counted};
use serde_json::Value;

use super::package_licences::{LicenceTable, is_vendored, licensed};
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
    let (manifests, declared) = manifests(files);
    let mut found = Vec::new();
    let own: Vec<Duty> = declared.iter().filter_map(|said| known(said, Severity::Low, &mut found)).collect();
    let has_text = files.keys().any(|path| is_licence_text(path));
    if let Some(first) = manifests.first().filter(|_| declared.is_empty() && !has_text) {
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

/// The manifests, and what they say.
fn manifests(files: &Files) -> (Vec<String>, Vec<Said>) {
    let (mut manifests, mut declared) = (Vec::new(), Vec::new());
    for (path, content) in files.iter().filter(|(path, _)| !is_vendored(path)) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let read: fn(&str) -> Option<String> = match name {
            "pyproject.toml" => |text| in_toml(text, "project"),
            "Cargo.toml" => |text| in_toml(text, "package"),
            "package.json" => in_json,
            _ => continue,
        };
        let Ok(text) = std::str::from_utf8(content) else { continue };
        manifests.push(path.clone());
        if let Some(expression) = read(text) {
            let line = text.lines().position(|line| line.contains(&expression)).map_or(1, |index| index + 1);
            declared.push(Said { file: path.clone(), line, expression });
        }
    }
    (manifests, declared)
}

/// An expression; `license = { text = … }` and `{ file = … }` are texts, and `license.workspace` is said elsewhere.
fn in_toml(text: &str, table: &str) -> Option<String> {
    let all: toml::Table = toml::from_str(text).ok()?;
    let of_workspace = || all.get("workspace")?.get("package")?.get("license")?.as_str();
    let own = all.get(table).and_then(|table| table.get("license")).and_then(toml::Value::as_str);
    own.or_else(of_workspace).map(str::to_owned)
}

fn in_json(text: &str) -> Option<String> {
    let all: Value = serde_json::from_str(text).ok()?;
    all["license"].as_str().map(str::to_owned)
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
