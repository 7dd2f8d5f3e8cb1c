//! How much analyzers read. What is larger is generated or data; each says how many files it left out for that.

use riverrun_schemas::counted;

use super::{dead_code, secrets};
use crate::copy::Files;
use crate::language::Language;

/// A file larger than this is not parsed: 2 MiB.
pub(super) const MAX_PARSED: usize = 2 << 20;
/// A file larger than this is not looked through for secrets: 4 MiB.
pub(super) const MAX_SCANNED: usize = 4 << 20;

/// A manifest that is larger is not read for what it declares: 256 KiB. Each package of it is looked for in its lines.
pub(super) const MAX_MANIFEST: usize = 256 << 10;
/// Manifests whose packages are looked for in their lines.
const MANIFESTS: [&str; 5] = ["package.json", "Cargo.toml", "go.mod", "pyproject.toml", "Pipfile"];

/// Which files an analyzer reads, when they are not larger than so many bytes.
struct Limit {
    tool: &'static str,
    bytes: usize,
    reads: fn(&str, &[u8]) -> bool,
}

const LIMITS: &[Limit] = &[
    Limit { tool: "syntax", bytes: MAX_PARSED, reads: |path, _| Language::of(path).is_some() },
    Limit { tool: "dead-code", bytes: MAX_PARSED, reads: |path, _| dead_code::is_read(path) },
    Limit { tool: "dependencies", bytes: MAX_PARSED, reads: |path, _| Language::of(path).is_some() },
    Limit {
        tool: "dependencies",
        bytes: MAX_MANIFEST,
        reads: |path, _| MANIFESTS.contains(&path.rsplit('/').next().unwrap_or(path)),
    },
    Limit { tool: "leakage", bytes: MAX_PARSED, reads: |path, _| Language::of(path) == Some(Language::Python) },
    Limit { tool: "imports", bytes: MAX_PARSED, reads: |path, _| Language::of(path).is_some() },
    Limit { tool: "secrets", bytes: MAX_SCANNED, reads: secrets::is_read },
];

impl Limit {
    fn told(&self, files: &Files) -> Option<String> {
        let is_left_out = |path: &str, content: &[u8]| content.len() > self.bytes && (self.reads)(path, content);
        let count = files.iter().filter(|(path, content)| is_left_out(path, content)).count();
        let (size, unit) = if self.bytes < 1 << 20 { (self.bytes >> 10, "KiB") } else { (self.bytes >> 20, "MiB") };
        (count > 0).then(|| format!("{} left out: larger than {size} {unit}", counted(count, "file")))
    }
}

/// What an analyzer has to say of files that are too large for it; nothing where there are none.
pub(super) fn too_large(tool: &str, files: &Files) -> Option<String> {
    let own = LIMITS.iter().filter(|limit| limit.tool == tool);
    let told: Vec<String> = own.filter_map(|limit| limit.told(files)).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_files_over_the_limits_when_analyzers_are_asked_then_each_counts_those_that_it_would_read() {
        let of_size = |bytes: usize| vec![b'\n'; bytes];
        let binary = [vec![0], of_size(MAX_SCANNED)].concat();
        let files: Files = [
            ("a.py", of_size(MAX_PARSED)),
            ("b.py", of_size(MAX_PARSED + 1)),
            ("c.js", of_size(MAX_SCANNED + 1)),
            ("d.go", of_size(MAX_PARSED + 1)),
            ("e.csv", of_size(MAX_SCANNED + 1)),
            ("f.json", of_size(MAX_PARSED + 1)),
            ("g.png", binary),
            ("h/go.mod", of_size(MAX_MANIFEST)),
            ("i/go.mod", of_size(MAX_MANIFEST + 1)),
        ]
        .into_iter()
        .map(|(path, content)| (path.to_owned(), content.into()))
        .collect();
        for (tool, expected) in [
            ("syntax", Some("3 files left out: larger than 2 MiB")),
            ("dead-code", Some("4 files left out: larger than 2 MiB")),
            ("dependencies", Some("3 files left out: larger than 2 MiB; 1 file left out: larger than 256 KiB")),
            ("leakage", Some("1 file left out: larger than 2 MiB")),
            ("imports", Some("3 files left out: larger than 2 MiB")),
            ("secrets", Some("2 files left out: larger than 4 MiB")),
            ("licences", None),
        ] {
            assert_eq!(too_large(tool, &files).as_deref(), expected, "{tool}");
        }
        assert_eq!(too_large("syntax", &Files::new()), None);
    }
}
