//! Packages that manifests of JavaScript, Rust and Go declare: in any version, or without anything that names them. For what
//! is imported and not declared see [`super::node_packages`], [`super::undeclared_go`] and [`super::undeclared_rust`].

use serde_json::Value;

use super::is_vendored;
use super::limits::MAX_PARSED;
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

/// What a manifest says, and which files may use it.
struct Manifest {
    declared: Vec<Declared>,
    is_user: fn(&str) -> bool,
}

pub(super) fn analyze(tool: &str, files: &Files) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, content) in files.iter().filter(|(path, _)| !is_vendored(path)) {
        let Some(manifest) = manifest(path, content) else { continue };
        let folder = &path[..path.rfind('/').map_or(0, |at| at + 1)];
        let unused = unused(&manifest, folder, files);
        for one in &manifest.declared {
            let place = (path.as_str(), one.line, 1);
            if one.is_any_version {
                let message = format!("{} is declared in any version", one.name);
                let fix = "say which versions it works with";
                found.push(Finding::new((tool, "unpinned", Severity::Low), place, message, fix));
            }
            if unused.contains(&one) {
                let message = format!("{} is declared and nothing names it", one.name);
                let fix = "remove it, unless a tool needs it";
                found.push(Finding::new((tool, "unused-dependency", Severity::Info), place, message, fix));
            }
        }
    }
    found
}

fn unused<'m>(manifest: &'m Manifest, folder: &str, files: &Files) -> Vec<&'m Declared> {
    let mut left: Vec<&Declared> = manifest.declared.iter().filter(|one| one.is_named).collect();
    for (path, content) in files.range(folder.to_owned()..).take_while(|(path, _)| path.starts_with(folder)) {
        if left.is_empty() {
            break;
        }
        if content.len() <= MAX_PARSED && (manifest.is_user)(path) {
            let text = String::from_utf8_lossy(content);
            left.retain(|one| !text.contains(&one.word));
        }
    }
    left
}

fn manifest(path: &str, content: &[u8]) -> Option<Manifest> {
    let text = std::str::from_utf8(content).ok()?;
    Some(match path.rsplit('/').next()? {
        "package.json" => Manifest { declared: of_npm(text)?, is_user: |path| !NO_USE.contains(&name(path)) },
        "Cargo.toml" => Manifest { declared: of_cargo(text)?, is_user: |path| path.ends_with(".rs") },
        "go.mod" => Manifest { declared: of_go(text), is_user: |path| path.ends_with(".go") },
        _ => return None,
    })
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
                line: line_of(text, |line| line.starts_with(&format!("\"{package}\""))),
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
            let starts = |line: &str| {
                let rest = line.strip_prefix(package.as_str()).or_else(|| line.strip_prefix(&format!("\"{package}\"")));
                rest.is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
                    || line.trim_end() == format!("[{list}.{package}]")
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
        for path in ["package.json", "Cargo.toml", "go.mod"] {
            for text in ["{[ broken", "[]", "\"x\"", "1"] {
                assert!(found(&[(path, text), ("x.js", "")]).is_empty(), "{path} {text}");
            }
        }
    }
}
