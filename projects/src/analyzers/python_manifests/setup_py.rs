//! `setup.py`: the literals that `setup(…)` is called with, by the syntax tree. What is put together when it runs is not known.

use std::collections::BTreeMap;

use tree_sitter::Node;

use super::Manifest;
use super::requirement::{Requirement, Role};
use crate::language::{Language, each, named, text};

/// Arguments of `setup` that are lists of packages.
const LISTS: [(&str, Role); 3] =
    [("install_requires", Role::Needed), ("tests_require", Role::Optional), ("setup_requires", Role::Build)];
const EXTRAS: &str = "extras_require";

/// A file whose calls are read.
struct Source<'t, 's> {
    bytes: &'s [u8],
    /// Names that get one value, and what it is; names are used nowhere but where a value is expected.
    values: BTreeMap<&'s str, Node<'t>>,
}

pub(super) fn read(file: &str) -> Manifest {
    let bytes = file.as_bytes();
    let Some(tree) = Language::Python.parse(bytes) else { return Manifest::unknown() };
    let source = Source { bytes, values: values(tree.root_node(), bytes) };
    let mut calls = Vec::new();
    each(tree.root_node(), |node| {
        let function = node.child_by_field_name("function").map_or("", |function| text(function, bytes));
        if node.kind() == "call" && matches!(function, "setup" | "setuptools.setup") {
            calls.push(node);
        }
    });
    let mut manifest = Manifest { requirements: Vec::new(), is_open: calls.is_empty() };
    for arguments in calls.iter().filter_map(|call| call.child_by_field_name("arguments")) {
        for argument in named(arguments) {
            source.take(argument, &mut manifest);
        }
    }
    manifest
}

impl<'t> Source<'t, '_> {
    fn take(&self, argument: Node<'t>, manifest: &mut Manifest) {
        if argument.kind() == "dictionary_splat" {
            manifest.is_open = true;
        }
        let fields = (argument.child_by_field_name("name"), argument.child_by_field_name("value"));
        let (Some(name), Some(value)) = fields else { return };
        let name = text(name, self.bytes);
        if let Some((_, role)) = LISTS.iter().find(|(list, _)| *list == name) {
            self.list(self.value(value), *role, manifest);
        } else if name == EXTRAS {
            self.extras(self.value(value), manifest);
        }
    }

    fn extras(&self, value: Node<'t>, manifest: &mut Manifest) {
        manifest.is_open |= value.kind() != "dictionary";
        for pair in named(value).into_iter().filter(|node| node.kind() != "comment") {
            match pair.child_by_field_name("value") {
                Some(list) if pair.kind() == "pair" => self.list(self.value(list), Role::Optional, manifest),
                _ => manifest.is_open = true,
            }
        }
    }

    /// A list of texts, or one text with a package a line.
    fn list(&self, value: Node<'t>, role: Role, manifest: &mut Manifest) {
        let parts = match value.kind() {
            "list" | "tuple" | "set" => named(value),
            "string" => vec![value],
            _ => {
                manifest.is_open = true;
                return;
            }
        };
        for part in parts.into_iter().filter(|node| node.kind() != "comment") {
            let Some(said) = self.literal(part) else {
                manifest.is_open = true;
                continue;
            };
            let first = part.start_position().row + 1;
            let lines = said.lines().enumerate();
            let read = lines.filter_map(|(index, line)| Requirement::read(line, first + index, role));
            manifest.requirements.extend(read);
        }
    }

    /// What a name stands for.
    fn value(&self, node: Node<'t>) -> Node<'t> {
        let known = (node.kind() == "identifier").then(|| self.values.get(text(node, self.bytes))).flatten();
        known.copied().unwrap_or(node)
    }

    /// The text of a string that is not put together.
    fn literal(&self, node: Node<'t>) -> Option<String> {
        let parts = named(node);
        if node.kind() != "string" || parts.iter().any(|part| part.kind() == "interpolation") {
            return None;
        }
        let contents = parts.into_iter().filter(|part| part.kind() == "string_content");
        Some(contents.map(|part| text(part, self.bytes)).collect())
    }
}

/// Names with one assignment and one use: what else is done to a list is not known.
fn values<'t, 's>(root: Node<'t>, bytes: &'s [u8]) -> BTreeMap<&'s str, Node<'t>> {
    let mut found = BTreeMap::new();
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    each(root, |node| {
        let left = node.child_by_field_name("left").filter(|left| left.kind() == "identifier");
        let right = node.child_by_field_name("right");
        if let (Some(left), Some(right)) = (left.filter(|_| node.kind() == "assignment"), right) {
            found.insert(text(left, bytes), right);
        }
        if node.kind() == "identifier" && !is_label(node) {
            *uses.entry(text(node, bytes)).or_default() += 1;
        }
    });
    found.retain(|name, _| uses.get(name) == Some(&2));
    found
}

/// Whether a name is that of an argument.
fn is_label(node: Node<'_>) -> bool {
    let call = node.parent().filter(|parent| parent.kind() == "keyword_argument");
    call.and_then(|call| call.child_by_field_name("name")).is_some_and(|name| name.id() == node.id())
}
