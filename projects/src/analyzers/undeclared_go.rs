//! Packages that Go files import and that no module of the `go.mod` above them has. Files that a build may leave out (build
//! constraints, `testdata`, names with `_` or `.` before them) are not looked at.

use std::collections::{BTreeMap, BTreeSet};

use super::is_vendored;
use super::snapshot::Snapshot;
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::language::{Language, each, text};

/// Imports that nothing declared has, at the first place of each below a `go.mod`.
pub(super) fn undeclared(tool: &str, snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let modules = modules(snapshot.files());
    if modules.is_empty() {
        return Vec::new();
    }
    let own: BTreeSet<&str> = modules.values().filter_map(|words| own_module(words)).collect();
    let words: BTreeMap<&str, BTreeSet<&str>> =
        modules.iter().map(|(folder, words)| (folder.as_str(), words.iter().map(String::as_str).collect())).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for file in snapshot.in_language(|language| language == Language::Go) {
        let (path, source) = (file.path, file.bytes);
        if is_left_out(path, source) {
            continue;
        }
        // Of folders that are each within the other the longest is the last.
        let above = words.iter().rfind(|(folder, _)| path.starts_with(**folder));
        let Some((folder, words)) = above else { continue };
        let Some(tree) = file.tree() else { continue };
        each(tree.root_node(), |node| {
            let name = node.child_by_field_name("path").filter(|_| node.kind() == "import_spec");
            let Some(package) = name.map(|name| text(name, source).trim_matches(['"', '`'])) else { return };
            // What has no point before its first slash belongs to Go itself.
            let is_foreign = package.split('/').next().is_some_and(|host| host.contains('.') && !host.starts_with('.'));
            let is_known = modules_of(package).any(|module| words.contains(module) || own.contains(module));
            if !is_foreign || is_known || !seen.insert((*folder, package.to_owned())) {
                return;
            }
            let rule = (tool, "undeclared-dependency", Severity::Medium);
            let message = format!("{package} is imported and {folder}go.mod requires no module that has it");
            let place = (path, node.start_position().row + 1, 1);
            found.push(Finding::new(rule, place, message, format!("require it: go get {package}")));
        });
    }
    found
}

/// The words of each `go.mod`, by its folder with `/` at the end: whatever stands there may be a module that is there.
pub(super) fn modules(files: &Files) -> BTreeMap<String, Vec<String>> {
    let read = |(path, content): (&String, &bytes::Bytes)| {
        let folder = path.strip_suffix("go.mod").filter(|folder| folder.is_empty() || folder.ends_with('/'))?;
        let said = std::str::from_utf8(content).ok()?;
        let lines = said.lines().map(|line| line.split("//").next().unwrap_or_default());
        let words =
            lines.flat_map(str::split_whitespace).map(|word| word.trim_matches(['"', '`', '(', ')']).to_owned());
        Some((folder.to_owned(), words.filter(|word| !word.is_empty()).collect::<Vec<String>>()))
    };
    files.iter().filter(|(path, _)| !is_vendored(path)).filter_map(read).collect()
}

/// What the module calls itself.
pub(super) fn own_module(words: &[String]) -> Option<&str> {
    let at = words.iter().position(|word| word == "module")?;
    words.get(at + 1).map(String::as_str)
}

/// The modules that may have a package: itself, and whatever stands before one of its slashes.
fn modules_of(package: &str) -> impl Iterator<Item = &str> {
    std::iter::once(package).chain(package.match_indices('/').map(|(at, _)| &package[..at]))
}

fn is_left_out(path: &str, source: &[u8]) -> bool {
    is_outside(path) || is_conditional(source)
}

/// Whether Go passes over a file when it is asked for all packages, or it is another one's.
pub(super) fn is_outside(path: &str) -> bool {
    let is_ignored = |part: &str| part == "testdata" || part.starts_with(['_', '.']);
    is_vendored(path) || path.split('/').any(is_ignored)
}

/// Whether a file says for which builds it is.
pub(super) fn is_conditional(source: &[u8]) -> bool {
    let has_constraint = |line: &str| line.starts_with("//go:build") || line.starts_with("// +build");
    String::from_utf8_lossy(source).lines().any(has_constraint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: (&str, &str) = (
        "go.mod",
        "module example.org/me\n\ngo 1.22\n\nrequire (\n\tgithub.com/a/b v1.0.0\n\tgopkg.in/y.v3 v3.0.1 // indirect\n)\n\nreplace old.org/x => ../x\n",
    );

    fn places(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        undeclared("dependencies", &Snapshot::new(&files)).into_iter().map(|one| (one.file, one.line)).collect()
    }

    #[test]
    fn given_imports_when_a_go_mod_is_above_then_those_of_modules_that_it_does_not_have_are_found() {
        for (package, is_found) in [
            ("github.com/a/b", false),
            ("github.com/a/b/part", false),
            ("github.com/a/bc", true),
            ("github.com/c/d", true),
            ("gopkg.in/y.v3", false),
            ("gopkg.in/y.v2", true),
            ("old.org/x/part", false),
            ("example.org/me/part", false),
            ("fmt", false),
            ("net/http", false),
            ("C", false),
            ("./part", false),
        ] {
            for text in [
                format!("package a\n\nimport \"{package}\"\n"),
                format!("package a\n\nimport (\n\tz \"{package}\"\n)\n"),
                format!("package a\n\nimport _ `{package}`\n"),
            ] {
                let found = places(&[MANIFEST, ("cmd/a.go", text.as_str())]);
                assert_eq!(found.len(), usize::from(is_found), "{text}");
                assert!(found.iter().all(|(file, line)| file == "cmd/a.go" && *line >= 3), "{found:?}");
            }
        }
    }

    #[test]
    fn given_files_that_a_build_leaves_out_or_without_a_go_mod_when_they_are_looked_at_then_nothing_is_found() {
        let text = "package a\n\nimport \"github.com/c/d\"\n";
        for path in ["testdata/a.go", "_old/a.go", ".x/a.go", "vendor/github.com/e/a.go", "_a.go"] {
            assert!(places(&[MANIFEST, (path, text)]).is_empty(), "{path}");
        }
        let ignored = format!("//go:build ignore\n\n{text}");
        assert!(places(&[MANIFEST, ("a.go", ignored.as_str())]).is_empty());
        assert!(places(&[("a.go", text)]).is_empty());
        assert!(places(&[MANIFEST, ("a.go", "package a\n\nvar x = \"github.com/c/d\"\n")]).is_empty());
    }

    #[test]
    fn given_several_modules_when_they_are_looked_at_then_the_nearest_counts_and_each_knows_the_others() {
        let part = ("part/go.mod", "module example.org/part\n");
        let text = "package a\n\nimport (\n\t\"example.org/me\"\n\t\"github.com/a/b\"\n)\n";
        assert_eq!(places(&[MANIFEST, part, ("part/a.go", text)]), [("part/a.go".to_owned(), 5)]);
        assert!(places(&[MANIFEST, part, ("party/a.go", text)]).is_empty());
        let twice = [MANIFEST, part, ("part/a.go", text), ("part/b.go", text)];
        assert_eq!(places(&twice).len(), 1, "each is told once");
    }
}
