//! What the syntax tree shows: files that do not parse, complexity (McCabe 1976), long functions, code that is never reached, and
//! functions that are there twice.

use std::collections::{BTreeMap, HashMap};

use tree_sitter::Node;

use super::snapshot::Snapshot;
use crate::finding::{Finding, Severity};
use crate::language::{Kinds, Language, each, named, text};
use crate::python::Module;

const TOOL: &str = "syntax";
/// Ways through a function above which it is hard to test.
const MAX_COMPLEXITY: usize = 15;
/// Lines of a function.
const MAX_LINES: usize = 100;
/// Functions with fewer lines may be alike by chance.
const MIN_DUPLICATE_LINES: usize = 6;
/// Bodies of functions that are compared have so many times the length of their file together, at most: of thousands within each other
/// they would be as long as the square of the file.
const MAX_DUPLICATE_TIMES: usize = 8;

/// What is found, and the ways through each file whose syntax is known.
pub(super) fn analyze(snapshot: &Snapshot<'_>) -> (Vec<Finding>, BTreeMap<String, usize>) {
    let mut found = Vec::new();
    let mut complexity = BTreeMap::new();
    let mut bodies = Bodies::default();
    let mut kinds: BTreeMap<Language, Kinds<Kind>> = BTreeMap::new();
    for file in snapshot.sources() {
        let (path, language, source) = (file.path, file.language, file.bytes);
        bodies.left = source.len().saturating_mul(MAX_DUPLICATE_TIMES);
        if language == Language::Python {
            match file.module() {
                Some(module) => {
                    complexity.insert(path.to_owned(), module.branches.len() + 1);
                    python(path, &module, &mut bodies, &mut found);
                }
                None => found.push(too_deep(path)),
            }
            continue;
        }
        let Some(tree) = file.tree() else {
            found.push(given_up(path));
            continue;
        };
        let root = tree.root_node();
        let outline = outline(kinds.entry(language).or_insert_with(|| kinds_of(language)), root);
        complexity.insert(path.to_owned(), outline.branches.len() + 1);
        if root.has_error() {
            found.push(broken(place(path, first_error(root))));
        }
        for part in &outline.parts {
            match *part {
                Part::Function { node, branches_before } => {
                    let one = measured(path, node, source, outline.ways(node, branches_before));
                    measure(&one, &mut bodies, &mut found);
                }
                Part::Block(node) => unreachable(path, node, &mut found),
            }
        }
    }
    (found, complexity)
}

/// Bodies of functions.
#[derive(Default)]
struct Bodies {
    /// Each with the first place of it.
    known: HashMap<Vec<u8>, (String, usize)>,
    /// Bytes of bodies that may still be compared of the file at hand.
    left: usize,
}

fn python(path: &str, module: &Module<'_>, bodies: &mut Bodies, found: &mut Vec<Finding>) {
    let at = |byte| {
        let (line, column) = module.place(byte);
        (path, line, column)
    };
    found.extend(module.error.map(|error| broken(at(error))));
    for function in &module.functions {
        let place = at(function.range.start());
        let one = Measured {
            place,
            name: module.text(function.name),
            ways: module.ways(function),
            lines: module.line(function.range.end()) - place.1 + 1,
            body: module.bytes(function.body),
            body_lines: module.line(function.body.end()) - module.line(function.body.start()) + 1,
        };
        measure(&one, bodies, found);
    }
    found.extend(module.unreachable.iter().map(|statement| never_reached(at(*statement))));
}

fn place<'p>(path: &'p str, node: Node<'_>) -> (&'p str, usize, usize) {
    let start = node.start_position();
    (path, start.row + 1, start.column + 1)
}

/// A file that is no more than brackets, or generated.
fn given_up(path: &str) -> Finding {
    let rule = (TOOL, "not-parsed", Severity::Low);
    let message = "parsing the file takes too long: nothing is said of its code";
    Finding::new(rule, (path, 1, 1), message, "split it, or leave it out of the project")
}

