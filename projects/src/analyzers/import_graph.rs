//! Which file imports which, and where that goes around in a circle. Files of Python, JavaScript and TypeScript that import each other
//! when they are loaded work only in some orders; packages of Go that do are not built ([`go_imports`]). Modules of Rust may name each
//! other as they like ([`rust_imports`]): of them there is only the graph.

use std::collections::{BTreeMap, BTreeSet};

use super::python_packages::is_stdlib;
use super::snapshot::Snapshot;
use super::{go_imports, rust_imports, script_imports};
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::imports::Imports;
use crate::language::Language;
use crate::python::{Import, Module};

pub(super) const TOOL: &str = "imports";
/// Its one rule.
pub(super) const CIRCLE: &str = "import-cycle";
/// Folders within each other in which modules of Python are looked for.
const MAX_ROOTS: usize = 32;
/// Files of a circle that a message names.
const MAX_NAMED: usize = 6;

/// What is imported, with the line where it is first.
pub(super) type Targets<'f> = BTreeMap<&'f str, usize>;
pub(super) type Graph<'f> = BTreeMap<&'f str, Targets<'f>>;

/// Circles, and the whole graph.
pub(super) fn analyze(snapshot: &Snapshot<'_>) -> (Vec<Finding>, Imports) {
    let mut graph = loaded(snapshot);
    let mut found: Vec<Finding> = circles(&graph).into_iter().map(|circle| finding(&circle, &graph)).collect();
    let (of_go, packages) = go_imports::analyze(snapshot);
    found.extend(of_go);
    graph.extend(packages);
    graph.extend(rust_imports::graph(snapshot));
    (found, Imports::new(graph.iter().map(|(file, targets)| (*file, targets.keys().copied()))))
}

fn finding(circle: &BTreeSet<&str>, graph: &Graph<'_>) -> Finding {
    // A circle has members, and each member imports another.
    let first = circle.first().copied().unwrap_or_default();
    let line = graph
        .get(first)
        .and_then(|targets| targets.iter().find(|(target, _)| circle.contains(*target)))
        .map_or(1, |(_, line)| *line);
    let message = format!("these import each other when they are loaded: {}", shown(circle));
    let fix = "move what both need into a file of its own, or import within the function";
    let others = circle.iter().skip(1).map(|path| (*path).to_owned());
    Finding::new((TOOL, CIRCLE, Severity::Low), (first, line, 1), message, fix).with_others(others)
}

/// The members of a circle for people.
pub(super) fn shown(circle: &BTreeSet<&str>) -> String {
    let names: Vec<&str> = circle.iter().copied().take(MAX_NAMED).collect();
    let more = circle.len().saturating_sub(MAX_NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.join(", "))
}

/// What files of Python, JavaScript and TypeScript import when they are loaded.
fn loaded<'f>(snapshot: &Snapshot<'f>) -> Graph<'f> {
    let mut graph = Graph::new();
    for file in snapshot.in_language(|language| language.is_script() || language == Language::Python) {
        let (path, language, source) = (file.path, file.language, file.bytes);
        let targets: &mut Targets<'_> = graph.entry(path).or_default();
        let found = if language.is_script() {
            let Some(tree) = file.tree() else { continue };
            script_imports::targets(path, (language, tree.root_node()), source, snapshot.files())
        } else {
            let Some(module) = file.module() else { continue };
            of_python(path, &module, snapshot.files())
        };
        for (target, line) in found.into_iter().filter(|(target, _)| *target != path) {
            targets.entry(target).or_insert(line);
        }
    }
    graph
}

/// The files that statements of the outermost level import, with their lines.
fn of_python<'f>(path: &str, module: &Module<'_>, files: &'f Files) -> Vec<(&'f str, usize)> {
    let mut found = Vec::new();
    // What stands within functions, `try` and `if TYPE_CHECKING` is not loaded at once, or need not be.
    for import in module.imports.iter().filter(|import| import.is_outermost && !import.is_future) {
        let line = module.line(import.range.start());
        let names = imported(import, module);
        found.extend(names.iter().filter_map(|name| resolve(name, path, files)).map(|target| (target, line)));
    }
    found
}

