//! JavaScript and TypeScript: imports of a file, and what it neither exports nor uses. Files without imports and exports share their
//! names with others and are left alone.

use std::collections::HashSet;

use tree_sitter::Node;

use super::{Candidate, Mentions, TOOL, count, is_kept};
use crate::analyzers::snapshot::Snapshot;
use crate::definitions::{Reach, definitions};
use crate::finding::{Finding, Severity};
use crate::language::{Language, each, text};

const NAMES: (&[&str], fn(Node<'_>) -> bool) =
    (&["identifier", "type_identifier", "shorthand_property_identifier"], is_text);
/// Names that compilers of JSX use unseen.
const OF_JSX: [&str; 3] = ["React", "h", "Fragment"];

/// Types and pragmas of comments.
fn is_text(node: Node<'_>) -> bool {
    node.kind() == "comment"
}

pub(super) fn analyze(snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for script in snapshot.in_language(Language::is_script) {
        let (path, source) = (script.path, script.bytes);
        let is_declaration = [".d.ts", ".d.mts", ".d.cts"].iter().any(|end| path.ends_with(end));
        if is_declaration || !is_kept(path, source) {
            continue;
        }
        let Some(tree) = script.tree() else { continue };
        if !tree.root_node().has_error() {
            file(path, (script.language, tree.root_node()), source, &mut found);
        }
    }
    found
}

fn file(path: &str, (language, root): (Language, Node<'_>), source: &[u8], found: &mut Vec<Finding>) {
    let mut mentions = Mentions::default();
    count(root, source, NAMES, &mut mentions);
    let mut imported = Vec::new();
    each(root, |node| {
        if node.kind() == "import_statement" {
            let mut inside = Mentions::default();
            count(node, source, NAMES, &mut inside);
            for (name, times) in inside {
                if let Some(all) = mentions.get_mut(name) {
                    *all -= times;
                }
            }
            each(node, |part| imported.extend(bound(part)));
        }
    });
    let mut seen = HashSet::new();
    for node in imported {
        let name = text(node, source);
        let is_used = mentions.get(name).is_some_and(|times| *times > 0) || OF_JSX.contains(&name);
        if is_used || name.starts_with('_') || !seen.insert(name) {
            continue;
        }
        let at = node.start_position();
        let message = format!("{name} is imported and nothing in the file uses it");
        let rule = (TOOL, "unused-import", Severity::Low);
        found.push(Finding::new(rule, (path, at.row + 1, at.column + 1), message, "remove the import"));
    }
    for one in definitions(language, root, source) {
        if one.reach != Reach::File || one.is_marked || one.name.starts_with('_') {
            continue;
        }
        let mut inside = Mentions::default();
        count(one.node, source, NAMES, &mut inside);
        // A statement that declares several names says each once.
        let candidate = Candidate::new(&one, inside.get(one.name).copied().unwrap_or(0));
        if candidate.is_unused(&mentions) {
            found.push(candidate.private(path));
        }
    }
}

/// The name that a part of an import brings.
fn bound(part: Node<'_>) -> Option<Node<'_>> {
    match part.kind() {
        "import_specifier" => part.child_by_field_name("alias").or_else(|| part.child_by_field_name("name")),
        "identifier" => {
            let above = part.parent()?;
            matches!(above.kind(), "import_clause" | "namespace_import" | "import_require_clause").then_some(part)
        }
        _ => None,
    }
}
