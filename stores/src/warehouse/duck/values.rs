//! Values as JSON, without loss.

use chrono::{Datelike, NaiveDate, NaiveTime, TimeDelta};
use duckdb::core::{LogicalTypeHandle, LogicalTypeId};
use duckdb::types::{TimeUnit, Value as Duck};
use serde_json::{Map, Number, Value, json};

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// After 400 years, which are so many days, the Gregorian calendar begins again.
const CYCLE_DAYS: i64 = 146_097;

/// What a value is that does not say so itself: bits come as bytes, and times with and without a zone alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// It says so itself.
    Plain,
    /// Bytes are a BIT.
    Bits,
    /// A time is one in UTC.
    Zoned,
    /// A list or an array of these.
    Items(Box<Shape>),
    /// A struct with these fields.
    Fields(Vec<Shape>),
    /// A map of such keys to such values.
    Entries(Box<Shape>, Box<Shape>),
}

static PLAIN: Shape = Shape::Plain;

impl Shape {
    /// Of the values of a column. A union's values don't say which member they are: they are plain.
    pub(super) fn of(column: &LogicalTypeHandle) -> Self {
        let child = |at: usize| Self::of(&column.child(at));
        match column.id() {
            LogicalTypeId::Bit => Self::Bits,
            LogicalTypeId::TimestampTZ => Self::Zoned,
            LogicalTypeId::List | LogicalTypeId::Array => Self::Items(Box::new(child(0))),
            LogicalTypeId::Struct => Self::Fields((0..column.num_children()).map(child).collect()),
            LogicalTypeId::Map => Self::Entries(Box::new(child(0)), Box::new(child(1))),
            _ => Self::Plain,
        }
    }

    fn item(&self) -> &Self {
        if let Self::Items(item) = self { item.as_ref() } else { &PLAIN }
    }

    fn field(&self, at: usize) -> &Self {
        if let Self::Fields(fields) = self { fields.get(at).unwrap_or(&PLAIN) } else { &PLAIN }
    }

    fn entry(&self) -> (&Self, &Self) {
        if let Self::Entries(key, value) = self { (key.as_ref(), value.as_ref()) } else { (&PLAIN, &PLAIN) }
    }
}