/// Names of modules that a statement imports: for `from a import b` both `a.b` and, behind it, `a`.
fn imported(import: &Import, module: &Module<'_>) -> Vec<Vec<String>> {
    let names = import.names.iter().map(|one| module.text(one.name));
    let Some(from) = import.from.map(|from| module.text(from)) else {
        return names.map(|name| vec![name.to_owned()]).collect();
    };
    let joint = if from.ends_with('.') { "" } else { "." };
    let mut found: Vec<Vec<String>> = names.map(|name| vec![format!("{from}{joint}{name}"), from.to_owned()]).collect();
    if found.is_empty() {
        found.push(vec![from.to_owned()]);
    }
    found
}

/// The first of these names that is a file of the copy.
fn resolve<'f>(names: &[String], from: &str, files: &'f Files) -> Option<&'f str> {
    names.iter().find_map(|name| {
        let dots = name.len() - name.trim_start_matches('.').len();
        let below = name[dots..].replace('.', "/");
        let folders: Vec<&str> = from.split('/').collect();
        let folders = &folders[..folders.len() - 1];
        if dots > 0 {
            let depth = folders.len().checked_sub(dots - 1)?;
            return file(&folders[..depth], &below, files);
        }
        // A folder with `__init__.py` is imported by its name, and what is in it is no module by itself: within one `import logging` is
        // Python's, though it may stand beside a `logging.py`.
        let is_package = |depth: usize| file(&folders[..depth], "__init__", files).is_some();
        let top = name.split('.').next().unwrap_or_default().to_lowercase();
        if is_stdlib(&top) && is_package(folders.len()) {
            return None;
        }
        // The root of imports is not known: the outermost folder that has such a file is taken.
        let mut roots = (0..=folders.len().min(MAX_ROOTS)).filter(|depth| !is_package(*depth));
        roots.find_map(|depth| file(&folders[..depth], &below, files))
    })
}

fn file<'f>(folders: &[&str], below: &str, files: &'f Files) -> Option<&'f str> {
    let parts: Vec<&str> = folders.iter().copied().chain((!below.is_empty()).then_some(below)).collect();
    let base = parts.join("/");
    let places = [format!("{base}.py"), format!("{base}/__init__.py")];
    places.iter().find_map(|place| files.get_key_value(place)).map(|(path, _)| path.as_str())
}

