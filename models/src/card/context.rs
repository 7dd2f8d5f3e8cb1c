//! How long a prompt may be: what the provider says, what it refuses or cuts, and from how long a one the model still knows the beginning.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{ask, outcome};
use crate::error::ModelError;
use crate::provider::{ChatRequest, NoDeltas, Provider};

/// Tokens of the shortest prompt; each further one has twice as many.
const FIRST: usize = 512;
/// Tokens that are left for the answer and for what a template puts around.
const AROUND: usize = 160;
/// A shorter prompt shows nothing.
const LEAST: usize = 64;
/// A prompt that would be read for longer, by the speed that was measured, is not tried.
const MAX_READING: Duration = Duration::from_secs(60);
/// Tokens of the longest prompt where the speed could not be measured.
const UNTIMED: usize = 2_048;
/// Tokens a word, until the first answer tells.
const PER_WORD: f64 = 1.3;
/// More tokens a word than any tokenizer makes of these.
const MOST_PER_WORD: f64 = 4.0;
/// A server that reads less than this part of a prompt, and does not know its beginning, has cut it.
const CUT: f64 = 0.75;
/// What stands at the beginning and is asked for at the end.
const CODE: &str = "marigold";
const FILLING: [&str; 12] =
    ["river", "stone", "window", "garden", "table", "market", "letter", "winter", "silver", "morning", "paper", "road"];

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Context {
    /// Tokens of prompt and answer together, as the provider tells; where it does not, as they were met.
    pub(super) tokens: Option<usize>,
    /// Tokens of the longest prompt whose beginning the model knew.
    pub(super) usable: Option<usize>,
}

/// Asks prompts of growing length for a word at their beginning, up to `most` tokens. Every prompt begins as the one before it, so that a runtime
/// that keeps what it has read reads no more than the longest.
pub(super) async fn measure(
    provider: &dyn Provider,
    model: &str,
    most: usize,
    tokens_per_s: Option<f64>,
    cancel: &CancellationToken,
) -> Result<Context, ModelError> {
    let told = provider.context_tokens(model).await.ok();
    let mut found = Context { tokens: told, usable: None };
    let mut per_word = PER_WORD;
    for size in sizes(told.unwrap_or(most).min(most), tokens_per_s) {
        let words = (size as f64 / per_word) as usize;
        let reply = match provider.chat(question(model, words), &mut NoDeltas, cancel.clone()).await {
            Err(ModelError::ContextOverflow { limit, .. }) if !cancel.is_cancelled() => {
                found.tokens = found.tokens.or(Some(limit).filter(|limit| *limit > 0));
                break;
            }
            reply => outcome(reply, cancel)?,
        };
        let Some(reply) = reply else { break };
        let read = usize::try_from(reply.usage.prompt_tokens).unwrap_or(usize::MAX);
        if !reply.text.to_lowercase().contains(CODE) {
            if found.usable.is_some() && read > 0 && (read as f64) < CUT * size as f64 {
                found.tokens = found.tokens.or(Some(read));
            }
            break;
        }
        // Fewer tokens than words: the server counts only what it had not read before, or nothing.
        let counted = read >= words;
        if counted {
            per_word = (read as f64 / words.max(1) as f64).clamp(1.0, MOST_PER_WORD);
        }
        found.usable = found.usable.max(Some(if counted { read } else { size }));
    }
    Ok(found)
}

/// The lengths to try, in tokens.
fn sizes(most: usize, tokens_per_s: Option<f64>) -> Vec<usize> {
    let room = most.saturating_sub(AROUND);
    let affordable = tokens_per_s.map_or(UNTIMED, |speed| (speed * MAX_READING.as_secs_f64()) as usize);
    let doubled = std::iter::successors(Some(FIRST), |size| size.checked_mul(2));
    let mut sizes: Vec<usize> = doubled.take_while(|size| *size < room).collect();
    sizes.push(room);
    sizes.retain(|size| *size >= LEAST && *size <= affordable);
    sizes
}

fn question(model: &str, words: usize) -> ChatRequest {
    let filling: Vec<&str> = FILLING.iter().copied().cycle().take(words).collect();
    let text = format!(
        "The code word is {CODE}. Remember it.\n{}\nWhat is the code word? Answer with that word alone.",
        filling.join(" ")
    );
    ChatRequest { max_tokens: Some(24), ..ask(model, text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_context_and_a_speed_when_lengths_are_chosen_then_they_double_up_to_what_both_allow() {
        for (most, speed, expected) in [
            (8_192, Some(1_000.0), vec![512, 1_024, 2_048, 4_096, 8_032]),
            (8_192, Some(20.0), vec![512, 1_024]),
            (8_192, None, vec![512, 1_024, 2_048]),
            (1_024, Some(1_000.0), vec![512, 864]),
            (256, Some(1_000.0), vec![96]),
            (200, Some(1_000.0), vec![]),
            (8_192, Some(0.0), vec![]),
            (0, Some(f64::INFINITY), vec![]),
        ] {
            assert_eq!(sizes(most, speed), expected, "{most} {speed:?}");
        }
    }

    #[test]
    fn given_more_words_when_they_are_asked_then_the_question_begins_as_the_shorter_one() {
        let text = |words| question("m", words).messages[0].content.clone();
        let (short, long) = (text(24), text(240));
        let common = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
        assert!(common > short.len() - 80 && short.contains(CODE) && long.ends_with("alone."), "{short}");
    }
}
