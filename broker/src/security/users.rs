//! The users of a listener and what is kept of their passwords.
//!
//! A password is salted and hashed at start (RFC 5802: `SaltedPassword`, `StoredKey`, `ServerKey`); its text is not kept.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::Path;

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2, rand};

use super::SecurityError;

/// Rounds of PBKDF2, the number that Apache Kafka takes as its least.
pub(super) const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("4096 is not zero");
const MAX_USERS: usize = 1_000;
const MAX_NAME: usize = 255;
const SALT_LEN: usize = 16;

/// A SCRAM hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl Hash {
    /// `HMAC(key, data)`.
    pub(super) fn hmac(self, key: &[u8], data: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), data).as_ref().to_vec()
    }

    /// `H(data)`.
    pub(super) fn digest(self, data: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, data).as_ref().to_vec()
    }

    /// `Hi(password, salt, i)`.
    pub(super) fn salted(self, password: &[u8], salt: &[u8]) -> Vec<u8> {
        let (algorithm, length) = match self {
            Hash::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, 32),
            Hash::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, 64),
        };
        let mut out = vec![0; length];
        pbkdf2::derive(algorithm, ITERATIONS, salt, password, &mut out);
        out
    }
}

/// What is kept of a password for one hash function.
#[derive(Clone)]
pub(super) struct Verifier {
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Vec<u8>,
    pub(super) server_key: Vec<u8>,
}

impl Verifier {
    fn new(hash: Hash, password: &[u8], salt: Vec<u8>) -> Self {
        let salted = hash.salted(password, &salt);
        let stored_key = hash.digest(&hash.hmac(&salted, b"Client Key"));
        Self { salt, stored_key, server_key: hash.hmac(&salted, b"Server Key") }
    }
}

struct User {
    sha256: Verifier,
    sha512: Verifier,
}

/// All users of a listener.
pub(crate) struct Users {
    by_name: HashMap<String, User>,
    /// Salts of names that do not exist come from this, so that they look like those that do.
    secret: [u8; 32],
}

impl Users {
    /// Reads a file of `name=password` lines; empty ones and those that begin with `#` are skipped. Blocks.
    pub(crate) fn read(path: &Path) -> Result<Self, SecurityError> {
        let unreadable = |reason: String| SecurityError::File { path: path.to_path_buf(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let mut users = Self { by_name: HashMap::new(), secret: random() };
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let malformed = || SecurityError::User { path: path.to_path_buf(), line: at + 1 };
            let (name, password) = line.split_once('=').ok_or_else(malformed)?;
            let name = name.trim();
            let fits = (1..=MAX_NAME).contains(&name.len()) && !password.is_empty();
            if !fits || users.by_name.contains_key(name) {
                return Err(malformed());
            }
            if users.by_name.len() == MAX_USERS {
                return Err(SecurityError::TooManyUsers { path: path.to_path_buf(), max: MAX_USERS });
            }
            users.add(name, password);
        }
        if users.by_name.is_empty() {
            return Err(unreadable("the file names no user".into()));
        }
        Ok(users)
    }

    fn add(&mut self, name: &str, password: &str) {
        let salt = || random::<SALT_LEN>().to_vec();
        let user = User {
            sha256: Verifier::new(Hash::Sha256, password.as_bytes(), salt()),
            sha512: Verifier::new(Hash::Sha512, password.as_bytes(), salt()),
        };
        self.by_name.insert(name.to_owned(), user);
    }

    /// What is kept of a user's password; of a name that does not exist something that no password opens.
    pub(super) fn verifier(&self, name: &str, hash: Hash) -> Verifier {
        match (self.by_name.get(name), hash) {
            (Some(user), Hash::Sha256) => user.sha256.clone(),
            (Some(user), Hash::Sha512) => user.sha512.clone(),
            (None, _) => Verifier {
                salt: Hash::Sha256.hmac(&self.secret, name.as_bytes())[..SALT_LEN].to_vec(),
                stored_key: random::<32>().to_vec(),
                server_key: random::<32>().to_vec(),
            },
        }
    }

    /// Whether this is the user's password. Takes a millisecond or two of computing.
    pub(super) fn is_password(&self, name: &str, password: &str) -> bool {
        let known = self.verifier(name, Hash::Sha256);
        let given = Verifier::new(Hash::Sha256, password.as_bytes(), known.salt.clone());
        constant_time::verify_slices_are_equal(&given.stored_key, &known.stored_key).is_ok()
    }
}

/// Bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the operating system has randomness; without it nothing may be let in");
    bytes
}

#[cfg(test)]
pub(super) fn for_tests(users: &[(&str, &str)]) -> Users {
    let mut made = Users { by_name: HashMap::new(), secret: [7; 32] };
    users.iter().for_each(|(name, password)| made.add(name, password));
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_file_of_users_when_read_then_good_lines_count_and_bad_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, "# people\nann=secret\n\nbob=a=b=c\n").unwrap();
        let users = Users::read(&path).unwrap();
        assert!(users.is_password("ann", "secret") && users.is_password("bob", "a=b=c"));
        assert!(!users.is_password("ann", "a=b=c") && !users.is_password("eve", "secret"));
        for (bad, line) in [("ann", 1), ("ann=x\nann=y", 2), ("=x", 1), ("ann=", 1)] {
            std::fs::write(&path, bad).unwrap();
            let error = Users::read(&path).err().expect("refused").to_string();
            assert!(error.contains(&format!("line {line}")), "{bad}: {error}");
        }
        std::fs::write(&path, "# nobody\n").unwrap();
        assert!(Users::read(&path).is_err());
    }
}
