//! Columns as people and SARIF's `unicodeCodePoints` count them. Parsers count bytes, and what runs in JavaScript the units of UTF-16.

use std::collections::HashMap;

use crate::copy::Files;
use crate::finding::Finding;
use crate::text::lines_of;

const BOM: char = '\u{feff}';

/// What a tool counts in the place of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Byte,
    /// What a text of JavaScript is made of: a character beyond the basic plane has two.
    Utf16,
}

impl Unit {
    fn of(self, c: char) -> usize {
        match self {
            Self::Byte => c.len_utf8(),
            Self::Utf16 => c.len_utf16(),
        }
    }
}

/// How a tool counts: in what, and whether a byte order mark counts.
type Counting = (Unit, bool);

/// How the columns of a tool are counted; `None` where it counts characters itself.
fn counting(tool: &str) -> Option<Counting> {
    match tool {
        "clippy" | "ruff" | "secrets" | "ty" => None,
        "eslint" | "tsc" | "typescript-eslint" => Some((Unit::Utf16, false)),
        "pyright" => Some((Unit::Utf16, true)),
        "mypy" => Some((Unit::Byte, false)),
        _ => Some((Unit::Byte, true)),
    }
}

/// How far a line was counted.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    byte: usize,
    units: usize,
    characters: usize,
}

/// Counts the columns of findings anew where a character may have several bytes or units. In Latin-1 each has one.
pub(super) fn in_characters(files: &Files, findings: &mut [Finding]) {
    let mut by_file: HashMap<&str, Option<Vec<&str>>> = HashMap::new();
    let wanted = findings.iter().enumerate().filter(|(_, one)| one.column > 1);
    let mut order: Vec<(usize, Counting)> = wanted.filter_map(|(at, one)| Some((at, counting(&one.tool)?))).collect();
    order.sort_by(|(a, by_a), (b, by_b)| {
        let (a, b) = (&findings[*a], &findings[*b]);
        (a.file.as_str(), by_a, a.line, a.column).cmp(&(b.file.as_str(), by_b, b.line, b.column))
    });
    // A line may be the whole file: what was counted for one finding in it is where the next goes on.
    let mut counted: Option<(usize, Counting, Reached)> = None;
    for (at, by) in order {
        let one = &findings[at];
        let Some((file, content)) = files.get_key_value(&one.file) else { continue };
        let lines = by_file.entry(file.as_str()).or_insert_with(|| {
            let text = std::str::from_utf8(content).ok().filter(|text| !text.is_ascii());
            text.map(|text| lines_of(file, text))
        });
        let Some(line) = lines.as_ref().and_then(|lines| lines.get(one.line.checked_sub(1)?)).copied() else {
            continue;
        };
        let is_same = |other: usize| findings[other].line == one.line && findings[other].file == one.file;
        let known = counted.filter(|(other, with, _)| *with == by && is_same(*other)).map(|(.., reached)| reached);
        let end = one.column - 1;
        let reached = reach((line, one.line == 1), known.unwrap_or_default(), end, by);
        counted = Some((at, by, reached));
        if reached.units == end {
            findings[at].column = reached.characters + 1;
        }
    }
}

