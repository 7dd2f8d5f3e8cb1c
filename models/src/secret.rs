//! Keys that cannot be printed, logged or serialized by accident.

use std::fmt;

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
        text.replace(&self.0, "***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
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
}
