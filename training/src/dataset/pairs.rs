//! A JSON object with its keys as they were written, so that a key that stands twice is found.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// Keys and values in their order.
#[derive(Debug)]
pub(super) struct Pairs(pub(super) Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

impl Pairs {
    /// The first key that stands twice.
    pub(super) fn repeated(&self) -> Option<&str> {
        let twice = |(at, (key, _)): &(usize, &(String, Value))| self.0[..*at].iter().any(|(other, _)| other == key);
        self.0.iter().enumerate().find(twice).map(|(_, (key, _))| key.as_str())
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}
