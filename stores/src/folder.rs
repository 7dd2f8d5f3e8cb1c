//! Small things with folders that both indexes need.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::StoreError;

/// Writes a file so that after a crash either the old or the whole new content is there.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let temporary = path.with_extension("tmp");
    let mut file = fs::File::create(&temporary).map_err(StoreError::io("creating", &temporary))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(StoreError::io("writing", &temporary))?;
    fs::rename(&temporary, path).map_err(StoreError::io("writing", path))?;
    path.parent().map_or(Ok(()), sync)
}

/// Makes renames and deletions in a folder durable.
pub(crate) fn sync(folder: &Path) -> Result<(), StoreError> {
    fs::File::open(folder).and_then(|file| file.sync_all()).map_err(StoreError::io("syncing", folder))
}

/// Deletes a folder; after a crash it is either still whole or no longer found under its name.
pub(crate) fn remove(folder: &Path) -> Result<bool, StoreError> {
    let Some(name) = folder.file_name() else { return Ok(false) };
    let mut doomed_name = std::ffi::OsString::from(".deleted-");
    doomed_name.push(name);
    let doomed = folder.with_file_name(doomed_name);
    if doomed.exists() {
        fs::remove_dir_all(&doomed).map_err(StoreError::io("deleting", &doomed))?;
    }
    match fs::rename(folder, &doomed) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(StoreError::io("deleting", folder)(error)),
    }
    fs::remove_dir_all(&doomed).map_err(StoreError::io("deleting", &doomed))?;
    Ok(true)
}
