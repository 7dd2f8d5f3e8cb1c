//! Files that people name: read up to a limit, whatever they turn out to be. A device or a pipe says that it has no bytes, and may give
//! them for ever.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The bytes of a file that has at most `limit` of them, or why there are none.
pub fn read_now(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if size > limit {
        return Err(format!("it has {size} bytes, more than {limit}"));
    }
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > limit {
        return Err(format!("it has more than {limit} bytes"));
    }
    Ok(bytes)
}

/// The same where signals are listened to: whoever writes into a pipe may take long, and is not waited for after an interrupt.
pub async fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let path = PathBuf::from(path);
    let read = tokio::task::spawn_blocking(move || read_now(&path, limit)).await;
    read.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn given_files_when_they_are_read_then_those_without_an_end_are_refused_like_those_that_are_too_large() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.jsonl");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read(&file, 5).await.unwrap(), b"12345");
        assert_eq!(read_now(&file, 4).unwrap_err(), "it has 5 bytes, more than 4");
        assert!(read(&folder.path().join("none"), 5).await.is_err() && read(folder.path(), 5).await.is_err());
        #[cfg(unix)]
        {
            assert_eq!(read(Path::new("/dev/zero"), 1 << 20).await.unwrap_err(), "it has more than 1048576 bytes");
            assert_eq!(read(Path::new("/dev/null"), 5).await.unwrap(), b"");
        }
    }
}
