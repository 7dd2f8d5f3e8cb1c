//! A tool that is an HTTP request.

use std::collections::BTreeSet;

use async_trait::async_trait;
use riverrun_knowledge::web::{FetchLimits, Fetched, GuardedClient, WebError, WebMethod, WebRequest, decoded};
use serde_json::{Map, Value, json};

use super::file::{self, Fault, Http, fault};
use super::secrets::{SecretLookup, Texts};
use super::template::{self, UrlTemplate};
use crate::tools::{Permission, Tool, ToolContext, ToolError, ToolManifest, ToolSource};

/// How much of an error's body is told, in characters.
const MAX_ERROR_TEXT: usize = 500;
/// Headers that belong to the connection, or that the client sets itself.
const OWN_HEADERS: &[&str] =
    &["host", "content-length", "transfer-encoding", "connection", "accept-encoding", "cookie"];

pub(super) struct HttpTool {
    manifest: ToolManifest,
    method: WebMethod,
    url: UrlTemplate,
    headers: Texts,
    body: Body,
    web: GuardedClient,
}

enum Body {
    None,
    /// The arguments that the URL does not use.
    Rest(BTreeSet<String>),
    Shaped(Value),
}

impl HttpTool {
    pub(super) fn new(
        mut manifest: ToolManifest,
        http: &Http,
        web: GuardedClient,
        secrets: &SecretLookup,
    ) -> Result<Self, Fault> {
        let method = method(&http.method)?;
        let url = UrlTemplate::parse(&http.url)?;
        if let Err(error) = web.policy().check_url(url.origin()) {
            return fault(error.to_string(), error.hint().unwrap_or_else(|| "use a public https address".to_owned()));
        }
        check_headers(http)?;
        let headers = Texts::resolve(&http.headers, secrets)?;
        let body = body(http, method, &url)?;
        check_names(&manifest, &url, &body)?;
        manifest.source = ToolSource::Http;
        manifest.permissions = vec![Permission::Network];
        let web = web.connecting_within(file::reach_time(manifest.limits));
        Ok(Self { manifest, method, url, headers, body, web })
    }

    fn request(&self, arguments: &Map<String, Value>, call_id: &str) -> Result<WebRequest, ToolError> {
        let url = self.url.fill(arguments).map_err(ToolError::Arguments)?;
        let mut headers: Vec<(String, String)> =
            self.headers.values.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        if self.method != WebMethod::Get {
            headers.push(("idempotency-key".to_owned(), call_id.to_owned()));
        }
        let body = match &self.body {
            Body::None => None,
            Body::Rest(used) => {
                let rest = arguments.iter().filter(|(name, value)| !used.contains(*name) && !value.is_null());
                Some(Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect()))
            }
            Body::Shaped(body) => template::fill_body(body, arguments),
        };
        let body = body.map(|body| ("application/json".to_owned(), body.to_string().into_bytes()));
        Ok(WebRequest { method: self.method, url: url.to_string(), headers, body })
    }

    /// What became of a request that was not answered. A GET may have been answered before, with a redirect.
    fn unanswered(&self, error: &WebError) -> ToolError {
        let reason = self.headers.hide(&error.to_string());
        let reached_nobody =
            matches!(error, WebError::NotFound { .. } | WebError::Connection { may_have_sent: false, .. });
        if reached_nobody && self.method != WebMethod::Get {
            ToolError::NotSent(reason)
        } else if error.leaves_outcome_unknown() {
            ToolError::Lost(reason)
        } else {
            ToolError::Failed(reason)
        }
    }

    fn result(&self, fetched: Fetched) -> Result<Value, ToolError> {
        let is_json = fetched.content_type.as_deref().is_some_and(|kind| kind.contains("json"));
        let body = body_of(&fetched, is_json);
        let body = self.headers.hide_in(body);
        if !(200..300).contains(&fetched.status) {
            let text: String = template::as_text(&body).chars().take(MAX_ERROR_TEXT).collect();
            return Err(ToolError::Failed(format!("{} answered {}: {text}", self.manifest.name, fetched.status)));
        }
        Ok(json!({ "status": fetched.status, "body": body }))
    }
}

#[async_trait]
impl Tool for HttpTool {
    fn manifest(&self) -> ToolManifest {
        self.manifest.clone()
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::Arguments("they are no object".to_owned()));
        };
        let request = self.request(&arguments, &context.call_id)?;
        let limits = FetchLimits {
            max_bytes: self.manifest.limits.result_bytes,
            timeout: self.manifest.limits.timeout,
            ..FetchLimits::default()
        };
        match self.web.send(request, limits).await {
            Ok(fetched) => self.result(fetched),
            Err(WebError::TimedOut { limit }) => Err(ToolError::TimedOut(limit)),
            Err(error) => Err(self.unanswered(&error)),
        }
    }
}

