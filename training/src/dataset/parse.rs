//! From the bytes of a JSONL file to examples, or to the lines that are none.

use std::collections::HashSet;

use serde_json::Value;

use super::pairs::Pairs;
use super::{Dataset, DatasetError, Example, Format, MAX_TOLD, Remark, Speaker, Turn, not_json};

/// Bytes of a file at most.
pub const MAX_BYTES: usize = 256 << 20;
/// Bytes of a line at most.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Examples of a dataset at most.
pub const MAX_EXAMPLES: usize = 1_000_000;
/// Messages of a conversation at most.
const MAX_MESSAGES: usize = 500;

/// Unused fields of a line that are named.
const MAX_NAMES: usize = 8;

const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Default)]
struct Findings {
    errors: Vec<Remark>,
    total: usize,
    warnings: Vec<Remark>,
}

impl Findings {
    fn error(&mut self, remark: Remark) {
        self.total += 1;
        if self.errors.len() < MAX_TOLD {
            self.errors.push(remark);
        }
    }

    fn warn(&mut self, line: usize, reason: impl Into<String>) {
        if self.warnings.len() < MAX_TOLD {
            self.warnings.push(Remark::new(line, None, reason));
        }
    }
}

/// A file without its byte order mark.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BOM).unwrap_or(bytes)
}

/// The lines of a file, counted from 1, without their ends and without a byte order mark.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = without_mark(bytes);
    (1..).zip(text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)))
}

/// Reads a file. Either every line that is not blank is an example, or the answer is what is wrong with those that are not.
pub fn read(bytes: &[u8], format: Format) -> Result<Dataset, DatasetError> {
    read_beside(bytes, format, None)
}

/// Reads a file whose lines may have a field that stands beside the example.
pub(super) fn read_beside(bytes: &[u8], format: Format, beside: Option<&str>) -> Result<Dataset, DatasetError> {
    if bytes.len() > MAX_BYTES {
        return Err(DatasetError::one(1, format!("the file has {} bytes, more than {MAX_BYTES}", bytes.len())));
    }
    let mut findings = Findings::default();
    let mut dataset = Dataset { format, examples: Vec::new(), duplicates: 0, warnings: Vec::new() };
    let mut seen: HashSet<Example> = HashSet::new();
    if bytes.starts_with(BOM) {
        findings.warn(1, "begins with a byte order mark, which is left out");
    }
    for (number, line) in lines(bytes) {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match example(line, format) {
            Err((field, reason)) => findings.error(Remark::new(number, field, reason)),
            Ok((example, mut others)) => {
                others.retain(|name| Some(name.as_str()) != beside);
                if !others.is_empty() {
                    findings.warn(number, unused(&others));
                }
                if !seen.insert(example.clone()) {
                    dataset.duplicates += 1;
                    findings.warn(number, "is there already and left out");
                } else if dataset.examples.len() < MAX_EXAMPLES {
                    dataset.examples.push((number, example));
                } else {
                    findings.error(Remark::new(
                        number,
                        None,
                        format!("is beyond the limit of {MAX_EXAMPLES} examples"),
                    ));
                    break;
                }
            }
        }
    }
    if findings.total == 0 && dataset.examples.is_empty() {
        return Err(DatasetError::one(1, "the file holds no examples"));
    }
    if dataset.examples.is_empty()
        && let Some((line, other)) = other_format(bytes, format)
    {
        let named = |format: Format| format!("{} ({})", format.as_str(), format.fields().join(", "));
        let reason = format!(
            "has the fields of the format {}, as the lines behind it, and not those of {}: hand the file in with --format {}",
            named(other),
            named(format),
            other.as_str()
        );
        return Err(DatasetError { errors: vec![Remark::new(line, None, reason)], total: findings.total });
    }
    if findings.total > 0 {
        return Err(DatasetError { errors: findings.errors, total: findings.total });
    }
    dataset.warnings = findings.warnings;
    Ok(dataset)
}

/// The format whose fields the first lines have, where that is another one than was named, and the first of these lines. To be told once
/// helps more than to be told of every line what it has not.
fn other_format(bytes: &[u8], named: Format) -> Option<(usize, Format)> {
    let written = lines(bytes).filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace)).take(MAX_TOLD);
    let read = |(number, line): (usize, &[u8])| Some((number, serde_json::from_slice::<Pairs>(line).ok()?));
    let first: Vec<(usize, Pairs)> = written.map(read).collect::<Option<_>>()?;
    let (line, _) = first.first()?;
    let has_all = |format: Format, pairs: &Pairs| format.fields().iter().all(|field| pairs.get(field).is_some());
    let is_of = |format: Format| first.iter().all(|(_, pairs)| has_all(format, pairs));
    let other = Format::ALL.into_iter().find(|format| *format != named && is_of(*format))?;
    (!is_of(named)).then_some((*line, other))
}

