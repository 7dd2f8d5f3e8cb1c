//! Crates that a Rust package uses and that its `Cargo.toml` does not declare, where that is certain. A path may also begin with a
//! module, with what a glob or a macro brings in, or with a crate that is not called as its package: a name counts as undeclared when
//! nothing of the package has it but such beginnings of `use`, and when every declared package goes by its own name.

use std::collections::BTreeSet;

use tree_sitter::Node;

use super::is_vendored;
use super::snapshot::{Snapshot, Source};
use crate::finding::{Finding, Severity};
use crate::language::{each, text};

/// What a path may begin with without any declaration: words of the language, crates of the toolchain and of tools that check.
const GIVEN: [&str; 9] = ["crate", "self", "super", "std", "core", "alloc", "proc_macro", "test", "kani"];
/// Lists of a manifest that declare packages.
const LISTS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Crates that nothing declares, at the first place of each in a package.
pub(super) fn undeclared(tool: &str, snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let files = snapshot.files();
    let folders: BTreeSet<&str> = files.keys().filter_map(|path| folder_of(path)).collect();
    // What lies below another manifest is a package of its own.
    let is_in = |path: &str, folder: &str| {
        let mut above = path.rmatch_indices('/').map(|(at, _)| &path[..=at]).chain([""]);
        above.find(|above| folders.contains(above)) == Some(folder)
    };
    let mut found = Vec::new();
    for &folder in &folders {
        let Some(declared) = files.get(&format!("{folder}Cargo.toml")).and_then(|content| declared(content)) else {
            continue;
        };
        let is_own = |path: &str| path.ends_with(".rs") && is_in(path, folder) && !is_vendored(path);
        let sources: Vec<&Source<'_>> = snapshot.below(folder).iter().filter(|one| is_own(one.path)).collect();
        for (path, line, name) in of_package(folder, &sources, &declared) {
            let rule = (tool, "undeclared-dependency", Severity::Medium);
            let message = format!("{name} is used and {folder}Cargo.toml does not declare it");
            found.push(Finding::new(rule, (path, line, 1), message, format!("declare it: cargo add {name}")));
        }
    }
    found
}

/// The folder of a manifest, with `/` at its end.
fn folder_of(path: &str) -> Option<&str> {
    let folder = path.strip_suffix("Cargo.toml")?;
    ((folder.is_empty() || folder.ends_with('/')) && !is_vendored(path)).then_some(folder)
}

/// What may be used by name: the packages that a manifest declares.
struct Declared {
    packages: BTreeSet<String>,
    /// The package itself, for its programs and tests.
    own: BTreeSet<String>,
}

/// `None` when it is no manifest of a package.
fn declared(content: &[u8]) -> Option<Declared> {
    let table: toml::Table = toml::from_str(std::str::from_utf8(content).ok()?).ok()?;
    let name = |table: &toml::Table, key: &str| {
        let named = table.get(key).and_then(|part| part.get("name")).and_then(toml::Value::as_str);
        named.map(|name| name.replace('-', "_"))
    };
    let package = name(&table, "package")?;
    let mut packages = BTreeSet::new();
    let targets = table.get("target").and_then(toml::Value::as_table);
    let parts = targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table);
    for part in std::iter::once(&table).chain(parts) {
        for list in LISTS {
            let named = part.get(list).and_then(toml::Value::as_table);
            packages.extend(named.into_iter().flat_map(|list| list.keys()).map(|name| name.replace('-', "_")));
        }
    }
    Some(Declared { packages, own: [Some(package), name(&table, "lib")].into_iter().flatten().collect() })
}

/// A crate that is used: the file, the line and the name.
type Use<'f> = (&'f str, usize, String);

/// What is read of a package.
#[derive(Default)]
struct Names<'f> {
    /// Names that stand somewhere else than at the beginning of a path.
    elsewhere: BTreeSet<String>,
    /// Names at beginnings of paths.
    beginnings: BTreeSet<String>,
    /// Crates that `extern crate` names.
    external: Vec<Use<'f>>,
    /// Beginnings of `use` that may be crates, and whether their file has a glob.
    used: Vec<(Use<'f>, bool)>,
    /// Whether a file has a glob of another package.
    has_foreign_glob: bool,
    /// Whether a file takes in another one.
    has_generated: bool,
}

