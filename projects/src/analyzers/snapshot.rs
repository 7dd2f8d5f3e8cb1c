//! The sources of a copy while it is analyzed. Analyzers read them side by side, and each source is parsed once for all of them.

use std::sync::{Arc, OnceLock};

use tree_sitter::Tree;

use super::limits::MAX_PARSED;
use crate::copy::Files;
use crate::language::Language;
use crate::python::Module;

/// Most bytes of sources whose trees are kept: 8 MiB, some 200,000 lines. A tree takes many times the memory of its text, so that
/// each analyzer parses what is beyond for itself.
const MAX_KEPT: usize = 8 << 20;

/// A file that can be parsed.
pub(crate) struct Source<'f> {
    pub(crate) path: &'f str,
    pub(crate) language: Language,
    pub(crate) bytes: &'f [u8],
    /// The tree, once somebody asked for it; no place for it where it is not kept.
    tree: Option<OnceLock<Option<Tree>>>,
    /// The same of Python.
    module: Option<OnceLock<Option<Arc<Module<'f>>>>>,
}

impl<'f> Source<'f> {
    /// What it has, where it is Python; `None` when it is too deep to be parsed. The first who asks parses, and the others wait for that.
    pub(crate) fn module(&self) -> Option<Arc<Module<'f>>> {
        let parse = || Module::parse(self.bytes).map(Arc::new);
        match &self.module {
            Some(kept) => kept.get_or_init(parse).clone(),
            None => parse(),
        }
    }

    /// Its syntax; `None` when the parser gives up. For others than Python, which has a parser of its own.
    pub(crate) fn tree(&self) -> Option<Tree> {
        let parse = || self.language.parse(self.bytes);
        match &self.tree {
            // A clone shares the nodes.
            Some(kept) => kept.get_or_init(parse).clone(),
            None => parse(),
        }
    }
}

/// The files of a copy, and those of them that can be parsed.
pub(crate) struct Snapshot<'f> {
    files: &'f Files,
    /// In the order of their paths.
    sources: Vec<Source<'f>>,
}

impl<'f> Snapshot<'f> {
    /// Parses nothing yet.
    pub(crate) fn new(files: &'f Files) -> Self {
        Self::keeping(files, MAX_KEPT)
    }

    /// Keeps trees of sources that have no more bytes together: in the order of their paths, one that is too large is passed over.
    fn keeping(files: &'f Files, bytes: usize) -> Self {
        let mut left = bytes;
        let small = files.iter().filter(|(_, content)| content.len() <= MAX_PARSED);
        let sources = small.filter_map(|(path, content)| {
            let language = Language::of(path)?;
            let rest = left.checked_sub(content.len());
            left = rest.unwrap_or(left);
            let (tree, module) = (rest.map(|_| OnceLock::new()), rest.map(|_| OnceLock::new()));
            Some(Source { path, language, bytes: content, tree, module })
        });
        Self { files, sources: sources.collect() }
    }

