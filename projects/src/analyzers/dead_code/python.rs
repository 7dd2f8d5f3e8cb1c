//! Python: imports and variables of a file, private names that no file reaches, public ones that nothing names.

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::{Candidate, Mentions, PUBLIC, TOOL, is_kept, pages, words};
use crate::analyzers::snapshot::{Snapshot, Source};
use crate::copy::Files;
use crate::definitions::{Reach, definitions, holds_statements, statements};
use crate::finding::{Finding, Severity};
use crate::language::{Kinds, Language, each_below, each_with_depth, named, text};
use crate::words::Words;

/// Functions that reach names which are written nowhere.
const DYNAMIC: [&str; 5] = ["globals", "locals", "vars", "eval", "exec"];
/// Files whose names are asked for by tools.
const ASKED_BY_TOOLS: [&str; 9] = [
    "conftest.py",
    "setup.py",
    "conf.py",
    "settings.py",
    "manage.py",
    "tasks.py",
    "noxfile.py",
    "fabfile.py",
    "dodo.py",
];
/// Names that tools ask for.
const ENTRIES: [&str; 6] = ["main", "setup", "teardown", "handler", "application", "app"];
/// Shortest beginning of a name that a program puts together, such as `visit_`.
const MIN_PREFIX: usize = 3;

/// A name that an import brings.
struct Import<'s> {
    name: &'s str,
    line: usize,
    column: usize,
}

/// What a file says of names.
#[derive(Default)]
struct Facts<'s> {
    path: &'s str,
    /// Names and words outside of imports.
    mentions: Mentions<'s>,
    /// What may be meant of other files: imported names, attributes, words in texts.
    outward: HashSet<&'s str>,
    /// Names that are taken out of something, with the last name of that: of a module, if it is one.
    taken: HashSet<(&'s str, &'s str)>,
    imports: Vec<Import<'s>>,
    private: Vec<Candidate<'s>>,
    public: Vec<Candidate<'s>>,
    /// Beginnings of names that are put together.
    prefixes: Vec<&'s str>,
    unread: Vec<Import<'s>>,
}

pub(super) fn analyze(snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let python = snapshot.in_language(|language| language == Language::Python);
    let all: Vec<Facts<'_>> = python.filter_map(facts).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let pages = pages(snapshot.files());
    let prefixes = Words::longest_first(all.iter().flat_map(|one| one.prefixes.iter().copied()));
    let mut total = Mentions::new();
    let mut reached: HashMap<&str, usize> = HashMap::new();
    let mut taken: HashSet<(&str, &str)> = HashSet::new();
    for one in &all {
        taken.extend(&one.taken);
        for (name, times) in &one.mentions {
            *total.entry(*name).or_default() += times;
        }
        for name in &one.outward {
            *reached.entry(*name).or_default() += 1;
        }
    }
    let is_reached = |name: &str, from: &Facts<'_>| {
        let own = usize::from(from.outward.contains(name));
        reached.get(name).copied().unwrap_or(0) > own
    };
    let is_asked_for = |name: &str| pages.contains(name) || prefixes.at(name).is_some();
    let severity = if is_library(snapshot.files()) { Severity::Info } else { Severity::Low };
    let mut found = Vec::new();
    for one in &all {
        // Another file may take it from here.
        for import in one.imports.iter().filter(|import| !taken.contains(&(module(one.path), import.name))) {
            let message = format!("{} is imported and nothing in the file uses it", import.name);
            let rule = (TOOL, "unused-import", Severity::Low);
            found.push(Finding::new(rule, (one.path, import.line, import.column), message, "remove the import"));
        }
        for local in &one.unread {
            let message = format!("{} gets a value that nothing reads", local.name);
            let rule = (TOOL, "unused-variable", Severity::Low);
            found.push(Finding::new(rule, (one.path, local.line, local.column), message, "remove it"));
        }
        let private = one.private.iter().filter(|candidate| candidate.is_unused(&one.mentions));
        let private = private.filter(|candidate| !is_reached(candidate.name, one) && !is_asked_for(candidate.name));
        found.extend(private.map(|candidate| candidate.private(one.path)));
        let public = one.public.iter().filter(|candidate| candidate.is_unused(&total));
        let public = public.filter(|candidate| !is_asked_for(candidate.name) && !one.outward.contains(candidate.name));
        let public = public.filter(|candidate| !is_reached(candidate.name, one));
        let fix = "remove it, unless others than this project call it";
        found.extend(public.map(|candidate| candidate.finding(one.path, (PUBLIC, severity), fix)));
    }
    found
}

