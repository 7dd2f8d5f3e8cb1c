//! Which file of a Rust package names which: by `mod` and `use` within a crate, by `use` and `extern crate` in the libraries of other
//! packages of the copy. A circle of modules is nothing to Rust, and Cargo refuses one of packages: there is only a graph.

use std::collections::{BTreeMap, BTreeSet};

use super::import_graph::Graph;
use super::is_vendored;
use super::snapshot::Snapshot;
use crate::language::Language;
use packages::{Package, Places, libraries, manifests, package};
use read::{Begins, Declared, Facts, Use, child, read};

mod packages;
mod read;

/// Longest path that is followed, in bytes.
const MAX_PATH: usize = 1_000;
/// Modules and paths that are followed in all crates together. A file counts once in each crate that takes it in, so that an odd
/// project could ask for every file in every crate.
const MAX_STEPS: usize = 5_000_000;

/// The sources by their paths.
type Sources<'f> = BTreeMap<&'f str, Facts<'f>>;
/// The modules of a crate by their paths, its root by an empty one.
type Modules<'f> = BTreeMap<String, &'f str>;

/// A crate: where its modules are, and which module each of its files is.
struct Crate<'f> {
    modules: Modules<'f>,
    files: Vec<(&'f str, String)>,
}

/// Of each file those that it names. Files that no manifest of the copy leads to, and vendored ones, are left out.
pub(super) fn graph<'f>(snapshot: &Snapshot<'f>) -> Graph<'f> {
    let manifests = manifests(snapshot.files());
    let mut graph = Graph::new();
    if manifests.is_empty() {
        return graph;
    }
    let own = snapshot.in_language(|language| language == Language::Rust).filter(|one| !is_vendored(one.path));
    let sources: Sources<'f> = own.map(|one| (one.path, read(one))).collect();
    let packages: Vec<Package<'f>> =
        manifests.iter().filter_map(|(&folder, manifest)| package(folder, manifest, snapshot, &sources)).collect();
    let mut steps = MAX_STEPS;
    let mut crates = BTreeMap::new();
    for &root in packages.iter().flat_map(|package| &package.roots) {
        crates.entry(root).or_insert_with(|| of_root(root, &sources, &mut graph, &mut steps));
    }
    let places = Places::new(&packages);
    for package in &packages {
        let outside = libraries(package, &places, &manifests);
        let known = |name: &str| outside.get(name).and_then(|root| crates.get(root)).map(|found| &found.modules);
        for own in package.roots.iter().filter_map(|root| crates.get(root)) {
            for (file, module) in &own.files {
                let Some(facts) = sources.get(file) else { continue };
                let Some(left) = steps.checked_sub(facts.uses.len()) else { return graph };
                steps = left;
                for one in &facts.uses {
                    let target = resolve(one, module, (&own.modules, package.is_old), known);
                    if let Some(target) = target.filter(|target| target != file) {
                        graph.entry(*file).or_default().entry(target).or_insert(one.line);
                    }
                }
            }
        }
    }
    graph
}

/// Follows the modules of a crate from its root; their declarations become part of the graph.
fn of_root<'f>(root: &'f str, sources: &Sources<'f>, graph: &mut Graph<'f>, steps: &mut usize) -> Crate<'f> {
    let mut found = Crate { modules: Modules::from([(String::new(), root)]), files: Vec::new() };
    let mut seen = BTreeSet::from([root]);
    let mut open = vec![(root, String::new(), folder_of(root).to_owned())];
    while let Some((file, module, below)) = open.pop() {
        let Some(facts) = sources.get(file) else { continue };
        let Some(left) = steps.checked_sub(1 + facts.inline.len() + facts.declared.len()) else { break };
        *steps = left;
        for inline in &facts.inline {
            found.modules.entry(child(&module, inline)).or_insert(file);
        }
        for one in &facts.declared {
            let Some((target, below)) = place((file, below.as_str()), one, sources) else { continue };
            let name = child(&child(&module, &one.within), one.name);
            if target == file || name.len() > MAX_PATH {
                continue;
            }
            graph.entry(file).or_default().entry(target).or_insert(one.line);
            found.modules.entry(name.clone()).or_insert(target);
            if seen.insert(target) {
                open.push((target, name, below));
            }
        }
        found.files.push((file, module));
    }
    found
}

