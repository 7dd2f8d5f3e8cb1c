use std::net::IpAddr;
use std::time::Duration;

/// Why nothing was fetched. Messages name hosts and rules, never a query, a header or a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// Not a URL.
    #[error("{url:?} is no usable url: {reason}")]
    BadUrl {
        /// Without query.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// Another scheme than http and https.
    #[error("scheme {scheme:?} is not fetched, only http and https are")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// A user name or password stands in the URL.
    #[error("the url of {host} carries a user name or password, which urls must not")]
    Credentials {
        /// The host.
        host: String,
    },
    /// The address is not of the public internet and was not opened.
    #[error("{host} is at {address}, which is {kind}: only addresses of the public internet are connected to")]
    Address {
        /// The host asked for.
        host: String,
        /// Where it is.
        address: IpAddr,
        /// What that is.
        kind: &'static str,
    },
    /// The name does not resolve.
    #[error("host {host} can't be found: {reason}")]
    NotFound {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// One redirect too many.
    #[error("more than {limit} redirects")]
    Redirects {
        /// The limit.
        limit: usize,
    },
    /// A redirect without a usable target.
    #[error("a redirect leads to no url")]
    BadRedirect,
    /// The body is larger than allowed.
    #[error("the answer has more than {limit} bytes, which is the limit")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The body is compressed although that was not asked for: it is not opened.
    #[error("the answer is coded as {coding:?} although only plain ones are taken")]
    Coded {
        /// The coding.
        coding: String,
    },
    /// It took longer than allowed.
    #[error("no complete answer within {} ms", .limit.as_millis())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The connection failed.
    #[error("{host} does not answer: {reason}")]
    Connection {
        /// The host.
        host: String,
        /// Why.
        reason: String,
        /// It was there: the request, or a part of it, may have been read.
        may_have_sent: bool,
    },
}

impl WebError {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        match self {
            WebError::BadUrl { .. } => "bad_url",
            WebError::Scheme { .. } => "scheme_not_allowed",
            WebError::Credentials { .. } => "credentials_in_url",
            WebError::Address { .. } => "address_not_allowed",
            WebError::NotFound { .. } => "host_not_found",
            WebError::Redirects { .. } | WebError::BadRedirect => "bad_redirect",
            WebError::TooLarge { .. } => "answer_too_large",
            WebError::Coded { .. } => "answer_coded",
            WebError::TimedOut { .. } => "timed_out",
            WebError::Connection { .. } => "no_connection",
        }
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            WebError::Address { host, .. } => Some(format!(
                "RIVERRUN_WEB_ALLOW={host} opens it, if that is meant, where the ingester or the tool runs"
            )),
            WebError::Credentials { .. } => Some("give credentials in a header of a tool definition".to_owned()),
            _ => None,
        }
    }

    /// Whether the server may have done what was asked without having said so.
    pub fn leaves_outcome_unknown(&self) -> bool {
        match self {
            WebError::TimedOut { .. } => true,
            WebError::Connection { may_have_sent, .. } => *may_have_sent,
            WebError::BadUrl { .. }
            | WebError::Scheme { .. }
            | WebError::Credentials { .. }
            | WebError::Address { .. }
            | WebError::NotFound { .. }
            | WebError::Redirects { .. }
            | WebError::BadRedirect
            | WebError::TooLarge { .. }
            | WebError::Coded { .. } => false,
        }
    }

    /// Whether the same request may succeed later.
    pub fn retryable(&self) -> bool {
        matches!(self, WebError::TimedOut { .. } | WebError::Connection { .. } | WebError::NotFound { .. })
    }
}
