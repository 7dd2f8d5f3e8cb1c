//! `riverrun models probe`.

use riverrun_api::wire::{ModelCardView, ProbeBody};
use riverrun_schemas::counted;

use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

/// Measures a model with a few questions and puts its card on the log.
pub async fn run(
    connection: &Connection,
    model: String,
    provider: Option<String>,
    output: Output,
) -> Result<(), CliError> {
    tell("asking the model a few questions, some of them long");
    let card: ModelCardView = connection.client.post("/models/probe", &ProbeBody { model, provider }).await?;
    output.show(&card, people)
}

/// A card in lines.
pub(super) fn people(card: &ModelCardView) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "unknown".to_owned(), |rate| format!("{rate:.1} tokens/s"));
    let tokens = |tokens: Option<i64>| tokens.map_or_else(|| "unknown".to_owned(), |tokens| counted(tokens, "token"));
    let lines = [
        format!("{}/{}, measured {} on {}", card.provider, card.model, card.measured_at, card.machine),
        format!(
            "context: {}; knows the beginning of {}",
            tokens(card.context_tokens),
            tokens(card.usable_context_tokens)
        ),
        format!("valid JSON: {} of {}", card.valid_json, card.questions),
        format!("valid tool calls: {} of {}", card.valid_tool_calls, card.questions),
        format!("prompt: {}", rate(card.prompt_tokens_per_s)),
        format!("answer: {}", rate(card.tokens_per_s)),
    ];
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use riverrun_api::wire::Timestamp;

    use super::*;

    #[test]
    fn given_a_card_when_it_is_shown_then_what_is_not_known_is_said() {
        let card = ModelCardView {
            provider: "local".into(),
            model: "poet".into(),
            machine: "a processor, 2 threads".into(),
            context_tokens: Some(8_192),
            usable_context_tokens: None,
            questions: 4,
            valid_json: 3,
            valid_tool_calls: 0,
            prompt_tokens_per_s: Some(112.46),
            tokens_per_s: None,
            measured_at: Timestamp(0),
        };
        let text = people(&card);
        for line in [
            "local/poet, measured 1970-01-01",
            "context: 8192 tokens; knows the beginning of unknown",
            "valid JSON: 3 of 4",
            "prompt: 112.5 tokens/s",
            "answer: unknown",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