fn of_package<'f>(folder: &str, sources: &[&Source<'f>], declared: &Declared) -> Vec<Use<'f>> {
    let mut names = Names::default();
    for source in sources {
        read(&source.path[folder.len()..], source, &mut names);
    }
    let is_known = |name: &String| declared.packages.contains(name) || declared.own.contains(name);
    let goes_by_its_name = |name: &String| names.elsewhere.contains(name) || names.beginnings.contains(name);
    if !declared.packages.iter().all(goes_by_its_name) || names.has_generated {
        return Vec::new();
    }
    let foreign = names.has_foreign_glob;
    let used = names
        .used
        .into_iter()
        .filter(|((_, _, name), has_glob)| !(names.elsewhere.contains(name) || foreign && *has_glob));
    let all = names.external.into_iter().chain(used.map(|(used, _)| used));
    let mut seen = BTreeSet::new();
    all.filter(|(_, _, name)| !is_known(name) && seen.insert(name.clone())).collect()
}

fn read<'f>(below: &str, file: &Source<'f>, names: &mut Names<'f>) {
    let (path, source) = (file.path, file.bytes);
    let Some(tree) = file.tree() else { return };
    // A file is a module under its name, whoever says so.
    names.elsewhere.extend(below.trim_end_matches(".rs").split('/').map(str::to_owned));
    let first = below.split('/').next().unwrap_or_default();
    // Elsewhere lie texts for tests that are never built.
    let is_target = matches!(first, "tests" | "examples" | "benches") && below.split('/').count() == 2;
    let is_built = first == "src" || below == "build.rs" || is_target;
    let (mut used, mut has_glob) = (Vec::new(), false);
    each(tree.root_node(), |node| match node.kind() {
        "identifier" | "type_identifier" | "field_identifier" | "shorthand_field_identifier" => {
            let name = text(node, source).to_owned();
            if is_beginning(node, source) {
                names.beginnings.insert(name)
            } else {
                names.elsewhere.insert(name)
            };
        }
        "macro_invocation" => {
            let called = node.child_by_field_name("macro").map(|name| text(name, source));
            names.has_generated |= called == Some("include");
        }
        "use_wildcard" => {
            has_glob = true;
            let begins = beginning(text(top(node), source));
            names.has_foreign_glob |= begins.is_none_or(|name| !GIVEN.contains(&name));
        }
        "extern_crate_declaration" if is_built && !is_conditional(node, source) => {
            let name = node.child_by_field_name("name").map(|name| text(name, source)).unwrap_or_default();
            if is_crate(name) {
                names.external.push((path, node.start_position().row + 1, name.to_owned()));
            }
        }
        "use_declaration" if is_built && !is_conditional(node, source) => {
            let argument = node.child_by_field_name("argument").map(|argument| text(argument, source));
            if let Some(name) = argument.and_then(beginning).filter(|name| is_crate(name)) {
                used.push((path, node.start_position().row + 1, name.to_owned()));
            }
        }
        _ => {}
    });
    names.used.extend(used.into_iter().map(|one| (one, has_glob)));
}

/// Whether a path goes on behind a name that it begins with; a name that `extern crate` brings in counts as one. The text is asked
/// and not the tree, which goes through all that stands before a node to find its neighbour: in a file of many items that takes minutes.
fn is_beginning(node: Node<'_>, source: &[u8]) -> bool {
    let before = source[..node.start_byte()].trim_ascii_end();
    let is_joint = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(*byte, b'_' | b'>') || !byte.is_ascii();
    let is_inner = before.strip_suffix(b"::").is_some_and(|path| path.last().is_some_and(is_joint));
    let goes_on = source[node.end_byte()..].trim_ascii_start().starts_with(b"::");
    (goes_on && !is_inner) || (before.ends_with(b"crate") && is_external(node))
}

