//! What is left out of a source on purpose, counted by reason and by extension.

use std::collections::{BTreeMap, BTreeSet};

use riverrun_schemas::ingest::LeftOut;

/// Most counts of one source. Extensions beyond it count together, without their names.
pub const MAX_LEFT_OUT: usize = 40;

/// Most characters of an extension; what has more is a name with a dot in it, and no extension to anybody.
const MAX_EXTENSION_CHARS: usize = 16;

/// Why a file is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOutReason {
    /// Nothing reads files of its extension.
    NoReader,
    /// It is an archive in a folder; one is opened when it is the source itself.
    Archive,
    /// It has no extension, and its content is no text.
    NotText,
    /// Its name begins with a dot, or an ignore file lists it. A folder counts as one, whatever is in it.
    HiddenOrIgnored,
    /// It is a symbolic link, which is not followed.
    Link,
    /// A glob of the request leaves it out.
    Excluded,
    /// It is read already, under another address.
    Twice,
    /// It came when there was no room for more.
    BeyondLimit,
}

impl LeftOutReason {
    /// Stable, lower snake case.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoReader => "no_reader",
            Self::Archive => "archive",
            Self::NotText => "not_text",
            Self::HiddenOrIgnored => "hidden_or_ignored",
            Self::Link => "link",
            Self::Excluded => "excluded",
            Self::Twice => "twice",
            Self::BeyondLimit => "beyond_limit",
        }
    }
}

/// Files that were left out; at most [`MAX_LEFT_OUT`] counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOutFiles(BTreeMap<(LeftOutReason, Option<String>), usize>);

impl LeftOutFiles {
    /// Counts files, with their extension where that is the reason.
    pub fn add(&mut self, reason: LeftOutReason, extension: Option<&str>, files: usize) {
        if files == 0 {
            return;
        }
        let named = extension.filter(|extension| extension.chars().count() <= MAX_EXTENSION_CHARS);
        let mut key = (reason, named.map(|extension| format!(".{}", extension.to_lowercase())));
        // Room for every reason without a name is kept.
        if key.1.is_some() && self.0.len() >= MAX_LEFT_OUT - REASONS && !self.0.contains_key(&key) {
            key.1 = None;
        }
        *self.0.entry(key).or_default() += files;
    }

    /// How many there are.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// The counts, by reason and extension.
    pub fn iter(&self) -> impl Iterator<Item = (LeftOutReason, Option<&str>, usize)> {
        self.0.iter().map(|((reason, extension), files)| (*reason, extension.as_deref(), *files))
    }

    /// The extensions that nothing reads here, those of archives among them.
    pub fn extensions(&self) -> BTreeSet<&str> {
        self.iter().filter_map(|(_, extension, _)| extension).collect()
    }

    /// As events carry it.
    pub fn rows(&self) -> Vec<LeftOut> {
        let row = |(reason, extension, files): (LeftOutReason, Option<&str>, usize)| LeftOut {
            reason: reason.code().to_owned(),
            extension: extension.map(str::to_owned),
            files: i64::try_from(files).unwrap_or(i64::MAX),
        };
        self.iter().map(row).collect()
    }
}

/// How many reasons there are.
const REASONS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_files_of_many_extensions_when_counted_then_all_count_and_the_names_are_bounded() {
        let mut left_out = LeftOutFiles::default();
        left_out.add(LeftOutReason::NoReader, Some("DOC"), 1);
        left_out.add(LeftOutReason::NoReader, Some("doc"), 2);
        left_out.add(LeftOutReason::Link, None, 0);
        assert_eq!(left_out.iter().collect::<Vec<_>>(), [(LeftOutReason::NoReader, Some(".doc"), 3)]);
        for number in 0..1_000 {
            left_out.add(LeftOutReason::NoReader, Some(&format!("x{number}")), 1);
        }
        left_out.add(LeftOutReason::NoReader, Some(&"long".repeat(50)), 1);
        for reason in [LeftOutReason::Archive, LeftOutReason::Link, LeftOutReason::BeyondLimit] {
            left_out.add(reason, None, 5);
        }
        assert_eq!(left_out.total(), 3 + 1_000 + 1 + 15);
        let rows = left_out.rows();
        assert!(rows.len() <= MAX_LEFT_OUT, "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.files).sum::<i64>(), 1_019);
        assert!(rows.contains(&LeftOut { reason: "beyond_limit".into(), extension: None, files: 5 }));
        assert!(rows.contains(&LeftOut { reason: "no_reader".into(), extension: Some(".doc".into()), files: 3 }));
    }
}
