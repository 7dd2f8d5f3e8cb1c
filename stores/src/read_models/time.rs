//! Times as the API shows them.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// Milliseconds since the epoch, shown as RFC 3339 in UTC with three decimals: `2026-02-01T12:00:00.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Events of others may carry any number; one beyond the calendar shows as its nearest end.
        let time = DateTime::<Utc>::from_timestamp_millis(self.0).unwrap_or(if self.0 < 0 {
            DateTime::<Utc>::MIN_UTC
        } else {
            DateTime::<Utc>::MAX_UTC
        });
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        DateTime::parse_from_rfc3339(&text).map(|time| Self(time.timestamp_millis())).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_with_milliseconds_whatever_the_number() {
        assert_eq!(serde_json::to_string(&Timestamp(0)).unwrap(), r#""1970-01-01T00:00:00.000Z""#);
        assert_eq!(Timestamp(1_700_000_000_123).to_string(), "2023-11-14T22:13:20.123Z");
        for ms in [i64::MIN, -1, i64::MAX] {
            assert!(!Timestamp(ms).to_string().is_empty());
        }
        let back: Timestamp = serde_json::from_str(r#""2023-11-14T22:13:20.123Z""#).unwrap();
        assert_eq!(back, Timestamp(1_700_000_000_123));
    }
}
