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

/// `password = "…"` with something that is no placeholder.
fn literals(line: &str) -> Vec<&str> {
    let values = line.match_indices(['=', ':']).filter(|(at, _)| is_secret(&line[..*at])).filter_map(|(at, _)| {
        let right = line[at + 1..].trim_start_matches(['=', ' ']);
        let quote = right.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        right[1..].split(quote).next().filter(|value| is_value(value))
    });
    values.collect()
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

/// Whether what stands before a value ends with a name of a secret, whatever its case.
fn is_secret(left: &str) -> bool {
    let left = left.trim_end().trim_end_matches(['"', '\'']).as_bytes();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        let files = Files::from([(path.to_owned(), text.to_owned().into())]);
        analyze(&files).into_iter().map(|one| one.rule).collect()
    }

    #[test]
    fn given_settings_with_and_without_quotes_when_they_are_read_then_passwords_are_found_where_texts_need_none() {
        for (path, line, is_found) in [
            (".env", "DB_PASSWORD=hunter2hunter2", true),
            (".env.production", "export API_KEY='a1b2c3d4e5'", true),
            ("deploy/prod.env", "  SECRET = \"a1b2c3d4e5\"", true),
            (".env", "# DB_PASSWORD=hunter2hunter2", false),
            (".env", "DB_PASSWORD=", false),
            (".env", "DB_PASSWORD=${FROM_VAULT_12}", false),
            (".env", "PASSWORD_FILE=/run/secrets/db", false),
            (".env.example", "DB_PASSWORD=hunter2hunter2", false),
            ("a.py", "password = hunter2hunter2", false),
            ("a.py", "password = 'hunter2hunter2'", true),
            ("a.yml", "password: \"hunter2hunter2\"", true),
            ("a.py", "password = 'your-password'", false),
            ("a.py", "FIELD_OF_ACCESS_TOKEN = 'access_token'", false),
            ("settings.py", "SECRET_KEY = 'k3vq8w2m5z0x'", true),
            ("a.py", "aws_secret_access_key = 'wJalrXUtnFEMI'", true),
            ("a.py", "db = 'postgres://ann:hunter2hunter2@db/x'", true),
            ("compose.yml", "URL: redis://:hunter2hunter2@cache:6379/0", true),
            (".env", "DATABASE_URL=postgres://ann:hunter2hunter2@db/x", true),
            ("a.py", "db = 'postgres://postgres:postgres@localhost/x'", false),
            ("a.py", "db = f'postgres://{user}:{word_of_user}@db/x'", false),
            ("a.sh", "curl https://ann:${PASSWORD_OF_ANN}@host/", false),
            ("a.md", "see https://host:8080/a@b and http://h.example/x", false),
        ] {
            let expected: &[&str] = if is_found { &["literal-password"] } else { &[] };
            assert_eq!(rules(path, line), expected, "{path} {line}");
        }
    }

    #[test]
    fn given_a_file_whose_lines_end_with_returns_when_it_is_read_then_each_secret_stands_in_its_line() {
        let text = "x = 1\rpassword = 'hunter2hunter2'\ry = 2\rsecret = 'hunter3hunter3'\r";
        let files = Files::from([("a.py".to_owned(), text.into())]);
        let lines: Vec<usize> = analyze(&files).into_iter().map(|one| one.line).collect();
        assert_eq!(lines, [2, 4]);
        assert_eq!(secrets_in("a.py", text), ["hunter2hunter2", "hunter3hunter3"]);
        let both = "password = 'hunter2hunter2'; u = 'ftp://ann:hunter2hunter2@h'; v = 'ftp://ann:hunter3hunter3@h'";
        assert_eq!(secrets_in("a.py", both), ["hunter2hunter2", "hunter3hunter3"]);
    }

    #[test]
    fn given_a_line_of_megabytes_when_it_is_read_then_each_part_of_it_is_read_once() {
        let key = "hf_".repeat(1 << 20);
        let passwords = |number: usize| format!("password='word{number}word' ftp://a:pass{number}word@h ");
        let many: String = (0..50_000).map(passwords).collect();
        let heads = "-----BEGIN PRIVATE KEY-----é ".repeat(20_000);
        assert!(secrets_in("a.js", &heads).is_empty());
        assert_eq!(rules("a.js", &key), ["key"]);
        assert_eq!(secrets_in("a.js", &key), [key.as_str()]);
        assert_eq!(rules("a.js", &many), ["literal-password"]);
        assert_eq!(secrets_in("a.js", &many).len(), 100_000);
    }

    #[test]
    fn given_many_heads_of_keys_before_one_end_when_secrets_are_taken_then_each_part_is_taken_once() {
        let part = |number: usize| format!("{number:032}");
        let quoted = |number: usize| format!("-----BEGIN PRIVATE KEY-----'\n '{}'\n", part(number));
        let many: String = (0..20_000).map(quoted).collect();
        let text = many.replace(&format!("'{}'", part(15_000)), "'-----END PRIVATE KEY-----'");
        let found = secrets_in("a.py", &text);
        let distinct: HashSet<&str> = found.iter().copied().collect();
        assert!(found.len() > 400 && found.len() == distinct.len(), "{}", found.len());
        assert_eq!(found.last().copied(), Some(part(14_999).as_str()));
        // The next key in front of the same end is whole all the same.
        let key = format!("{}\n{}", "MIIE".repeat(16), "9+/A".repeat(4));
        let text =
            format!("-----BEGIN PRIVATE KEY-----'\n-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
        assert_eq!(secrets_in("a.py", &text).last().copied(), Some(key.as_str()));
    }

    #[test]
    fn given_a_mark_before_the_first_line_when_a_key_stands_in_it_then_its_column_is_that_of_the_text() {
        let key = "k = AKIAABCDEFGHIJKLMNOP\n";
        for (text, column) in [(key.to_owned(), 5), (format!("\u{feff}{key}"), 5), (format!("\u{feff}é{key}"), 6)] {
            let files = Files::from([("a.txt".to_owned(), text.clone().into())]);
            let found = analyze(&files);
            assert_eq!((found.len(), found[0].line, found[0].column), (1, 1, column), "{text:?}");
        }
    }

    #[test]
    fn given_numbers_in_data_when_they_are_read_then_only_lists_of_accounts_and_cards_are_told() {
        let accounts = "DE89370400440532013000 GB82WEST12345698765432 FR1420041010050500013M02606 NL91ABNA0417164300 BE68539007547034";
        let cards = "4111111111111111,5555555555554444,378282246310005,6011111111111117,5105105105105100";
        let plain: Vec<String> = (0..40).map(|number| format!("40000000000{number:05}")).collect();
        for (text, is_found) in [
            (accounts.to_owned(), true),
            (accounts.replace("DE89", "DE88"), false),
            (cards.to_owned(), true),
            (plain.join("\n"), false),
            (format!("{}\n{cards}", plain.join("\n")), false),
            ("a@b.org,c@b.org,d@b.org,e@b.org,f@b.org".to_owned(), true),
            ("2024010112000000 2024010112000001".to_owned(), false),
        ] {
            let expected: &[&str] = if is_found { &["personal-data"] } else { &[] };
            assert_eq!(rules("people.csv", &text), expected, "{text}");
            assert!(rules("people.py", &text).is_empty(), "{text}");
        }
    }

    #[test]
    fn given_texts_with_any_ends_when_lines_are_chosen_then_each_that_a_rule_speaks_of_is_among_them_with_its_number() {
        let lines = [
            "# see https://example.org",
            "x = 1",
            "",
            "Api_Key = 'a1b2c3d4e5f6'",
            "é = 'AKIAA1A1A1A1A1A1A1A1'; SECRET = 2",
            "-----BEGIN RSA PRIVATE KEY-----",
            "y = 2",
            "url = 'db://me:hunter2hunter2@h'",
        ];
        for (end, last) in [("\n", ""), ("\n", "\n"), ("\r\n", "\r\n"), ("\r", ""), ("\n\n", "\n")] {
            let text = lines.join(end) + last;
            for path in ["a.py", "a.rs"] {
                let chosen = candidates(path, &text);
                let all: Vec<(usize, &str)> =
                    lines_of(path, &text).into_iter().enumerate().map(|(index, line)| (index + 1, line)).collect();
                assert!(chosen.iter().all(|one| all.contains(one)), "{end:?}: {chosen:?}");
                let told = |lines: &[(usize, &str)]| {
                    let mut found = Vec::new();
                    lines.iter().for_each(|line| scan(path, *line, false, &mut found));
                    found
                };
                assert_eq!(told(&chosen), told(&all), "{end:?}");
            }
        }
        assert_eq!(candidates("a.py", &lines.join("\n")).len(), 5, "others are passed over");
        assert!(candidates("a.py", "x = 1\ny = 2\n").is_empty());
    }
}
