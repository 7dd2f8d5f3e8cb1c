//! Whether a text supports a sentence: a deterministic measure, so that the same answer is judged the same everywhere.
//!
//! The measure is the share of the sentence's distinct content words that occur in the text (stop words left out, common
//! English endings cut), and every number of the sentence must occur in it. A sentence is supported from
//! [`THRESHOLD`] on. Three words out of five: a paraphrase by a small model keeps more of its words than that, while two
//! passages that merely share a topic have about a third in common. Numbers are all or nothing because a changed number is
//! the commonest and worst invention. What the measure can't see is what words do not show: a negation, or who did what to
//! whom. `supported` therefore means "the words are there", and `false` is a reason to look.

use std::collections::BTreeSet;

use crate::text;

/// Share of content words from which on a sentence counts as supported.
pub const THRESHOLD: f64 = 0.6;

/// Fewer content words than this are too few to attribute a sentence by: the question's words are added.
const FEW_WORDS: usize = 3;

/// The content words of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(BTreeSet<String>);

impl Words {
    /// The content words of `text`.
    pub fn of(text: &str) -> Self {
        Self(text::content_words(text))
    }

    /// Whether there is anything to judge by.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the words of another text.
    pub fn extend(&mut self, other: &Words) {
        self.0.extend(other.0.iter().cloned());
    }

    fn shared(&self, other: &Words) -> usize {
        self.0.intersection(&other.0).count()
    }
}

/// The share of the sentence's words that the text has, 0 to 1; 0 when a number is missing or there are no words.
pub fn overlap(sentence: &Words, text: &Words) -> f64 {
    let number_missing = sentence.0.iter().any(|word| text::is_number(word) && !text.0.contains(word));
    if number_missing { 0.0 } else { share(sentence, text) }
}

/// The same without the rule about numbers: what one of several texts contributes.
pub(super) fn share(sentence: &Words, text: &Words) -> f64 {
    if sentence.is_empty() { 0.0 } else { sentence.shared(text) as f64 / sentence.0.len() as f64 }
}

/// Whether the text supports the sentence.
pub fn supports(sentence: &Words, text: &Words) -> bool {
    overlap(sentence, text) >= THRESHOLD
}

/// How well a sentence that names no source goes with a text; 0 where it does not reach the threshold. A very short sentence
/// ("Paris.") must have all its words in the text and is judged together with the question, of which it is the rest.
pub fn attribution(sentence: &Words, question: &Words, text: &Words) -> f64 {
    let own = overlap(sentence, text);
    let score = if sentence.0.len() < FEW_WORDS && own == 1.0 {
        let mut both = sentence.clone();
        both.extend(question);
        share(&both, text)
    } else if sentence.0.len() < FEW_WORDS {
        0.0
    } else {
        own
    };
    if score >= THRESHOLD { score } else { 0.0 }
}

/// How alike two texts are: the Dice coefficient of their words, 0 to 1. Used to choose the best sentence of a chunk.
pub(super) fn likeness(a: &Words, b: &Words) -> f64 {
    let total = a.0.len() + b.0.len();
    if total == 0 { 0.0 } else { 2.0 * a.shared(b) as f64 / total as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: &str = "The Rhine rises in the Swiss Alps and flows 1,233 kilometres to the North Sea. Its largest tributary is the Aare.";

    fn supported(sentence: &str) -> bool {
        supports(&Words::of(sentence), &Words::of(CHUNK))
    }

    #[test]
    fn given_sentences_when_measured_then_paraphrases_are_supported_and_inventions_are_not() {
        for sentence in [
            "The Rhine rises in the Swiss Alps.",
            "The Rhine's source lies in the Swiss Alps",
            "It is 1233 kilometres, flowing into the North Sea.",
            "Its largest tributaries include the Aare.",
        ] {
            assert!(supported(sentence), "{sentence}");
        }
        for sentence in [
            "The Rhine flows 1,320 kilometres to the North Sea.",
            "The Elbe rises in the Giant Mountains.",
            "Rivers carry water through many countries.",
            "Yes.",
            "",
        ] {
            assert!(!supported(sentence), "{sentence}");
        }
    }

    #[test]
    fn given_scripts_without_spaces_when_measured_then_paraphrases_are_supported_and_shared_characters_alone_are_not() {
        for (chunk, said, invented) in [
            ("莱茵河发源于瑞士阿尔卑斯山，流入北海。", "莱茵河发源于瑞士的阿尔卑斯山。", "易北河发源于巨人山脉。"),
            (
                "ライン川はスイスのアルプスに源を発し、北海に注ぐ。",
                "ライン川は北海に注ぐ。",
                "エルベ川は巨人の山に源がある。",
            ),
            ("แม่น้ำไรน์ไหลลงสู่ทะเลเหนือ", "แม่น้ำไรน์ไหลลงทะเลเหนือ", "กรุงเทพเป็นเมืองหลวงของไทย"),
        ] {
            let chunk = Words::of(chunk);
            assert!(supports(&Words::of(said), &chunk), "{said}");
            assert!(!supports(&Words::of(invented), &chunk), "{invented}");
        }
    }

    #[test]
    fn given_a_very_short_answer_when_attributed_then_the_question_counts_too() {
        let chunk = Words::of(CHUNK);
        let score = |answer: &str, question: &str| attribution(&Words::of(answer), &Words::of(question), &chunk);
        assert!(score("The Aare.", "What is the largest tributary of the Rhine?") > 0.9);
        assert_eq!(score("The Aare.", "Who painted the Mona Lisa in Paris?"), 0.0);
        assert_eq!(score("The Elbe.", "What is the largest tributary of the Rhine?"), 0.0);
        assert_eq!(score("Yes.", "Does the sun shine?"), 0.0);
    }
}
