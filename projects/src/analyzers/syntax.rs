//! What the syntax tree shows: files that do not parse, complexity (McCabe 1976), long functions, code that is never reached, and
//! functions that are there twice.

use std::collections::{BTreeMap, HashMap};

use tree_sitter::Node;

use super::snapshot::Snapshot;
use crate::finding::{Finding, Severity};
use crate::language::{Kinds, Language, each, named, text};

const TOOL: &str = "syntax";
/// Ways through a function above which it is hard to test.
const MAX_COMPLEXITY: usize = 15;
/// Lines of a function.
const MAX_LINES: usize = 100;
/// Functions with fewer lines may be alike by chance.
const MIN_DUPLICATE_LINES: usize = 6;

/// What is found, and the ways through each file whose syntax is known.
pub(super) fn analyze(snapshot: &Snapshot<'_>) -> (Vec<Finding>, BTreeMap<String, usize>) {
    let mut found = Vec::new();
    let mut complexity = BTreeMap::new();
    let mut bodies: HashMap<Vec<u8>, (String, usize)> = HashMap::new();
    let mut kinds: BTreeMap<Language, Kinds<Kind>> = BTreeMap::new();
    for file in snapshot.sources() {
        let (path, language, source) = (file.path, file.language, file.bytes);
        let Some(tree) = file.tree() else {
            found.push(given_up(path));
            continue;
        };
        let root = tree.root_node();
        let outline = outline(kinds.entry(language).or_insert_with(|| kinds_of(language)), root);
        complexity.insert(path.to_owned(), outline.branches.len() + 1);
        if root.has_error() {
            found.push(broken(path, root));
        }
        for part in &outline.parts {
            match *part {
                Part::Function { node, branches_before } => {
                    let complexity = outline.ways(node, branches_before);
                    function(path, node, (source, complexity), &mut found);
                    duplicate(path, node, source, &mut bodies, &mut found);
                }
                Part::Block(node) => unreachable(path, node, &mut found),
            }
        }
    }
    (found, complexity)
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

fn broken(path: &str, root: Node<'_>) -> Finding {
    let rule = (TOOL, "syntax-error", Severity::High);
    Finding::new(rule, place(path, first_error(root)), "the file does not parse from here on", "correct the syntax")
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

fn function(path: &str, node: Node<'_>, (source, complexity): (&[u8], usize), found: &mut Vec<Finding>) {
    if complexity > MAX_COMPLEXITY {
        let name = name_of(node, source);
        let severity = if complexity > 2 * MAX_COMPLEXITY { Severity::Medium } else { Severity::Low };
        let message = format!("{name} has {complexity} ways through it; more than {MAX_COMPLEXITY} are hard to test");
        found.push(Finding::new(
            (TOOL, "complexity", severity),
            place(path, node),
            message,
            "split it by what it decides",
        ));
    }
    let lines = node.end_position().row - node.start_position().row + 1;
    if lines > MAX_LINES {
        let name = name_of(node, source);
        let message = format!("{name} has {lines} lines; more than {MAX_LINES} are hard to read");
        found.push(Finding::new(
            (TOOL, "long-function", Severity::Low),
            place(path, node),
            message,
            "split it into functions",
        ));
    }
}

fn duplicate(
    path: &str,
    node: Node<'_>,
    source: &[u8],
    bodies: &mut HashMap<Vec<u8>, (String, usize)>,
    found: &mut Vec<Finding>,
) {
    let Some(body) = node.child_by_field_name("body") else { return };
    if body.end_position().row - body.start_position().row + 1 < MIN_DUPLICATE_LINES {
        return;
    }
    // Byte for byte: of a file in Latin-1 there is no text.
    let words = source.get(body.byte_range()).unwrap_or_default().split(u8::is_ascii_whitespace);
    let plain = words.filter(|word| !word.is_empty()).collect::<Vec<&[u8]>>().join(&b' ');
    let line = node.start_position().row + 1;
    if let Some((other, at)) = bodies.get(&plain) {
        let message = format!("{} has the same body as the function at {other}:{at}", name_of(node, source));
        let rule = (TOOL, "duplicate-code", Severity::Low);
        let twin = Finding::new(rule, place(path, node), message, "call the other one");
        found.push(twin.with_others([other.clone()]));
    } else {
        bodies.insert(plain, (path.to_owned(), line));
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
                    | "raise_statement"
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
        // It makes a generator of a function of Python, wherever it stands.
        let is_yield = inner_kind(pair[1]) == "yield";
        if leaves(pair[0]) && !is_item && !is_yield && !is_conditional {
            let rule = (TOOL, "unreachable-code", Severity::Medium);
            found.push(Finding::new(
                rule,
                place(path, pair[1]),
                "nothing gets here: the statement above leaves the block",
                "remove it",
            ));
            return;
        }
    }
}
