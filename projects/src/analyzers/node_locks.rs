//! Lock files of JavaScript: npm's of each version, Yarn's (classic and later), pnpm's and Bun's (since 1.2, when it became a text).

use serde_json::{Map, Value};

use super::packages::{Named, places};

const ECOSYSTEM: &str = "npm";

/// `packages` by their folder (npm 7 and later), else `dependencies` within each other.
pub(super) fn npm(text: &str) -> Vec<Named> {
    let lock: Value = serde_json::from_str(text).unwrap_or_default();
    let places = places(text);
    let line = |key: &str| places.get(key).copied().unwrap_or(1);
    let mut found = Vec::new();
    match (lock["packages"].as_object(), lock["dependencies"].as_object()) {
        (Some(packages), _) => {
            for (place, one) in packages {
                let Some((_, name)) = place.rsplit_once("node_modules/") else { continue };
                let Some(version) = one["version"].as_str() else { continue };
                let licence = one["license"].as_str().map(str::to_owned);
                let name = one["name"].as_str().unwrap_or(name);
                found.push(Named { licence, ..package(name, version, line(place)) });
            }
        }
        (None, Some(dependencies)) => nested(dependencies, &line, &mut found),
        (None, None) => {}
    }
    found
}

fn nested(dependencies: &Map<String, Value>, line: &impl Fn(&str) -> usize, found: &mut Vec<Named>) {
    for (name, one) in dependencies {
        let version = one["version"].as_str().unwrap_or_default();
        let alias = version.strip_prefix("npm:").and_then(|real| split_behind_scope(real, '@'));
        let (real, version) = alias.unwrap_or((name.as_str(), version));
        found.extend(is_version(version).then(|| package(real, version, line(name))));
        if let Some(inner) = one["dependencies"].as_object() {
            nested(inner, line, found);
        }
    }
}

/// Heads that name what is wanted (`"a@^1", "a@^2":`), and below them the version that it is.
pub(super) fn yarn(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut head: Option<(&str, usize)> = None;
    for (index, line) in text.lines().enumerate() {
        if !line.starts_with([' ', '#']) {
            head = line.strip_suffix(':').map(|wanted| (wanted, index + 1));
            continue;
        }
        let Some((wanted, at)) = head else { continue };
        let Some(version) = line.strip_prefix("  version").map(|rest| rest.trim_matches([' ', ':', '"'])) else {
            continue;
        };
        let name = yarn_name(wanted.trim_start_matches('"'));
        found.extend(name.filter(|_| is_version(version)).map(|name| package(name, version, at)));
        head = None;
    }
    found
}

/// The package of a head: of `a@npm:b@^1` it is `b`. Parts of the project itself are none.
fn yarn_name(wanted: &str) -> Option<&str> {
    let first = wanted.split(['"', ',']).next()?;
    let (name, range) = split_behind_scope(first, '@')?;
    if range.starts_with("workspace:") {
        return None;
    }
    let alias = range.strip_prefix("npm:").and_then(|real| split_behind_scope(real, '@'));
    Some(alias.map_or(name, |(real, _)| real))
}

/// The keys of `packages`: `/a/1.0.0` (5), `/a@1.0.0` (6) or `a@1.0.0` (9), and what they were resolved with behind it.
pub(super) fn pnpm(text: &str) -> Vec<Named> {
    let version = text.lines().find_map(|line| line.strip_prefix("lockfileVersion:"));
    let separator = if version.is_some_and(|one| one.trim().trim_matches('\'').starts_with('5')) { '/' } else { '@' };
    let mut found = Vec::new();
    let mut is_inside = false;
    for (index, line) in text.lines().enumerate() {
        if !line.starts_with(' ') && !line.is_empty() {
            is_inside = line == "packages:";
        }
        let key = line.strip_prefix("  ").filter(|key| is_inside && !key.starts_with(' '));
        let Some(key) = key.and_then(|key| key.strip_suffix(':')) else { continue };
        let key = key.trim_matches('\'').trim_start_matches('/');
        let Some((name, rest)) = split_behind_scope(key, separator) else { continue };
        let version = rest.split(['(', '_']).next().unwrap_or_default();
        found.extend(is_version(version).then(|| package(name, version, index + 1)));
    }
    found
}

