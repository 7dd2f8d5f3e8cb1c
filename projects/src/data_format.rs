//! Formats of data whose texts parse or do not: manifests of packages are written in them, and settings.

use serde::de::IgnoredAny;
use toml::de::DeTable;

/// A format with a parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataFormat {
    /// JSON (RFC 8259), without comments.
    Json,
    /// TOML 1.1.
    Toml,
}

/// Where a parser ended, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// Counts from 1.
    pub(crate) line: usize,
    /// In characters; counts from 1.
    pub(crate) column: usize,
    /// The parser's own words, in one line.
    pub(crate) reason: String,
}

impl DataFormat {
    /// By the name of a file.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        if name == "Pipfile" {
            return Some(Self::Toml);
        }
        match name.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    /// Why a text does not parse; `None` for one that does. A byte order mark before it is no part of it.
    pub(crate) fn error(self, bytes: &[u8]) -> Option<ParseError> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                let (line, column) = place(&String::from_utf8_lossy(&bytes[..error.valid_up_to()]));
                return Some(ParseError { line, column, reason: "it is no UTF-8".to_owned() });
            }
        };
        match self {
            Self::Json => serde_json::from_str::<IgnoredAny>(text).err().map(|error| of_json(text, &error)),
            Self::Toml => DeTable::parse(text).err().map(|error| {
                let at = error.span().map_or(text.len(), |span| span.start);
                let (line, column) = place(&text[..text.floor_char_boundary(at)]);
                ParseError { line, column, reason: error.message().lines().collect::<Vec<_>>().join(", ") }
            }),
        }
    }
}

/// Its column is one of bytes, and its words end with the place.
fn of_json(text: &str, error: &serde_json::Error) -> ParseError {
    let line = error.line().max(1);
    let bytes = error.column().saturating_sub(1);
    let own = text.split('\n').nth(line - 1).unwrap_or_default();
    let column = own[..own.floor_char_boundary(bytes)].chars().count() + 1;
    let said = error.to_string();
    let end = format!(" at line {} column {}", error.line(), error.column());
    let reason = said.strip_suffix(&end).unwrap_or(&said).to_owned();
    ParseError { line, column, reason }
}

/// The line and column that follow a text.
fn place(before: &str) -> (usize, usize) {
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_texts_of_each_format_when_they_are_parsed_then_what_does_not_is_told_with_its_line_and_words() {
        for (path, text, expected) in [
            ("package.json", "{\"name\": \"m\"}", None),
            ("package.json", "\u{feff}{\"name\": \"m\"}\n", None),
            ("package.json", "{\n\"name\": \"m\",\n\"dependencies\": {\"lodash\": \"*\"}", Some(3)),
            ("a/b.JSON", "{\n\"é\": nope\n}", Some(2)),
            ("a.json", "{} {}", Some(1)),
            ("a.json", "", Some(1)),
            ("Cargo.toml", "[package]\nname = \"m\"\n", None),
            ("Cargo.toml", "[package", Some(1)),
            ("pyproject.toml", "[project]\nname = \"m\"\nname = \"n\"\n", Some(3)),
            ("Pipfile", "[packages]\nflask = *\n", Some(2)),
        ] {
            let error = DataFormat::of(path).unwrap().error(text.as_bytes());
            assert_eq!(error.as_ref().map(|error| error.line), expected, "{path} {text}: {error:?}");
            let is_plain = |error: &ParseError| {
                error.column > 0 && !error.reason.is_empty() && !error.reason.contains(" at line ")
            };
            assert!(error.as_ref().is_none_or(is_plain), "{path} {text}: {error:?}");
        }
        let broken = DataFormat::Toml.error(b"a = 1\nb = '\xff'\n").unwrap();
        assert_eq!((broken.line, broken.column, broken.reason.as_str()), (2, 6, "it is no UTF-8"));
        for path in ["a.py", "json", "a.jsonl", "Cargo.lock", "b.yaml"] {
            assert_eq!(DataFormat::of(path), None, "{path}");
        }
    }
}
