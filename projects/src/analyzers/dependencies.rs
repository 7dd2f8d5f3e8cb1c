//! Declared against imported packages of Python projects, and versions that are not pinned.

use std::collections::{BTreeMap, BTreeSet};

use super::parsed;
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::language::{Language, each, named, text};

const TOOL: &str = "dependencies";

/// Packages whose modules have another name.
const ALIASES: &[(&str, &str)] = &[
    ("scikit-learn", "sklearn"),
    ("pyyaml", "yaml"),
    ("pillow", "pil"),
    ("opencv-python", "cv2"),
    ("beautifulsoup4", "bs4"),
    ("python-dateutil", "dateutil"),
    ("python-dotenv", "dotenv"),
    ("attrs", "attr"),
    ("imbalanced-learn", "imblearn"),
    ("protobuf", "google"),
    ("pyjwt", "jwt"),
];

struct Declared {
    file: String,
    line: usize,
    pinned: bool,
}

pub(super) fn analyze(files: &Files) -> Vec<Finding> {
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
        if !imported.contains(&module_of(package)) {
            let rule = (TOOL, "unused-dependency", Severity::Info);
            let message = format!("{package} is declared and nothing imports it");
            found.push(Finding::new(rule, place, message, "remove it, unless a tool needs it"));
        }
    }
    found
}

fn module_of(package: &str) -> String {
    let known = ALIASES.iter().find(|(name, _)| *name == package).map(|(_, module)| (*module).to_owned());
    known.unwrap_or_else(|| package.replace(['-', '.'], "_"))
}

fn imported(files: &Files) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for (_, language, source) in parsed(files).filter(|(_, language, _)| *language == Language::Python) {
        let Some(tree) = language.parse(source) else { continue };
        each(tree.root_node(), |node| match node.kind() {
            "import_statement" => {
                for name in named(node) {
                    let name = name.child_by_field_name("name").unwrap_or(name);
                    modules.insert(first(text(name, source)));
                }
            }
            "import_from_statement" => {
                modules.extend(node.child_by_field_name("module_name").map(|name| first(text(name, source))));
            }
            _ => {}
        });
    }
    modules
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

/// A requirement as PEP 508 writes it.
fn declare(line: &str, path: &str, number: usize, found: &mut BTreeMap<String, Declared>) {
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() || line.starts_with('-') {
        return;
    }
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return;
    }
    let pinned = rest.contains(['=', '<', '>', '~', '@']);
    let package = name.to_lowercase().replace('_', "-");
    found.entry(package).or_insert_with(|| Declared { file: path.to_owned(), line: number, pinned });
}
