//! The tables of proofs: every row is there, and so is every test that they name. A table that names a test which is gone proves nothing,
//! and neither does a full size that nothing does.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::Findings;

/// Pages with tables of proofs, the letter of their rows, and how many there must be.
const PAGES: [(&str, char, usize); 2] = [("docs/reliability.md", 'F', 25), ("docs/security.md", 'A', 17)];

/// Where rows with a full size are, the folder of the tests that can be repeated, and what starts both.
const SIZES: (&str, &str, &str) = ("docs/reliability.md", "tests/interop/", "x");

pub(crate) fn check(root: &Path) -> Findings {
    let mut findings = Vec::new();
    for (page, letter, rows) in PAGES {
        let text = fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {page}"))?;
        findings.extend(missing_rows(&text, letter, rows).map(|row| format!("{page}: row {row} is missing")));
        for (number, line) in text.lines().enumerate() {
            for (file, name) in named(line) {
                if let Some(problem) = problem(root, file, name) {
                    findings.push(format!("{page}:{}: {file}::{name}: {problem}", number + 1));
                }
            }
        }
    }
    findings.extend(sizes_of_nothing(root)?);
    Ok(findings)
}

/// Rows whose full size is a number of repeats that none of their tests takes, or a verb that `x` does not have.
fn sizes_of_nothing(root: &Path) -> Findings {
    let (page, tests, verbs) = SIZES;
    let read = |file: &str| fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"));
    let (text, verbs_text) = (read(page)?, read(verbs)?);
    let can_repeat =
        |file: &str, name: &str| file.starts_with(tests) && read(file).is_ok_and(|text| takes_scale(&text, name));
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| F")) {
        let repeated = || named(line).any(|(file, name)| can_repeat(file, name));
        for size in full_sizes(line) {
            let verb = size.strip_prefix("./x ").and_then(|rest| rest.split(' ').next());
            let problem = match verb {
                _ if size.starts_with("--scale ") && !repeated() => "no test of the row takes it",
                Some(verb) if !verbs_text.contains(&format!("\n  {verb})")) => "x has no such verb",
                Some(_) | None => continue,
            };
            findings.push(format!("{page}:{}: {size}: {problem}", number + 1));
        }
    }
    Ok(findings)
}

/// The code of the last cell of a row.
fn full_sizes(row: &str) -> impl Iterator<Item = &str> {
    let last = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
    last.split('`').skip(1).step_by(2)
}

/// Whether a test of pytest has the fixture of that name.
fn takes_scale(text: &str, name: &str) -> bool {
    let start = format!("def {name}(");
    let fixtures = text.split_once(&start).and_then(|(_, rest)| rest.split_once(')')).map(|(fixtures, _)| fixtures);
    fixtures.is_some_and(|fixtures| fixtures.split(',').any(|fixture| fixture.trim() == "scale"))
}

fn missing_rows(text: &str, letter: char, rows: usize) -> impl Iterator<Item = String> {
    let wanted = (1..=rows).map(move |number| format!("{letter}{number}"));
    wanted.filter(move |row| !text.lines().any(|line| line.starts_with(&format!("| {row} |"))))
}

/// `file::test` in code.
fn named(line: &str) -> impl Iterator<Item = (&str, &str)> {
    // Every other part between backticks is code.
    let code = line.split('`').skip(1).step_by(2);
    code.filter_map(|code| code.split_once("::")).filter(|(file, _)| file.ends_with(".rs") || file.ends_with(".py"))
}

fn problem(root: &Path, file: &str, name: &str) -> Option<&'static str> {
    let Ok(text) = fs::read_to_string(root.join(file)) else { return Some("no such file") };
    let ways = if file.ends_with(".rs") {
        vec![format!("fn {name}(")]
    } else {
        vec![format!("def {name}("), format!("class {name}:")]
    };
    (!ways.iter().any(|way| text.contains(way.as_str()))).then_some("no such test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_lines_when_tests_are_looked_for_then_only_files_with_a_name_behind_them_count() {
        let line = "| F1 | `a/b.rs::given_x`, `t.py::TestY`; `./x chaos`, `Type::of`, `README.md` | z::w |";
        assert_eq!(named(line).collect::<Vec<_>>(), [("a/b.rs", "given_x"), ("t.py", "TestY")]);
    }

    #[test]
    fn given_tests_that_are_there_or_not_when_checked_then_only_the_others_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.rs"), "fn given_x() {}\n").unwrap();
        fs::write(folder.path().join("b.py"), "def test_x(server):\n    pass\n\n\nclass TestY:\n    pass\n").unwrap();
        for (file, name, expected) in [
            ("a.rs", "given_x", None),
            ("b.py", "test_x", None),
            ("b.py", "TestY", None),
            ("a.rs", "given", Some("no such test")),
            ("b.py", "test", Some("no such test")),
            ("c.rs", "given_x", Some("no such file")),
        ] {
            assert_eq!(problem(folder.path(), file, name), expected, "{file}::{name}");
        }
    }

    #[test]
    fn given_a_table_with_a_gap_when_checked_then_the_row_is_named() {
        let text = "| row | what |\n|---|---|\n| F1 | a |\n| F3 | b |\n";
        assert_eq!(missing_rows(text, 'F', 3).collect::<Vec<_>>(), ["F2"]);
    }

    #[test]
    fn given_full_sizes_when_checked_then_those_that_nothing_does_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (page, tests_folder, verbs) = SIZES;
        let faults = format!("{tests_folder}test_faults.py");
        let faults = faults.as_str();
        for file in [page, faults] {
            fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
        }
        let tests = "def test_often(server, scale):\n    pass\n\n\ndef test_once(server):\n    pass\n";
        fs::write(folder.path().join(faults), tests).unwrap();
        fs::write(folder.path().join(verbs), "case \"$verb\" in\n  soak) soak ;;\nesac\n").unwrap();
        let rows = format!(
            "| F1 | a | `{faults}::test_often` | `--scale 20`; `./x soak` |\n\
             | F2 | b | `{faults}::test_once` | `--scale 20` |\n\
             | F3 | c | `{faults}::test_once` | `./x soka --minutes 2` |\n\
             | F4 | d | `{faults}::test_once` | the same |\n"
        );
        fs::write(folder.path().join(page), rows).unwrap();
        let expected = [
            "docs/reliability.md:2: --scale 20: no test of the row takes it",
            "docs/reliability.md:3: ./x soka --minutes 2: x has no such verb",
        ];
        assert_eq!(sizes_of_nothing(folder.path()).unwrap(), expected);
    }

    #[test]
    fn the_repository_has_every_test_that_it_names() {
        assert_eq!(check(&crate::root()).unwrap(), Vec::<String>::new());
    }
}
