//! The names that a project offers to others, by file, and what became of them between two analyses.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::analyzers::{Snapshot, is_vendored};
use crate::definitions::{Reach, public_names};
use crate::language::Language;

/// Most names of a report; what is beyond is counted.
const MAX_NAMES: usize = 20_000;
/// Most names of a comparison, on each side; what is beyond is counted.
const MAX_CHANGED: usize = 500;
/// Folders whose names are for the project itself.
const OWN_USE: [&str; 6] = ["test", "tests", "testdata", "__tests__", "benches", "examples"];

/// The names of a file that others can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its path.
    pub file: String,
    /// In order, each once.
    pub names: Vec<String>,
}

/// The names that others can use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surface {
    /// How many.
    pub count: usize,
    /// By file; files without any are left out.
    pub modules: Vec<Module>,
    /// Whether some are only counted.
    pub truncated: bool,
}

/// A name of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PublicName {
    /// The file's path.
    pub file: String,
    /// The name.
    pub name: String,
}

/// What became of the names between two analyses. A name that moved to another file is gone there and new here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurfaceChange {
    /// How many are new.
    pub added_count: usize,
    /// How many are gone: what used them breaks.
    pub removed_count: usize,
    /// Those that are new, the first of them.
    pub added: Vec<PublicName>,
    /// Those that are gone, the first of them.
    pub removed: Vec<PublicName>,
}

/// The surface of a copy. Blocks.
pub(crate) fn surface(snapshot: &Snapshot<'_>) -> Surface {
    let mut found = Surface::default();
    let is_offered = |path: &str| !is_vendored(path) && !is_test(path);
    for file in snapshot.sources().iter().filter(|file| is_offered(file.path)) {
        let names = match file.language {
            Language::Python => file.module().map(|module| module.public_names()),
            language => file.tree().map(|tree| public_names(language, tree.root_node(), file.bytes, Reach::World)),
        };
        let Some(names) = names else { continue };
        if names.is_empty() {
            continue;
        }
        let before = found.count.min(MAX_NAMES);
        found.count += names.len();
        let kept: Vec<String> = names.into_iter().take(MAX_NAMES - before).collect();
        if !kept.is_empty() {
            found.modules.push(Module { file: file.path.to_owned(), names: kept });
        }
    }
    found.truncated = found.count > MAX_NAMES;
    found
}

fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_named_so = name.starts_with("test_") || name == "conftest.py" || name == "setup.py";
    let ends = ["_test.py", "_test.go", ".test.js", ".test.ts", ".test.tsx", ".spec.js", ".spec.ts"];
    is_named_so || ends.iter().any(|end| name.ends_with(end)) || path.split('/').any(|part| OWN_USE.contains(&part))
}

/// What is different.
pub fn compare(from: &Surface, to: &Surface) -> SurfaceChange {
    let (before, after) = (by_file(from), by_file(to));
    let (added_count, added) = without(&after, &before);
    let (removed_count, removed) = without(&before, &after);
    SurfaceChange { added_count, removed_count, added, removed }
}

type Names<'s> = BTreeMap<&'s str, BTreeSet<&'s str>>;

fn by_file(surface: &Surface) -> Names<'_> {
    surface
        .modules
        .iter()
        .map(|module| (module.file.as_str(), module.names.iter().map(String::as_str).collect()))
        .collect()
}

/// The names of `these` that `others` does not have: how many, and the first of them.
fn without(these: &Names<'_>, others: &Names<'_>) -> (usize, Vec<PublicName>) {
    let is_other = |file: &str, name: &str| others.get(file).is_some_and(|names| names.contains(name));
    let mut count = 0;
    let mut first = Vec::new();
    for (file, names) in these {
        for name in names.iter().filter(|name| !is_other(file, name)) {
            count += 1;
            if first.len() < MAX_CHANGED {
                first.push(PublicName { file: (*file).to_owned(), name: (*name).to_owned() });
            }
        }
    }
    (count, first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Files;

    fn of(files: &[(&str, &str)]) -> Surface {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        surface(&Snapshot::new(&files))
    }

    #[test]
    fn given_two_states_of_a_project_when_their_surfaces_are_compared_then_names_that_came_and_went_are_told() {
        let before = of(&[
            ("a.py", "def f(): pass\ndef g(): pass\ndef _h(): pass\n"),
            ("src/lib.rs", "pub fn x() {}\npub(crate) fn y() {}\n"),
            ("tests/test_a.py", "def test_a(): pass\n"),
            ("vendor/b/src/lib.rs", "pub fn z() {}\n"),
        ]);
        assert_eq!((before.count, before.modules.len(), before.truncated), (3, 2, false));
        let after = of(&[("a.py", "X = 1\ndef f(): pass\n"), ("src/lib.rs", "pub fn x() {}\n")]);
        let change = compare(&before, &after);
        let name = |file: &str, name: &str| PublicName { file: file.to_owned(), name: name.to_owned() };
        assert_eq!((change.added, change.removed), (vec![name("a.py", "X")], vec![name("a.py", "g")]));
        assert_eq!(compare(&after, &after), SurfaceChange::default());
    }

    #[test]
    fn given_more_names_than_a_report_holds_when_they_are_listed_then_the_others_are_counted() {
        let many: String = (0..MAX_NAMES + 7).map(|number| format!("v{number} = 1\n")).collect();
        let found = of(&[("a.py", many.as_str()), ("b.py", "def f(): pass\n")]);
        let listed: usize = found.modules.iter().map(|module| module.names.len()).sum();
        assert_eq!((found.count, listed, found.truncated), (MAX_NAMES + 8, MAX_NAMES, true));
    }
}
