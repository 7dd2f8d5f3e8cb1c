//! Unified diffs as `git apply` takes them.

use similar::ChangeTag;

use crate::copy::Files;
use crate::text::{FileText, difference};

/// Lines around a change.
const CONTEXT: usize = 3;

/// The change of one file; empty when nothing changed. Lines end with `\n` only, so that a lone `\r` is part of its line.
pub fn unified(file: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let (old, new): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let diff = difference(&old, &new);
    let mut out = format!("--- {}\n+++ {}\n", quoted("a", file), quoted("b", file));
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        out.push_str(&format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            out.push(sign);
            out.push_str(change.value());
            if !change.value().ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

/// A name with what git would misread escaped, in the way of C (git's `core.quotePath`): a head is ASCII, whatever the encoding of
/// the lines below it.
fn quoted(side: &str, file: &str) -> String {
    let is_plain = file.chars().all(|c| c.is_ascii() && !c.is_control() && !matches!(c, '"' | '\\'));
    if is_plain {
        // A tab ends a name with blanks.
        let end = if file.contains(' ') { "\t" } else { "" };
        return format!("{side}/{file}{end}");
    }
    let escaped: String = file
        .bytes()
        .map(|byte| match byte {
            b'"' => "\\\"".to_owned(),
            b'\\' => "\\\\".to_owned(),
            32..=126 => char::from(byte).to_string(),
            _ => format!("\\{byte:03o}"),
        })
        .collect();
    format!("\"{side}/{escaped}\"")
}

/// What changed between two states of a copy, in the bytes of the files: a line has the encoding of its file.
pub fn patch(before: &Files, after: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    for (file, new) in after {
        let Some(old) = before.get(file).filter(|old| *old != new) else { continue };
        if is_text(old) && is_text(new) {
            let diff = unified(file, &by_byte(old), &by_byte(new));
            // Every character is that of a byte: nothing is lost.
            out.extend(diff.chars().filter_map(|c| u8::try_from(u32::from(c)).ok()));
        }
    }
    out
}

fn is_text(content: &[u8]) -> bool {
    FileText::read(content).is_some()
}

/// Every byte as the character of that number, so that lines are compared and written byte for byte.
fn by_byte(content: &[u8]) -> String {
    content.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_and_lines_that_are_no_ascii_when_a_patch_is_made_then_lines_keep_their_bytes() {
        let name = "caf\u{e9} \"x\".py".to_owned();
        for (old, new) in [(&b"# caf\xe9\n"[..], &b"# th\xe9\n"[..]), ("# é\n".as_bytes(), "# è\n".as_bytes())] {
            let before = Files::from([(name.clone(), old.to_vec().into())]);
            let after = Files::from([(name.clone(), new.to_vec().into())]);
            let made = patch(&before, &after);
            let head = br#"--- "a/caf\303\251 \"x\".py""#;
            assert!(made.starts_with(head), "{}", String::from_utf8_lossy(&made));
            let lines = [&b"@@\n-"[..], old, &b"+"[..], new].concat();
            assert!(made.ends_with(&lines), "{}", String::from_utf8_lossy(&made));
        }
    }
}
