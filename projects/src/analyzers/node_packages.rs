//! Packages that JavaScript and TypeScript import, and that no `package.json` above the file declares.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tree_sitter::Node;

use super::snapshot::Snapshot;
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::language::{Language, each, named, text};

/// Modules of Node itself (node:module, `builtinModules`, without those that need `node:`).
const BUILT_IN: [&str; 42] = [
    "assert",
    "async_hooks",
    "buffer",
    "child_process",
    "cluster",
    "console",
    "constants",
    "crypto",
    "dgram",
    "diagnostics_channel",
    "dns",
    "domain",
    "events",
    "fs",
    "http",
    "http2",
    "https",
    "inspector",
    "module",
    "net",
    "os",
    "path",
    "perf_hooks",
    "process",
    "punycode",
    "querystring",
    "readline",
    "repl",
    "stream",
    "string_decoder",
    "sys",
    "timers",
    "tls",
    "trace_events",
    "tty",
    "url",
    "util",
    "v8",
    "vm",
    "wasi",
    "worker_threads",
    "zlib",
];
/// Lists of a manifest that declare packages.
const LISTS: [&str; 4] = ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"];

/// What the manifests say.
struct Manifests {
    /// What each declares, by its folder with `/` at the end.
    declared: BTreeMap<String, BTreeSet<String>>,
    /// The packages of the project itself, which may be from everywhere.
    own: BTreeSet<String>,
}

/// Imports that nothing declared has, at the first place of each in a folder with a manifest.
pub(super) fn undeclared(tool: &str, snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let manifests = manifests(snapshot.files());
    if manifests.declared.is_empty() || maps_names(snapshot.files()) {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for file in snapshot.in_language(Language::is_script) {
        let (path, source) = (file.path, file.bytes);
        let above: Vec<(&String, &BTreeSet<String>)> =
            manifests.declared.iter().filter(|(folder, _)| path.starts_with(folder.as_str())).collect();
        let Some((nearest, _)) = above.last() else { continue };
        let Some(tree) = file.tree() else { continue };
        each(tree.root_node(), |node| {
            let Some(package) = specifier(node, source).and_then(package_of) else { return };
            let types = format!("@types/{package}");
            let is_known =
                |(_, names): &(&String, &BTreeSet<String>)| names.contains(package) || names.contains(&types);
            let is_own = manifests.own.contains(package);
            if is_own || above.iter().any(is_known) || !seen.insert(((*nearest).clone(), package.to_owned())) {
                return;
            }
            let rule = (tool, "undeclared-dependency", Severity::Medium);
            let message = format!("{package} is imported and no package.json declares it");
            let fix = format!("declare it: npm install {package}");
            found.push(Finding::new(rule, (path, node.start_position().row + 1, 1), message, fix));
        });
    }
    found
}

fn manifests(files: &Files) -> Manifests {
    let mut all = Manifests { declared: BTreeMap::new(), own: BTreeSet::new() };
    for (path, content) in files {
        let folder = path.strip_suffix("package.json").filter(|folder| folder.is_empty() || folder.ends_with('/'));
        let Some(folder) = folder else { continue };
        let Ok(manifest) = serde_json::from_slice::<Value>(content) else { continue };
        all.own.extend(manifest["name"].as_str().map(str::to_owned));
        let lists = LISTS.iter().filter_map(|list| manifest[*list].as_object());
        all.declared.insert(folder.to_owned(), lists.flat_map(|list| list.keys().cloned()).collect());
    }
    all
}

/// Whether settings of a compiler or bundler give other names to files.
fn maps_names(files: &Files) -> bool {
    let is_settings = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        ((name.starts_with("tsconfig") || name.starts_with("jsconfig")) && name.ends_with(".json"))
            || ["vite.config.", "webpack.config.", "rollup.config."].iter().any(|start| name.starts_with(start))
    };
    let maps = |content: &[u8]| {
        let text = String::from_utf8_lossy(content);
        ["\"paths\"", "\"baseUrl\"", "alias"].iter().any(|word| text.contains(word))
    };
    files.iter().any(|(path, content)| is_settings(path) && maps(content))
}

