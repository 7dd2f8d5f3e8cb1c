//! Arithmetic with arbitrary precision and units, by `fend-core`.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use riverrun_schemas::agent::ToolEffect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Tool, ToolContext, ToolError, ToolManifest, parse, schema_of};

/// Longest expression, in bytes.
const MAX_EXPRESSION: usize = 1_000;
/// Longest time for one expression: `9^9^9^9` must not hold a worker.
const MAX_TIME: Duration = Duration::from_secs(2);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The expression to calculate, with numbers and + - * / ^ ( ); percentages as "p% of x"
    #[schemars(length(max = 200))]
    expression: String,
}

pub(super) struct Calculator;

struct Deadline(Instant);

impl Deadline {
    fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }
}

impl fend_core::Interrupt for Deadline {
    fn should_interrupt(&self) -> bool {
        self.is_over()
    }
}

/// What an expression comes to.
#[derive(Debug, PartialEq, Eq)]
struct Calculated {
    value: String,
    /// The value is rounded.
    approximate: bool,
}

/// To what a value is rounded.
#[derive(Debug, Clone, Copy)]
enum Digits {
    /// To so many behind the point.
    Places(usize),
    /// To so many in all.
    Significant(usize),
    /// To 15 in all, or to 10 behind the point where those are more.
    Usual,
}

/// Digits beyond those shown that a value is asked for: the library loses the zeros before the place that it rounds at, so that the
/// rounding is done here.
const SPARE_DIGITS: usize = 40;
/// Most digits that an expression may ask for.
const MAX_DIGITS: usize = 1_000;

fn evaluate(expression: &str) -> Result<Calculated, ToolError> {
    if expression.len() > MAX_EXPRESSION {
        return Err(ToolError::Arguments(format!(
            "expression has {} bytes, at most {MAX_EXPRESSION} are read",
            expression.len()
        )));
    }
    // The library takes orders there, such as not to say that a value is rounded.
    if expression.trim_start().strip_prefix('@').is_some_and(|rest| rest.starts_with(char::is_alphabetic)) {
        return Err(ToolError::Arguments(format!("{expression:?} begins with an order; write the expression alone")));
    }
    let text = with_whole_percentages(expression)?;
    let deadline = Deadline(Instant::now() + MAX_TIME);
    let failed = |error: String| ToolError::Failed(format!("{expression:?} can't be calculated: {error}"));
    let run = |text: &str| match run(text, &deadline) {
        Ok(value) if value.is_empty() => Err(ToolError::Failed(format!("{expression:?} has no value"))),
        Ok(value) => Ok(value),
        Err(_) if deadline.is_over() => Err(failed(format!(
            "it took more than {} s, which is the limit; calculate with smaller numbers",
            MAX_TIME.as_secs()
        ))),
        Err(error) => Err(failed(error)),
    };
    let (inner, asked) = asked_digits(&text);
    let first = run(inner)?;
    let Some(short) = first.strip_prefix("approx. ") else {
        let Some(digits) = asked else { return Ok(Calculated { value: first, approximate: false }) };
        return match rounded(&first, digits) {
            Some((value, approximate)) => Ok(Calculated { value, approximate }),
            // No decimal number: the library knows what to do with it.
            None => run(&text).map(Calculated::read),
        };
    };
    if asked.is_none() && rounds_itself(inner) {
        return Ok(Calculated::read(first));
    }
    let digits = asked.unwrap_or(Digits::Usual);
    let whole = short.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
    let wanted = match digits {
        Digits::Places(most) | Digits::Significant(most) => most,
        Digits::Usual => 0,
    };
    let precise = match run(&format!("({inner}) to {} sf", whole + wanted + SPARE_DIGITS)) {
        Ok(precise) => precise,
        Err(error) if deadline.is_over() => return Err(error),
        // What has no digits to ask for stays as it is.
        Err(_) => return Ok(Calculated::read(first)),
    };
    let precise = precise.strip_prefix("approx. ").unwrap_or(&precise);
    Ok(match rounded(precise, digits) {
        Some((value, _)) => Calculated { value, approximate: true },
        None => Calculated::read(first),
    })
}

impl Calculated {
    /// From what the library shows.
    fn read(shown: String) -> Self {
        match shown.strip_prefix("approx. ") {
            Some(value) => Calculated { value: value.to_owned(), approximate: true },
            None => Calculated { value: shown, approximate: false },
        }
    }
}

fn run(expression: &str, deadline: &Deadline) -> Result<String, String> {
    let mut context = fend_core::Context::new();
    let result = fend_core::evaluate_with_interrupt(expression, &mut context, deadline)?;
    Ok(result.get_main_result().trim().to_owned())
}

