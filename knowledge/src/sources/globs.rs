//! What of a folder, an archive or a repository is read: globs as `.gitignore` has them.

use std::path::Path;

use ignore::overrides::{Override, OverrideBuilder};

use super::{Fault, SourceError};

/// Most globs of one request.
pub const MAX_GLOBS: usize = 100;

/// Longest glob, in bytes.
const MAX_GLOB_BYTES: usize = 500;

/// Globs of what to read and of what to leave out. `*.md` matches at any depth, `docs/**` below a folder. They narrow what would
/// be read anyway: an ignored file stays ignored.
#[derive(Debug, Clone)]
pub struct Globs {
    include: Option<Override>,
    exclude: Option<Override>,
}

impl Globs {
    /// Everything.
    pub fn all() -> Self {
        Self { include: None, exclude: None }
    }

    /// What matches one of `include` (or anything, when there is none) and none of `exclude`.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, SourceError> {
        Ok(Self { include: set("include", include)?, exclude: set("exclude", exclude)? })
    }

    /// Whether a file is wanted, by its path below the root.
    pub fn wants(&self, file: &Path) -> bool {
        // What matches a folder means everything in it, on both sides.
        let matches = |globs: &Override| {
            globs.matched(file, false).is_whitelist()
                || file
                    .ancestors()
                    .skip(1)
                    .filter(|folder| *folder != Path::new(""))
                    .any(|folder| globs.matched(folder, true).is_whitelist())
        };
        self.include.as_ref().is_none_or(matches) && !self.exclude.as_ref().is_some_and(matches)
    }
}

fn set(option: &str, globs: &[String]) -> Result<Option<Override>, SourceError> {
    if globs.is_empty() {
        return Ok(None);
    }
    let refused = |reason: String| {
        SourceError::fault(
            &format!("--{option}"),
            Fault::BadOption,
            reason,
            "globs are as in a .gitignore: '*.md', 'docs/**'",
        )
    };
    if globs.len() > MAX_GLOBS {
        return Err(refused(format!("has {} globs; at most {MAX_GLOBS} are read", globs.len())));
    }
    let mut builder = OverrideBuilder::new("");
    for glob in globs {
        // With an exclamation mark a glob would mean its opposite, which the other option is for.
        if glob.trim().is_empty() || glob.starts_with('!') || glob.len() > MAX_GLOB_BYTES {
            return Err(refused(format!("{:?} is no glob that can be used", super::error::clip(glob))));
        }
        builder.add(glob).map_err(|error| refused(format!("{glob:?} is no glob: {error}")))?;
    }
    builder.build().map(Some).map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(include: &[&str], exclude: &[&str], file: &str) -> bool {
        let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        Globs::new(&owned(include), &owned(exclude)).unwrap().wants(Path::new(file))
    }

    #[test]
    fn given_globs_when_asked_then_both_sides_count() {
        assert!(wanted(&[], &[], "a/b.md"));
        assert!(wanted(&["*.md"], &[], "a/b/c.md"));
        assert!(!wanted(&["*.md"], &[], "a/b/c.txt"));
        assert!(wanted(&["docs/**"], &[], "docs/a/b.txt"));
        assert!(!wanted(&["docs/**"], &[], "src/docs.txt"));
        assert!(wanted(&["docs/"], &[], "docs/a/b.txt") && wanted(&["docs"], &[], "x/docs/a.txt"));
        assert!(!wanted(&["docs/"], &[], "src/docs") && !wanted(&["/docs/"], &[], "x/docs/a.txt"));
        assert!(!wanted(&["docs/"], &["*.log"], "docs/a.log"));
        assert!(!wanted(&["*.md"], &["drafts/"], "drafts/a.md"));
        assert!(!wanted(&[], &["*.log"], "x/y.log"));
        assert!(wanted(&["*.md", "*.txt"], &["old/**"], "new/a.txt"));
    }

    #[test]
    fn given_bad_globs_when_read_then_the_option_is_named() {
        for bad in ["", "!a", "[z-a]", &"x".repeat(501)] {
            let error = Globs::new(&[bad.to_owned()], &[]).unwrap_err();
            assert_eq!(error.code(), "bad_option", "{bad:?}");
            assert!(error.to_string().contains("--include"));
        }
        assert!(Globs::new(&[], &vec!["a".to_owned(); 101]).is_err());
    }
}
