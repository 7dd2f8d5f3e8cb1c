//! What the statements of a scope do, in their order, as far as the rules of leakage need it.

use ruff_python_ast::visitor::source_order::{SourceOrderVisitor, walk_expr, walk_stmt};
use ruff_python_ast::{self as ast, Expr, Stmt};
use ruff_text_size::{Ranged, TextRange, TextSize};

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// What it is called on, such as `scaler` in `scaler.fit(X)`; empty for a bare name.
    pub(crate) on: String,
    /// The function's last name.
    pub(crate) name: String,
    /// Its arguments as they are written, without blanks.
    pub(crate) arguments: Vec<String>,
    /// Its end: calls count in the order of their ends, so that inner ones come first.
    pub(crate) end: TextSize,
    /// Its first byte.
    pub(crate) start: TextSize,
}

/// An assignment to one name, or to several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Without blanks.
    pub(crate) left: String,
    /// Without blanks.
    pub(crate) right: String,
    /// Its first byte.
    pub(crate) start: TextSize,
}

/// A module or a function without the functions in it.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) calls: Vec<Call>,
    pub(crate) assignments: Vec<Assignment>,
}

/// What takes data apart into those that are learned from and those that are tested on.
pub(crate) const SPLITS: [&str; 9] = [
    "train_test_split",
    "cross_val_score",
    "cross_val_predict",
    "cross_validate",
    "learning_curve",
    "validation_curve",
    "GridSearchCV",
    "RandomizedSearchCV",
    "HalvingGridSearchCV",
];
/// Other names without which no rule speaks.
const OTHERS: [&str; 8] = ["fit", "fit_transform", "partial_fit", "KFold", "StratifiedKFold", "y", "target", "labels"];

/// Whether a rule may speak of a name.
pub(super) fn is_told_of(name: &str) -> bool {
    OTHERS.contains(&name) || SPLITS.contains(&name)
}

/// Calls and assignments that are read have so many times the length of their file together, at most. One that stands within others is
/// part of the text of each: of thousands within each other the texts would be as long as the square of the file.
const MAX_TIMES: usize = 16;

/// The module and each function.
pub(super) fn scopes(body: &[Stmt], source: &str) -> Vec<Scope> {
    let left = source.len().saturating_mul(MAX_TIMES);
    let mut collector = Collector { source, scopes: vec![Scope::default()], current: 0, left };
    collector.visit_body(body);
    for scope in &mut collector.scopes {
        scope.calls.sort_by_key(|call| call.end);
    }
    collector.scopes
}

struct Collector<'s> {
    source: &'s str,
    scopes: Vec<Scope>,
    current: usize,
    /// Bytes of calls and assignments that may still be read.
    left: usize,
}

impl<'a> SourceOrderVisitor<'a> for Collector<'_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::FunctionDef(function) => {
                function.decorator_list.iter().for_each(|decorator| self.visit_decorator(decorator));
                let outer = self.current;
                self.scopes.push(Scope::default());
                self.current = self.scopes.len() - 1;
                self.visit_body(&function.body);
                self.current = outer;
                return;
            }
            Stmt::Assign(one) => {
                for target in &one.targets {
                    self.assignment(target, target.range(), one.range);
                }
            }
            Stmt::AnnAssign(one) if one.value.is_some() => {
                self.assignment(&one.target, one.annotation.range(), one.range);
            }
            _ => {}
        }
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Call(call) = expression {
            self.call(call);
        }
        walk_expr(self, expression);
    }
}

impl Collector<'_> {
    fn text(&self, range: TextRange) -> &str {
        self.source.get(usize::from(range.start())..usize::from(range.end())).unwrap_or_default()
    }

    /// Whether what stands there may still be read; outer ones are asked for first.
    fn takes(&mut self, start: TextSize, end: TextSize) -> bool {
        let bytes = usize::from(end).saturating_sub(usize::from(start));
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// What stands right of the next `=` behind something is given to a target.
    fn assignment(&mut self, target: &Expr, before: TextRange, statement: TextRange) {
        if !self.takes(target.start(), statement.end()) {
            return;
        }
        let rest = self.text(TextRange::new(before.end(), statement.end()));
        let Some((_, right)) = rest.split_once('=') else { return };
        let (left, right) = (plain(self.text(target.range())), plain(right));
        let start = target.start();
        self.scopes[self.current].assignments.push(Assignment { left, right, start });
    }

    fn call(&mut self, call: &ast::ExprCall) {
        let (start, arguments) = (call.range_start, &call.arguments);
        if !self.takes(start, arguments.range.end()) {
            return;
        }
        let function = plain(self.text(TextRange::new(start, arguments.range.start().max(start))));
        let (on, name) = function.rsplit_once('.').map_or(("", function.as_str()), |(on, name)| (on, name));
        let found = Call {
            on: on.to_owned(),
            name: name.to_owned(),
            arguments: arguments.iter_source_order().map(|argument| plain(self.text(argument.range()))).collect(),
            end: arguments.range.end(),
            start,
        };
        self.scopes[self.current].calls.push(found);
    }
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect::<String>().replace('\'', "\"")
}

#[cfg(test)]
mod tests {
    use crate::python::Module;

    /// How many calls and assignments are read of a file, and the bytes of their texts.
    fn read(source: &str) -> (usize, usize) {
        let module = Module::parse(source.as_bytes()).unwrap();
        let calls = module.scopes.iter().flat_map(|scope| &scope.calls);
        let of_calls =
            calls.map(|one| one.on.len() + one.name.len() + one.arguments.iter().map(String::len).sum::<usize>());
        let given = module.scopes.iter().flat_map(|scope| &scope.assignments);
        let texts: Vec<usize> = of_calls.chain(given.map(|one| one.left.len() + one.right.len())).collect();
        (texts.len(), texts.iter().sum())
    }

    #[test]
    fn given_calls_and_assignments_within_each_other_when_they_are_read_then_their_texts_are_no_square_of_the_file() {
        for (open, close) in [("fit(", ")"), ("", ".fit()"), ("y = ", ""), ("x = fit(1, ", ")"), ("fit(a, b=", ")")] {
            let nested = |levels: usize| {
                let inner = format!("'{}'", "a".repeat(40 * levels));
                format!("{}{inner}{}\n", open.repeat(levels), close.repeat(levels))
            };
            let usual = read(&nested(8)).0;
            assert!(open.starts_with("x = ") || usual == 8, "{open}{close}: {usual}");
            let deep = nested(3_000);
            let (count, bytes) = read(&deep);
            assert!(count > 0 && bytes <= super::MAX_TIMES * deep.len(), "{open}{close}: {count} with {bytes}");
        }
    }
}
