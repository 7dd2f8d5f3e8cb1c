//! The text of a file such that its bytes come back as they were.

use std::collections::VecDeque;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::language::Language;

/// A text with what is needed to write it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileText {
    /// Without a byte order mark; line ends as they are.
    pub text: String,
    bom: bool,
    latin1: bool,
}

const BOM: &[u8] = b"\xef\xbb\xbf";
/// How long the shortest difference of two texts is looked for.
const MAX_SEARCH: Duration = Duration::from_secs(2);

impl FileText {
    /// Reads UTF-8, or else every byte as the character of that number (Latin-1). `None` for what is no text.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.contains(&0) {
            return None;
        }
        let (bom, rest) = match bytes.strip_prefix(BOM) {
            Some(rest) => (true, rest),
            None => (false, bytes),
        };
        Some(match std::str::from_utf8(rest) {
            Ok(text) => Self { text: text.to_owned(), bom, latin1: false },
            Err(_) => Self { text: rest.iter().map(|byte| char::from(*byte)).collect(), bom, latin1: true },
        })
    }

    /// Another text in the same encoding; `None` when it has a character that the encoding has not.
    pub fn encode(&self, text: &str) -> Option<Vec<u8>> {
        let mut bytes = if self.bom { BOM.to_vec() } else { Vec::new() };
        if self.latin1 {
            for c in text.chars() {
                bytes.push(u8::try_from(u32::from(c)).ok()?);
            }
        } else {
            bytes.extend_from_slice(text.as_bytes());
        }
        Some(bytes)
    }

    /// The text with `\n` at the end of each line.
    pub fn with_plain_ends(&self) -> String {
        self.text.replace("\r\n", "\n").replace('\r', "\n")
    }

    /// A rewrite with the line ends and the final line end of this text: a line that is unchanged but for its end keeps its own.
    pub fn with_own_ends(&self, rewrite: &str) -> String {
        let old = lines(&self.text);
        let usual = usual_end(&old);
        let old_plain: Vec<&str> = old.iter().map(|line| plain(line)).collect();
        let new_plain: Vec<&str> = lines(rewrite).into_iter().map(plain).collect();
        let diff = difference(&old_plain, &new_plain);
        let mut out = String::with_capacity(rewrite.len());
        // A line that comes in the place of another one has its end.
        let mut freed: VecDeque<&str> = VecDeque::new();
        for change in diff.iter_all_changes() {
            let own = change.old_index().map(|at| end(old[at])).filter(|end| !end.is_empty());
            match change.tag() {
                ChangeTag::Delete => freed.extend(own),
                ChangeTag::Equal => {
                    freed.clear();
                    out.push_str(change.value());
                    out.push_str(own.unwrap_or(usual));
                }
                ChangeTag::Insert => {
                    out.push_str(change.value());
                    out.push_str(freed.pop_front().unwrap_or(usual));
                }
            }
        }
        // An empty file has no last line that could go without an end.
        if old.last().is_some_and(|line| end(line).is_empty()) {
            let length = out.trim_end_matches(['\r', '\n']).len();
            out.truncate(length);
        }
        out
    }
}

/// What is different in two lists of lines. To find the least takes time as their length and what is different, multiplied: of long
/// texts that have nearly nothing in common more is told than that, and no less.
pub(crate) fn difference<'o, 'n, 'l>(old: &'l [&'o str], new: &'l [&'n str]) -> TextDiff<'o, 'n, 'l, str> {
    TextDiff::configure().timeout(MAX_SEARCH).diff_slices(old, new)
}

/// The lines of a file without their ends, as its language counts them.
pub(crate) fn lines_of<'t>(file: &str, text: &'t str) -> Vec<&'t str> {
    match text.contains('\r') && Language::of(file).is_some_and(Language::ends_lines_with_returns) {
        true => lines(text).into_iter().map(plain).collect(),
        false => text.lines().collect(),
    }
}

/// The lines of a text with their ends: `\n`, `\r\n` or a lone `\r`.
fn lines(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\n', '\r']) {
        let length = if rest[at..].starts_with("\r\n") { 2 } else { 1 };
        let (line, others) = rest.split_at(at + length);
        found.push(line);
        rest = others;
    }
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

