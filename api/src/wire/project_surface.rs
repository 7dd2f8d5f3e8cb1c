//! What a project offers to others, and how its files hang together.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A name of a file that others can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublicNameView {
    /// The file's path.
    pub file: String,
    /// The name.
    pub name: String,
}

/// The names of a file that others can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModuleView {
    /// Its path.
    pub file: String,
    /// In order, each once.
    pub names: Vec<String>,
}

/// The names that a project offers to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SurfaceView {
    /// How many.
    pub count: u64,
    /// By file; files without any are left out.
    pub modules: Vec<ModuleView>,
    /// Whether some are only counted.
    pub truncated: bool,
}

/// A file with the files of its project that it imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImporterView {
    /// Its path.
    pub file: String,
    /// In order, each once; of Go the folders of packages, with `/` at their ends.
    pub imports: Vec<String>,
}

/// Which files of a project import which: of Python, JavaScript and TypeScript when they are loaded, of Rust and Go at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportsView {
    /// How many.
    pub count: u64,
    /// By file; files that import none are left out.
    pub files: Vec<ImporterView>,
    /// Whether some are only counted.
    pub truncated: bool,
}

/// What became of the names that a project offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SurfaceChangeView {
    /// How many are new.
    pub added_count: u64,
    /// How many are gone.
    pub removed_count: u64,
    /// Those that are new, 500 at most.
    pub added: Vec<PublicNameView>,
    /// Those that are gone, 500 at most.
    pub removed: Vec<PublicNameView>,
}
