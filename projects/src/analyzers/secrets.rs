//! Secrets and personal data in the tree. What was found is never quoted.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::limits::MAX_SCANNED;
use crate::copy::Files;
use crate::finding::{Finding, Severity};
use crate::installed::is_metadata;
use crate::text::lines_of;

#[cfg(test)]
mod tests;

/// Its name; what it finds quotes no secret.
pub(crate) const TOOL: &str = "secrets";
/// So many different ones in a file are a list of people.
const MANY: usize = 5;

/// Beginnings of keys that say whose they are, with how many characters follow at least.
const KEYS: &[(&str, usize, &str)] = &[
    ("AKIA", 16, "an access key of AWS"),
    ("ASIA", 16, "an access key of AWS"),
    ("ghp_", 36, "a token of GitHub"),
    ("gho_", 36, "a token of GitHub"),
    ("ghs_", 36, "a token of GitHub"),
    ("ghu_", 36, "a token of GitHub"),
    ("github_pat_", 40, "a token of GitHub"),
    ("glpat-", 20, "a token of GitLab"),
    ("xoxb-", 20, "a token of Slack"),
    ("xoxp-", 20, "a token of Slack"),
    ("sk_live_", 16, "a key of Stripe"),
    ("rk_live_", 16, "a key of Stripe"),
    ("sk-proj-", 24, "a key of OpenAI"),
    ("sk-ant-", 24, "a key of Anthropic"),
    ("AIza", 35, "a key of Google"),
    ("hf_", 34, "a token of Hugging Face"),
    ("npm_", 36, "a token of npm"),
    ("pypi-AgEIcHlwaS5vcmc", 50, "a token of PyPI"),
];

/// `SECRET_KEY` of Django and `aws_secret_access_key` are among them.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "secret_key",
    "secretkey",
    "api_key",
    "apikey",
    "access_key",
    "accesskey",
    "encryption_key",
    "signing_key",
    "access_token",
    "auth_token",
    "bearer_token",
    "refresh_token",
    "private_key",
];
const PLACEHOLDERS: &[&str] =
    &["changeme", "example", "your", "xxxx", "placeholder", "dummy", "test", "<", "${", "{{", "...", "***"];

pub(super) fn analyze(files: &Files) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, content) in files.iter().filter(|(_, content)| content.len() <= MAX_SCANNED) {
        if !is_read(path, content) {
            continue;
        }
        // What is text, as nearly all is, is known for it sooner so.
        let text = std::str::from_utf8(content).map_or_else(|_| String::from_utf8_lossy(content), Cow::Borrowed);
        // A mark at the beginning is no character of the first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let is_settings = is_settings(path);
        for (number, line) in candidates(path, text) {
            scan(path, (number, line), is_settings, &mut found);
        }
        people(path, text, &mut found);
    }
    found
}

/// Tells in one go where something stands without which no rule speaks of a line: a beginning or head of a key, a name of a secret or
/// an address. `None` is never: they are few and short.
static SIGNS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let keys = KEYS.iter().map(|(prefix, ..)| *prefix);
    let signs = keys.chain(NAMES.iter().copied()).chain([KEY_HEAD_END, "://"]);
    AhoCorasick::builder().ascii_case_insensitive(true).build(signs).ok()
});

/// The lines of which a rule may speak, with their numbers.
fn candidates<'t>(path: &str, text: &'t str) -> Vec<(usize, &'t str)> {
    let all = || lines_of(path, text).into_iter().enumerate().map(|(index, line)| (index + 1, line));
    let Some(signs) = SIGNS.as_ref() else { return all().collect() };
    // Where a return may end a line, or not, each is looked at.
    if text.contains('\r') {
        return if signs.is_match(text) { all().collect() } else { Vec::new() };
    }
    let mut found = Vec::new();
    // What was looked at ends before the line with this number.
    let (mut at, mut number) = (0, 1);
    while let Some(sign) = signs.find(&text[at..]) {
        let sign = at + sign.start();
        let begin = text[at..sign].rfind('\n').map_or(at, |end| at + end + 1);
        let end = text[sign..].find('\n').map_or(text.len(), |end| sign + end);
        number += text[at..begin].matches('\n').count();
        found.push((number, &text[begin..end]));
        if end == text.len() {
            break;
        }
        (at, number) = (end + 1, number + 1);
    }
    found
}

/// Texts, but for those of installed packages.
pub(super) fn is_read(path: &str, content: &[u8]) -> bool {
    !content.contains(&0) && !is_metadata(path)
}

