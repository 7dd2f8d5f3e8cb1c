//! Declared against imported packages, and versions that are not pinned: of Python here, of others in [`node_packages`],
//! [`undeclared_go`], [`undeclared_rust`] and [`declared_packages`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::python_manifests::{Requirement, Role, manifest};
use super::python_packages::{is_stdlib, modules_of, package_of};
use super::snapshot::Snapshot;
use super::{broken_manifests, declared_packages, node_packages, undeclared_go, undeclared_rust};
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::language::Language;

const TOOL: &str = "dependencies";

/// A package with the first place that declares it.
struct Declared {
    file: String,
    requirement: Requirement,
}

/// What the manifests of Python say together.
struct Manifests {
    /// By name.
    declared: BTreeMap<String, Declared>,
    /// What builds the project: it may be imported, and is not asked for more.
    build: BTreeSet<String>,
    /// Whether one of them may declare more than what is known.
    is_open: bool,
}

pub(super) fn analyze(snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let mut found = python(snapshot);
    found.extend(broken_manifests::analyze(TOOL, snapshot.files()));
    found.extend(node_packages::undeclared(TOOL, snapshot));
    found.extend(undeclared_go::undeclared(TOOL, snapshot));
    found.extend(undeclared_rust::undeclared(TOOL, snapshot));
    found.extend(declared_packages::analyze(TOOL, snapshot.files()));
    found
}

fn python(snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let manifests = manifests(snapshot.files());
    if manifests.declared.is_empty() {
        return Vec::new();
    }
    let imported = imported(snapshot);
    let mut found = Vec::new();
    for (package, Declared { file, requirement }) in &manifests.declared {
        let place = (file.as_str(), requirement.line, 1);
        if !requirement.is_pinned {
            let rule = (TOOL, "unpinned", Severity::Low);
            found.push(Finding::new(
                rule,
                place,
                format!("{package} has no version"),
                "say which versions it works with",
            ));
        }
        let is_needed = requirement.role == Role::Needed;
        if is_needed && !modules_of(package).iter().any(|module| imported.contains_key(module)) {
            let rule = (TOOL, "unused-dependency", Severity::Info);
            let message = format!("{package} is declared and nothing imports it");
            found.push(Finding::new(rule, place, message, "remove it, unless a tool needs it"));
        }
    }
    undeclared(snapshot.files(), &manifests, &imported, &mut found);
    found
}

fn manifests(files: &Files) -> Manifests {
    let mut all = Manifests { declared: BTreeMap::new(), build: BTreeSet::new(), is_open: false };
    let read = files.iter().filter_map(|(path, content)| Some((path, manifest(path, content)?)));
    for (path, manifest) in read {
        all.is_open |= manifest.is_open;
        for requirement in manifest.requirements {
            if requirement.role == Role::Build {
                all.build.insert(requirement.package);
                continue;
            }
            let package = requirement.package.clone();
            let here = Declared { file: path.clone(), requirement };
            match all.declared.entry(package) {
                Entry::Vacant(place) => {
                    place.insert(here);
                }
                // An extra may name again what the project needs anyway.
                Entry::Occupied(mut known) => {
                    let is_needed = |one: &Declared| one.requirement.role == Role::Needed;
                    if is_needed(&here) && !is_needed(known.get()) {
                        known.insert(here);
                    }
                }
            }
        }
    }
    all
}

/// Imports that nothing declared has, at the first place of each.
fn undeclared(files: &Files, manifests: &Manifests, imported: &BTreeMap<String, Import>, found: &mut Vec<Finding>) {
    if manifests.is_open {
        return;
    }
    let own = own_modules(files);
    let packages = manifests.declared.keys().chain(&manifests.build);
    let provided: BTreeSet<String> = packages.flat_map(|package| modules_of(package)).collect();
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

/// The first import of a module.
struct Import {
    file: String,
    line: usize,
    /// Within `try`, or where the project is built: the project works without it.
    is_guarded: bool,
}

fn imported(snapshot: &Snapshot<'_>) -> BTreeMap<String, Import> {
    let mut modules = BTreeMap::new();
    let python = || snapshot.in_language(|language| language == Language::Python);
    // What the project imports goes before what builds it.
    let all = python().filter(|file| !is_setup(file.path)).chain(python().filter(|file| is_setup(file.path)));
    for file in all {
        let path = file.path;
        let Some(module) = file.module() else { continue };
        for import in module.imports.iter().filter(|import| !import.is_future) {
            let names = import.from.into_iter();
            let names = names.chain(import.names.iter().filter(|_| import.from.is_none()).map(|one| one.name));
            for name in names {
                let note = || Import {
                    file: path.to_owned(),
                    line: module.line(import.range.start()),
                    is_guarded: import.is_guarded || is_setup(path),
                };
                modules.entry(first(module.text(name))).or_insert_with(note);
            }
        }
    }
    modules
}

/// Whether a file is what setuptools runs: its imports are there when the project is built.
fn is_setup(path: &str) -> bool {
    path.rsplit('/').next() == Some("setup.py")
}

fn first(module: &str) -> String {
    module.split('.').next().unwrap_or_default().to_lowercase()
}
