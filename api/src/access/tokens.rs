//! A list of tokens: named, kept as SHA-256, compared in constant time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::scope::Grant;

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// The tokens that may be used. As text: `name:sha256[:scopes[:namespaces]]`, separated by commas; scopes and namespaces
/// are joined by `+`. Without scopes a token may do everything, without namespaces it may do so everywhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

#[derive(Clone, PartialEq, Eq)]
struct Token {
    grant: Arc<Grant>,
    sha256: TokenHash,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|token| &token.grant.name)).finish()
    }
}

/// A text is no list of tokens. The text itself is not shown: a token may have been put where its hash belongs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokensError {
    /// It has another form.
    #[error(
        "entry {entry} is not <name>:<sha256 of the token in 64 hex digits>[:<scopes>[:<namespaces>]], as in ann:<sha256>:read+run:team"
    )]
    Malformed {
        /// Counts from 1.
        entry: usize,
    },
    /// It is for a token that nobody means, and that headers and logins can't carry.
    #[error("entry {entry} has the hash of an empty token, as a shell makes it of a variable that is not set")]
    Nothing {
        /// Counts from 1.
        entry: usize,
    },
}

impl FromStr for Tokens {
    type Err = TokensError;

    fn from_str(text: &str) -> Result<Self, TokensError> {
        text.split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .enumerate()
            .map(|(index, text)| {
                let entry = index + 1;
                let token = Token::parse(text).ok_or(TokensError::Malformed { entry })?;
                if token.sha256 == hash("") { Err(TokensError::Nothing { entry }) } else { Ok(token) }
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Token {
    fn parse(entry: &str) -> Option<Self> {
        let mut parts = entry.split(':');
        let (name, hash) = (parts.next()?, parts.next()?);
        let (scopes, namespaces) = (parts.next(), parts.next());
        if name.is_empty() || parts.next().is_some() {
            return None;
        }
        let mut grant = Grant::everything(name);
        if let Some(scopes) = scopes.filter(|text| !text.is_empty()) {
            grant.scopes = scopes.split('+').map(|text| text.parse().ok()).collect::<Option<_>>()?;
        }
        if let Some(namespaces) = namespaces {
            grant.namespaces = namespaces.split('+').map(|text| text.parse().ok()).collect::<Option<_>>()?;
        }
        Some(Self { grant: Arc::new(grant), sha256: parse_hash(hash)? })
    }
}

/// A hash in 64 hex digits.
pub(super) fn parse_hash(hex: &str) -> Option<TokenHash> {
    let hex = hex.as_bytes();
    if hex.len() != 64 || !hex.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// The hash of a token.
pub fn hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

impl Tokens {
    /// Those of a file, which were checked when it was read.
    pub(super) fn of(entries: impl IntoIterator<Item = (Grant, TokenHash)>) -> Self {
        Self(entries.into_iter().map(|(grant, sha256)| Token { grant: Arc::new(grant), sha256 }).collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the bearer of `token` may do. Every stored hash is compared in full, so that the time taken says nothing
    /// about them.
    pub fn find(&self, token: &str) -> Option<Arc<Grant>> {
        self.find_hash(&hash(token))
    }

    /// The same, by the token's hash.
    pub(super) fn find_hash(&self, given: &TokenHash) -> Option<Arc<Grant>> {
        let mut found = None;
        for token in &self.0 {
            let difference = token.sha256.iter().zip(given.iter()).fold(0u8, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(difference) == 0 {
                found = Some(token.grant.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::scope::Scope;
    use super::*;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn given_tokens_when_one_is_presented_then_only_the_right_one_is_found() {
        let tokens: Tokens = format!("ann:{HELLO}, bob:{}", "0".repeat(64)).parse().unwrap();
        assert_eq!(*tokens.find("hello").unwrap(), Grant::everything("ann"));
        for bad in ["", "Hello", "hello ", HELLO, "ann"] {
            assert!(tokens.find(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn given_scopes_and_namespaces_when_a_list_is_read_then_the_token_has_just_those() {
        let tokens: Tokens = format!("ann:{HELLO}:read+run:team+other").parse().unwrap();
        let grant = tokens.find("hello").unwrap();
        assert_eq!(grant.scopes, [Scope::Read, Scope::Run].into());
        assert_eq!(grant.namespaces.iter().map(|n| n.as_str()).collect::<Vec<_>>(), ["team", "other"]);
        let everywhere: Tokens = format!("ann:{HELLO}:read").parse().unwrap();
        assert!(!everywhere.find("hello").unwrap().is_bound());
        let everything: Tokens = format!("ann:{HELLO}::team").parse().unwrap();
        assert!(everything.find("hello").unwrap().allows(Scope::Admin));
    }

    #[test]
    fn given_the_hash_of_an_empty_token_when_a_list_is_read_then_it_is_refused() {
        let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for list in [format!("ann:{HELLO},bob:{nothing}:read"), format!("ann:{HELLO},bob:{}", nothing.to_uppercase())] {
            assert_eq!(list.parse::<Tokens>().unwrap_err(), TokensError::Nothing { entry: 2 }, "{list}");
        }
    }

    #[test]
    fn given_a_list_that_is_none_when_it_is_read_then_the_error_does_not_show_it() {
        for bad in [
            "secret-token",
            "ann:secret-token",
            &format!(":{HELLO}"),
            &format!("ann:{HELLO},x"),
            &format!("ann:{}", "é".repeat(32)),
            &format!("ann:+{}", &HELLO[1..]),
            &format!("ann:{HELLO}:secret"),
            &format!("ann:{HELLO}:read:"),
            &format!("ann:{HELLO}:read:SECRET"),
            &format!("ann:{HELLO}:read:team:more"),
        ] {
            let error = bad.parse::<Tokens>().unwrap_err().to_string();
            assert!(!error.to_lowercase().contains("secret") && error.contains("<name>:<sha256"), "{error}");
        }
        assert!(" , ".parse::<Tokens>().unwrap().is_empty());
        assert_eq!(format!("{:?}", format!("ann:{HELLO}").parse::<Tokens>().unwrap()), "[\"ann\"]");
    }
}
