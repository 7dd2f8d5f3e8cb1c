//! A JSON object with its keys as they were written, so that a key that stands twice is found, also in what lies in it.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Keys and values in their order.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Of the object itself.
    pub(super) all: Vec<(String, Value)>,
    /// The first key that stands twice in an object.
    repeated: Option<String>,
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Pairs { all: Vec::new(), repeated: None };
                let mut seen = HashSet::new(); // a line may have a hundred thousand keys
                while let Some((key, within)) = map.next_entry::<String, Within>()? {
                    let twice = if seen.insert(key.clone()) { within.repeated } else { Some(key.clone()) };
                    pairs.repeated = pairs.repeated.or(twice);
                    pairs.all.push((key, within.value));
                }
                Ok(pairs)
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

impl Pairs {
    /// The first key that stands twice.
    pub(super) fn repeated(&self) -> Option<&str> {
        self.repeated.as_deref()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.all.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// A value in an object. What `Value` itself reads of a key that stands twice is the last one.
struct Within {
    value: Value,
    repeated: Option<String>,
}

impl Within {
    fn plain(value: impl Into<Value>) -> Self {
        Self { value: value.into(), repeated: None }
    }
}

impl<'de> Deserialize<'de> for Within {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Within;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<Within, E> {
                Ok(Within::plain(Value::Null))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Within, E> {
                Ok(Within::plain(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Within, E> {
                Ok(Within::plain(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Within, E> {
                Ok(Within::plain(value))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Within, E> {
                Ok(Within::plain(Number::from_f64(value).map_or(Value::Null, Value::Number)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Within, E> {
                Ok(Within::plain(value))
            }

            fn visit_string<E>(self, value: String) -> Result<Within, E> {
                Ok(Within::plain(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Within, A::Error> {
                let (mut values, mut repeated) = (Vec::new(), None);
                while let Some(within) = list.next_element::<Within>()? {
                    values.push(within.value);
                    repeated = repeated.or(within.repeated);
                }
                Ok(Within { value: Value::Array(values), repeated })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Within, A::Error> {
                let (mut values, mut repeated) = (Map::new(), None);
                while let Some((key, within)) = map.next_entry::<String, Within>()? {
                    let twice = if values.contains_key(&key) { Some(key.clone()) } else { within.repeated };
                    repeated = repeated.or(twice);
                    values.insert(key, within.value);
                }
                Ok(Within { value: Value::Object(values), repeated })
            }
        }

        deserializer.deserialize_any(Reader)
    }
}
