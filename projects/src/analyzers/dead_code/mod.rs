//! Code that nothing uses: unused imports and variables of a file, private definitions that nothing names, and in Python public ones
//! that nothing in the whole project names. Whatever may be used without being named (decorators, attributes, base classes, strings,
//! `__all__`, manifests and pages that name it) is left alone: what is said here should be true, not complete.

use foldhash::fast::RandomState;
use tree_sitter::Node;

use super::limits::MAX_PARSED;
use super::package_licences::is_vendored;
use super::snapshot::Snapshot;
use crate::copy::Files;
use crate::definitions::Definition;
use crate::finding::{Finding, Severity};
use crate::language::{Language, each, text};

mod go;
mod python;
mod rust;
mod script;

const TOOL: &str = "dead-code";
/// Rules that are about the project; without the other files they say nothing.
const PRIVATE: &str = "unused-private";
pub(super) const PUBLIC: &str = "unused-public";
/// How much of a file is looked at for the mark of what made it, in bytes.
const HEAD: usize = 1_000;

/// Names are counted by the hundred thousand: their hash is a quick one, with a seed that no file knows.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
type HashSet<T> = std::collections::HashSet<T, RandomState>;

/// How often each name stands somewhere.
type Mentions<'s> = HashMap<&'s str, usize>;

/// A definition that nothing may use.
struct Candidate<'s> {
    name: &'s str,
    kind: &'static str,
    line: usize,
    column: usize,
    /// How often it names itself.
    own: usize,
}

impl<'s> Candidate<'s> {
    fn new(definition: &Definition<'_, 's>, own: usize) -> Self {
        let at = definition.node.start_position();
        Self { name: definition.name, kind: definition.kind, line: at.row + 1, column: at.column + 1, own }
    }

    /// Nothing names it but itself.
    fn is_unused(&self, mentions: &Mentions<'_>) -> bool {
        mentions.get(self.name).copied().unwrap_or(0) <= self.own
    }

    fn finding(&self, path: &str, (rule, severity): (&str, Severity), fix: &str) -> Finding {
        let message = format!("nothing uses the {} {}", self.kind, self.name);
        Finding::new((TOOL, rule, severity), (path, self.line, self.column), message, fix)
    }

    fn private(&self, path: &str) -> Finding {
        self.finding(path, (PRIVATE, Severity::Low), "remove it")
    }
}

pub(super) fn analyze(snapshot: &Snapshot<'_>) -> Vec<Finding> {
    let mut found = python::analyze(snapshot);
    found.extend(rust::analyze(snapshot));
    found.extend(script::analyze(snapshot));
    found.extend(go::analyze(snapshot));
    found
}

/// Whether a finding of [`PUBLIC`] is about one of these names, with which its message ends.
pub(super) fn is_about(one: &Finding, names: &[String]) -> bool {
    one.message.rsplit(' ').next().is_some_and(|last| names.iter().any(|name| name == last))
}

/// Whether people of this project keep a file. What generators make has a mark (<https://go.dev/s/generatedcode>, `@generated`).
fn is_kept(path: &str, source: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&source[..source.len().min(HEAD)]);
    !is_vendored(path) && !["DO NOT EDIT", "@generated", "do not edit"].iter().any(|mark| head.contains(mark))
}

