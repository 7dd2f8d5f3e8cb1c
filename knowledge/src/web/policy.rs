//! What may be fetched: which URLs, and which addresses beyond the public internet.

use std::net::IpAddr;
use std::str::FromStr;

use url::{Host, Url};

use super::address;
use super::error::WebError;

/// Longest URL, in bytes.
const MAX_URL: usize = 8_192;

/// Exceptions from the rule that only addresses of the public internet are connected to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebPolicy {
    allowed: Vec<Allowed>,
}

/// Hosts or addresses that the operator opened.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Allowed {
    /// A name, whatever it resolves to.
    Host(String),
    /// Addresses whose first `bits` are these.
    Net { base: IpAddr, bits: u8 },
}

/// An entry of the list is neither a host nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is neither a host name, an address nor a network such as 10.0.0.0/8")]
pub struct WebPolicyError {
    entry: String,
}

impl FromStr for WebPolicy {
    type Err = WebPolicyError;

    /// Host names, addresses and networks (`10.0.0.0/8`, `fd00::/8`), separated by commas.
    fn from_str(text: &str) -> Result<Self, WebPolicyError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(Allowed::parse).collect::<Result<_, _>>().map(|allowed| Self { allowed })
    }
}

impl Allowed {
    fn parse(entry: &str) -> Result<Self, WebPolicyError> {
        let wrong = || WebPolicyError { entry: entry.chars().take(80).collect() };
        let (base, bits) = match entry.split_once('/') {
            Some((base, bits)) => (base, Some(bits)),
            None => (entry, None),
        };
        let base = base.trim_start_matches('[').trim_end_matches(']');
        if let Ok(base) = base.parse::<IpAddr>() {
            let whole = if base.is_ipv4() { 32 } else { 128 };
            let bits = match bits {
                Some(bits) => bits.parse().ok().filter(|bits| *bits <= whole).ok_or_else(wrong)?,
                None => whole,
            };
            return Ok(Allowed::Net { base, bits });
        }
        let is_name = entry.len() <= 253
            && entry.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_')
            && entry.bytes().any(|b| b.is_ascii_alphabetic());
        if is_name { Ok(Allowed::Host(host_name(entry))) } else { Err(wrong()) }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Allowed::Net { base: IpAddr::V4(base), bits }, IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
                (u32::from(*base) ^ u32::from(address)) & mask == 0
            }
            (Allowed::Net { base: IpAddr::V6(base), bits }, IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(*bits)).unwrap_or(0);
                (u128::from(*base) ^ u128::from(address)) & mask == 0
            }
            _ => false,
        }
    }
}

/// A host name in the one form in which names are compared.
fn host_name(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

impl WebPolicy {
    /// A URL that may be asked for, as far as can be said before its name is resolved.
    ///
    /// # Errors
    /// When it is no http or https URL, carries credentials, or names an address that is not open.
    pub fn check_url(&self, text: &str) -> Result<Url, WebError> {
        if text.len() > MAX_URL {
            return Err(WebError::BadUrl {
                url: shown(text),
                reason: format!("it has {} bytes, at most {MAX_URL} are read", text.len()),
            });
        }
        let url = Url::parse(text.trim())
            .map_err(|error| WebError::BadUrl { url: shown(text), reason: error.to_string() })?;
        self.check(&url)?;
        Ok(url)
    }

    /// The same for a URL that is parsed already, such as the target of a redirect.
    pub(super) fn check(&self, url: &Url) -> Result<(), WebError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebError::Scheme { scheme: url.scheme().chars().take(40).collect() });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(WebError::Credentials { host: url.host_str().unwrap_or_default().to_owned() });
        }
        match url.host() {
            None => Err(WebError::BadUrl { url: shown(url.as_str()), reason: "it names no host".to_owned() }),
            Some(Host::Domain(name)) if name.is_empty() => {
                Err(WebError::BadUrl { url: shown(url.as_str()), reason: "it names no host".to_owned() })
            }
            Some(Host::Domain(_)) => Ok(()),
            Some(Host::Ipv4(address)) => self.check_address(&address.to_string(), address.into()),
            Some(Host::Ipv6(address)) => self.check_address(&address.to_string(), address.into()),
        }
    }

    /// Whether a connection to an address, found under a host's name, may be made.
    pub(super) fn check_address(&self, host: &str, address: IpAddr) -> Result<(), WebError> {
        let Some(kind) = address::kind(address) else { return Ok(()) };
        let name = host_name(host);
        let open = self.allowed.iter().any(|allowed| match allowed {
            Allowed::Host(open) => *open == name,
            Allowed::Net { .. } => allowed.has_address(address),
        });
        if open { Ok(()) } else { Err(WebError::Address { host: host.chars().take(253).collect(), address, kind }) }
    }
}

/// A URL as errors show it: without credentials and query, which may hold secrets, and not longer than people read.
pub(super) fn shown(text: &str) -> String {
    let without_query = text.split(['?', '#']).next().unwrap_or_default();
    let cut: String = match (without_query.find("://"), without_query.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}***{}", &without_query[..scheme + 3], &without_query[at..])
        }
        _ => without_query.to_owned(),
    };
    cut.chars().filter(|c| !c.is_control()).take(200).collect()
}
