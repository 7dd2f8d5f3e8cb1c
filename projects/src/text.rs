//! The text of a file such that its bytes come back as they were.

/// A text with what is needed to write it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileText {
    /// Without a byte order mark; line ends as they are.
    pub text: String,
    bom: bool,
    latin1: bool,
}

const BOM: &[u8] = b"\xef\xbb\xbf";

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

    /// A rewrite with the line ends and the final line end of this text: a line that is unchanged but for its end keeps its own.
    pub fn with_own_ends(&self, rewrite: &str) -> String {
        let usual = if self.text.matches("\r\n").count() * 2 > self.text.matches('\n').count() { "\r\n" } else { "\n" };
        let old: Vec<&str> = self.text.split_inclusive('\n').collect();
        let old_plain: Vec<&str> = old.iter().map(|line| plain(line)).collect();
        let new_plain: Vec<&str> = rewrite.split_inclusive('\n').map(plain).collect();
        let diff = similar::TextDiff::from_slices(&old_plain, &new_plain);
        let mut out = String::with_capacity(rewrite.len());
        for change in diff.iter_all_changes() {
            match (change.tag(), change.old_index()) {
                (similar::ChangeTag::Delete, _) => {}
                (similar::ChangeTag::Equal, Some(at)) if old[at].ends_with('\n') => out.push_str(old[at]),
                _ => {
                    out.push_str(change.value());
                    out.push_str(usual);
                }
            }
        }
        if !self.text.ends_with('\n') {
            let length = out.trim_end_matches(['\r', '\n']).len();
            out.truncate(length);
        }
        out
    }
}

fn plain(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
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
        ] {
            let text = FileText::read(&bytes).unwrap();
            assert_eq!(text.encode(&text.text).unwrap(), bytes);
            let same = text.with_own_ends(&text.text.replace("\r\n", "\n"));
            assert_eq!(text.encode(&same).unwrap(), bytes, "an unchanged rewrite");
            let other = text.with_own_ends(&text.text.replace("\r\n", "\n").replace("b = 2", "b = 4"));
            let expected = text.text.replace("b = 2", "b = 4");
            assert_eq!(other.replace("\r\n", "\n"), expected.replace("\r\n", "\n"));
        }
    }

    #[test]
    fn given_what_is_no_text_or_does_not_fit_when_read_then_it_is_refused() {
        assert_eq!(FileText::read(b"a\0b"), None);
        assert_eq!(FileText::read(b"\xe9").unwrap().encode("€"), None);
    }
}
