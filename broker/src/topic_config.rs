//! Settings of a topic: one table of names, defaults and meanings.

pub(crate) mod words;

use std::collections::BTreeMap;

use crate::wire::compression::Codec;

/// The type of a setting, as Kafka's admin API numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub(crate) enum SettingType {
    /// True or false.
    Boolean = 1,
    /// Text.
    Text = 2,
    /// 32 bits.
    Int = 3,
    /// 64 bits.
    Long = 5,
    /// A fraction.
    Double = 6,
    /// Words with commas.
    List = 7,
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value when nothing is said.
    pub default: &'static str,
    /// Its type.
    pub kind: SettingType,
    check: fn(&str) -> bool,
    allowed: &'static str,
}

fn any_number(value: &str) -> bool {
    value.parse::<i64>().is_ok_and(|value| value >= -1)
}
fn natural(value: &str) -> bool {
    value.parse::<i64>().is_ok_and(|value| value >= 0)
}
fn positive(value: &str) -> bool {
    value.parse::<i64>().is_ok_and(|value| value >= 1)
}
fn segment_size(value: &str) -> bool {
    value.parse::<i64>().is_ok_and(|value| (14..=i64::from(i32::MAX)).contains(&value))
}
fn message_size(value: &str) -> bool {
    value.parse::<i64>().is_ok_and(|value| (0..=i64::from(i32::MAX)).contains(&value))
}
fn fraction(value: &str) -> bool {
    value.parse::<f64>().is_ok_and(|value| (0.0..=1.0).contains(&value))
}
fn boolean(value: &str) -> bool {
    matches!(value, "true" | "false")
}
fn policy(value: &str) -> bool {
    // Neither is a policy too: everything is kept for ever.
    value.is_empty() || value.split(',').all(|word| matches!(word.trim(), "delete" | "compact"))
}
fn timestamp_type(value: &str) -> bool {
    matches!(value, "CreateTime" | "LogAppendTime")
}
fn gzip_level(value: &str) -> bool {
    value == "-1" || value.parse::<u8>().is_ok_and(|level| (1..=9).contains(&level))
}
fn lz4_level(value: &str) -> bool {
    value.parse::<u8>().is_ok_and(|level| (1..=17).contains(&level))
}
fn zstd_level(value: &str) -> bool {
    value.parse::<i32>().is_ok_and(|level| (-131_072..=22).contains(&level))
}
fn throttled(value: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_replica = |word: &str| word.trim().split_once(':').is_some_and(|(a, b)| is_number(a) && is_number(b));
    matches!(value, "" | "*") || value.split(',').all(is_replica)
}
fn compression(value: &str) -> bool {
    value == "producer" || Codec::named(value).is_some()
}

const fn setting(
    name: &'static str,
    default: &'static str,
    kind: SettingType,
    check: fn(&str) -> bool,
    allowed: &'static str,
) -> Setting {
    Setting { name, default, kind, check, allowed }
}

/// Every setting that has a meaning here. Names that Kafka knows beyond these are refused, not ignored, except the ones in
/// [`WITHOUT_EFFECT`].
pub(crate) const SETTINGS: &[Setting] = &[
    setting("cleanup.policy", "delete", SettingType::List, policy, "delete, compact, both or nothing"),
    setting(
        "compression.type",
        "producer",
        SettingType::Text,
        compression,
        "producer (batches are kept as sent), uncompressed, gzip, snappy, lz4 or zstd",
    ),
    setting("delete.retention.ms", "86400000", SettingType::Long, natural, "0 or more"),
    setting("max.compaction.lag.ms", "9223372036854775807", SettingType::Long, positive, "1 or more"),
    setting("max.message.bytes", "1048588", SettingType::Int, message_size, "0 to 2147483647"),
    setting("message.timestamp.after.max.ms", "3600000", SettingType::Long, natural, "0 or more"),
    setting("message.timestamp.before.max.ms", "9223372036854775807", SettingType::Long, natural, "0 or more"),
    setting("message.timestamp.type", "CreateTime", SettingType::Text, timestamp_type, "CreateTime or LogAppendTime"),
    setting("min.cleanable.dirty.ratio", "0.5", SettingType::Double, fraction, "0 to 1"),
    setting("min.compaction.lag.ms", "0", SettingType::Long, natural, "0 or more"),
    setting("retention.bytes", "-1", SettingType::Long, any_number, "-1 or more"),
    setting("retention.ms", "604800000", SettingType::Long, any_number, "-1 or more"),
    setting("segment.bytes", "67108864", SettingType::Int, segment_size, "14 to 2147483647"),
    setting("segment.ms", "604800000", SettingType::Long, positive, "1 or more"),
];

