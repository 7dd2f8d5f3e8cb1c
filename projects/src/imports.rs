//! Which files of a project import which.

use serde::{Deserialize, Serialize};

/// Most imports of a report; what is beyond is counted.
const MAX_IMPORTS: usize = 20_000;

/// A file with what it imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Importer {
    /// Its path.
    pub file: String,
    /// The files of the project that it imports, in order, each once; of Go the folders of packages, with `/` at their ends (`./` at the
    /// top), since Go imports a package and no file.
    pub imports: Vec<String>,
}

/// The graph of imports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imports {
    /// How many.
    pub count: usize,
    /// By file; files that import none of the project are left out.
    pub files: Vec<Importer>,
    /// Whether some are only counted.
    pub truncated: bool,
}

impl Imports {
    /// Of each file what it imports, in order.
    pub(crate) fn new<'f, T: Iterator<Item = &'f str>>(graph: impl Iterator<Item = (&'f str, T)>) -> Self {
        let mut found = Self::default();
        for (file, targets) in graph {
            let all: Vec<String> = targets.map(str::to_owned).collect();
            let room = MAX_IMPORTS.saturating_sub(found.count);
            found.count += all.len();
            let imports: Vec<String> = all.into_iter().take(room).collect();
            if !imports.is_empty() {
                found.files.push(Importer { file: file.to_owned(), imports });
            }
        }
        found.truncated = found.count > MAX_IMPORTS;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_more_imports_than_a_report_holds_when_they_are_listed_then_the_others_are_counted() {
        let names: Vec<String> = (0..MAX_IMPORTS - 1).map(|number| format!("{number}.py")).collect();
        let many = ("a.py", names.iter().map(String::as_str).collect::<Vec<&str>>());
        let graph = [many, ("b.py", vec!["x.py", "y.py"]), ("c.py", vec![]), ("d.py", vec!["x.py"])];
        let found = Imports::new(graph.into_iter().map(|(file, targets)| (file, targets.into_iter())));
        let files: Vec<(&str, usize)> = found.files.iter().map(|one| (one.file.as_str(), one.imports.len())).collect();
        assert_eq!(files, [("a.py", MAX_IMPORTS - 1), ("b.py", 1)]);
        assert_eq!((found.count, found.truncated), (MAX_IMPORTS + 2, true));
    }
}
