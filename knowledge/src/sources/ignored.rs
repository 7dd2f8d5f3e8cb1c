//! What a folder's `.ignore`, `.gitignore` and `.git/info/exclude` list, for a walk that comes to a folder before its entries.
//!
//! The files of rules are those of a stranger, too: they are read as any other, so that no link is followed (git does not follow them
//! either), a pipe holds nothing up, and each has a limit. The reader of the crate `ignore` opens whatever has the name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::DirEntry;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;

use super::read::read_regular;
use super::{Fault, SourceError};

/// The files of rules of a folder. What one says goes before what the next ones say, in whichever folder they are.
const FILES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];
/// Longest file of rules, in bytes: 1 MiB.
const MAX_BYTES: u64 = 1 << 20;
/// Most rules that hold in one folder, with those of the folders above it: each takes memory until the walk leaves its folder.
const MAX_RULES: usize = 10_000;
/// Most rules of all folders of a walk together: each takes time, and one file of rules may lie in thousands of folders.
const MAX_ALL: usize = 100_000;

/// The rules of the folders that a walk is in. Clones are the same rules.
#[derive(Debug, Clone, Default)]
pub struct IgnoreRules(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// A folder and those above it, the outermost first.
    levels: Vec<Level>,
    /// Rules that were read so far.
    read: usize,
    failure: Option<SourceError>,
}

/// The rules that stand in one folder.
#[derive(Debug)]
struct Level {
    folder: PathBuf,
    /// As [`FILES`] is ordered.
    rules: [Gitignore; FILES.len()],
}

impl Level {
    fn len(&self) -> usize {
        self.rules.iter().map(Gitignore::len).sum()
    }
}

impl IgnoreRules {
    /// Whether the walk is to pass an entry over. Each is asked for after the folder that it is in. Blocks.
    ///
    /// Once rules could not be read it is every entry: then the walk ends soon, and [`failure`](Self::failure) says why.
    pub fn leave_out(&self, entry: &DirEntry) -> bool {
        // Of the root nothing is said, and no rule above it is asked.
        let Some(folder) = entry.path().parent().filter(|_| entry.depth() > 0) else { return false };
        let mut state = self.0.lock();
        if state.failure.is_none() {
            state.failure = state.enter(folder).err();
        }
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        state.failure.is_some() || state.lists(entry.path(), is_folder)
    }

    /// Why rules could not be read, once the walk is over.
    pub fn failure(&self) -> Option<SourceError> {
        self.0.lock().failure.clone()
    }
}

impl State {
    /// Reads the rules of a folder, unless the walk is in it already.
    fn enter(&mut self, folder: &Path) -> Result<(), SourceError> {
        while self.levels.last().is_some_and(|level| !folder.starts_with(&level.folder)) {
            self.levels.pop();
        }
        if self.levels.last().is_some_and(|level| level.folder == folder) {
            return Ok(());
        }
        let held: usize = self.levels.iter().map(Level::len).sum();
        let level = read(folder, MAX_RULES.saturating_sub(held))?;
        self.read += level.len();
        if self.read > MAX_ALL {
            return Err(refused(folder, &format!("is where the folders come to more than {MAX_ALL} rules together")));
        }
        self.levels.push(level);
        Ok(())
    }

    fn lists(&self, path: &Path, is_folder: bool) -> bool {
        let said = |number: usize| {
            let mut nearest_first = self.levels.iter().rev().map(|level| level.rules[number].matched(path, is_folder));
            nearest_first.find(|said| !said.is_none())
        };
        (0..FILES.len()).find_map(said).is_some_and(|said| said.is_ignore())
    }
}

/// The rules of a folder, of which there may be `room` at most.
fn read(folder: &Path, mut room: usize) -> Result<Level, SourceError> {
    let mut rules = [Gitignore::empty(), Gitignore::empty(), Gitignore::empty()];
    for (name, place) in FILES.iter().zip(&mut rules) {
        let path = folder.join(name);
        let Some(text) = text_of(&path)? else { continue };
        let lines =
            || text.trim_start_matches('\u{feff}').lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        room = room
            .checked_sub(lines().count())
            .ok_or_else(|| refused(&path, &format!("makes more than {MAX_RULES} rules in one folder")))?;
        let mut builder = GitignoreBuilder::new(folder);
        for line in lines() {
            // What is no pattern matches nothing, as for git.
            let _ = builder.add_line(None, line);
        }
        *place = builder.build().map_err(|error| refused(&path, &format!("has too many rules: {error}")))?;
    }
    Ok(Level { folder: folder.to_owned(), rules })
}