/// No people write brackets so deep within each other.
fn too_deep(path: &str) -> Finding {
    let rule = (TOOL, "not-parsed", Severity::Low);
    let message = "brackets or operators stand too deep within each other: nothing is said of the file's code";
    Finding::new(rule, (path, 1, 1), message, "leave it out of the project")
}

fn broken(at: (&str, usize, usize)) -> Finding {
    let rule = (TOOL, "syntax-error", Severity::High);
    Finding::new(rule, at, "the file does not parse from here on", "correct the syntax")
}

/// The first node that is an error, or that is missing: most often a bracket or a word, which has no name.
fn first_error(root: Node<'_>) -> Node<'_> {
    let mut at = root;
    while !at.is_error() && !at.is_missing() {
        let mut cursor = at.walk();
        let inner = at.children(&mut cursor).find(|child| child.has_error() || child.is_missing());
        let Some(inner) = inner else { break };
        at = inner;
    }
    at
}

/// A part of a file that something may be said of.
enum Part<'t> {
    Function { node: Node<'t>, branches_before: usize },
    Block(Node<'t>),
}

/// What one walk through a file finds.
struct Outline<'t> {
    /// In the order of the text, outer ones first.
    parts: Vec<Part<'t>>,
    /// First bytes of its branches, in the same order.
    branches: Vec<usize>,
}

impl Outline<'_> {
    /// Ways through a function: what begins before its end, of the branches that come after its beginning, is within it.
    fn ways(&self, function: Node<'_>, branches_before: usize) -> usize {
        let later = &self.branches[branches_before..];
        later.partition_point(|begin| *begin < function.end_byte()) + 1
    }
}

/// What a kind of nodes is.
#[derive(Clone, Copy)]
struct Kind {
    is_branch: bool,
    is_function: bool,
    is_block: bool,
}

fn kinds_of(language: Language) -> Kinds<Kind> {
    Kinds::new(language, |kind| Kind {
        is_branch: language.is_branch(kind),
        is_function: language.is_function(kind),
        // A block of Go has its statements in a list below it.
        is_block: matches!(kind, "block" | "statement_block" | "statement_list"),
    })
}

fn outline<'t>(kinds: &Kinds<Kind>, root: Node<'t>) -> Outline<'t> {
    let mut outline = Outline { parts: Vec::new(), branches: Vec::new() };
    each(root, |node| {
        let kind = kinds.of(node);
        if kind.is_branch {
            outline.branches.push(node.start_byte());
        }
        if kind.is_function {
            outline.parts.push(Part::Function { node, branches_before: outline.branches.len() });
        }
        if kind.is_block {
            outline.parts.push(Part::Block(node));
        }
    });
    outline
}

fn name_of<'s>(node: Node<'_>, source: &'s [u8]) -> &'s str {
    node.child_by_field_name("name").map_or("a function", |name| text(name, source))
}

