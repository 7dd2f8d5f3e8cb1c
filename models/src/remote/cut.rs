//! A chat that ends before its service counted its tokens: the caller goes away, or the stream breaks. Services charge for it all the same, so
//! what they did not tell is estimated.

use super::gathered::Gathered;
use crate::estimate;
use crate::provider::{ChatReply, ChatRequest, DeltaSink, Usage};

/// A chat under way. Dropped before it ends, it tells its sink what it used: a caller that goes away drops it.
pub(super) struct Underway<'s> {
    provider: &'static str,
    request: &'s ChatRequest,
    pub(super) sink: &'s mut dyn DeltaSink,
    pub(super) gathered: Gathered,
    /// The service took the request and began to answer.
    pub(super) begun: bool,
    ended: bool,
}

impl<'s> Underway<'s> {
    pub(super) fn new(provider: &'static str, request: &'s ChatRequest, sink: &'s mut dyn DeltaSink) -> Self {
        Underway { provider, request, sink, gathered: Gathered::of(request), begun: false, ended: false }
    }

    /// The reply of a stream that came whole.
    pub(super) fn whole(mut self) -> ChatReply {
        self.ended = true;
        self.gathered.end(&mut *self.sink);
        std::mem::take(&mut self.gathered).into_reply(self.request.model.clone(), false)
    }

    /// What came until the caller cancelled.
    pub(super) fn cancelled(mut self) -> ChatReply {
        self.ended = true;
        self.gathered.usage = self.used(self.begun);
        self.gathered.end(&mut *self.sink);
        std::mem::take(&mut self.gathered).into_reply(self.request.model.clone(), true)
    }

    /// Tells what a stream used that broke.
    pub(super) fn broken(mut self) {
        self.ended = true;
        let used = self.used(false);
        self.sink.used(used);
    }

    /// What was used as far as it is known, and where it is not an estimate, of which the sink is told.
    fn used(&mut self, prompt_was_read: bool) -> Usage {
        let told = self.gathered.usage;
        let used = filled(told, self.gathered.bytes(), prompt_was_read, || estimate::prompt_tokens(self.request));
        if used != told {
            let Usage { prompt_tokens, completion_tokens, .. } = used;
            let (provider, model) = (self.provider, self.request.model.as_str());
            tracing::info!(
                provider,
                model,
                prompt_tokens,
                completion_tokens,
                "a chat was cut off before its tokens were counted; they are estimated"
            );
            self.sink.estimated();
        }
        used
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let used = self.used(self.begun);
            self.sink.used(used);
        }
    }
}

/// A count with estimates in the place of what is missing. A prompt that was answered was read.
fn filled(told: Usage, came: usize, prompt_was_read: bool, prompt: impl FnOnce() -> u64) -> Usage {
    let read = prompt_was_read || came > 0;
    let prompt_tokens = if told.prompt_tokens == 0 && read { prompt() } else { told.prompt_tokens };
    let completion_tokens =
        if told.completion_tokens == 0 { estimate::tokens_of(came) } else { told.completion_tokens };
    Usage { prompt_tokens, completion_tokens, ..told }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_what_a_service_told_when_a_chat_is_cut_off_then_only_what_is_missing_is_estimated() {
        let usage =
            |prompt_tokens: u64, completion_tokens: u64| Usage { prompt_tokens, completion_tokens, ..Usage::default() };
        for (told, came, read, wanted) in [
            (usage(0, 0), 0, false, usage(0, 0)),
            (usage(0, 0), 0, true, usage(9, 0)),
            (usage(0, 0), 8, false, usage(9, 2)),
            (usage(70, 0), 0, true, usage(70, 0)),
            (usage(70, 0), 8, true, usage(70, 2)),
            (usage(70, 5), 8, true, usage(70, 5)),
        ] {
            assert_eq!(filled(told, came, read, || 9), wanted, "{told:?} {came} {read}");
        }
    }
}
