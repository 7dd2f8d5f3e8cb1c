//! Values as JSON, without loss.

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta};
use duckdb::types::{TimeUnit, Value as Duck};
use serde_json::{Map, Number, Value, json};

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// A value of a column of that SQL type.
pub(super) fn json(value: Duck, sql_type: &str) -> Value {
    match value {
        Duck::Null => Value::Null,
        Duck::Boolean(value) => value.into(),
        Duck::TinyInt(value) => value.into(),
        Duck::SmallInt(value) => value.into(),
        Duck::Int(value) => value.into(),
        Duck::BigInt(value) => value.into(),
        Duck::UTinyInt(value) => value.into(),
        Duck::USmallInt(value) => value.into(),
        Duck::UInt(value) => value.into(),
        Duck::UBigInt(value) => value.into(),
        Duck::HugeInt(value) => i64::try_from(value)
            .map(Value::from)
            .or_else(|_| u64::try_from(value).map(Value::from))
            .unwrap_or_else(|_| value.to_string().into()),
        Duck::UHugeInt(value) => u64::try_from(value).map_or_else(|_| value.to_string().into(), Value::from),
        // By way of its shortest text: 0.1 stays 0.1.
        Duck::Float(value) => value.to_string().parse().map_or(Value::Null, float),
        Duck::Double(value) => float(value),
        Duck::Decimal(value) => value.to_string().into(),
        Duck::Text(text) | Duck::Enum(text) => text.into(),
        Duck::Blob(bytes) | Duck::Geometry(bytes) => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
        Duck::Date32(days) => date(days).into(),
        Duck::Time64(unit, count) => time(nanos(unit, count)).into(),
        Duck::Timestamp(unit, count) => timestamp(nanos(unit, count), sql_type == "TIMESTAMP WITH TIME ZONE").into(),
        Duck::Interval { months, days, nanos } => interval(months, days, nanos).into(),
        Duck::List(items) | Duck::Array(items) => items.into_iter().map(|item| json(item, "")).collect(),
        Duck::Struct(fields) => Value::Object(
            fields.iter().map(|(name, value)| (name.clone(), json(value.clone(), ""))).collect::<Map<_, _>>(),
        ),
        Duck::Map(entries) => entries
            .iter()
            .map(|(key, value)| json!({ "key": json(key.clone(), ""), "value": json(value.clone(), "") }))
            .collect(),
        Duck::Union(value) => json(*value, ""),
        // A type that a later engine brings: as it shows itself.
        other => format!("{other:?}").into(),
    }
}

/// About how many bytes the value has as JSON.
pub(super) fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(weight).sum::<usize>(),
        Value::Object(fields) => 2 + fields.iter().map(|(name, value)| name.len() + 4 + weight(value)).sum::<usize>(),
    }
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(
        || {
            let text = if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            text.into()
        },
        Value::Number,
    )
}

fn nanos(unit: TimeUnit, count: i64) -> i128 {
    let factor = match unit {
        TimeUnit::Second => NANOS_PER_SECOND,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    i128::from(count) * factor
}

/// The engine's words for the two ends of time.
fn endless(is_end: bool) -> String {
    if is_end { "infinity" } else { "-infinity" }.to_owned()
}

fn date(days: i32) -> String {
    let epoch = NaiveDate::default();
    match epoch.checked_add_signed(TimeDelta::days(i64::from(days))) {
        Some(date) => date.to_string(),
        None => endless(days > 0),
    }
}

fn time(nanos: i128) -> String {
    let (seconds, rest) = (nanos.div_euclid(NANOS_PER_SECOND), nanos.rem_euclid(NANOS_PER_SECOND));
    match (u32::try_from(seconds), u32::try_from(rest)) {
        (Ok(seconds), Ok(rest)) => NaiveTime::from_num_seconds_from_midnight_opt(seconds, rest)
            // The engine has an end of the day, which no clock shows.
            .map_or_else(|| "24:00:00".to_owned(), |time| time.format("%H:%M:%S%.f").to_string()),
        _ => String::new(),
    }
}

fn timestamp(nanos: i128, zoned: bool) -> String {
    let (seconds, rest) = (nanos.div_euclid(NANOS_PER_SECOND), nanos.rem_euclid(NANOS_PER_SECOND));
    let at = i64::try_from(seconds)
        .ok()
        .zip(u32::try_from(rest).ok())
        .and_then(|(seconds, rest)| DateTime::from_timestamp(seconds, rest));
    match at {
        Some(at) if zoned => at.format("%Y-%m-%dT%H:%M:%S%.fZ").to_string(),
        Some(at) => at.format("%Y-%m-%dT%H:%M:%S%.f").to_string(),
        None => endless(nanos > 0),
    }
}

/// ISO 8601; months, days and seconds stay apart, since a month has no length.
fn interval(months: i32, days: i32, nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:09}").trim_end_matches('0').to_owned() };
    format!("P{months}M{days}DT{sign}{seconds}{fraction}S")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_values_that_json_lacks_then_they_are_texts_that_lose_nothing() {
        assert_eq!(json(Duck::HugeInt(42), ""), json!(42));
        assert_eq!(json(Duck::HugeInt(i128::MAX), ""), json!("170141183460469231731687303715884105727"));
        assert_eq!(json(Duck::UHugeInt(u128::MAX), ""), json!("340282366920938463463374607431768211455"));
        assert_eq!(json(Duck::UBigInt(u64::MAX), ""), json!(u64::MAX));
        assert_eq!(json(Duck::Float(0.1), ""), json!(0.1));
        assert_eq!(json(Duck::Double(f64::NAN), ""), json!("NaN"));
        assert_eq!(json(Duck::Double(f64::NEG_INFINITY), ""), json!("-Infinity"));
        assert_eq!(json(Duck::Blob(vec![0, 255]), ""), json!("00ff"));
        assert_eq!(json(Duck::Date32(19_782), ""), json!("2024-02-29"));
        assert_eq!(json(Duck::Date32(i32::MAX), ""), json!("infinity"));
        assert_eq!(json(Duck::Timestamp(TimeUnit::Microsecond, 1), ""), json!("1970-01-01T00:00:00.000001"));
        assert_eq!(
            json(Duck::Timestamp(TimeUnit::Second, -1), "TIMESTAMP WITH TIME ZONE"),
            json!("1969-12-31T23:59:59Z")
        );
        assert_eq!(json(Duck::Time64(TimeUnit::Microsecond, 86_400_000_000), ""), json!("24:00:00"));
        assert_eq!(json(Duck::Interval { months: 14, days: -3, nanos: -1_500_000_000 }, ""), json!("P14M-3DT-1.5S"));
    }
}
