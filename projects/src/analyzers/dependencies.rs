//! Declared against imported packages, and versions that are not pinned: of Python here, of others in [`node_packages`],
//! [`undeclared_go`], [`undeclared_rust`] and [`declared_packages`].

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use super::python_packages::{is_stdlib, modules_of, package_of};
use super::{declared_packages, node_packages, parsed, undeclared_go, undeclared_rust};
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::language::{Language, each, named, text};

const TOOL: &str = "dependencies";

/// Files that declare packages in ways that are not read: what is imported may be declared there.
const OTHER_DECLARATIONS: [&str; 6] =
    ["setup.py", "setup.cfg", "Pipfile", "environment.yml", "environment.yaml", "meta.yaml"];

struct Declared {
    file: String,
    line: usize,
    pinned: bool,
}

pub(super) fn analyze(files: &Files) -> Vec<Finding> {
    let mut found = python(files);
    found.extend(node_packages::undeclared(TOOL, files));
    found.extend(undeclared_go::undeclared(TOOL, files));
    found.extend(undeclared_rust::undeclared(TOOL, files));
    found.extend(declared_packages::analyze(TOOL, files));
    found
}

fn python(files: &Files) -> Vec<Finding> {
    let declared = declared(files);
    if declared.is_empty() {
        return Vec::new();
    }
    let imported = imported(files);
    let mut found = Vec::new();
    for (package, at) in &declared {
        let place = (at.file.as_str(), at.line, 1);
        if !at.pinned {
            let rule = (TOOL, "unpinned", Severity::Low);
            found.push(Finding::new(
                rule,
                place,
                format!("{package} has no version"),
                "say which versions it works with",
            ));
        }
        if !modules_of(package).iter().any(|module| imported.contains_key(module)) {
            let rule = (TOOL, "unused-dependency", Severity::Info);
            let message = format!("{package} is declared and nothing imports it");
            found.push(Finding::new(rule, place, message, "remove it, unless a tool needs it"));
        }
    }
    undeclared(files, declared.keys(), &imported, &mut found);
    found
}

/// Imports that nothing declared has, at the first place of each.
fn undeclared<'d>(
    files: &Files,
    declared: impl Iterator<Item = &'d String>,
    imported: &BTreeMap<String, Import>,
    found: &mut Vec<Finding>,
) {
    if files.keys().any(|path| OTHER_DECLARATIONS.contains(&path.rsplit('/').next().unwrap_or(path))) {
        return;
    }
    let own = own_modules(files);
    let packages = declared.cloned().chain(optional(files));
    let provided: BTreeSet<String> = packages.flat_map(|package| modules_of(&package)).collect();
    for (module, at) in imported {
        if at.is_guarded || is_stdlib(module) || own.contains(module) || provided.contains(module) {
            continue;
        }
        let rule = (TOOL, "undeclared-dependency", Severity::Medium);
        let message = format!("{module} is imported and no package is declared that has it");
        let fix = format!("declare it, most likely {}", package_of(module));
        found.push(Finding::new(rule, (at.file.as_str(), at.line, 1), message, fix));
    }
}

/// Every file and folder may be a module, whatever the project's root for imports is.
fn own_modules(files: &Files) -> BTreeSet<String> {
    let parts =
        files.keys().filter(|path| Language::of(path) == Some(Language::Python)).flat_map(|path| path.split('/'));
    parts.map(first).collect()
}

