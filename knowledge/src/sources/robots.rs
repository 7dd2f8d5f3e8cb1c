//! What a site allows crawlers to read, by RFC 9309 (Robots Exclusion Protocol).
//!
//! `ROBOTS-1` a page that `/robots.txt` disallows is never asked for by a crawl, that is where links or a sitemap are followed. A page
//! that somebody named alone is no crawl.

use url::Url;

/// The product token that rules are looked up by.
const AGENT: &str = "riverrun";
/// Bytes of the file that are read, as the RFC wants at least; what is behind them counts for nothing.
const MAX_BYTES: usize = 500 << 10;
/// Rules that are kept; those behind them count for nothing.
const MAX_RULES: usize = 10_000;

/// Why a page may not be read.
pub(super) enum Verdict {
    /// It may.
    Allowed,
    /// This rule is against it.
    Disallowed(String),
    /// The rules could not be read, which means that nothing may be.
    Unknown(String),
}

/// The rules of one site.
pub(super) enum Robots {
    /// Those that are for us.
    Rules(Vec<Rule>),
    /// The site has some and does not give them now.
    Unreachable(String),
}

/// A pattern and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    allow: bool,
    pattern: String,
}

impl Robots {
    /// The rules after what a server answered with that status.
    pub(super) fn answered(status: u16, body: &[u8]) -> Self {
        match status {
            200..300 => Self::Rules(rules(&String::from_utf8_lossy(&body[..body.len().min(MAX_BYTES)]))),
            // There are none: everything is allowed.
            400..500 => Self::Rules(Vec::new()),
            _ => Self::Unreachable(format!("answered with status {status}")),
        }
    }

    /// Whether the page may be read: the longest pattern that fits decides, and of two as long the one that allows.
    pub(super) fn verdict(&self, url: &Url) -> Verdict {
        let rules = match self {
            Self::Rules(rules) => rules,
            Self::Unreachable(reason) => return Verdict::Unknown(reason.clone()),
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let fitting = rules.iter().filter(|rule| fits(&rule.pattern, &path));
        match fitting.max_by_key(|rule| (rule.pattern.len(), rule.allow)) {
            Some(rule) if !rule.allow && path != "/robots.txt" => Verdict::Disallowed(rule.pattern.clone()),
            Some(_) | None => Verdict::Allowed,
        }
    }
}

/// The rules of the groups that name us, or else of those for everyone.
fn rules(text: &str) -> Vec<Rule> {
    let (mut own, mut common): (Vec<Rule>, Vec<Rule>) = (Vec::new(), Vec::new());
    let (mut for_us, mut for_all, mut named) = (false, false, false);
    // Whether the lines before this one named agents: then this one names a further one of the same group.
    let mut in_names = false;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key.eq_ignore_ascii_case("user-agent") {
            if !in_names {
                (for_us, for_all) = (false, false);
            }
            in_names = true;
            let product =
                value.split(|c: char| !(c.is_ascii_alphabetic() || "-_*".contains(c))).next().unwrap_or_default();
            for_us |= product.eq_ignore_ascii_case(AGENT);
            for_all |= product == "*";
            named |= for_us;
            continue;
        }
        let allow = key.eq_ignore_ascii_case("allow");
        if !allow && !key.eq_ignore_ascii_case("disallow") {
            continue;
        }
        in_names = false;
        // A rule without a pattern says nothing.
        if value.is_empty() || own.len() + common.len() >= MAX_RULES {
            continue;
        }
        let rule = Rule { allow, pattern: encoded(value) };
        if for_us {
            own.push(rule);
        } else if for_all {
            common.push(rule);
        }
    }
    if named { own } else { common }
}

/// As addresses write it: what is beyond ASCII in hexadecimal.
fn encoded(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len());
    for byte in pattern.bytes() {
        if byte.is_ascii() { text.push(char::from(byte)) } else { text.push_str(&format!("%{byte:02X}")) }
    }
    text
}

/// Whether a pattern, in which `*` stands for anything and a `$` at the end for the end, fits the beginning of a path. Each part is
/// looked for once, so that no pattern takes long.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let parts: Vec<&str> = pattern.split('*').collect();
    let (Some((first, others)), mut rest) = (parts.split_first(), path) else { return false };
    let Some(behind) = rest.strip_prefix(first) else { return false };
    rest = behind;
    let Some((last, middle)) = others.split_last() else { return !whole || rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    if whole { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(robots: &str, path: &str) -> bool {
        let url = Url::parse("https://h/").unwrap().join(path).unwrap();
        matches!(Robots::answered(200, robots.as_bytes()).verdict(&url), Verdict::Allowed)
    }

    #[test]
    fn given_patterns_when_paths_are_matched_then_stars_and_ends_mean_what_the_rfc_says() {
        for (pattern, path, fit) in [
            ("/", "/a", true),
            ("/fish", "/fish", true),
            ("/fish", "/fishheads/y.html?x", true),
            ("/fish", "/Fish", false),
            ("/fish*", "/fish/x", true),
            ("/*.php", "/a/b.php?x=1", true),
            ("/*.php", "/a", false),
            ("/*.php$", "/a.php", true),
            ("/*.php$", "/a.php?x", false),
            ("/fish*.php", "/fish/x/y.php", true),
            ("/fish*.php", "/x/fish.php", false),
            ("/a$", "/a", true),
            ("/a$", "/ab", false),
            ("/a*b*c$", "/axbxcxc", true),
            ("*", "/", true),
        ] {
            assert_eq!(fits(pattern, path), fit, "{pattern} {path}");
        }
    }

    #[test]
    fn given_rules_when_a_page_is_looked_up_then_the_longest_decides_and_our_group_before_the_common_one() {
        let robots = "\u{feff}User-agent: *\nDisallow: /private # not this\nAllow: /private/open\n\nUSER-AGENT: other\nUser-agent: Riverrun/1.0\nDisallow: /only/us\nAllow: /only/us/a\nDisallow: /only/us/a\nDisallow:\nSitemap: https://h/s.xml\n";
        assert!(allowed(robots, "/private/x"), "another group is for us");
        assert!(!allowed(robots, "/only/us/b") && allowed(robots, "/only/us/a"), "as long: the one that allows");
        let common =
            "User-agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /*?secret=\nDisallow: /caf\u{e9}";
        assert!(!allowed(common, "/private/x") && allowed(common, "/private/open/x") && allowed(common, "/"));
        assert!(!allowed(common, "/a?secret=1") && !allowed(common, "/caf\u{e9}/x"));
        assert!(!allowed("user-agent: *\ndisallow: /", "/a") && allowed("user-agent: *\ndisallow: /", "/robots.txt"));
        for open in
            ["", "Disallow: /", "User-agent: other\nDisallow: /", "<html>no rules</html>", "User-agent: *\nDisallow:"]
        {
            assert!(allowed(open, "/a"), "{open:?}");
        }
    }

    #[test]
    fn given_answers_of_servers_when_they_are_no_rules_then_missing_ones_allow_and_broken_ones_do_not() {
        let page = Url::parse("https://h/a").unwrap();
        let verdict = |status| Robots::answered(status, b"User-agent: *\nDisallow: /").verdict(&page);
        assert!(matches!(verdict(200), Verdict::Disallowed(rule) if rule == "/"));
        assert!(matches!(verdict(404), Verdict::Allowed) && matches!(verdict(403), Verdict::Allowed));
        assert!(matches!(verdict(500), Verdict::Unknown(_)) && matches!(verdict(503), Verdict::Unknown(_)));
    }
}
