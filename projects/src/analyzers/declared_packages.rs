//! Packages that manifests of JavaScript, Rust and Go declare: in any version, or without anything that names them. For what
//! is imported and not declared see [`super::node_packages`], [`super::undeclared_go`] and [`super::undeclared_rust`].

use std::collections::{BTreeMap, HashSet};

use aho_corasick::AhoCorasick;
use serde_json::Value;

use super::is_vendored;
use super::limits::{MAX_MANIFEST, MAX_PARSED};
use crate::copy::Files;
use crate::finding::{Finding, Severity};

/// Versions of npm that are any version.
const ANY: [&str; 4] = ["", "*", "x", "latest"];
/// Names of files that name packages without using them.
const NO_USE: [&str; 8] = [
    "package.json",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "bun.lock",
    "Cargo.toml",
    "Cargo.lock",
];

/// Whose manifest it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Npm,
    Cargo,
    Go,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Npm, Kind::Cargo, Kind::Go];

    /// By the name of a file.
    fn of(path: &str) -> Option<Self> {
        match name(path) {
            "package.json" => Some(Kind::Npm),
            "Cargo.toml" => Some(Kind::Cargo),
            "go.mod" => Some(Kind::Go),
            _ => None,
        }
    }

    /// Whether a file may use what such a manifest declares.
    fn is_user(self, path: &str) -> bool {
        match self {
            Kind::Npm => !NO_USE.contains(&name(path)),
            Kind::Cargo => path.ends_with(".rs"),
            Kind::Go => path.ends_with(".go"),
        }
    }
}

/// A package in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Declared {
    name: String,
    /// What code that uses it has in it.
    word: String,
    line: usize,
    is_any_version: bool,
    /// Whether somebody has to name it: no tool takes it by itself.
    is_named: bool,
}

/// What a manifest says.
struct Manifest<'f> {
    path: &'f str,
    kind: Kind,
    declared: Vec<Declared>,
}

impl Manifest<'_> {
    /// Whether a file is below it.
    fn is_above(&self, file: &str) -> bool {
        file.starts_with(&self.path[..self.path.rfind('/').map_or(0, |at| at + 1)])
    }
}

pub(super) fn analyze(tool: &str, files: &Files) -> Vec<Finding> {
    let own = files.iter().filter(|(path, _)| !is_vendored(path));
    let manifests: Vec<Manifest<'_>> = own.filter_map(|(path, content)| manifest(path, content)).collect();
    let used = used(&manifests, files);
    let mut found = Vec::new();
    for (number, manifest) in manifests.iter().enumerate() {
        for (index, one) in manifest.declared.iter().enumerate() {
            let place = (manifest.path, one.line, 1);
            if one.is_any_version {
                let message = format!("{} is declared in any version", one.name);
                let fix = "say which versions it works with";
                found.push(Finding::new((tool, "unpinned", Severity::Low), place, message, fix));
            }
            if one.is_named && !used.contains(&(number, index)) {
                let message = format!("{} is declared and nothing names it", one.name);
                let fix = "remove it, unless a tool needs it";
                found.push(Finding::new((tool, "unused-dependency", Severity::Info), place, message, fix));
            }
        }
    }
    found
}

/// The packages that files below their manifests name, as the numbers of manifest and package. Each file is looked through once for all.
fn used(manifests: &[Manifest<'_>], files: &Files) -> HashSet<(usize, usize)> {
    let mut used = HashSet::new();
    for kind in Kind::ALL {
        let mut wanted: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        for (number, manifest) in manifests.iter().enumerate().filter(|(_, one)| one.kind == kind) {
            for (index, one) in manifest.declared.iter().enumerate().filter(|(_, one)| one.is_named) {
                wanted.entry(one.word.as_str()).or_default().push((number, index));
            }
        }
        if wanted.is_empty() {
            continue;
        }
        let Ok(words) = AhoCorasick::new(wanted.keys()) else {
            // More words than it can hold: nothing is said of them.
            used.extend(wanted.into_values().flatten());
            continue;
        };
        let declared: Vec<Vec<(usize, usize)>> = wanted.into_values().collect();
        let users = files.iter().filter(|(path, content)| content.len() <= MAX_PARSED && kind.is_user(path));
        for (path, content) in users {
            let here: HashSet<usize> =
                words.find_overlapping_iter(content).map(|word| word.pattern().as_usize()).collect();
            let here = here.into_iter().flat_map(|word| &declared[word]);
            used.extend(here.filter(|(number, _)| manifests[*number].is_above(path)));
        }
    }
    used
}

/// `None` for what is none, for one that is larger than any of people, and for one that [does not parse](super::broken_manifests).
fn manifest<'f>(path: &'f str, content: &[u8]) -> Option<Manifest<'f>> {
    let text = std::str::from_utf8(content).ok().filter(|text| text.len() <= MAX_MANIFEST)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let kind = Kind::of(path)?;
    let declared = match kind {
        Kind::Npm => of_npm(text)?,
        Kind::Cargo => of_cargo(text)?,
        Kind::Go => of_go(text),
    };
    Some(Manifest { path, kind, declared })
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The first line that has a text, counted from 1.
fn line_of(text: &str, is_it: impl Fn(&str) -> bool) -> usize {
    text.lines().position(|line| is_it(line.trim_start())).map_or(1, |index| index + 1)
}