/// The secrets that stand in the text of a file; a private key without its head and its end.
pub(crate) fn secrets_in<'t>(path: &str, text: &'t str) -> Vec<&'t str> {
    let is_settings = is_settings(path);
    let mut found = private_keys(text);
    for line in lines_of(path, text) {
        found.extend(keys(line).map(|(at, length, _)| &line[at..at + length]));
        found.extend(passwords(line, is_settings));
    }
    found
}

fn scan(path: &str, (number, line): (usize, &str), is_settings: bool, found: &mut Vec<Finding>) {
    let fix = "take it out, give out a new one, and read it from the environment";
    if is_key_head(line) {
        found.push(Finding::new((TOOL, "private-key", Severity::Critical), (path, number, 1), "a private key", fix));
    }
    if let Some((at, _, what)) = keys(line).next() {
        let rule = (TOOL, "key", Severity::Critical);
        found.push(Finding::new(
            rule,
            (path, number, line[..at].chars().count() + 1),
            format!("{what} in line {number}"),
            fix,
        ));
    } else if !passwords(line, is_settings).is_empty() {
        let rule = (TOOL, "literal-password", Severity::High);
        found.push(Finding::new(rule, (path, number, 1), format!("a password or key in line {number}"), fix));
    }
}

/// Tells in one go of a line that it has no beginning of a key, as nearly none has. `None` is never: they are few and short.
static BEGINNINGS: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(KEYS.iter().map(|(prefix, ..)| prefix)).ok());

/// Keys of known services in a line: where, how long, and whose.
fn keys(line: &str) -> impl Iterator<Item = (usize, usize, &'static str)> {
    let looked_for = match BEGINNINGS.as_ref().is_none_or(|beginnings| beginnings.is_match(line)) {
        true => KEYS,
        false => &[],
    };
    looked_for.iter().flat_map(move |(prefix, least, what)| {
        let mut end = 0;
        line.match_indices(*prefix).filter_map(move |(at, _)| {
            // What stands within a word that was counted is a part of it.
            if at < end || line[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
                return None;
            }
            let rest = line[at + prefix.len()..].bytes();
            let count = rest.take_while(|c| c.is_ascii_alphanumeric() || matches!(*c, b'_' | b'-')).count();
            end = at + prefix.len() + count;
            (count >= *least).then_some((at, prefix.len() + count, *what))
        })
    })
}

/// Passwords in a line of settings, or of anything else.
fn passwords(line: &str, is_settings: bool) -> Vec<&str> {
    let mut found: Vec<&str> = if is_settings { setting(line).into_iter().collect() } else { literals(line) };
    let known: HashSet<&str> = found.iter().copied().collect();
    found.extend(in_addresses(line).filter(|one| !known.contains(one)));
    found
}

/// `postgres://user:password@host`: what stands there between the last two of these signs. One that is the name itself is a default.
fn in_addresses(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("://").filter_map(|(at, sign)| {
        let rest = &line[at + sign.len()..];
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '`' | '<' | '>' | ',' | ')'));
        let (user, _) = rest[..end.unwrap_or(rest.len())].rsplit_once('@')?;
        let (name, password) = user.split_once(':')?;
        // What is put together holds a name of a variable.
        let is_written = !password.contains(['{', '}', '$', '%', '(', '*']) && password != name;
        (is_written && is_value(password)).then_some(password)
    })
}

/// How far before a sign the name of a value is looked for, in bytes: types that are longer are none of a text.
const MAX_NAMED: usize = 100;
/// Functions that set a variable of the environment.
const SETTERS: [&str; 3] = ["setdefault", "putenv", "setenv"];
/// Statements whose `:` says no type of what stands before it.
const STATEMENTS: [&str; 12] =
    ["if", "elif", "else", "while", "for", "with", "try", "except", "finally", "case", "default", "class"];

/// `password = "…"` with something that is no placeholder, whatever type stands between them, and
/// `environ.setdefault("PASSWORD", "…")`.
fn literals(line: &str) -> Vec<&str> {
    let is_named = |at: usize, sign: &str| match sign {
        "=" => is_assigned(&line[..at]),
        "," => is_set(&line[..at]),
        _ => is_secret(&line[..at]),
    };
    let signs = line.match_indices(['=', ':', ',']).filter(|&(at, sign)| is_named(at, sign));
    let values = signs.filter_map(|(at, _)| {
        let right = line[at + 1..].trim_start_matches(['=', ' ']);
        let quote = right.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        right[1..].split(quote).next().filter(|value| is_value(value))
    });
    values.collect()
}