/// Whether others than this project may call what is public.
fn is_library(files: &Files) -> bool {
    let is_packed = |content: &[u8]| {
        let text = String::from_utf8_lossy(content);
        text.contains("[project]") || text.contains("[tool.poetry]")
    };
    files.iter().any(|(path, content)| match path.rsplit('/').next().unwrap_or(path) {
        "setup.py" | "setup.cfg" => true,
        "pyproject.toml" => is_packed(content),
        _ => false,
    })
}

fn facts<'s>(file: &Source<'s>) -> Option<Facts<'s>> {
    let (path, source) = (file.path, file.bytes);
    let tree = file.tree()?;
    let root = tree.root_node();
    let mut facts = Facts { path, ..Facts::default() };
    let places = mentions(root, source, &mut facts);
    take_out(&places, source, &mut facts);
    // What a damaged file defines and uses is not known for sure.
    if root.has_error() || path.ends_with(".pyi") || !is_kept(path, source) {
        return Some(facts);
    }
    let is_dynamic = DYNAMIC.iter().any(|name| facts.mentions.contains_key(*name));
    imports(&places.imports, source, &mut facts);
    if !is_dynamic {
        unread(&places, source, &mut facts);
        names(root, source, &places, &mut facts);
    }
    Some(facts)
}

/// The last name of `a.b.c`.
fn last(dotted: &str) -> &str {
    dotted.rsplit('.').next().unwrap_or(dotted)
}

/// The name under which a file is imported.
fn module(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.strip_suffix(".py").unwrap_or(file)
}

/// What a node is for the rules of this file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Identifier,
    Attribute,
    Comment,
    Function,
    Import,
    Expression,
    Text,
    /// What stands between the quotes of a text.
    Content,
    Other,
}

impl Kind {
    fn of(kind: &str) -> Self {
        match kind {
            "identifier" => Self::Identifier,
            "attribute" => Self::Attribute,
            "comment" => Self::Comment,
            "function_definition" => Self::Function,
            "import_statement" | "import_from_statement" | "future_import_statement" => Self::Import,
            "expression_statement" => Self::Expression,
            "string" => Self::Text,
            "string_content" => Self::Content,
            _ => Self::Other,
        }
    }
}

