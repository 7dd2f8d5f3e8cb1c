//! Manifests of packages that do not parse: which packages they declare, and under which licence the project is, is not known then.

use super::is_vendored;
use super::limits::MAX_MANIFEST;
use crate::copy::Files;
use crate::data_format::{DataFormat, ParseError};
use crate::finding::{Finding, Severity};

/// Those with a format of data. `setup.py` is a source, and the others are read line by line.
const MANIFESTS: [&str; 4] = ["package.json", "Cargo.toml", "pyproject.toml", "Pipfile"];

/// One finding for each, where its parser ends.
pub(super) fn analyze(tool: &str, files: &Files) -> Vec<Finding> {
    let own = files.iter().filter(|(path, content)| is_manifest(path) && content.len() <= MAX_MANIFEST);
    let broken = own.filter_map(|(path, content)| Some((path, DataFormat::of(path)?.error(content)?)));
    let finding = |(path, error): (&String, ParseError)| {
        let rule = (tool, "manifest-does-not-parse", Severity::High);
        let message = format!("the manifest does not parse, so that what it declares is not known: {}", error.reason);
        Finding::new(rule, (path.as_str(), error.line, error.column), message, "correct the syntax")
    };
    broken.map(finding).collect()
}

fn is_manifest(path: &str) -> bool {
    MANIFESTS.contains(&path.rsplit('/').next().unwrap_or(path)) && !is_vendored(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_manifests_of_each_format_when_they_do_not_parse_then_each_is_one_finding_with_the_parsers_line_and_words()
    {
        for (path, text, line) in [
            ("package.json", "{\"name\": \"m\", \"dependencies\": {\"lodash\": \"*\"}", Some(1)),
            ("web/package.json", "{\n\"name\": \"m\",\n}", Some(3)),
            ("pyproject.toml", "[project", Some(1)),
            ("Cargo.toml", "[package]\nname = m\n", Some(2)),
            ("a/Pipfile", "[packages]\nflask = *\n", Some(2)),
            ("Cargo.toml", "[package]\nname = \"m\"\n", None),
            ("package.json", "[]", None),
            ("data.json", "{", None),
            ("vendor/a/Cargo.toml", "[package", None),
        ] {
            let files = Files::from([(path.to_owned(), text.to_owned().into())]);
            let found = analyze("dependencies", &files);
            assert_eq!(found.first().map(|one| one.line), line, "{path} {text}: {found:?}");
            assert!(found.iter().all(|one| one.severity == Severity::High && one.file == path), "{found:?}");
        }
        let files = Files::from([("package.json".to_owned(), "{".into())]);
        let found = analyze("dependencies", &files);
        assert_eq!(found[0].rule, "manifest-does-not-parse");
        assert!(found[0].message.ends_with("is not known: EOF while parsing an object"), "{}", found[0].message);
    }
}
