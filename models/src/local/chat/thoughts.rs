//! Parts what a reasoning model thinks from what it answers: Qwen3, DeepSeek-R1 and their kin write their thoughts first, between two marks.
//!
//! The answers of models in this process go through it, and those of every service. Only a block at the very beginning counts. Marks further on are text: a model may be asked about them.

use super::output::partial_suffix;

/// The marks of a block of thoughts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
}

/// The blocks that are known: that of Qwen3, DeepSeek-R1 and most others, and Mistral's.
pub(super) static MARKS: [Marks; 2] =
    [Marks { open: "<think>", close: "</think>" }, Marks { open: "[THINK]", close: "[/THINK]" }];

/// The block that a prompt leaves open at its end, so that the answer begins within it.
pub(super) fn left_open(prompt: &str) -> Option<&'static Marks> {
    let end = prompt.trim_end();
    MARKS.iter().find(|marks| end.ends_with(marks.open))
}

/// What can be told of a text so far.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Of the thoughts; they are whole before `text` begins.
    pub(crate) thoughts: String,
    /// Of the answer.
    pub(crate) text: String,
}

impl Piece {
    pub(super) fn is_empty(&self) -> bool {
        self.thoughts.is_empty() && self.text.is_empty()
    }

    pub(super) fn append(&mut self, more: &Piece) {
        self.thoughts.push_str(&more.thoughts);
        self.text.push_str(&more.text);
    }

    fn of_text(text: String) -> Self {
        Piece { text, ..Piece::default() }
    }
}

