//! The layering. Members of the root `Cargo.toml` stand in order: a crate uses only crates above it.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use toml::{Table, Value};

use crate::Findings;

/// Libraries that one crate keeps to itself, so that the rest of the house does not depend on how it is done.
/// A test may use them anywhere: it looks at the thing from outside.
const KEEPERS: &[(&str, &[&str], &str)] = &[
    ("rdkafka", &["log"], "log is the only place that knows Kafka's client; use riverrun-log"),
    ("similar", &["projects"], "projects shows changes as diffs"),
    ("kafka-protocol", &["broker"], "only the broker speaks the wire protocol itself"),
    ("apache-avro", &["schemas"], "schemas encodes and decodes; use its EventSet"),
    // Other people's databases are a source of documents; our own are in stores.
    ("sqlx", &["stores", "knowledge"], "stores keeps SQL; add a query to a read model"),
    ("tantivy", &["stores"], "use the KeywordIndex trait"),
    ("duckdb", &["stores"], "use the Warehouse trait"),
    ("qdrant-edge", &["stores"], "use the VectorStore trait"),
    ("qdrant-client", &["stores"], "use the VectorStore trait"),
    ("redis", &["stores"], "use the Cache trait"),
    ("llama-cpp-2", &["models"], "use the Provider trait"),
    ("candle-core", &["models", "training"], "use the Provider trait, or training for what learns"),
    ("aws-sigv4", &["models"], "use the Provider trait"),
    ("axum", &["api", "cli"], "only the API and the program that serves it speak HTTP"),
    ("utoipa", &["stores", "api"], "what clients see is described in the read models and in api/src/wire"),
    ("clap", &["cli", "xtask"], "only programs read arguments"),
    ("opentelemetry-proto", &["workers"], "the tracer tells runs to tracing services"),
    // Said there so that a build of the program alone has the same features as one with the tests.
    ("hyper", &["cli"], "use axum or reqwest"),
];

/// The language of the log does no I/O, so it needs none of these.
const NOT_IN_SCHEMAS: &[&str] = &["tokio", "futures", "async-trait", "reqwest", "tracing"];

/// A crate of the workspace as its manifest shows it.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) folder: String,
    pub(crate) package: String,
    /// Name and whether it is for tests only.
    pub(crate) uses: Vec<(String, bool)>,
    /// Dependencies whose version or features are said here instead of at the root.
    pub(crate) pinned_here: Vec<String>,
}

pub(crate) fn check(root: &Path) -> Findings {
    let workspace = read(&root.join("Cargo.toml"))?;
    Ok(findings(&crates(root, &workspace)?))
}

/// The members of the workspace, in their order.
pub(crate) fn crates(root: &Path, workspace: &Table) -> anyhow::Result<Vec<Crate>> {
    let folders = members(workspace).context("Cargo.toml has no workspace.members")?;
    folders
        .into_iter()
        .map(|folder| {
            let path = root.join(&folder).join("Cargo.toml");
            crate_of(folder, &read(&path)?).with_context(|| format!("{} is no crate's manifest", path.display()))
        })
        .collect()
}

pub(crate) fn read(path: &Path) -> anyhow::Result<Table> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
}

fn members(workspace: &Table) -> Option<Vec<String>> {
    let list = workspace.get("workspace")?.get("members")?.as_array()?;
    Some(list.iter().filter_map(|member| member.as_str().map(str::to_owned)).collect())
}

fn crate_of(folder: String, manifest: &Table) -> anyhow::Result<Crate> {
    let package = manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(Value::as_str)
        .ok_or_else(|| anyhow!("package.name is missing"))?
        .to_owned();
    let mut found = Crate { folder, package, uses: Vec::new(), pinned_here: Vec::new() };
    collect_uses(manifest, &mut found);
    for target in manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values) {
        target.as_table().into_iter().for_each(|table| collect_uses(table, &mut found));
    }
    Ok(found)
}

fn collect_uses(table: &Table, found: &mut Crate) {
    for (section, for_tests) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
        for (name, spec) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
            found.uses.push((name.clone(), for_tests));
            let plain = spec.as_table().is_some_and(|spec| {
                spec.get("workspace").and_then(Value::as_bool) == Some(true) && !spec.contains_key("features")
            });
            if !plain {
                found.pinned_here.push(name.clone());
            }
        }
    }
}

fn findings(crates: &[Crate]) -> Vec<String> {
    let mut findings = Vec::new();
    for (place, this) in crates.iter().enumerate() {
        let expected = if this.folder == "xtask" { "xtask".to_owned() } else { format!("riverrun-{}", this.folder) };
        if this.package != expected {
            findings.push(format!(
                "the crate in {}/ is called {} and should be called {expected}",
                this.folder, this.package
            ));
        }
        for name in &this.pinned_here {
            findings.push(format!(
                "{}/Cargo.toml gives {name} a version or features; say `{name}.workspace = true` and put them into the \
                 root's [workspace.dependencies], so that every build shares one artifact",
                this.folder
            ));
        }
        for (name, for_tests) in &this.uses {
            findings.extend(edge(crates, place, this, name));
            if !for_tests {
                findings.extend(kept_elsewhere(this, name));
            }
        }
    }
    findings
}

