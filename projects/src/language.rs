//! The languages whose syntax is known.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Point, Tree};

/// A language with a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// Python.
    Python,
    /// Rust.
    Rust,
    /// JavaScript.
    JavaScript,
    /// TypeScript.
    TypeScript,
    /// TypeScript with elements.
    Tsx,
    /// Go.
    Go,
}

impl Language {
    /// By the extension of a path.
    pub fn of(path: &str) -> Option<Self> {
        Some(match path.rsplit('/').next()?.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
            "py" | "pyi" => Self::Python,
            "rs" => Self::Rust,
            "js" | "mjs" | "cjs" | "jsx" => Self::JavaScript,
            "ts" | "mts" | "cts" => Self::TypeScript,
            "tsx" => Self::Tsx,
            "go" => Self::Go,
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Rust => "rust",
            Self::JavaScript => "javascript",
            Self::TypeScript | Self::Tsx => "typescript",
            Self::Go => "go",
        }
    }

    /// Whether it is JavaScript or adds to it.
    pub fn is_script(self) -> bool {
        match self {
            Self::JavaScript | Self::TypeScript | Self::Tsx => true,
            Self::Python | Self::Rust | Self::Go => false,
        }
    }

    /// The syntax of a text; `None` when the parser gives up, or takes longer than any text of people does. What is said of whole
    /// files of Python comes from another parser.
    pub fn parse(self, text: &[u8]) -> Option<Tree> {
        self.parse_within(text, patience(text.len()))
    }

    fn grammar(self) -> tree_sitter::Language {
        let grammar = match self {
            Self::Python => tree_sitter_python::LANGUAGE,
            Self::Rust => tree_sitter_rust::LANGUAGE,
            Self::JavaScript => tree_sitter_javascript::LANGUAGE,
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX,
            Self::Go => tree_sitter_go::LANGUAGE,
        };
        grammar.into()
    }

    fn parse_within(self, text: &[u8], most: Duration) -> Option<Tree> {
        let mut parser = Parser::new();
        parser.set_language(&self.grammar()).ok()?;
        let fed = (self.ends_lines_with_returns() && lone_returns(text) > 0).then(|| with_feeds(text));
        let text = fed.as_deref().unwrap_or(text);
        let begun = Instant::now();
        let mut look = |_: &ParseState| match begun.elapsed() >= most {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let mut read = |at: usize, _: Point| text.get(at..).unwrap_or_default();
        parser.parse_with_options(&mut read, None, Some(ParseOptions::new().progress_callback(&mut look)))
    }

    /// Whether a lone `\r` ends a line. No grammar knows that.
    pub(crate) fn ends_lines_with_returns(self) -> bool {
        match self {
            Self::Python | Self::JavaScript | Self::TypeScript | Self::Tsx => true,
            Self::Rust | Self::Go => false,
        }
    }

    /// Whether a node is a function with a body. Those of Python are found by another parser.
    pub fn is_function(self, kind: &str) -> bool {
        match self {
            Self::Python => false,
            Self::Rust => kind == "function_item",
            Self::JavaScript | Self::TypeScript | Self::Tsx => {
                matches!(kind, "function_declaration" | "method_definition" | "arrow_function" | "function_expression")
            }
            Self::Go => matches!(kind, "function_declaration" | "method_declaration"),
        }
    }

    /// Whether a node is one more way through a function (McCabe, "A Complexity Measure", 1976). Those of Python are found by another
    /// parser.
    pub fn is_branch(self, kind: &str) -> bool {
        match self {
            Self::Python => false,
            Self::Rust => {
                matches!(kind, "if_expression" | "match_arm" | "while_expression" | "for_expression" | "try_expression")
            }
            Self::JavaScript | Self::TypeScript | Self::Tsx => matches!(
                kind,
                "if_statement"
                    | "for_statement"
                    | "for_in_statement"
                    | "while_statement"
                    | "do_statement"
                    | "switch_case"
                    | "catch_clause"
                    | "ternary_expression"
            ),
            Self::Go => {
                matches!(
                    kind,
                    "if_statement" | "for_statement" | "expression_case" | "type_case" | "communication_case"
                )
            }
        }
    }
}

/// How long so many bytes may be parsed. What people write takes about a tenth of a microsecond a byte; a million brackets within each
/// other take some hundred times that, and hundreds of megabytes.
fn patience(bytes: usize) -> Duration {
    Duration::from_secs(2) + Duration::from_micros(2) * u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// How many `\r` have no `\n` behind them.
pub(crate) fn lone_returns(text: &[u8]) -> usize {
    if text.contains(&b'\r') { (0..text.len()).filter(|at| is_lone_return(text, *at)).count() } else { 0 }
}

fn is_lone_return(text: &[u8], at: usize) -> bool {
    text[at] == b'\r' && text.get(at + 1) != Some(&b'\n')
}

/// The same with `\n` for each lone `\r`: all places stay.
fn with_feeds(text: &[u8]) -> Vec<u8> {
    let byte = |at: usize| if is_lone_return(text, at) { b'\n' } else { text[at] };
    (0..text.len()).map(byte).collect()
}

/// What is said of each kind of nodes of a language, by the grammar's number of it: names would be compared again for each node.
pub(crate) struct Kinds<T> {
    said: Vec<T>,
    of_errors: T,
}

impl<T: Copy> Kinds<T> {
    pub(crate) fn new(language: Language, say: impl Fn(&str) -> T) -> Self {
        let grammar = language.grammar();
        let numbers = 0..u16::try_from(grammar.node_kind_count()).unwrap_or(u16::MAX);
        let said = numbers.map(|number| say(grammar.node_kind_for_id(number).unwrap_or_default()));
        Self { said: said.collect(), of_errors: say("ERROR") }
    }

    pub(crate) fn of(&self, node: Node<'_>) -> T {
        self.said.get(usize::from(node.kind_id())).copied().unwrap_or(self.of_errors)
    }
}

/// Visits a node and all named ones below it, in the order of the text.
pub(crate) fn each<'t>(root: Node<'t>, mut visit: impl FnMut(Node<'t>)) {
    each_with_depth(root, |node, _| visit(node));
}

/// The same with how deep below the first each is: what is visited next and is no deeper stands behind it.
pub(crate) fn each_with_depth<'t>(root: Node<'t>, mut visit: impl FnMut(Node<'t>, u32)) {
    let mut cursor = root.walk();
    // A cursor counts anew whenever it is asked.
    let mut depth = 0;
    loop {
        let node = cursor.node();
        // Words and signs have no names, and nothing below them.
        if depth == 0 || node.is_named() {
            visit(node, depth);
            if cursor.goto_first_child() {
                depth += 1;
                continue;
            }
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
            depth -= 1;
        }
    }
}

/// The named children.
pub(crate) fn named(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
    children
}

/// The text of a node.
pub(crate) fn text<'s>(node: Node<'_>, source: &'s [u8]) -> &'s str {
    source.get(node.byte_range()).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_part_of_a_tree_when_it_is_visited_then_all_named_nodes_of_it_come_in_the_order_of_the_text() {
        let source = b"def f(a):\n    return a + 1\n\ndef g(b):\n    return (b, 2)\n";
        let tree = Language::Python.parse(source).unwrap();
        let visited = |root: Node<'_>| {
            let mut seen = Vec::new();
            each(root, |node| seen.push((node.kind().to_owned(), text(node, source).to_owned())));
            seen
        };
        let words = |root: Node<'_>| -> Vec<String> {
            let leaves =
                visited(root).into_iter().filter(|(kind, _)| matches!(kind.as_str(), "identifier" | "integer"));
            leaves.map(|(_, word)| word).collect()
        };
        let (all, first) = (tree.root_node(), named(tree.root_node())[0]);
        assert_eq!(words(all), ["f", "a", "a", "1", "g", "b", "b", "2"]);
        assert_eq!(words(first), ["f", "a", "a", "1"], "nothing behind it");
        assert_eq!((visited(all)[0].0.as_str(), visited(first)[0].0.as_str()), ("module", "function_definition"));
        let leaf = named(first)[0];
        assert_eq!(visited(leaf), [("identifier".to_owned(), "f".to_owned())]);
    }

