//! Elements of JSX use names, which ESLint does not see without a plugin: what it then calls unused is none.

use std::collections::{HashMap, HashSet};

use crate::copy::Files;
use crate::finding::Finding;
use crate::language::{Language, each, text};

const RULE: &str = "no-unused-vars";
/// Names that compilers of JSX use unseen.
const UNSEEN: [&str; 3] = ["React", "h", "Fragment"];

/// Takes findings away that call a name unused which is that of an element.
pub(super) fn drop_used(files: &Files, found: &mut Vec<Finding>) {
    let mut by_file: HashMap<String, HashSet<String>> = HashMap::new();
    found.retain(|one| {
        // `'Button' is defined but never used.`
        let Some(name) = one.message.split('\'').nth(1).filter(|_| one.rule == RULE) else { return true };
        let names = by_file
            .entry(one.file.clone())
            .or_insert_with(|| files.get(&one.file).map(|content| names(content)).unwrap_or_default());
        !names.contains(name)
    });
}

/// What the elements of a file are called, of `Menu.Item` the first part, with what each of them uses.
fn names(source: &[u8]) -> HashSet<String> {
    let mut found = HashSet::new();
    let Some(tree) = Language::JavaScript.parse(source) else { return found };
    each(tree.root_node(), |node| {
        if !matches!(node.kind(), "jsx_opening_element" | "jsx_self_closing_element") {
            return;
        }
        found.extend(UNSEEN.map(str::to_owned));
        let name = node.child_by_field_name("name").map(|name| text(name, source));
        found.extend(name.and_then(|name| name.split('.').next()).map(|name| name.trim().to_owned()));
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn given_names_that_only_elements_use_when_a_linter_calls_them_unused_then_they_are_none_and_others_stay() {
        let page = "import React from 'r';\nimport { B, Menu, Lost } from 'b';\nexport const A = () => <B><Menu.Item x={1} /></B>;\n";
        let files =
            Files::from([("a.jsx".to_owned(), page.into()), ("b.js".to_owned(), "import React from 'r';\n".into())]);
        let finding = |file: &str, rule: &str, name: &str| {
            let message = format!("'{name}' is defined but never used.");
            Finding::new(("eslint", rule, Severity::Medium), (file, 1, 1), message, "")
        };
        let mut found: Vec<Finding> =
            ["React", "B", "Menu", "Lost"].iter().map(|name| finding("a.jsx", RULE, name)).collect();
        found.extend([
            finding("b.js", RULE, "React"),
            finding("a.jsx", "no-redeclare", "B"),
            finding("gone.js", RULE, "B"),
        ]);
        drop_used(&files, &mut found);
        let left: Vec<(&str, &str)> =
            found.iter().map(|one| (one.file.as_str(), one.message.split('\'').nth(1).unwrap_or_default())).collect();
        assert_eq!(left, [("a.jsx", "Lost"), ("b.js", "React"), ("a.jsx", "B"), ("gone.js", "B")]);
    }
}
