//! Go: what a package keeps to itself and does not use. The compiler refuses unused imports and variables.

use std::collections::HashMap;

use tree_sitter::Node;

use super::{Candidate, Mentions, count, is_kept};
use crate::analyzers::snapshot::Snapshot;
use crate::definitions::{Reach, definitions};
use crate::finding::Finding;
use crate::language::{Language, named, text};

const NAMES: (&[&str], fn(Node<'_>) -> bool) = (&["identifier", "type_identifier", "field_identifier"], is_text);

/// Nothing that is text names anything; directives are read apart.
fn is_text(_: Node<'_>) -> bool {
    false
}

/// The files of a folder.
#[derive(Default)]
struct Package<'s> {
    mentions: Mentions<'s>,
    candidates: Vec<(&'s str, Candidate<'s>)>,
}

pub(super) fn analyze(snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let mut packages: HashMap<&str, Package<'_>> = HashMap::new();
    for file in snapshot.in_language(|language| language == Language::Go) {
        let (path, source) = (file.path, file.bytes);
        let Some(tree) = file.tree() else { continue };
        let root = tree.root_node();
        let package = packages.entry(folder(path)).or_default();
        count(root, source, NAMES, &mut package.mentions);
        for comment in named(root).into_iter().filter(|node| node.kind() == "comment") {
            let text = text(comment, source);
            if text.starts_with("//go:") || text.starts_with("//export") {
                super::words(text).for_each(|word| *package.mentions.entry(word).or_default() += 1);
            }
        }
        if root.has_error() || !is_kept(path, source) {
            continue;
        }
        for one in definitions(Language::Go, root, source).into_iter().filter(|one| one.reach == Reach::File) {
            if !matches!(one.name, "main" | "init" | "_") && !is_one_of_many(one.node) {
                let mut inside = Mentions::default();
                count(one.node, source, NAMES, &mut inside);
                let own = inside.get(one.name).copied().unwrap_or(0);
                package.candidates.push((path, Candidate::new(&one, own)));
            }
        }
    }
    // Assembly calls what it likes.
    for path in snapshot.files().keys().filter(|path| path.ends_with(".s")) {
        packages.remove(folder(path));
    }
    let all = packages.into_values().flat_map(|package| {
        let Package { mentions, candidates } = package;
        candidates.into_iter().filter(move |(_, one)| one.is_unused(&mentions))
    });
    all.map(|(path, one)| one.private(path)).collect()
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A constant among others holds its place in their order.
fn is_one_of_many(node: Node<'_>) -> bool {
    node.kind() == "const_spec" && node.parent().is_some_and(|above| above.named_child_count() > 1)
}
