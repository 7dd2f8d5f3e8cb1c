//! Scripts that are written without spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese.
//!
//! A run of their characters is cut into overlapping pairs, as Lucene's `CJKBigramFilter` cuts Chinese and Japanese. Pairs need no
//! dictionary and are the same for ever, and a part of a run has pairs of the run only: what is searched for is found wherever
//! it stands. For Chinese they find about as well as words of a dictionary do (Nie, Gao, Zhang and Zhou, "On the Use of Words and
//! N-grams for Chinese Information Retrieval", IRAL 2000). Korean has spaces, and is cut at them.

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'t> {
    /// Words and what stands between them.
    Spaced(&'t str),
    /// Characters that have no spaces between their words.
    Run(&'t str),
}

/// The parts of a text in order; together they are the text.
pub fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let unspaced = is_unspaced(rest.chars().next()?);
        let end = rest.find(|c: char| is_unspaced(c) != unspaced).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        rest = behind;
        Some(if unspaced { Part::Run(part) } else { Part::Spaced(part) })
    })
}

/// Overlapping pairs of a run's characters, each with its first byte; one character alone is itself.
#[derive(Debug, Clone, Default)]
pub struct Pairs<'t> {
    run: &'t str,
    at: usize,
}

impl<'t> Pairs<'t> {
    /// The pairs of `run`.
    pub fn of(run: &'t str) -> Self {
        Self { run, at: 0 }
    }
}

impl<'t> Iterator for Pairs<'t> {
    type Item = (usize, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        let (start, rest) = (self.at, &self.run[self.at..]);
        let mut ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
        let first = ends.next()?;
        self.at = start + first;
        match ends.next() {
            Some(second) => Some((start, &rest[..second])),
            None => (start == 0).then_some((start, rest)),
        }
    }
}

/// Whether a character belongs to a script without spaces. Its digits do not: they stand together as numbers.
pub fn is_unspaced(c: char) -> bool {
    // Most text ends here.
    c >= '\u{0e01}' && (is_south_east_asian(c) || is_chinese_or_japanese(c))
}

/// Thai, Lao, Burmese and Khmer, letters with their marks.
fn is_south_east_asian(c: char) -> bool {
    matches!(c,
        '\u{0e01}'..='\u{0e3a}' | '\u{0e40}'..='\u{0e4e}'
        | '\u{0e81}'..='\u{0ebd}' | '\u{0ec0}'..='\u{0ece}' | '\u{0edc}'..='\u{0edf}'
        | '\u{1000}'..='\u{103f}' | '\u{1050}'..='\u{108f}' | '\u{109a}'..='\u{109d}'
        | '\u{a9e0}'..='\u{a9ef}' | '\u{a9fa}'..='\u{a9fe}' | '\u{aa60}'..='\u{aa7f}'
        | '\u{1780}'..='\u{17d3}' | '\u{17dc}'..='\u{17dd}')
}

/// Han, Hiragana and Katakana, of half width, too.
fn is_chinese_or_japanese(c: char) -> bool {
    matches!(c,
        '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}' | '\u{3031}'..='\u{3035}' | '\u{3038}'..='\u{303c}'
        | '\u{3041}'..='\u{3096}' | '\u{3099}'..='\u{309a}' | '\u{309d}'..='\u{309f}'
        | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}'
        | '\u{1aff0}'..='\u{1afff}' | '\u{1b000}'..='\u{1b16f}' | '\u{20000}'..='\u{3347f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(run: &str) -> Vec<&str> {
        Pairs::of(run).map(|(_, pair)| pair).collect()
    }

    #[test]
    fn given_mixed_text_when_it_is_parted_then_runs_without_spaces_stand_alone() {
        let found: Vec<Part<'_>> = parts("Kafka設定、第3章 서울").collect();
        let expected = [
            Part::Spaced("Kafka"),
            Part::Run("設定"),
            Part::Spaced("、"),
            Part::Run("第"),
            Part::Spaced("3"),
            Part::Run("章"),
            Part::Spaced(" 서울"),
        ];
        assert_eq!(found, expected);
        assert_eq!(parts("").count(), 0);
    }

    #[test]
    fn given_runs_when_they_are_paired_then_pairs_overlap_and_one_character_is_itself() {
        assert_eq!(pairs("東京都"), ["東京", "京都"]);
        assert_eq!(pairs("水"), ["水"]);
        assert_eq!(pairs(""), Vec::<&str>::new());
        assert_eq!(Pairs::of("東京都").map(|(at, _)| at).collect::<Vec<_>>(), [0, 3]);
        // A Thai tone mark is no letter, and stays in its word.
        assert_eq!(pairs("\u{e19}\u{e49}\u{e33}"), ["\u{e19}\u{e49}", "\u{e49}\u{e33}"]);
    }

    proptest! {
        #[test]
        fn parts_are_the_text_and_a_part_of_a_run_has_pairs_of_the_run(text in "[a-z ]{0,5}[ก-๎ぁ-ゖ一-龥]{2,20}\\PC{0,40}", from in 0..20usize, length in 2..20usize) {
            let joined: String = parts(&text).map(|part| match part { Part::Spaced(text) | Part::Run(text) => text }).collect();
            prop_assert_eq!(&joined, &text);
            for part in parts(&text) {
                let Part::Run(run) = part else { continue };
                let inner: String = run.chars().skip(from).take(length).collect();
                if inner.chars().count() >= 2 {
                    prop_assert!(pairs(&inner).iter().all(|pair| pairs(run).contains(pair)));
                }
            }
        }
    }
}
