//! Who may do what: bearer tokens with scopes and namespaces, the login of the web pages, limits of rate, and the record of
//! who did what.
//!
//! - `ACCESS-1` one middleware ([`check`]) decides about every request, by the scope that [`operations`] gives its
//!   operation. An operation that is not listed there is for operators only, and a test fails until it is.
//! - `ACCESS-2` a token that is bound to namespaces gets nothing of another: every namespace that a request names passes
//!   [`caller`], and an answer for which none was looked at is not given.
//! - `ACCESS-3` tokens are kept as hashes, and no token is ever logged.

pub(crate) mod caller;
pub(crate) mod check;
pub(crate) mod limits;
pub(crate) mod operations;
pub mod scope;
pub(crate) mod session;
pub(crate) mod store;
pub mod token_file;
pub mod tokens;

pub use check::permitted;

use std::path::PathBuf;

use crate::config::ApiConfig;
use limits::RateLimits;
use store::TokenStore;

/// The tokens and the limits of a process.
pub(crate) struct Access {
    pub(crate) tokens: TokenStore,
    pub(crate) limits: RateLimits,
}

impl Access {
    pub(crate) fn new(config: &ApiConfig) -> Self {
        let file: Option<PathBuf> = config.tokens_file.clone();
        Self {
            tokens: TokenStore::new(config.tokens.clone(), file),
            limits: RateLimits::new(config.rate_per_token, config.rate_per_namespace),
        }
    }
}
