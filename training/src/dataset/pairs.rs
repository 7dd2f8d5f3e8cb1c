//! A JSON object with its keys as they were written, so that a key that stands twice is found.

use std::collections::HashSet;
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
        let mut seen = HashSet::with_capacity(self.0.len()); // a line may have a hundred thousand keys
        self.0.iter().map(|(key, _)| key.as_str()).find(|key| !seen.insert(*key))
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}
