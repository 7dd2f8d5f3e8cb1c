//! Python: imports and variables of a file, private names that no file reaches, public ones that nothing names.

use ruff_text_size::{TextRange, TextSize};

use super::{Candidate, HashMap, HashSet, Mentions, PUBLIC, TOOL, is_kept, pages, words};
use crate::analyzers::snapshot::{Snapshot, Source};
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::language::Language;
use crate::python::{Definition, Module, WordKind};
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
    let mut total = Mentions::default();
    let mut reached: HashMap<&str, usize> = HashMap::default();
    let mut taken: HashSet<(&str, &str)> = HashSet::default();
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
    let module = file.module()?;
    let mut facts = Facts { path, ..Facts::default() };
    let names = mentions(&module, &mut facts);
    take_out(&module, &names, &mut facts);
    // What a damaged file defines and uses is not known for sure.
    if module.error.is_some() || path.ends_with(".pyi") || !is_kept(path, source) {
        return Some(facts);
    }
    let is_dynamic = DYNAMIC.iter().any(|name| facts.mentions.contains_key(*name));
    imports(&module, &mut facts);
    if !is_dynamic {
        unread(&module, &names, &mut facts);
        defined(&module, &names, &mut facts);
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

/// Names and words of texts in the order of the file, each with the first byte of the name or text that it stands in.
#[derive(Default)]
struct Names<'s>(Vec<(TextSize, &'s str)>);

impl<'s> Names<'s> {
    /// Those within a range.
    fn within(&self, range: TextRange) -> impl Iterator<Item = &'s str> {
        let first = self.0.partition_point(|(at, _)| *at < range.start());
        let rest = &self.0[first..];
        rest[..rest.partition_point(|(at, _)| *at < range.end())].iter().map(|(_, name)| *name)
    }

    fn times(&self, wanted: &str, range: TextRange) -> usize {
        self.within(range).filter(|name| *name == wanted).count()
    }
}

/// One walk through the words of a file.
fn mentions<'s>(module: &Module<'s>, facts: &mut Facts<'s>) -> Names<'s> {
    let mut names = Names::default();
    let mut before = "";
    for word in &module.words {
        let (at, text) = (word.range.start(), module.text(word.range));
        match word.kind {
            WordKind::Name | WordKind::Attribute | WordKind::AttributeOfName => {
                *facts.mentions.entry(text).or_default() += 1;
                names.0.push((at, text));
                if word.kind != WordKind::Name {
                    facts.outward.insert(text);
                }
                if word.kind == WordKind::AttributeOfName {
                    facts.taken.insert((before, text));
                }
                before = text;
            }
            WordKind::TypeComment => {
                for word in words(text) {
                    *facts.mentions.entry(word).or_default() += 1;
                }
            }
            WordKind::Text => {
                let mut end = None;
                for word in words(text) {
                    *facts.mentions.entry(word).or_default() += 1;
                    facts.outward.insert(word);
                    names.0.push((at, word));
                    end = Some(word);
                }
                let end = end.filter(|end| end.len() >= MIN_PREFIX && end.ends_with('_'));
                facts.prefixes.extend(end.filter(|end| text.ends_with(*end)));
            }
        }
    }
    names
}

/// The names of imports are no use of them here.
fn take_out<'s>(module: &Module<'s>, names: &Names<'s>, facts: &mut Facts<'s>) {
    for import in &module.imports {
        let from = import.from.map(|from| last(module.text(from)));
        for name in names.within(import.range) {
            facts.taken.extend(from.map(|from| (from, name)));
            facts.outward.insert(name);
            if let Some(all) = facts.mentions.get_mut(name) {
                *all -= 1;
            }
        }
    }
}

fn imports<'s>(module: &Module<'s>, facts: &mut Facts<'s>) {
    if facts.path.ends_with("__init__.py") {
        return;
    }
    let mut seen = HashSet::default();
    for import in module.imports.iter().filter(|import| !import.is_future && !import.is_guarded) {
        if is_quiet(import.range, module.source()) {
            continue;
        }
        for one in &import.names {
            let name = module.text(one.name);
            // `a as a` hands it on (PEP 484).
            let bound = match one.alias.map(|alias| module.text(alias)) {
                Some(alias) if alias == name => continue,
                Some(alias) => alias,
                None if import.from.is_none() => name.split('.').next().unwrap_or(name),
                None => name,
            };
            let is_used = facts.mentions.get(bound).is_some_and(|times| *times > 0);
            if !is_used && seen.insert(bound) {
                let (line, column) = module.place(one.range.start());
                facts.imports.push(Import { name: bound, line, column });
            }
        }
    }
}

