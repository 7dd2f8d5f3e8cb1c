//! Unified diffs as `git apply` takes them.

use similar::TextDiff;

use crate::copy::Files;
use crate::text::FileText;

/// Lines around a change.
const CONTEXT: usize = 3;

/// The change of one file; empty when nothing changed. Lines end with `\n` only, so that a lone `\r` is part of its line.
pub fn unified(file: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let (old, new): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let diff = TextDiff::from_slices(&old, &new);
    let mut out = format!("--- {}\n+++ {}\n", quoted("a", file), quoted("b", file));
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        out.push_str(&format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let sign = match change.tag() {
                similar::ChangeTag::Equal => ' ',
                similar::ChangeTag::Delete => '-',
                similar::ChangeTag::Insert => '+',
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

/// A name with what git would misread escaped, in the way of C (git's `core.quotePath`).
fn quoted(side: &str, file: &str) -> String {
    let is_plain = file.chars().all(|c| !c.is_control() && !matches!(c, '"' | '\\'));
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
            0..=31 | 127 => format!("\\{byte:03o}"),
            _ => String::from_utf8_lossy(&[byte]).into_owned(),
        })
        .collect();
    format!("\"{side}/{escaped}\"")
}

/// What changed between two states of a copy, in the bytes of the files.
pub fn patch(before: &Files, after: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    for (file, new) in after {
        let Some(old) = before.get(file).filter(|old| *old != new) else { continue };
        let (Some(old), Some(new)) = (whole(old), whole(new)) else { continue };
        let diff = unified(file, &old.text, &new.text);
        // The two are in one encoding: a rewrite is kept only in that of its file.
        out.extend(old.encode(&diff).unwrap_or_else(|| diff.into_bytes()));
    }
    out
}

/// As text with its byte order mark, which is part of the first line for git.
fn whole(bytes: &[u8]) -> Option<FileText> {
    FileText::read_whole(bytes)
}
