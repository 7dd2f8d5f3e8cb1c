//! What the statements of a module are, as far as analyses need it.

use ruff_python_ast::{self as ast, ExceptHandler, Expr, Stmt};
use ruff_text_size::{Ranged, TextRange, TextSize};

/// How deep classes are looked into: deeper ones are made by a machine, or to do harm.
const MAX_DEPTH: usize = 16;

/// A function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: TextRange,
    /// Without its decorators.
    pub(crate) range: TextRange,
    pub(crate) body: TextRange,
    /// Names that get values in it, once for each time; those of functions and classes within it are theirs.
    pub(crate) writes: Vec<TextRange>,
}

/// A statement that imports.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) range: TextRange,
    /// In `from a import b` the `a`, with dots before it.
    pub(crate) from: Option<TextRange>,
    /// Of `from a import *` none.
    pub(crate) names: Vec<Imported>,
    /// `from __future__ import a`.
    pub(crate) is_future: bool,
    /// Within `try`: it is tried whether it is there.
    pub(crate) is_guarded: bool,
    /// Whether it stands in nothing.
    pub(crate) is_outermost: bool,
}

/// One of the names of an import.
#[derive(Debug)]
pub(crate) struct Imported {
    /// With its alias.
    pub(crate) range: TextRange,
    pub(crate) name: TextRange,
    pub(crate) alias: Option<TextRange>,
}

/// Something that has a name.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: TextRange,
    /// For people: `function`, `class`, `variable`.
    pub(crate) kind: &'static str,
    /// All of it, with its decorators.
    pub(crate) range: TextRange,
    /// Decorated or derived from something: it may be used without being named.
    pub(crate) is_marked: bool,
    /// Whether it stands in the module or class itself, and not in `if`, `try` or `with` there.
    pub(crate) is_direct: bool,
    /// What a class has.
    pub(crate) members: Vec<Definition>,
}

/// What one walk through the statements finds.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) functions: Vec<Function>,
    pub(super) imports: Vec<Import>,
    pub(super) unreachable: Vec<TextSize>,
    pub(super) definitions: Vec<Definition>,
    /// The values of `__all__`; none where one of them is no literal.
    pub(super) listed: Option<Vec<TextRange>>,
    /// Texts that are statements: they only explain.
    pub(super) explanations: Vec<TextRange>,
}

pub(super) fn of(body: &[Stmt], source: &str) -> Outline {
    let mut walk = Walk { source, outline: Outline::default() };
    walk.block(body, Around { function: None, is_guarded: false, is_outermost: true });
    let mut outline = walk.outline;
    outline.definitions = definitions(body, source, MAX_DEPTH);
    let mut listed = Listed::default();
    listed.read(body, source);
    outline.listed = if listed.is_open { None } else { listed.values };
    outline
}

/// Where a statement stands.
#[derive(Clone, Copy)]
struct Around {
    /// The number of the function whose statement it is.
    function: Option<usize>,
    is_guarded: bool,
    is_outermost: bool,
}

struct Walk<'s> {
    source: &'s str,
    outline: Outline,
}