/// `dependencies` and `devDependencies`. Tools take the latter, and types, by themselves.
fn of_npm(text: &str) -> Option<Vec<Declared>> {
    let mut manifest: Value = serde_json::from_str(text).ok()?;
    let lists = ["dependencies", "devDependencies"]
        .map(|list| (list, manifest.get_mut(list).map(Value::take).unwrap_or_default()));
    // Scripts and settings may name one.
    let rest = manifest.to_string();
    let mut found = Vec::new();
    for (list, packages) in &lists {
        for (package, version) in packages.as_object().into_iter().flatten() {
            found.push(Declared {
                line: line_of(text, |line| {
                    let rest = line.strip_prefix('"').and_then(|line| line.strip_prefix(package.as_str()));
                    rest.is_some_and(|rest| rest.starts_with('"'))
                }),
                is_any_version: version.as_str().is_some_and(|version| ANY.contains(&version.trim())),
                is_named: *list == "dependencies"
                    && !package.starts_with("@types/")
                    && !rest.contains(package.as_str()),
                word: package.clone(),
                name: package.clone(),
            });
        }
    }
    Some(found)
}

/// `dependencies` and `dev-dependencies`. What is optional may be there for its features alone.
fn of_cargo(text: &str) -> Option<Vec<Declared>> {
    let table: toml::Table = toml::from_str(text).ok()?;
    let mut found = Vec::new();
    for list in ["dependencies", "dev-dependencies"] {
        for (package, said) in table.get(list).and_then(toml::Value::as_table).into_iter().flatten() {
            let version = said.as_str().or_else(|| said.get("version").and_then(toml::Value::as_str));
            let is_optional = said.get("optional").and_then(toml::Value::as_bool).unwrap_or(false);
            let (quoted, head) = (format!("\"{package}\""), format!("[{list}.{package}]"));
            let starts = |line: &str| {
                let rest = line.strip_prefix(package.as_str()).or_else(|| line.strip_prefix(quoted.as_str()));
                rest.is_some_and(|rest| rest.trim_start().starts_with(['=', '.'])) || line.trim_end() == head
            };
            found.push(Declared {
                line: line_of(text, starts),
                is_any_version: version.is_some_and(|version| version.trim() == "*"),
                is_named: !is_optional,
                word: package.replace('-', "_"),
                name: package.clone(),
            });
        }
    }
    Some(found)
}