/// How far away in its line a word about an import may stand, in bytes.
const MAX_AWAY: usize = 2_000;

/// Whether somebody says that it is meant so.
fn is_quiet(import: TextRange, source: &[u8]) -> bool {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let (begin, behind) = (usize::from(import.start()), usize::from(import.end()).min(source.len()));
    // A line may be the whole file: what stands far away in it is not about this one.
    let first = begin.saturating_sub(MAX_AWAY);
    let last = behind.saturating_add(MAX_AWAY).min(source.len());
    let start = source[first..begin].iter().rposition(is_end).map_or(first, |at| first + at + 1);
    let end = source[behind..last].iter().position(is_end).map_or(last, |at| behind + at);
    source[start..end].windows(6).any(|part| part.eq_ignore_ascii_case(b"# noqa"))
}

/// Variables of functions that get a value and are never read.
fn unread<'s>(module: &Module<'s>, names: &Names<'s>, facts: &mut Facts<'s>) {
    for function in module.functions.iter().filter(|function| !function.writes.is_empty()) {
        let mut written: HashMap<&'s str, Written> = HashMap::default();
        for name in &function.writes {
            let new = || Written { at: name.start(), times: 0, mentions: 0 };
            written.entry(module.text(*name)).or_insert_with(new).times += 1;
        }
        for name in names.within(function.range) {
            if let Some(written) = written.get_mut(name) {
                written.mentions += 1;
            }
        }
        let mut unread: Vec<Import<'s>> = written
            .into_iter()
            .filter(|(name, written)| !name.starts_with('_') && written.mentions == written.times)
            .map(|(name, written)| {
                let (line, column) = module.place(written.at);
                Import { name, line, column }
            })
            .collect();
        unread.sort_by_key(|one| (one.line, one.column));
        facts.unread.extend(unread);
    }
}

/// A variable of a function.
struct Written {
    /// Where it gets a value first.
    at: TextSize,
    /// How often it gets one.
    times: usize,
    /// How often the function names it.
    mentions: usize,
}

/// The names of the statement that was asked for last: one may assign to very many names, each of which is looked for.
#[derive(Default)]
struct Assigned<'s> {
    range: TextRange,
    times: HashMap<&'s str, usize>,
}

impl<'s> Assigned<'s> {
    fn times(&mut self, wanted: &str, range: TextRange, names: &Names<'s>) -> usize {
        if self.range != range {
            self.range = range;
            self.times.clear();
            for name in names.within(range) {
                *self.times.entry(name).or_default() += 1;
            }
        }
        self.times.get(wanted).copied().unwrap_or(0)
    }
}

/// Definitions that may be unused.
fn defined<'s>(module: &Module<'s>, names: &Names<'s>, facts: &mut Facts<'s>) {
    let file = facts.path.rsplit('/').next().unwrap_or(facts.path);
    let is_test = file.starts_with("test_")
        || file.ends_with("_test.py")
        || facts.path.split('/').any(|part| matches!(part, "test" | "tests" | "testing" | "migrations"));
    if is_test || ASKED_BY_TOOLS.contains(&file) {
        return;
    }
    let mut assigned = Assigned::default();
    let mut candidate = |one: &Definition, kind| {
        let name = module.text(one.name);
        let (line, column) = module.place(one.range.start());
        let own =
            if one.kind == "variable" { assigned.times(name, one.range, names) } else { names.times(name, one.range) };
        Candidate { name, kind, line, column, own }
    };
    for one in module.definitions.iter().filter(|one| !one.is_marked) {
        let name = module.text(one.name);
        if !(name.starts_with("__") || name == "_" || ENTRIES.contains(&name)) {
            match (module.is_public(name), one.kind) {
                (false, kind) => facts.private.push(candidate(one, kind)),
                // Constants are settings, tables and defaults that are there to be read by people too.
                (true, "variable") => {}
                (true, kind) => facts.public.push(candidate(one, kind)),
            }
        }
        // Of a class with bases nothing is said: those may call what they do not have.
        let methods = one.members.iter().filter(|method| method.is_direct && !method.is_marked);
        for method in methods.filter(|method| method.kind == "function") {
            let name = module.text(method.name);
            if name.starts_with('_') && !name.ends_with("__") && name != "_" {
                facts.private.push(candidate(method, "method"));
            }
        }
    }
}