/// What each key of `packages` was resolved to stands first behind it: `a@1.0.0`, or `a@` and an address.
pub(super) fn bun(text: &str) -> Vec<Named> {
    let lock: Value = serde_json::from_str(&without_last_commas(text)).unwrap_or_default();
    let places = places(text);
    let named = |(key, one): (&String, &Value)| {
        let (name, version) = split_behind_scope(one[0].as_str()?, '@')?;
        let line = places.get(key.as_str()).copied().unwrap_or(1);
        is_version(version).then(|| package(name, version, line))
    };
    lock["packages"].as_object().into_iter().flatten().filter_map(named).collect()
}

/// JSON without the commas that Bun writes behind the last of a list.
fn without_last_commas(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let (mut is_quoted, mut is_escaped) = (false, false);
    // Where a comma stands that only blanks followed so far.
    let mut comma = None;
    for c in text.chars() {
        if is_quoted {
            is_quoted = is_escaped || c != '"';
            is_escaped = c == '\\' && !is_escaped;
        } else {
            match c {
                ',' => comma = Some(plain.len()),
                ']' | '}' => {
                    if let Some(at) = comma.take() {
                        plain.remove(at);
                    }
                }
                _ if c.is_whitespace() => {}
                _ => comma = None,
            }
            is_quoted = c == '"';
        }
        plain.push(c);
    }
    plain
}

/// Splits `a@b` and `@scope/a@b` at the first separator behind the name.
fn split_behind_scope(text: &str, separator: char) -> Option<(&str, &str)> {
    let begin = if text.starts_with('@') { text.find('/')? + 1 } else { 0 };
    let at = begin + text.get(begin..)?.find(separator)?;
    Some((&text[..at], &text[at + separator.len_utf8()..]))
}

/// Not an address or a path.
fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(['/', ' '])
}

