//! docs/configuration.md by its settings: what code and deployments name is there, and what is there is named by them. A setting that
//! nobody can find is none, and one that nothing reads does no more than a typing error.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::Findings;

const PAGE: &str = "docs/configuration.md";
const PREFIX: &str = "RIVERRUN_";

/// What the program hands to a copy of itself, and what comments and tests call a setting of any name.
const INTERNAL: [&str; 3] = ["RIVERRUN_SANDBOX", "RIVERRUN_SANDBOX_LIBRARIES", "RIVERRUN_X"];

/// Servers that tests use where there are some, and how far fuzzing goes.
const OF_TESTS: [&str; 2] = ["RIVERRUN_TEST_", "RIVERRUN_FUZZ_"];

/// Any secret may be a file, whose setting has this end.
const BY_FILE: &str = "_FILE";

pub(crate) fn check(root: &Path) -> Findings {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let listed: BTreeSet<String> = names(&page).filter(|name| says_something(name)).collect();
    let own = root.join("xtask");
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for path in crate::files_ending(root, &["rs", "yaml", "yml", "tpl", "env"]).filter(|path| !path.starts_with(&own)) {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        for (number, line) in text.lines().enumerate() {
            for name in names(line).filter(|name| !is_internal(name)) {
                if !listed.iter().any(|listed| covers(listed, &name)) {
                    findings.push(format!("{file}:{}: {name}: not in {PAGE}", number + 1));
                }
                used.insert(name);
            }
        }
    }
    // A beginning alone is code that takes a name apart: it reads no setting.
    used.retain(|name| !is_beginning(name));
    let unread = listed.iter().filter(|listed| !used.iter().any(|name| covers(listed, name)));
    findings.extend(unread.map(|name| format!("{PAGE}: {name}: nothing reads it")));
    Ok(findings)
}

/// The settings that a text names, with `*` for what is put in: `<PROVIDER>`, `{name}`, `…`.
fn names(text: &str) -> impl Iterator<Item = String> {
    text.match_indices(PREFIX).map(|(at, _)| name(&text[at..]))
}

/// The setting that a text begins with.
fn name(text: &str) -> String {
    let mut name = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let end = match c {
            'A'..='Z' | '0'..='9' | '_' | '*' => {
                name.push(c);
                continue;
            }
            '…' => '…',
            '<' => '>',
            '{' => '}',
            _ => break,
        };
        name.push('*');
        if end != c {
            rest.find(|c| *c == end);
        }
    }
    name
}

fn is_beginning(name: &str) -> bool {
    name.ends_with(['*', '_'])
}

/// Whether more stands in a name than what all of them begin with.
fn says_something(name: &str) -> bool {
    name.trim_end_matches(['*', '_']).len() >= PREFIX.len()
}

fn is_internal(name: &str) -> bool {
    OF_TESTS.iter().any(|start| name.starts_with(start))
        || INTERNAL.contains(&name.strip_suffix(BY_FILE).unwrap_or(name))
}

/// Whether a listed setting is the one that is named, or one of those whose beginning is.
fn covers(listed: &str, name: &str) -> bool {
    if is_beginning(name) {
        return listed.starts_with(name.split('*').next().unwrap_or_default());
    }
    let is_it = |name: &str| match listed.split_once('*') {
        Some((start, end)) => name.len() > start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
        None => name == listed,
    };
    is_it(name) || name.strip_suffix(BY_FILE).is_some_and(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_text_when_it_is_read_then_settings_are_found_with_a_place_for_what_is_put_in() {
        for (text, expected) in [
            ("values.text(\"RIVERRUN_API_PORT\")", vec!["RIVERRUN_API_PORT"]),
            ("`RIVERRUN_<PROVIDER>_USER`, `RIVERRUN_KAFKA_<NAME>`", vec!["RIVERRUN_*_USER", "RIVERRUN_KAFKA_*"]),
            ("format!(\"RIVERRUN_{}_API_KEY\", name)", vec!["RIVERRUN_*_API_KEY"]),
            ("`${RIVERRUN_SOURCE_…}`: `RIVERRUN_`", vec!["RIVERRUN_SOURCE_*", "RIVERRUN_"]),
            ("riverrun_api, `…_PASSWORD_FILE`", vec![]),
        ] {
            assert_eq!(names(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn given_settings_that_are_listed_or_not_when_checked_then_only_the_others_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["docs", "log", "deploy"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let page =
            "`RIVERRUN_PORT`, `RIVERRUN_<PROVIDER>_API_KEY`, `RIVERRUN_GONE`, `RIVERRUN_SOURCE_…`, `RIVERRUN_…`\n";
        fs::write(folder.path().join(PAGE), page).unwrap();
        let code = "const A: [&str; 4] = [\"RIVERRUN_PORT\", \"RIVERRUN_SANDBOX\", \"RIVERRUN_COHERE_API_KEY_FILE\", \"RIVERRUN_SOURCE_SHOP\"];\n\
                    const B: [&str; 3] = [\"RIVERRUN_\", \"RIVERRUN_PO\", \"RIVERRUN_TEST_SERVER\"];\n\
                    const C: [&str; 2] = [\"RIVERRUN_SOURCE_\", \"RIVERRUN_OTHER_\"];\n";
        fs::write(folder.path().join("log/a.rs"), code).unwrap();
        fs::write(folder.path().join("deploy/values.yaml"), "name: x\nenv: RIVERRUN_PROT\n").unwrap();
        let expected = [
            "deploy/values.yaml:2: RIVERRUN_PROT: not in docs/configuration.md",
            "log/a.rs:2: RIVERRUN_PO: not in docs/configuration.md",
            "log/a.rs:3: RIVERRUN_OTHER_: not in docs/configuration.md",
            "docs/configuration.md: RIVERRUN_GONE: nothing reads it",
        ];
        assert_eq!(check(folder.path()).unwrap(), expected);
    }

    #[test]
    fn the_repository_lists_every_setting_that_it_reads() {
        assert_eq!(check(&crate::root()).unwrap(), Vec::<String>::new());
    }
}
