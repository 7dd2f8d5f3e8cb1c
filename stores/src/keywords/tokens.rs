//! How text is cut: letters and digits in a row, runs of scripts without spaces in [pairs](super::unspaced).

use std::str::CharIndices;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use super::unspaced::{Pairs, is_unspaced};

/// Cuts text into words as they stand. What has no run of a script without spaces is cut as tantivy's own `SimpleTokenizer` does.
#[derive(Clone, Default)]
pub(super) struct Words {
    /// Whether a run has its single characters beside its pairs, so that a search for one of them finds it.
    characters: bool,
    token: Token,
}

impl Words {
    /// Of a text that is searched.
    pub(super) fn of_chunks() -> Self {
        Self { characters: true, token: Token::default() }
    }

    /// Of a text that is searched for: a character of a longer run says too little alone.
    pub(super) fn of_queries() -> Self {
        Self::default()
    }
}

impl Tokenizer for Words {
    type TokenStream<'a> = WordStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> WordStream<'a> {
        self.token.reset();
        WordStream { text, at: 0, run: Run::default(), characters: self.characters, token: &mut self.token }
    }
}

/// What is left of a run.
struct Run<'a> {
    text: &'a str,
    /// Its first byte in the text.
    start: usize,
    pairs: Pairs<'a>,
    characters: CharIndices<'a>,
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self { text: "", start: 0, pairs: Pairs::default(), characters: "".char_indices() }
    }
}

impl<'a> Run<'a> {
    fn of(text: &'a str, start: usize, characters: bool) -> Self {
        // One character alone is a pair already.
        let characters = if characters && text.chars().nth(1).is_some() { text } else { "" };
        Self { text, start, pairs: Pairs::of(text), characters: characters.char_indices() }
    }

    fn next(&mut self) -> Option<(usize, &'a str)> {
        if let Some((at, pair)) = self.pairs.next() {
            return Some((self.start + at, pair));
        }
        let (at, character) = self.characters.next()?;
        Some((self.start + at, &self.text[at..at + character.len_utf8()]))
    }
}

/// The words of a text, one after the other.
pub(super) struct WordStream<'a> {
    text: &'a str,
    /// The first byte that was not looked at.
    at: usize,
    run: Run<'a>,
    characters: bool,
    token: &'a mut Token,
}

impl<'a> WordStream<'a> {
    fn next_word(&mut self) -> Option<(usize, &'a str)> {
        let text = self.text;
        loop {
            if let Some(found) = self.run.next() {
                return Some(found);
            }
            let rest = &text[self.at..];
            let start = rest.find(|c: char| c.is_alphanumeric() || is_unspaced(c))?;
            let rest = &rest[start..];
            let start = self.at + start;
            if rest.starts_with(is_unspaced) {
                let end = rest.find(|c: char| !is_unspaced(c)).unwrap_or(rest.len());
                self.at = start + end;
                self.run = Run::of(&rest[..end], start, self.characters);
            } else {
                let end = rest.find(|c: char| !c.is_alphanumeric() || is_unspaced(c)).unwrap_or(rest.len());
                self.at = start + end;
                return Some((start, &rest[..end]));
            }
        }
    }
}

impl TokenStream for WordStream<'_> {
    fn advance(&mut self) -> bool {
        self.token.text.clear();
        self.token.position = self.token.position.wrapping_add(1);
        let Some((start, word)) = self.next_word() else { return false };
        self.token.offset_from = start;
        self.token.offset_to = start + word.len();
        self.token.text.push_str(word);
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tantivy::tokenizer::SimpleTokenizer;

    use super::*;

    fn tokens(mut tokenizer: impl Tokenizer, text: &str) -> Vec<Token> {
        let mut stream = tokenizer.token_stream(text);
        let mut found = Vec::new();
        while stream.advance() {
            found.push(stream.token().clone());
        }
        found
    }

    fn words(tokenizer: Words, text: &str) -> Vec<String> {
        tokens(tokenizer, text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn given_runs_without_spaces_when_cut_then_chunks_have_characters_too_and_queries_pairs_alone() {
        assert_eq!(words(Words::of_queries(), "Kafkaの設定 v2"), ["Kafka", "の設", "設定", "v2"]);
        assert_eq!(words(Words::of_chunks(), "Kafkaの設定 v2"), ["Kafka", "の設", "設定", "の", "設", "定", "v2"]);
        assert_eq!(words(Words::of_chunks(), "水 a"), ["水", "a"]);
    }

    proptest! {
        #[test]
        fn text_with_spaces_is_cut_as_before(text in "[\u{0}-\u{e00}\u{ac00}-\u{d7a3}\u{1f300}-\u{1f5ff}]{0,80}") {
            prop_assert_eq!(tokens(Words::of_chunks(), &text), tokens(SimpleTokenizer::default(), &text));
            prop_assert_eq!(tokens(Words::of_queries(), &text), tokens(SimpleTokenizer::default(), &text));
        }

        #[test]
        fn every_word_is_what_stands_at_its_bytes(text in "\\PC{0,80}") {
            for token in tokens(Words::of_chunks(), &text) {
                prop_assert_eq!(&text[token.offset_from..token.offset_to], &token.text);
            }
        }
    }
}
