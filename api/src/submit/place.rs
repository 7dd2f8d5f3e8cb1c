//! Which paths a request may name.

use std::path::{Component, Path, PathBuf};

use super::checks::Checks;
use crate::error::ApiError;

/// Longest path or address of a source, in bytes.
const MAX_SOURCE: usize = 4_096;

/// The canonical path of a source that must lie under one of `roots`. Nothing is said about what lies elsewhere.
pub fn resolve_under(roots: &[PathBuf], source: &str) -> Result<String, ApiError> {
    let mut checks = Checks::default();
    checks.text("source", source, MAX_SOURCE);
    let given = Path::new(source);
    checks.require(given.is_absolute(), "source", "must be an absolute path on the server");
    checks.finish()?;
    let outside = || {
        ApiError::field("source", format!("{source} is not under a folder that this server may read"))
            .code_as("source_not_allowed")
            .hint("start the server with RIVERRUN_INGEST_ROOTS set to the folder, or upload the file by multipart")
    };
    let climbs = given.components().any(|part| part == Component::ParentDir);
    if climbs || !roots.iter().any(|root| given.starts_with(root)) {
        return Err(outside());
    }
    let path = existing(given)?;
    if !roots.iter().any(|root| path.starts_with(root)) {
        return Err(outside()); // a link that leads out
    }
    path.to_str().map(str::to_owned).ok_or_else(|| ApiError::field("source", "is not valid UTF-8 behind its links"))
}

/// The canonical path of something that is there.
pub fn existing(path: &Path) -> Result<PathBuf, ApiError> {
    std::fs::canonicalize(path).map_err(|error| {
        let shown = path.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => ApiError::not_found("source_not_found", format!("{shown} does not exist"))
                .hint(format!("check the path: ls -l {}", parent(path))),
            _ => ApiError::field("source", format!("{shown} can't be read: {error}")).code_as("source_unreadable"),
        }
    })
}

fn parent(path: &Path) -> String {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_sources_when_they_are_resolved_then_only_what_lies_under_a_root_passes() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (root, other) = (base.join("root"), base.join("root-other"));
        for path in [&root, &other] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("a.txt"), "a").unwrap();
        }
        std::os::unix::fs::symlink(other.join("a.txt"), root.join("link.txt")).unwrap();
        let roots = vec![root.clone()];
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        assert_eq!(resolve_under(&roots, &text(root.join("a.txt"))).unwrap(), text(root.join("a.txt")));
        assert_eq!(resolve_under(&roots, &text(root.join("missing.txt"))).unwrap_err().code(), "source_not_found");
        for bad in [
            text(root.join("../root-other/a.txt")),
            text(other.join("a.txt")),
            text(root.join("link.txt")),
            "/etc/passwd".into(),
            text(root.join("../nowhere")),
        ] {
            assert_eq!(resolve_under(&roots, &bad).unwrap_err().code(), "source_not_allowed", "{bad}");
        }
        for bad in ["", "a.txt", "/a\0b", &format!("/{}", "x".repeat(5_000))] {
            assert_eq!(resolve_under(&roots, bad).unwrap_err().status().as_u16(), 422, "{bad:.20}");
        }
        assert_eq!(resolve_under(&[], &text(root.join("a.txt"))).unwrap_err().code(), "source_not_allowed");
    }
}
