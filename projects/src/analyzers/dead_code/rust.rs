//! Rust: private items that nothing in the project names. The compiler says more of one crate; this needs no build.

use tree_sitter::Node;

use super::{Candidate, Mentions, count, is_kept};
use crate::analyzers::snapshot::Snapshot;
use crate::finding::Finding;
use crate::language::{Language, each, named, text};

const NAMES: (&[&str], fn(Node<'_>) -> bool) =
    (&["identifier", "type_identifier", "field_identifier", "shorthand_field_identifier"], is_text);
/// Attributes that use nothing: with any other the item may be reached by what it stands for.
const PLAIN: [&str; 9] =
    ["derive", "doc", "inline", "must_use", "non_exhaustive", "cfg", "track_caller", "cold", "serde"];

/// Such as `#[serde(default = "usual")]`.
fn is_text(node: Node<'_>) -> bool {
    node.kind() == "string_content"
}

pub(super) fn analyze(snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let mut total = Mentions::default();
    let mut candidates = Vec::new();
    for file in snapshot.in_language(|language| language == Language::Rust) {
        let (path, source) = (file.path, file.bytes);
        let Some(tree) = file.tree() else { continue };
        let root = tree.root_node();
        count(root, source, NAMES, &mut total);
        let allows = named(root).into_iter().filter(|node| node.kind() == "inner_attribute_item");
        let allows =
            allows.map(|node| text(node, source)).any(|text| text.contains("dead_code") || text.contains("unused"));
        if !root.has_error() && !allows && is_kept(path, source) {
            each(root, |node| candidates.extend(candidate(node, source).map(|one| (path, one))));
        }
    }
    let unused = candidates.into_iter().filter(|(_, one)| one.is_unused(&total));
    unused.map(|(path, one)| one.private(path)).collect()
}

fn candidate<'s>(node: Node<'_>, source: &'s [u8]) -> Option<Candidate<'s>> {
    let kind = match node.kind() {
        "function_item" => "function",
        "struct_item" => "struct",
        "enum_item" => "enum",
        "union_item" => "union",
        "const_item" => "constant",
        "static_item" => "static",
        "type_item" => "type",
        "trait_item" => "trait",
        "macro_definition" => "macro",
        _ => return None,
    };
    let name = text(node.child_by_field_name("name")?, source);
    let is_private = !named(node).iter().any(|child| child.kind() == "visibility_modifier");
    if !is_private || name == "main" || name.starts_with('_') || is_of_trait(node) || is_marked(node, source) {
        return None;
    }
    let mut inside = Mentions::default();
    count(node, source, NAMES, &mut inside);
    let (at, own) = (node.start_position(), inside.get(name).copied().unwrap_or(0));
    Some(Candidate { name, kind, line: at.row + 1, column: at.column + 1, own })
}

/// What a trait asks for, has, or is declared of another language.
fn is_of_trait(node: Node<'_>) -> bool {
    let above = node.parent().filter(|above| above.kind() == "declaration_list").and_then(|list| list.parent());
    above.is_some_and(|above| match above.kind() {
        "impl_item" => above.child_by_field_name("trait").is_some(),
        "trait_item" | "foreign_mod_item" => true,
        _ => false,
    })
}

fn is_marked(node: Node<'_>, source: &[u8]) -> bool {
    let above = std::iter::successors(node.prev_named_sibling(), Node::prev_named_sibling);
    let attributes = above.take_while(|one| one.kind() == "attribute_item" || one.kind().ends_with("comment"));
    let mut attributes = attributes.filter(|one| one.kind() == "attribute_item");
    attributes.any(|one| {
        let text = text(one, source).trim_start_matches(['#', '[', ' ']);
        let name = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        !PLAIN.contains(&name)
    })
}
