//! Secrets of tool definitions: taken from the environment by name, sent where they belong, and shown nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::file::{Fault, Text, fault};

/// Gives the value of an environment variable.
pub type SecretLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a secret is replaced by.
const HIDDEN: &str = "***";
/// Shorter ones would take half of every text with them.
const SHORTEST: usize = 4;

/// Values of a definition, some of them secret.
#[derive(Clone, Default)]
pub(super) struct Texts {
    pub(super) values: BTreeMap<String, String>,
    secrets: Vec<String>,
}

impl Texts {
    /// Looks every secret up.
    pub(super) fn resolve(texts: &BTreeMap<String, Text>, lookup: &SecretLookup) -> Result<Self, Fault> {
        let mut found = Self::default();
        for (name, text) in texts {
            let value = match text {
                Text::Plain(text) => text.clone(),
                Text::Secret(secret) => {
                    let Some(value) = lookup(&secret.env).filter(|value| !value.is_empty()) else {
                        return fault(
                            format!("environment variable {} is not set", secret.env),
                            format!("set {} for riverrun, or remove {name}", secret.env),
                        );
                    };
                    found.secrets.push(value.clone());
                    format!("{}{value}", secret.prefix)
                }
            };
            if value.contains(['\r', '\n', '\0']) {
                return fault(format!("{name} has a line break in its value"), "remove it");
            }
            found.values.insert(name.clone(), value);
        }
        Ok(found)
    }

    /// A text without the secrets, in whatever form they come back.
    pub(super) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets.iter().filter(|secret| secret.len() >= SHORTEST) {
            text = text.replace(secret.as_str(), HIDDEN);
            let json = Value::from(secret.as_str()).to_string();
            let escaped = json.trim_matches('"');
            if escaped != secret {
                text = text.replace(escaped, HIDDEN);
            }
        }
        text
    }

    /// The same for every text of a value.
    pub(super) fn hide_in(&self, value: Value) -> Value {
        if self.secrets.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.hide(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.hide_in(item)).collect(),
            Value::Object(map) => {
                Value::Object(map.into_iter().map(|(key, value)| (self.hide(&key), self.hide_in(value))).collect())
            }
            plain => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::defined::file::SecretText;

    fn texts() -> Texts {
        let lookup: SecretLookup = Arc::new(|name| (name == "KEY").then(|| "canary\"1".to_owned()));
        let secret = Text::Secret(SecretText { env: "KEY".into(), prefix: "Bearer ".into() });
        Texts::resolve(&BTreeMap::from([("authorization".to_owned(), secret)]), &lookup).unwrap()
    }

    #[test]
    fn given_a_server_that_repeats_a_secret_when_its_answer_is_shown_then_it_is_hidden() {
        let texts = texts();
        assert_eq!(texts.values["authorization"], "Bearer canary\"1");
        let shown = texts.hide_in(json!({ "you sent canary\"1": ["Bearer canary\"1", "{\"k\":\"canary\\\"1\"}", 7] }));
        assert!(!shown.to_string().contains("canary"), "{shown}");
    }

    #[test]
    fn given_a_variable_that_is_not_set_when_it_is_needed_then_the_fault_names_it() {
        let lookup: SecretLookup = Arc::new(|_| None);
        let secret = Text::Secret(SecretText { env: "KEY".into(), prefix: String::new() });
        let fault = Texts::resolve(&BTreeMap::from([("x".to_owned(), secret)]), &lookup).err().unwrap();
        assert!(fault.reason.contains("KEY") && fault.fix.contains("KEY"), "{fault:?}");
    }
}