/// Settings of Kafka that are taken and described but mean nothing on a single node that syncs before it acknowledges, and the
/// levels of codecs, for which each has its default here.
pub(crate) const WITHOUT_EFFECT: &[Setting] = &[
    setting("compression.gzip.level", "-1", SettingType::Int, gzip_level, "-1 (the default of gzip) or 1 to 9"),
    setting("compression.lz4.level", "9", SettingType::Int, lz4_level, "1 to 17"),
    setting("compression.zstd.level", "3", SettingType::Int, zstd_level, "-131072 to 22"),
    setting("file.delete.delay.ms", "60000", SettingType::Long, natural, "0 or more"),
    setting("flush.messages", "9223372036854775807", SettingType::Long, natural, "0 or more"),
    setting("flush.ms", "9223372036854775807", SettingType::Long, natural, "0 or more"),
    setting("follower.replication.throttled.replicas", "", SettingType::List, throttled, THROTTLED),
    setting("index.interval.bytes", "4096", SettingType::Int, natural, "0 or more"),
    setting("leader.replication.throttled.replicas", "", SettingType::List, throttled, THROTTLED),
    setting("min.insync.replicas", "1", SettingType::Int, positive, "1 or more"),
    setting("preallocate", "false", SettingType::Boolean, boolean, "true or false"),
    setting("segment.index.bytes", "10485760", SettingType::Int, natural, "0 or more"),
    setting("segment.jitter.ms", "0", SettingType::Long, natural, "0 or more"),
    setting("unclean.leader.election.enable", "false", SettingType::Boolean, boolean, "true or false"),
];

const THROTTLED: &str = "nothing, * or partition:node pairs with commas";

/// All known settings.
pub(crate) fn all_settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(WITHOUT_EFFECT)
}

/// A setting that cannot be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum SettingError {
    /// No such setting.
    #[error("unknown topic setting {name}, known are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The list.
        known: String,
    },
    /// Not a value of its type.
    #[error("topic setting {name} cannot be {value}, allowed is {allowed}")]
    Value {
        /// Which.
        name: String,
        /// What was given.
        value: String,
        /// What would do.
        allowed: &'static str,
    },
    /// Compaction would have to come before it may.
    #[error(
        "topic setting min.compaction.lag.ms is {min} and max.compaction.lag.ms {max}: raise the second, or lower the first"
    )]
    Lags {
        /// Milliseconds that records stay untouched.
        min: i64,
        /// Milliseconds after which they are compacted.
        max: i64,
    },
}

/// Checks settings, each by itself and those that have to go together.
pub(crate) fn check_all(set: &BTreeMap<String, String>) -> Result<(), SettingError> {
    set.iter().try_for_each(|(name, value)| check(name, value))?;
    let config = TopicConfig::new(set, 0);
    let (min, max) = (config.min_compaction_lag_ms, config.max_compaction_lag_ms);
    if min <= max { Ok(()) } else { Err(SettingError::Lags { min, max }) }
}

fn check(name: &str, value: &str) -> Result<(), SettingError> {
    let setting = all_settings().find(|setting| setting.name == name).ok_or_else(|| SettingError::Unknown {
        name: name.into(),
        known: all_settings().map(|setting| setting.name).collect::<Vec<_>>().join(", "),
    })?;
    if (setting.check)(value) {
        return Ok(());
    }
    Err(SettingError::Value { name: name.into(), value: value.into(), allowed: setting.allowed })
}

/// The settings of a topic in the form that storage needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopicConfig {
    /// Old segments are deleted.
    delete: bool,
    /// Only the last record of each key is kept.
    compact: bool,
    append_time: bool,
    /// How batches are compressed; none leaves them as they were sent.
    pub codec: Option<Codec>,
    /// How far a record's time may lie before the broker's, in milliseconds.
    pub timestamp_before_max_ms: i64,
    /// How far it may lie after it, in milliseconds.
    pub timestamp_after_max_ms: i64,
    /// Largest batch in bytes.
    pub max_message_bytes: usize,
    /// Size at which a segment is closed.
    pub segment_bytes: u64,
    /// Age at which a segment is closed.
    pub segment_ms: i64,
    /// How long records are kept; none is for ever.
    pub retention_ms: Option<i64>,
    /// How many bytes a partition keeps; none is all.
    pub retention_bytes: Option<u64>,
    /// How long a tombstone is kept by compaction.
    pub delete_retention_ms: i64,
    /// Records that are older than this are compacted however few they are.
    pub max_compaction_lag_ms: i64,
    /// Records younger than this are not compacted.
    pub min_compaction_lag_ms: i64,
    /// Share of new bytes at which compaction is worth it.
    pub min_cleanable_dirty_ratio: f64,
}