/// Puts each percentage in parentheses that an operator or the end follows: the library reads `50%^2` as 50 times the square of a
/// hundredth. Refuses numbers that it would read as others than they are meant.
fn with_whole_percentages(expression: &str) -> Result<String, ToolError> {
    let bytes = expression.as_bytes();
    let mut text = String::with_capacity(expression.len() + 16);
    let (mut copied, mut at) = (0, 0);
    while at < bytes.len() {
        let inside_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let point = bytes[at] == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if inside_word || !(bytes[at].is_ascii_digit() || point) {
            at += 1;
            continue;
        }
        let end = number_end(bytes, at);
        check_separators(&expression[at..end], expression)?;
        let percent = skip_spaces(bytes, end);
        if bytes.get(percent) == Some(&b'%')
            && bytes.get(skip_spaces(bytes, percent + 1)).is_none_or(|next| b"+-*/^);".contains(next))
        {
            text.push_str(&expression[copied..at]);
            text.push('(');
            text.push_str(&expression[at..=percent]);
            text.push(')');
            copied = percent + 1;
            at = copied;
        } else {
            at = end;
        }
    }
    text.push_str(&expression[copied..]);
    Ok(text)
}

fn skip_spaces(bytes: &[u8], from: usize) -> usize {
    from + bytes.iter().skip(from).take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Behind the number that begins at `from`, its exponent included.
fn number_end(bytes: &[u8], from: usize) -> usize {
    let digits = |from: usize| from + bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let part = |byte: &&u8| byte.is_ascii_digit() || matches!(**byte, b'.' | b',' | b'_');
    let mut end = from + bytes.iter().skip(from).take_while(part).count();
    while end > from + 1 && !bytes[end - 1].is_ascii_digit() {
        end -= 1;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            return exponent;
        }
    }
    end
}

/// Commas part groups of three digits before the point, or the number is refused: `1.000,50` and `1,5` are meant otherwise.
fn check_separators(number: &str, expression: &str) -> Result<(), ToolError> {
    if !number.contains(',') {
        return Ok(());
    }
    let digits = number.split(['e', 'E']).next().unwrap_or(number);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    let grouped = (1..=3).contains(&first.len()) && !first.starts_with('0') && groups.all(|group| group.len() == 3);
    if grouped && !fraction.contains(',') {
        return Ok(());
    }
    Err(ToolError::Arguments(format!(
        "the number {number:?} in {expression:?} may mean two things: write it with a decimal point and without commas, as 1000.5"
    )))
}

/// The rounding that an expression ends with, and what stands before it.
fn asked_digits(text: &str) -> (&str, Option<Digits>) {
    let asked = || {
        let end = text.trim_end();
        let (before, places) = match end.strip_suffix("dp") {
            Some(before) => (before.trim_end(), true),
            None => (end.strip_suffix("sf")?.trim_end(), false),
        };
        let head = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let count: usize = before[head.len()..].parse().ok()?;
        let inner = [" to", " as", " in"].iter().find_map(|word| head.trim_end().strip_suffix(*word))?;
        match (places, count) {
            (true, 0..=MAX_DIGITS) => Some((inner, Digits::Places(count))),
            (false, 1..=MAX_DIGITS) => Some((inner, Digits::Significant(count))),
            _ => None,
        }
    };
    match asked() {
        Some((inner, digits)) => (inner, Some(digits)),
        None => (text, None),
    }
}

/// An expression has a rounding of its own within it.
fn rounds_itself(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word == "dp" || word == "sf")
}

/// A decimal number, with what stands behind it, and whether rounding has changed it; `None` when it is none, or more than one.
fn rounded(shown: &str, digits: Digits) -> Option<(String, bool)> {
    let (sign, rest) = shown.strip_prefix('-').map_or(("", shown), |rest| ("-", rest));
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, unit) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || unit.starts_with(['(', '/']) || unit.contains('.') {
        return None;
    }
    let mut figures: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let mut point = whole.len();
    let first = figures.iter().position(|figure| *figure != b'0').unwrap_or(point);
    let keep = match digits {
        Digits::Places(most) => point + most,
        Digits::Significant(most) => first + most,
        Digits::Usual => (first + 15).max(point + 10),
    };
    let mut changed = false;
    if keep < figures.len() {
        let up = figures[keep] >= b'5';
        changed = figures[keep..].iter().any(|figure| *figure != b'0');
        figures.truncate(keep);
        if up {
            match figures.iter().rposition(|figure| *figure != b'9') {
                Some(at) => {
                    figures[at] += 1;
                    figures[at + 1..].fill(b'0');
                }
                None => {
                    figures.fill(b'0');
                    figures.insert(0, b'1');
                    point += 1;
                }
            }
        }
        while figures.len() < point {
            figures.push(b'0');
        }
    }
    let sign = if figures.iter().all(|figure| *figure == b'0') { "" } else { sign };
    let figures: String = figures.into_iter().map(char::from).collect();
    let (whole, fraction) = figures.split_at(point);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    Some((format!("{sign}{whole}{dot}{fraction}{unit}"), changed))
}

