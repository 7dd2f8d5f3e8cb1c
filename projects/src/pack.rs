//! What is handed to a server that can't read a folder or archive of this machine: an archive that [`crate::import::unpack`] makes the
//! same copy of. The original is only read, and twice.

use std::path::Path;

use riverrun_knowledge::sources::{PackedFile, SourceError, pack_members, read_regular};

use crate::aside::aside;
use crate::error::ProjectError;
use crate::import::{self, Imported, Origin, is_fit, origin, unmoved};
use crate::progress::Progress;

/// The code of a source that can be read here and can't be handed over.
pub const NOT_PACKED: &str = "not_packed";

/// What is handed over.
#[derive(Debug, PartialEq, Eq)]
pub struct Packed {
    /// A zip archive.
    pub archive: Vec<u8>,
    /// The hash that the copy has to have; none of an archive that is handed over as it is.
    pub sha256: Option<String>,
    /// Links, special files and folders of tools that are not in the archive.
    pub skipped: usize,
}

/// Reads a folder as an import reads it and packs it; an archive is handed over as it is.
///
/// # Errors
/// As those of [`import::read`]; [`NOT_PACKED`] when it would have more than `max_bytes`, or has a name that no archive takes.
pub async fn pack(source: &str, max_bytes: u64, progress: &Progress) -> Result<Packed, ProjectError> {
    let shown = source.to_owned();
    let work: Box<dyn FnOnce() -> Result<Packed, ProjectError> + Send> = match origin(source)? {
        Origin::Zip(path) => Box::new(move || whole(&path, max_bytes)),
        Origin::Folder(_) | Origin::Git(_) => {
            let imported = import::read(source, None, progress).await?;
            Box::new(move || packed(&shown, &imported, max_bytes))
        }
    };
    aside("packing the source", work).await?
}

fn not_packed(reason: impl Into<String>) -> ProjectError {
    let fix = "start the server with RIVERRUN_INGEST_ROOTS set to the folder, or end it: then the command reads the folder itself";
    ProjectError::refused(NOT_PACKED, reason, fix)
}

fn too_large(source: &str, max_bytes: u64) -> ProjectError {
    not_packed(format!("{source} is an archive of more than {max_bytes} bytes, which a running server is not handed"))
}

/// An archive as it lies there.
fn whole(path: &Path, max_bytes: u64) -> Result<Packed, ProjectError> {
    let path = unmoved(path)?;
    let read = || match read_regular(&path, max_bytes) {
        Ok((bytes, _)) => Ok(bytes),
        Err(SourceError::TooLarge { path, .. }) => Err(too_large(&path, max_bytes)),
        Err(error) => Err(error.into()),
    };
    let archive = read()?;
    if read()? != archive {
        let reason = format!("{} changed while it was read", path.display());
        return Err(ProjectError::refused("source_changed", reason, "import it again"));
    }
    Ok(Packed { archive, sha256: None, skipped: 0 })
}

/// What was read of a folder, as an archive.
fn packed(source: &str, imported: &Imported, max_bytes: u64) -> Result<Packed, ProjectError> {
    if let Some(name) = imported.files.keys().find(|name| !is_fit(name)) {
        let reason = format!("{source} has the file {name:.200?} of {} bytes, a name that is too long", name.len());
        return Err(not_packed(reason));
    }
    let files = imported.files.iter().map(|(name, content)| PackedFile {
        name,
        bytes: content,
        is_executable: imported.executables.contains(name),
    });
    let archive = pack_members(source, files).map_err(|error| not_packed(error.to_string()))?;
    if archive.len() as u64 > max_bytes {
        return Err(not_packed(format!(
            "{source} has {} bytes when it is packed, and a running server is handed {max_bytes} at most",
            archive.len()
        )));
    }
    Ok(Packed { archive, sha256: Some(imported.sha256.clone()), skipped: imported.skipped })
}
