//! Conversations: a name that people choose, within a namespace.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{NameError, Namespace};

/// Longest name, in bytes.
const MAX_BYTES: usize = 200;

/// A conversation within a namespace: 1 to 200 bytes of any text without control characters or space around it. It is
/// never part of a file name or of a query: stores keep it in a column of its own and compare the whole of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SessionName(String);

impl SessionName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SessionName {
    /// The conversation of those who name none: `default`.
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SessionName {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, NameError> {
        let refuse = |rule| NameError { kind: "session", value: value.chars().take(80).collect(), rule };
        if value.is_empty() || value.len() > MAX_BYTES {
            return Err(refuse("must have 1 to 200 bytes"));
        }
        if value.chars().any(char::is_control) {
            return Err(refuse("must not have control characters"));
        }
        if value.trim() != value {
            return Err(refuse("must not begin or end with space"));
        }
        Ok(Self(value.to_owned()))
    }
}

impl<'de> Deserialize<'de> for SessionName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A conversation with the namespace it is in. Memory takes this, never a bare name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Session {
    /// The namespace.
    pub namespace: Namespace,
    /// The name within it.
    #[serde(rename = "session")]
    pub name: SessionName,
}

impl Session {
    /// Joins the two.
    pub fn new(namespace: Namespace, name: SessionName) -> Self {
        Self { namespace, name }
    }

    /// `<namespace>/<session>`: the record key, different for every pair, since a namespace has no `/`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_hide_something_are_refused() {
        for bad in ["", " a", "a ", "\t", "a\nb", "a\0b", "a\u{85}b", &"x".repeat(201)] {
            assert!(bad.parse::<SessionName>().is_err(), "session {bad:?} was taken");
        }
        for good in ["a", "a__b", "../x", "user 7", "ä/ß", "%", "A", &"x".repeat(200)] {
            assert!(good.parse::<SessionName>().is_ok(), "session {good:?} was refused");
        }
    }

    proptest! {
        /// Also where one name is the beginning of another, and where the joint could lie elsewhere.
        #[test]
        fn two_conversations_never_share_a_key(a in "[a-z0-9_/-]{1,6}", b in "[a-z0-9_/-]{1,6}", c in "[a-z0-9_/-]{1,6}", d in "[a-z0-9_/-]{1,6}") {
            let pair = |n: &str, s: &str| Some(Session::new(n.parse().ok()?, s.parse().ok()?));
            if let (Some(x), Some(y)) = (pair(&a, &b), pair(&c, &d)) {
                prop_assert_eq!(x == y, x.key() == y.key());
            }
        }
    }
}