/// What is required directly; a module has an exact version always. One that stands twice is replaced, or a tool.
fn of_go(text: &str) -> Vec<Declared> {
    let line = |(index, line): (usize, &str)| {
        let (module, rest) = line.trim().trim_start_matches("require ").split_once(' ')?;
        let is_version = rest.starts_with('v') && !rest.contains("// indirect") && module.contains('.');
        is_version.then(|| Declared {
            line: index + 1,
            is_any_version: false,
            is_named: text.matches(module).count() == 1,
            word: format!("\"{module}"),
            name: module.to_owned(),
        })
    };
    text.lines().enumerate().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, String, usize)> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        let mut found: Vec<_> =
            analyze("dependencies", &files).into_iter().map(|one| (one.rule, one.file, one.line)).collect();
        found.sort();
        found
    }

    fn expected(list: &[(&str, &str, usize)]) -> Vec<(String, String, usize)> {
        let mut expected: Vec<_> =
            list.iter().map(|(rule, file, line)| ((*rule).to_owned(), (*file).to_owned(), *line)).collect();
        expected.sort();
        expected
    }

    #[test]
    fn given_manifests_of_each_language_when_they_are_read_then_any_versions_and_unnamed_packages_are_found() {
        let npm = "{\n\"scripts\": {\"build\": \"vite build\"},\n\"dependencies\": {\n\"lodash\": \"*\",\n\"left-pad\": \"^1.0\",\n\"vite\": \"5\",\n\"@types/node\": \"20\"\n},\n\"devDependencies\": {\n\"jest\": \"latest\"\n}\n}";
        let cargo = "[package]\nname = \"m\"\n[dependencies]\nserde = \"*\"\nserde-json = { version = \"1\" }\nrand = \"0.8\"\nextra = { version = \"1\", optional = true }\n[dependencies.hex]\nversion = \"0.4\"\n";
        let go = "module m\n\ngo 1.20\n\nrequire (\n\tgithub.com/a/b v1.0.0\n\tgithub.com/c/d v1.0.0 // indirect\n\tgithub.com/e/f v1.0.0\n)\n";
        assert_eq!(
            found(&[
                ("web/package.json", npm),
                ("web/src/a.ts", "import _ from 'lodash';\n"),
                ("rs/Cargo.toml", cargo),
                ("rs/src/lib.rs", "use serde_json::Value;\nuse serde::Serialize;\n"),
                ("go/go.mod", go),
                ("go/a.go", "package m\n\nimport \"github.com/a/b/part\"\n"),
            ]),
            expected(&[
                ("unused-dependency", "go/go.mod", 8),
                ("unpinned", "rs/Cargo.toml", 4),
                ("unused-dependency", "rs/Cargo.toml", 8),
                ("unused-dependency", "rs/Cargo.toml", 6),
                ("unpinned", "web/package.json", 4),
                ("unused-dependency", "web/package.json", 5),
                ("unpinned", "web/package.json", 10),
            ])
        );
    }

    #[test]
    fn given_very_many_packages_of_very_many_manifests_when_files_are_looked_through_then_each_is_once() {
        let list =
            |from: usize| (from..from + 200).map(|number| format!("\"package-{number}\": \"1\"")).collect::<Vec<_>>();
        let manifest = |number: usize| format!("{{\"dependencies\": {{{}}}}}", list(number * 200).join(","));
        let mut files: Files =
            (0..200).map(|number| (format!("{}package.json", "a/".repeat(number)), manifest(number).into())).collect();
        let code =
            (0..40_000).filter(|number| number % 100 != 7).map(|number| format!("require('package-{number}');\n"));
        files.insert("a/".repeat(200) + "x.js", code.collect::<String>().into());
        let found = analyze("dependencies", &files);
        // What a longer name begins with is named.
        assert!(found.len() > 300 && found.iter().all(|one| one.rule == "unused-dependency"), "{}", found.len());
        assert!(found.iter().all(|one| one.message.contains("07 is declared")), "{:?}", found[0]);
    }

    #[test]
    fn given_users_elsewhere_and_broken_manifests_when_they_are_read_then_only_files_below_a_manifest_count() {
        let npm = "{\"dependencies\": {\"lodash\": \"1\"}}";
        let unused = expected(&[("unused-dependency", "a/package.json", 1)]);
        assert_eq!(
            found(&[("a/package.json", npm), ("b/x.js", "require('lodash')"), ("a.js", "require('lodash')")]),
            unused
        );
        for lock in ["a/package-lock.json", "a/bun.lock"] {
            assert_eq!(found(&[("a/package.json", npm), (lock, "\"lodash\"")]), unused, "{lock}");
        }
        assert!(found(&[("package.json", npm), ("b/x.js", "require('lodash')")]).is_empty());
        assert!(found(&[("vendor/a/package.json", npm)]).is_empty(), "others keep their own house");
        let two = "{\"dependencies\": {\"lodash\": \"1\", \"lodash.merge\": \"1\"}}";
        assert!(found(&[("package.json", two), ("x.js", "require('lodash.merge')")]).is_empty(), "one within another");
        for path in ["package.json", "Cargo.toml", "go.mod"] {
            for text in ["{[ broken", "[]", "\"x\"", "1"] {
                assert!(found(&[(path, text), ("x.js", "")]).is_empty(), "{path} {text}");
            }
        }
    }
}
