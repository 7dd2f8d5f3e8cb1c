//! What a generation used whose caller goes away.

use crate::estimate;
use crate::provider::{DeltaSink, Usage};

/// Counts along while words come. Dropped before the runtime told its own count, it tells its sink what is known: the prompt by the model's
/// tokenizer, and an estimate of the answer.
pub(super) struct Tally<'s> {
    sink: &'s mut dyn DeltaSink,
    prompt_tokens: usize,
    came: usize,
    told: bool,
}

impl<'s> Tally<'s> {
    /// Of a prompt that is being computed.
    pub(super) fn of(prompt_tokens: usize, sink: &'s mut dyn DeltaSink) -> Self {
        Tally { sink, prompt_tokens, came: 0, told: false }
    }

    /// The runtime has counted.
    pub(super) fn told(&mut self) {
        self.told = true;
    }
}

impl DeltaSink for Tally<'_> {
    fn delta(&mut self, text: &str) {
        self.came += text.len();
        self.sink.delta(text);
    }

    fn thought(&mut self, text: &str) {
        self.came += text.len();
        self.sink.thought(text);
    }

    fn used(&mut self, usage: Usage) {
        self.sink.used(usage);
    }

    fn estimated(&mut self) {
        self.sink.estimated();
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        if !self.told {
            let completion_tokens = estimate::tokens_of(self.came);
            self.sink.estimated();
            self.sink.used(Usage { prompt_tokens: self.prompt_tokens as u64, completion_tokens, ..Usage::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a sink is told, in order.
    #[derive(Default)]
    struct Said(Vec<String>);

    impl DeltaSink for Said {
        fn delta(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }

        fn thought(&mut self, text: &str) {
            self.0.push(format!("({text})"));
        }

        fn used(&mut self, usage: Usage) {
            self.0.push(format!("{} {}", usage.prompt_tokens, usage.completion_tokens));
        }

        fn estimated(&mut self) {
            self.0.push("about".to_owned());
        }
    }

    #[test]
    fn given_a_generation_when_it_is_dropped_then_its_sink_is_told_unless_the_runtime_counted() {
        let mut said = Said::default();
        let mut tally = Tally::of(12, &mut said);
        tally.delta("five tok");
        drop(tally);
        assert_eq!(said.0, ["five tok", "about", "12 2"]);
        let mut said = Said::default();
        let mut tally = Tally::of(12, &mut said);
        tally.thought("of five ");
        tally.delta("five tok");
        drop(tally);
        assert_eq!(said.0, ["(of five )", "five tok", "about", "12 4"], "thoughts are generated, too");
        let mut said = Said::default();
        let mut tally = Tally::of(12, &mut said);
        tally.delta("five tok");
        tally.told();
        drop(tally);
        assert_eq!(said.0, ["five tok"]);
    }
}
