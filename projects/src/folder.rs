//! Files of a copy as a temporary folder, for programs in the sandbox, and where such programs are.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use crate::aside::aside;
use crate::copy::Executables;

/// How much of a script is read for its first line: the kernel takes as much (`BINPRM_BUF_SIZE`).
const MAX_FIRST_LINE: u64 = 256;

/// Names of a copy are checked at import; here they become paths for the first time, so they are checked again.
pub(crate) fn lay_out<'f>(
    files: impl Iterator<Item = (&'f String, &'f Bytes)>,
    executables: &Executables,
) -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("riverrun-analysis-").tempdir()?;
    for (name, content) in files {
        let below = Path::new(name.as_str());
        if !below.components().all(|part| matches!(part, Component::Normal(_))) {
            continue;
        }
        let path = folder.path().join(below);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, content)?;
        if executables.contains(name) {
            std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        }
    }
    Ok(folder)
}

/// Removes folders, which takes a while where a build left many files in them.
pub(crate) async fn remove(folders: impl Send + 'static) {
    // It does not break off: what can't be removed is left.
    let _ = aside("removing a temporary folder", move || drop(folders)).await;
}

/// A program of the `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    all_on_path(name).into_iter().next()
}

/// Every program of that name on the `PATH`, in its order.
pub(crate) fn all_on_path(name: &str) -> Vec<PathBuf> {
    programs(&std::env::var_os("PATH").unwrap_or_default(), name)
}

/// As a shell looks for them: what nobody may execute is passed over.
fn programs(path: &OsStr, name: &str) -> Vec<PathBuf> {
    let may_start = |program: &PathBuf| {
        std::fs::metadata(program).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .filter(may_start)
        .collect()
}

/// An interpreter lies in `bin` beside the `lib` that it needs, and so does what a link to it stands for. The interpreter of a script
/// may be a link out of its virtual environment.
pub(crate) fn homes(program: &Path) -> Vec<PathBuf> {
    let interpreter = interpreter(program);
    [Some(program), interpreter.as_deref()].into_iter().flatten().flat_map(homes_of).collect()
}

/// What the first line of a script says that it is run by; `env` looks for that on the `PATH`, which is none of a home.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    File::open(script).ok()?.take(MAX_FIRST_LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let named = Path::new(std::str::from_utf8(line).ok()?.split_whitespace().next()?);
    (named.is_absolute() && named.file_name()? != "env").then(|| named.to_owned())
}

fn homes_of(program: &Path) -> Vec<PathBuf> {
    let home = |path: &Path| path.parent().and_then(Path::parent).map(Path::to_owned);
    // `~/bin` has none, and a home folder is nothing for code of a project.
    let is_prefix = |path: &PathBuf| path.parent().is_some() && path.join("lib").is_dir();
    let target = program.canonicalize().ok();
    let prefixes = home(program).into_iter().chain(target.as_deref().and_then(home)).filter(is_prefix);
    prefixes.chain(target.as_deref().and_then(packages)).collect()
}

/// Where the packages of Node lie that a program is one of: those that it needs lie there too, beside it or below another one.
fn packages(program: &Path) -> Option<PathBuf> {
    let is_packages = |folder: &&Path| folder.file_name().is_some_and(|name| name == "node_modules");
    program.ancestors().filter(is_packages).last().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Files;

    #[test]
    fn given_a_script_that_may_be_executed_when_files_are_laid_out_then_it_may_there_and_others_may_not() {
        let files = Files::from([("bin/run".to_owned(), "#!/bin/sh\n".into()), ("a.py".to_owned(), "".into())]);
        let folder = lay_out(files.iter(), &Executables::from(["bin/run".to_owned()])).unwrap();
        let is_executable =
            |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o100 != 0;
        assert_eq!((is_executable("bin/run"), is_executable("a.py")), (true, false));
    }

    #[test]
    fn given_a_program_among_packages_of_node_when_its_homes_are_asked_for_then_what_it_needs_beside_it_is_in_one() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for package in ["node_modules/eslint", "global/node_modules/.pnpm/eslint@9/node_modules/eslint"] {
            let (package, outermost) = (root.join(package), package.split("node_modules").next().unwrap_or_default());
            let script = package.join("bin/eslint.js");
            std::fs::create_dir_all(package.join("bin")).unwrap();
            std::fs::write(&script, "#!/usr/bin/env node\n").unwrap();
            let link = root.join(outermost).join("node_modules/eslint-link");
            std::os::unix::fs::symlink(&script, &link).unwrap();
            for program in [&script, &link] {
                assert_eq!(homes(program), [root.join(outermost).join("node_modules")], "{program:?}");
            }
        }
        assert_eq!(packages(Path::new("/usr/bin/node")), None);
    }

    #[test]
    fn given_what_can_not_be_started_on_the_path_when_a_program_is_looked_for_then_the_next_one_is_found() {
        let place = tempfile::tempdir().unwrap();
        let at = |folder: &str| place.path().join(folder).join("ruff");
        for folder in ["text", "none", "program"] {
            std::fs::create_dir(place.path().join(folder)).unwrap();
        }
        std::fs::create_dir_all(at("folder")).unwrap();
        for folder in ["text", "program"] {
            std::fs::write(at(folder), "#!/bin/sh\n").unwrap();
        }
        std::fs::set_permissions(at("program"), Permissions::from_mode(0o755)).unwrap();
        let folders = ["text", "none", "folder", "program"].map(|folder| place.path().join(folder));
        let path = std::env::join_paths(std::iter::once(PathBuf::from("relative")).chain(folders)).unwrap();
        assert_eq!(programs(&path, "ruff"), [at("program")]);
    }

    #[test]
    fn given_a_script_of_a_virtual_environment_when_its_homes_are_asked_for_then_that_of_its_interpreter_is_one() {
        let place = tempfile::tempdir().unwrap();
        let (base, venv) = (place.path().join("versions/3"), place.path().join("venv"));
        for folder in [&base, &venv] {
            std::fs::create_dir_all(folder.join("bin")).unwrap();
            std::fs::create_dir(folder.join("lib")).unwrap();
        }
        std::fs::write(base.join("bin/python3"), [0x7f, b'E', b'L', b'F']).unwrap();
        let python = venv.join("bin/python");
        std::os::unix::fs::symlink(base.join("bin/python3"), &python).unwrap();
        let base = base.canonicalize().unwrap();
        for (first, is_base_there) in [
            (format!("#!{}\nimport mypy\n", python.display()), true),
            (format!("#! {} -I\n", python.display()), true),
            ("#!/usr/bin/env python3\n".to_owned(), false),
            ("#!\n".to_owned(), false),
            ("no script\n".to_owned(), false),
        ] {
            let script = venv.join("bin/mypy");
            std::fs::write(&script, &first).unwrap();
            let found = homes(&script);
            assert_eq!((found[0] == venv, found.contains(&base)), (true, is_base_there), "{first:?}: {found:?}");
        }
    }
}
