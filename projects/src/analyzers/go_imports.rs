//! Which package of the copy a file of Go imports, and packages that import each other, which Go does not build.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use super::import_graph::{CIRCLE, Graph, TOOL, circles, shown};
use super::snapshot::Snapshot;
use super::undeclared_go::{is_conditional, is_outside, modules, own_module};
use crate::finding::{Finding, Severity};
use crate::language::{Language, each, named, text};

/// The package at the top of a project.
const TOP: &str = "./";
/// Systems and processors: a file with one of them at the end of its name is for those alone (`go help buildconstraint`).
const BUILDS: [&str; 36] = [
    "aix",
    "android",
    "darwin",
    "dragonfly",
    "freebsd",
    "hurd",
    "illumos",
    "ios",
    "js",
    "linux",
    "nacl",
    "netbsd",
    "openbsd",
    "plan9",
    "solaris",
    "wasip1",
    "windows",
    "zos",
    "386",
    "amd64",
    "arm",
    "arm64",
    "loong64",
    "mips",
    "mips64",
    "mips64le",
    "mipsle",
    "ppc",
    "ppc64",
    "ppc64le",
    "riscv",
    "riscv64",
    "s390",
    "s390x",
    "sparc64",
    "wasm",
];

/// Where a package imports another: the first file that does, and its line.
type Places<'f> = BTreeMap<(&'f str, &'f str), (&'f str, usize)>;

/// Circles of packages, and of each file the packages that it imports.
pub(super) fn analyze<'f>(snapshot: &Snapshot<'f>) -> (Vec<Finding>, Graph<'f>) {
    let manifests = modules(snapshot.files());
    let mut graph = Graph::new();
    if manifests.is_empty() {
        return (Vec::new(), graph);
    }
    let own: BTreeMap<&str, &str> =
        manifests.iter().filter_map(|(folder, words)| Some((own_module(words)?, folder.as_str()))).collect();
    let sources = || snapshot.in_language(|language| language == Language::Go).filter(|one| !is_outside(one.path));
    let packages: BTreeSet<&'f str> = sources().map(|one| package(one.path)).collect();
    let mut built = Graph::new();
    let mut places = Places::new();
    for file in sources() {
        let (path, from) = (file.path, package(file.path));
        let Some(tree) = file.tree() else { continue };
        let is_always_built = !is_for_some(path) && !is_conditional(file.bytes);
        for (name, line) in imported(tree.root_node(), file.bytes) {
            let target = folder_of(name, &own).and_then(|folder| packages.get(folder.as_str()).copied());
            let Some(target) = target.filter(|target| *target != from) else { continue };
            graph.entry(path).or_default().entry(target).or_insert(line);
            if is_always_built {
                built.entry(from).or_default().entry(target).or_insert(line);
                places.entry((from, target)).or_insert((path, line));
            }
        }
    }
    let found = circles(&built).into_iter().filter_map(|circle| finding(&circle, &places)).collect();
    (found, graph)
}

fn finding(circle: &BTreeSet<&str>, places: &Places<'_>) -> Option<Finding> {
    let within = places.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
    let mut within: Vec<(&str, usize)> = within.map(|(_, place)| *place).collect();
    within.dedup_by_key(|(file, _)| *file);
    let (file, line) = *within.first()?;
    let message = format!("these packages import each other, which Go does not build: {}", shown(circle));
    let fix = "move what both need into a package of its own, or hand it in as an interface";
    let others = within.iter().skip(1).map(|(other, _)| (*other).to_owned());
    Some(Finding::new((TOOL, CIRCLE, Severity::High), (file, line, 1), message, fix).with_others(others))
}

/// The folder of a file's package as the graph has it.
fn package(path: &str) -> &str {
    path.rfind('/').map_or(TOP, |end| &path[..=end])
}

/// What a file imports, each with its line.
fn imported<'s>(root: Node<'_>, source: &'s [u8]) -> Vec<(&'s str, usize)> {
    let mut found = Vec::new();
    for declaration in named(root).into_iter().filter(|node| node.kind() == "import_declaration") {
        each(declaration, |node| {
            let path = node.child_by_field_name("path").filter(|_| node.kind() == "import_spec");
            let line = node.start_position().row + 1;
            found.extend(path.map(|path| (text(path, source).trim_matches(['"', '`']), line)));
        });
    }
    found
}

/// The folder of an imported package, where a module of the copy has it: the one with the longest name.
fn folder_of(name: &str, modules: &BTreeMap<&str, &str>) -> Option<String> {
    let above = |one: &&str| one.rfind('/').map(|end| &name[..end]);
    let (module, folder) =
        std::iter::successors(Some(name), above).find_map(|one| modules.get(one).map(|folder| (one, *folder)))?;
    let rest = name[module.len()..].trim_start_matches('/');
    Some(match (folder, rest) {
        ("", "") => TOP.to_owned(),
        (_, "") => folder.to_owned(),
        _ => format!("{folder}{rest}/"),
    })
}

