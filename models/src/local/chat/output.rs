//! From token bytes to the text that the caller sees: whole characters, thoughts apart, cut before stop strings, tool calls held back.

use super::thoughts::{MARKS, Marks, Piece, ThoughtSplitter};
use super::tool_calls;

/// Puts characters together that tokens split. Bytes that can never become valid are replaced by U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Utf8Assembler {
    rest: Vec<u8>,
}

impl Utf8Assembler {
    /// Takes bytes; answers the text that is complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.rest.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.rest[..valid]));
                    match error.error_len() {
                        // The rest may become a character.
                        None => {
                            self.rest.drain(..valid);
                            return text;
                        }
                        Some(bad) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            self.rest.drain(..valid + bad);
                        }
                    }
                }
            }
        }
    }

    /// What is left at the end: half a character becomes U+FFFD.
    pub(super) fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// Looks for stop strings across pieces. Text that may be the beginning of one is held back until that is clear.
#[derive(Debug)]
pub(super) struct StopScanner {
    stops: Vec<String>,
    held: String,
}

impl StopScanner {
    pub(super) fn new(stops: &[String]) -> Self {
        StopScanner { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), held: String::new() }
    }

    /// Takes text; answers what is safe to show, and whether a stop string came.
    pub(super) fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|stop| partial_suffix(&self.held, stop)).max().unwrap_or(0);
        let shown = self.held.len() - keep;
        let rest = self.held.split_off(shown);
        (std::mem::replace(&mut self.held, rest), false)
    }

    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The length of the longest suffix of `text` that is a proper prefix of `pattern`.
pub(super) fn partial_suffix(text: &str, pattern: &str) -> usize {
    pattern
        .char_indices()
        .map(|(length, _)| length)
        .skip(1)
        .filter(|length| text.ends_with(&pattern[..*length]))
        .last()
        .unwrap_or(0)
}

/// How much of an answer, as it stands, is surely none of a tool call: everything before a mark, and nothing of an answer whose beginning
/// may be one.
fn visible(text: &str, shown: usize) -> usize {
    if shown == 0 && tool_calls::may_begin(text) {
        return 0;
    }
    let rest = &text[shown..];
    match tool_calls::first_mark(rest) {
        Some(at) => shown + at,
        None => text.len() - tool_calls::marks().map(|mark| partial_suffix(rest, mark)).max().unwrap_or(0),
    }
}

/// The answer of one request while it grows.
#[derive(Debug)]
pub(super) struct Output {
    utf8: Utf8Assembler,
    thoughts: ThoughtSplitter,
    stops: StopScanner,
    hold_tool_calls: bool,
    text: String,
    shown: usize,
}

/// How an answer ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// The whole answer, without thoughts.
    pub(super) text: String,
    /// Bytes of `text` that were shown.
    pub(super) shown: usize,
    /// What was not shown yet of the thoughts.
    pub(super) thoughts: String,
}

impl Output {
    /// With `hold_tool_calls`, what may be a tool call is not shown before the end. `opened` is the block of thoughts that the prompt left
    /// open. Stop strings are those of the answer: a thought may have them.
    pub(super) fn new(stops: &[String], hold_tool_calls: bool, opened: Option<&'static Marks>) -> Self {
        Output {
            utf8: Utf8Assembler::default(),
            thoughts: ThoughtSplitter::new(opened),
            stops: StopScanner::new(stops),
            hold_tool_calls,
            text: String::new(),
            shown: 0,
        }
    }

    /// Whether letters are a mark that is read here. Some vocabularies have them as control tokens, which else are no text.
    pub(super) fn reads(&self, letters: &[u8]) -> bool {
        let is_one = |mark: &str| mark.as_bytes() == letters;
        MARKS.iter().any(|marks| is_one(marks.open) || is_one(marks.close))
            || (self.hold_tool_calls && tool_calls::CONTROL_MARKS.into_iter().any(is_one))
    }

