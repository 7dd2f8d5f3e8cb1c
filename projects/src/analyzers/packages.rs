//! Packages with an exact version, as lock files and requirements name them.

use std::collections::HashMap;

use serde_json::Value;

use super::node_locks;
use super::python_manifests::{Requirement, manifest};
use crate::copy::Files;

/// Most packages that are looked at; larger projects are several.
pub(super) const MAX_PACKAGES: usize = 50_000;

/// A package of a certain version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    /// As OSV names it: `PyPI`, `crates.io`, `npm`, `Go`.
    pub(super) ecosystem: &'static str,
    pub(super) name: String,
    pub(super) version: String,
    /// Where it is named.
    pub(super) file: String,
    pub(super) line: usize,
    /// What the lock file says of its licence.
    pub(super) licence: Option<String>,
}

/// Every package with an exact version, and whether there are more than are looked at.
pub(super) fn packages(files: &Files) -> (Vec<Package>, bool) {
    let mut found = Vec::new();
    for (path, content) in files {
        let here = named(path, content).into_iter().map(|named| Package {
            ecosystem: named.ecosystem,
            name: named.name,
            version: named.version,
            file: path.clone(),
            line: named.line,
            licence: named.licence,
        });
        found.extend(here.take((MAX_PACKAGES + 1).saturating_sub(found.len())));
        if found.len() > MAX_PACKAGES {
            found.truncate(MAX_PACKAGES);
            return (found, true);
        }
    }
    (found, false)
}

/// What a file names: a lock file, or a manifest of Python with versions of its own.
fn named(path: &str, content: &[u8]) -> Vec<Named> {
    let read: fn(&str) -> Vec<Named> = match path.rsplit('/').next().unwrap_or(path) {
        "Cargo.lock" => |text| toml_lock("crates.io", text),
        "poetry.lock" | "uv.lock" | "pdm.lock" => |text| toml_lock("PyPI", text),
        "Pipfile.lock" => pipfile_lock,
        "package-lock.json" | "npm-shrinkwrap.json" => node_locks::npm,
        "yarn.lock" => node_locks::yarn,
        "pnpm-lock.yaml" => node_locks::pnpm,
        "bun.lock" => node_locks::bun,
        "go.mod" => go_mod,
        _ => return declared(path, content),
    };
    std::str::from_utf8(content).map(read).unwrap_or_default()
}

/// A package without its file.
pub(super) struct Named {
    pub(super) ecosystem: &'static str,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) line: usize,
    pub(super) licence: Option<String>,
}

/// The name under which PyPI keeps a package (PEP 503).
pub(super) fn pypi(name: &str) -> String {
    name.to_lowercase().replace(['_', '.'], "-")
}

/// `[[package]]` tables with `name` and `version` before anything else. What has no source is the project itself.
fn toml_lock(ecosystem: &'static str, text: &str) -> Vec<Named> {
    let table: toml::Table = toml::from_str(text).unwrap_or_default();
    let heads = text.lines().enumerate().filter(|(_, line)| line.trim() == "[[package]]");
    let mut lines = heads.map(|(index, _)| index + 1);
    let packages = table.get("package").and_then(toml::Value::as_array);
    let mut found = Vec::new();
    for one in packages.into_iter().flatten() {
        let line = lines.next().unwrap_or(1);
        let field = |name: &str| one.get(name).and_then(toml::Value::as_str);
        let (Some(name), Some(version)) = (field("name"), field("version")) else { continue };
        let is_own = match ecosystem {
            "crates.io" => one.get("source").is_none(),
            _ => one.get("source").is_some_and(|source| source.get("editable").or(source.get("virtual")).is_some()),
        };
        if !is_own {
            let name = if ecosystem == "PyPI" { pypi(name) } else { name.to_owned() };
            found.push(Named { ecosystem, name, version: version.to_owned(), line, licence: None });
        }
    }
    found
}

/// `require` lines, alone and in parentheses.
fn go_mod(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let entry = match line.strip_prefix("require") {
            Some(rest) if rest.trim() == "(" => {
                is_inside = true;
                continue;
            }
            Some(rest) => rest.trim(),
            None if line == ")" => {
                is_inside = false;
                continue;
            }
            None if is_inside => line,
            None => continue,
        };
        if let Some((name, version)) = entry.split_once(' ') {
            let version = version.trim().trim_start_matches('v').trim_end_matches("+incompatible").to_owned();
            found.push(Named { ecosystem: "Go", name: name.to_owned(), version, line: index + 1, licence: None });
        }
    }
    found
}

