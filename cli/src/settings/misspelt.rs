//! Variables that were meant for settings and are none: nothing reads them, and nothing would say so.
//!
//! Only a name that is near a setting's is told. Others belong to somebody: to scripts and tests of ours, to those of the operator, or to
//! a platform, as what Kubernetes hands to every pod beside a service (`…_SERVICE_HOST`). A warning at each start that nobody can act on
//! would teach people to overlook the one that matters.

use std::collections::BTreeSet;

use riverrun_api::config::Misspelt;
use riverrun_knowledge::sources::SECRET_PREFIX;

use super::{KAFKA_PREFIX, PREFIX, files};

/// Letters left out, added, changed or swapped with their neighbour: more make another name.
const MAX_EDITS: usize = 2;

/// Those of the names that are no settings, by name. `known` are the settings.
pub(super) fn find<'n>(names: impl IntoIterator<Item = &'n str>, known: &BTreeSet<String>) -> Vec<Misspelt> {
    names.into_iter().filter_map(|name| Some(Misspelt { name: name.to_owned(), meant: meant(name, known)? })).collect()
}

/// The setting that a name was most likely meant for; none for a setting, and for what is near none.
fn meant(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let is_known = |name: &str| known.contains(name);
    // What comes behind these is whatever it is called; the client of Kafka refuses what it does not know.
    let is_free = [SECRET_PREFIX, KAFKA_PREFIX].iter().any(|start| name.starts_with(start));
    if is_free || is_known(name) || files::held_by(name).is_some_and(is_known) {
        return None;
    }
    nearest(name, known)
}

/// The setting whose name is nearest to this one, which is none.
pub(super) fn nearest(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let own = name.strip_prefix(PREFIX)?;
    let by_file =
        known.iter().map(|setting| files::name_of(setting)).filter(|by_file| files::held_by(by_file).is_some());
    let candidates = known.iter().cloned().chain(by_file);
    let near = candidates.filter_map(|setting| Some((distance(own, setting.strip_prefix(PREFIX)?)?, setting)));
    near.min().map(|(_, setting)| setting)
}

/// How far a name is from a setting's, without what all begin with; none when it is another name.
fn distance(name: &str, setting: &str) -> Option<usize> {
    let edits = edits(name.as_bytes(), setting.as_bytes());
    // Two letters of a short name are most of it.
    if edits <= MAX_EDITS && edits * 3 <= setting.len() {
        return Some(edits);
    }
    lacks_a_word(name, setting).then_some(MAX_EDITS + 1)
}

/// Whether a name is the setting's without one of its words. A single word is no name yet: what is one of several settings' is none's.
fn lacks_a_word(name: &str, setting: &str) -> bool {
    let (name, setting): (Vec<&str>, Vec<&str>) = (name.split('_').collect(), setting.split('_').collect());
    let without = |left_out: usize| {
        let rest = setting.iter().enumerate().filter(|(at, _)| *at != left_out);
        rest.map(|(_, word)| *word).eq(name.iter().copied())
    };
    name.len() > 1 && (0..setting.len()).any(without)
}

/// The fewest letters to leave out, add, change or swap with their neighbour that make one text the other (optimal string alignment).
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in b.iter().enumerate() {
            let changed = above[j] + usize::from(letter != other);
            let mut fewest = changed.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == b[j - 1] && a[i - 1] == *other {
                fewest = fewest.min(before[j - 1] + 1);
            }
            row.push(fewest);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that begins like a setting's.
    fn name(own: &str) -> String {
        format!("{PREFIX}{own}")
    }

    fn known() -> BTreeSet<String> {
        [
            "API_PORT",
            "API_TOKEN",
            "API_TOKENS",
            "DATA_DIR",
            "KAFKA_BROKERS",
            "LOG",
            "MODELS_DIR",
            "OPENAI_API_KEY",
            "DEFAULT_EMBED_MODEL",
        ]
        .map(name)
        .into()
    }

    #[test]
    fn given_two_texts_when_they_are_compared_then_the_fewest_changes_count_and_swapped_neighbours_are_one() {
        for (a, b, wanted) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("port", "port", 0),
            ("prot", "port", 1),
            ("ports", "port", 1),
            ("part", "port", 1),
            ("kitten", "sitting", 3),
            ("ca", "abc", 3),
        ] {
            assert_eq!(edits(a.as_bytes(), b.as_bytes()), wanted, "{a} {b}");
        }
    }

    #[test]
    fn given_names_that_were_meant_for_settings_when_they_are_looked_at_then_the_nearest_setting_is_named() {
        for (given, wanted) in [
            ("API_PROT", "API_PORT"),
            ("API_PORTS", "API_PORT"),
            ("APIPORT", "API_PORT"),
            ("API_TOKNE", "API_TOKEN"),
            ("DATADIR", "DATA_DIR"),
            ("MODEL_DIR", "MODELS_DIR"),
            ("OPENAI_KEY", "OPENAI_API_KEY"),
            ("OPENIA_API_KEY", "OPENAI_API_KEY"),
            ("OPENIA_API_KEY_FILE", "OPENAI_API_KEY_FILE"),
            ("EMBED_MODEL", "DEFAULT_EMBED_MODEL"),
            ("LGO", "LOG"),
        ] {
            let found = find([name(given).as_str()], &known());
            assert_eq!(found, [Misspelt { name: name(given), meant: name(wanted) }]);
            let told = found[0].to_string();
            assert!(
                told.contains(&name(given)) && told.ends_with(&format!("did you mean {}?", name(wanted))),
                "{told}"
            );
        }
    }

    #[test]
    fn given_settings_and_what_belongs_to_others_when_they_are_looked_at_then_nothing_is_told() {
        let settings = known();
        assert!(find(settings.iter().map(String::as_str), &settings).is_empty());
        for other in [
            "API_TOKEN_FILE",
            "OPENAI_API_KEY_FILE",
            "SOURCE_SHOP",
            "SOURCE_API_PORT",
            "KAFKA_BROKER",
            "KAFKA_SASL_PASSWORD_FILE",
            "BIN",
            "URL",
            "PORT",
            "SCREENSHOTS",
            "TEST_KAFKA",
            "TEST_API_PORT",
            "SERVICE_HOST",
            "SERVICE_PORT_API",
            "PORT_8000_TCP_ADDR",
            "",
            "ÄÖÜ",
        ] {
            assert!(find([name(other).as_str()], &settings).is_empty(), "{other}");
        }
    }
}