impl Walk<'_> {
    fn block(&mut self, body: &[Stmt], around: Around) {
        if !around.is_outermost {
            let behind = body.windows(2).find(|pair| leaves(&pair[0]) && is_reached_only_by_going_on(&pair[1]));
            self.outline.unreachable.extend(behind.map(|pair| pair[1].start()));
        }
        for statement in body {
            self.statement(statement, around);
        }
    }

    fn statement(&mut self, statement: &Stmt, around: Around) {
        let inner = Around { is_outermost: false, ..around };
        match statement {
            Stmt::FunctionDef(function) => self.function(function, inner),
            Stmt::ClassDef(class) => self.block(&class.body, Around { function: None, ..inner }),
            Stmt::If(one) => {
                self.block(&one.body, inner);
                one.elif_else_clauses.iter().for_each(|clause| self.block(&clause.body, inner));
            }
            Stmt::For(one) => {
                self.block(&one.body, inner);
                self.block(&one.orelse, inner);
            }
            Stmt::While(one) => {
                self.block(&one.body, inner);
                self.block(&one.orelse, inner);
            }
            Stmt::With(one) => self.block(&one.body, inner),
            Stmt::Match(one) => one.cases.iter().for_each(|case| self.block(&case.body, inner)),
            Stmt::Try(one) => {
                let inner = Around { is_guarded: true, ..inner };
                self.block(&one.body, inner);
                for ExceptHandler::ExceptHandler(handler) in &one.handlers {
                    self.block(&handler.body, inner);
                }
                self.block(&one.orelse, inner);
                self.block(&one.finalbody, inner);
            }
            Stmt::Assign(one) => one.targets.iter().for_each(|target| self.write(target, around)),
            Stmt::AnnAssign(one) if one.value.is_some() => self.write(&one.target, around),
            Stmt::Import(one) => {
                let names = one.names.iter().map(imported).collect();
                self.import(one.range, None, names, false, around);
            }
            Stmt::ImportFrom(one) => {
                let is_future = one.level == 0 && one.module.as_ref().is_some_and(|module| module.id == "__future__");
                let names = one.names.iter().filter(|name| name.name.id != "*").map(imported).collect();
                self.import(one.range, Some(self.origin(one)), names, is_future, around);
            }
            Stmt::Expr(one) => {
                let is_text = match &*one.value {
                    Expr::StringLiteral(text) => !text.value.is_implicit_concatenated(),
                    Expr::BytesLiteral(text) => !text.value.is_implicit_concatenated(),
                    Expr::FString(text) => !text.value.is_implicit_concatenated(),
                    _ => false,
                };
                // In parentheses it is a value.
                if is_text && one.value.range() == one.range {
                    self.outline.explanations.push(one.range);
                }
            }
            _ => {}
        }
    }

    fn function(&mut self, function: &ast::StmtFunctionDef, inner: Around) {
        let start = function.decorator_list.last().map_or(function.range.start(), |last| self.behind(last.end()));
        let body = match (function.body.first(), function.body.last()) {
            (Some(first), Some(last)) => TextRange::new(first.start(), last.end()),
            _ => TextRange::empty(function.range.end()),
        };
        let range = TextRange::new(start.min(function.range.end()), function.range.end());
        self.outline.functions.push(Function { name: function.name.range, range, body, writes: Vec::new() });
        let number = self.outline.functions.len() - 1;
        self.block(&function.body, Around { function: Some(number), ..inner });
    }

    fn write(&mut self, target: &Expr, around: Around) {
        let function = around.function.and_then(|number| self.outline.functions.get_mut(number));
        if let (Some(function), Expr::Name(name)) = (function, target) {
            function.writes.push(name.range);
        }
    }

    fn import(
        &mut self,
        range: TextRange,
        from: Option<TextRange>,
        names: Vec<Imported>,
        is_future: bool,
        around: Around,
    ) {
        let Around { is_guarded, is_outermost, .. } = around;
        self.outline.imports.push(Import { range, from, names, is_future, is_guarded, is_outermost });
    }

    /// The module of `from a import b`, with the dots before it.
    fn origin(&self, import: &ast::StmtImportFrom) -> TextRange {
        let whole = &self.source[usize::from(import.range.start())..usize::from(import.range.end())];
        let is_between = |c: char| c.is_whitespace() || c == '\\';
        let behind = whole.strip_prefix("from").unwrap_or(whole).trim_start_matches(is_between);
        let skipped = whole.len() - behind.len();
        let dots = behind.trim_start_matches(|c: char| c == '.' || is_between(c));
        let dots = behind[..behind.len() - dots.len()].trim_end_matches(is_between).len();
        let start = import.range.start() + size(skipped);
        let end = import.module.as_ref().map_or(start + size(dots), Ranged::end);
        TextRange::new(start.min(end), end)
    }

    /// Where the next word is behind blanks and comments.
    fn behind(&self, at: TextSize) -> TextSize {
        let mut rest = &self.source[usize::from(at)..];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\\');
            if !rest.starts_with('#') {
                return size(self.source.len() - rest.len());
            }
            rest = &rest[rest.find(['\n', '\r']).unwrap_or(rest.len())..];
        }
    }
}

fn size(bytes: usize) -> TextSize {
    TextSize::new(u32::try_from(bytes).unwrap_or(u32::MAX))
}

fn imported(alias: &ast::Alias) -> Imported {
    let own = alias.asname.as_ref().map(|name| name.range);
    Imported { range: alias.range, name: alias.name.range, alias: own }
}

fn leaves(statement: &Stmt) -> bool {
    matches!(statement, Stmt::Return(_) | Stmt::Raise(_) | Stmt::Break(_) | Stmt::Continue(_))
}

/// A function may be known before; a `yield` makes a generator of its function, wherever it stands.
fn is_reached_only_by_going_on(statement: &Stmt) -> bool {
    match statement {
        Stmt::FunctionDef(function) => !function.decorator_list.is_empty(),
        Stmt::Expr(one) => !yields(&one.value),
        Stmt::Assign(one) => !yields(&one.value),
        _ => true,
    }
}

