//! Opens the file that a path names, and none that a link leads to: a folder above it may have been exchanged for a link since it was
//! looked at.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// A pipe can't block the open.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// A folder that may be gone through and perhaps not be listed.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a file to read. The path is a canonical one: no part of it may be a link.
pub(super) fn open_without_links(path: &Path) -> Result<File, Error> {
    match openat2(CWD, path, FILE, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(file) => Ok(file.into()),
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => by_steps(path),
        Err(error) => Err(error.into()),
    }
}

/// The same, one folder after the other.
fn by_steps(path: &Path) -> Result<File, Error> {
    let names = names(path).ok_or_else(|| Error::new(ErrorKind::InvalidInput, "it is no canonical path"))?;
    let Some((file, folders)) = names.split_last() else {
        return Err(Error::new(ErrorKind::InvalidInput, "it names no file"));
    };
    let mut folder = openat(CWD, "/", FOLDER, Mode::empty())?;
    for name in folders {
        folder = openat(&folder, *name, FOLDER, Mode::empty())?;
    }
    Ok(openat(&folder, *file, FILE, Mode::empty())?.into())
}

/// The names of a canonical path, from the root on.
fn names(path: &Path) -> Option<Vec<&OsStr>> {
    let mut parts = path.components();
    let begins = parts.next() == Some(Component::RootDir);
    let name = |part| match part {
        Component::Normal(name) => Some(name),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    };
    parts.map(name).collect::<Option<Vec<&OsStr>>>().filter(|_| begins)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    type Open = fn(&Path) -> Result<File, Error>;
    const WAYS: [Open; 2] = [open_without_links, by_steps];

    fn text(file: Result<File, Error>) -> String {
        let mut text = String::new();
        file.unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn given_a_folder_that_was_exchanged_for_a_link_when_a_file_below_it_is_opened_then_it_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for (folder, content) in [("asked/sub", "ours"), ("other/sub", "theirs")] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("a.txt"), content).unwrap();
        }
        let file = root.join("asked/sub/a.txt");
        for open in WAYS {
            assert_eq!(text(open(&file)), "ours");
        }
        symlink(&file, root.join("link.txt")).unwrap();
        for (moved, link) in [("asked/sub", "other/sub"), ("asked", "other")] {
            fs::rename(root.join(moved), root.join(format!("{moved}-before"))).unwrap();
            symlink(root.join(link), root.join(moved)).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "theirs", "whoever follows links reads the other one");
            for open in WAYS {
                assert!(open(&file).is_err() && open(&root.join("link.txt")).is_err(), "{moved}");
            }
            fs::remove_file(root.join(moved)).unwrap();
            fs::rename(root.join(format!("{moved}-before")), root.join(moved)).unwrap();
        }
    }

    #[test]
    fn given_paths_that_name_no_file_from_the_root_when_they_are_opened_by_steps_then_each_is_refused() {
        for path in ["", "/", "a.txt", "../a.txt", "/etc/../etc/passwd"] {
            assert_eq!(by_steps(Path::new(path)).unwrap_err().kind(), ErrorKind::InvalidInput, "{path}");
        }
    }
}
