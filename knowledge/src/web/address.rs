//! Which addresses are of the public internet. Pure.
//!
//! After the special-purpose registries of IANA (RFC 6890): <https://www.iana.org/assignments/iana-ipv4-special-registry>
//! and <https://www.iana.org/assignments/iana-ipv6-special-registry>. An IPv6 address that carries an IPv4 one is judged
//! by the one inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is, when it is not of the public internet; the words stand in errors.
pub(super) fn kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    match (a, b, c, d) {
        (169, 254, 169, 254) | (169, 254, 170, 2 | 23) | (100, 100, 100, 200) | (192, 0, 0, 192) => {
            Some("a cloud metadata address")
        }
        (168, 63, 129, 16) => Some("a cloud metadata address"),
        (0, ..) => Some("this host"),
        (127, ..) => Some("loopback"),
        (10, ..) | (192, 168, ..) => Some("private"),
        (172, 16..=31, ..) => Some("private"),
        (169, 254, ..) => Some("link-local"),
        (100, 64..=127, ..) => Some("shared (carrier-grade NAT)"),
        (192, 0, 0, _) => Some("reserved"),
        (192, 0, 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => Some("for documentation"),
        (192, 88, 99, _) => Some("a 6to4 relay"),
        (198, 18 | 19, ..) => Some("for benchmarks"),
        (224..=239, ..) => Some("multicast"),
        (240..=255, ..) => Some("reserved"),
        _ => None,
    }
}

fn kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inside) = embedded(address) {
        return kind_v4(inside);
    }
    let [a, b, ..] = address.segments();
    match (a, b) {
        _ if address.is_unspecified() => Some("this host"),
        _ if address.is_loopback() => Some("loopback"),
        _ if address.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => Some("a cloud metadata address"),
        (0xfc00..=0xfdff, _) => Some("private"),
        (0xfe80..=0xfebf, _) => Some("link-local"),
        (0xfec0..=0xfeff, _) => Some("site-local"),
        (0xff00..=0xffff, _) => Some("multicast"),
        // Relayed and translated to who knows where; nothing public needs them.
        (0x2001, 0) => Some("a Teredo address"),
        (0x64, 0xff9b) => Some("a translated address of local use"),
        (0x2001, 0xdb8) | (0x3fff, 0..=0xfff) => Some("for documentation"),
        (0x2001, 0x2) => Some("for benchmarks"),
        (0x2001, 0x10..=0x3f) => Some("an overlay address"),
        (0x100, 0) | (0x5f00, _) => Some("reserved"),
        (0x2000..=0x3fff, _) => None,
        _ => Some("reserved"),
    }
}

/// The IPv4 address inside: mapped, compatible, translated (`::ffff:0:0:0/96`, NAT64 `64:ff9b::/96`), 6to4, ISATAP.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([w, x], [y, z]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(w, x, y, z)
    };
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) | (0, 0, 0, 0, 0xffff, 0) | (0x64, 0xff9b, 0, 0, 0, 0) => Some(v4(g, h)),
        (0, 0, 0, 0, 0, 0) if g != 0 => Some(v4(g, h)),
        (0x2002, ..) => Some(v4(b, c)),
        (.., 0 | 0x200, 0x5efe) => Some(v4(g, h)),
        _ => None,
    }
}
