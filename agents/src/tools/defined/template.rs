//! Placeholders: `{name}` is an argument of the call, `{{` and `}}` are braces. A value is only ever put where a value
//! may stand; no value changes what a template is.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use url::Url;

use super::file::{Fault, fault};

/// A text with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(String),
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '{' if rest.peek() == Some(&'{') => {
                    rest.next();
                    plain.push('{');
                }
                '}' if rest.peek() == Some(&'}') => {
                    rest.next();
                    plain.push('}');
                }
                '{' => {
                    let mut closed = false;
                    let name: String = rest
                        .by_ref()
                        .take_while(|c| {
                            closed = *c == '}';
                            !closed
                        })
                        .collect();
                    if !closed {
                        return fault(format!("{{{name} is not closed"), "write {argument}, or {{ for a brace");
                    }
                    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
                        return fault(format!("{{{name}}} is no placeholder"), "write {argument}, or {{ for a brace");
                    }
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Value(name));
                }
                '}' => return fault("a } stands alone", "write {argument}, or }} for a brace"),
                other => plain.push(other),
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// The arguments that it uses.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Value(name) => Some(name.as_str()),
        })
    }

    /// The argument, when it is one placeholder and nothing else.
    pub(super) fn whole(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Value(name)] => Some(name),
            _ => None,
        }
    }

    /// The text, when it has no placeholder.
    pub(super) fn plain(&self) -> Option<String> {
        match self.0.as_slice() {
            [] => Some(String::new()),
            [Piece::Text(text)] => Some(text.clone()),
            _ => None,
        }
    }

    /// With values as text; `None` when one of them was not given.
    pub(super) fn fill(&self, arguments: &Map<String, Value>, escape: fn(&str) -> String) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Value(name) => text.push_str(&escape(&as_text(given(arguments, name)?))),
            }
        }
        Some(text)
    }
}

/// An argument that was given; `null` is as good as none.
pub(super) fn given<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    arguments.get(name).filter(|value| !value.is_null())
}

/// A value as one word.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Everything but letters, digits and `-._~` becomes `%XX`: RFC 3986, section 2.3.
fn percent(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

/// A URL with places for values in its path and its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlTemplate {
    origin: String,
    path: Template,
    /// Pairs of the query, each left out when its value is not given.
    query: Vec<(String, Template)>,
}

impl UrlTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let after_scheme = text.find("://").map(|at| at + 3);
        let Some(authority) = after_scheme.filter(|_| text.starts_with("http://") || text.starts_with("https://"))
        else {
            return fault("the url is not one of http or https", "begin it with https:// or http://");
        };
        let end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |at| authority + at);
        let (origin, rest) = text.split_at(end);
        if origin.contains(['{', '}']) {
            return fault("a placeholder stands in the host of the url", "use placeholders in path and query only");
        }
        if rest.contains('#') {
            return fault("the url has a fragment, which is not sent", "leave out everything from # on");
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = Template::parse(if path.is_empty() { "/" } else { path })?;
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match Template::parse(key)?.plain() {
                Some(key) => Ok((key, Template::parse(value)?)),
                None => fault("a placeholder stands for the name of a query parameter", "write name={argument}"),
            }
        });
        let template = Self { origin: origin.to_owned(), path, query: pairs.collect::<Result<_, Fault>>()? };
        match Url::parse(&template.origin) {
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                return fault("the url carries a user name or password", "send them in a header with env = \"NAME\"");
            }
            Err(error) => return fault(format!("the url can't be read: {error}"), "write it as https://host/path"),
            Ok(_) => {}
        }
        let example = template.names().into_iter().map(|name| (name.to_owned(), Value::from("x"))).collect();
        match template.fill(&example) {
            Ok(_) => Ok(template),
            Err(_) => {
                fault("the path of the url is not in its plain form", "escape it with %XX, without . and .. steps")
            }
        }
    }

    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.path.names().chain(self.query.iter().flat_map(|(_, value)| value.names())).collect()
    }

    /// What the path needs; a value of the query may be missing.
    pub(super) fn needed(&self) -> BTreeSet<&str> {
        self.path.names().collect()
    }

    /// The address without anything that may vary.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The URL of a call.
    ///
    /// # Errors
    /// When a value of the path is missing or empty, or would lead elsewhere (`.` and `..`).
    pub(super) fn fill(&self, arguments: &Map<String, Value>) -> Result<Url, String> {
        if let Some(name) =
            self.path.names().find(|name| given(arguments, name).is_none_or(|value| as_text(value).is_empty()))
        {
            return Err(format!("{name} stands in the path of the url and must not be empty"));
        }
        let path = self.path.fill(arguments, percent).ok_or("a value of the path is missing")?;
        let mut text = format!("{}{path}", self.origin);
        let pairs = self.query.iter().filter_map(|(key, value)| Some((key, value.fill(arguments, percent)?)));
        for (index, (key, value)) in pairs.enumerate() {
            text.push(if index == 0 { '?' } else { '&' });
            text.push_str(&format!("{key}={value}"));
        }
        let url = Url::parse(&text).map_err(|error| format!("the url can't be made: {error}"))?;
        // Whoever reads a URL takes `.` and `..` as steps, in plain and in escaped form.
        if url.path() != path {
            return Err("a value would change the path of the url".to_owned());
        }
        Ok(url)
    }
}

/// JSON with places for values: `"{name}"` becomes the value as it is, a text with placeholders becomes text, and what has
/// no value is left out.
pub(super) fn check_body(body: &Value, names: &mut BTreeSet<String>) -> Result<(), Fault> {
    match body {
        Value::String(text) => {
            names.extend(Template::parse(text)?.names().map(str::to_owned));
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_body(item, names)),
        Value::Object(map) => map.values().try_for_each(|value| check_body(value, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// The body of a call; `None` where the value was not given.
pub(super) fn fill_body(body: &Value, arguments: &Map<String, Value>) -> Option<Value> {
    match body {
        Value::String(text) => {
            let template = Template::parse(text).ok()?; // was parsed when the file was read
            match template.whole() {
                Some(name) => given(arguments, name).cloned(),
                None => template.fill(arguments, str::to_owned).map(Value::String),
            }
        }
        Value::Array(items) => Some(items.iter().filter_map(|item| fill_body(item, arguments)).collect()),
        Value::Object(map) => {
            let filled = map.iter().filter_map(|(key, value)| Some((key.clone(), fill_body(value, arguments)?)));
            Some(Value::Object(filled.collect()))
        }
        plain => Some(plain.clone()),
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