/// What else one walk through a file tells, in the order of the text.
#[derive(Default)]
struct Places<'t, 's> {
    imports: Vec<Node<'t>>,
    functions: Vec<Node<'t>>,
    /// Names and words of texts, each with the first byte of the node that it stands in.
    names: Vec<(usize, &'s str)>,
}

impl<'s> Places<'_, 's> {
    /// The names and words within a node.
    fn within(&self, node: Node<'_>) -> impl Iterator<Item = &'s str> {
        let first = self.names.partition_point(|(at, _)| *at < node.start_byte());
        let rest = &self.names[first..];
        rest[..rest.partition_point(|(at, _)| *at < node.end_byte())].iter().map(|(_, name)| *name)
    }

    fn times(&self, wanted: &str, node: Node<'_>) -> usize {
        self.within(node).filter(|name| *name == wanted).count()
    }
}

/// One walk through a file.
fn mentions<'t, 's>(root: Node<'t>, source: &'s [u8], facts: &mut Facts<'s>) -> Places<'t, 's> {
    let mut places = Places::default();
    let kinds = Kinds::new(Language::Python, Kind::of);
    let mut above: Vec<Kind> = Vec::new();
    each_with_depth(root, |node, depth| {
        let kind = kinds.of(node);
        above.truncate(depth as usize);
        match kind {
            Kind::Identifier => {
                let name = text(node, source);
                *facts.mentions.entry(name).or_default() += 1;
                places.names.push((node.start_byte(), name));
            }
            Kind::Function => places.functions.push(node),
            Kind::Import => places.imports.push(node),
            Kind::Attribute => {
                let (object, name) = (node.child_by_field_name("object"), node.child_by_field_name("attribute"));
                if let (Some(object), Some(name)) = (object, name) {
                    facts.outward.insert(text(name, source));
                    facts.taken.insert((last(text(object, source)), text(name, source)));
                }
            }
            Kind::Comment if text(node, source).starts_with("# type:") => {
                for word in words(text(node, source)) {
                    *facts.mentions.entry(word).or_default() += 1;
                }
            }
            // Texts whose words count as names are not those that only explain.
            Kind::Content if !above.ends_with(&[Kind::Expression, Kind::Text]) => {
                let content = text(node, source);
                for word in words(content) {
                    *facts.mentions.entry(word).or_default() += 1;
                    facts.outward.insert(word);
                    places.names.push((node.start_byte(), word));
                }
                let end = words(content).last().filter(|end| end.len() >= MIN_PREFIX && end.ends_with('_'));
                facts.prefixes.extend(end.filter(|end| content.ends_with(*end)));
            }
            Kind::Comment | Kind::Content | Kind::Expression | Kind::Text | Kind::Other => {}
        }
        above.push(kind);
    });
    places
}

/// The names of imports are no use of them here.
fn take_out<'s>(places: &Places<'_, 's>, source: &'s [u8], facts: &mut Facts<'s>) {
    for import in places.imports.iter().copied() {
        let from = import.child_by_field_name("module_name").map(|from| last(text(from, source)));
        for name in places.within(import) {
            facts.taken.extend(from.map(|from| (from, name)));
            facts.outward.insert(name);
            if let Some(all) = facts.mentions.get_mut(name) {
                *all -= 1;
            }
        }
    }
}

fn imports<'s>(statements: &[Node<'_>], source: &'s [u8], facts: &mut Facts<'s>) {
    if facts.path.ends_with("__init__.py") {
        return;
    }
    let mut seen = HashSet::new();
    for node in statements.iter().copied() {
        if !matches!(node.kind(), "import_statement" | "import_from_statement")
            || is_guarded(node)
            || is_quiet(node, source)
        {
            continue;
        }
        let module = node.child_by_field_name("module_name").map(|module| module.id());
        for one in named(node).into_iter().filter(|one| Some(one.id()) != module) {
            let Some(name) = bound(one, node, source) else { continue };
            let is_used = facts.mentions.get(name).is_some_and(|times| *times > 0);
            if !is_used && seen.insert(name) {
                let at = one.start_position();
                facts.imports.push(Import { name, line: at.row + 1, column: at.column + 1 });
            }
        }
    }
}

/// The name that a part of an import brings; none for `a as a`, which hands it on (PEP 484).
fn bound<'s>(one: Node<'_>, statement: Node<'_>, source: &'s [u8]) -> Option<&'s str> {
    match one.kind() {
        "dotted_name" if statement.kind() == "import_statement" => text(one, source).split('.').next(),
        "dotted_name" => Some(text(one, source)),
        "aliased_import" => {
            let alias = text(one.child_by_field_name("alias")?, source);
            (Some(alias) != one.child_by_field_name("name").map(|name| text(name, source))).then_some(alias)
        }
        _ => None,
    }
}

/// Within `try`: it is tried whether it is there.
fn is_guarded(node: Node<'_>) -> bool {
    std::iter::successors(node.parent(), Node::parent).any(|above| above.kind() == "try_statement")
}

/// How far away in its line a word about an import may stand, in bytes.
const MAX_AWAY: usize = 2_000;

