//! The forms that words are indexed in, remembered: a text uses few words many times, and taking accents and endings off one takes several
//! times as long as looking it up.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tantivy::tokenizer::{TextAnalyzer, Token, TokenStream, Tokenizer};

/// Words that are remembered, at most; then all are forgotten. A language's common words are some ten thousand.
const MAX_WORDS: usize = 32_768;
/// A longer word is rare and not remembered, in bytes.
const MAX_WORD_BYTES: usize = 24;

/// Words as `T` cuts them, in the form that filters give each alone; those that they give none are left out. Clones share what is
/// remembered.
#[derive(Clone)]
pub(super) struct Forms<T> {
    words: T,
    known: Arc<Mutex<Known>>,
}

struct Known {
    /// The form of a word; `None` where it has none.
    forms: HashMap<Box<str>, Option<Box<str>>>,
    filters: TextAnalyzer,
}

impl<T> Forms<T> {
    /// `filters` stand behind a [`RawTokenizer`](tantivy::tokenizer::RawTokenizer), and each gives at most one word for one.
    pub(super) fn new(words: T, filters: TextAnalyzer) -> Self {
        Self { words, known: Arc::new(Mutex::new(Known { forms: HashMap::new(), filters })) }
    }
}

impl Known {
    /// Puts the form of the word in its place; tells whether it has one.
    fn form(&mut self, word: &mut String) -> bool {
        if let Some(form) = self.forms.get(word.as_str()) {
            let Some(form) = form else { return false };
            word.clear();
            word.push_str(form);
            return true;
        }
        let mut found = self.filters.token_stream(word);
        let form = found.advance().then(|| std::mem::take(&mut found.token_mut().text));
        drop(found);
        if word.len() <= MAX_WORD_BYTES {
            if self.forms.len() >= MAX_WORDS {
                self.forms.clear();
            }
            self.forms.insert(word.as_str().into(), form.as_deref().map(Into::into));
        }
        let Some(form) = form else { return false };
        *word = form;
        true
    }
}

impl<T: Tokenizer> Tokenizer for Forms<T> {
    type TokenStream<'a> = FormStream<'a, T::TokenStream<'a>>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Self::TokenStream<'a> {
        FormStream { words: self.words.token_stream(text), known: self.known.lock() }
    }
}

/// The forms of a text's words, one after the other.
pub(super) struct FormStream<'a, S> {
    words: S,
    known: MutexGuard<'a, Known>,
}

impl<S: TokenStream> TokenStream for FormStream<'_, S> {
    fn advance(&mut self) -> bool {
        while self.words.advance() {
            if self.known.form(&mut self.words.token_mut().text) {
                return true;
            }
        }
        false
    }

    fn token(&self) -> &Token {
        self.words.token()
    }

    fn token_mut(&mut self) -> &mut Token {
        self.words.token_mut()
    }
}

#[cfg(test)]
mod tests {
    use tantivy::tokenizer::{LowerCaser, RawTokenizer, StopWordFilter, WhitespaceTokenizer};

    use super::*;

    fn forms() -> Forms<WhitespaceTokenizer> {
        let filters = TextAnalyzer::builder(RawTokenizer::default())
            .filter(LowerCaser)
            .filter(StopWordFilter::remove(["the".to_owned()]))
            .build();
        Forms::new(WhitespaceTokenizer::default(), filters)
    }

    fn tokens(forms: &mut Forms<WhitespaceTokenizer>, text: &str) -> Vec<(String, usize, usize)> {
        let mut stream = forms.token_stream(text);
        let mut found = Vec::new();
        stream.process(&mut |token| found.push((token.text.clone(), token.position, token.offset_from)));
        found
    }

    #[test]
    fn given_words_again_and_again_when_they_are_cut_then_their_forms_are_the_same_and_those_without_stay_away() {
        let mut forms = forms();
        let expected = vec![("river".to_owned(), 1, 4), ("river".to_owned(), 2, 10)];
        for _ in 0..3 {
            assert_eq!(tokens(&mut forms, "The RIVER River"), expected);
            assert_eq!(tokens(&mut forms.clone(), "The RIVER River"), expected, "a copy has what was remembered");
        }
        assert_eq!(forms.known.lock().forms.len(), 3);
    }

    #[test]
    fn given_more_words_than_are_remembered_and_long_ones_when_they_are_cut_then_memory_stays_bounded() {
        let mut forms = forms();
        let words: Vec<String> = (0..MAX_WORDS + 10).map(|at| format!("W{at}")).collect();
        assert_eq!(tokens(&mut forms, &words.join(" ")).last().unwrap().0, words.last().unwrap().to_lowercase());
        assert_eq!(forms.known.lock().forms.len(), 10);
        let long = "L".repeat(MAX_WORD_BYTES + 1);
        assert_eq!(tokens(&mut forms, &long)[0].0, long.to_lowercase());
        assert_eq!(forms.known.lock().forms.len(), 10);
    }
}
