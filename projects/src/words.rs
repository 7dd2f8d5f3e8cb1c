//! Words that a text may begin with, however many there are, and however much alike.

use std::collections::HashSet;

/// First bytes by which it is told that a text begins with none.
const HEAD: usize = 8;

/// Words that a text is looked through for: of those that begin at a place the longest counts. There may be very many, as in a file with
/// the passwords of all users, which may begin alike, and a report has thousands of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) all: Vec<String>,
    /// Their numbers, in the order of their texts.
    sorted: Vec<usize>,
    /// Of each in that order the longest other one that it begins with, by its place there.
    within: Vec<Option<usize>>,
    /// How they begin.
    heads: HashSet<[u8; HEAD]>,
    /// Whether one is shorter than a head.
    has_short: bool,
}

impl Words {
    /// Those and no others: each once.
    pub(crate) fn of(all: Vec<String>) -> Self {
        let mut sorted: Vec<usize> = (0..all.len()).collect();
        sorted.sort_by_key(|number| all[*number].as_str());
        let mut within = Vec::with_capacity(sorted.len());
        let mut open: Vec<usize> = Vec::new();
        for (place, number) in sorted.iter().enumerate() {
            let word = all[*number].as_str();
            while open.last().is_some_and(|outer| !word.starts_with(all[sorted[*outer]].as_str())) {
                open.pop();
            }
            within.push(open.last().copied());
            open.push(place);
        }
        let heads = all.iter().filter_map(|word| word.as_bytes().first_chunk::<HEAD>().copied()).collect();
        let has_short = all.iter().any(|word| word.len() < HEAD);
        Self { all, sorted, within, heads, has_short }
    }

    /// The same with the longest first, each once. One may be a part of another.
    pub(crate) fn longest_first<'s>(words: impl Iterator<Item = &'s str>) -> Self {
        let mut all: Vec<String> = words.map(str::to_owned).collect();
        all.sort_by(|a, b| (b.len(), a).cmp(&(a.len(), b)));
        all.dedup();
        Self::of(all)
    }

    /// The number of the longest word with which a text begins.
    pub(crate) fn at(&self, text: &str) -> Option<usize> {
        let is_begun = text.as_bytes().first_chunk::<HEAD>().is_some_and(|head| self.heads.contains(head));
        if !is_begun && !self.has_short {
            return None;
        }
        // What a text begins with is the last word in front of it, or what that begins with.
        let behind = self.sorted.partition_point(|number| self.all[*number].as_str() <= text);
        let mut place = behind.checked_sub(1)?;
        loop {
            let number = self.sorted[place];
            if text.starts_with(self.all[number].as_str()) {
                return Some(number);
            }
            place = self.within[place]?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_words_within_each_other_when_a_text_begins_with_some_then_the_longest_is_found_and_no_word_beside_it() {
        let words = Words::longest_first(["get_", "get_all_", "get_all_of_", "visit_", "x", "get_"].into_iter());
        assert_eq!(words.all, ["get_all_of_", "get_all_", "visit_", "get_", "x"]);
        let found = |text: &str| words.at(text).map(|number| words.all[number].as_str());
        for (text, expected) in [
            ("get_all_of_them", Some("get_all_of_")),
            ("get_all_ofthem", Some("get_all_")),
            ("get_alone", Some("get_")),
            ("get_zebra", Some("get_")),
            ("xvisit_", Some("x")),
            ("ge", None),
            ("a", None),
            ("zz", None),
            ("", None),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
        assert_eq!(Words::of(Vec::new()).at("x"), None);
    }
}
