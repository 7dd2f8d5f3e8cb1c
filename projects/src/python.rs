//! A parsed file of Python: by one parse (Ruff's parser) and one walk what every analysis of it needs. The tree itself is not kept.

use std::borrow::Cow;

use ruff_python_ast::token::Token;
use ruff_python_ast::{ModModule, PySourceType};
use ruff_python_parser::{Parsed, parse_unchecked_source};
use ruff_text_size::{TextRange, TextSize};

pub(crate) use flow::{Assignment, Call, SPLITS, Scope};
pub(crate) use outline::{Definition, Function, Import};
pub(crate) use words::{Word, WordKind};

mod depth;
mod flow;
mod outline;
mod words;

/// How much deeper than a usual file one may be before it gets a stack of its own.
const USUAL_DEPTH: usize = 64;
/// What a level takes of that stack at most, what is taken before the first one, and how large one gets. Only what is used takes memory.
const LEVEL_STACK: usize = 16 << 10;
const FIRST_STACK: usize = 1 << 20;
const MAX_STACK: usize = 256 << 20;

/// What a file of Python has. Ranges are of its bytes.
#[derive(Debug)]
pub(crate) struct Module<'f> {
    bytes: &'f [u8],
    /// The same as text; none of a file in another encoding than UTF-8.
    text: Option<&'f str>,
    /// First bytes of the lines but the first.
    lines: Vec<u32>,
    /// Where the first thing stands that does not parse.
    pub(crate) error: Option<TextSize>,
    /// Whether it has more than comments.
    pub(crate) has_code: bool,
    /// Names, and what else may be one, in the order of the text.
    pub(crate) words: Vec<Word>,
    /// First bytes of what is one more way through a function (McCabe, "A Complexity Measure", 1976), in order.
    pub(crate) branches: Vec<TextSize>,
    /// All functions, outer ones first.
    pub(crate) functions: Vec<Function>,
    /// All imports, in the order of the text.
    pub(crate) imports: Vec<Import>,
    /// Of each block the first statement that nothing gets to.
    pub(crate) unreachable: Vec<TextSize>,
    /// What the module defines at its outermost level.
    pub(crate) definitions: Vec<Definition>,
    /// The texts of `__all__` in their order as texts, when it is there and made of literals.
    pub(crate) listed: Option<Vec<TextRange>>,
    /// What statements do, as far as a rule of leakage may speak of the file.
    pub(crate) scopes: Vec<Scope>,
}

impl<'f> Module<'f> {
    /// Parses a file as far as it goes; `None` for one whose brackets or operators stand deeper within each other than any that
    /// people write.
    pub(crate) fn parse(bytes: &'f [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok();
        let source = text.map_or_else(|| Cow::Owned(readable(bytes)), Cow::Borrowed);
        if depth::is_too_deep(&source) {
            return None;
        }
        // The parser sees to its own stack.
        let parsed = parse_unchecked_source(&source, PySourceType::Python);
        let depth = depth::most(parsed.tokens().iter().map(Token::kind));
        let read = || Self::read(bytes, text, &source, parsed);
        // What walks through a tree and gives it back calls itself for each level.
        let stack = depth.saturating_mul(LEVEL_STACK).saturating_add(FIRST_STACK).min(MAX_STACK);
        Some(if depth > USUAL_DEPTH { stacker::grow(stack, read) } else { read() })
    }

    fn read(bytes: &'f [u8], text: Option<&'f str>, source: &str, parsed: Parsed<ModModule>) -> Self {
        let ends = memchr::memchr2_iter(b'\n', b'\r', bytes);
        let ends = ends.filter(|at| bytes[*at] == b'\n' || bytes.get(at + 1) != Some(&b'\n'));
        let body = parsed.suite();
        let outline = outline::of(body, source);
        let words = words::of(parsed.tokens(), source, &outline);
        let scopes = if words.may_leak { flow::scopes(body, source) } else { Vec::new() };
        let listed = outline.listed.map(|values| values.iter().flat_map(|value| words.texts_within(*value)).collect());
        let mut module = Self {
            bytes,
            text,
            lines: ends.map(|at| u32::try_from(at + 1).unwrap_or(u32::MAX)).collect(),
            error: parsed.errors().iter().map(|error| error.location.start()).min(),
            has_code: !body.is_empty(),
            words: words.all,
            branches: words.branches,
            functions: outline.functions,
            imports: outline.imports,
            unreachable: outline.unreachable,
            definitions: outline.definitions,
            listed: None,
            scopes,
        };
        // In order, since each name that is defined is looked for.
        module.listed = listed.map(|mut texts: Vec<TextRange>| {
            texts.sort_by(|a, b| module.text(*a).cmp(module.text(*b)));
            texts
        });
        module
    }

    /// The text of a range; nothing where it is not UTF-8.
    pub(crate) fn text(&self, range: TextRange) -> &'f str {
        let range = usize::from(range.start())..usize::from(range.end());
        match self.text {
            Some(text) => text.get(range).unwrap_or_default(),
            None => self.bytes.get(range).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default(),
        }
    }

    /// The bytes of a range.
    pub(crate) fn bytes(&self, range: TextRange) -> &'f [u8] {
        self.bytes.get(usize::from(range.start())..usize::from(range.end())).unwrap_or_default()
    }

    /// All bytes.
    pub(crate) fn source(&self) -> &'f [u8] {
        self.bytes
    }

    /// The line of a byte; counts from 1.
    pub(crate) fn line(&self, at: TextSize) -> usize {
        self.lines.partition_point(|begin| *begin <= at.to_u32()) + 1
    }

    /// Line and column of a byte; both count from 1, columns in bytes.
    pub(crate) fn place(&self, at: TextSize) -> (usize, usize) {
        let line = self.line(at);
        let begin = line.checked_sub(2).and_then(|before| self.lines.get(before)).copied().unwrap_or(0);
        (line, (at.to_u32() - begin) as usize + 1)
    }

    /// Ways through a function.
    pub(crate) fn ways(&self, function: &Function) -> usize {
        let before = self.branches.partition_point(|begin| *begin < function.range.start());
        self.branches[before..].partition_point(|begin| *begin < function.range.end()) + 1
    }

    /// Whether others can use a name of the outermost level.
    pub(crate) fn is_public(&self, name: &str) -> bool {
        match &self.listed {
            Some(listed) => listed.binary_search_by(|one| self.text(*one).cmp(name)).is_ok(),
            None => !name.starts_with('_'),
        }
    }

    /// The names that others can use. In order, each once.
    pub(crate) fn public_names(&self) -> Vec<String> {
        let defined = self.definitions.iter().map(|one| self.text(one.name)).filter(|name| self.is_public(name));
        let listed = self.listed.iter().flatten().map(|one| self.text(*one));
        let mut names: Vec<String> = defined.chain(listed).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The same, and behind the classes among them what they have (`C.m`): methods, attributes and classes without `_` before them.
    pub(crate) fn names_with_members(&self) -> Vec<String> {
        let mut names = self.public_names();
        let public = self.definitions.iter().filter(|one| self.is_public(self.text(one.name)));
        let mut open: Vec<(String, &Definition)> = public.map(|one| (self.text(one.name).to_owned(), one)).collect();
        while let Some((path, one)) = open.pop() {
            for member in &one.members {
                let name = self.text(member.name);
                if !name.starts_with('_') {
                    let path = format!("{path}.{name}");
                    names.push(path.clone());
                    open.push((path, member));
                }
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

/// A text as long as bytes that are none, with all that is ASCII where it was.
fn readable(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

#[cfg(test)]
mod tests;
