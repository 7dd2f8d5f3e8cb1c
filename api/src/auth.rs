//! Bearer tokens: named, stored as SHA-256, compared in constant time.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The tokens that may be used, as `name:sha256` pairs separated by commas.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

#[derive(Clone, PartialEq, Eq)]
struct Token {
    name: String,
    sha256: [u8; 32],
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|token| &token.name)).finish()
    }
}

/// A text is no list of tokens. The text itself is not shown: a token may have been put where its hash belongs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {entry} is not <name>:<sha256 of the token in 64 hex digits>")]
pub struct TokensError {
    /// Counts from 1.
    entry: usize,
}

impl FromStr for Tokens {
    type Err = TokensError;

    fn from_str(text: &str) -> Result<Self, TokensError> {
        text.split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .enumerate()
            .map(|(index, entry)| Token::parse(entry).ok_or(TokensError { entry: index + 1 }))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Token {
    fn parse(entry: &str) -> Option<Self> {
        let (name, hex) = entry.split_once(':')?;
        let hex = hex.as_bytes();
        if name.is_empty() || hex.len() != 64 {
            return None;
        }
        let mut sha256 = [0; 32];
        for (byte, pair) in sha256.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self { name: name.to_owned(), sha256 })
    }
}

impl Tokens {
    /// Whether none is set: then none is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of the token in an `Authorization` header. Every stored hash is compared in full, so that the time taken
    /// says nothing about them.
    pub fn check(&self, authorization: Option<&str>) -> Option<&str> {
        let given =
            authorization?.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))?.1.trim();
        let given = Sha256::digest(given.as_bytes());
        let mut found = None;
        for token in &self.0 {
            let difference = token.sha256.iter().zip(given.iter()).fold(0u8, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(difference) == 0 {
                found = Some(token.name.as_str());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn given_tokens_when_one_is_presented_then_only_the_right_one_is_named() {
        let tokens: Tokens = format!("ann:{HELLO}, bob:{}", "0".repeat(64)).parse().unwrap();
        assert_eq!(tokens.check(Some("Bearer hello")), Some("ann"));
        assert_eq!(tokens.check(Some("bearer hello")), Some("ann"));
        for bad in
            [None, Some(""), Some("hello"), Some("Bearer"), Some("Bearer Hello"), Some("Basic hello"), Some(HELLO)]
        {
            assert_eq!(tokens.check(bad), None, "{bad:?}");
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
        ] {
            let error = bad.parse::<Tokens>().unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("<name>:<sha256"), "{error}");
        }
        assert!(" , ".parse::<Tokens>().unwrap().is_empty());
        assert_eq!(format!("{:?}", format!("ann:{HELLO}").parse::<Tokens>().unwrap()), "[\"ann\"]");
    }
}