/// Whether what stands before `=` names a secret.
fn is_assigned(left: &str) -> bool {
    if let Some((name, kind)) = annotated(left) {
        return is_secret(name) || (is_secret(left) && !is_class(kind));
    }
    // `var Password string` of Go.
    let typed = left.trim_end().strip_suffix("string").filter(|name| name.ends_with([' ', '\t']));
    is_secret(typed.unwrap_or(left))
}

/// A name and the type that is said of it: `password: str`, `password?: string`, `const PASSWORD: &str`.
fn annotated(left: &str) -> Option<(&str, &str)> {
    let head = left[..left.floor_char_boundary(MAX_NAMED)].trim_start();
    let first = head.split(|c: char| !c.is_alphanumeric()).next();
    if first.is_some_and(|word| STATEMENTS.contains(&word)) {
        return None;
    }
    let bytes = left.as_bytes();
    let begin = left.len().saturating_sub(MAX_NAMED);
    let (mut at, mut depth) = (left.len(), 0_usize);
    while at > begin {
        at -= 1;
        match bytes[at] {
            b']' | b'>' => depth += 1,
            b'[' | b'<' => depth = depth.checked_sub(1)?,
            // Within a path of Rust.
            b':' if at > begin && bytes[at - 1] == b':' => at -= 1,
            b':' if depth == 0 => {
                let name = left[..at].trim_end().trim_end_matches(['?', '!']);
                let kind = left[at + 1..].trim();
                let is_name = name.ends_with(|c: char| c.is_alphanumeric() || c == '_');
                return (is_name && !kind.is_empty()).then_some((name, kind));
            }
            b',' if depth > 0 => {}
            b'_' | b'.' | b'&' | b'\'' | b'|' | b'?' | b'*' | b' ' | b'\t' => {}
            byte if byte.is_ascii_alphanumeric() => {}
            _ => return None,
        }
    }
    None
}

/// Whether what stands behind a `:` ends with a name as classes have it: `Password`, and not `password` or `PASSWORD`.
fn is_class(kind: &str) -> bool {
    let last = kind.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
    last.starts_with(char::is_uppercase) && last.contains(char::is_lowercase)
}

/// Whether what stands before a comma is the name of a secret that a function sets.
fn is_set(left: &str) -> bool {
    if !left.ends_with(['"', '\'']) || !is_secret(left) {
        return false;
    }
    let near = &left[left.floor_char_boundary(left.len().saturating_sub(MAX_NAMED))..];
    let Some((function, _)) = near.rsplit_once('(') else { return false };
    let function = function.trim_end().to_lowercase();
    SETTERS.iter().any(|name| function.ends_with(name))
}

const KEY_HEAD: &str = "-----BEGIN ";
const KEY_HEAD_END: &str = "PRIVATE KEY-----";
const KEY_END: &str = "-----END";
/// Lines of a private key that stand apart, as texts in quotes, have so many characters at least.
const MIN_KEY_LINE: usize = 32;

/// How far before its end the head of a key begins, in bytes, and how long a key may be: one of RSA with 16,384 bits has 13,000.
const MAX_HEAD: usize = 100;
const MAX_KEY: usize = 32 << 10;

fn is_key_head(line: &str) -> bool {
    line.contains(KEY_HEAD) && line.contains(KEY_HEAD_END)
}

/// What stands between the heads of private keys and their ends.
fn private_keys(text: &str) -> Vec<&str> {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let mut found = Vec::new();
    let mut ends = text.match_indices(KEY_END).map(|(end, _)| end).peekable();
    // Up to where parts were taken already: many heads may stand before one end.
    let mut done = 0;
    for (at, _) in text.match_indices(KEY_HEAD_END) {
        let near = &text[text.floor_char_boundary(at.saturating_sub(MAX_HEAD))..at];
        if !near.rsplit('\n').next().is_some_and(|line| line.contains(KEY_HEAD)) {
            continue;
        }
        let begin = at + KEY_HEAD_END.len();
        let rest = &text[begin..];
        let rest = &rest[..rest.floor_char_boundary(MAX_KEY)];
        // Line ends may be written as in a text in quotes.
        let whole = rest.find(|c: char| !(is_base64(c) || c.is_whitespace() || c == '\\')).unwrap_or(rest.len());
        let body = rest[..whole].trim();
        if body.len() >= MIN_KEY_LINE {
            found.push(body);
            continue;
        }
        if begin < done {
            continue;
        }
        while ends.next_if(|end| *end < begin).is_some() {}
        let Some(end) = ends.peek().copied().filter(|end| *end + KEY_END.len() <= begin + rest.len()) else { continue };
        found.extend(text[begin..end].split(|c: char| !is_base64(c)).filter(|part| part.len() >= MIN_KEY_LINE));
        done = end;
    }
    found
}

