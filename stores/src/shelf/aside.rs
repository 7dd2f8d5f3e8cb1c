//! Where damaged folders go: out of the way and not away, so that somebody can look at them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use riverrun_schemas::now_ms;

use crate::error::StoreError;
use crate::folder;

/// Beside the folders of collections; names with a dot are no collection's.
const ASIDE: &str = ".set-aside";
/// Folders of a collection that are kept; older ones are deleted.
const KEPT: usize = 2;
/// What an engine wants to write when it opens, at most.
const PROBE_BYTES: usize = 4 << 20;
/// Whether a file can be written in that folder: where it can't, nothing there is taken for damaged.
pub(super) fn is_writable(root: &Path) -> bool {
    probe(root).is_ok()
}

fn probe(root: &Path) -> std::io::Result<()> {
    let path = root.join(".probe");
    let written = fs::File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0; PROBE_BYTES])?;
        file.sync_all()
    });
    let removed = fs::remove_file(&path);
    written.and(removed)
}

/// Moves a folder out of the way and says where it is; `None` when there is none.
pub(super) fn keep(folder: &Path) -> Result<Option<PathBuf>, StoreError> {
    let (Some(root), Some(name)) = (folder.parent(), folder.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    if !folder.exists() {
        return Ok(None);
    }
    let aside = root.join(ASIDE);
    fs::create_dir_all(&aside).map_err(StoreError::io("creating", &aside))?;
    let mut kept = kept(&aside, name)?;
    // Two within a millisecond, or after a clock that was set back, are two.
    let at = kept.last().map_or(0, |(last, _)| last + 1).max(now_ms());
    let place = aside.join(format!("{name}-{at}"));
    fs::rename(folder, &place).map_err(StoreError::io("moving", folder))?;
    folder::sync(root)?;
    folder::sync(&aside)?;
    kept.push((at, place.clone()));
    for (_, path) in kept.iter().rev().skip(KEPT) {
        fs::remove_dir_all(path).map_err(StoreError::io("deleting", path))?;
    }
    Ok(Some(place))
}

/// What is kept of a collection, by the milliseconds at which it was moved, the oldest first.
fn kept(aside: &Path, name: &str) -> Result<Vec<(i64, PathBuf)>, StoreError> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(aside).map_err(StoreError::io("reading", aside))? {
        let path = entry.map_err(StoreError::io("reading", aside))?.path();
        let at = |path: &Path| path.file_name()?.to_str()?.strip_prefix(name)?.strip_prefix('-')?.parse::<i64>().ok();
        kept.extend(at(&path).map(|at| (at, path.clone())));
    }
    kept.sort();
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_many_damaged_folders_of_a_collection_then_the_last_two_are_kept_and_those_of_others_too() {
        let root = tempfile::tempdir().unwrap();
        let damaged = |name: &str| {
            let folder = root.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("x"), name).unwrap();
            let place = keep(&folder).unwrap().unwrap();
            assert!(!folder.exists() && place.join("x").exists());
            place
        };
        let other = damaged("a__b-1");
        let places: Vec<PathBuf> = (0..4).map(|_| damaged("a__b")).collect();
        let there: Vec<bool> = places.iter().map(|place| place.exists()).collect();
        assert_eq!((there, other.exists()), (vec![false, false, true, true], true));
        assert_eq!(keep(&root.path().join("a__b")).unwrap(), None);
    }

    #[test]
    fn given_what_the_machine_lacks_then_no_index_is_taken_for_damaged() {
        let root = tempfile::tempdir().unwrap();
        assert!(is_writable(root.path()) && !is_writable(&root.path().join("nowhere")));
        let failed = |reason: &str| StoreError::Index {
            kind: "vector",
            path: root.path().to_path_buf(),
            reason: reason.to_owned(),
        };
        assert!(failed("meta.json is no JSON").is_damage());
        assert!(!failed("opening failed: Too many open files (os error 24)").is_damage());
    }
}