fn edge(crates: &[Crate], place: usize, this: &Crate, name: &str) -> Option<String> {
    let other = crates.iter().position(|other| other.package == name)?;
    if this.package == "xtask" || name == "xtask" {
        return Some(format!(
            "{} -> {name}: xtask stands apart; it uses no crate of ours and none uses it",
            this.package
        ));
    }
    (other >= place).then(|| {
        format!(
            "{} -> {name}: a crate uses only crates above it, and {}/ stands below {}/ in the list of members in Cargo.toml; \
             move what both need up, or turn the arrow round with a trait",
            this.package, crates[other].folder, this.folder
        )
    })
}

fn kept_elsewhere(this: &Crate, name: &str) -> Option<String> {
    if this.folder == "schemas" && NOT_IN_SCHEMAS.contains(&name) {
        return Some(format!("{} -> {name}: schemas does no I/O and is not async", this.package));
    }
    let (_, keepers, why) = KEEPERS.iter().find(|(kept, ..)| *kept == name)?;
    (!keepers.contains(&this.folder.as_str())).then(|| format!("{} -> {name}: {why}", this.package))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(folder: &str, manifest: &str) -> Crate {
        crate_of(folder.to_owned(), &toml::from_str(manifest).unwrap()).unwrap()
    }

    fn named(folder: &str, dependencies: &str) -> Crate {
        krate(folder, &format!("[package]\nname = \"riverrun-{folder}\"\n{dependencies}"))
    }

    #[test]
    fn given_arrows_that_point_up_when_checked_then_nothing_is_found() {
        let crates = [
            named("schemas", "[dependencies]\nserde.workspace = true"),
            named("log", "[dependencies]\nriverrun-schemas.workspace = true\nrdkafka.workspace = true"),
            named("api", "[dependencies]\nriverrun-log.workspace = true\n[dev-dependencies]\nrdkafka.workspace = true"),
        ];
        assert_eq!(findings(&crates), Vec::<String>::new());
    }

    #[test]
    fn given_an_arrow_that_points_down_when_checked_then_edge_and_rule_are_named() {
        for section in ["dependencies", "build-dependencies", "dev-dependencies", "target.'cfg(unix)'.dependencies"] {
            let crates =
                [named("log", &format!("[{section}]\nriverrun-api.workspace = true")), named("api", "[dependencies]")];
            let found = findings(&crates);
            assert_eq!(found.len(), 1, "{section}: {found:?}");
            assert!(found[0].contains("riverrun-log -> riverrun-api"), "{}", found[0]);
            assert!(found[0].contains("only crates above it"), "{}", found[0]);
        }
    }

    #[test]
    fn given_a_kept_library_elsewhere_when_checked_then_its_keeper_is_named() {
        let found = findings(&[named("api", "[dependencies]\nrdkafka.workspace = true")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("riverrun-api -> rdkafka") && found[0].contains("riverrun-log"), "{}", found[0]);
    }

    #[test]
    fn given_schemas_with_a_runtime_when_checked_then_it_is_refused() {
        assert_eq!(findings(&[named("schemas", "[dependencies]\ntokio.workspace = true")]).len(), 1);
    }

    #[test]
    fn given_versions_or_features_in_a_crate_when_checked_then_they_belong_to_the_root() {
        for spec in
            ["serde = \"1\"", "serde = { workspace = true, features = [\"rc\"] }", "serde = { version = \"1\" }"]
        {
            let found = findings(&[named("log", &format!("[dependencies]\n{spec}"))]);
            assert_eq!(found.len(), 1, "{spec}: {found:?}");
            assert!(found[0].contains("log/Cargo.toml gives serde"), "{}", found[0]);
        }
    }

    #[test]
    fn given_a_crate_with_another_name_than_its_folder_when_checked_then_it_is_found() {
        let found = findings(&[krate("log", "[package]\nname = \"logging\"")]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn given_xtask_with_a_crate_of_ours_when_checked_then_it_is_refused() {
        let crates = [
            named("log", ""),
            krate("xtask", "[package]\nname = \"xtask\"\n[dependencies]\nriverrun-log.workspace = true"),
        ];
        assert_eq!(findings(&crates).len(), 1);
    }

    #[test]
    fn the_repository_keeps_its_layers() {
        assert_eq!(check(&crate::root()).unwrap(), Vec::<String>::new());
    }
}
