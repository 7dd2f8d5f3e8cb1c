//! Files of a copy as a temporary folder, for programs in the sandbox, and where such programs are.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use crate::copy::Executables;

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

/// A program of the `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    all_on_path(name).into_iter().next()
}

/// Every program of that name on the `PATH`, in its order.
pub(crate) fn all_on_path(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .filter(|program| program.is_file())
        .collect()
}

/// An interpreter lies in `bin` beside the `lib` that it needs, and so does what a link to it stands for.
pub(crate) fn homes(program: &Path) -> Vec<PathBuf> {
    let home = |path: &Path| path.parent().and_then(Path::parent).map(Path::to_owned);
    // `~/bin` has none, and a home folder is nothing for code of a project.
    let is_prefix = |path: &PathBuf| path.parent().is_some() && path.join("lib").is_dir();
    let target = program.canonicalize().ok();
    home(program).into_iter().chain(target.as_deref().and_then(home)).filter(is_prefix).collect()
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
}