    /// All files.
    pub(crate) fn files(&self) -> &'f Files {
        self.files
    }

    /// The files that can be parsed, in the order of their paths.
    pub(crate) fn sources(&self) -> &[Source<'f>] {
        &self.sources
    }

    /// Those of some languages.
    pub(super) fn in_language(&self, is_wanted: fn(Language) -> bool) -> impl Iterator<Item = &Source<'f>> {
        self.sources.iter().filter(move |source| is_wanted(source.language))
    }

    /// Those whose path begins so.
    pub(super) fn below(&self, folder: &str) -> &[Source<'f>] {
        let first = self.sources.partition_point(|one| one.path < folder);
        let rest = &self.sources[first..];
        &rest[..rest.partition_point(|one| one.path.starts_with(folder))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzers::{dead_code, dependencies, import_graph, leakage, syntax};
    use crate::finding::Finding;
    use crate::surface::surface;

    fn of(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned().into())).collect()
    }

    #[test]
    fn given_a_source_when_many_ask_for_its_tree_side_by_side_then_it_is_parsed_once_and_beyond_the_limit_by_each() {
        let files =
            of(&[("a.js", "x = f(1)\n"), ("b.js", "y = f(1, 2, 3)\n"), ("c.js", "z = 1\n"), ("d.md", "text\n")]);
        // There is no room for the second, and for the third there is.
        let snapshot = Snapshot::keeping(&files, 16);
        let paths: Vec<&str> = snapshot.sources().iter().map(|one| one.path).collect();
        assert_eq!(paths, ["a.js", "b.js", "c.js"]);
        for (source, is_kept) in snapshot.sources().iter().zip([true, false, true]) {
            let trees: Vec<Tree> = std::thread::scope(|scope| {
                let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| source.tree().unwrap())).collect();
                asked.into_iter().map(|one| one.join().unwrap()).collect()
            });
            // What copies of a tree share lies below its root, which each has for itself.
            let below = |tree: &Tree| tree.root_node().child(0).unwrap().id();
            let first = below(&trees[0]);
            let is_shared = trees[1..].iter().all(|tree| below(tree) == first);
            assert_eq!(is_shared, is_kept, "{}", source.path);
        }
        let files = of(&[("a.py", "x = f(1)\n"), ("b.py", "y = f(1, 2, 3)\n"), ("c.py", "z = 1\n")]);
        let snapshot = Snapshot::keeping(&files, 16);
        for (source, is_kept) in snapshot.sources().iter().zip([true, false, true]) {
            let modules: Vec<Arc<Module<'_>>> = std::thread::scope(|scope| {
                let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| source.module().unwrap())).collect();
                asked.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let is_shared = modules[1..].iter().all(|module| Arc::ptr_eq(module, &modules[0]));
            assert_eq!(is_shared, is_kept, "{}", source.path);
        }
    }

    #[test]
    fn given_sources_of_many_languages_when_some_are_asked_for_then_those_come_in_the_order_of_their_paths() {
        let files =
            of(&[("z.py", ""), ("a.ts", ""), ("b.tsx", ""), ("c.js", ""), ("d.go", ""), ("e.md", ""), ("a.py", "")]);
        let snapshot = Snapshot::new(&files);
        let paths = |is_wanted: fn(Language) -> bool| {
            snapshot.in_language(is_wanted).map(|one| one.path).collect::<Vec<&str>>()
        };
        assert_eq!(paths(|language| language == Language::Python), ["a.py", "z.py"]);
        assert_eq!(paths(Language::is_script), ["a.ts", "b.tsx", "c.js"]);
        assert!(paths(|language| language == Language::Rust).is_empty());
    }

    #[test]
    fn given_folders_that_begin_alike_when_one_is_asked_for_then_only_its_sources_come() {
        let files = of(&[("a.rs", ""), ("a/b.rs", ""), ("a/b/c.rs", ""), ("a0.rs", ""), ("b/a/d.rs", "")]);
        let snapshot = Snapshot::new(&files);
        for (folder, expected) in [
            ("", vec!["a.rs", "a/b.rs", "a/b/c.rs", "a0.rs", "b/a/d.rs"]),
            ("a/", vec!["a/b.rs", "a/b/c.rs"]),
            ("a/b/", vec!["a/b/c.rs"]),
            ("c/", vec![]),
        ] {
            let found: Vec<&str> = snapshot.below(folder).iter().map(|one| one.path).collect();
            assert_eq!(found, expected, "{folder}");
        }
    }

    #[test]
    fn given_a_project_when_trees_are_shared_or_not_then_every_analyzer_finds_the_same() {
        let body = "    a = 1\n    b = 2\n    c = 3\n    d = 4\n    e = 5\n    return a + b + c + d + e\n";
        let twin = format!("import b\nimport os\n\ndef f():\n{body}");
        let other = format!("import a\nimport numpy\n\ndef _g():\n{body}\nmodel.fit(X_test)\n");
        let files = of(&[
            ("a.py", twin.as_str()),
            ("b.py", other.as_str()),
            ("broken.py", "def (:\n"),
            ("requirements.txt", "flask\n"),
            ("package.json", r#"{"name":"me"}"#),
            ("web/a.ts", "import x from 'lodash';\nimport { b } from './b';\nfunction f() {}\nexport {};\n"),
            ("web/b.ts", "import './a';\nexport const b = 1;\n"),
            ("Cargo.toml", "[package]\nname = \"p\"\n"),
            ("src/lib.rs", "use hex::encode;\nfn lone() {}\npub fn open() {}\n"),
            ("go.mod", "module m\n"),
            ("m.go", "package m\nimport \"x.org/y\"\nfunc g() {}\nfunc F() {}\n"),
        ]);
        let found = |kept: usize| {
            let snapshot = Snapshot::keeping(&files, kept);
            let (syntax, ways) = syntax::analyze(&snapshot);
            let others: [fn(&Snapshot<'_>) -> Vec<Finding>; 4] =
                [dead_code::analyze, dependencies::analyze, leakage::analyze, |snapshot| {
                    import_graph::analyze(snapshot).0
                }];
            let others: Vec<Vec<Finding>> = others.iter().map(|analyze| analyze(&snapshot)).collect();
            (syntax, ways, others, surface(&snapshot))
        };
        let shared = found(MAX_KEPT);
        assert!(!shared.0.is_empty() && shared.2.iter().all(|found| !found.is_empty()), "{shared:?}");
        assert_eq!(shared, found(0));
    }
}
