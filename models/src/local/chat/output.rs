//! From token bytes to the text that the caller sees: whole characters, cut before stop strings, tool calls held back.

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
fn partial_suffix(text: &str, pattern: &str) -> usize {
    pattern
        .char_indices()
        .map(|(length, _)| length)
        .skip(1)
        .filter(|length| text.ends_with(&pattern[..*length]))
        .last()
        .unwrap_or(0)
}

/// The mark that opens a tool call.
pub(super) const TOOL_CALL_OPEN: &str = "<tool_call>";

/// How much of an answer, as it stands, is surely none of a tool call: everything before the mark, and nothing of an answer that begins
/// like JSON, a code block or a mark.
fn visible(text: &str, shown: usize) -> usize {
    match text.trim_start().chars().next() {
        None | Some('{' | '[' | '<' | '`') => 0,
        Some(_) => match text[shown..].find(TOOL_CALL_OPEN) {
            Some(at) => shown + at,
            None => text.len() - partial_suffix(&text[shown..], TOOL_CALL_OPEN),
        },
    }
}

/// The answer of one request while it grows.
#[derive(Debug)]
pub(super) struct Output {
    utf8: Utf8Assembler,
    stops: StopScanner,
    hold_tool_calls: bool,
    text: String,
    shown: usize,
}

impl Output {
    /// With `hold_tool_calls`, what may be a tool call is not shown before the end.
    pub(super) fn new(stops: &[String], hold_tool_calls: bool) -> Self {
        Output {
            utf8: Utf8Assembler::default(),
            stops: StopScanner::new(stops),
            hold_tool_calls,
            text: String::new(),
            shown: 0,
        }
    }

    /// Takes the bytes of a token; answers what to show and whether a stop string came.
    pub(super) fn push(&mut self, bytes: &[u8]) -> (String, bool) {
        let text = self.utf8.push(bytes);
        let (text, stopped) = self.stops.push(&text);
        self.text.push_str(&text);
        (self.show(), stopped)
    }

    /// Ends the answer; `stopped` says that a stop string ended it, so that what was held back behind it is dropped.
    /// Answers the whole text and how much of it was shown.
    pub(super) fn finish(mut self, stopped: bool) -> (String, usize) {
        if !stopped {
            let rest = self.utf8.finish();
            let (rest, _) = self.stops.push(&rest);
            self.text.push_str(&rest);
            self.text.push_str(&self.stops.finish());
        }
        (self.text, self.shown)
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

    #[test]
    fn given_a_tool_call_when_it_streams_then_only_the_text_before_it_shows() {
        let text = "I look.\n<tool_call>\n{\"name\": \"x\"}\n</tool_call>";
        for size in 1..text.len() {
            let mut output = Output::new(&[], true);
            let shown: String = text.as_bytes().chunks(size).map(|piece| output.push(piece).0).collect();
            assert_eq!(shown, "I look.\n");
            assert_eq!(output.finish(false), (text.to_owned(), shown.len()));
        }
    }

    #[test]
    fn given_an_answer_that_may_be_json_when_it_streams_with_tools_then_nothing_shows_before_the_end() {
        for (text, expected) in [(" {\"name\"", ""), ("```json", ""), ("plain < text <tool", "plain < text ")] {
            let mut output = Output::new(&[], true);
            let shown: String = text.as_bytes().chunks(1).map(|piece| output.push(piece).0).collect();
            assert_eq!(shown, expected);
            assert_eq!(output.finish(false).0, text);
        }
    }

    #[test]
    fn given_a_stop_string_when_the_answer_ends_then_what_follows_is_dropped() {
        let mut output = Output::new(&["STOP".to_owned()], false);
        let (shown, stopped) = output.push(b"ab STOP cd");
        assert_eq!((shown.as_str(), stopped), ("ab ", true));
        assert_eq!(output.finish(true), ("ab ".to_owned(), 3));
    }
}