/// What is said of a function.
struct Measured<'p, 's> {
    place: (&'p str, usize, usize),
    name: &'s str,
    ways: usize,
    lines: usize,
    body: &'s [u8],
    body_lines: usize,
}

fn measured<'p, 's>(path: &'p str, node: Node<'_>, source: &'s [u8], ways: usize) -> Measured<'p, 's> {
    let lines = |node: Node<'_>| node.end_position().row - node.start_position().row + 1;
    let body = node.child_by_field_name("body");
    Measured {
        place: place(path, node),
        name: name_of(node, source),
        ways,
        lines: lines(node),
        body: body.and_then(|body| source.get(body.byte_range())).unwrap_or_default(),
        body_lines: body.map_or(0, lines),
    }
}

fn measure(one: &Measured<'_, '_>, bodies: &mut Bodies, found: &mut Vec<Finding>) {
    let Measured { place, name, ways, lines, .. } = *one;
    if ways > MAX_COMPLEXITY {
        let severity = if ways > 2 * MAX_COMPLEXITY { Severity::Medium } else { Severity::Low };
        let message = format!("{name} has {ways} ways through it; more than {MAX_COMPLEXITY} are hard to test");
        found.push(Finding::new((TOOL, "complexity", severity), place, message, "split it by what it decides"));
    }
    if lines > MAX_LINES {
        let message = format!("{name} has {lines} lines; more than {MAX_LINES} are hard to read");
        let rule = (TOOL, "long-function", Severity::Low);
        found.push(Finding::new(rule, place, message, "split it into functions"));
    }
    duplicate(one, bodies, found);
}

fn duplicate(one: &Measured<'_, '_>, bodies: &mut Bodies, found: &mut Vec<Finding>) {
    if one.body_lines < MIN_DUPLICATE_LINES {
        return;
    }
    let Some(left) = bodies.left.checked_sub(one.body.len()) else { return };
    bodies.left = left;
    // Byte for byte: of a file in Latin-1 there is no text.
    let mut plain = Vec::with_capacity(one.body.len());
    for word in one.body.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        plain.extend_from_slice(word);
        plain.push(b' ');
    }
    let (path, line, _) = one.place;
    if let Some((other, at)) = bodies.known.get(&plain) {
        let message = format!("{} has the same body as the function at {other}:{at}", one.name);
        let rule = (TOOL, "duplicate-code", Severity::Low);
        let twin = Finding::new(rule, one.place, message, "call the other one");
        found.push(twin.with_others([other.clone()]));
    } else {
        bodies.known.insert(plain, (path.to_owned(), line));
    }
}

/// The kind of a statement, or of the expression that it is made of.
fn inner_kind(node: Node<'_>) -> &str {
    match node.kind() {
        "expression_statement" => node.named_child(0).map_or("", |inner| inner.kind()),
        kind => kind,
    }
}

/// The first statement behind one that leaves the block.
fn unreachable(path: &str, block: Node<'_>, found: &mut Vec<Finding>) {
    let statements: Vec<Node<'_>> = named(block).into_iter().filter(|node| !node.kind().contains("comment")).collect();
    for (number, pair) in statements.windows(2).enumerate() {
        // `#[cfg(…)] return`: it leaves in some builds.
        let is_conditional = number > 0 && statements[number - 1].kind() == "attribute_item";
        let leaves = |node: Node<'_>| {
            matches!(
                inner_kind(node),
                "return_statement"
                    | "break_statement"
                    | "continue_statement"
                    | "throw_statement"
                    | "return_expression"
                    | "break_expression"
                    | "continue_expression"
            )
        };
        // Functions are known before they are reached in JavaScript, items everywhere in Rust.
        let is_item = pair[1].kind().contains("function")
            || pair[1].kind().ends_with("_item")
            || pair[1].kind().contains("label");
        if leaves(pair[0]) && !is_item && !is_conditional {
            found.push(never_reached(place(path, pair[1])));
            return;
        }
    }
}

fn never_reached(at: (&str, usize, usize)) -> Finding {
    let rule = (TOOL, "unreachable-code", Severity::Medium);
    Finding::new(rule, at, "nothing gets here: the statement above leaves the block", "remove it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Files;

    #[test]
    fn given_functions_within_each_other_when_they_are_compared_then_their_bodies_are_no_square_of_the_file() {
        let lines = |indent: &str| format!("{indent}x = 1\n").repeat(7);
        let python: String = (0..200).map(|level| format!("{}def f():\n", " ".repeat(level))).collect();
        let python = format!("{python}{}", lines(&" ".repeat(200)));
        let script = format!("{}{}{}", "function f() {\n".repeat(500), lines(""), "}\n".repeat(500));
        let open = format!("{}{}{}", "function f() {\n".repeat(4), lines(""), "}\n".repeat(4));
        for (path, text, most) in [("a.py", python, 8), ("a.js", script, 8), ("b.js", open, 4)] {
            let twin = (format!("twin/{path}"), text.clone().into());
            let files = Files::from([(path.to_owned(), text.into()), twin]);
            let (found, _) = analyze(&Snapshot::new(&files));
            let twins =
                found.iter().filter(|one| one.rule == "duplicate-code" && one.file.starts_with("twin/")).count();
            assert!((most..=2 * most).contains(&twins), "{path}: {twins}");
        }
    }
}
