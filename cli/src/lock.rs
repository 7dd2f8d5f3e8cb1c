//! Who owns a data folder: an advisory lock on `<data>/riverrun.lock`, which the system gives back however the owner ends,
//! and beside it what others need to reach the owner, written in one piece.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::error::{CliError, Exit};

const LOCK: &str = "riverrun.lock";
const OWNER: &str = "riverrun.json";
const POLL: Duration = Duration::from_millis(50);
/// How long an owner that is starting is waited for.
const STARTING: Duration = Duration::from_secs(30);

/// The process that owns the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process id.
    pub pid: u32,
    /// What it does, such as `serve` or `ingest`.
    pub command: String,
    /// Address of its API; only a server has one.
    pub api_url: Option<String>,
    /// Addresses of its broker.
    pub brokers: String,
    /// The API wants a token.
    pub needs_token: bool,
}

/// The folder is ours until this is dropped.
#[derive(Debug)]
pub struct DataLock {
    folder: PathBuf,
    _file: File,
}

/// What trying to own a folder came to.
#[derive(Debug)]
pub enum Tried {
    /// It is ours.
    Ours(DataLock),
    /// It is someone else's.
    Theirs,
}

impl DataLock {
    /// Tries to own the folder, making it when it is missing.
    pub fn try_take(folder: &Path) -> Result<Tried, CliError> {
        let failed = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
            CliError::new(Exit::Failed, format!("{what} {} failed: {error}", path.display()))
                .hint("set RIVERRUN_DATA_DIR to a folder that can be written")
        };
        fs::create_dir_all(folder).map_err(|error| failed("making the data folder", folder, &error))?;
        let path = folder.join(LOCK);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| failed("opening", &path, &error))?;
        match file.try_lock() {
            Ok(()) => {
                let lock = Self { folder: folder.to_owned(), _file: file };
                lock.forget_owner();
                Ok(Tried::Ours(lock))
            }
            Err(TryLockError::WouldBlock) => Ok(Tried::Theirs),
            Err(TryLockError::Error(error)) => Err(failed("locking", &path, &error)),
        }
    }

    /// Tells others who we are and how to reach us.
    pub fn tell(&self, owner: &Owner) -> Result<(), CliError> {
        let path = self.folder.join(OWNER);
        let draft = self.folder.join(format!("{OWNER}.{}", owner.pid));
        let text = serde_json::to_vec_pretty(owner).map_err(std::io::Error::other)?;
        fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path)).map_err(|error| {
            CliError::new(Exit::Failed, format!("writing {} failed: {error}", path.display())).hint("check the disk")
        })
    }

    /// What an owner that was killed left behind would lead others astray.
    fn forget_owner(&self) {
        let _ = fs::remove_file(self.folder.join(OWNER));
    }
}

impl Drop for DataLock {
    fn drop(&mut self) {
        self.forget_owner();
    }
}

/// Who owns the folder now, as far as it says so.
fn read_owner(folder: &Path) -> Option<Owner> {
    serde_json::from_slice(&fs::read(folder.join(OWNER)).ok()?).ok()
}

/// The owner of a folder that is not ours; waits for one that is just starting. `None` when it ended meanwhile.
pub async fn owner(folder: &Path) -> Result<Option<Owner>, CliError> {
    let until = Instant::now() + STARTING;
    loop {
        if let Some(owner) = read_owner(folder) {
            return Ok(Some(owner));
        }
        if !is_owned(folder)? {
            return Ok(None);
        }
        if Instant::now() > until {
            return Err(CliError::new(
                Exit::Failed,
                format!("another process owns {} and does not say who it is", folder.display()),
            )
            .hint("end it, or set RIVERRUN_DATA_DIR to another folder"));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether a process owns the folder. Nothing is made by asking.
pub fn is_owned(folder: &Path) -> Result<bool, CliError> {
    let path = folder.join(LOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => {
            return Err(CliError::new(Exit::Failed, format!("opening {} failed: {error}", path.display()))
                .hint("set RIVERRUN_DATA_DIR to a folder that can be read"));
        }
    };
    // A shared lock disturbs nobody who asks the same; it is given back at once.
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => {
            Err(CliError::new(Exit::Failed, format!("locking {} failed: {error}", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Owner {
        Owner {
            pid: std::process::id(),
            command: "serve".into(),
            api_url: Some("http://127.0.0.1:1".into()),
            brokers: "127.0.0.1:2".into(),
            needs_token: false,
        }
    }

    #[tokio::test]
    async fn given_an_owner_when_another_tries_then_it_learns_who_it_is_until_the_owner_ends() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        assert!(!is_owned(&data).unwrap());
        let Tried::Ours(lock) = DataLock::try_take(&data).unwrap() else { panic!("nobody else is there") };
        lock.tell(&me()).unwrap();
        assert!(is_owned(&data).unwrap());
        assert!(matches!(DataLock::try_take(&data).unwrap(), Tried::Theirs));
        assert_eq!(owner(&data).await.unwrap(), Some(me()));
        drop(lock);
        assert!(!is_owned(&data).unwrap());
        assert_eq!(owner(&data).await.unwrap(), None);
        assert!(matches!(DataLock::try_take(&data).unwrap(), Tried::Ours(_)));
    }

    #[test]
    fn given_what_a_killed_owner_left_when_the_folder_is_taken_then_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(OWNER), serde_json::to_vec(&me()).unwrap()).unwrap();
        let Tried::Ours(_lock) = DataLock::try_take(folder.path()).unwrap() else { panic!("nobody else is there") };
        assert_eq!(read_owner(folder.path()), None);
    }

    #[test]
    fn given_a_folder_that_can_not_be_made_when_it_is_taken_then_the_error_names_it_and_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = DataLock::try_take(&file.join("data")).unwrap_err();
        assert!(
            error.message.contains("file/data") && error.hint.unwrap().contains("RIVERRUN_DATA_DIR"),
            "{}",
            error.message
        );
    }
}
