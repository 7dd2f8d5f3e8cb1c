//! Who does a task when no agent is named: the agent whose manifest shares most words with it.
//!
//! Deterministic: the same task and the same manifests give the same choice.

use std::collections::BTreeSet;

use crate::manifest::Manifest;

/// The supervisor's choice and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Name of the chosen agent type.
    pub agent: &'static str,
    /// A sentence for the run's first step.
    pub reason: String,
}

/// Words of at least three letters, lower case, without a plural s.
fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= 3)
        .map(|word| word.to_lowercase())
        .map(|word| word.strip_suffix('s').map(str::to_owned).unwrap_or(word))
        .collect()
}

/// How many words of the task an agent's capabilities and tags answer to.
fn score(task: &BTreeSet<String>, manifest: &Manifest) -> usize {
    let abilities: BTreeSet<String> =
        manifest.capabilities.iter().chain(manifest.tags).flat_map(|ability| words(ability)).collect();
    task.intersection(&abilities).count()
}

/// Chooses among `manifests`; `None` only when there are none. The first one wins a tie.
pub fn choose(task: &str, manifests: &[&'static Manifest]) -> Option<Choice> {
    let task = words(task);
    let scored: Vec<(usize, &Manifest)> = manifests.iter().map(|m| (score(&task, m), *m)).collect();
    let best = scored.iter().map(|(score, _)| *score).max()?;
    let (_, chosen) = scored.iter().find(|(score, _)| *score == best)?;
    let all = scored.iter().map(|(score, m)| format!("{} {score}", m.name)).collect::<Vec<_>>().join(", ");
    Some(Choice {
        agent: chosen.name,
        reason: format!("{} matches the task best (words in common: {all})", chosen.name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    static WRITER: Manifest =
        Manifest { name: "writer", description: "", capabilities: &["drafting letters"], tags: &["text"] };
    static CLERK: Manifest =
        Manifest { name: "clerk", description: "", capabilities: &["calculation", "search"], tags: &["tools"] };

    #[test]
    fn the_agent_with_most_words_in_common_is_chosen_and_the_reason_shows_the_scores() {
        let choice = choose("Search the letters, then search again", &[&WRITER, &CLERK]).unwrap();
        assert_eq!(choice.agent, "writer", "one word each: the first wins");
        let choice = choose("a calculation after a search", &[&WRITER, &CLERK]).unwrap();
        assert_eq!(
            (choice.agent, choice.reason.as_str()),
            ("clerk", "clerk matches the task best (words in common: writer 0, clerk 2)")
        );
    }

    #[test]
    fn nobody_to_choose_from_is_no_choice() {
        assert_eq!(choose("anything", &[]), None);
    }
}
