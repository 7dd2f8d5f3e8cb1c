//! What a file of Rust says: its modules, and the paths that it names.

use tree_sitter::Node;

use super::MAX_PATH;
use crate::analyzers::snapshot::Source;
use crate::language::{each_with_depth, named, text};

/// Modules within each other in one file that are followed.
const MAX_DEPTH: usize = 32;
/// Names of one path that are followed.
const MAX_NAMES: usize = 64;

/// How a path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// With any name that is known here.
    Here,
    /// With `::`.
    Outside,
    /// With the name of a crate: `extern crate`.
    Crate,
}

/// A path that a file names.
pub(super) struct Use<'f> {
    /// The module within the file.
    pub(super) within: String,
    pub(super) begins: Begins,
    pub(super) names: Vec<&'f str>,
    pub(super) line: usize,
}

/// A module in a file of its own.
pub(super) struct Declared<'f> {
    pub(super) within: String,
    pub(super) name: &'f str,
    /// What `#[path = "…"]` says.
    pub(super) path: Option<&'f str>,
    pub(super) line: usize,
}

/// What is read of a file.
#[derive(Default)]
pub(super) struct Facts<'f> {
    /// Modules that have their body in it.
    pub(super) inline: Vec<String>,
    pub(super) declared: Vec<Declared<'f>>,
    pub(super) uses: Vec<Use<'f>>,
}

pub(super) fn read<'f>(file: &Source<'f>) -> Facts<'f> {
    let mut facts = Facts::default();
    let Some(tree) = file.tree() else { return facts };
    let source = file.bytes;
    // Modules around what is visited, each with its depth in the tree.
    let mut around: Vec<(u32, &'f str)> = Vec::new();
    let mut renamed: Option<(u32, &'f str)> = None;
    each_with_depth(tree.root_node(), |node, depth| {
        while around.last().is_some_and(|(above, _)| *above >= depth) {
            around.pop();
        }
        let kind = node.kind();
        if kind == "attribute_item" {
            renamed = path_attribute(text(node, source)).map(|path| (depth, path)).or(renamed);
            return;
        }
        let is_ended = |at: u32| at >= depth && !kind.ends_with("comment");
        let path = renamed.take_if(|(at, _)| is_ended(*at)).filter(|(at, _)| *at == depth).map(|(_, path)| path);
        if !matches!(kind, "mod_item" | "use_declaration" | "extern_crate_declaration") || is_too_deep(&around) {
            return;
        }
        let line = node.start_position().row + 1;
        match kind {
            "mod_item" => {
                let name = node.child_by_field_name("name").map(|name| plain(text(name, source))).unwrap_or_default();
                if name.is_empty() {
                    return;
                }
                let within = joint(&around);
                if node.child_by_field_name("body").is_some() {
                    facts.inline.push(child(&within, name));
                    around.push((depth, name));
                } else {
                    facts.declared.push(Declared { within, name, path, line });
                }
            }
            "use_declaration" => {
                let Some(argument) = node.child_by_field_name("argument") else { return };
                let within = joint(&around);
                let all = paths(argument, source).into_iter();
                facts.uses.extend(all.map(|(begins, names)| Use { within: within.clone(), begins, names, line }));
            }
            "extern_crate_declaration" => {
                let name = node.child_by_field_name("name").map(|name| plain(text(name, source)));
                let within = joint(&around);
                facts.uses.extend(name.map(|name| Use { within, begins: Begins::Crate, names: vec![name], line }));
            }
            _ => {}
        }
    });
    facts
}

fn is_too_deep(around: &[(u32, &str)]) -> bool {
    around.len() > MAX_DEPTH || around.iter().map(|(_, name)| name.len()).sum::<usize>() > MAX_PATH
}

fn joint(around: &[(u32, &str)]) -> String {
    around.iter().map(|(_, name)| *name).collect::<Vec<&str>>().join("::")
}

pub(super) fn child(module: &str, name: &str) -> String {
    match (module, name) {
        ("", _) => name.to_owned(),
        (_, "") => module.to_owned(),
        _ => format!("{module}::{name}"),
    }
}

/// A name as a file would have it: `r#type` is in `type.rs`.
fn plain(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}

/// The text of `#[path = "…"]`.
fn path_attribute(said: &str) -> Option<&str> {
    let inner = said.strip_prefix('#')?.trim_start().strip_prefix('[')?.strip_suffix(']')?.trim();
    let value = inner.strip_prefix("path")?.trim_start().strip_prefix('=')?.trim();
    value.strip_prefix('"')?.strip_suffix('"')
}

/// The paths of a `use`, those within its braces each by itself. A name that a path ends with need not be a module.
fn paths<'s>(argument: Node<'_>, source: &'s [u8]) -> Vec<(Begins, Vec<&'s str>)> {
    let mut found = Vec::new();
    let mut open = vec![(argument, Begins::Here, Vec::new())];
    while let Some((node, begins, before)) = open.pop() {
        let joined = |path: Option<Node<'_>>, is_global: bool| {
            let (is_outside, names) = path.map_or((is_global, Vec::new()), |path| names_of(path, source));
            let begins = if is_outside && before.is_empty() { Begins::Outside } else { begins };
            let all: Vec<&'s str> = before.iter().copied().chain(names).collect();
            let bytes: usize = all.iter().map(|name| name.len()).sum();
            (all.len() <= MAX_NAMES && bytes <= MAX_PATH).then_some((begins, all))
        };
        match node.kind() {
            "use_list" => {
                open.extend(named(node).into_iter().rev().map(|one| (one, begins, before.clone())));
            }
            "scoped_use_list" => {
                let list = node.child_by_field_name("list");
                let path = joined(node.child_by_field_name("path"), true);
                open.extend(list.zip(path).map(|(list, (begins, names))| (list, begins, names)));
            }
            "use_as_clause" => found.extend(joined(node.child_by_field_name("path"), false)),
            "use_wildcard" => found.extend(joined(node.named_child(0), false)),
            kind if kind.ends_with("comment") => {}
            _ => found.extend(joined(Some(node), false)),
        }
    }
    found.retain(|(_, names)| !names.is_empty());
    found
}

/// The names of a path, and whether it begins with `::`.
fn names_of<'s>(path: Node<'_>, source: &'s [u8]) -> (bool, Vec<&'s str>) {
    let mut names = Vec::new();
    let mut rest = Some(path);
    let mut is_outside = false;
    while let Some(node) = rest {
        if node.kind() == "scoped_identifier" {
            names.extend(node.child_by_field_name("name").map(|name| plain(text(name, source))));
            rest = node.child_by_field_name("path");
            is_outside = rest.is_none();
        } else {
            names.push(plain(text(node, source)));
            rest = None;
        }
    }
    names.reverse();
    (is_outside, names)
}
