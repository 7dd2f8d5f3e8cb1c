//! Numbers of JSON that no 64-bit number holds digit by digit: long identifiers, exact decimals, what is beyond the largest
//! real. The parser would round or refuse them; between quotation marks it gives them back as they are written.

use std::borrow::Cow;

/// A real of at most so many digits, times at most [`EXACT_POWER`] tens, comes back from a double as it went in.
const EXACT_DIGITS: usize = 15;

/// The largest power of ten that a double holds exactly.
const EXACT_POWER: i64 = 22;

/// The same JSON with each such number as a text. What is no JSON stays none.
pub(super) fn kept(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = number_end(bytes, at);
                let number = &json[at..end];
                if loses_digits(number) && !is_key(&bytes[end..]) {
                    out.extend([&json[copied..at], "\"", number, "\""]);
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// Behind the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Behind the number that begins at `at`.
fn number_end(bytes: &[u8], at: usize) -> usize {
    let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    at + bytes[at..].iter().take_while(|byte| is_part(**byte)).count()
}

/// A key has to have quotation marks of its own.
fn is_key(after: &[u8]) -> bool {
    after.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

fn loses_digits(number: &str) -> bool {
    let unsigned = number.strip_prefix('-').unwrap_or(number);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(whole, rest)| (whole, Some(rest)));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = is_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(is_digits)
        && exponent.is_none_or(|exponent| is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)));
    if !is_number {
        return false;
    }
    if fraction.is_none() && exponent.is_none() {
        return number.parse::<i64>().is_err() && number.parse::<u64>().is_err();
    }
    let fraction = fraction.unwrap_or_default();
    let leading = whole.bytes().chain(fraction.bytes()).take_while(|byte| *byte == b'0').count();
    let digits = whole.len() + fraction.len() - leading;
    // An exponent that is no number of its own is far beyond the limit.
    let power = exponent.map_or(Some(0), |exponent| exponent.parse::<i64>().ok());
    let power = power.and_then(|power| power.checked_sub(i64::try_from(fraction.len()).ok()?));
    digits > EXACT_DIGITS || power.is_none_or(|power| power.unsigned_abs() > EXACT_POWER.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_numbers_when_kept_then_those_that_would_lose_digits_are_texts_and_nothing_else_is_changed() {
        for (json, expected) in [
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("18446744073709551616", "\"18446744073709551616\""),
            ("[-9223372036854775809]", "[\"-9223372036854775809\"]"),
            ("{\"a\": 0.1, \"b\": 12345678901234.5}", "{\"a\": 0.1, \"b\": 12345678901234.5}"),
            ("[1234567890123456.78 , 1]", "[\"1234567890123456.78\" , 1]"),
            ("[1e400,1E-400,1.5e3]", "[\"1e400\",\"1E-400\",1.5e3]"),
            ("1e99999999999999999999", "\"1e99999999999999999999\""),
            ("0.000000000000000000000000000001", "\"0.000000000000000000000000000001\""),
            // Within strings, behind escapes and beside other alphabets.
            (
                "{\"18446744073709551616\":\"\\\"18446744073709551616\"}",
                "{\"18446744073709551616\":\"\\\"18446744073709551616\"}",
            ),
            ("{\"ä\\\\\":18446744073709551616,\"ö\":\"ü\"}", "{\"ä\\\\\":\"18446744073709551616\",\"ö\":\"ü\"}"),
            // No JSON.
            ("{18446744073709551616 : 1}", "{18446744073709551616 : 1}"),
            ("018446744073709551616", "018446744073709551616"),
            ("1.2.34567890123456789012", "1.2.34567890123456789012"),
            ("--18446744073709551616", "--18446744073709551616"),
            ("1e", "1e"),
            ("\"18446744073709551616", "\"18446744073709551616"),
            ("\"\\", "\"\\"),
            ("", ""),
        ] {
            assert_eq!(kept(json), expected, "{json}");
        }
    }
}
