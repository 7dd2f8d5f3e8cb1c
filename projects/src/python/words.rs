//! The tokens of a module that analyses count.

use ruff_python_ast::StringFlags;
use ruff_python_ast::token::{Token, TokenKind};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::flow;
use super::outline::Outline;

/// A name, or a text in which names may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) range: TextRange,
    pub(crate) kind: WordKind,
}

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordKind {
    /// A name.
    Name,
    /// What is taken out of something: the `b` of `f().b`.
    Attribute,
    /// The same out of the name before it: the `b` of `a.b`.
    AttributeOfName,
    /// What stands between the quotes of a text that is a value.
    Text,
    /// A comment that says a type.
    TypeComment,
}

/// What one walk through the tokens finds.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) all: Vec<Word>,
    pub(super) branches: Vec<TextSize>,
    /// Whether there is a name of which a rule of leakage speaks.
    pub(super) may_leak: bool,
}

impl Words {
    /// The texts within a range.
    pub(super) fn texts_within(&self, range: TextRange) -> Vec<TextRange> {
        let first = self.all.partition_point(|word| word.range.start() < range.start());
        let within = self.all[first..].iter().take_while(|word| word.range.start() < range.end());
        within.filter(|word| word.kind == WordKind::Text).map(|word| word.range).collect()
    }
}

pub(super) fn of(tokens: &[Token], source: &str, outline: &Outline) -> Words {
    let mut words = Words::default();
    let text = |range: TextRange| source.get(usize::from(range.start())..usize::from(range.end())).unwrap_or_default();
    let mut imports = outline.imports.iter().map(|import| import.range).peekable();
    let mut explanations = outline.explanations.iter().copied().peekable();
    // The last two that are no comment and no end of a line within brackets.
    let (mut last, mut before) = (TokenKind::Newline, TokenKind::Newline);
    for (index, token) in tokens.iter().enumerate() {
        let (kind, range) = token.as_tuple();
        match kind {
            TokenKind::Name => {
                while imports.next_if(|import| import.end() <= range.start()).is_some() {}
                let is_imported = imports.peek().is_some_and(|import| import.start() <= range.start());
                let kind = match (last, before) {
                    _ if is_imported => WordKind::Name,
                    (TokenKind::Dot, TokenKind::Name) => WordKind::AttributeOfName,
                    (TokenKind::Dot, _) => WordKind::Attribute,
                    _ => WordKind::Name,
                };
                words.all.push(Word { range, kind });
                words.may_leak |= flow::is_told_of(text(range));
            }
            TokenKind::String | TokenKind::FStringMiddle | TokenKind::TStringMiddle => {
                while explanations.next_if(|one| one.end() <= range.start()).is_some() {}
                let explains = explanations.peek().is_some_and(|one| one.contains_range(range));
                let content = if kind == TokenKind::String { content(*token) } else { range };
                if !explains && !content.is_empty() {
                    words.all.push(Word { range: content, kind: WordKind::Text });
                }
            }
            TokenKind::Comment if text(range).starts_with("# type:") => {
                words.all.push(Word { range, kind: WordKind::TypeComment });
            }
            TokenKind::And
            | TokenKind::Or
            | TokenKind::If
            | TokenKind::Elif
            | TokenKind::For
            | TokenKind::While
            | TokenKind::Case => words.branches.push(range.start()),
            // `except*` takes a part of what was raised, and others take the rest.
            TokenKind::Except if tokens.get(index + 1).is_none_or(|next| next.kind() != TokenKind::Star) => {
                words.branches.push(range.start());
            }
            _ => {}
        }
        if !matches!(kind, TokenKind::Comment | TokenKind::NonLogicalNewline) {
            (last, before) = (kind, last);
        }
    }
    words
}

/// What stands between the quotes.
fn content(token: Token) -> TextRange {
    let range = token.range();
    let Some(flags) = token.string_flags() else { return range };
    let start = (range.start() + flags.opener_len()).min(range.end());
    let end = range.end().checked_sub(flags.closer_len()).unwrap_or_default();
    TextRange::new(start, end.max(start))
}