/// `.env`, `.env.production`, `prod.env`: what they hold are texts without quotes.
fn is_settings(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_template = ["example", "sample", "template", "dist"].iter().any(|word| name.ends_with(word));
    (name == ".env" || name.starts_with(".env.") || name.ends_with(".env")) && !is_template
}

/// `PASSWORD=…`, with `export` before it or quotes around it or without.
fn setting(line: &str) -> Option<&str> {
    let line = line.trim();
    let (left, right) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
    let value = right.trim().trim_matches(['"', '\'']);
    (is_secret(left) && is_value(value)).then_some(value)
}

/// Whether what stands before a value ends with a name of a secret, whatever its case; `x["password"]` ends with its key.
fn is_secret(left: &str) -> bool {
    let left = left.trim_end();
    let left = left.strip_suffix(']').filter(|key| key.ends_with(['"', '\''])).unwrap_or(left);
    let left = left.trim_end_matches(['"', '\'']).as_bytes();
    NAMES.iter().any(|name| {
        let from = left.len().checked_sub(name.len());
        from.is_some_and(|from| left[from..].eq_ignore_ascii_case(name.as_bytes()))
    })
}

fn is_value(value: &str) -> bool {
    let lower = value.to_lowercase();
    // A constant may hold the name of a field.
    let is_name = NAMES.contains(&lower.as_str());
    value.len() >= 8 && !value.contains(' ') && !is_name && !PLACEHOLDERS.iter().any(|word| lower.contains(word))
}

fn people(path: &str, text: &str, found: &mut Vec<Finding>) {
    let is_data = [".csv", ".tsv", ".json", ".jsonl", ".sql"].iter().any(|end| path.to_lowercase().ends_with(end));
    if !is_data {
        return;
    }
    let separators = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | '<' | '>' | '(' | ')');
    let distinct =
        |is_one: fn(&str) -> bool| text.split(separators).filter(|word| is_one(word)).collect::<BTreeSet<&str>>().len();
    let (cards, numbers) = (distinct(is_card), distinct(is_long_number));
    // One of ten numbers passes the check of a card by chance.
    let cards = if cards * 2 >= numbers { cards } else { 0 };
    for (count, what) in [
        (distinct(is_address), "e-mail addresses of people"),
        (distinct(is_account), "numbers of bank accounts"),
        (cards, "numbers of payment cards"),
    ] {
        if count >= MANY {
            let rule = (TOOL, "personal-data", Severity::Medium);
            let message = format!("{count} {what}");
            found.push(Finding::new(rule, (path, 1, 1), message, "keep personal data out of the repository"));
        }
    }
}

fn is_long_number(word: &str) -> bool {
    (13..=19).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number of a payment card: ISO/IEC 7812, with the check of Luhn.
fn is_card(word: &str) -> bool {
    let digit = |(place, byte): (usize, u8)| {
        let digit = u32::from(byte - b'0') * if place % 2 == 1 { 2 } else { 1 };
        if digit > 9 { digit - 9 } else { digit }
    };
    is_long_number(word)
        && word.starts_with(['3', '4', '5', '6'])
        && word.bytes().rev().enumerate().map(digit).sum::<u32>().is_multiple_of(10)
}

/// A number of a bank account: ISO 13616, whose remainder by 97 is 1.
fn is_account(word: &str) -> bool {
    let bytes = word.as_bytes();
    let has_head = bytes.len() >= 15
        && bytes.len() <= 34
        && bytes[..2].iter().all(u8::is_ascii_uppercase)
        && bytes[2..4].iter().all(u8::is_ascii_digit);
    let rest = |remainder: u32, byte: &u8| match byte {
        b'0'..=b'9' => Some((remainder * 10 + u32::from(byte - b'0')) % 97),
        b'A'..=b'Z' => Some((remainder * 100 + u32::from(byte - b'A') + 10) % 97),
        _ => None,
    };
    has_head && bytes[4..].iter().chain(&bytes[..4]).try_fold(0, rest) == Some(1)
}

fn is_address(word: &str) -> bool {
    word.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty() && host.contains('.') && !host.contains('@') && !host.starts_with("example.")
    })
}
