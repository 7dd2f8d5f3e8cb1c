//! The rule layer: signs in the words of a task, and which agents they speak for.
//!
//! An agent's manifest lists its signs ([`Cue`]); each one that is in the task counts once. The agents with the most signs
//! are the rules' choice; a task without a sign leaves the rules without an opinion.

use crate::manifest::{Cue, Manifest};

/// Characters of a task that are looked at.
const MAX_TASK: usize = 8_000;

/// The words of a task, lower case and without a plural s.
#[derive(Debug)]
pub(super) struct Task {
    text: String,
    words: Vec<String>,
}

impl Task {
    pub(super) fn new(task: &str) -> Self {
        let text: String = task.chars().take(MAX_TASK).collect::<String>().to_lowercase();
        let words = words(&text);
        Self { text, words }
    }

    /// The signs of an agent that this task shows, as they are recorded.
    pub(super) fn cues(&self, manifest: &Manifest) -> Vec<String> {
        manifest.cues.iter().filter(|cue| self.shows(cue)).map(name).collect()
    }

    fn shows(&self, cue: &Cue) -> bool {
        match cue {
            Cue::Words(sign) => {
                let sign = words(sign);
                self.words.windows(sign.len()).any(|window| window == sign)
            }
            Cue::Arithmetic => arithmetic(&self.text),
            Cue::Sequence => sequence(&self.text, &self.words),
        }
    }
}

fn name(cue: &Cue) -> String {
    match cue {
        Cue::Words(sign) => (*sign).to_owned(),
        Cue::Arithmetic => "(arithmetic)".to_owned(),
        Cue::Sequence => "(sequence)".to_owned(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(word).to_owned())
        .collect()
}

/// A number, an operator and a number, or a number with a percent sign.
fn arithmetic(text: &str) -> bool {
    let dense: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let between = dense.windows(3).any(|w| {
        w[0].is_ascii_digit()
            && matches!(w[1], '+' | '*' | '/' | '^' | '×' | '÷' | '−')
            && (w[2].is_ascii_digit() || w[2] == '(')
    });
    // A hyphen stands in dates and ranges too: only one with spaces around it is a minus.
    let minus = text.split(" - ").zip(text.split(" - ").skip(1)).any(|(left, right)| {
        left.ends_with(|c: char| c.is_ascii_digit()) && right.starts_with(|c: char| c.is_ascii_digit())
    });
    let percent = dense.windows(2).any(|w| w[0].is_ascii_digit() && w[1] == '%');
    between || minus || percent
}

/// Words that put one thing behind another, or a numbered list of at least two.
fn sequence(text: &str, words: &[String]) -> bool {
    let joined = words.iter().any(|word| matches!(word.as_str(), "then" | "afterward" | "finally"))
        || words.windows(2).any(|pair| pair == ["after", "that"] || pair == ["after", "thi"]);
    let numbered = |n: char| {
        text.lines().any(|line| {
            let mut chars = line.trim_start().chars();
            chars.next() == Some(n) && matches!(chars.next(), Some('.' | ')'))
        })
    };
    joined || (numbered('1') && numbered('2'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(task: &str, cue: Cue) -> bool {
        Task::new(task).shows(&cue)
    }

    #[test]
    fn words_are_whole_and_in_succession_in_any_case() {
        let cue = Cue::Words("step by step");
        assert!(shows("Explain it STEP by step.", cue) && shows("step-by-step", cue) && shows("Steps by steps", cue));
        assert!(!shows("step after step", cue) && !shows("footstep by step", cue) && !shows("", cue));
        assert!(shows("Drafts!", Cue::Words("draft")) && !shows("draftsman", Cue::Words("draft")));
    }

    #[test]
    fn arithmetic_is_numbers_with_an_operator_and_no_date_or_range() {
        for task in ["what is 17% of 230?", "12*7", "12 / 7", "3 - 1", "2 ^ 10", "4 × 5", "3+(4)"] {
            assert!(shows(task, Cue::Arithmetic), "{task}");
        }
        for task in ["on 2024-05-01", "pages 3-7", "in 2 hours", "a/b", "C++ 17", "", "the % sign"] {
            assert!(!shows(task, Cue::Arithmetic), "{task}");
        }
    }

    #[test]
    fn a_sequence_is_said_or_numbered() {
        for task in ["do this, then that", "read it. After that, sum it up", "1. look\n2. tell", "Finally, answer"] {
            assert!(shows(task, Cue::Sequence), "{task}");
        }
        for task in ["is it heavier than air?", "1. only one", "version 1.2.3", "look after it"] {
            assert!(!shows(task, Cue::Sequence), "{task}");
        }
    }
}
