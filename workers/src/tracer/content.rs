//! What may leave of what people and models wrote: nothing unless asked for, never a secret, never without a bound.

use riverrun_models::Secret;
use serde_json::Value as Json;

/// Most bytes of a text in a span; what is beyond is cut and counted.
pub(crate) const MAX_TEXT_BYTES: usize = 8 << 10;
/// Most bytes of a name, a code or another short text.
const MAX_LABEL_BYTES: usize = 256;
/// JSON is looked into so deep; below, it is left out.
const MAX_DEPTH: usize = 32;

const HIDDEN: &str = "***";
/// Shorter values would take harmless words out of texts.
const MIN_SECRET_BYTES: usize = 6;

/// Parts of names of JSON fields whose values are secrets.
const SECRET_FIELDS: [&str; 11] = [
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "authorization",
    "cookie",
    "credential",
    "private_key",
];
/// Fields whose names sound like it and are counts: `max_tokens`.
const COUNTS: &str = "tokens";

/// How well-known keys begin, and how many characters follow at least.
const KEY_SHAPES: [(&str, usize); 13] = [
    ("sk-", 16),
    ("pk-lf-", 8),
    ("ghp_", 20),
    ("gho_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("AKIA", 16),
    ("AIza", 30),
    ("hf_", 20),
    ("eyJ", 40),
    ("Bearer ", 12),
];

/// What may leave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    /// Texts leave at all.
    shown: bool,
    secrets: Vec<Secret>,
}

impl Content {
    pub(crate) fn new(shown: bool, secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<Secret> =
            secrets.into_iter().filter(|secret| secret.expose().len() >= MIN_SECRET_BYTES).collect();
        // The longest first: a key that holds another is taken out whole.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Self { shown, secrets }
    }

    /// What people and models wrote, where that may leave.
    pub(crate) fn text(&self, text: &str) -> Option<String> {
        // Cut before it is looked through, so that the work is bounded too; with a rest, so that no key is cut in two.
        self.shown.then(|| clip(&self.redacted(prefix(text, 2 * MAX_TEXT_BYTES)), MAX_TEXT_BYTES, text.len()))
    }

    /// The same for JSON, whose fields have names that tell.
    pub(crate) fn json(&self, text: &str) -> Option<String> {
        if !self.shown {
            return None;
        }
        match serde_json::from_str::<Json>(text) {
            Ok(mut value) => {
                hide_fields(&mut value, MAX_DEPTH);
                self.text(&value.to_string())
            }
            Err(_) => self.text(text),
        }
    }

    /// The beginning of what people and models wrote, where that may leave.
    pub(crate) fn short(&self, text: &str) -> Option<String> {
        self.shown.then(|| self.label(text))
    }

    /// Names, codes and other short words that are no content; keys are taken out all the same.
    pub(crate) fn label(&self, text: &str) -> String {
        clip(&self.redacted(prefix(text, 2 * MAX_LABEL_BYTES)), MAX_LABEL_BYTES, text.len())
    }

    fn redacted(&self, text: &str) -> String {
        let known = self.secrets.iter().fold(text.to_owned(), |text, secret| secret.redact(&text));
        hide_shapes(&known)
    }
}

/// The longest prefix of at most `limit` bytes.
fn prefix(text: &str, limit: usize) -> &str {
    if text.len() <= limit { text } else { &text[..text.floor_char_boundary(limit)] }
}

/// The text, or its beginning and how long it was.
fn clip(text: &str, limit: usize, bytes: usize) -> String {
    if text.len() <= limit && bytes <= 2 * limit {
        text.to_owned()
    } else {
        format!("{}… ({bytes} bytes)", prefix(text, limit))
    }
}