/// Whether a file is a test or, by its name, for some systems or processors alone. Tests may import what imports their package.
fn is_for_some(path: &str) -> bool {
    let stem = path.rsplit('/').next().and_then(|name| name.strip_suffix(".go")).unwrap_or_default();
    stem.rsplit_once('_').is_some_and(|(_, last)| last == "test" || BUILDS.contains(&last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Files;

    const MODULE: (&str, &str) = ("go.mod", "module example.org/me\n\ngo 1.22\n");

    /// Circles as `file:line message`, and edges as `from:line to`.
    fn analyzed(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        let (found, graph) = analyze(&Snapshot::new(&files));
        let edges = graph
            .iter()
            .flat_map(|(from, targets)| targets.iter().map(move |(to, line)| format!("{from}:{line} {to}")));
        let found = found.iter().map(|one| {
            assert_eq!((one.rule.as_str(), one.severity), (CIRCLE, Severity::High));
            format!("{}:{} {}", one.file, one.line, one.message.rsplit(": ").next().unwrap())
        });
        (found.collect(), edges.collect())
    }

    #[test]
    fn given_imports_of_each_form_when_they_are_followed_then_the_folders_of_packages_of_the_copy_are_found() {
        let text = "package main\n\nimport \"fmt\"\nimport (\n\t_ \"example.org/me\"\n\ts `example.org/me/in/store`\n\t\"example.org/part/x\"\n\
                    \t. \"example.org/part\"\n\t\"example.org/me/nowhere\"\n\t\"example.org/men\"\n\t\"github.com/a/b\"\n)\n";
        let (circles, edges) = analyzed(&[
            MODULE,
            ("part/go.mod", "module \"example.org/part\" // by itself\n"),
            ("a.go", "package me\n"),
            ("cmd/main.go", text),
            ("in/store/s.go", "package store\n"),
            ("part/p.go", "package part\n"),
            ("part/x/x.go", "package x\n"),
            ("vendor/github.com/a/b/b.go", "package b\n\nimport \"example.org/me\"\n"),
            ("testdata/t.go", "package t\n\nimport \"example.org/me\"\n"),
        ]);
        let expected = ["cmd/main.go:5 ./", "cmd/main.go:6 in/store/", "cmd/main.go:8 part/", "cmd/main.go:7 part/x/"];
        assert_eq!((circles, edges), (vec![], expected.map(str::to_owned).to_vec()));
        let (_, edges) = analyzed(&[("cmd/main.go", text), ("a.go", "package me\n")]);
        assert!(edges.is_empty(), "there is no module");
    }

    #[test]
    fn given_packages_that_import_each_other_when_they_are_looked_at_then_each_circle_is_one_finding_where_it_begins() {
        let importing = |package: &str| format!("package p\n\nimport \"example.org/me/{package}\"\n");
        let (to_a, to_b, to_c) = (importing("a"), importing("b"), importing("c"));
        let (circles, edges) = analyzed(&[
            MODULE,
            ("a/plain.go", "package a\n"),
            ("a/z.go", to_b.as_str()),
            ("b/b.go", to_c.as_str()),
            ("c/c.go", to_a.as_str()),
            ("d/d.go", to_a.as_str()),
        ]);
        assert_eq!(circles, ["a/z.go:3 a/, b/, c/"]);
        assert_eq!(edges.len(), 4, "{edges:?}");
    }

    #[test]
    fn given_imports_of_tests_and_of_some_builds_when_they_go_around_then_there_is_no_circle_but_they_are_in_the_graph()
    {
        let to_b = "package a\n\nimport \"example.org/me/b\"\n";
        for (path, text) in [
            ("a/a_test.go", to_b.to_owned()),
            ("a/a_windows.go", to_b.to_owned()),
            ("a/a_linux_arm64.go", to_b.to_owned()),
            ("a/a.go", format!("//go:build tools\n\n{to_b}")),
        ] {
            let files = [
                MODULE,
                (path, text.as_str()),
                ("a/p.go", "package a\n"),
                ("b/b.go", "package b\n\nimport \"example.org/me/a\"\n"),
            ];
            let (circles, edges) = analyzed(&files);
            assert!(circles.is_empty() && edges.len() == 2, "{path} {circles:?} {edges:?}");
        }
        let itself = "package a_test\n\nimport \"example.org/me/a\"\n";
        let (circles, edges) = analyzed(&[MODULE, ("a/a.go", "package a\n"), ("a/a_test.go", itself)]);
        assert!(circles.is_empty() && edges.is_empty(), "a package that its own test imports is no other one");
    }
}