/// Whether `extern crate` brings a name in.
fn is_external(name: Node<'_>) -> bool {
    let above = name.parent().filter(|above| above.kind() == "extern_crate_declaration");
    above.and_then(|above| above.child_by_field_name("name")).is_some_and(|one| one.id() == name.id())
}

/// What the whole `use` names.
fn top(node: Node<'_>) -> Node<'_> {
    let mut above = std::iter::successors(Some(node), Node::parent);
    above
        .find_map(|one| if one.kind() == "use_declaration" { one.child_by_field_name("argument") } else { None })
        .unwrap_or(node)
}

/// The first name of a path that goes on behind it.
fn beginning(path: &str) -> Option<&str> {
    let path = path.strip_prefix("::").unwrap_or(path);
    let end = path.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
    let (name, rest) = path.split_at(end);
    rest.trim_start().starts_with("::").then_some(name)
}

fn is_crate(name: &str) -> bool {
    let is_lower =
        name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.contains(|c: char| c.is_ascii_uppercase());
    is_lower && !GIVEN.contains(&name) && !name.starts_with("rustc_")
}

/// Whether a setting of the build may leave it out: what is used there may be there for some builds alone. Tests are built.
fn is_conditional(node: Node<'_>, source: &[u8]) -> bool {
    let is_condition = |attribute: Node<'_>| {
        let said: String = text(attribute, source).chars().filter(|c| !c.is_whitespace()).collect();
        said.contains("[cfg(") && !said.contains("[cfg(test)]")
    };
    std::iter::successors(Some(node), Node::parent).any(|one| {
        let before = std::iter::successors(one.prev_named_sibling(), |one| one.prev_named_sibling());
        let mut attributes = before.take_while(|one| one.kind() == "attribute_item" || one.kind().ends_with("comment"));
        let mut cursor = one.walk();
        let is_within = one
            .named_children(&mut cursor)
            .take_while(|inner| inner.kind() == "inner_attribute_item" || inner.kind().ends_with("comment"))
            .any(is_condition);
        is_within || attributes.any(is_condition)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Files;

    const MANIFEST: &str = "[package]\nname = \"my-own\"\n[dependencies]\nserde = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\nnix-like = \"1\"\n";
    /// What is declared is used.
    const USED: &str = "use serde::Serialize;\nfn f() { nix_like::g(); }\n";

    fn names(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        let found = undeclared("dependencies", &Snapshot::new(&files));
        found
            .into_iter()
            .map(|one| format!("{}:{} {}", one.file, one.line, one.message.split(' ').next().unwrap()))
            .collect()
    }

    #[test]
    fn given_a_file_of_very_many_items_when_it_is_looked_at_then_it_is_not_gone_through_for_each_of_them() {
        let items: String = (0..60_000).map(|number| format!("pub const A{number}: T = B::C;\n")).collect();
        // Some seconds: many minutes, if each item cost as much as all before it.
        assert_eq!(in_lib(&format!("{items}use hex::encode;\n")), ["src/part.rs:60001 hex"]);
    }

    #[test]
    fn given_names_at_each_place_of_a_path_when_they_are_read_then_only_the_first_begins_it() {
        for (code, beginnings) in [
            ("use a::b::c;\n", vec!["a"]),
            ("use ::a::b::c;\n", vec!["a"]),
            ("use a :: b;\n", vec!["a"]),
            ("use a::{b, c::d};\n", vec!["a", "c"]),
            ("fn f() -> x::Y { return ::a::b(); }\n", vec!["a", "x"]),
            ("fn f() { <T as a::B>::c::d(); e::<T>(); }\n", vec!["a", "e"]),
            ("extern crate a;\nextern crate b as c;\n", vec!["a", "b"]),
            ("m!(a::b, ::c::d);\n", vec!["a", "c"]),
            ("fn f() { g(a); }\n", vec![]),
        ] {
            let tree = crate::language::Language::Rust.parse(code.as_bytes()).unwrap();
            let mut found = BTreeSet::new();
            each(tree.root_node(), |node| {
                if node.kind() == "identifier" && is_beginning(node, code.as_bytes()) {
                    found.insert(text(node, code.as_bytes()));
                }
            });
            assert_eq!(found.into_iter().collect::<Vec<&str>>(), beginnings, "{code}");
        }
    }

    fn in_lib(code: &str) -> Vec<String> {
        names(&[("Cargo.toml", MANIFEST), ("src/lib.rs", USED), ("src/part.rs", code)])
    }

    #[test]
    fn given_crates_that_nothing_declares_when_they_are_used_then_each_is_found_once() {
        for code in [
            "use hex::encode;\nuse hex::decode;\n",
            "use ::hex::encode;\n",
            "extern crate hex;\n",
            "use hex::{decode, encode as other};\n",
            "use hex :: encode;\nfn f() { hex::decode(); }\n",
            "#[cfg(test)]\nmod tests {\n    use hex::encode;\n}\n",
            "/// Writes hex.\nuse hex::encode;\n",
        ] {
            let found = in_lib(code);
            assert!(
                found.len() == 1 && found[0].starts_with("src/part.rs:") && found[0].ends_with(" hex"),
                "{code} {found:?}"
            );
        }
    }

    #[test]
    fn given_names_that_may_be_anything_else_when_they_are_used_then_nothing_is_found() {
        for code in [
            "use serde::de;\nuse my_own::x;\nuse std::fmt;\nuse crate::part;\nuse self::a::b;\nuse core::mem;\n",
            "mod hex { pub fn encode() {} }\nuse hex::encode;\n",
            "mod hex;\nuse hex::encode;\n",
            "use crate::a::hex;\nuse hex::encode;\n",
            "use other as hex;\nuse hex::encode;\n",
            "make!(hex);\nuse hex::encode;\n",
            "use part::x;\n",
            "use serde::*;\nuse hex::encode;\n",
            "include!(concat!(env!(\"OUT_DIR\"), \"/x.rs\"));\nuse hex::encode;\n",
            "#[cfg(feature = \"hex\")]\nuse hex::encode;\n",
            "#[cfg(windows)]\nmod a {\n    use hex::encode;\n}\n",
            "#![cfg(windows)]\nuse hex::encode;\n",
            "extern crate alloc;\n",
            "use Shape::Round;\n",
            "// use hex::encode;\nconst A: &str = \"use hex::encode;\";\n",
        ] {
            assert!(in_lib(code).is_empty(), "{code} {:?}", in_lib(code));
        }
    }

    #[test]
    fn given_packages_that_go_by_other_names_or_lie_elsewhere_when_they_are_looked_at_then_nothing_is_found() {
        let code = "use md5::Digest;\n";
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nmd-5 = \"1\"\n";
        assert!(names(&[("Cargo.toml", manifest), ("src/lib.rs", code)]).is_empty(), "it is called otherwise");
        let plain = "[package]\nname = \"a\"\n";
        assert_eq!(names(&[("a/Cargo.toml", plain), ("a/src/lib.rs", code)]), ["a/src/lib.rs:1 md5"]);
        assert_eq!(names(&[("a/Cargo.toml", plain), ("a/tests/all.rs", code)]), ["a/tests/all.rs:1 md5"]);
        for path in ["a/tests/ui/fails.rs", "b/src/lib.rs", "a/b/src/lib.rs"] {
            let files = [("a/Cargo.toml", plain), ("a/b/Cargo.toml", "[workspace]\n"), (path, code)];
            assert!(names(&files).is_empty(), "{path}");
        }
        assert!(names(&[("Cargo.toml", "[workspace]\n"), ("src/lib.rs", code)]).is_empty());
        assert!(names(&[("vendor/a/Cargo.toml", plain), ("vendor/a/src/lib.rs", code)]).is_empty());
        assert!(names(&[("Cargo.toml", "[[broken"), ("src/lib.rs", code)]).is_empty());
    }
}
