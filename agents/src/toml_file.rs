//! Files that people write: strict keys, and errors that name the line.

use serde::de::DeserializeOwned;

/// A file is not what it should be. The line's text is not shown: it may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct FileError {
    /// Counts from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Reads a file's text into its type.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, FileError> {
    toml::from_str(text).map_err(|error| FileError {
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        reason: error.message().trim().replace('\n', " "),
    })
}

/// The line that a byte stands in.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