fn unused(names: &[String]) -> String {
    let first = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => format!("fields that are not used: {first}"),
        more => format!("fields that are not used: {first} and {more} more"),
    }
}

type Fault = (Option<&'static str>, String);

/// The example of a line, and the names of fields that mean nothing here.
fn example(line: &[u8], format: Format) -> Result<(Example, Vec<String>), Fault> {
    let whole = |reason: String| (None, reason);
    if line.len() > MAX_LINE_BYTES {
        return Err(whole(format!("has {} bytes, more than {MAX_LINE_BYTES}", line.len())));
    }
    let text = std::str::from_utf8(line)
        .map_err(|error| whole(format!("is not UTF-8 at byte {}", error.valid_up_to() + 1)))?;
    if text.contains('\0') {
        return Err(whole("holds a NUL character".to_owned()));
    }
    let pairs: Pairs = serde_json::from_str(text).map_err(|error| {
        // In a text it would be written \r, so that it can only stand between things.
        let ends = if text.contains('\r') { "; a CR alone ends no line, LF or CRLF does" } else { "" };
        whole(format!("{}{ends}", not_json(&error)))
    })?;
    if let Some(key) = pairs.repeated() {
        return Err(whole(format!("has the key {key:?} twice")));
    }
    let example = match format {
        Format::Sft => {
            let (prompt, completion) = (words(&pairs, "prompt")?, words(&pairs, "completion")?);
            Example::Sft { prompt, completion }
        }
        Format::Dpo => {
            let prompt = words(&pairs, "prompt")?;
            let (chosen, rejected) = (words(&pairs, "chosen")?, words(&pairs, "rejected")?);
            if chosen == rejected {
                return Err((Some("rejected"), "is the same as chosen, so there is nothing to prefer".to_owned()));
            }
            Example::Dpo { prompt, chosen, rejected }
        }
        Format::Chat => Example::Chat { messages: messages(&pairs)? },
    };
    let fields = format.fields();
    let names = pairs.all.iter().map(|(name, _)| name.as_str());
    let others = names.filter(|name| !fields.contains(name)).map(|name| name.chars().take(40).collect()).collect();
    Ok((example, others))
}

fn words(pairs: &Pairs, field: &'static str) -> Result<String, Fault> {
    let fault = |reason: &str| (Some(field), reason.to_owned());
    match pairs.get(field) {
        None => Err(fault("is missing")),
        Some(Value::String(text)) if text.contains('\0') => Err(fault("holds a NUL character")),
        Some(Value::String(text)) if text.trim().is_empty() => Err(fault("is empty")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(fault(&format!("is {}, not a text", kind(other)))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn messages(pairs: &Pairs) -> Result<Vec<Turn>, Fault> {
    const FIELD: &str = "messages";
    let fault = |reason: String| (Some(FIELD), reason);
    let list = match pairs.get(FIELD) {
        None => return Err(fault("is missing".to_owned())),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(fault(format!("is {}, not a list", kind(other)))),
    };
    if list.len() > MAX_MESSAGES {
        return Err(fault(format!("has {} messages, more than {MAX_MESSAGES}", list.len())));
    }
    let turns: Vec<Turn> = (1..).zip(list).map(|(n, value)| turn(n, value).map_err(fault)).collect::<Result<_, _>>()?;
    if let Some(at) = turns.iter().skip(1).position(|turn| turn.role == Speaker::System) {
        return Err(fault(format!("message {} is of the system, which only speaks first", at + 2)));
    }
    match turns.last().map(|turn| turn.role) {
        Some(Speaker::Assistant) => Ok(turns),
        Some(_) => Err(fault("does not end with a message of the assistant".to_owned())),
        None => Err(fault("is empty".to_owned())),
    }
}

fn turn(number: usize, value: &Value) -> Result<Turn, String> {
    let role = match value.get("role").and_then(Value::as_str) {
        Some("system") => Speaker::System,
        Some("user") => Speaker::User,
        Some("assistant") => Speaker::Assistant,
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            return Err(format!("message {number} has the role {other:?}, not system, user or assistant"));
        }
        None => return Err(format!("message {number} has no role")),
    };
    match value.get("content") {
        Some(Value::String(text)) if text.contains('\0') => Err(format!("message {number} holds a NUL character")),
        Some(Value::String(text)) if text.trim().is_empty() => Err(format!("message {number} is empty")),
        Some(Value::String(text)) => Ok(Turn { role, content: text.clone() }),
        Some(other) => Err(format!("the content of message {number} is {}, not a text", kind(other))),
        None => Err(format!("message {number} has no content")),
    }
}