/// The end that most lines have.
fn usual_end(lines: &[&str]) -> &'static str {
    let count = |wanted: &str| lines.iter().filter(|line| end(line) == wanted).count();
    let (feeds, both, returns) = (count("\n"), count("\r\n"), count("\r"));
    if both > feeds && both >= returns {
        "\r\n"
    } else if returns > feeds {
        "\r"
    } else {
        "\n"
    }
}

fn plain(line: &str) -> &str {
    line.trim_end_matches(['\r', '\n'])
}

fn end(line: &str) -> &str {
    &line[plain(line).len()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_any_ends_and_encodings_when_one_line_is_rewritten_then_all_others_keep_their_bytes() {
        for bytes in [
            b"a = 1\r\nb = 2\r\n".to_vec(),
            b"a = 1\r\nb = 2\nc = 3\r\n".to_vec(),
            b"\xef\xbb\xbfa = 1\nb = 2".to_vec(),
            b"# caf\xe9\nb = 2\n".to_vec(),
            b"a = 1\n\nb = 2\n\n".to_vec(),
            b"a = 1\rb = 2\r".to_vec(),
            b"a = 1\rb = 2".to_vec(),
            b"a = 1\n\r\r\nb = 2\r\r\n\n".to_vec(),
            b"a = '\r'\nb = 2\nc = 3\r".to_vec(),
        ] {
            let text = FileText::read(&bytes).unwrap();
            assert_eq!(text.encode(&text.text).unwrap(), bytes);
            let same = text.with_own_ends(&text.with_plain_ends());
            assert_eq!(text.encode(&same).unwrap(), bytes, "an unchanged rewrite");
            let other = text.with_own_ends(&text.with_plain_ends().replace("b = 2", "b = 4"));
            let (old, new) = (lines(&text.text), lines(&other));
            assert_eq!(old.len(), new.len(), "{other:?}");
            for (old, new) in old.iter().zip(new) {
                let expected = if plain(old) == "b = 2" { old.replace('2', "4") } else { (*old).to_owned() };
                assert_eq!(plain(new), plain(&expected));
                // The last line had no end that another one could have.
                assert!(end(new) == end(old), "{other:?}");
            }
            assert_eq!(end(&other).is_empty(), end(&text.text).is_empty(), "the final end: {other:?}");
        }
    }

    #[test]
    fn given_a_long_file_of_which_no_line_stays_when_it_is_rewritten_then_that_ends_soon_and_each_line_has_its_end() {
        let lines =
            |word: &str, end: &str| (0..40_000).map(|number| format!("{word}{number}{end}")).collect::<String>();
        let text = FileText::read(lines("a", "\r\n").as_bytes()).unwrap();
        let begun = std::time::Instant::now();
        assert_eq!(text.with_own_ends(&lines("b", "\n")), lines("b", "\r\n"));
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }

    #[test]
    fn given_an_empty_file_when_it_is_rewritten_then_its_last_line_has_the_end_that_it_was_given() {
        for (bytes, expected) in [(&b""[..], &b"a = 1\nb = 2\n"[..]), (b"\xef\xbb\xbf", b"\xef\xbb\xbfa = 1\nb = 2\n")]
        {
            let text = FileText::read(bytes).unwrap();
            assert_eq!(text.encode(&text.with_own_ends("a = 1\nb = 2\n")).unwrap(), expected);
            assert_eq!(text.with_own_ends(""), "");
        }
    }

    #[test]
    fn given_what_is_no_text_or_does_not_fit_when_read_then_it_is_refused() {
        assert_eq!(FileText::read(b"a\0b"), None);
        assert_eq!(FileText::read(b"\xe9").unwrap().encode("€"), None);
    }

    #[test]
    fn given_files_of_each_end_when_their_lines_are_told_then_a_lone_return_ends_one_only_where_the_language_says_so() {
        for (file, text, expected) in [
            ("a.py", "a\rb\r\n\nc", vec!["a", "b", "", "c"]),
            ("a.py", "a\nb\n", vec!["a", "b"]),
            ("a.ts", "\ra\r", vec!["", "a"]),
            ("a.rs", "a\rb\r\nc\n", vec!["a\rb", "c"]),
            ("a.txt", "a\rb", vec!["a\rb"]),
            ("a.py", "", vec![]),
        ] {
            assert_eq!(lines_of(file, text), expected, "{file} {text:?}");
        }
    }
}
