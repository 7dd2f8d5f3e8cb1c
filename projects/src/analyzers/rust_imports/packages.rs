//! Packages of Cargo in a copy: where their crates begin, and which libraries of each other they may name.

use std::collections::{BTreeMap, BTreeSet};

use super::{Sources, below_folder, known};
use crate::analyzers::is_vendored;
use crate::analyzers::limits::MAX_PARSED;
use crate::analyzers::snapshot::Snapshot;
use crate::copy::Files;

/// Lists of a manifest that declare packages.
const LISTS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
/// Folders each of whose files, or folders with a `main.rs`, is a crate.
const OF_CRATES: [&str; 4] = ["src/bin/", "tests/", "examples/", "benches/"];

pub(super) type Manifests<'f> = BTreeMap<&'f str, toml::Table>;

/// A package of Cargo.
pub(super) struct Package<'f> {
    /// With `/` at its end.
    folder: &'f str,
    name: String,
    /// What `use` calls its library.
    library_name: String,
    pub(super) library: Option<&'f str>,
    /// Of edition 2015, in which a path begins at the root of the crate.
    pub(super) is_old: bool,
    pub(super) roots: BTreeSet<&'f str>,
}

pub(super) fn manifests(files: &Files) -> Manifests<'_> {
    let own = files.iter().filter(|(path, content)| !is_vendored(path) && content.len() <= MAX_PARSED);
    own.filter_map(|(path, content)| {
        let folder = path.strip_suffix("Cargo.toml").filter(|folder| folder.is_empty() || folder.ends_with('/'))?;
        Some((folder, toml::from_str(std::str::from_utf8(content).ok()?).ok()?))
    })
    .collect()
}

/// `None` when the manifest is only that of a workspace.
pub(super) fn package<'f>(
    folder: &'f str,
    manifest: &toml::Table,
    snapshot: &Snapshot<'f>,
    sources: &Sources<'f>,
) -> Option<Package<'f>> {
    let about = manifest.get("package")?;
    let name = about.get("name")?.as_str()?;
    let of_library = |key: &str| manifest.get("lib").and_then(|lib| lib.get(key)).and_then(toml::Value::as_str);
    let known = |below: &str| known(&below_folder(folder, below)?, sources);
    let library = known(of_library("path").unwrap_or("src/lib.rs"));
    let build = about.get("build").and_then(toml::Value::as_str).unwrap_or("build.rs");
    let mut roots: BTreeSet<&'f str> = [library, known("src/main.rs"), known(build)].into_iter().flatten().collect();
    for list in ["bin", "test", "example", "bench"] {
        let listed = manifest.get(list).and_then(toml::Value::as_array).into_iter().flatten();
        let paths = listed.filter_map(|one| one.get("path").and_then(toml::Value::as_str));
        roots.extend(paths.filter_map(known));
    }
    for kind in OF_CRATES {
        let folder = format!("{folder}{kind}");
        let is_root = |below: &str| match below.strip_suffix("/main.rs") {
            Some(inner) => !inner.contains('/'),
            None => below.ends_with(".rs") && !below.contains('/'),
        };
        let all = snapshot.below(&folder).iter().filter(|one| is_root(&one.path[folder.len()..]));
        roots.extend(all.map(|one| one.path).filter(|path| sources.contains_key(path)));
    }
    let edition = about.get("edition");
    Some(Package {
        folder,
        name: name.to_owned(),
        library_name: of_library("name").unwrap_or(name).replace('-', "_"),
        library,
        is_old: edition.is_none_or(|edition| edition.as_str() == Some("2015")),
        roots,
    })
}

/// Where the packages are, by folder and by name.
pub(super) struct Places<'p, 'f> {
    by_folder: BTreeMap<&'f str, &'p Package<'f>>,
    by_name: BTreeMap<&'p str, &'p Package<'f>>,
}

impl<'p, 'f> Places<'p, 'f> {
    pub(super) fn new(packages: &'p [Package<'f>]) -> Self {
        let mut by_name = BTreeMap::new();
        for one in packages {
            by_name.entry(one.name.as_str()).or_insert(one);
        }
        Self { by_folder: packages.iter().map(|one| (one.folder, one)).collect(), by_name }
    }
}

/// What `use` of a package may begin with: the names of libraries of the copy that it declares, and its own for its programs and tests,
/// each with the root of the library.
pub(super) fn libraries<'f>(
    package: &Package<'f>,
    places: &Places<'_, 'f>,
    manifests: &Manifests<'f>,
) -> BTreeMap<String, &'f str> {
    let own = package.library.map(|root| (package.library_name.clone(), root));
    let mut found: BTreeMap<String, &'f str> = own.into_iter().collect();
    let Some(manifest) = manifests.get(package.folder) else { return found };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let parts = targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table);
    for part in std::iter::once(manifest).chain(parts) {
        let lists = LISTS.iter().filter_map(|list| part.get(*list).and_then(toml::Value::as_table));
        for (key, said) in lists.flatten() {
            let is_shared = said.get("workspace").and_then(toml::Value::as_bool) == Some(true);
            let shared = if is_shared { of_workspace(package.folder, key, manifests) } else { None };
            let (base, said) = shared.unwrap_or((package.folder, said));
            let word = |name: &str| said.get(name).and_then(toml::Value::as_str);
            let renamed = word("package");
            let other = match word("path") {
                Some(path) => below_folder(base, path).and_then(|path| {
                    let folder = if path.is_empty() { path } else { format!("{path}/") };
                    places.by_folder.get(folder.as_str())
                }),
                None => places.by_name.get(renamed.unwrap_or(key)),
            };
            if let Some(other) = other
                && let Some(root) = other.library
            {
                let name = if renamed.is_some() { key.replace('-', "_") } else { other.library_name.clone() };
                found.entry(name).or_insert(root);
            }
        }
    }
    found
}

/// What the workspace around a package says of a dependency, and the folder from which it says so.
fn of_workspace<'m>(folder: &'m str, key: &str, manifests: &'m Manifests<'_>) -> Option<(&'m str, &'m toml::Value)> {
    let above = |folder: &&'m str| {
        let bare = folder.strip_suffix('/')?;
        Some(bare.rfind('/').map_or("", |end| &bare[..=end]))
    };
    std::iter::successors(Some(folder), above).find_map(|folder| {
        let shared = manifests.get(folder)?.get("workspace")?.get("dependencies")?;
        Some((folder, shared.get(key)?))
    })
}
