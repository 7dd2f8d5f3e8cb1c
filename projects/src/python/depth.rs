//! How deep the tree of a file is at most, as its tokens tell: the parser and all that walks through a tree call themselves for each
//! level of it.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};

/// What is deeper is not parsed: Python itself takes no more than 200 brackets within each other.
const MAX_DEPTH: usize = 20_000;
/// A text of so many bytes has not many more tokens than that, so that nobody need count how deep it is before it is parsed.
const SMALL: usize = 32 << 10;

pub(super) fn is_too_deep(source: &str) -> bool {
    if source.len() <= SMALL {
        return false;
    }
    let mut lexer = lexer::lex(source, Mode::Module);
    let tokens = std::iter::from_fn(|| Some(lexer.next_token()).filter(|kind| !kind.is_eof()));
    most(tokens) > MAX_DEPTH
}

/// A bracket that is open, or what stands outside of all.
#[derive(Default)]
struct Level {
    /// What may stand within each other since something ended all of it.
    links: usize,
    /// Commas of its arguments end nothing.
    has_lambda: bool,
}

/// No less than how deep the tree of these tokens is. Operators, calls and the like count as if each stood within the one before it.
pub(super) fn most(tokens: impl Iterator<Item = TokenKind>) -> usize {
    let mut open = vec![Level::default()];
    let (mut depth, mut blocks, mut most) = (0, 0, 0);
    for kind in tokens {
        let is_within = open.len() > 1;
        let Some(level) = open.last_mut() else { break };
        match kind {
            TokenKind::Name
            | TokenKind::Int
            | TokenKind::Float
            | TokenKind::Complex
            | TokenKind::String
            | TokenKind::FStringMiddle
            | TokenKind::TStringMiddle
            | TokenKind::Comment
            | TokenKind::NonLogicalNewline
            | TokenKind::Colon => {}
            TokenKind::Newline => {
                open.truncate(1);
                open[0] = Level::default();
                depth = 0;
            }
            TokenKind::Indent => blocks += 1,
            TokenKind::Dedent => blocks = usize::saturating_sub(blocks, 1),
            TokenKind::Comma | TokenKind::Semi if !level.has_lambda => {
                depth -= level.links;
                level.links = 0;
            }
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace | TokenKind::FStringEnd | TokenKind::TStringEnd
                if is_within =>
            {
                depth -= open.pop().unwrap_or_default().links;
            }
            _ => {
                level.links += 1;
                level.has_lambda |= kind == TokenKind::Lambda;
                depth += 1;
                let opens = matches!(
                    kind,
                    TokenKind::Lpar
                        | TokenKind::Lsqb
                        | TokenKind::Lbrace
                        | TokenKind::FStringStart
                        | TokenKind::TStringStart
                );
                if opens {
                    open.push(Level::default());
                }
            }
        }
        most = most.max(depth + blocks);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> usize {
        let mut lexer = lexer::lex(source, Mode::Module);
        most(std::iter::from_fn(|| Some(lexer.next_token()).filter(|kind| !kind.is_eof())))
    }

    #[test]
    fn given_texts_that_are_long_or_deep_when_their_depth_is_counted_then_only_what_stands_within_each_other_counts() {
        let table = format!("x = [\n{}]\n", "    (1, {'a': b.c(2)}),\n".repeat(5_000));
        let statements = "if a and b(c):\n    d = e + f\n".repeat(5_000);
        let texts = format!("x = ({})\n", "'a'\n".repeat(5_000));
        for wide in [table, statements, texts] {
            assert!(of(&wide) < 20, "{}: {}", of(&wide), &wide[..20]);
        }
        let nest = |open: &str, close: &str| format!("x = {}1{}\n", open.repeat(1_000), close.repeat(1_000));
        for deep in [
            nest("(", ")"),
            nest("[1, ", "]"),
            nest("f(a, ", ")"),
            nest("-", ""),
            nest("not ", ""),
            nest("lambda a, b: ", ""),
            nest("1 + ", ""),
            nest("a if b else ", ""),
            nest("f'{", "}'"),
            nest("", ".a"),
            nest("", "(2, 3)"),
            (0..1_000).map(|level| format!("{}if a:\n", " ".repeat(level))).collect(),
        ] {
            assert!(of(&deep) >= 999, "{}: {}", of(&deep), &deep[..20]);
        }
    }
}
