//! Columns as people and SARIF's `unicodeCodePoints` count them. Parsers count bytes.

use std::collections::HashMap;

use crate::copy::Files;
use crate::finding::Finding;
use crate::text::lines_of;

/// Tools that count characters themselves.
const IN_CHARACTERS: [&str; 8] = ["clippy", "eslint", "pyright", "ruff", "secrets", "tsc", "ty", "typescript-eslint"];
const BOM: char = '\u{feff}';

/// Counts the columns of findings anew where a character may have several bytes. In Latin-1 each has one.
pub(super) fn in_characters(files: &Files, findings: &mut [Finding]) {
    let mut by_file: HashMap<&str, Option<Vec<&str>>> = HashMap::new();
    let is_wanted = |one: &Finding| one.column > 1 && !IN_CHARACTERS.contains(&one.tool.as_str());
    let mut order: Vec<usize> = (0..findings.len()).filter(|at| is_wanted(&findings[*at])).collect();
    let place = |one: &Finding| (one.line, one.column);
    order.sort_by(|a, b| {
        let (a, b) = (&findings[*a], &findings[*b]);
        a.file.cmp(&b.file).then_with(|| place(a).cmp(&place(b)))
    });
    // A line may be the whole file: what was counted for one finding in it is where the next goes on.
    let mut counted: Option<(usize, usize, usize)> = None;
    for at in order {
        let one = &findings[at];
        let Some((file, content)) = files.get_key_value(&one.file) else { continue };
        let lines = by_file.entry(file.as_str()).or_insert_with(|| {
            let text = std::str::from_utf8(content).ok().filter(|text| !text.is_ascii());
            text.map(|text| lines_of(file, text))
        });
        let end = one.column - 1;
        let is_same = |other: usize| findings[other].line == one.line && findings[other].file == one.file;
        let (from, known) =
            counted.filter(|(other, ..)| is_same(*other)).map_or((0, 0), |(_, from, known)| (from, known));
        let line = lines.as_ref().and_then(|lines| lines.get(one.line.checked_sub(1)?));
        if let Some(part) = line.and_then(|line| line.get(from..end)) {
            let count = known + part.chars().filter(|c| *c != BOM).count();
            counted = Some((at, end, count));
            findings[at].column = count + 1;
        }
    }
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
        ] {
            let mut found = [Finding::new((tool, "r", Severity::Low), (file, line, column), "m", "f")];
            in_characters(&files, &mut found);
            assert_eq!(found[0].column, expected, "{tool} {file}:{line}:{column}");
        }
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