/// Where in a text the reader is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// At its beginning, where a block may open.
    Beginning,
    /// Within a block, before the first letter of its thoughts.
    Opened(&'static Marks),
    /// Within a block.
    Thinking(&'static Marks),
    /// Behind a block, before the first letter of the answer.
    Closed,
    Answering,
}

/// Parts a text that comes in pieces. How it is cut into pieces makes no difference.
#[derive(Debug)]
pub(crate) struct ThoughtSplitter {
    place: Place,
    /// What may be white space at an end, or the beginning of a mark.
    held: String,
}

impl Default for ThoughtSplitter {
    /// Of a text from its beginning.
    fn default() -> Self {
        ThoughtSplitter::new(None)
    }
}

impl ThoughtSplitter {
    /// Of a text that begins within a block where the prompt opened one.
    pub(super) fn new(opened: Option<&'static Marks>) -> Self {
        ThoughtSplitter { place: opened.map_or(Place::Beginning, Place::Opened), held: String::new() }
    }

    /// Takes text; answers what is clear.
    pub(crate) fn push(&mut self, text: &str) -> Piece {
        self.held.push_str(text);
        let mut thoughts = String::new();
        loop {
            match self.place {
                Place::Beginning => {
                    let begun = self.held.trim_start();
                    if let Some(marks) = MARKS.iter().find(|marks| begun.starts_with(marks.open)) {
                        self.held = begun[marks.open.len()..].to_owned();
                        self.place = Place::Opened(marks);
                    } else if MARKS.iter().any(|marks| marks.open.starts_with(begun)) {
                        return Piece::default();
                    } else {
                        self.place = Place::Answering;
                    }
                }
                Place::Opened(marks) => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        return Piece::default();
                    }
                    self.place = Place::Thinking(marks);
                }
                Place::Thinking(marks) => match self.held.find(marks.close) {
                    Some(end) => {
                        thoughts.push_str(self.held[..end].trim_end());
                        self.held.drain(..end + marks.close.len());
                        self.place = Place::Closed;
                    }
                    None => {
                        let clear = self.held.len() - partial_suffix(&self.held, marks.close);
                        let clear = self.held[..clear].trim_end().len();
                        thoughts.extend(self.held.drain(..clear));
                        return Piece { thoughts, text: String::new() };
                    }
                },
                Place::Closed => {
                    let answer = self.held.trim_start().to_owned();
                    self.held = answer;
                    if self.held.is_empty() {
                        return Piece { thoughts, text: String::new() };
                    }
                    self.place = Place::Answering;
                }
                Place::Answering => return Piece { thoughts, text: std::mem::take(&mut self.held) },
            }
        }
    }

    /// What is left at the end. A text that ends within a block has no answer; the beginning of a mark is then what it is, letters.
    pub(crate) fn finish(&mut self) -> Piece {
        let rest = std::mem::take(&mut self.held);
        match self.place {
            Place::Beginning | Place::Answering => Piece::of_text(rest),
            Place::Opened(_) | Place::Closed => Piece::default(),
            Place::Thinking(_) => Piece { thoughts: rest.trim_end().to_owned(), text: String::new() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&str], opened: Option<&'static Marks>) -> (String, String) {
        let mut splitter = ThoughtSplitter::new(opened);
        let mut whole = Piece::default();
        for piece in pieces {
            let more = splitter.push(piece);
            assert!(more.thoughts.is_empty() || whole.text.is_empty(), "thoughts come first: {pieces:?}");
            whole.append(&more);
        }
        whole.append(&splitter.finish());
        (whole.thoughts, whole.text)
    }

    /// Texts, whether the prompt opened the block, and what they part into.
    const TEXTS: [(&str, bool, &str, &str); 17] = [
        ("<think>\nhm\n</think>\n\nParis", false, "hm", "Paris"),
        (" \n<think> hm, ja </think>Paris\n", false, "hm, ja", "Paris\n"),
        ("<think>\n\n</think>\n\nParis", false, "", "Paris"),
        ("<think></think>", false, "", ""),
        ("hm\n</think>\n\nParis", true, "hm", "Paris"),
        ("\n</think>\n\nParis", true, "", "Paris"),
        ("ä < b </thin </think>", true, "ä < b </thin", ""),
        ("<think>\nhm, cut o\n", false, "hm, cut o", ""),
        ("<think>hm</thi", false, "hm</thi", ""),
        ("[THINK]hm </think>[/THINK]Paris", false, "hm </think>", "Paris"),
        ("Paris <think>hm</think> Rome", false, "", "Paris <think>hm</think> Rome"),
        ("<think>a</think>b<think>c</think>", false, "a", "b<think>c</think>"),
        ("<thinking>Paris", false, "", "<thinking>Paris"),
        ("<th", false, "", "<th"),
        ("[1] Paris", false, "", "[1] Paris"),
        ("  größer 日本", false, "", "  größer 日本"),
        ("", true, "", ""),
    ];

    #[test]
    fn given_texts_with_and_without_thoughts_when_they_come_in_any_two_or_three_pieces_then_they_part_the_same() {
        for (text, inside, thoughts, answer) in TEXTS {
            let opened = inside.then_some(&MARKS[0]);
            let wanted = (thoughts.to_owned(), answer.to_owned());
            assert_eq!(split(&[text], opened), wanted, "{text:?}");
            let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            for (index, first) in cuts.iter().enumerate() {
                for second in &cuts[index..] {
                    let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                    assert_eq!(split(&pieces, opened), wanted, "{pieces:?}");
                }
            }
        }
    }

    #[test]
    fn given_texts_with_and_without_thoughts_when_they_come_letter_by_letter_then_they_part_the_same() {
        for (text, inside, thoughts, answer) in TEXTS {
            let letters: Vec<&str> = text.split("").filter(|letter| !letter.is_empty()).collect();
            let parted = split(&letters, inside.then_some(&MARKS[0]));
            assert_eq!(parted, (thoughts.to_owned(), answer.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn given_thoughts_when_they_stream_then_they_show_before_the_block_ends() {
        let mut splitter = ThoughtSplitter::new(None);
        splitter.push("<think>\n");
        assert_eq!(splitter.push("The river ").thoughts, "The river");
        assert_eq!(splitter.push("is long. <").thoughts, " is long.");
    }

    #[test]
    fn given_prompts_when_they_end_then_only_an_open_block_at_their_end_is_open() {
        assert_eq!(left_open("<|Assistant|><think>\n"), Some(&MARKS[0]));
        assert_eq!(left_open("[/INST][THINK]"), Some(&MARKS[1]));
        for closed in ["<|im_start|>assistant\n<think>\n\n</think>\n\n", "<think> hm", "", "assistant\n"] {
            assert_eq!(left_open(closed), None, "{closed:?}");
        }
    }
}
