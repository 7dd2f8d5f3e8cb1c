//! Names that people choose. A namespace has no underscore and a collection no double one, so two different pairs can
//! never share a physical name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const MAX_LEN: usize = 63;

/// A chosen name breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} name {value:?} {rule}")]
pub struct NameError {
    /// `namespace`, `collection` or `canvas`.
    pub kind: &'static str,
    /// The refused name, cut to 80 characters.
    pub value: String,
    /// The rule that it breaks, as the end of the sentence.
    pub rule: &'static str,
}

fn refuse(kind: &'static str, value: &str, rule: &'static str) -> NameError {
    NameError { kind, value: value.chars().take(80).collect(), rule }
}

fn check(kind: &'static str, value: &str, underscore: bool) -> Result<(), NameError> {
    if value.is_empty() || value.len() > MAX_LEN {
        return Err(refuse(kind, value, "must have 1 to 63 characters"));
    }
    if !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || (underscore && b == b'_')) {
        let rule = if underscore { "may only have a-z, 0-9, '-' and '_'" } else { "may only have a-z, 0-9 and '-'" };
        return Err(refuse(kind, value, rule));
    }
    if !value.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(refuse(kind, value, "must start with a letter or a digit"));
    }
    if value.contains("__") {
        return Err(refuse(kind, value, "must not contain '__', which joins namespace and collection"));
    }
    Ok(())
}

/// Why a name is refused that is none of those that are there, which stand behind it. A long one is cut to 80 characters.
pub fn not_there<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let shown: String = given.chars().take(80).collect();
    let known: Vec<&str> = known.into_iter().collect();
    format!("{shown:?} is not there; choose one of: {}", known.join(", "))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $underscore:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(value: &str) -> Result<Self, NameError> {
                check($kind, value, $underscore)?;
                Ok(Self(value.to_owned()))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

name_type! {
    /// Selects isolated tools, memory and collections: 1 to 63 of `a-z`, `0-9`, `-`.
    Namespace, "namespace", false
}

name_type! {
    /// A collection within a namespace: 1 to 63 of `a-z`, `0-9`, `-`, `_`, never `__`.
    CollectionName, "collection", true
}

name_type! {
    /// A canvas within a namespace: 1 to 63 of `a-z`, `0-9`, `-`, `_`, never `__`.
    CanvasId, "canvas", true
}

impl Default for Namespace {
    /// The namespace of those who name none: `default`.
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// A collection with the namespace it is in. Stores of knowledge take this, never a bare name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Collection {
    /// The namespace.
    pub namespace: Namespace,
    /// The name within it.
    pub name: CollectionName,
}

impl Collection {
    /// Joins the two.
    pub fn new(namespace: Namespace, name: CollectionName) -> Self {
        Self { namespace, name }
    }

    /// `<namespace>__<collection>`: the name in vector store and keyword index, different for every pair.
    pub fn physical_name(&self) -> String {
        format!("{}__{}", self.namespace, self.name)
    }

    /// As messages name it, the same everywhere: `collection "notes" in namespace "team-a"`.
    pub fn quoted(&self) -> String {
        format!("collection {:?} in namespace {:?}", self.name.as_str(), self.namespace.as_str())
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn given_a_collection_when_a_message_names_it_then_both_names_are_quoted() {
        let collection = Collection::new("team-a".parse().unwrap(), "notes".parse().unwrap());
        assert_eq!(collection.quoted(), r#"collection "notes" in namespace "team-a""#);
    }

    #[test]
    fn given_a_name_that_is_not_there_when_it_is_refused_then_those_that_are_stand_behind_it_and_a_long_one_is_cut() {
        assert_eq!(not_there("a\"b", ["x", "y"]), r#""a\"b" is not there; choose one of: x, y"#);
        let long = not_there(&"ü".repeat(10_000), ["x"]);
        assert_eq!(long, format!("\"{}\" is not there; choose one of: x", "ü".repeat(80)));
    }

    #[test]
    fn names_that_could_collide_or_escape_are_refused() {
        for bad in ["", "a__b", "../x", "A", "a b", "%", "-a", "_a", "a/b", "ä", "a\0b", &"x".repeat(64)] {
            assert!(bad.parse::<CollectionName>().is_err(), "collection {bad:?} was taken");
            assert!(bad.parse::<Namespace>().is_err(), "namespace {bad:?} was taken");
        }
        assert!("a_b".parse::<Namespace>().is_err());
        assert!("a_b".parse::<CollectionName>().is_ok());
    }

    proptest! {
        #[test]
        fn two_pairs_never_share_a_physical_name(a in "[a-z0-9_-]{1,8}", b in "[a-z0-9_-]{1,8}", c in "[a-z0-9_-]{1,8}", d in "[a-z0-9_-]{1,8}") {
            let pair = |n: &str, c: &str| Some(Collection::new(n.parse().ok()?, c.parse().ok()?));
            if let (Some(x), Some(y)) = (pair(&a, &b), pair(&c, &d)) {
                prop_assert_eq!(x == y, x.physical_name() == y.physical_name());
            }
        }
    }
}