/// Counts on to so many units, or to the first character behind them. The first line may begin with a mark, which is no character.
fn reach((line, is_first): (&str, bool), from: Reached, end: usize, (unit, has_mark): Counting) -> Reached {
    let mut reached = from;
    for c in line.get(from.byte..).unwrap_or_default().chars() {
        if reached.units >= end {
            break;
        }
        let is_mark = is_first && reached.byte == 0 && c == BOM;
        reached.units += if is_mark && !has_mark { 0 } else { unit.of(c) };
        reached.characters += usize::from(!is_mark);
        reached.byte += c.len_utf8();
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn given_lines_with_long_characters_when_columns_are_counted_then_each_character_is_one() {
        let files: Files = [
            ("a.py", "\u{feff}x = 1\né = 'é€'; y = 2\n".as_bytes()),
            ("latin1.py", b"# caf\xe9 x\n"),
            ("ascii.py", b"x = 1; y = 2\n"),
            ("returns.py", "é = 1\ré = 'é'; y = 2\r".as_bytes()),
            ("a.js", "var s = '😀'; debugger\nvar s = '😀é'; debugger\n".as_bytes()),
            ("marked.js", "\u{feff}var s = '😀'; debugger\n\u{feff}'😀'; debugger\n".as_bytes()),
            ("marked.py", "\u{feff}s = '😀'; x: int = 'a'\n".as_bytes()),
        ]
        .into_iter()
        .map(|(file, content)| (file.to_owned(), content.to_vec().into()))
        .collect();
        for (tool, file, line, column, expected) in [
            ("syntax", "a.py", 1, 4, 1),
            ("syntax", "a.py", 2, 15, 11),
            ("mypy", "a.py", 2, 15, 11),
            ("ruff", "a.py", 2, 15, 15),
            ("syntax", "a.py", 2, 2, 2),
            ("syntax", "a.py", 9, 5, 5),
            ("syntax", "a.py", 2, 99, 99),
            ("syntax", "latin1.py", 1, 8, 8),
            ("syntax", "ascii.py", 1, 8, 8),
            ("syntax", "returns.py", 2, 12, 10),
            ("syntax", "gone.py", 1, 8, 8),
            // As ESLint 9, tsc 5.9, pyright 1.1 and mypy 1.11 answer.
            ("eslint", "a.js", 1, 15, 14),
            ("eslint", "a.js", 2, 16, 15),
            ("tsc", "a.js", 1, 15, 14),
            ("typescript-eslint", "a.js", 1, 2, 2),
            // Within a character.
            ("tsc", "a.js", 1, 11, 11),
            ("syntax", "a.js", 1, 17, 14),
            ("eslint", "marked.js", 1, 15, 14),
            ("eslint", "marked.js", 2, 8, 7),
            ("pyright", "marked.py", 1, 21, 19),
            ("mypy", "marked.py", 1, 22, 19),
            ("ty", "marked.py", 1, 19, 19),
        ] {
            let mut found = [Finding::new((tool, "r", Severity::Low), (file, line, column), "m", "f")];
            in_characters(&files, &mut found);
            assert_eq!(found[0].column, expected, "{tool} {file}:{line}:{column}");
        }
    }

    #[test]
    fn given_tools_that_count_differently_in_one_line_when_columns_are_counted_then_none_goes_on_from_another() {
        let files = Files::from([("a.js".to_owned(), "'😀'; '😀'; debugger; x\n".into())]);
        let at = |tool: &str, column| Finding::new((tool, "r", Severity::Low), ("a.js", 1, column), "m", "f");
        let mut found = [at("syntax", 17), at("eslint", 13), at("syntax", 27), at("tsc", 23), at("eslint", 13)];
        in_characters(&files, &mut found);
        assert_eq!(found.map(|one| one.column), [11, 11, 21, 21, 11]);
    }

    #[test]
    fn given_very_many_findings_in_one_line_when_columns_are_counted_then_the_line_is_gone_through_once() {
        let line = "é = 1;".repeat(200_000);
        let files = Files::from([("a.js".to_owned(), line.into()), ("b.js".to_owned(), "é; x\n".into())]);
        let at = |number: usize| Finding::new(("syntax", "r", Severity::Low), ("a.js", 1, number * 7 + 4), "m", "f");
        let mut found: Vec<Finding> = (0..20_000).rev().map(|number| at(number * 10)).collect();
        found.insert(1, Finding::new(("syntax", "r", Severity::Low), ("b.js", 1, 5), "m", "f"));
        in_characters(&files, &mut found);
        assert_eq!((found[0].column, found[1].column), (19_999 * 60 + 3, 4));
        assert_eq!(found[20_000].column, 3, "they stay in their order");
    }
}
