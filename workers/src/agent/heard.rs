//! What comes of a model call before its reply: words, and what it used where it fails.

use riverrun_models::{ChatReply, DeltaSink, Usage as Tokens};
use riverrun_schemas::Usage;

use super::driver::Driver;
use super::tokens::TokenStream;
use crate::ledger::tokens_of;

/// Listens to a model call.
pub(super) struct Heard {
    words: Option<TokenStream>,
    used: Tokens,
}

impl Heard {
    /// Of a call whose words are shown where there is a stream for them.
    pub(super) fn new(words: Option<TokenStream>) -> Self {
        Self { words, used: Tokens::default() }
    }

    /// Waits until the last words are on their way; what the call used, where it failed.
    pub(super) async fn finish(self) -> Tokens {
        if let Some(words) = self.words {
            words.finish().await;
        }
        self.used
    }

    /// What a call used that was given up. Its words are nobody's any more.
    pub(super) fn given_up(self) -> Tokens {
        self.used
    }
}

impl DeltaSink for Heard {
    fn delta(&mut self, text: &str) {
        if let Some(words) = &self.words {
            words.push(text);
        }
    }

    fn used(&mut self, usage: Tokens) {
        self.used = usage;
    }
}

impl Driver {
    /// What a reply took, with its tries that failed.
    pub(super) fn usage_of(&mut self, reply: &ChatReply) -> Usage {
        let mut usage = self.priced(reply.usage);
        usage += std::mem::take(&mut self.failed);
        usage
    }

    /// What a call used, with its US dollars where the price is known, and its tokens where it should be and is not.
    pub(super) fn priced(&self, used: Tokens) -> Usage {
        let request = &self.state.request;
        let model = request.model.as_deref().unwrap_or_default();
        tokens_of(used, self.context.models.cost(request.provider.as_deref(), model, used))
    }
}