    #[test]
    fn given_kinds_when_they_are_asked_for_then_each_node_has_what_is_said_of_its_name() {
        for (language, source) in [
            (Language::Python, "def f(x):\n    return x and (1,\n"),
            (Language::Rust, "fn f() -> u8 { if a { 1 } else { 2 }"),
            (Language::TypeScript, "function f(x: number) { return x ? 1 : "),
            (Language::Go, "package p\nfunc f() { if a {"),
        ] {
            let tree = language.parse(source.as_bytes()).unwrap();
            let says = |kind: &str| kind.len() * 100 + usize::from(language.is_function(kind));
            let kinds = Kinds::new(language, says);
            let mut count = 0;
            each(tree.root_node(), |node| {
                assert_eq!(kinds.of(node), says(node.kind()), "{language:?}: {}", node.kind());
                count += 1;
            });
            assert!(count > 5);
        }
    }

    #[test]
    fn given_a_text_that_takes_too_long_when_it_is_parsed_then_the_parser_gives_it_up() {
        let text = "x = (1, [2, 3])\n".repeat(5_000);
        for language in [Language::Python, Language::JavaScript] {
            assert!(language.parse_within(text.as_bytes(), Duration::ZERO).is_none(), "{language:?}");
            assert!(!language.parse(text.as_bytes()).unwrap().root_node().has_error(), "{language:?}");
        }
        assert_eq!((patience(0).as_secs(), patience(2 << 20).as_secs()), (2, 6));
    }

    #[test]
    fn given_sources_whose_lines_end_with_returns_when_they_are_parsed_then_they_are_what_they_are_with_feeds() {
        for (language, source) in [
            (Language::Python, "def f(x):\n    if x:\n        return 1\n    # so\n    return 2\n"),
            (Language::JavaScript, "// so\nlet x = 1\nlet y = 2\n"),
        ] {
            let of = |end: &str| language.parse(source.replace('\n', end).as_bytes()).unwrap();
            let (feeds, returns, both) = (of("\n"), of("\r"), of("\r\n"));
            let (feeds, returns, both) = (feeds.root_node(), returns.root_node(), both.root_node());
            assert!(!returns.has_error() && !both.has_error(), "{language:?}");
            assert_eq!((feeds.to_sexp(), feeds.end_position()), (returns.to_sexp(), returns.end_position()));
        }
    }
}
