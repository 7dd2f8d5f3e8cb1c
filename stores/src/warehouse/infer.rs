//! The SQL type of a column, from the text of its cells. One pass, constant memory.

use chrono::{NaiveDate, NaiveDateTime};

/// A DECIMAL is exact, but its products soon have too many digits: longer numbers are DOUBLE.
const MAX_DECIMAL_DIGITS: usize = 18;
const MAX_DECIMAL_SCALE: usize = 6;
/// Digits that every 64-bit and every 128-bit number of that length fits.
const BIGINT_DIGITS: usize = 18;
const HUGEINT_DIGITS: usize = 38;

/// What all cells of a column so far could be. NULL could be anything.
#[derive(Debug, Clone)]
pub(super) struct Inference {
    any: bool,
    boolean: bool,
    integer: bool,
    decimal: bool,
    float: bool,
    date: bool,
    /// Dates count as timestamps: a column of both is one of timestamps.
    timestamp: bool,
    timestamp_with_zone: bool,
    whole_digits: usize,
    scale: usize,
}

impl Default for Inference {
    fn default() -> Self {
        Self {
            any: false,
            boolean: true,
            integer: true,
            decimal: true,
            float: true,
            date: true,
            timestamp: true,
            timestamp_with_zone: true,
            whole_digits: 0,
            scale: 0,
        }
    }
}

impl Inference {
    /// Takes the next cell.
    pub(super) fn see(&mut self, cell: Option<&str>) {
        let Some(cell) = cell.filter(|cell| !cell.is_empty()) else { return };
        self.any = true;
        self.boolean &= cell.eq_ignore_ascii_case("true") || cell.eq_ignore_ascii_case("false");
        if self.float {
            self.see_number(cell);
        }
        if self.timestamp || self.timestamp_with_zone {
            let date = is_date(cell);
            self.date &= date;
            self.timestamp &= date || is_timestamp(cell);
            self.timestamp_with_zone &= has_zone(cell);
        }
    }

    fn see_number(&mut self, cell: &str) {
        let Some((whole, fraction)) = plain_number(cell) else {
            self.integer = false;
            self.decimal = false;
            self.float &= is_exponential(cell);
            return;
        };
        self.integer &= fraction == 0;
        self.whole_digits = self.whole_digits.max(whole);
        self.scale = self.scale.max(fraction);
    }

    /// The narrowest type that holds every cell exactly; DOUBLE where the digits are too many for a decimal.
    pub(super) fn sql_type(&self) -> String {
        let digits = self.whole_digits + self.scale;
        match self {
            _ if !self.any => "VARCHAR".to_owned(),
            Self { boolean: true, .. } => "BOOLEAN".to_owned(),
            Self { integer: true, .. } if digits <= BIGINT_DIGITS => "BIGINT".to_owned(),
            Self { integer: true, .. } if digits <= HUGEINT_DIGITS => "HUGEINT".to_owned(),
            // An identifier, not something to reckon with.
            Self { integer: true, .. } => "VARCHAR".to_owned(),
            Self { decimal: true, .. } if digits <= MAX_DECIMAL_DIGITS && self.scale <= MAX_DECIMAL_SCALE => {
                format!("DECIMAL({digits},{})", self.scale)
            }
            Self { float: true, .. } => "DOUBLE".to_owned(),
            Self { date: true, .. } => "DATE".to_owned(),
            Self { timestamp: true, .. } => "TIMESTAMP".to_owned(),
            Self { timestamp_with_zone: true, .. } => "TIMESTAMP WITH TIME ZONE".to_owned(),
            _ => "VARCHAR".to_owned(),
        }
    }
}

/// How many digits stand before and behind the point. A number that begins with a zero which says nothing, such as 007, is
/// an identifier.
fn plain_number(cell: &str) -> Option<(usize, usize)> {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let good = is_digits(whole) && (whole == "0" || !whole.starts_with('0')) && fraction.is_none_or(is_digits);
    good.then(|| (whole.len(), fraction.map_or(0, str::len)))
}

fn is_exponential(cell: &str) -> bool {
    let Some((mantissa, exponent)) = cell.split_once(['e', 'E']) else { return false };
    plain_number(mantissa).is_some() && exponent.parse::<i16>().is_ok() && cell.parse().is_ok_and(f64::is_finite)
}

fn is_date(cell: &str) -> bool {
    cell.len() == 10 && NaiveDate::parse_from_str(cell, "%Y-%m-%d").is_ok()
}

fn is_timestamp(cell: &str) -> bool {
    // Below a microsecond the engine would cut.
    let fraction = cell.rsplit_once('.').map_or(0, |(_, fraction)| fraction.len());
    fraction <= 6
        && cell.is_char_boundary(10)
        && is_date(&cell[..10])
        && ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"]
            .iter()
            .any(|format| NaiveDateTime::parse_from_str(cell, format).is_ok())
}

fn has_zone(cell: &str) -> bool {
    let without = cell.strip_suffix('Z').or_else(|| {
        // +02 or +02:00, behind a time.
        let at = cell.rfind(['+', '-']).filter(|at| *at > "2024-01-01".len())?;
        let (head, zone) = (&cell[..at], &cell[at + 1..]);
        let (hours, minutes) = zone.split_once(':').unwrap_or((zone, "00"));
        let two_digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        (two_digits(hours) && two_digits(minutes) && hours <= "14" && minutes < "60").then_some(head)
    });
    without.is_some_and(is_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_of(cells: &[&str]) -> String {
        let mut inference = Inference::default();
        cells.iter().for_each(|cell| inference.see(Some(cell)));
        inference.sql_type()
    }

    #[test]
    fn given_cells_when_inferred_then_the_type_is_the_narrowest_that_loses_nothing() {
        let table: [(&[&str], &str); 24] = [
            (&[], "VARCHAR"),
            (&["", ""], "VARCHAR"),
            (&["1", "", "-20"], "BIGINT"),
            (&["999999999999999999"], "BIGINT"),
            (&["9223372036854775808"], "HUGEINT"),
            (&["170141183460469231731687303715884105728"], "VARCHAR"),
            (&["007", "8"], "VARCHAR"),
            (&["0", "-0"], "BIGINT"),
            (&["1.50", "20"], "DECIMAL(4,2)"),
            (&["0.1234567"], "DOUBLE"),
            (&["1e3", "2"], "DOUBLE"),
            (&["1e999"], "VARCHAR"),
            (&["nan"], "VARCHAR"),
            (&["1,000"], "VARCHAR"),
            (&["TRUE", "false"], "BOOLEAN"),
            (&["true", "1"], "VARCHAR"),
            (&["2024-02-29"], "DATE"),
            (&["2023-02-29"], "VARCHAR"),
            (&["2024-02-29", "2024-02-29 10:00"], "TIMESTAMP"),
            (&["2024-02-29T10:00:00.123456"], "TIMESTAMP"),
            (&["2024-02-29T10:00:00.1234567"], "VARCHAR"),
            (&["2024-02-29T10:00:00Z", "2024-02-29 10:00:00+02:00"], "TIMESTAMP WITH TIME ZONE"),
            (&["2024-02-29T10:00:00Z", "2024-02-29"], "VARCHAR"),
            (&["héllo wörld", "日本語の文字列です", "é"], "VARCHAR"),
        ];
        for (cells, expected) in table {
            assert_eq!(type_of(cells), expected, "{cells:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_type(cells in proptest::collection::vec(".{0,30}", 0..5)) {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            proptest::prop_assert!(!type_of(&cells).is_empty());
        }
    }
}