fn package(name: &str, version: &str, line: usize) -> Named {
    Named { ecosystem: ECOSYSTEM, name: name.to_owned(), version: version.to_owned(), line, licence: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(found: &[Named]) -> Vec<(&str, &str, usize)> {
        found.iter().map(|one| (one.name.as_str(), one.version.as_str(), one.line)).collect()
    }

    #[test]
    fn given_lock_files_of_npm_of_each_version_when_they_are_read_then_packages_within_others_are_found() {
        let old = r#"{ "lockfileVersion": 1, "dependencies": {
"lodash": { "version": "4.17.20",
  "dependencies": {
"@a/b": { "version": "1.2.3" } } },
"c": { "version": "git+ssh://x/c.git#1" },
"d": { "version": "npm:@e/f@2.0.0" } } }"#;
        assert_eq!(seen(&npm(old)), [("lodash", "4.17.20", 2), ("@a/b", "1.2.3", 4), ("@e/f", "2.0.0", 6)]);
        let new = r#"{ "lockfileVersion": 2, "packages": {
"": { "name": "me", "version": "1.0.0" },
"node_modules/a/node_modules/@b/c": { "version": "1.0.0", "license": "MIT" } },
"dependencies": { "a": { "version": "9.0.0" } } }"#;
        let found = npm(new);
        assert_eq!((seen(&found), found[0].licence.as_deref()), (vec![("@b/c", "1.0.0", 3)], Some("MIT")));
        assert!(npm("no json").is_empty() && npm("{}").is_empty());
    }

    #[test]
    fn given_lock_files_of_yarn_when_they_are_read_then_names_are_without_ranges_and_aliases_are_what_they_stand_for() {
        let classic = "# yarn lockfile v1\n\n\"@a/b@^1.0.0\", \"@a/b@^1.2.0\":\n  version \"1.2.3\"\n  resolved \"https://x/b.tgz\"\n  dependencies:\n    version \"9\"\n\nlodash@^4.17.0, lodash@~4.17.1:\n  version \"4.17.20\"\n\nx@npm:@e/f@^2:\n  version \"2.0.0\"\n";
        assert_eq!(seen(&yarn(classic)), [("@a/b", "1.2.3", 3), ("lodash", "4.17.20", 9), ("@e/f", "2.0.0", 12)]);
        let later = "__metadata:\n  version: 6\n\n\"me@workspace:.\":\n  version: 0.0.0-use.local\n\n\"lodash@npm:^4.17.0, lodash@npm:~4.17.1\":\n  version: 4.17.20\n  resolution: \"lodash@npm:4.17.20\"\n";
        assert_eq!(seen(&yarn(later)), [("lodash", "4.17.20", 7)]);
    }

    #[test]
    fn given_lock_files_of_pnpm_of_each_version_when_they_are_read_then_only_what_is_installed_is_found() {
        for (text, expected) in [
            (
                "lockfileVersion: 5.4\n\npackages:\n\n  /lodash/4.17.20:\n    dev: true\n\n  /@a/b/1.2.3_c@1.0.0:\n    dev: false\n",
                vec![("lodash", "4.17.20", 5), ("@a/b", "1.2.3", 8)],
            ),
            (
                "lockfileVersion: '6.0'\n\npackages:\n\n  /@a/b@1.2.3(c@1.0.0):\n    dev: false\n",
                vec![("@a/b", "1.2.3", 5)],
            ),
            (
                "lockfileVersion: '9.0'\n\npackages:\n\n  '@a/b@1.2.3':\n    engines: {}\n\n  d@file:../d:\n    x: 1\n\nsnapshots:\n\n  e@1.0.0:\n    x: 1\n",
                vec![("@a/b", "1.2.3", 5)],
            ),
            ("", vec![]),
        ] {
            assert_eq!(seen(&pnpm(text)), expected, "{text}");
        }
    }

    #[test]
    fn given_a_lock_file_of_bun_when_it_is_read_then_packages_of_registries_are_found_and_parts_of_the_project_are_not()
    {
        let text = r#"{
  "lockfileVersion": 1,
  "workspaces": {
    "": {
      "name": "me",
      "dependencies": {
        "lodash": "^4.17.20",
      },
    },
  },
  "trustedDependencies": [
    "lodash",
  ],
  "packages": {
    "@a/b": ["@a/b@1.2.3", "", { "dependencies": { "lodash": "^3.0.0" }, "bin": { "b": "a,}b.js" } }, "sha512-x=="],

    "e": ["@d/f@2.0.0-rc.1", "https://registry.example/f.tgz", {}, "sha512-x=="],

    "g": ["g@github:o/g#0123abc", {}, "o-g-0123abc"],

    "lodash": ["lodash@4.17.20", "", {}, "sha512-x=="],

    "me": ["me@workspace:packages/me"],

    "@a/b/lodash": ["lodash@3.10.1", "", {}, "sha512-x=="],
  }
}
"#;
        let found = bun(text);
        let mut found = seen(&found);
        found.sort_unstable();
        let expected =
            [("@a/b", "1.2.3", 15), ("@d/f", "2.0.0-rc.1", 17), ("lodash", "3.10.1", 25), ("lodash", "4.17.20", 21)];
        assert_eq!(found, expected);
        assert!(
            bun("").is_empty() && bun("{\"packages\": {,}}").is_empty() && bun("{\"packages\": {\"a\": 1}}").is_empty()
        );
    }

    #[test]
    fn given_commas_when_those_behind_the_last_of_lists_are_taken_out_then_all_others_stay() {
        for (text, expected) in [
            ("[1, 2]", "[1, 2]"),
            ("[1,\n 2,\n]", "[1,\n 2\n]"),
            ("{\"a\": [1,], \"b\": {},}", "{\"a\": [1], \"b\": {}}"),
            (r#"[",]", "\\",]"#, r#"[",]", "\\"]"#),
            (r#"["\",]",]"#, r#"["\",]"]"#),
            ("[\"\u{fc}\",\u{a0}]", "[\"\u{fc}\"\u{a0}]"),
        ] {
            assert_eq!(without_last_commas(text), expected, "{text}");
        }
    }
}
