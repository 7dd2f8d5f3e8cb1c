//! Files that are asking to be two.

use std::fs;
use std::path::Path;

const LONG: usize = 500;

/// Prints the Rust files of more than 500 lines, longest first.
pub(crate) fn report(root: &Path) {
    let mut long: Vec<(usize, String)> = crate::files_ending(root, &["rs"])
        .filter_map(|path| {
            let lines = fs::read_to_string(&path).ok()?.lines().count();
            (lines > LONG).then(|| (lines, path.strip_prefix(root).unwrap_or(&path).display().to_string()))
        })
        .collect();
    long.sort_unstable_by(|a, b| b.cmp(a));
    for (lines, path) in long {
        eprintln!("files: {path} has {lines} lines; over {LONG} a file is asking to be two");
    }
}
