//! Keys that cannot be printed, logged or serialized by accident.

use std::fmt;

/// What stands where a key was.
const HIDDEN: &str = "***";
/// Of a longer key, so many bytes of its beginning are taken out too: a text that was cut may end within the key.
const BEGINNING: usize = 12;

/// A key or token. `Debug` shows `***`; there is no `Display` and no `Serialize`. It leaves only through [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key; surrounding white space, a common slip in settings files, is dropped. Empty means no key.
    pub fn new(value: &str) -> Option<Self> {
        let value = value.trim();
        (!value.is_empty()).then(|| Secret(value.to_owned()))
    }

    /// The key itself, for the header that needs it and nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Takes the key out of a text that came from outside, such as an error that quotes the request.
    pub fn redact(&self, text: &str) -> String {
        self.without_beginnings(text.replace(&self.0, HIDDEN))
    }

    fn without_beginnings(&self, text: String) -> String {
        let Some(beginning) = self.0.get(..BEGINNING).filter(|_| self.0.len() > BEGINNING) else { return text };
        let mut shown = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(beginning) {
            let (before, key) = rest.split_at(at);
            let same = key.chars().zip(self.0.chars()).take_while(|(one, other)| one == other);
            let length: usize = same.map(|(one, _)| one.len_utf8()).sum();
            shown.push_str(before);
            shown.push_str(HIDDEN);
            rest = &key[length..];
        }
        shown.push_str(rest);
        shown
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_key_when_it_is_printed_then_it_does_not_show() {
        let secret = Secret::new(" sk-canary \n").unwrap();
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "*** Some(\n    ***,\n)");
        assert_eq!(secret.expose(), "sk-canary");
        assert_eq!(secret.redact("bad key sk-canary!"), "bad key ***!");
        assert!(Secret::new("  ").is_none());
    }

    #[test]
    fn given_a_text_that_was_cut_within_a_key_when_it_is_redacted_then_no_more_than_a_common_beginning_shows() {
        let secret = Secret::new("sk-proj-canary-4711-größe").unwrap();
        for (text, shown) in [
            ("it begins with 'sk-proj-canary-47…'", "it begins with '***…'"),
            ("sk-proj-canary-4711-gr and sk-proj-canary-4711-größe", "*** and ***"),
            ("sk-proj-other", "sk-proj-other"),
        ] {
            assert_eq!(secret.redact(text), shown);
        }
    }
}
