//! How servers are entered that want more than a key, or another one: basic authentication, and headers of any name. All of it is secret.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::{Lookup, SettingError, text};
use crate::remote::table::{PROVIDERS, Spec};
use crate::secret::Secret;

/// What stands for a value that is not shown.
const HIDDEN: &str = "***";

/// What every request to a provider carries beside its key.
#[derive(Debug, Clone, Default)]
pub struct Access {
    headers: HeaderMap,
    /// What is taken out of texts that come from the server.
    hidden: Vec<Secret>,
    /// The end of the setting that a refusal is about.
    ending: Option<&'static str>,
}

impl Access {
    /// With basic authentication.
    ///
    /// # Errors
    /// When the name has a colon, which would end it.
    pub fn with_login(mut self, user: &str, password: &Secret) -> Result<Self, &'static str> {
        if user.contains(':') {
            return Err("a name without a colon");
        }
        let encoded = STANDARD.encode(format!("{user}:{}", password.expose()));
        self.insert(AUTHORIZATION, &format!("Basic {encoded}"))?;
        self.hidden.push(password.clone());
        self.ending = Some("PASSWORD");
        Ok(self)
    }

    /// With a header, in the place of any other of its name.
    ///
    /// # Errors
    /// When there is no such header.
    pub fn with_header(mut self, name: &str, value: &Secret) -> Result<Self, &'static str> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "a list with names of headers")?;
        self.insert(name, value.expose())?;
        self.ending = self.ending.or(Some("HEADERS"));
        Ok(self)
    }

    fn insert(&mut self, name: HeaderName, value: &str) -> Result<(), &'static str> {
        let mut header = HeaderValue::from_str(value).map_err(|_| "a list with values that headers may have")?;
        header.set_sensitive(true);
        self.headers.insert(name, header);
        // The scheme is no secret, what stands behind it is one by itself.
        let parts = [Some(value), value.split_once(' ').map(|(_, behind)| behind)];
        self.hidden.extend(parts.into_iter().flatten().filter_map(Secret::new));
        Ok(())
    }

    /// The headers; they take the place of others of their names.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// A text from outside, without what was sent.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.hidden.iter().fold(text.to_owned(), |text, secret| secret.redact(&text))
    }

    /// The setting that a server's refusal is about, where it is not the key's.
    pub(crate) fn setting(&self, spec: &Spec) -> Option<String> {
        self.ending.map(|ending| setting(spec, ending))
    }
}

fn setting(spec: &Spec, ending: &str) -> String {
    format!("RIVERRUN_{}_{ending}", spec.name.to_uppercase())
}

/// `RIVERRUN_<PROVIDER>_USER` and `_PASSWORD`, and `RIVERRUN_<PROVIDER>_HEADERS`.
pub(super) fn read(get: Lookup<'_>, keys: &BTreeMap<String, Secret>) -> Result<BTreeMap<String, Access>, SettingError> {
    let mut all = BTreeMap::new();
    for spec in PROVIDERS {
        let access = with_headers(get, spec, login(get, spec)?)?;
        if access.headers.is_empty() {
            continue;
        }
        if access.headers.contains_key(AUTHORIZATION) && spec.has_bearer() && keys.contains_key(spec.name) {
            let expected = "possible beside an Authorization header of its _PASSWORD or _HEADERS: unset one of them";
            return Err(hidden(spec.key_setting(), expected));
        }
        all.insert(spec.name.to_owned(), access);
    }
    Ok(all)
}

fn login(get: Lookup<'_>, spec: &Spec) -> Result<Access, SettingError> {
    let (user, password) = (setting(spec, "USER"), setting(spec, "PASSWORD"));
    match (text(get, &user), get(&password).as_deref().and_then(Secret::new)) {
        (None, None) => Ok(Access::default()),
        (Some(name), Some(secret)) => {
            let login = Access::default().with_login(&name, &secret);
            login.map_err(|expected| SettingError { name: user, value: name, expected: expected.into() })
        }
        (Some(name), None) => Err(SettingError {
            name: user,
            value: name,
            expected: "of use without its _PASSWORD, which is not set".into(),
        }),
        (None, Some(_)) => Err(hidden(password, "of use without its _USER, which is not set")),
    }
}

