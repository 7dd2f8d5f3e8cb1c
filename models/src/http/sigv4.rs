//! Requests that are signed instead of carrying a key: version 4 of AWS's signing process, in headers.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningParams, SigningSettings, sign};
use aws_sigv4::sign::v4;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::settings::AwsCredentials;

/// Signs requests to one service in one region.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    pub(crate) credentials: AwsCredentials,
    pub(crate) region: String,
    /// The name that the service signs by.
    pub(crate) service: &'static str,
}

/// A request as far as its signature covers it, beside its host and the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'r> {
    pub(crate) method: &'r str,
    /// The whole address, encoded as it is sent.
    pub(crate) url: &'r str,
    pub(crate) content_type: Option<&'r str>,
    pub(crate) body: &'r [u8],
}

impl Signer {
    /// The headers that sign a request at a time; the service takes them for some minutes.
    ///
    /// # Errors
    /// When the credentials hold what no header can, or the address is none.
    pub(crate) fn headers(&self, request: Signed<'_>, now: SystemTime) -> Result<HeaderMap, String> {
        let AwsCredentials { access_key_id, secret_access_key, session_token } = &self.credentials;
        let token = session_token.as_ref().map(|token| token.expose().to_owned());
        let credentials =
            Credentials::new(access_key_id.expose(), secret_access_key.expose(), token, None, "environment");
        let identity = credentials.into();
        let params: SigningParams<'_> = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(now)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let covered = request.content_type.map(|content_type| ("content-type", content_type));
        let body = SignableBody::Bytes(request.body);
        let signable = SignableRequest::new(request.method, request.url, covered.into_iter(), body)
            .map_err(|error| error.to_string())?;
        let (instructions, _) = sign(signable, &params).map_err(|error| error.to_string())?.into_parts();
        let mut headers = HeaderMap::new();
        for (name, value) in instructions.headers() {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            let mut value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// A text from outside without the credentials: a service that finds another signature quotes what it signed.
    pub(crate) fn redact(&self, text: &str) -> String {
        let AwsCredentials { access_key_id, secret_access_key, session_token } = &self.credentials;
        let secrets = [Some(access_key_id), Some(secret_access_key), session_token.as_ref()];
        secrets.into_iter().flatten().fold(text.to_owned(), |text, secret| secret.redact(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::secret::Secret;

    /// 2026-11-29, 12:34:56 UTC.
    const NOW: Duration = Duration::from_secs(1_795_955_696);

    fn signer(session_token: Option<&str>) -> Signer {
        let credentials = AwsCredentials {
            access_key_id: Secret::new("AKIDEXAMPLE").unwrap(),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY").unwrap(),
            session_token: session_token.and_then(Secret::new),
        };
        Signer { credentials, region: "us-west-2".to_owned(), service: "bedrock" }
    }

    /// The signatures are those of botocore 1.44.8 (`SigV4Auth`) for the same requests at the same time.
    #[test]
    fn given_requests_at_a_known_time_when_they_are_signed_then_the_headers_are_those_of_another_implementation() {
        let chat = Signed {
            method: "POST",
            url: "https://bedrock-runtime.us-west-2.amazonaws.com/model/anthropic.claude-3-haiku-20240307-v1%3A0/converse-stream",
            content_type: Some("application/json"),
            body: br#"{"messages":[{"role":"user","content":[{"text":"hi"}]}]}"#,
        };
        let list = Signed {
            method: "GET",
            url: "https://bedrock.us-west-2.amazonaws.com/foundation-models?byOutputModality=TEXT",
            content_type: None,
            body: b"",
        };
        for (request, token, covered, signature) in [
            (
                chat,
                None,
                "content-type;host;x-amz-date",
                "f539ece4b9054b8dfab299f684b7fa146d4d96bb31b8b721707eaedac5944505",
            ),
            (
                list,
                Some("session-token-example"),
                "host;x-amz-date;x-amz-security-token",
                "ecf5c259d0a55a908769e67f3f4bcb3c7c3682375367eff877c66fc4efa72f4f",
            ),
        ] {
            let headers = signer(token).headers(request, UNIX_EPOCH + NOW).unwrap();
            let wanted = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261129/us-west-2/bedrock/aws4_request, SignedHeaders={covered}, Signature={signature}"
            );
            assert_eq!(headers["authorization"], wanted);
            assert_eq!(headers["x-amz-date"], "20261129T123456Z");
            assert_eq!(headers.get("x-amz-security-token").map(|token| token.to_str().unwrap()), token);
            let shown = format!("{headers:?} {:?}", signer(token));
            assert!(!shown.contains("EXAMPLE") && !shown.contains("session-token"), "{shown}");
        }
    }

    #[test]
    fn given_what_a_service_quotes_when_it_is_shown_then_credentials_are_taken_out() {
        let signer = signer(Some("session-token-example"));
        let quoted = "AKIDEXAMPLE: the canonical string should have been 'x-amz-security-token:session-token-example'";
        assert_eq!(signer.redact(quoted), "***: the canonical string should have been 'x-amz-security-token:***'");
    }

    #[test]
    fn given_credentials_that_no_header_can_hold_when_a_request_is_signed_then_it_is_an_error_without_them() {
        let request = Signed { method: "GET", url: "https://bedrock.example/", content_type: None, body: b"" };
        let error = signer(Some("canary\u{1}x")).headers(request, UNIX_EPOCH + NOW).unwrap_err();
        assert!(!error.contains("canary"), "{error}");
    }
}
