//! From where the API may be spoken to: names of hosts, and origins of pages. Both are compared with what browsers send, letter by letter,
//! so that one in another form would stand there and let nobody in.

use std::net::{IpAddr, Ipv6Addr};

use super::{Values, wrong};
use crate::error::CliError;

const HOSTS: &str = "RIVERRUN_API_ALLOWED_HOSTS";
const ORIGINS: &str = "RIVERRUN_API_ALLOWED_ORIGINS";

/// Names and addresses without a port, since a request may come by any.
pub(super) fn hosts(values: &Values) -> Result<Vec<String>, CliError> {
    let hosts = values.list(HOSTS);
    match hosts.iter().find(|host| !is_name(host) && host.parse::<IpAddr>().is_err()) {
        Some(other) => {
            Err(wrong(HOSTS, other, "a host's name or address, without scheme, port and wildcard (runs.example)"))
        }
        None => Ok(hosts),
    }
}

/// Origins as browsers write them, which is in small letters.
pub(super) fn origins(values: &Values) -> Result<Vec<String>, CliError> {
    let origins = values.list(ORIGINS);
    match origins.iter().find(|origin| !is_origin(origin)) {
        Some(other) => Err(wrong(
            ORIGINS,
            other,
            "scheme://host[:port] as browsers write it: without path, wildcard and the port that is the scheme's own (https://runs.example)",
        )),
        None => Ok(origins.iter().map(|origin| origin.to_ascii_lowercase()).collect()),
    }
}

/// `scheme://host[:port]` (RFC 6454, 6.2).
fn is_origin(origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    // The colons of an address of IPv6 stand in brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let usual = match scheme.to_ascii_lowercase().as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let is_port = port.is_none_or(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| Some(port) != usual)
    });
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    is_scheme && is_port && address.map_or_else(|| is_name(host), |address| address.parse::<Ipv6Addr>().is_ok())
}

/// The letters of a name as it comes over the wire: others are written with these (RFC 3492).
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::error::Exit;

    fn values(name: &str, value: &str) -> Values {
        Values::new(BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn given_hosts_and_origins_when_they_are_read_then_those_that_can_match_are_taken_and_others_are_told_with_the_form()
     {
        for value in ["runs.example", "api, Runs_2.example", "10.0.0.7,fe80::1", "xn--bcher-kva.example", "", ","] {
            hosts(&values(HOSTS, value)).unwrap_or_else(|error| panic!("{value:?}: {error:?}"));
        }
        for value in
            ["a b", "https://runs.example", "runs.example:8000", "*", "*.example", "[fe80::1]", "bücher.example", "a/b"]
        {
            let error = hosts(&values(HOSTS, &format!("runs.example,{value}"))).expect_err(value);
            let told = error.message.contains(HOSTS) && error.message.contains(&format!("{value:?}"));
            assert!(told && error.exit == Exit::Usage && error.hint.is_some(), "{error:?}");
        }
        for value in [
            "https://console.example",
            "http://localhost:3000, HTTPS://Console.Example:8443",
            "http://[fe80::1]",
            "http://[fe80::1]:3000,http://10.0.0.7:81",
            "chrome-extension://abcdefgh",
            "https://runs.example:80",
            "",
        ] {
            origins(&values(ORIGINS, value)).unwrap_or_else(|error| panic!("{value:?}: {error:?}"));
        }
        for value in [
            "x",
            "*",
            "null",
            "console.example",
            "https://",
            "://console.example",
            "https://*.example",
            "https://console.example/",
            "https://console.example/app",
            "https://console.example:443",
            "http://console.example:80",
            "https://console.example:",
            "https://console.example:99999",
            "https://ann@console.example",
            "https://a b",
            "https://fe80::1",
            "https://bücher.example",
        ] {
            let error = origins(&values(ORIGINS, &format!("https://runs.example,{value}"))).expect_err(value);
            let told = error.message.contains(ORIGINS) && error.message.contains(&format!("{value:?}"));
            assert!(told && error.message.contains("scheme://host[:port]") && error.exit == Exit::Usage, "{error:?}");
        }
    }
}