/// `name=value` pairs joined by commas, values percent-encoded: the form of `RIVERRUN_TRACING_HEADERS`.
fn with_headers(get: Lookup<'_>, spec: &Spec, mut access: Access) -> Result<Access, SettingError> {
    let name = setting(spec, "HEADERS");
    let given = text(get, &name).unwrap_or_default();
    let wrong = |expected| hidden(name.clone(), expected);
    for pair in given.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let expected = "a list of name=value joined by commas, values percent-encoded";
        let (header, value) = pair.split_once('=').ok_or_else(|| wrong(expected))?;
        let value = percent_decode_str(value).decode_utf8().map_err(|_| wrong(expected))?;
        let value = Secret::new(&value).ok_or_else(|| wrong(expected))?;
        access = access.with_header(header.trim(), &value).map_err(wrong)?;
    }
    Ok(access)
}

fn hidden(name: String, expected: &'static str) -> SettingError {
    SettingError { name, value: HIDDEN.to_owned(), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(pairs: &[(&str, &str)]) -> Result<BTreeMap<String, Access>, SettingError> {
        let get = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let key = Secret::new(&get("RIVERRUN_VLLM_API_KEY").unwrap_or_default());
        read(&get, &key.map(|key| ("vllm".to_owned(), key)).into_iter().collect())
    }

    #[test]
    fn given_logins_and_headers_when_they_are_read_then_they_are_sent_and_nothing_of_them_shows() {
        let found = read_of(&[
            ("RIVERRUN_OLLAMA_USER", "ann"),
            ("RIVERRUN_OLLAMA_PASSWORD", "canary"),
            ("RIVERRUN_VLLM_HEADERS", "x-gate=canary%2C%20one, x-team=two"),
            ("RIVERRUN_VLLM_API_KEY", "canary"),
        ])
        .unwrap();
        assert_eq!(found["ollama"].headers()[AUTHORIZATION], "Basic YW5uOmNhbmFyeQ==");
        assert_eq!(found["vllm"].headers()["x-gate"], "canary, one");
        assert_eq!(found["vllm"].headers()["x-team"], "two");
        assert!(!format!("{found:?}").contains("canary") && !format!("{found:?}").contains("YW5u"), "{found:?}");
        let told = found["ollama"].redact("Basic YW5uOmNhbmFyeQ==, YW5uOmNhbmFyeQ== and canary");
        assert_eq!(told, "***, *** and ***");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn given_what_can_not_be_sent_when_it_is_read_then_the_setting_is_named_and_its_value_is_not() {
        for (pairs, named) in [
            (vec![("RIVERRUN_OLLAMA_USER", "ann")], "RIVERRUN_OLLAMA_USER"),
            (vec![("RIVERRUN_OLLAMA_PASSWORD", "canary")], "RIVERRUN_OLLAMA_PASSWORD"),
            (vec![("RIVERRUN_OLLAMA_USER", "a:b"), ("RIVERRUN_OLLAMA_PASSWORD", "canary")], "RIVERRUN_OLLAMA_USER"),
            (vec![("RIVERRUN_VLLM_HEADERS", "canary")], "RIVERRUN_VLLM_HEADERS"),
            (vec![("RIVERRUN_VLLM_HEADERS", "x y=canary")], "RIVERRUN_VLLM_HEADERS"),
            (vec![("RIVERRUN_VLLM_HEADERS", "x=")], "RIVERRUN_VLLM_HEADERS"),
            (vec![("RIVERRUN_VLLM_HEADERS", "x=canary%0Aone")], "RIVERRUN_VLLM_HEADERS"),
            (
                vec![("RIVERRUN_VLLM_HEADERS", "authorization=canary"), ("RIVERRUN_VLLM_API_KEY", "canary")],
                "RIVERRUN_VLLM_API_KEY",
            ),
        ] {
            let error = read_of(&pairs).unwrap_err();
            assert_eq!(error.name, named);
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
