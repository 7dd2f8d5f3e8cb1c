//! The file of tokens: who was given one, for what and until when. It holds hashes; a token is shown once, when it is made.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use riverrun_schemas::{Namespace, now_ms};
use riverrun_stores::read_models::Timestamp;
use serde::{Deserialize, Serialize};

use super::scope::{Grant, Scope};
use super::tokens::{Tokens, hash, parse_hash};

/// Its name in the data folder.
pub const FILE_NAME: &str = "tokens.json";
/// Most tokens of a file.
pub const MAX_TOKENS: usize = 1_000;
/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Longest name of a token, in characters.
const MAX_NAME: usize = 63;
/// What every token made here begins with, so that scanners for secrets know one.
const PREFIX: &str = "rr_";

/// Why a file of tokens can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It can't be read or written.
    #[error("{doing} {path} failed: {source}", path = path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is none. Its text is not shown.
    #[error("{path} is no file of tokens: {reason}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A name that tokens can't have.
    #[error("token name {0:?} must have 1 to 63 of a-z, 0-9, '-', '_' and '.'")]
    BadName(String),
    /// The name is taken.
    #[error("there is a token {0:?} already")]
    Taken(String),
    /// There is no such token.
    #[error("there is no token {0:?}")]
    Unknown(String),
    /// There are too many.
    #[error("there are {limit} tokens, which is the limit", limit = MAX_TOKENS)]
    Full,
}

/// A token as the file has it and as lists show it, without its hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenEntry {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
    /// Where; empty is everywhere.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// Requests a minute, where it has a limit of its own.
    #[serde(default)]
    pub per_minute: Option<u32>,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is none.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    entry: TokenEntry,
    sha256: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Content {
    tokens: Vec<Stored>,
}

/// A file of tokens.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    content: Content,
}

impl TokenFile {
    /// Reads it; one that is not there has no tokens.
    ///
    /// # Errors
    /// When it is there and can't be read.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let failed = |source| TokenFileError::Io { doing: "reading", path: path.to_owned(), source };
        let bytes = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), content: Content::default() });
            }
            Err(error) => return Err(failed(error)),
            Ok(found) if found.len() > MAX_BYTES => {
                let reason = format!("it has {} bytes; at most {MAX_BYTES} are read", found.len());
                return Err(TokenFileError::Unreadable { path: path.to_owned(), reason });
            }
            Ok(_) => fs::read(path).map_err(failed)?,
        };
        // serde repeats values of the file in its messages: the place is enough.
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| TokenFileError::Unreadable {
            path: path.to_owned(),
            reason: format!("line {}, column {}", error.line(), error.column()),
        })?;
        if let Some(bad) = content.tokens.iter().find(|stored| parse_hash(&stored.sha256).is_none()) {
            let reason = format!("token {:?} has no hash of 64 hex digits", bad.entry.name);
            return Err(TokenFileError::Unreadable { path: path.to_owned(), reason });
        }
        Ok(Self { path: path.to_owned(), content })
    }

    /// Its tokens, as they were made.
    pub fn entries(&self) -> impl Iterator<Item = &TokenEntry> {
        self.content.tokens.iter().map(|stored| &stored.entry)
    }

    /// Its tokens, to be looked up.
    pub fn tokens(&self) -> Tokens {
        Tokens::of(self.content.tokens.iter().filter_map(|stored| {
            let grant = Grant {
                name: stored.entry.name.clone(),
                scopes: stored.entry.scopes.clone(),
                namespaces: stored.entry.namespaces.clone(),
                per_minute: stored.entry.per_minute,
                expires_at_ms: stored.entry.expires_at.map(|at| at.0),
            };
            Some((grant, parse_hash(&stored.sha256)?))
        }))
    }

    /// Makes a token and keeps its hash; the token itself is returned and nowhere else. What others changed since the file was read stays.
    ///
    /// # Errors
    /// When the name can't be one or is taken, or the file can't be written.
    pub fn create(&mut self, grant: Grant) -> Result<(TokenEntry, String), TokenFileError> {
        check_name(&grant.name)?;
        let _turn = self.turn()?;
        if self.entries().any(|entry| entry.name == grant.name) {
            return Err(TokenFileError::Taken(grant.name));
        }
        if self.content.tokens.len() >= MAX_TOKENS {
            return Err(TokenFileError::Full);
        }
        let token = new_token();
        let entry = TokenEntry {
            name: grant.name,
            scopes: grant.scopes,
            namespaces: grant.namespaces,
            per_minute: grant.per_minute,
            created_at: Timestamp(now_ms()),
            expires_at: grant.expires_at_ms.map(Timestamp),
        };
        self.content.tokens.push(Stored { entry: entry.clone(), sha256: hex(&hash(&token)) });
        self.write()?;
        Ok((entry, token))
    }

    /// Forgets a token: who presents it is refused from then on. The file stays, also without any token, because with it
    /// tokens are asked for. What others changed since it was read stays.
    ///
    /// # Errors
    /// When there is none of that name, or the file can't be written.
    pub fn revoke(&mut self, name: &str) -> Result<TokenEntry, TokenFileError> {
        let unknown = || TokenFileError::Unknown(name.chars().take(80).collect());
        if !self.path.exists() {
            return Err(unknown());
        }
        let _turn = self.turn()?;
        let place = self.entries().position(|entry| entry.name == name).ok_or_else(unknown)?;
        let revoked = self.content.tokens.remove(place);
        self.write()?;
        Ok(revoked.entry)
    }

    /// Waits until nobody else changes the file, and reads it as it is then: otherwise a token that was revoked meanwhile would be written
    /// back. Who waits goes on when the answer is dropped. A file beside it is locked, since each change puts another one in its place.
    fn turn(&mut self) -> Result<fs::File, TokenFileError> {
        let path = self.path.with_extension("json.lock");
        let failed = |source| TokenFileError::Io { doing: "locking", path: path.clone(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let turn = open_private(&path).and_then(|file| file.lock().map(|()| file)).map_err(failed)?;
        *self = Self::read(&self.path)?;
        Ok(turn)
    }

    /// In one piece, and readable by its owner only.
    fn write(&self) -> Result<(), TokenFileError> {
        let failed = |source| TokenFileError::Io { doing: "writing", path: self.path.clone(), source };
        let text = serde_json::to_vec_pretty(&self.content).map_err(|error| failed(io::Error::other(error)))?;
        let draft = self.path.with_extension(format!("json.{}", std::process::id()));
        let written = open_private(&draft).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&draft, &self.path)).map_err(failed)
    }
}