/// Packages of extras, groups and build tools of `pyproject.toml`, and those that Poetry lists.
fn optional(files: &Files) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, content) in files {
        if path.rsplit('/').next() != Some("pyproject.toml") {
            continue;
        }
        let table: toml::Table =
            std::str::from_utf8(content).ok().and_then(|text| toml::from_str(text).ok()).unwrap_or_default();
        let at = |keys: &[&str]| {
            let mut value = table.get(*keys.first()?)?;
            for key in keys.iter().skip(1) {
                value = value.get(*key)?;
            }
            Some(value)
        };
        let groups = [at(&["project", "optional-dependencies"]), at(&["dependency-groups"])];
        let lists = groups.into_iter().flatten().filter_map(toml::Value::as_table).flat_map(|table| table.values());
        let lists = lists.chain(at(&["build-system", "requires"])).filter_map(toml::Value::as_array);
        for one in lists.flatten().filter_map(toml::Value::as_str) {
            names.extend(requirement(one).map(|(package, _)| package));
        }
        let poetry = [at(&["tool", "poetry", "dependencies"]), at(&["tool", "poetry", "dev-dependencies"])];
        let of_groups = at(&["tool", "poetry", "group"]).and_then(toml::Value::as_table);
        let of_groups =
            of_groups.into_iter().flat_map(|table| table.values()).filter_map(|group| group.get("dependencies"));
        for table in poetry.into_iter().flatten().chain(of_groups).filter_map(toml::Value::as_table) {
            names.extend(table.keys().map(|name| name.to_lowercase().replace('_', "-")));
        }
    }
    names
}

/// The first import of a module.
struct Import {
    file: String,
    line: usize,
    /// Within `try`: the project works without it.
    is_guarded: bool,
}

fn imported(files: &Files) -> BTreeMap<String, Import> {
    let mut modules = BTreeMap::new();
    for (path, language, source) in parsed(files).filter(|(_, language, _)| *language == Language::Python) {
        let Some(tree) = language.parse(source) else { continue };
        let mut note = |node: Node<'_>, name: Node<'_>| {
            let import =
                || Import { file: path.to_owned(), line: node.start_position().row + 1, is_guarded: is_guarded(node) };
            modules.entry(first(text(name, source))).or_insert_with(import);
        };
        each(tree.root_node(), |node| match node.kind() {
            "import_statement" => {
                for name in named(node) {
                    note(node, name.child_by_field_name("name").unwrap_or(name));
                }
            }
            "import_from_statement" => {
                if let Some(name) = node.child_by_field_name("module_name") {
                    note(node, name);
                }
            }
            _ => {}
        });
    }
    modules
}

fn is_guarded(node: Node<'_>) -> bool {
    std::iter::successors(node.parent(), Node::parent).any(|above| above.kind() == "try_statement")
}

fn first(module: &str) -> String {
    module.split('.').next().unwrap_or_default().to_lowercase()
}

fn declared(files: &Files) -> BTreeMap<String, Declared> {
    let mut found = BTreeMap::new();
    for (path, content) in files {
        let Ok(text) = std::str::from_utf8(content) else { continue };
        let name = path.rsplit('/').next().unwrap_or(path);
        if name.starts_with("requirements") && name.ends_with(".txt") {
            for (index, line) in text.lines().enumerate() {
                declare(line, path, index + 1, &mut found);
            }
        } else if name == "pyproject.toml" {
            let table: toml::Table = toml::from_str(text).unwrap_or_default();
            let list =
                table.get("project").and_then(|project| project.get("dependencies")).and_then(toml::Value::as_array);
            for one in list.into_iter().flatten().filter_map(toml::Value::as_str) {
                let line = text.lines().position(|line| line.contains(one)).map_or(1, |index| index + 1);
                declare(one, path, line, &mut found);
            }
        }
    }
    found
}

fn declare(line: &str, path: &str, number: usize, found: &mut BTreeMap<String, Declared>) {
    if let Some((package, pinned)) = requirement(line) {
        found.entry(package).or_insert_with(|| Declared { file: path.to_owned(), line: number, pinned });
    }
}

/// The package of a requirement as PEP 508 writes it, and whether it says which versions.
fn requirement(line: &str) -> Option<(String, bool)> {
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.starts_with('-') {
        return None;
    }
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let package = name.to_lowercase().replace('_', "-");
    (!package.is_empty()).then(|| (package, rest.contains(['=', '<', '>', '~', '@'])))
}