/// What an import, an export from elsewhere or a `require` names, outside of `try`.
fn specifier<'s>(node: Node<'_>, source: &'s [u8]) -> Option<&'s str> {
    let name = match node.kind() {
        "import_statement" | "export_statement" => node.child_by_field_name("source")?,
        "call_expression" => {
            let called = node.child_by_field_name("function")?;
            if called.kind() != "import" && text(called, source) != "require" {
                return None;
            }
            named(node.child_by_field_name("arguments")?).into_iter().next().filter(|one| one.kind() == "string")?
        }
        _ => return None,
    };
    let mut above = std::iter::successors(node.parent(), Node::parent);
    if above.any(|above| above.kind() == "try_statement") {
        return None;
    }
    Some(text(name, source).trim_matches(['"', '\'', '`']))
}

/// The package of a specifier; `None` for files, modules of Node, addresses and aliases.
fn package_of(specifier: &str) -> Option<&str> {
    if specifier.contains(':') || specifier.starts_with(['.', '/', '#', '~', '$']) || specifier.starts_with("@/") {
        return None;
    }
    let parts = if specifier.starts_with('@') { 2 } else { 1 };
    let end = specifier.match_indices('/').nth(parts - 1).map_or(specifier.len(), |(at, _)| at);
    let package = &specifier[..end];
    (!package.is_empty() && !BUILT_IN.contains(&package)).then_some(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        undeclared("dependencies", &Snapshot::new(&files)).into_iter().map(|one| (one.file, one.line)).collect()
    }

    #[test]
    fn given_imports_of_each_form_when_none_is_declared_then_packages_are_found_and_nothing_else_is() {
        let manifest = (
            "package.json",
            r#"{"name":"me","dependencies":{"react":"1"},"devDependencies":{"@types/node-fetch":"1"}}"#,
        );
        for (line, is_found) in [
            ("import x from 'lodash';", true),
            ("import x from 'lodash/fp';", true),
            ("import x from '@scope/name/part';", true),
            ("export * from \"lodash\";", true),
            ("const x = require('lodash');", true),
            ("const x = await import('lodash');", true),
            ("import x from 'react/jsx-runtime';", false),
            ("import x from 'me/part';", false),
            ("import x from 'node-fetch';", false),
            ("import x from './lodash';", false),
            ("import x from 'fs/promises';", false),
            ("import x from 'node:test';", false),
            ("import x from '@/part';", false),
            ("try { require('lodash'); } catch {}", false),
            ("const x = require(name);", false),
            ("const x = 'lodash';", false),
        ] {
            let found = places(&[manifest, ("src/a.js", format!("\n{line}\n").as_str())]);
            let expected = if is_found { vec![("src/a.js".to_owned(), 2)] } else { Vec::new() };
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn given_a_workspace_when_it_is_looked_at_then_manifests_above_count_and_mapped_names_silence() {
        let nothing: [(String, usize); 0] = [];
        let root = ("package.json", r#"{"name":"root","dependencies":{"lodash":"1"}}"#);
        let part = ("packages/a/package.json", r#"{"name":"a","dependencies":{"react":"1"}}"#);
        let file = (
            "packages/a/x.ts",
            "import l from 'lodash';\nimport r from 'react';\nimport v from 'vue';\nimport b from 'root';\n",
        );
        assert_eq!(places(&[root, part, file]), [("packages/a/x.ts".to_owned(), 3)]);
        assert_eq!(places(&[root, part, file, ("tsconfig.json", r#"{"compilerOptions":{"paths":{}}}"#)]), nothing);
        assert_eq!(places(&[file]), nothing, "without a manifest nothing is declared anywhere");
    }

    #[test]
    fn given_very_many_packages_of_a_project_when_their_manifests_are_read_then_each_is_kept_once() {
        let manifest =
            |number: usize| (format!("p{number}/package.json"), format!("{{\"name\":\"own-{number}\"}}").into());
        let mut files: Files = (0..10_000).map(manifest).collect();
        let all = manifests(&files);
        assert_eq!((all.own.len(), all.declared.values().map(BTreeSet::len).sum::<usize>()), (10_000, 0));
        files.insert("p1/a.js".to_owned(), "import x from 'own-9999';\nimport y from 'other';\n".into());
        let found = undeclared("dependencies", &Snapshot::new(&files));
        assert_eq!(found.iter().map(|one| (one.file.as_str(), one.line)).collect::<Vec<_>>(), [("p1/a.js", 2)]);
    }
}