/// The file of a module, and the folder where its own are.
fn place<'f>((file, below): (&str, &str), one: &Declared<'f>, sources: &Sources<'f>) -> Option<(&'f str, String)> {
    let inner = one.within.replace("::", "/");
    let base = if inner.is_empty() { below.to_owned() } else { format!("{below}{inner}/") };
    if let Some(path) = one.path {
        // Outside of a body the path goes on from the file's folder, and what it names has its modules beside it.
        let base = if inner.is_empty() { folder_of(file) } else { base.as_str() };
        let target = known(&below_folder(base, path)?, sources)?;
        return Some((target, folder_of(target).to_owned()));
    }
    let below = format!("{base}{}/", one.name);
    let places = [format!("{base}{}.rs", one.name), format!("{below}mod.rs")];
    let target = places.iter().find_map(|place| known(place, sources))?;
    Some((target, below))
}

/// The file in which the last module of a path is that is one.
fn resolve<'m, 'f: 'm>(
    one: &Use<'f>,
    module: &str,
    (own, is_old): (&'m Modules<'f>, bool),
    outside: impl Fn(&str) -> Option<&'m Modules<'f>>,
) -> Option<&'f str> {
    let mut rest = one.names.as_slice();
    let mut at = child(module, &one.within);
    let first = *rest.first()?;
    let modules = match first {
        "crate" => {
            (rest, at) = (&rest[1..], String::new());
            own
        }
        "self" | "super" => {
            while let Some(word @ ("self" | "super")) = rest.first().copied() {
                if word == "super" {
                    if at.is_empty() {
                        return None;
                    }
                    at.truncate(at.rfind("::").unwrap_or(0));
                }
                rest = &rest[1..];
            }
            own
        }
        name => {
            let here = match (one.begins, is_old) {
                (Begins::Here, false) => Some(at),
                (Begins::Here | Begins::Outside, true) => Some(String::new()),
                (Begins::Outside, false) | (Begins::Crate, _) => None,
            };
            match here.filter(|here| own.contains_key(&child(here, name))) {
                Some(here) => {
                    at = here;
                    own
                }
                None => {
                    (rest, at) = (&rest[1..], String::new());
                    outside(name)?
                }
            }
        }
    };
    for name in rest {
        let next = child(&at, name);
        if !modules.contains_key(&next) {
            break;
        }
        at = next;
    }
    modules.get(&at).copied()
}

fn known<'f>(path: &str, sources: &Sources<'f>) -> Option<&'f str> {
    sources.get_key_value(path).map(|(path, _)| *path)
}

/// The folder of a file, with `/` at its end.
fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |end| &path[..=end])
}