#[async_trait]
impl Tool for Calculator {
    fn manifest(&self) -> ToolManifest {
        ToolManifest::builtin(
            "calculator",
            "Calculates an arithmetic expression: exactly, or to at least 15 digits where it says that the value is approximate. \
             Use it for every calculation.",
            schema_of::<Arguments>(),
            ToolEffect::None,
        )
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { expression } = parse(arguments)?;
        tokio::task::spawn_blocking(move || {
            evaluate(&expression).map(|Calculated { value, approximate }| {
                let mut result = json!({ "expression": expression, "value": value });
                if approximate {
                    result["approximate"] = json!(true);
                }
                result
            })
        })
        .await
        .unwrap_or_else(|error| Err(ToolError::Failed(format!("the calculation broke off: {error}"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_calculated() {
        for (expression, value) in [
            ("6*7", "42"),
            ("(3+4)*12.5", "87.5"),
            ("2^100", "1267650600228229401496703205376"),
            ("1/8", "0.125"),
            ("10 % 3", "1"),
            ("5%4", "1"),
            ("50%^2", "25%"),
            ("3%^2*100", "9%"),
            ("10%/5%", "2"),
            ("10 % / 5 %", "2"),
            ("20% of 50", "10"),
            ("1 + 5%", "1.05"),
            ("1,000.50 * 2", "2001"),
        ] {
            let exact = Calculated { value: value.to_owned(), approximate: false };
            assert_eq!(evaluate(expression).unwrap(), exact, "{expression}");
        }
    }

    #[test]
    fn given_values_with_more_digits_than_are_shown_when_they_are_calculated_then_they_have_fifteen_and_say_so() {
        for (expression, value) in [
            ("1/3", "0.333333333333333"),
            ("2/3", "0.666666666666667"),
            ("100000000/3", "33333333.3333333333"),
            ("1/30000000000", "0.0000000000333333333333333"),
            ("1/3e12", "0.000000000000333333333333333"),
            ("2/3*1e-11", "0.00000000000666666666666667"),
            ("1/7*1e-9", "0.000000000142857142857143"),
            ("-1/7*1e-9", "-0.000000000142857142857143"),
        ] {
            let rounded = Calculated { value: value.to_owned(), approximate: true };
            assert_eq!(evaluate(expression).unwrap(), rounded, "{expression}");
        }
        for (expression, begins) in [("exp(-30)", "0.0000000000000935762296884"), ("50%^0.5", "0.7071067811865")] {
            let calculated = evaluate(expression).unwrap();
            assert!(calculated.approximate && calculated.value.starts_with(begins), "{expression}: {calculated:?}");
        }
    }

    #[test]
    fn given_an_expression_that_asks_for_digits_when_zeros_stand_before_the_last_then_it_is_rounded_there() {
        for (expression, value) in [
            ("1.05 to 1 dp", "1.1"),
            ("2/3 to 2 dp", "0.67"),
            ("9.996 as 2dp", "10"),
            ("1234567 to 3 sf", "1230000"),
            ("1/3 to 4 sf", "0.3333"),
        ] {
            let rounded = Calculated { value: value.to_owned(), approximate: true };
            assert_eq!(evaluate(expression).unwrap(), rounded, "{expression}");
        }
    }

    #[test]
    fn given_numbers_that_may_mean_two_things_when_they_are_read_then_they_are_refused_by_name() {
        for number in ["1.000,50", "1,5", "1,00,000", "0,500", "1.5,5"] {
            let error = evaluate(&format!("2 * {number}")).unwrap_err();
            assert!(matches!(&error, ToolError::Arguments(why) if why.contains(&format!("{number:?}"))), "{error}");
        }
    }

    #[test]
    fn given_a_calculation_without_an_end_when_it_is_stopped_then_the_error_names_the_limit() {
        let error = evaluate("9^9^9").unwrap_err().to_string();
        assert!(error.contains("more than 2 s"), "{error}");
    }

    #[test]
    fn what_is_no_expression_or_has_no_end_is_an_error_that_quotes_it() {
        for expression in ["6*", "import os", "9^9^9^9", "1/0", "", "@exec(\"ls\")", "@noapprox 1/3"] {
            let error = evaluate(expression).unwrap_err().to_string();
            assert!(error.contains(&format!("{expression:?}")), "{error}");
        }
        assert!(matches!(evaluate(&"1+".repeat(1_000)), Err(ToolError::Arguments(_))));
    }
}