/// Whether somebody says that it is meant so.
fn is_quiet(node: Node<'_>, source: &[u8]) -> bool {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    // A line may be the whole file: what stands far away in it is not about this one.
    let first = node.start_byte().saturating_sub(MAX_AWAY);
    let last = node.end_byte().saturating_add(MAX_AWAY).min(source.len());
    let (before, behind) = (&source[first..node.start_byte()], &source[node.end_byte()..last]);
    let start = before.iter().rposition(is_end).map_or(first, |at| first + at + 1);
    let end = behind.iter().position(is_end).map_or(last, |at| node.end_byte() + at);
    source[start..end].windows(6).any(|part| part.eq_ignore_ascii_case(b"# noqa"))
}

/// Variables of functions that get a value and are never read.
fn unread<'s>(places: &Places<'_, 's>, source: &'s [u8], facts: &mut Facts<'s>) {
    for function in places.functions.iter().copied() {
        let Some(body) = function.child_by_field_name("body") else { continue };
        let mut written: HashMap<&'s str, Written<'_>> = HashMap::new();
        each_below(body, |node| match node.kind() {
            "function_definition" | "class_definition" => false,
            "assignment" => {
                let left = node.child_by_field_name("left").filter(|left| left.kind() == "identifier");
                let is_set = node.child_by_field_name("right").is_some();
                if let Some(at) = left.filter(|_| is_set) {
                    written.entry(text(at, source)).or_insert(Written { at, times: 0, mentions: 0 }).times += 1;
                }
                // `a = b = 1`
                true
            }
            kind => kind == "expression_statement" || holds_statements(kind),
        });
        if written.is_empty() {
            continue;
        }
        for name in places.within(function) {
            if let Some(written) = written.get_mut(name) {
                written.mentions += 1;
            }
        }
        let mut unread: Vec<Import<'s>> = written
            .into_iter()
            .filter(|(name, written)| !name.starts_with('_') && written.mentions == written.times)
            .map(|(name, written)| {
                let at = written.at.start_position();
                Import { name, line: at.row + 1, column: at.column + 1 }
            })
            .collect();
        unread.sort_by_key(|one| (one.line, one.column));
        facts.unread.extend(unread);
    }
}

/// A variable of a function.
struct Written<'t> {
    /// Where it gets a value first.
    at: Node<'t>,
    /// How often it gets one.
    times: usize,
    /// How often the function names it.
    mentions: usize,
}

/// Definitions that may be unused.
fn names<'s>(root: Node<'_>, source: &'s [u8], places: &Places<'_, 's>, facts: &mut Facts<'s>) {
    let file = facts.path.rsplit('/').next().unwrap_or(facts.path);
    let is_test = file.starts_with("test_")
        || file.ends_with("_test.py")
        || facts.path.split('/').any(|part| matches!(part, "test" | "tests" | "testing" | "migrations"));
    if is_test || ASKED_BY_TOOLS.contains(&file) {
        return;
    }
    for one in definitions(Language::Python, root, source) {
        let is_special = one.name.starts_with("__") || one.name == "_" || ENTRIES.contains(&one.name);
        if one.is_marked || is_special {
            continue;
        }
        let candidate = Candidate::new(&one, places.times(one.name, one.node));
        match one.reach {
            Reach::File => facts.private.push(candidate),
            // Constants are settings, tables and defaults that are there to be read by people too.
            Reach::Project | Reach::World if one.kind != "variable" => facts.public.push(candidate),
            Reach::Project | Reach::World => {}
        }
    }
    for class in statements(root, source).into_iter().filter(|node| node.kind() == "class_definition") {
        // A base class may call what it does not have.
        if class.child_by_field_name("superclasses").is_some() {
            continue;
        }
        let methods = class.child_by_field_name("body").map(named).unwrap_or_default();
        for method in methods.into_iter().filter(|node| node.kind() == "function_definition") {
            let Some(name) = method.child_by_field_name("name").map(|name| text(name, source)) else { continue };
            if name.starts_with('_') && !name.ends_with("__") && name != "_" {
                let at = method.start_position();
                let (line, column) = (at.row + 1, at.column + 1);
                let own = places.times(name, method);
                facts.private.push(Candidate { name, kind: "method", line, column, own });
            }
        }
    }
}
