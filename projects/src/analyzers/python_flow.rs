//! What the statements of a Python scope do, in their order, as far as the rules of leakage need it.

use tree_sitter::Node;

use crate::language::{each, named, text};

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// What it is called on, such as `scaler` in `scaler.fit(X)`; empty for a bare name.
    pub(super) on: String,
    /// The function's last name.
    pub(super) name: String,
    /// Its arguments as they are written, without blanks.
    pub(super) arguments: Vec<String>,
    /// First byte: calls count in the order of their ends, so that inner ones come first.
    pub(super) end: usize,
    /// Counts from 1.
    pub(super) line: usize,
    /// Counts from 1.
    pub(super) column: usize,
}

/// An assignment to one name, or to several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Without blanks.
    pub(super) left: String,
    /// Without blanks.
    pub(super) right: String,
    /// Counts from 1.
    pub(super) line: usize,
}

/// A module or a function without the functions in it.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) calls: Vec<Call>,
    pub(super) assignments: Vec<Assignment>,
}

/// The module and each function.
pub(super) fn scopes(root: Node<'_>, source: &[u8]) -> Vec<Scope> {
    let mut roots = vec![root];
    each(root, |node| {
        if node.kind() == "function_definition" {
            roots.extend(node.child_by_field_name("body"));
        }
    });
    roots.into_iter().map(|root| scope(root, source)).collect()
}

fn scope(root: Node<'_>, source: &[u8]) -> Scope {
    let mut scope = Scope::default();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        match node.kind() {
            "function_definition" => continue,
            "call" => scope.calls.extend(call(node, source)),
            "assignment" => scope.assignments.extend(assignment(node, source)),
            _ => {}
        }
        open.extend(named(node).into_iter().rev());
    }
    scope.calls.sort_by_key(|call| call.end);
    scope
}

fn call(node: Node<'_>, source: &[u8]) -> Option<Call> {
    let function = plain(text(node.child_by_field_name("function")?, source));
    let (on, name) = function.rsplit_once('.').map_or(("", function.as_str()), |(on, name)| (on, name));
    let arguments = node.child_by_field_name("arguments").map(named).unwrap_or_default();
    let start = node.start_position();
    Some(Call {
        on: on.to_owned(),
        name: name.to_owned(),
        arguments: arguments.into_iter().map(|argument| plain(text(argument, source))).collect(),
        end: node.end_byte(),
        line: start.row + 1,
        column: start.column + 1,
    })
}

fn assignment(node: Node<'_>, source: &[u8]) -> Option<Assignment> {
    Some(Assignment {
        left: plain(text(node.child_by_field_name("left")?, source)),
        right: plain(text(node.child_by_field_name("right")?, source)),
        line: node.start_position().row + 1,
    })
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect::<String>().replace('\'', "\"")
}
