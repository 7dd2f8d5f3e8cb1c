//! docs/api.md by its routes: each operation of the API is there with its method, and each path that is there is one of the API.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::Findings;

const PAGE: &str = "docs/api.md";
/// The one list of operations; a test of the API holds it against the router.
const TABLE: &str = "api/src/access/operations.rs";

type Operation = (String, String);

pub(crate) fn check(root: &Path) -> Findings {
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"));
    let (page, file) = (read(PAGE)?, read(TABLE)?);
    let table = file.split("#[cfg(test)]").next().unwrap_or_default();
    let operations: BTreeSet<Operation> = table.lines().filter_map(operation).collect();
    let told: BTreeSet<Operation> = page.lines().flat_map(told).collect();
    // A WebSocket is opened by the one method that there is for that, which nobody needs to be told.
    let is_told = |operation: &Operation| {
        told.contains(operation) || operation.1.starts_with("/ws/") && told.iter().any(|(_, path)| *path == operation.1)
    };
    let untold = operations.iter().filter(|operation| !is_told(operation));
    let mut findings: Vec<String> = untold
        .map(|(method, path)| format!("{PAGE}: {method} {path}: the API has it, and the page does not"))
        .collect();
    let is_known = |path: &str| {
        let is_above =
            |known: &str| known.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        operations.iter().any(|(_, known)| is_above(known.as_str())) || table.contains(&format!("{path:?}"))
    };
    let named: BTreeSet<&str> = told.iter().map(|(_, path)| path.as_str()).collect();
    let strange = named.into_iter().filter(|path| !is_known(path));
    findings.extend(strange.map(|path| format!("{PAGE}: {path}: the API has no such path")));
    Ok(findings)
}

/// The operation of a line of the table; one whose path takes whatever is left is another spelling of the one above it.
fn operation(line: &str) -> Option<Operation> {
    let mut texts = line.trim_start().strip_prefix("(\"")?.split('"');
    let (method, between, path) = (texts.next()?, texts.next()?, texts.next()?);
    (between == ", " && path.starts_with('/') && !path.contains("{*")).then(|| (method.to_owned(), path.to_owned()))
}

/// What a line of the page names: a path without a method has that of the one before it.
fn told(line: &str) -> Vec<Operation> {
    let mut method = "";
    let mut found = Vec::new();
    // Every other part between backticks is code.
    for code in line.split('`').skip(1).step_by(2) {
        for word in code.split_whitespace() {
            if word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase()) {
                method = word;
            }
            let path = word.split('?').next().unwrap_or_default();
            if path.len() > 1 && path.starts_with('/') && !path.contains('…') {
                found.push((method.to_owned(), path.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(method: &str, path: &str) -> Operation {
        (method.to_owned(), path.to_owned())
    }

    #[test]
    fn given_lines_when_they_are_read_then_operations_have_their_methods() {
        assert_eq!(operation("    (\"GET\", \"/runs/{id}\", READ, Reach::ById),"), Some(pair("GET", "/runs/{id}")));
        for line in [
            "    (\"GET\", \"/v1/models/{*name}\", READ, Reach::Nowhere),",
            "const OPERATIONS: &[Line] = &[",
            "(\"x\")",
        ] {
            assert_eq!(operation(line), None, "{line}");
        }
        let line = "| `GET /runs`, `/runs/{id}?after=SEQ`, `POST /runs/{id}/cancel`, `GET /finetune/…` | `{a: 1}`, `and/or`, `/` |";
        let expected = [pair("GET", "/runs"), pair("GET", "/runs/{id}"), pair("POST", "/runs/{id}/cancel")];
        assert_eq!(told(line), expected);
    }

    #[test]
    fn given_a_page_when_it_is_checked_then_what_it_lacks_and_what_is_gone_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("docs")).unwrap();
        fs::create_dir_all(folder.path().join("api/src/access")).unwrap();
        let table = "    (\"GET\", \"/runs\", READ, R),\n    (\"POST\", \"/runs\", RUN, R),\n    (\"GET\", \"/v1/models\", READ, R),\n    \
                     (\"GET\", \"/ws/agent\", RUN, R),\n    route == \"/docs\"\n";
        fs::write(folder.path().join(TABLE), table).unwrap();
        let page = "`/docs`, `GET /runs`, `/v1/models`, `/gone`\n\nUnder `/v1`, by `/ws/agent`\n";
        fs::write(folder.path().join(PAGE), page).unwrap();
        let expected = [
            "docs/api.md: POST /runs: the API has it, and the page does not",
            "docs/api.md: /gone: the API has no such path",
        ];
        assert_eq!(check(folder.path()).unwrap(), expected);
    }

    #[test]
    fn the_page_of_the_api_names_every_operation() {
        assert_eq!(check(&crate::root()).unwrap(), Vec::<String>::new());
    }
}
