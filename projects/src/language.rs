//! The languages whose syntax is known.

use tree_sitter::{Node, Parser, Tree};

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

    /// The syntax of a text; `None` when the parser gives up.
    pub fn parse(self, text: &[u8]) -> Option<Tree> {
        let language = match self {
            Self::Python => tree_sitter_python::LANGUAGE,
            Self::Rust => tree_sitter_rust::LANGUAGE,
            Self::JavaScript => tree_sitter_javascript::LANGUAGE,
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX,
            Self::Go => tree_sitter_go::LANGUAGE,
        };
        let mut parser = Parser::new();
        parser.set_language(&language.into()).ok()?;
        parser.parse(text, None)
    }

    /// Whether a node is a function with a body.
    pub fn is_function(self, kind: &str) -> bool {
        match self {
            Self::Python => kind == "function_definition",
            Self::Rust => kind == "function_item",
            Self::JavaScript | Self::TypeScript | Self::Tsx => {
                matches!(kind, "function_declaration" | "method_definition" | "arrow_function" | "function_expression")
            }
            Self::Go => matches!(kind, "function_declaration" | "method_declaration"),
        }
    }

    /// Whether a node is one more way through a function (McCabe, "A Complexity Measure", 1976).
    pub fn is_branch(self, kind: &str) -> bool {
        match self {
            Self::Python => matches!(
                kind,
                "if_statement"
                    | "elif_clause"
                    | "for_statement"
                    | "while_statement"
                    | "except_clause"
                    | "boolean_operator"
                    | "conditional_expression"
                    | "for_in_clause"
                    | "if_clause"
                    | "case_clause"
            ),
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

/// Visits a node and all below it, in the order of the text.
pub(crate) fn each<'t>(root: Node<'t>, mut visit: impl FnMut(Node<'t>)) {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        visit(node);
        open.extend(named(node).into_iter().rev());
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