/// What Pipenv locked, for the project and for its development.
fn pipfile_lock(text: &str) -> Vec<Named> {
    let lock: Value = serde_json::from_str(text).unwrap_or_default();
    let places = places(text);
    let lists = ["default", "develop"].into_iter().filter_map(|list| lock[list].as_object()).flatten();
    let named = |(name, said): (&String, &Value)| {
        let version = said["version"].as_str()?.trim_start_matches('=').to_owned();
        let line = places.get(name.as_str()).copied().unwrap_or(1);
        Some(Named { ecosystem: "PyPI", name: pypi(name), version, line, licence: None })
    };
    lists.filter_map(named).collect()
}

/// The last line that begins with a name in quotes, by the name.
pub(super) fn places(text: &str) -> HashMap<&str, usize> {
    text.lines()
        .enumerate()
        .filter_map(|(index, line)| Some((line.trim_start().strip_prefix('"')?.split('"').next()?, index + 1)))
        .collect()
}

/// What a manifest of Python declares in one version and no other.
fn declared(path: &str, content: &[u8]) -> Vec<Named> {
    let requirements = manifest(path, content).map(|manifest| manifest.requirements).unwrap_or_default();
    let named = |one: Requirement| {
        let (name, version) = (pypi(&one.package), one.exact?);
        Some(Named { ecosystem: "PyPI", name, version, line: one.line, licence: None })
    };
    requirements.into_iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_lock_files_of_each_kind_when_they_are_read_then_names_versions_and_lines_are_theirs() {
        let npm = "{\n\"packages\": {\n\"\": {\"name\": \"me\"},\n\"node_modules/@a/b\": {\"version\": \"1.2.3\", \"license\": \"MIT\"}}}";
        let cargo = "version = 4\n[[package]]\nname = \"me\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"time\"\nversion = \"0.1.40\"\nsource = \"registry+x\"\n";
        for (file, text, expected) in [
            (
                "requirements.txt",
                "# all\nDjango[x] == 2.0.1 ; python_version > '3'\nflask>=1\nb==1.*\n",
                ("PyPI", "django", "2.0.1", 2),
            ),
            ("a/package-lock.json", npm, ("npm", "@a/b", "1.2.3", 4)),
            ("yarn.lock", "lodash@^4:\n  version \"4.17.20\"\n", ("npm", "lodash", "4.17.20", 1)),
            ("bun.lock", "{\"packages\": {\n\"lodash\": [\"lodash@4.17.20\"],\n},}", ("npm", "lodash", "4.17.20", 2)),
            ("pnpm-lock.yaml", "packages:\n\n  lodash@4.17.20:\n", ("npm", "lodash", "4.17.20", 3)),
            ("Cargo.lock", cargo, ("crates.io", "time", "0.1.40", 6)),
            ("uv.lock", "[[package]]\nname = \"Jinja_2\"\nversion = \"2.0\"\n", ("PyPI", "jinja-2", "2.0", 1)),
            (
                "Pipfile.lock",
                "{\n\"default\": {\n\"Jinja2\": {\n\"version\": \"==2.0\"\n}\n}\n}",
                ("PyPI", "jinja2", "2.0", 3),
            ),
            ("setup.cfg", "[options]\ninstall_requires =\n  flask\n  a.b==1.0\n", ("PyPI", "a-b", "1.0", 4)),
            ("pyproject.toml", "[tool.poetry.dependencies]\nflask = \"1.0\"\n", ("PyPI", "flask", "1.0", 2)),
            ("go.mod", "module m\n\nrequire (\n\tx.org/y v1.2.3 // indirect\n)\n", ("Go", "x.org/y", "1.2.3", 4)),
        ] {
            let (found, _) = packages(&Files::from([(file.to_owned(), text.to_owned().into())]));
            let seen: Vec<_> =
                found.iter().map(|one| (one.ecosystem, one.name.as_str(), one.version.as_str(), one.line)).collect();
            assert_eq!(seen, [expected], "{file}");
        }
    }
}