/// Adds what stands in a part of a file: its nodes that are names, and the words of those that are texts.
fn count<'s>(
    node: Node<'_>,
    source: &'s [u8],
    (names, texts): (&[&str], fn(Node<'_>) -> bool),
    into: &mut Mentions<'s>,
) {
    each(node, |node| {
        if names.contains(&node.kind()) {
            *into.entry(text(node, source)).or_default() += 1;
        } else if texts(node) {
            for word in words(text(node, source)) {
                *into.entry(word).or_default() += 1;
            }
        }
    });
}

/// What could be names in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    parts.filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// Whether names or words of a file count.
pub(super) fn is_read(path: &str) -> bool {
    Language::of(path).is_some() || is_page(path)
}

/// Manifests, settings and pages.
fn is_page(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let end = name.rsplit_once('.').map_or("", |(_, end)| end).to_lowercase();
    let ends = [
        "toml", "cfg", "ini", "yaml", "yml", "json", "md", "rst", "txt", "html", "ipynb", "j2", "jinja", "sh", "in", "",
    ];
    Language::of(path).is_none() && ends.contains(&end.as_str())
}

/// The words of manifests, settings and pages: entry points, tasks, documented functions.
fn pages(files: &Files) -> HashSet<&str> {
    let pages = files.iter().filter(|(path, content)| content.len() <= MAX_PARSED && is_page(path));
    pages.filter_map(|(_, content)| std::str::from_utf8(content).ok()).flat_map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect::<Files>();
        let mut found: Vec<String> = analyze(&Snapshot::new(&files))
            .into_iter()
            .map(|one| {
                let name = one.message.strip_suffix(" is imported and nothing in the file uses it");
                let name = name.or_else(|| one.message.strip_suffix(" gets a value that nothing reads"));
                name.or_else(|| one.message.rsplit(' ').next()).unwrap_or_default().to_owned()
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn given_code_that_nothing_uses_when_it_is_looked_at_then_each_name_is_found() {
        for (path, text, expected) in [
            ("a.py", "import os\nimport sys as system\nfrom m import b, c as d\nprint(b)\n", vec!["d", "os", "system"]),
            ("a.py", "def f():\n    import json\n    return 1\nf()\n", vec!["json"]),
            ("a.py", "_LIMIT = 3\ndef _f():\n    return _f()\nclass _C:\n    pass\n", vec!["_C", "_LIMIT", "_f"]),
            ("a.py", "def run():\n    '''Not helper().'''\nrun()\ndef helper():\n    pass\n", vec!["helper"]),
            ("a.py", "class C:\n    def _m(self): pass\n    def n(self): pass\nC()\n", vec!["_m"]),
            ("a.py", "def f(p):\n    a = 1\n    b = p\n    return b\nf(1)\n", vec!["a"]),
            (
                "src/lib.rs",
                "const A: u8 = 1;\nfn f() { f() }\npub fn g() {}\nmod m { struct S; enum E { X } }\nimpl T { fn h(&self) {} }\nmacro_rules! k { () => {} }\n",
                vec!["A", "E", "S", "f", "h", "k"],
            ),
            (
                "a.ts",
                "import x, { y as z, used } from 'm';\nimport * as all from 'n';\nfunction f() {}\nconst v = 1;\ntype T = number;\nexport const w = used;\n",
                vec!["T", "all", "f", "v", "x", "z"],
            ),
            (
                "a.js",
                "const fs = require('fs');\nfunction lone() { lone(); }\nmodule.exports = {};\n",
                vec!["fs", "lone"],
            ),
            (
                "a.go",
                "package m\nfunc F() {}\nfunc g() { g() }\ntype t struct{}\nvar v int\nconst c = 1\nfunc (T) h() {}\n",
                vec!["c", "g", "h", "t", "v"],
            ),
        ] {
            assert_eq!(unused(&[(path, text)]), expected, "{text}");
        }
    }

    #[test]
    fn given_very_many_names_in_one_statement_when_they_are_looked_at_then_each_that_nothing_uses_is_found() {
        let names: Vec<String> = (0..60_000).map(|number| format!("_n{number}")).collect();
        let text = format!("{} = f()\n_used, _lone, _used = 1, 2, 3\nprint(_used)\n", names.join(", "));
        let found = unused(&[("a.py", text.as_str())]);
        assert_eq!(found.len(), names.len() + 1);
        assert!(found.iter().any(|name| name == "_lone") && found.iter().all(|name| name != "_used"));
    }

    #[test]
    fn given_code_that_is_used_without_being_called_when_it_is_looked_at_then_nothing_is_said() {
        for (path, text) in [
            ("a/__init__.py", "from .b import c\n"),
            ("a.py", "from m import x as x\nfrom __future__ import annotations\nfrom y import *\n"),
            ("a.py", "__all__ = ['f', 'g']\nfrom m import g\ndef f(): pass\n"),
            ("a.py", "try:\n    import ujson\nexcept ImportError:\n    ujson = None\n"),
            ("a.py", "import typing\ndef f(x: 'typing.Any'): pass\nf(1)\n"),
            ("a.py", "import os  # noqa\n"),
            ("a.py", "x = 1\rimport os  # noqa\rprint(x)\r"),
            ("a.py", "from m import (  # NoQA\n    a,\n    b,\n)\n"),
            ("a.py", "@app.get('/')\ndef page(): pass\n@register\nclass C: pass\n"),
            ("a.py", "class C(Base):\n    def _hook(self): pass\n"),
            (
                "a.py",
                "class V:\n    def _visit_a(self): pass\n    def go(self, n): return getattr(self, f'_visit_{n}')\nV()\n",
            ),
            ("a.py", "def _f(): pass\nprint(globals()['_' + 'f'])\n"),
            ("tests/test_a.py", "def test_it(): pass\ndef helper(): pass\nclass TestMore: pass\n"),
            (
                "a.py",
                "def f():\n    _ = 1\n    a, b = 1, 2\n    n = 1\n    def g():\n        return n\n    return g\nf()\n",
            ),
            ("a.py", "n = 0\ndef f():\n    global n\n    n = 1\nf()\n"),
            ("a.py", "def f():\n    x = 1\n    return f'{x}'\nf()\n"),
            ("a.py", "def main(): pass\n"),
            (
                "src/main.rs",
                "fn main() { helper!(inner()); }\nfn inner() {}\n#[test]\nfn t() {}\n#[no_mangle]\nextern \"C\" fn e() {}\n#[allow(dead_code)]\nfn a() {}\nimpl Drop for S { fn drop(&mut self) {} }\nfn _b() {}\n",
            ),
            (
                "src/a.rs",
                "#[derive(Deserialize)]\npub struct S { #[serde(default = \"usual\")] x: u8 }\nfn usual() -> u8 { 1 }\n",
            ),
            ("a.d.ts", "declare function f(): void;\ntype T = number;\nexport {};\n"),
            ("a.js", "function global() {}\nvar x = 1;\n"),
            ("a.jsx", "import React from 'react';\nimport { Box } from 'b';\nexport const a = () => <Box />;\n"),
            ("a.ts", "import type { T } from 'm';\nexport function f(x: T) {}\n"),
            ("a.js", "import { a } from 'm';\nconst o = { a };\nexport default o;\n"),
            (
                "a.go",
                "package main\nfunc main() {}\nfunc init() {}\nvar _ I = (*T)(nil)\n//export hello\nfunc hello() {}\n",
            ),
            ("a.go", "// Code generated by x. DO NOT EDIT.\npackage m\nfunc g() {}\n"),
            ("a.go", "package m\nconst (\n\ta = iota\n\tb\n)\nfunc F() int { return b }\n"),
        ] {
            assert_eq!(unused(&[(path, text)]), Vec::<String>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn given_names_that_other_files_use_when_a_project_is_looked_at_then_they_are_alive() {
        let lone = ("a.py", "def f(): pass\ndef _g(): pass\nfrom m import x\n");
        assert_eq!(unused(&[lone]), ["_g", "f", "x"]);
        for other in [
            ("b.py", "import a\na.f(), a._g(), a.x\n"),
            ("b.py", "from a import f, _g, x\nf(), _g(), x\n"),
            ("pyproject.toml", "[project.scripts]\nrun = 'a:f'\nmore = ['a:_g', 'x']\n"),
        ] {
            let only_import = usize::from(other.0 == "pyproject.toml");
            assert_eq!(unused(&[lone, other]).len(), only_import, "{other:?}");
        }
        assert_eq!(
            unused(&[("p/a.go", "package p\nfunc g() {}\n"), ("p/b.go", "package p\nfunc F() { g() }\n")]).len(),
            0
        );
        assert_eq!(
            unused(&[("p/a.go", "package p\nfunc g() {}\n"), ("q/b.go", "package q\nfunc F() { g() }\n")]),
            ["g"]
        );
    }
}
