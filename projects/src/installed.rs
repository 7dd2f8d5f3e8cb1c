//! What installed packages say of themselves: the one thing of a virtual environment that is copied (the core metadata of Python,
//! <https://packaging.python.org/specifications/core-metadata/>), because no lock file says it.

use std::fs;
use std::path::{Path, PathBuf};

/// Most packages whose metadata are copied.
const MAX_PACKAGES: usize = 5_000;
/// Longest metadata that are copied, in bytes: they may have a whole page in them.
const MAX_BYTES: u64 = 1 << 20;
/// Folders of virtual environments.
const ENVIRONMENTS: [&str; 2] = [".venv", "venv"];

/// Whether a path of a copy is the metadata of a package in a virtual environment at its top.
pub(crate) fn is_metadata(path: &str) -> bool {
    match path.split('/').collect::<Vec<&str>>().as_slice() {
        [environment, "lib", python, "site-packages", package, "METADATA"] => {
            ENVIRONMENTS.contains(environment) && python.starts_with("python") && package.ends_with(".dist-info")
        }
        _ => false,
    }
}

/// The metadata of the virtual environments at the top of a folder, by their paths within it. No link is followed; what can't be
/// read is left out.
pub(crate) fn metadata(root: &Path) -> Vec<(String, PathBuf, u64)> {
    let mut found = Vec::new();
    for environment in ENVIRONMENTS.iter().map(|name| root.join(name)).filter(|path| is_folder(path)) {
        for python in folders(&environment.join("lib")) {
            for package in folders(&python.join("site-packages")) {
                let file = package.join("METADATA");
                let Ok(about) = fs::symlink_metadata(&file) else { continue };
                let name = file.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned);
                let Some(name) = name.filter(|name| is_metadata(name)) else { continue };
                if about.is_file() && about.len() <= MAX_BYTES && found.len() < MAX_PACKAGES {
                    found.push((name, file, about.len()));
                }
            }
        }
    }
    found
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}

/// The folders of a folder, in the order of their names.
fn folders(path: &Path) -> Vec<PathBuf> {
    if !is_folder(path) {
        return Vec::new();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_folder(path)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_an_environment_when_it_is_looked_through_then_only_metadata_of_packages_are_found() {
        let root = tempfile::tempdir().unwrap();
        let packages = root.path().join(".venv/lib/python3.12/site-packages");
        for (file, text) in [
            ("a-1.0.dist-info/METADATA", "Name: a"),
            ("a-1.0.dist-info/RECORD", ""),
            ("a/METADATA", "no"),
            ("b-1.0.dist-info/sub/METADATA", "no"),
        ] {
            let path = packages.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(packages.join("a-1.0.dist-info"), packages.join("c-1.0.dist-info")).unwrap();
        let names: Vec<String> = metadata(root.path()).into_iter().map(|(name, _, _)| name).collect();
        assert_eq!(names, [".venv/lib/python3.12/site-packages/a-1.0.dist-info/METADATA"]);
        for name in
            ["venv/lib/x/site-packages/a.dist-info/METADATA", "x/.venv/lib/python3/site-packages/a.dist-info/METADATA"]
        {
            assert!(!is_metadata(name), "{name}");
        }
    }
}
