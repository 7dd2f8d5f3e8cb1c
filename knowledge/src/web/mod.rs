//! The one way out: every request to a host that a document, a model or a tool definition names goes through
//! [`GuardedClient`].
//!
//! - `WEB-1` only http and https, without credentials in the URL; no cookies, no proxy, no referrer.
//! - `WEB-2` the address that was checked is the address that is connected to: the client resolves names itself and hands
//!   the connector only what passed, so that a second answer of a name server changes nothing.
//! - `WEB-3` every redirect is a new request with every check; a caller's headers do not follow to another origin.
//! - `WEB-4` time, bytes and redirects are limited; compressed bodies are not opened.

mod address;
mod client;
mod error;
mod policy;
mod resolve;
mod text;

#[cfg(test)]
mod tests;

pub use client::{FetchLimits, Fetched, GuardedClient, WebMethod, WebRequest};
pub use error::WebError;
pub use policy::{WebPolicy, WebPolicyError};
pub use resolve::{Lookup, SystemLookup};
pub use text::{decoded, readable};
