//! Which files of the copy a file of JavaScript or TypeScript takes in when it is loaded. Packages, addresses and names that a bundler
//! maps are left out, and so are types, which are gone when it runs.

use tree_sitter::Node;

use crate::copy::Files;
use crate::language::{Language, named, text};

/// Endings that an import may leave out.
const ENDINGS: [&str; 8] = ["ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs"];

/// The files with the lines of the statements; one that is imported twice is there twice.
pub(super) fn targets<'f>(
    path: &str,
    (language, root): (Language, Node<'_>),
    source: &[u8],
    files: &'f Files,
) -> Vec<(&'f str, usize)> {
    let mut found = Vec::new();
    for statement in named(root) {
        let line = statement.start_position().row + 1;
        for specifier in specifiers(language, statement, source) {
            found.extend(resolve(path, specifier, files).map(|target| (target, line)));
        }
    }
    found
}

/// What a statement names: an import, an export from elsewhere, or calls of `require` that are made at once.
fn specifiers<'s>(language: Language, statement: Node<'_>, source: &'s [u8]) -> Vec<&'s str> {
    let unquoted = |node: Node<'_>| text(node, source).trim_matches(['"', '\'', '`']);
    if matches!(statement.kind(), "import_statement" | "export_statement")
        && let Some(from) = statement.child_by_field_name("source")
    {
        let words: Vec<&str> = text(statement, source).split_whitespace().take(2).collect();
        return if words.get(1) == Some(&"type") { Vec::new() } else { vec![unquoted(from)] };
    }
    let mut found = Vec::new();
    let mut open = vec![statement];
    while let Some(node) = open.pop() {
        // A function is not called yet, and what is tried may fail.
        if language.is_function(node.kind()) || matches!(node.kind(), "try_statement" | "class_body") {
            continue;
        }
        let called = node.child_by_field_name("function").filter(|_| node.kind() == "call_expression");
        if called.is_some_and(|called| text(called, source) == "require") {
            let first = node.child_by_field_name("arguments").and_then(|arguments| named(arguments).into_iter().next());
            found.extend(first.filter(|first| first.kind() == "string").map(unquoted));
        }
        open.extend(named(node).into_iter().rev());
    }
    found
}

/// The file of a relative specifier, as Node, TypeScript and bundlers find it.
fn resolve<'f>(from: &str, specifier: &str, files: &'f Files) -> Option<&'f str> {
    if !(specifier.starts_with("./") || specifier.starts_with("../") || matches!(specifier, "." | "..")) {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let base = parts.join("/");
    // TypeScript names what a file will be called when it is compiled.
    let written = base.rsplit_once('.').filter(|(_, ending)| matches!(*ending, "js" | "jsx" | "mjs" | "cjs"));
    let compiled = written.map(|(stem, ending)| format!("{stem}.{}", ending.replace("js", "ts")));
    let whole = [Some(base.clone()), compiled].into_iter().flatten();
    let ended = ENDINGS.iter().map(|ending| format!("{base}.{ending}"));
    let index = ENDINGS.iter().map(|ending| match base.is_empty() {
        true => format!("index.{ending}"),
        false => format!("{base}/index.{ending}"),
    });
    let known = |path: String| files.get_key_value(&path).map(|(path, _)| path.as_str());
    whole.chain(ended).chain(index).find_map(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, line: &str) -> Vec<String> {
        let names = ["a.ts", "b.ts", "d/index.js", "d/e.tsx", "index.mjs", "data.json"];
        let files = names.iter().map(|name| ((*name).to_owned(), bytes::Bytes::new())).collect::<Files>();
        let language = Language::of(path).unwrap();
        let tree = language.parse(line.as_bytes()).unwrap();
        let targets = targets(path, (language, tree.root_node()), line.as_bytes(), &files);
        targets.into_iter().map(|(target, _)| target.to_owned()).collect()
    }

    #[test]
    fn given_imports_of_each_form_when_they_are_resolved_then_files_of_the_copy_are_found() {
        for (path, line, expected) in [
            ("c.ts", "import { x } from './b';", "b.ts"),
            ("c.ts", "import './b.js';", "b.ts"),
            ("c.ts", "export * from \"./d\";", "d/index.js"),
            ("d/f.ts", "import x from '../b';", "b.ts"),
            ("d/f.tsx", "import x from './e';", "d/e.tsx"),
            ("d/f.ts", "import x from '..';", "index.mjs"),
            ("c.js", "const { x } = require('./a');", "a.ts"),
            ("c.js", "require('./d/index.js')();", "d/index.js"),
            ("c.js", "if (x) { y = require('./b'); }", "b.ts"),
            ("c.js", "import data from './data.json';", "data.json"),
        ] {
            assert_eq!(found(path, line), [expected], "{path} {line}");
        }
    }

    #[test]
    fn given_what_is_not_loaded_or_not_there_when_it_is_resolved_then_nothing_is_found() {
        for (path, line) in [
            ("c.ts", "import type { x } from './b';"),
            ("c.ts", "export type { x } from './b';"),
            ("c.ts", "import x from 'b';"),
            ("c.ts", "import x from './nowhere';"),
            ("c.ts", "import x from '../../../b';"),
            ("c.ts", "export const b = './b';"),
            ("c.js", "function f() { return require('./b'); }"),
            ("c.js", "const f = () => require('./b');"),
            ("c.js", "try { require('./b'); } catch {}"),
            ("c.js", "require(name);"),
        ] {
            assert!(found(path, line).is_empty(), "{path} {line}");
        }
    }
}
