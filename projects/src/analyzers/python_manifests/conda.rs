//! conda's `environment.yml`: the list of packages as conda exports it, with that of pip in it.

use super::Manifest;
use super::requirement::{Requirement, Role, exact, package, without_comment};

/// What conda calls otherwise than the Python package index.
const OTHER_NAMES: [(&str, &str); 4] =
    [("pytorch", "torch"), ("opencv", "opencv-python"), ("py-opencv", "opencv-python"), ("pytables", "tables")];

pub(super) fn read(text: &str) -> Manifest {
    let mut manifest = Manifest::default();
    let mut is_listed = false;
    // How far the entry `pip:` is indented while its list goes on.
    let mut pip: Option<usize> = None;
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line).trim_end();
        let item = line.trim_start();
        let indent = line.len() - item.len();
        if item.is_empty() {
            continue;
        }
        let Some(entry) = item.strip_prefix("- ") else {
            is_listed = item == "dependencies:";
            // A list in one line is not read.
            manifest.is_open |= item.starts_with("dependencies:") && !is_listed;
            pip = None;
            continue;
        };
        let entry = entry.trim().trim_matches(['"', '\'']);
        pip = pip.filter(|outer| indent > *outer);
        if !is_listed {
            continue;
        }
        if entry == "pip:" {
            pip = Some(indent);
        } else if pip.is_some() {
            manifest.requirements.extend(Requirement::read(entry, index + 1, Role::Needed));
        } else {
            take(entry, index + 1, &mut manifest);
        }
    }
    manifest
}

/// `channel::name=version=build`, or a name and a condition.
fn take(entry: &str, line: usize, manifest: &mut Manifest) {
    let spec = entry.rsplit_once("::").map_or(entry, |(_, spec)| spec);
    let (name, versions) = spec.split_at(spec.find(['=', '<', '>', '!', '~', ' ', '[']).unwrap_or(spec.len()));
    match name {
        "" | "python" | "pip" => return,
        // A collection of hundreds of packages.
        "anaconda" => {
            manifest.is_open = true;
            return;
        }
        _ => {}
    }
    let name = OTHER_NAMES.iter().find(|(conda, _)| *conda == name).map_or(name, |(_, other)| other);
    manifest.requirements.push(Requirement {
        package: package(name),
        line,
        is_pinned: versions.contains(['=', '<', '>', '!', '~']),
        exact: only_version(versions),
        // Many are programs and libraries that no Python imports.
        role: Role::Optional,
    });
}

/// `==1.2`, `=1.2=build`, and `=1.2.3`, which leaves no choice but of builds and fourth numbers.
fn only_version(versions: &str) -> Option<String> {
    let rest = versions.trim().strip_prefix('=')?;
    let (is_equal, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let (version, build) = rest.split_once('=').map_or((rest, None), |(version, build)| (version, Some(build)));
    let is_one = is_equal || build.is_some() || version.matches('.').count() >= 2;
    exact(version).filter(|_| is_one)
}