/// The text of a file of rules; `None` where there is none: a link, a pipe or a folder of that name, or one that can't be read.
fn text_of(path: &Path) -> Result<Option<String>, SourceError> {
    match read_regular(path, MAX_BYTES) {
        Ok((bytes, _)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(SourceError::TooLarge { .. }) => Err(refused(path, &format!("has more than {MAX_BYTES} bytes of rules"))),
        Err(_) => Ok(None),
    }
}

fn refused(path: &Path, reason: &str) -> SourceError {
    let name = path.display().to_string();
    SourceError::fault(&name, Fault::LimitExceeded, reason, "list folders instead of the files in them")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use ignore::WalkBuilder;
    use tempfile::TempDir;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (place, root)
    }

    /// The entries that a walk shows, but for files of rules and what is of git.
    fn shown(root: &Path) -> Result<Vec<String>, SourceError> {
        let rules = IgnoreRules::default();
        let asked = rules.clone();
        let walk = WalkBuilder::new(root)
            .standard_filters(false)
            .sort_by_file_name(std::cmp::Ord::cmp)
            .filter_entry(move |entry| entry.file_name() != ".git" && !asked.leave_out(entry))
            .build();
        let entries = walk.map(Result::unwrap).filter(|entry| entry.file_type().unwrap().is_file());
        let names = entries.map(|entry| entry.path().strip_prefix(root).unwrap().display().to_string());
        let names = names.filter(|name| !FILES.iter().any(|file| name.ends_with(file))).collect();
        rules.failure().map_or(Ok(names), Err)
    }

    #[test]
    fn given_rules_in_several_folders_when_a_folder_is_walked_then_the_nearest_hold_and_one_kind_goes_before_another() {
        let (_place, root) = folder(&[
            (".gitignore", "\u{feff}*.log\r\n/build\n# comment\nkept/**\n!kept/b.txt\n[a-\n"),
            (".git/info/exclude", "local.txt\n"),
            ("a.log", ""),
            ("build/a.txt", ""),
            ("local.txt", ""),
            ("kept/a.txt", ""),
            ("kept/b.txt", ""),
            ("sub/.gitignore", "!a.log\nsecret.txt\n"),
            ("sub/a.log", ""),
            ("sub/b.log", ""),
            ("sub/build/a.txt", ""),
            ("sub/secret.txt", ""),
            // What it says goes before any `.gitignore`.
            ("tab/.ignore", "!a.log\nb.txt\n"),
            ("tab/.gitignore", "!b.txt\n"),
            ("tab/a.log", ""),
            ("tab/b.txt", ""),
            ("tab/secret.txt", ""),
        ]);
        let expected = ["kept/b.txt", "sub/a.log", "sub/build/a.txt", "tab/a.log", "tab/secret.txt"];
        assert_eq!(shown(&root).unwrap(), expected);
    }

    #[test]
    fn given_what_is_no_file_in_the_place_of_rules_when_a_folder_is_walked_then_it_says_nothing_and_holds_nothing_up() {
        for name in [".gitignore", ".ignore", ".git/info/exclude", "sub/.gitignore"] {
            for what in ["a pipe", "a device", "a link", "a folder"] {
                let (_place, root) = folder(&[("a.txt", ""), ("sub/b.txt", ""), ("rules", "*.txt\n")]);
                let path = root.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                match what {
                    "a pipe" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                    "a device" => symlink("/dev/zero", &path).unwrap(),
                    "a link" => symlink(root.join("rules"), &path).unwrap(),
                    _ => fs::create_dir(&path).unwrap(),
                }
                assert_eq!(shown(&root).unwrap(), ["a.txt", "rules", "sub/b.txt"], "{what} in the place of {name}");
            }
        }
    }

    #[test]
    fn given_a_worktree_that_names_another_repository_when_it_is_walked_then_nothing_outside_of_it_is_asked() {
        let (_elsewhere, other) = folder(&[("info/exclude", "*.txt\n")]);
        fs::write(other.join("commondir"), ".\n").unwrap();
        let (_place, root) = folder(&[("a.txt", "")]);
        fs::write(root.join(".git"), format!("gitdir: {}\n", other.display())).unwrap();
        assert_eq!(shown(&root).unwrap(), ["a.txt"]);
    }

    #[test]
    fn given_more_rules_than_may_be_when_a_folder_is_walked_then_it_is_refused_by_the_name_of_the_file() {
        let long = "#".repeat(usize::try_from(MAX_BYTES).unwrap() + 1);
        let many = "a\n".repeat(MAX_RULES + 1);
        let half = "a\n".repeat(MAX_RULES / 2 + 1);
        let most = "a\n".repeat(MAX_RULES);
        let beside: Vec<String> = (0..=MAX_ALL / MAX_RULES).map(|number| format!("{number}/.ignore")).collect();
        for (files, named) in [
            (vec![("sub/.gitignore", long.as_str()), ("z.txt", "")], Some("sub/.gitignore has more than")),
            (vec![(".ignore", many.as_str()), ("z.txt", "")], Some(".ignore makes more than")),
            (
                vec![(".ignore", half.as_str()), ("sub/.gitignore", half.as_str()), ("sub/z.txt", "")],
                Some("sub/.gitignore makes"),
            ),
            // As many folders as make too many together.
            (
                beside.iter().map(|name| (name.as_str(), most.as_str())).collect(),
                Some("more than 100000 rules together"),
            ),
            // Folders that lie beside each other have rules of their own.
            (vec![("a/.ignore", half.as_str()), ("a/z.txt", ""), ("b/.ignore", half.as_str()), ("b/z.txt", "")], None),
        ] {
            let (_place, root) = folder(&files);
            match (shown(&root), named) {
                (Ok(names), None) => assert_eq!(names, ["a/z.txt", "b/z.txt"]),
                (Err(error), Some(named)) => {
                    assert_eq!(error.code(), "limit_exceeded");
                    assert!(error.to_string().contains(named), "{error}");
                }
                (other, _) => panic!("{named:?}: {other:?}"),
            }
        }
    }
}