impl TopicConfig {
    /// Reads checked settings; `segment_bytes` is the broker's default.
    pub(crate) fn new(set: &BTreeMap<String, String>, segment_bytes: u64) -> Self {
        let text = |name: &str| {
            set.get(name).map(String::as_str).unwrap_or_else(|| {
                all_settings().find(|setting| setting.name == name).map_or("", |setting| setting.default)
            })
        };
        // Values have been checked before they were stored; an unreadable one means "not limited".
        let number = |name: &str| text(name).parse::<i64>().unwrap_or(-1);
        let limit = |name: &str| Some(number(name)).filter(|value| *value >= 0);
        let policies = text("cleanup.policy");
        let compact = policies.contains("compact");
        let (segment_ms, max_compaction_lag_ms) = (number("segment.ms"), number("max.compaction.lag.ms"));
        Self {
            delete: policies.contains("delete"),
            compact,
            append_time: text("message.timestamp.type") == "LogAppendTime",
            codec: Codec::named(text("compression.type")),
            timestamp_before_max_ms: number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: number("message.timestamp.after.max.ms"),
            max_message_bytes: usize::try_from(number("max.message.bytes")).unwrap_or(usize::MAX),
            segment_bytes: if set.contains_key("segment.bytes") {
                number("segment.bytes") as u64
            } else {
                segment_bytes
            },
            // What is to be compacted in time must lie in a closed segment by then.
            segment_ms: if compact { segment_ms.min(max_compaction_lag_ms) } else { segment_ms },
            retention_ms: limit("retention.ms"),
            retention_bytes: limit("retention.bytes").map(|value| value as u64),
            delete_retention_ms: number("delete.retention.ms"),
            max_compaction_lag_ms,
            min_compaction_lag_ms: number("min.compaction.lag.ms"),
            min_cleanable_dirty_ratio: text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
        }
    }

    /// Whether old segments are deleted.
    pub(crate) fn deletes(&self) -> bool {
        self.delete
    }

    /// Whether the log is compacted.
    pub(crate) fn compacts(&self) -> bool {
        self.compact
    }

    /// Whether batches get the broker's time.
    pub(crate) fn log_append_time(&self) -> bool {
        self.append_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn given_the_defaults_when_checked_then_each_is_allowed_and_all_go_together() {
        assert_eq!(
            check_all(&all_settings().map(|one| (one.name.to_owned(), one.default.to_owned())).collect()),
            Ok(())
        );
    }

    #[test]
    fn given_settings_when_checked_then_those_that_cannot_be_are_named() {
        for (name, good, bad) in [
            ("compression.gzip.level", "9", "0"),
            ("compression.lz4.level", "17", "18"),
            ("compression.zstd.level", "-7", "23"),
            ("leader.replication.throttled.replicas", "0:1,3:1", "0:1,"),
            ("follower.replication.throttled.replicas", "*", "1"),
            ("max.compaction.lag.ms", "1", "0"),
        ] {
            assert_eq!(check_all(&set(&[(name, good)])), Ok(()), "{name}");
            let refused = check_all(&set(&[(name, bad)])).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn given_compaction_that_must_come_before_it_may_when_checked_then_both_settings_are_named() {
        let lags = |min, max| set(&[("min.compaction.lag.ms", min), ("max.compaction.lag.ms", max)]);
        assert_eq!(check_all(&lags("5", "5")), Ok(()));
        assert_eq!(check_all(&lags("6", "5")), Err(SettingError::Lags { min: 6, max: 5 }));
    }

    #[test]
    fn given_a_bound_for_compaction_when_the_topic_is_compacted_then_segments_are_closed_in_time_for_it() {
        let bound = ("max.compaction.lag.ms", "1000");
        assert_eq!(TopicConfig::new(&set(&[bound, ("cleanup.policy", "compact")]), 0).segment_ms, 1_000);
        assert_eq!(TopicConfig::new(&set(&[bound]), 0).segment_ms, 604_800_000);
    }
}
