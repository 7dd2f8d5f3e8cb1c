//! What an answer of the hub means where it is no success, and what to do about it.

use reqwest::header::HeaderMap;
use reqwest::{Response, Url};

use super::Hub;
use crate::error::ModelError;
use crate::http::retry_after;

/// The setting of the token, as messages name it.
const SETTING: &str = "RIVERRUN_HUB_TOKEN";
/// What the hub answers with 401 and 403 for a model whose terms are to be accepted, and for a repository that it does not know or does not show.
const GATED: &str = "GatedRepo";
const UNKNOWN: &str = "RepoNotFound";

impl Hub {
    /// Lets a success through. `url` is what the hub was asked for: where it sent on to a store, the address there may hold a signature.
    pub(super) fn check(&self, repo: &str, url: &str, response: Response) -> Result<Response, ModelError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let hub = Url::parse(&self.address).ok();
        let host = response.url().host_str().unwrap_or_default();
        let is_hubs = hub.as_ref().is_none_or(|hub| hub.host_str() == Some(host));
        match status.as_u16() {
            // It knows no accounts and no names.
            code @ (401 | 403 | 404) if !is_hubs => Err(ModelError::bad_response(
                "hub",
                Some(code),
                format!("{host}, to which {url} leads, answered {status}"),
            )),
            401 | 403 => {
                let code = error_code(response.headers());
                let sent = self.has_token && hub.is_some_and(|hub| hub.origin() == response.url().origin());
                let said = code.map(|code| format!(" ({code})")).unwrap_or_default();
                let token = if sent { "the token was sent" } else { "no token was sent" };
                Err(ModelError::Unauthorized {
                    provider: "hub".to_owned(),
                    reason: format!("{url} answered {status}{said}; {token}"),
                    setting: SETTING.to_owned(),
                    fix: Some(access_fix(&format!("{}/{repo}", self.address), code, sent)),
                })
            }
            404 => Err(ModelError::ModelMissing {
                model: repo.to_owned(),
                reason: format!("{url} is not at the hub"),
                fix: format!("check the name {repo:?}; `riverrun models` lists the known ones"),
            }),
            429 => Err(ModelError::RateLimited {
                provider: "hub".to_owned(),
                reason: format!("{url} answered {status}"),
                retry_after: retry_after(response.headers()),
            }),
            code => Err(ModelError::bad_response("hub", Some(code), format!("{url} answered {status}"))),
        }
    }

    /// The hub does not answer.
    pub(super) fn unreachable(&self, error: &reqwest::Error) -> ModelError {
        ModelError::RuntimeDown {
            provider: "hub".to_owned(),
            address: self.address.clone(),
            reason: crate::http::reason(error),
            fix: "connect this machine to the hub, or set RIVERRUN_HUB_BASE_URL to one that it reaches".to_owned(),
        }
    }
}

/// The hub's own word for why it refuses.
fn error_code(headers: &HeaderMap) -> Option<&str> {
    let code = headers.get("x-error-code")?.to_str().ok()?;
    let is_word = matches!(code.len(), 1..=40) && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then_some(code)
}

/// What gets at a model that the hub refuses. `page` is the model's, where terms are accepted.
fn access_fix(page: &str, code: Option<&str>, sent: bool) -> String {
    match (code, sent) {
        (Some(GATED), false) => {
            format!("accept its terms on {page}, and set {SETTING} (or HF_TOKEN) to a token of the account that did")
        }
        (Some(GATED), true) => format!(
            "accept its terms on {page} with the account of the token, or set {SETTING} (or HF_TOKEN) to a token of one that may read it"
        ),
        (Some(UNKNOWN), _) => format!(
            "check the name: {page} is not there, or private; for a private one set {SETTING} (or HF_TOKEN) to a token that may read it"
        ),
        (_, false) => format!(
            "check the name, and set {SETTING} (or HF_TOKEN) to a token that may read {page}, whose terms may have to be accepted there"
        ),
        (_, true) => format!(
            "set {SETTING} (or HF_TOKEN) to a valid token that may read {page}, whose terms may have to be accepted there"
        ),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn given_a_refusal_when_it_is_told_then_the_fix_is_that_of_its_cause_and_never_the_command_that_failed() {
        for (code, sent, wanted) in [
            (Some(GATED), false, vec!["accept its terms on https://hub/o/r", "RIVERRUN_HUB_TOKEN", "HF_TOKEN"]),
            (Some(GATED), true, vec!["accept its terms on https://hub/o/r with the account of the token", "HF_TOKEN"]),
            (Some(UNKNOWN), false, vec!["check the name", "https://hub/o/r", "RIVERRUN_HUB_TOKEN"]),
            (None, false, vec!["check the name", "RIVERRUN_HUB_TOKEN", "https://hub/o/r"]),
            (Some("Other"), true, vec!["a valid token", "RIVERRUN_HUB_TOKEN", "https://hub/o/r"]),
        ] {
            let fix = access_fix("https://hub/o/r", code, sent);
            assert!(wanted.iter().all(|part| fix.contains(part)), "{code:?} {sent}: {fix}");
            assert!(!fix.contains("models pull"), "{fix}");
        }
    }

    #[test]
    fn given_headers_when_the_hubs_word_is_read_then_only_a_word_counts() {
        let of = |word: &str| {
            let headers = HeaderMap::from_iter([(
                reqwest::header::HeaderName::from_static("x-error-code"),
                HeaderValue::from_str(word).unwrap(),
            )]);
            error_code(&headers).map(str::to_owned)
        };
        assert_eq!(of("GatedRepo").as_deref(), Some("GatedRepo"));
        assert_eq!((of(""), of("two words"), of(&"x".repeat(41))), (None, None, None));
        assert_eq!(error_code(&HeaderMap::new()), None);
    }
}