/// The body of an answer. JSON is UTF-8 whatever the server says; where it is not, and for other text, what the server says counts.
fn body_of(fetched: &Fetched, is_json: bool) -> Value {
    if is_json && let Ok(value) = serde_json::from_slice(&fetched.body) {
        return value;
    }
    let text = decoded(fetched);
    let parsed = is_json.then(|| serde_json::from_str(&text).ok()).flatten();
    parsed.unwrap_or(Value::String(text))
}

fn method(name: &str) -> Result<WebMethod, Fault> {
    match name {
        "GET" => Ok(WebMethod::Get),
        "POST" => Ok(WebMethod::Post),
        "PUT" => Ok(WebMethod::Put),
        "PATCH" => Ok(WebMethod::Patch),
        "DELETE" => Ok(WebMethod::Delete),
        other => fault(format!("method {other:?} is not known"), "use GET, POST, PUT, PATCH or DELETE"),
    }
}

fn check_headers(http: &Http) -> Result<(), Fault> {
    for name in http.headers.keys() {
        if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            return fault(format!("header {name:?} is set by the client"), "remove it");
        }
        let fits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !fits {
            return fault(format!("header {name:?} has no usable name"), "use letters, digits and -");
        }
    }
    Ok(())
}

fn body(http: &Http, method: WebMethod, url: &UrlTemplate) -> Result<Body, Fault> {
    let sends = matches!(method, WebMethod::Post | WebMethod::Put | WebMethod::Patch);
    match &http.body {
        Some(_) if !sends => fault("a GET or DELETE request has a body", "remove the body, or use POST"),
        Some(body) => Ok(Body::Shaped(serde_json::to_value(body).unwrap_or_default())),
        None if sends => Ok(Body::Rest(url.names().into_iter().map(str::to_owned).collect())),
        None => Ok(Body::None),
    }
}

/// Every placeholder is an argument, what the path needs is required, and every argument is used.
fn check_names(manifest: &ToolManifest, url: &UrlTemplate, body: &Body) -> Result<(), Fault> {
    let mut used: BTreeSet<String> = url.names().into_iter().map(str::to_owned).collect();
    if let Body::Shaped(body) = body {
        template::check_body(body, &mut used)?;
    }
    let known: BTreeSet<String> =
        manifest.input_schema["properties"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
    if let Some(name) = used.iter().find(|name| !known.contains(*name)) {
        return fault(format!("{{{name}}} is no argument of this tool"), format!("add arguments.{name}"));
    }
    let required = manifest.input_schema["required"].as_array().cloned().unwrap_or_default();
    if let Some(name) = url.needed().into_iter().find(|name| !required.contains(&json!(name))) {
        return fault(format!("{name} stands in the path and is optional"), "take it out of `optional`");
    }
    if !matches!(body, Body::Rest(_))
        && let Some(name) = known.iter().find(|name| !used.contains(*name))
    {
        return fault(format!("argument {name:?} is used nowhere"), format!("write {{{name}}} where it belongs"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_bodies_in_encodings_that_their_servers_name_when_they_are_read_then_their_letters_are_right() {
        for (kind, body, value) in [
            ("text/plain; charset=iso-8859-1", &b"caf\xe9"[..], json!("café")),
            ("text/plain; charset=\"Shift_JIS\"", b"\x93\xfa\x96\x7b", json!("日本")),
            ("text/plain; charset=utf-16le", b"a\0\xe4\0", json!("aä")),
            ("text/plain", "café".as_bytes(), json!("café")),
            ("text/plain; charset=nonsense", "café".as_bytes(), json!("café")),
            ("application/json; charset=iso-8859-1", b"{\"a\": \"caf\xe9\"}", json!({"a": "café"})),
            ("application/json; charset=iso-8859-1", "{\"a\": \"café\"}".as_bytes(), json!({"a": "café"})),
            ("application/json", b"no JSON", json!("no JSON")),
        ] {
            let fetched = Fetched {
                final_url: "https://a.example/".into(),
                status: 200,
                content_type: Some(kind.into()),
                body: body.to_vec(),
            };
            assert_eq!(body_of(&fetched, kind.contains("json")), value, "{kind}");
        }
    }
}