fn open_private(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

fn check_name(name: &str) -> Result<(), TokenFileError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(good) {
        return Err(TokenFileError::BadName(name.chars().take(80).collect()));
    }
    Ok(())
}

/// 256 random bits, in characters that headers, cookies and addresses take as they are.
fn new_token() -> String {
    format!("{PREFIX}{}", hex(&rand::random::<[u8; 32]>()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(name: &str) -> Grant {
        Grant { scopes: [Scope::Read].into(), namespaces: vec!["team".parse().unwrap()], ..Grant::everything(name) }
    }

    #[test]
    fn given_a_token_that_was_made_when_the_file_is_read_again_then_it_is_found_until_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data").join(FILE_NAME);
        let (entry, token) = TokenFile::read(&path).unwrap().create(reader("ann")).unwrap();
        assert_eq!((entry.name.as_str(), token.len()), ("ann", 67));
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&token[3..]), "the token itself is not kept");
        let mut file = TokenFile::read(&path).unwrap();
        assert_eq!(*file.tokens().find(&token).unwrap(), reader("ann"));
        assert!(matches!(file.create(reader("ann")), Err(TokenFileError::Taken(_))));
        assert!(matches!(file.revoke("bob"), Err(TokenFileError::Unknown(_))));
        file.revoke("ann").unwrap();
        let file = TokenFile::read(&path).unwrap();
        assert!(file.tokens().find(&token).is_none() && path.is_file());
    }

    #[test]
    fn given_others_who_change_the_file_meanwhile_when_it_is_changed_then_what_they_did_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data").join(FILE_NAME);
        let names =
            || -> Vec<String> { TokenFile::read(&path).unwrap().entries().map(|entry| entry.name.clone()).collect() };
        TokenFile::read(&path).unwrap().create(reader("ann")).unwrap();
        let (mut one, mut other) = (TokenFile::read(&path).unwrap(), TokenFile::read(&path).unwrap());
        one.revoke("ann").unwrap();
        other.create(reader("bob")).unwrap();
        assert_eq!(names(), ["bob"], "what was revoked does not come back");
        assert!(matches!(one.create(reader("bob")), Err(TokenFileError::Taken(_))));
        std::thread::scope(|threads| {
            for number in 0..8 {
                let path = &path;
                threads.spawn(move || {
                    TokenFile::read(path).unwrap().create(reader(&format!("token-{number}"))).unwrap();
                });
            }
        });
        assert_eq!(names().len(), 9, "{:?}", names());
    }

    #[cfg(unix)]
    #[test]
    fn given_a_file_that_is_written_then_only_its_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        TokenFile::read(&path).unwrap().create(reader("ann")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn given_names_and_files_that_can_not_be_then_they_are_refused_without_showing_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let mut file = TokenFile::read(&path).unwrap();
        for bad in ["", "Ann", "a b", "a:b", "a,b", &"x".repeat(64)] {
            assert!(matches!(file.create(reader(bad)), Err(TokenFileError::BadName(_))), "{bad:?}");
        }
        for bad in [
            "secret",
            "{\"tokens\": [{\"name\": \"secret\"}]}",
            "{\"tokens\": [{\"name\": \"x\", \"scopes\": [], \"created_at\": \"2026-01-01T00:00:00Z\", \"sha256\": \"secret\"}]}",
        ] {
            fs::write(&path, bad).unwrap();
            let error = TokenFile::read(&path).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
