//! What comes of a model call before its reply: words, and what it used where it fails.

use riverrun_models::{DeltaSink, Usage};

use super::tokens::TokenStream;

/// Listens to a model call.
pub(super) struct Heard {
    words: Option<TokenStream>,
    used: Usage,
}

impl Heard {
    /// Of a call whose words are shown where there is a stream for them.
    pub(super) fn new(words: Option<TokenStream>) -> Self {
        Self { words, used: Usage::default() }
    }

    /// Waits until the last words are on their way; what the call used, where it failed.
    pub(super) async fn finish(self) -> Usage {
        if let Some(words) = self.words {
            words.finish().await;
        }
        self.used
    }
}

impl DeltaSink for Heard {
    fn delta(&mut self, text: &str) {
        if let Some(words) = &self.words {
            words.push(text);
        }
    }

    fn used(&mut self, usage: Usage) {
        self.used = usage;
    }
}
