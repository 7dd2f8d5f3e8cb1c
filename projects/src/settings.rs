//! What an operator decides about projects.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Programs that are allowed when an operator says nothing: linters and type checkers that execute nothing of a project, and what
/// starts a project's own tests when somebody asks for them.
pub const USUAL_PROGRAMS: [&str; 16] = [
    "ruff",
    "mypy",
    "pyright",
    "ty",
    "eslint",
    "tsc",
    "go",
    "staticcheck",
    "python",
    "python3",
    "pytest",
    "node",
    "npm",
    "cargo",
    "make",
    "ctest",
];

/// The programs that may be started for a project, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs(BTreeSet<String>);

impl Default for Programs {
    fn default() -> Self {
        Self::named(USUAL_PROGRAMS.map(str::to_owned))
    }
}

impl Programs {
    /// Those and no others.
    pub fn named(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Whether a program may be started.
    pub fn allows(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// What an operator decides about projects.
#[derive(Debug, Clone, Default)]
pub struct ProjectSettings {
    /// Programs that may be started.
    pub programs: Programs,
    /// A folder of advisories as OSV writes them, one JSON file each; without it versions are not checked.
    pub advisories: Option<PathBuf>,
    /// A table of packages' licences ([`crate::analyzers::LicenceTable`]), for what neither lock files nor installed packages say.
    pub licences: Option<PathBuf>,
    /// The folder of tools that were installed on request ([`crate::tools`]); without it there are those of the `PATH` alone.
    pub tools: Option<PathBuf>,
}
