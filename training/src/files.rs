//! Files of models that came from somewhere else: read no further than they may be long.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::TrainingError;

/// Longest file of settings or template, in bytes: many times what models have.
pub(crate) const MAX_SETTINGS: u64 = 8 << 20;
/// Longest `tokenizer.json`, in bytes: those of the largest vocabularies have about 35 MB.
pub(crate) const MAX_TOKENIZER: u64 = 128 << 20;

/// The bytes of a file of at most so many.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, TrainingError> {
    maybe(path, most)?.ok_or_else(|| TrainingError::base(path, "it is not there"))
}

/// The bytes of a file that need not be there.
pub(crate) fn maybe(path: &Path, most: u64) -> Result<Option<Vec<u8>>, TrainingError> {
    let failed = |error| TrainingError::io("reading", path)(error);
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    // What a file says of its length may be wrong, and a pipe says nothing.
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(TrainingError::base(path, format!("it is longer than {most} bytes")));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_file_that_is_longer_than_it_may_be_then_it_is_refused_and_one_that_is_not_there_is_no_full_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().code(), "base_model_unusable");
        let none = folder.path().join("none");
        assert!(maybe(&none, 4).unwrap().is_none());
        assert_eq!(read(&none, 4).unwrap_err().code(), "base_model_unusable");
        assert_eq!(read(folder.path(), 4).unwrap_err().code(), "training_io_failed");
        // Has no length, and no end.
        assert_eq!(read(Path::new("/dev/zero"), 1 << 20).unwrap_err().code(), "base_model_unusable");
    }
}
