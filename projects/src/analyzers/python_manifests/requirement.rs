//! One package that is declared, as the packaging tools write it (PEP 508).

/// A package that a file declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::analyzers) struct Requirement {
    /// In lower case, with dashes.
    pub(in crate::analyzers) package: String,
    pub(in crate::analyzers) line: usize,
    /// Whether it is said which versions.
    pub(in crate::analyzers) is_pinned: bool,
    /// The one version that it may have.
    pub(in crate::analyzers) exact: Option<String>,
    pub(in crate::analyzers) role: Role,
}

/// What a package is declared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::analyzers) enum Role {
    /// The project imports it always.
    Needed,
    /// Of an extra or a group, or one that tools use.
    Optional,
    /// It builds the project.
    Build,
}

impl Requirement {
    /// Reads `name[extras] versions ; markers`; `None` for options of pip and for addresses and paths, which have no name.
    pub(super) fn read(text: &str, line: usize, role: Role) -> Option<Self> {
        let text = text.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let (name, rest) = text.split_at(text.find(|c: char| !is_name(c)).unwrap_or(text.len()));
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || rest.starts_with([':', '+', '/', '\\']) {
            return None;
        }
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(extras) => extras.split_once(']').map_or("", |(_, rest)| rest),
            None => rest,
        };
        let versions = rest.split(';').next().unwrap_or_default().trim().trim_matches(['(', ')']);
        Some(Self {
            package: package(name),
            line,
            is_pinned: versions.contains(['=', '<', '>', '~', '@']),
            exact: versions.strip_prefix("==").and_then(|version| exact(version.trim_start_matches('='))),
            role,
        })
    }
}

/// A name in the form in which names are compared. A dot stays: it may divide a family from its member.
pub(super) fn package(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// The first version of a list, when it is one.
pub(super) fn exact(versions: &str) -> Option<String> {
    let version = versions.trim().split([',', ' ', '\\']).next()?;
    let is_one = version.starts_with(|c: char| c.is_ascii_digit()) && !version.contains('*');
    is_one.then(|| version.to_owned())
}

/// A line without what follows a `#` at its beginning or behind a blank: within an address it is no comment.
pub(super) fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') {
        return "";
    }
    line.find(" #").or_else(|| line.find("\t#")).map_or(line, |at| &line[..at])
}
