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
    for one in findings.iter_mut().filter(|one| one.column > 1 && !IN_CHARACTERS.contains(&one.tool.as_str())) {
        let Some((file, content)) = files.get_key_value(&one.file) else { continue };
        let lines = by_file.entry(file.as_str()).or_insert_with(|| {
            let text = std::str::from_utf8(content).ok().filter(|text| !text.is_ascii());
            text.map(|text| lines_of(file, text))
        });
        let line = lines.as_ref().and_then(|lines| lines.get(one.line.checked_sub(1)?));
        if let Some(before) = line.and_then(|line| line.get(..one.column - 1)) {
            one.column = before.chars().filter(|c| *c != BOM).count() + 1;
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
}