fn yields(value: &Expr) -> bool {
    matches!(value, Expr::Yield(_) | Expr::YieldFrom(_))
}

/// The blocks of a statement whose own statements are as if they stood around it: `if`, `try` and `with`, but not what only runs as a
/// program.
fn inner_blocks<'a>(statement: &'a Stmt, source: &str) -> Option<Vec<&'a [Stmt]>> {
    match statement {
        Stmt::If(one) => {
            let test = one.test.range();
            if source[usize::from(test.start())..usize::from(test.end())].contains("__name__") {
                return Some(Vec::new());
            }
            let others = one.elif_else_clauses.iter().map(|clause| &*clause.body);
            Some(std::iter::once(&*one.body).chain(others).collect())
        }
        Stmt::Try(one) => {
            let handlers = one.handlers.iter().map(|ExceptHandler::ExceptHandler(handler)| &*handler.body);
            Some(std::iter::once(&*one.body).chain(handlers).chain([&*one.orelse, &*one.finalbody]).collect())
        }
        Stmt::With(one) => Some(vec![&*one.body]),
        _ => None,
    }
}

fn definitions(body: &[Stmt], source: &str, depth: usize) -> Vec<Definition> {
    let mut found = Vec::new();
    let mut open: Vec<(std::slice::Iter<'_, Stmt>, bool)> = vec![(body.iter(), true)];
    while let Some((rest, is_direct)) = open.last_mut() {
        let is_direct = *is_direct;
        let Some(statement) = rest.next() else {
            open.pop();
            continue;
        };
        if let Some(blocks) = inner_blocks(statement, source) {
            open.extend(blocks.into_iter().rev().map(|block| (block.iter(), false)));
            continue;
        }
        let one = |name: TextRange, kind, is_marked, members| Definition {
            name,
            kind,
            range: statement.range(),
            is_marked,
            is_direct,
            members,
        };
        match statement {
            Stmt::FunctionDef(function) => {
                found.push(one(function.name.range, "function", !function.decorator_list.is_empty(), Vec::new()));
            }
            Stmt::ClassDef(class) => {
                let members = if depth > 0 { definitions(&class.body, source, depth - 1) } else { Vec::new() };
                let is_marked = !class.decorator_list.is_empty() || class.arguments.is_some();
                found.push(one(class.name.range, "class", is_marked, members));
            }
            Stmt::Assign(assign) => {
                let names = assign.targets.first().map(targets).unwrap_or_default();
                found.extend(names.into_iter().map(|name| one(name, "variable", false, Vec::new())));
            }
            Stmt::AnnAssign(assign) => {
                let names = targets(&assign.target);
                found.extend(names.into_iter().map(|name| one(name, "variable", false, Vec::new())));
            }
            _ => {}
        }
    }
    found
}

/// The names that something is assigned to.
fn targets(target: &Expr) -> Vec<TextRange> {
    let parts = match target {
        Expr::Name(name) => return vec![name.range],
        Expr::Tuple(tuple) => &tuple.elts,
        Expr::List(list) => &list.elts,
        _ => return Vec::new(),
    };
    parts.iter().filter_map(|part| part.as_name_expr().map(|name| name.range)).collect()
}

/// What is read of `__all__`.
#[derive(Default)]
struct Listed {
    values: Option<Vec<TextRange>>,
    /// Whether it gets what is no literal.
    is_open: bool,
}

impl Listed {
    fn read(&mut self, body: &[Stmt], source: &str) {
        for statement in body {
            for block in inner_blocks(statement, source).unwrap_or_default() {
                self.read(block, source);
            }
            let (target, value) = match statement {
                Stmt::Assign(one) => (one.targets.first(), Some(&one.value)),
                Stmt::AugAssign(one) => (Some(&*one.target), Some(&one.value)),
                Stmt::AnnAssign(one) => (Some(&*one.target), one.value.as_ref()),
                _ => continue,
            };
            let is_it = target.and_then(Expr::as_name_expr).is_some_and(|name| name.id == "__all__");
            let Some(value) = value.filter(|_| is_it) else { continue };
            let is_literal = match &**value {
                Expr::List(_) => true,
                Expr::Tuple(tuple) => tuple.parenthesized,
                _ => false,
            };
            self.is_open |= !is_literal;
            self.values.get_or_insert_default().push(value.range());
        }
    }
}