    /// Takes the bytes of a token; answers what to show and whether a stop string came.
    pub(super) fn push(&mut self, bytes: &[u8]) -> (Piece, bool) {
        let letters = self.utf8.push(bytes);
        let Piece { thoughts, text } = self.thoughts.push(&letters);
        let (text, stopped) = self.stops.push(&text);
        self.text.push_str(&text);
        (Piece { thoughts, text: self.show() }, stopped)
    }

    /// Ends the answer; `stopped` says that a stop string ended it, so that what was held back behind it is dropped.
    pub(super) fn finish(mut self, stopped: bool) -> Ending {
        let mut rest = Piece::default();
        if !stopped {
            let letters = self.utf8.finish();
            rest.append(&self.thoughts.push(&letters));
            rest.append(&self.thoughts.finish());
            let (text, _) = self.stops.push(&rest.text);
            self.text.push_str(&text);
            self.text.push_str(&self.stops.finish());
        }
        Ending { text: self.text, shown: self.shown, thoughts: rest.thoughts }
    }

    fn show(&mut self) -> String {
        let end = if self.hold_tool_calls { visible(&self.text, self.shown) } else { self.text.len() };
        if end <= self.shown {
            return String::new();
        }
        let piece = self.text[self.shown..end].to_owned();
        self.shown = end;
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_split_characters_when_bytes_come_singly_then_only_whole_characters_show() {
        let text = "größer 日本 🦀 e\u{301}";
        let mut assembler = Utf8Assembler::default();
        let mut shown = String::new();
        for byte in text.as_bytes() {
            shown.push_str(&assembler.push(&[*byte]));
            assert!(text.starts_with(&shown));
        }
        assert_eq!(shown + &assembler.finish(), text);
    }

    #[test]
    fn given_bytes_that_are_no_text_when_they_come_then_they_are_replaced_and_the_rest_shows() {
        let mut assembler = Utf8Assembler::default();
        assert_eq!(assembler.push(b"a\xffb\xe6\x97"), "a\u{fffd}b");
        assert_eq!(assembler.push(b"c"), "\u{fffd}c");
        assert_eq!(assembler.push(b"\xf0\x9f"), "");
        assert_eq!(assembler.finish(), "\u{fffd}");
    }

    #[test]
    fn given_stop_strings_when_text_comes_in_any_pieces_then_it_ends_before_the_first() {
        let text = "eins zwei ENDE drei";
        let stops = ["ENDE".to_owned(), "drei".to_owned(), String::new()];
        for size in 1..=text.len() {
            let mut scanner = StopScanner::new(&stops);
            let mut shown = String::new();
            for piece in text.as_bytes().chunks(size) {
                let (more, stopped) = scanner.push(std::str::from_utf8(piece).unwrap());
                shown.push_str(&more);
                if stopped {
                    break;
                }
            }
            assert_eq!(shown, "eins zwei ", "pieces of {size}");
        }
        let mut scanner = StopScanner::new(&stops);
        assert_eq!(scanner.push("EN"), (String::new(), false));
        assert_eq!(scanner.push("TU"), ("ENTU".into(), false));
        assert_eq!(scanner.push("dr"), (String::new(), false));
        assert_eq!(scanner.finish(), "dr");
    }

    /// What shows of a text that comes in pieces of so many bytes, and its end.
    fn streamed(text: &str, size: usize, mut output: Output) -> (Piece, Ending) {
        let mut shown = Piece::default();
        for piece in text.as_bytes().chunks(size) {
            let (more, stopped) = output.push(piece);
            shown.append(&more);
            if stopped {
                return (shown, output.finish(true));
            }
        }
        (shown, output.finish(false))
    }

    #[test]
    fn given_a_tool_call_when_it_streams_then_only_the_text_before_it_shows() {
        for call in [
            "<tool_call>\n{\"name\": \"x\"}\n</tool_call>",
            "<function=x>\n</function>",
            "[TOOL_CALLS]x[ARGS]{}",
            "<|python_tag|>{\"name\": \"x\"}",
        ] {
            let text = format!("I look.\n{call}");
            for size in 1..text.len() {
                let (shown, ending) = streamed(&text, size, Output::new(&[], true, None));
                assert_eq!(shown.text, "I look.\n", "{call}");
                assert_eq!((ending.text, ending.shown), (text.clone(), shown.text.len()));
            }
        }
    }

    #[test]
    fn given_an_answer_that_may_be_json_when_it_streams_with_tools_then_nothing_shows_before_the_end() {
        for (text, expected) in [
            (" {\"name\"", ""),
            ("```json", ""),
            ("[ {\"name\"", ""),
            ("<tools>", ""),
            ("<tool_call", ""),
            ("plain < text <tool", "plain < text "),
        ] {
            let (shown, ending) = streamed(text, 1, Output::new(&[], true, None));
            assert_eq!((shown.text.as_str(), ending.text.as_str()), (expected, text));
        }
    }

    #[test]
    fn given_an_answer_that_only_begins_like_a_call_when_it_streams_with_tools_then_it_shows_as_soon_as_it_is_none() {
        for text in ["<b>bold</b>", "<toolbox>", "[1] says so", "[a](b)", "`code`", "<", " \n<p>"] {
            for size in 1..=text.len() {
                let (shown, ending) = streamed(&format!("{text}."), size, Output::new(&[], true, None));
                assert_eq!(shown.text, format!("{text}."), "{size}");
                assert_eq!(ending.shown, ending.text.len());
            }
        }
    }

    #[test]
    fn given_a_stop_string_when_the_answer_ends_then_what_follows_is_dropped() {
        let mut output = Output::new(&["STOP".to_owned()], false, None);
        let (shown, stopped) = output.push(b"ab STOP cd");
        assert_eq!((shown.text.as_str(), stopped), ("ab ", true));
        assert_eq!(output.finish(true), Ending { text: "ab ".to_owned(), shown: 3, thoughts: String::new() });
    }

    #[test]
    fn given_thoughts_before_an_answer_when_they_stream_then_they_are_apart_and_stop_strings_and_calls_are_those_of_the_answer()
     {
        let stops = ["STOP".to_owned()];
        let thoughts = "STOP? A <tool_call>, größer.";
        for (answer, text, shown_text) in [
            ("Paris. STOP it", "Paris. ", "Paris. "),
            ("I look.<tool_call>{}", "I look.<tool_call>{}", "I look."),
            ("<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>", ""),
            ("<b>Paris</b>", "<b>Paris</b>", "<b>Paris</b>"),
        ] {
            for (before, opened) in [("<think>\n", None), ("\n", Some(&MARKS[0]))] {
                let whole = format!("{before}{thoughts}\n</think>\n\n{answer}");
                for size in 1..=whole.len() {
                    let (shown, ending) = streamed(&whole, size, Output::new(&stops, true, opened));
                    assert_eq!(shown.thoughts.clone() + &ending.thoughts, thoughts, "{whole:?} by {size}");
                    assert_eq!((shown.text.as_str(), ending.text.as_str()), (shown_text, text), "{whole:?} by {size}");
                    assert_eq!(ending.shown, shown.text.len());
                }
            }
        }
    }

    #[test]
    fn given_an_answer_that_ends_within_its_thoughts_when_it_is_cut_off_then_there_is_no_answer() {
        let (shown, ending) = streamed("<think>\nhm, STOP </thi", 1, Output::new(&["STOP".to_owned()], true, None));
        assert_eq!(shown.thoughts + &ending.thoughts, "hm, STOP </thi");
        assert_eq!((shown.text.as_str(), ending.text.as_str()), ("", ""));
    }

    #[test]
    fn given_marks_that_are_control_tokens_when_they_are_asked_for_then_those_of_calls_are_read_only_with_tools() {
        let (with, without) = (Output::new(&[], true, None), Output::new(&[], false, None));
        assert!(with.reads(b"[THINK]") && without.reads(b"[/THINK]") && with.reads(b"[TOOL_CALLS]"));
        assert!(!without.reads(b"[TOOL_CALLS]") && !with.reads(b"<|im_end|>") && !with.reads(b""));
    }
}