/// A value of that shape.
pub(super) fn json(value: Duck, shape: &Shape) -> Value {
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
        Duck::Blob(bytes) if *shape == Shape::Bits => bits(&bytes).into(),
        Duck::Blob(bytes) | Duck::Geometry(bytes) => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
        Duck::Date32(days) => date(days).into(),
        Duck::Time64(unit, count) => time(nanos(unit, count)).into(),
        Duck::Timestamp(unit, count) => timestamp(unit, count, *shape == Shape::Zoned).into(),
        Duck::Interval { months, days, nanos } => interval(months, days, nanos).into(),
        Duck::List(items) | Duck::Array(items) => {
            let of_items = shape.item();
            items.into_iter().map(|item| json(item, of_items)).collect()
        }
        Duck::Struct(fields) => Value::Object(
            fields
                .iter()
                .enumerate()
                .map(|(at, (name, value))| (name.clone(), json(value.clone(), shape.field(at))))
                .collect::<Map<_, _>>(),
        ),
        Duck::Map(entries) => {
            let (of_keys, of_values) = shape.entry();
            entries
                .iter()
                .map(|(key, value)| json!({ "key": json(key.clone(), of_keys), "value": json(value.clone(), of_values) }))
                .collect()
        }
        Duck::Union(value) => json(*value, &PLAIN),
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

/// The digits of a BIT. The first byte says how many bits are filling, in front of the others.
fn bits(bytes: &[u8]) -> String {
    let Some((filling, bytes)) = bytes.split_first() else { return String::new() };
    let digits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    digits.get(usize::from(*filling)..).unwrap_or_default().to_owned()
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn nanos(unit: TimeUnit, count: i64) -> i128 {
    i128::from(count) * (NANOS_PER_SECOND / i128::from(per_second(unit)))
}

/// The engine's words for the two ends of time, which are the largest number of days or units and its negative.
fn endless(is_end: bool) -> String {
    if is_end { "infinity" } else { "-infinity" }.to_owned()
}

fn date(days: i32) -> String {
    if days == i32::MAX || days == -i32::MAX { endless(days > 0) } else { day(i64::from(days)) }
}

/// A day since 1970 as ISO 8601 writes it: with a sign where its year is before 0 or has more than four digits. The engine knows years of
/// seven digits, which chrono does not, so it is looked up in the first cycle of the calendar.
fn day(days: i64) -> String {
    let (cycles, rest) = (days.div_euclid(CYCLE_DAYS), days.rem_euclid(CYCLE_DAYS));
    let near = NaiveDate::default() + TimeDelta::days(rest);
    let year = i64::from(near.year()) + 400 * cycles;
    let year = if (0..=9_999).contains(&year) { format!("{year:04}") } else { format!("{year:+05}") };
    format!("{year}-{:02}-{:02}", near.month(), near.day())
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

fn timestamp(unit: TimeUnit, count: i64, zoned: bool) -> String {
    if count == i64::MAX || count == -i64::MAX {
        return endless(count > 0);
    }
    let per_day = SECONDS_PER_DAY * per_second(unit);
    let zone = if zoned { "Z" } else { "" };
    format!("{}T{}{zone}", day(count.div_euclid(per_day)), time(nanos(unit, count.rem_euclid(per_day))))
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
        assert_eq!(json(Duck::HugeInt(42), &PLAIN), json!(42));
        assert_eq!(json(Duck::HugeInt(i128::MAX), &PLAIN), json!("170141183460469231731687303715884105727"));
        assert_eq!(json(Duck::UHugeInt(u128::MAX), &PLAIN), json!("340282366920938463463374607431768211455"));
        assert_eq!(json(Duck::UBigInt(u64::MAX), &PLAIN), json!(u64::MAX));
        assert_eq!(json(Duck::Float(0.1), &PLAIN), json!(0.1));
        assert_eq!(json(Duck::Double(f64::NAN), &PLAIN), json!("NaN"));
        assert_eq!(json(Duck::Double(f64::NEG_INFINITY), &PLAIN), json!("-Infinity"));
        assert_eq!(json(Duck::Blob(vec![0, 255]), &PLAIN), json!("00ff"));
        assert_eq!(json(Duck::Date32(19_782), &PLAIN), json!("2024-02-29"));
        assert_eq!(json(Duck::Date32(i32::MAX), &PLAIN), json!("infinity"));
        assert_eq!(json(Duck::Timestamp(TimeUnit::Microsecond, 1), &PLAIN), json!("1970-01-01T00:00:00.000001"));
        assert_eq!(json(Duck::Timestamp(TimeUnit::Second, -1), &Shape::Zoned), json!("1969-12-31T23:59:59Z"));
        assert_eq!(json(Duck::Time64(TimeUnit::Microsecond, 86_400_000_000), &PLAIN), json!("24:00:00"));
        assert_eq!(
            json(Duck::Interval { months: 14, days: -3, nanos: -1_500_000_000 }, &PLAIN),
            json!("P14M-3DT-1.5S")
        );
    }
    #[test]
    fn given_bits_when_they_are_read_then_they_are_digits_without_their_filling() {
        for (bytes, digits) in [
            (vec![3, 0b1111_0101], "10101"),
            (vec![0, 0b0000_0101], "00000101"),
            (vec![7, 0b1111_1111, 0], "100000000"),
            (Vec::new(), ""),
        ] {
            assert_eq!(json(Duck::Blob(bytes.clone()), &Shape::Bits), json!(digits), "{bytes:?}");
        }
        let list = Shape::Items(Box::new(Shape::Bits));
        assert_eq!(json(Duck::List(vec![Duck::Blob(vec![5, 0xfd]), Duck::Null]), &list), json!(["101", null]));
    }

    #[test]
    fn given_days_that_are_far_away_when_they_are_read_then_they_are_days_and_only_the_ends_of_time_have_none() {
        for (days, text) in [
            (0, "1970-01-01"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+10000-01-01"),
            (105_314_012, "+290309-12-22"),
            (i32::MAX - 1, "+5881580-07-10"),
            (1 - i32::MAX, "-5877641-06-25"),
            (i32::MAX, "infinity"),
            (-i32::MAX, "-infinity"),
        ] {
            assert_eq!(json(Duck::Date32(days), &PLAIN), json!(text));
        }
        for (unit, count, text) in [
            (TimeUnit::Microsecond, i64::MAX - 1, "+294247-01-10T04:00:54.775806"),
            (TimeUnit::Second, 105_314_012 * SECONDS_PER_DAY + 1, "+290309-12-22T00:00:01"),
            (TimeUnit::Nanosecond, 1 - i64::MAX, "1677-09-21T00:12:43.145224194"),
            (TimeUnit::Millisecond, -1, "1969-12-31T23:59:59.999"),
            (TimeUnit::Second, i64::MAX, "infinity"),
            (TimeUnit::Nanosecond, -i64::MAX, "-infinity"),
        ] {
            assert_eq!(json(Duck::Timestamp(unit, count), &PLAIN), json!(text));
        }
    }
}
