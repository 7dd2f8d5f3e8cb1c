//! Linters and type checkers of projects.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A linter or type checker that analyses of projects use where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectToolView {
    /// As reports name it.
    pub name: String,
    /// Languages that it reads.
    pub languages: Vec<String>,
    /// `installed` in the server's data folder, `path` when it is on the server's `PATH`, `missing`.
    pub status: String,
    /// The version in the data folder.
    pub installed_version: Option<String>,
    /// The version that an installation takes; null when it can't be installed into the data folder.
    pub version: Option<String>,
    /// What would install it: `pip`, `npm` or `go`.
    pub client: Option<String>,
    /// What is started.
    pub program: Option<String>,
    /// Whether the operator allows it.
    pub allowed: bool,
    /// What to do when it is missing or not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Tools to install.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallToolsBody {
    /// Names of `GET /projects/tools`, at least one.
    pub names: Vec<String>,
}