/// Sets of more than one member, each of which leads to each other (strongly connected components; Kosaraju and Sharir 1981).
pub(super) fn circles<'f>(graph: &Graph<'f>) -> Vec<BTreeSet<&'f str>> {
    let mut back: BTreeMap<&'f str, Vec<&'f str>> = BTreeMap::new();
    for (path, targets) in graph {
        for target in targets.keys() {
            back.entry(*target).or_default().push(*path);
        }
    }
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    for start in graph.keys() {
        let mut open = vec![(*start, false)];
        while let Some((path, is_done)) = open.pop() {
            if is_done {
                order.push(path);
            } else if seen.insert(path) {
                open.push((path, true));
                let targets = graph.get(path).into_iter().flat_map(|targets| targets.keys());
                open.extend(targets.map(|target| (*target, false)));
            }
        }
    }
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for start in order.into_iter().rev() {
        let mut circle = BTreeSet::new();
        let mut open = vec![start];
        while let Some(path) = open.pop() {
            if taken.insert(path) {
                circle.insert(path);
                open.extend(back.get(path).into_iter().flatten().copied());
            }
        }
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<(String, usize, String)> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        analyze(&Snapshot::new(&files)).0.into_iter().map(|one| (one.file, one.line, one.message)).collect()
    }

    #[test]
    fn given_files_that_import_each_other_in_any_form_when_they_are_looked_at_then_each_circle_is_one_finding() {
        for (a, b) in [
            ("import b\n", "import a\n"),
            ("from b import x\n", "from a import y\n"),
            ("import b as c\n", "from . import a\n"),
            ("from .b import *\n", "from .a import x as y, z\n"),
        ] {
            let found = cycles(&[("a.py", a), ("b.py", b), ("c.py", "import a\n")]);
            assert_eq!(found.len(), 1, "{a} {b}: {found:?}");
            assert!(found[0].0 == "a.py" && found[0].1 == 1 && found[0].2.ends_with("a.py, b.py"), "{found:?}");
        }
        let package = cycles(&[
            ("src/p/__init__.py", ""),
            ("src/p/a.py", "import os\nfrom p.b import x\n"),
            ("src/p/b.py", "from p import c\n"),
            ("src/p/c.py", "from . import a\n"),
        ]);
        assert_eq!(package.len(), 1, "{package:?}");
        assert_eq!((package[0].0.as_str(), package[0].1), ("src/p/a.py", 2));
    }

    #[test]
    fn given_packages_with_files_called_as_other_modules_when_they_import_those_then_there_is_no_circle() {
        for import in ["import logging\n", "from logging import getLogger\n", "import helper\n"] {
            for (folder, init) in [("pkg", "pkg/__init__.py"), ("src/pkg", "src/pkg/__init__.py")] {
                let (core, logging, helper) =
                    (format!("{folder}/core.py"), format!("{folder}/logging.py"), format!("{folder}/helper.py"));
                let back = "from . import core\n";
                let files = [(init, ""), (core.as_str(), import), (logging.as_str(), back), (helper.as_str(), back)];
                assert!(cycles(&files).is_empty(), "{folder} {import}");
                // A script's own folder goes before Python's modules.
                let back = "import core\n";
                let scripts = [(core.as_str(), import), (logging.as_str(), back), (helper.as_str(), back)];
                assert_eq!(cycles(&scripts).len(), 1, "{folder} {import}");
            }
        }
        let absolute =
            [("pkg/__init__.py", ""), ("pkg/a.py", "from pkg.types import x\n"), ("pkg/types.py", "import pkg.a\n")];
        assert_eq!(cycles(&absolute).len(), 1, "by its whole name it is found");
    }

    #[test]
    fn given_scripts_that_import_each_other_when_they_are_looked_at_then_each_circle_is_one_finding() {
        let found = cycles(&[
            ("src/a.ts", "import x from 'react';\nimport { b } from './b';\n"),
            ("src/b.ts", "export * from './c/index.js';\n"),
            ("src/c/index.ts", "const a = require('../a');\n"),
            ("src/d.ts", "import { a } from './a';\n"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].0.as_str(), found[0].1), ("src/a.ts", 2));
        assert!(cycles(&[("a.js", "import './b';\n"), ("b.js", "function f() { require('./a'); }\n")]).is_empty());
    }

    #[test]
    fn given_files_that_import_others_when_they_are_looked_at_then_the_graph_has_each_with_what_it_imports() {
        let files = [
            ("a.py", "import os\nimport p.b\nfrom p import c\n"),
            ("p/__init__.py", ""),
            ("p/b.py", "from . import c\n"),
            ("p/c.py", ""),
            ("w/x.ts", "import { y } from './y';\n"),
            ("w/y.ts", "export const y = 1;\n"),
            ("go.mod", "module m\n"),
            ("g.go", "package m\nimport \"m/part\"\n"),
            ("part/h.go", "package part\n"),
            ("Cargo.toml", "[package]\nname = \"r\"\nedition = \"2021\"\n"),
            ("src/lib.rs", "mod k;\npub fn f() {}\n"),
            ("src/k.rs", "use crate::f;\n"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.into()));
        let (found, graph) = analyze(&Snapshot::new(&Files::from(files)));
        assert!(found.is_empty(), "modules of Rust may name each other: {found:?}");
        let shown: Vec<(&str, String)> =
            graph.files.iter().map(|one| (one.file.as_str(), one.imports.join(" "))).collect();
        let expected = [
            ("a.py", "p/b.py p/c.py"),
            ("g.go", "part/"),
            ("p/b.py", "p/c.py"),
            ("src/k.rs", "src/lib.rs"),
            ("src/lib.rs", "src/k.rs"),
            ("w/x.ts", "w/y.ts"),
        ];
        assert_eq!(shown, expected.map(|(file, imports)| (file, imports.to_owned())));
        assert_eq!((graph.count, graph.truncated), (7, false));
    }

    #[test]
    fn given_imports_that_go_one_way_or_wait_when_they_are_looked_at_then_there_is_no_circle() {
        for b in [
            "import os\n",
            "def f():\n    import a\n",
            "if TYPE_CHECKING:\n    import a\n",
            "import b\n",
            "from ....a import x\n",
        ] {
            assert!(cycles(&[("a.py", "import b\n"), ("b.py", b)]).is_empty(), "{b}");
        }
    }
}
