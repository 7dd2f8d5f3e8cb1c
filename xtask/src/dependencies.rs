//! Dependencies that have lost their place: named by no code of the crate that lists them, or listed at the root for nobody.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;
use toml::{Table, Value};

use crate::layers::{self, Crate};
use crate::{Findings, files_ending};

/// Listed for its features alone, and named by no code.
const FOR_FEATURES: &[(&str, &[&str])] = &[
    // A build of the program alone has the same features as one with the tests.
    ("hyper", &["cli"]),
    // candle multiplies with it, and leaves the option for wider registers off.
    ("gemm", &["models", "training"]),
];

pub(crate) fn check(root: &Path) -> Findings {
    let workspace = layers::read(&root.join("Cargo.toml"))?;
    let crates = layers::crates(root, &workspace)?;
    let mut found = Vec::new();
    for this in &crates {
        let code = code_of(&root.join(&this.folder))?;
        found.extend(unnamed(this, &code));
    }
    found.extend(for_nobody(&workspace, &crates));
    Ok(found)
}

fn code_of(folder: &Path) -> anyhow::Result<String> {
    let mut code = String::new();
    for path in files_ending(folder, &["rs"]) {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        code.push_str(&text);
        code.push('\n');
    }
    Ok(code)
}

fn unnamed(this: &Crate, code: &str) -> Vec<String> {
    let is_for_features = |name: &str| {
        FOR_FEATURES.iter().any(|(known, folders)| *known == name && folders.contains(&this.folder.as_str()))
    };
    this.uses
        .iter()
        .filter(|(name, _)| !is_for_features(name) && !names(code, &name.replace('-', "_")))
        .map(|(name, _)| format!("{}/Cargo.toml lists {name}, which no code there names; take it out", this.folder))
        .collect()
}

/// Whether code, comments aside, begins a path with this name.
fn names(code: &str, name: &str) -> bool {
    code.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let behind = &line[at + name.len()..];
            let is_whole = !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
            is_whole && (behind.starts_with("::") || behind.starts_with(';') || behind.starts_with(" as "))
        })
    })
}

/// What the root lists with a version and no crate uses.
fn for_nobody(workspace: &Table, crates: &[Crate]) -> Vec<String> {
    let used: BTreeSet<&str> = crates.iter().flat_map(|this| &this.uses).map(|(name, _)| name.as_str()).collect();
    let listed =
        workspace.get("workspace").and_then(|workspace| workspace.get("dependencies")).and_then(Value::as_table);
    listed
        .into_iter()
        .flat_map(Table::keys)
        .filter(|name| !used.contains(name.as_str()))
        .map(|name| format!("the root's Cargo.toml lists {name}, which no crate uses; take it out"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(folder: &str, uses: &[&str]) -> Crate {
        Crate {
            folder: folder.to_owned(),
            package: format!("riverrun-{folder}"),
            uses: uses.iter().map(|name| ((*name).to_owned(), false)).collect(),
            pinned_here: Vec::new(),
        }
    }

    #[test]
    fn given_a_dependency_that_only_a_comment_names_when_checked_then_it_is_found() {
        let this = krate("log", &["async-trait", "bytes", "tokio", "url"]);
        let code = "use bytes::Bytes;\n// tokio::spawn would do\n    let my_url = other::url_of();\n#[async_trait::async_trait]\n";
        let found = unnamed(&this, code);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("lists tokio") && found[1].contains("lists url"), "{found:?}");
    }

    #[test]
    fn given_a_dependency_for_its_features_when_checked_then_it_stays_where_that_is_said() {
        assert_eq!(unnamed(&krate("cli", &["hyper"]), ""), Vec::<String>::new());
        assert_eq!(unnamed(&krate("api", &["hyper"]), "").len(), 1);
    }

    #[test]
    fn given_a_version_at_the_root_that_no_crate_uses_when_checked_then_it_is_found() {
        let workspace: Table = toml::from_str("[workspace.dependencies]\nbytes = \"1\"\nurl = \"2\"").unwrap();
        let found = for_nobody(&workspace, &[krate("log", &["bytes"])]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("lists url"), "{found:?}");
    }

    #[test]
    fn the_repository_lists_what_it_names() {
        assert_eq!(check(&crate::root()).unwrap(), Vec::<String>::new());
    }
}