fn hide_fields(value: &mut Json, depth: usize) {
    match value {
        Json::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                let name = name.to_lowercase();
                let secret = SECRET_FIELDS.iter().any(|part| name.contains(part));
                if depth == 0 || (secret && !name.ends_with(COUNTS)) {
                    *value = Json::String(HIDDEN.to_owned());
                } else {
                    hide_fields(value, depth - 1);
                }
            }
        }
        Json::Array(items) if depth == 0 => items.clear(),
        Json::Array(items) => items.iter_mut().for_each(|item| hide_fields(item, depth - 1)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Takes out what looks like a key by its beginning.
fn hide_shapes(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let mut before: Option<char> = None;
    while let Some(first) = rest.chars().next() {
        let begins_word = !before.is_some_and(|c| c.is_ascii_alphanumeric());
        let key = KEY_SHAPES.iter().filter(|_| begins_word).find_map(|(start, least)| {
            let body = rest.strip_prefix(start)?;
            let length = body.bytes().take_while(|byte| is_key_byte(*byte)).count();
            (length >= *least).then_some((*start, start.len() + length))
        });
        match key {
            Some((start, length)) => {
                shown.push_str(start);
                shown.push_str(HIDDEN);
                rest = &rest[length..];
                before = Some('*');
            }
            None => {
                shown.push(first);
                rest = &rest[first.len_utf8()..];
                before = Some(first);
            }
        }
    }
    shown
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'+' | b'=')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(secrets: &[&str]) -> Content {
        Content::new(true, secrets.iter().filter_map(|secret| Secret::new(secret)))
    }

    #[test]
    fn given_content_is_not_asked_for_when_a_text_is_to_leave_then_it_does_not() {
        let content = Content::new(false, None);
        assert_eq!((content.text("a"), content.json("{}")), (None, None));
        assert_eq!(content.label("calculator"), "calculator");
    }

    #[test]
    fn given_a_key_of_the_settings_when_it_turns_up_in_a_text_then_it_is_taken_out() {
        let content = shown(&["canary-1234", "canary-1234-longer", "ab"]);
        let text = content.text("ab canary-1234-longer, canary-1234!").unwrap();
        assert_eq!(text, "ab ***, ***!");
        assert_eq!(content.label("model canary-1234"), "model ***");
    }

    #[test]
    fn given_things_that_look_like_keys_when_they_leave_then_only_their_kind_is_seen() {
        let content = shown(&[]);
        for (text, expected) in [
            ("use sk-abcdefghijklmnop1234 now", "use sk-*** now"),
            ("Authorization: Bearer abcdefghijkl.mnop", "Authorization: Bearer ***"),
            ("ghp_0123456789abcdefghij0123", "ghp_***"),
            ("AKIAIOSFODNN7EXAMPLE.", "AKIA***"),
            ("the task-sk-1 is a risk-free desk-top sk-short", "the task-sk-1 is a risk-free desk-top sk-short"),
            ("Bearer bonds are old", "Bearer bonds are old"),
        ] {
            assert_eq!(content.text(text).unwrap(), expected);
        }
    }

    #[test]
    fn given_json_with_telling_names_when_it_leaves_then_their_values_do_not() {
        let json = shown(&[])
            .json(r#"{"url":"http://a","headers":{"X-Api-Key":"hunter2","n":1},"list":[{"userPassword":["x"]}],"max_tokens":5}"#)
            .unwrap();
        assert_eq!(
            serde_json::from_str::<Json>(&json).unwrap(),
            serde_json::json!({"url": "http://a", "headers": {"X-Api-Key": "***", "n": 1}, "list": [{"userPassword": "***"}], "max_tokens": 5})
        );
        assert_eq!(shown(&[]).json("no json").as_deref(), Some("no json"));
    }

    #[test]
    fn given_a_long_text_when_it_leaves_then_it_is_cut_and_says_how_long_it_was() {
        let text = shown(&[]).text(&"ä".repeat(100_000)).unwrap();
        assert!(text.len() <= MAX_TEXT_BYTES + 32 && text.ends_with("… (200000 bytes)"), "{}", text.len());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_longer_than_its_bound(text in ".{0,400}", times in 1usize..100) {
            let text = text.repeat(times);
            let content = shown(&["secret"]);
            for shown in [content.text(&text), content.json(&text)] {
                prop_assert!(shown.unwrap().len() <= MAX_TEXT_BYTES + 40);
            }
        }
    }
}