/// A path that goes on from a folder; `None` when it leads out of the copy.
fn below_folder(folder: &str, path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Files;

    const PACKAGE: &str = "[package]\nname = \"my-own\"\nedition = \"2021\"\n";

    /// Each edge as `from:line to`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        let graph = graph(&Snapshot::new(&files));
        let shown = graph
            .iter()
            .flat_map(|(from, targets)| targets.iter().map(move |(to, line)| format!("{from}:{line} {to}")));
        shown.collect()
    }

    /// What one file of a crate with modules `a`, `a::b` and `c` names beside what the root declares.
    fn of_c(text: &str) -> Vec<String> {
        let all = edges(&[
            ("Cargo.toml", PACKAGE),
            ("src/lib.rs", "mod a;\nmod c;\nmod d { pub fn f() {} }\npub struct S;\n"),
            ("src/a.rs", "pub mod b;\n"),
            ("src/a/b.rs", "pub fn f() {}\n"),
            ("src/c.rs", text),
            ("src/c/e.rs", "pub fn f() {}\n"),
        ]);
        all.iter().filter_map(|edge| edge.strip_prefix("src/c.rs:").map(str::to_owned)).collect()
    }

    #[test]
    fn given_modules_in_files_when_they_are_looked_at_then_each_declaration_leads_to_its_file() {
        let found = edges(&[
            ("Cargo.toml", PACKAGE),
            ("src/lib.rs", "mod a;\n/// Says why.\npub(crate) mod b;\nmod gone;\nmod r#type;\n"),
            ("src/a.rs", "mod c;\nmod inner { mod d; }\n"),
            ("src/a/c.rs", ""),
            ("src/a/inner/d.rs", ""),
            ("src/b/mod.rs", "mod e;\n#[cfg(unix)]\n#[path = \"../other/f.rs\"]\n// for one system\nmod f;\nmod g;\n"),
            ("src/b/e.rs", ""),
            ("src/b/g.rs", ""),
            ("src/other/f.rs", "mod h;\n"),
            ("src/other/h.rs", ""),
            ("src/type.rs", ""),
            ("src/nobody.rs", "mod a;\n"),
        ]);
        let expected = [
            "src/a.rs:1 src/a/c.rs",
            "src/a.rs:2 src/a/inner/d.rs",
            "src/b/mod.rs:1 src/b/e.rs",
            "src/b/mod.rs:6 src/b/g.rs",
            "src/b/mod.rs:5 src/other/f.rs",
            "src/lib.rs:1 src/a.rs",
            "src/lib.rs:3 src/b/mod.rs",
            "src/lib.rs:5 src/type.rs",
            "src/other/f.rs:1 src/other/h.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn given_paths_of_each_form_when_they_are_followed_then_the_file_of_their_last_module_is_found() {
        for (text, expected) in [
            ("use crate::a::b::f;\n", vec!["1 src/a/b.rs"]),
            ("\nuse crate::a::b;\n", vec!["2 src/a/b.rs"]),
            ("use crate::a::b as other;\n", vec!["1 src/a/b.rs"]),
            ("use crate::a::b::*;\n", vec!["1 src/a/b.rs"]),
            ("use crate::S;\n", vec!["1 src/lib.rs"]),
            ("use crate::d::f;\n", vec!["1 src/lib.rs"]),
            ("use super::a;\n", vec!["1 src/a.rs"]),
            ("pub use super::*;\n", vec!["1 src/lib.rs"]),
            ("use self::super::a::{self, b::{f, self}};\n", vec!["1 src/a.rs", "1 src/a/b.rs"]),
            ("use crate::{a::{/* both */ b}, S};\n", vec!["1 src/a/b.rs", "1 src/lib.rs"]),
            ("fn f() {\n    use crate::a::b::f;\n}\n", vec!["2 src/a/b.rs"]),
            ("mod tests {\n    use super::super::a::b;\n}\n", vec!["2 src/a/b.rs"]),
            ("mod e;\nuse e::f;\nuse self::e::f as g;\n", vec!["1 src/c/e.rs"]),
            ("use my_own::a::b::f;\n", vec!["1 src/a/b.rs"]),
        ] {
            assert_eq!(of_c(text), expected, "{text}");
        }
    }

    #[test]
    fn given_paths_that_lead_elsewhere_or_nowhere_when_they_are_followed_then_nothing_is_found() {
        for text in [
            "use std::fmt;\nuse serde::de;\nextern crate hex;\n",
            "use a::b;\n",
            "use super::super::x;\n",
            "use self::nothing;\n",
            "mod a { pub fn f() {} }\nuse a::f;\n",
            "// use crate::a::b;\nconst S: &str = \"use crate::a::b;\";\n",
            "make! { use crate::a::b; }\n",
            "use ::a::b;\n",
        ] {
            assert!(of_c(text).is_empty(), "{text} {:?}", of_c(text));
        }
    }

    #[test]
    fn given_a_package_of_the_first_edition_when_its_paths_are_followed_then_they_begin_at_the_root() {
        let first = "[package]\nname = \"p\"\n";
        let found = edges(&[
            ("Cargo.toml", first),
            ("src/lib.rs", "mod a;\nmod c;\n"),
            ("src/a.rs", ""),
            ("src/c.rs", "use a::f;\nuse ::a::g;\n"),
        ]);
        assert_eq!(found, ["src/c.rs:1 src/a.rs", "src/lib.rs:1 src/a.rs", "src/lib.rs:2 src/c.rs"]);
    }

    #[test]
    fn given_a_workspace_when_packages_use_each_other_then_the_files_of_their_libraries_are_found_by_any_name() {
        let workspace =
            "[workspace]\nmembers = [\"*\"]\n[workspace.dependencies]\nthe-store = { path = \"store\" }\nx = \"1\"\n";
        let app = "[package]\nname = \"app\"\nedition = \"2024\"\n[dependencies]\nthe-store.workspace = true\nx.workspace = true\n\
                   [dev-dependencies]\nkit = { package = \"test-kit\", path = \"../kit\" }\n\
                   [target.'cfg(unix)'.dependencies]\nwire = \"1\"\n";
        let found = edges(&[
            ("Cargo.toml", workspace),
            ("app/Cargo.toml", app),
            ("app/src/lib.rs", "use the_store::rows::Row;\nuse wire_format::f;\nuse x::y;\n"),
            ("app/src/main.rs", "use app::run;\nextern crate the_store;\n"),
            ("app/tests/all.rs", "mod common;\nuse kit::f;\nuse test_kit::f;\nuse app::run;\n"),
            ("app/tests/common/mod.rs", ""),
            ("app/build.rs", "use ::kit::f;\n"),
            ("kit/Cargo.toml", "[package]\nname = \"test-kit\"\nedition = \"2021\"\n"),
            ("kit/src/lib.rs", "use app::run;\n"),
            ("store/Cargo.toml", "[package]\nname = \"the-store\"\nedition.workspace = true\n"),
            ("store/src/lib.rs", "pub mod rows;\n"),
            ("store/src/rows.rs", "use crate::rows;\n"),
            (
                "w/Cargo.toml",
                "[package]\nname = \"wire\"\nedition = \"2021\"\n[lib]\nname = \"wire_format\"\npath = \"w.rs\"\n",
            ),
            ("w/w.rs", ""),
            ("vendor/kit/Cargo.toml", "[package]\nname = \"kit\"\n"),
            ("vendor/kit/src/lib.rs", "mod a;\n"),
            ("vendor/kit/src/a.rs", ""),
        ]);
        let expected = [
            "app/build.rs:1 kit/src/lib.rs",
            "app/src/lib.rs:1 store/src/rows.rs",
            "app/src/lib.rs:2 w/w.rs",
            "app/src/main.rs:1 app/src/lib.rs",
            "app/src/main.rs:2 store/src/lib.rs",
            "app/tests/all.rs:4 app/src/lib.rs",
            "app/tests/all.rs:1 app/tests/common/mod.rs",
            "app/tests/all.rs:2 kit/src/lib.rs",
            "store/src/lib.rs:1 store/src/rows.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn given_odd_sources_when_they_are_looked_at_then_what_is_too_deep_is_left_out_and_nothing_breaks_off() {
        let deep = format!("{}use crate::a;\n{}", "mod m {\n".repeat(5_000), "}\n".repeat(5_000));
        let braces = format!("use crate::{}a{};\n", "a::{".repeat(5_000), "}".repeat(5_000));
        let itself = "#[path = \"lib.rs\"]\nmod again;\n#[path = \"../../../out.rs\"]\nmod out;\n#[path = \"/etc/x.rs\"]\nmod x;\n";
        for text in
            [deep.as_str(), braces.as_str(), itself, "mod ;\nuse ;\nuse ::{};\nmod m {\n", "\u{feff}mod größe;\n"]
        {
            let found = edges(&[("Cargo.toml", PACKAGE), ("src/lib.rs", text), ("src/a.rs", "")]);
            assert!(found.is_empty(), "{found:?}");
        }
        assert!(edges(&[("Cargo.toml", "[[broken"), ("src/lib.rs", "mod a;\n"), ("src/a.rs", "")]).is_empty());
        assert!(edges(&[("src/lib.rs", "mod a;\n"), ("src/a.rs", "")]).is_empty(), "there is no manifest");
    }
}
