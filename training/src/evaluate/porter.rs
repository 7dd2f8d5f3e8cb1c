//! The stemmer that `rouge-score` uses: M. F. Porter, "An algorithm for suffix stripping" (Program 14(3), 1980), with the changes of NLTK's
//! `PorterStemmer` in its usual mode.

/// Words that the rules would make something wrong of.
const IRREGULAR: [(&str, &str); 16] = [
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("innings", "inning"),
    ("inning", "inning"),
    ("outings", "outing"),
    ("outing", "outing"),
    ("cannings", "canning"),
    ("canning", "canning"),
    ("howe", "howe"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

const STEP_2: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
];

const STEP_3: [(&str, &str); 7] =
    [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];

const STEP_4: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
];

/// The stem of a word of `a-z0-9`.
pub(super) fn stem(word: &str) -> String {
    if let Some((_, stem)) = IRREGULAR.iter().find(|(irregular, _)| *irregular == word) {
        return (*stem).to_owned();
    }
    if word.len() <= 2 {
        return word.to_owned();
    }
    doubled_l(final_e(step_4(step_3(step_2(final_y(past(plural(word))))))))
}

/// For each letter, whether it is a consonant: all but a, e, i, o, u, and y behind a consonant.
fn consonants(word: &str) -> Vec<bool> {
    let mut found: Vec<bool> = Vec::with_capacity(word.len());
    for letter in word.bytes() {
        let is_consonant = match letter {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => found.last().is_none_or(|before| !before),
            _ => true,
        };
        found.push(is_consonant);
    }
    found
}

/// How often consonants follow vowels: the paper's m.
fn measure(stem: &str) -> usize {
    consonants(stem).windows(2).filter(|pair| !pair[0] && pair[1]).count()
}

fn has_vowel(stem: &str) -> bool {
    consonants(stem).contains(&false)
}

/// The paper's *d.
fn ends_doubled(word: &str) -> bool {
    let letters = word.as_bytes();
    letters.len() >= 2
        && letters[letters.len() - 1] == letters[letters.len() - 2]
        && consonants(word).last().copied().unwrap_or(false)
}

/// The paper's *o; NLTK adds words of a vowel and a consonant.
fn ends_short(word: &str) -> bool {
    match consonants(word).as_slice() {
        [false, true] => true,
        [.., true, false, true] => !word.ends_with(['w', 'x', 'y']),
        _ => false,
    }
}

/// Step 1a.
fn plural(word: &str) -> String {
    if let Some(stem) = word.strip_suffix("ies") {
        return if word.len() == 4 { format!("{stem}ie") } else { format!("{stem}i") };
    }
    if word.ends_with("sses") {
        return word[..word.len() - 2].to_owned();
    }
    match word.strip_suffix('s') {
        Some(stem) if !word.ends_with("ss") => stem.to_owned(),
        _ => word.to_owned(),
    }
}

/// Step 1b.
fn past(word: String) -> String {
    if let Some(stem) = word.strip_suffix("ied") {
        return if word.len() == 4 { format!("{stem}ie") } else { format!("{stem}i") };
    }
    if let Some(stem) = word.strip_suffix("eed") {
        return if measure(stem) > 0 { format!("{stem}ee") } else { word };
    }
    let stem = ["ed", "ing"].iter().find_map(|suffix| word.strip_suffix(*suffix).filter(|stem| has_vowel(stem)));
    let Some(stem) = stem else { return word };
    if ["at", "bl", "iz"].iter().any(|end| stem.ends_with(end)) {
        return format!("{stem}e");
    }
    if ends_doubled(stem) {
        let is_kept = stem.ends_with(['l', 's', 'z']);
        return if is_kept { stem.to_owned() } else { stem[..stem.len() - 1].to_owned() };
    }
    if measure(stem) == 1 && ends_short(stem) { format!("{stem}e") } else { stem.to_owned() }
}

/// Step 1c, by NLTK's rule: only behind a consonant that is not the first letter.
fn final_y(word: String) -> String {
    match word.strip_suffix('y') {
        Some(stem) if stem.len() > 1 && consonants(stem).last() == Some(&true) => format!("{stem}i"),
        _ => word,
    }
}

fn step_2(word: String) -> String {
    if let Some(stem) = word.strip_suffix("alli").filter(|stem| measure(stem) > 0) {
        return step_2(format!("{stem}al"));
    }
    // The l belongs to the stem, so that "geologi" goes the way of "archaeologi".
    if word.ends_with("logi") && measure(&word[..word.len() - 3]) > 0 {
        return word[..word.len() - 1].to_owned();
    }
    replaced(word, &STEP_2)
}

fn step_3(word: String) -> String {
    replaced(word, &STEP_3)
}

/// Replaces the first suffix of the list that the word has, when what is before it has a measure.
fn replaced(word: String, rules: &[(&str, &str)]) -> String {
    let found = rules.iter().find_map(|(suffix, new)| word.strip_suffix(*suffix).map(|stem| (stem, new)));
    match found {
        Some((stem, new)) if measure(stem) > 0 => format!("{stem}{new}"),
        _ => word,
    }
}

fn step_4(word: String) -> String {
    let found = STEP_4.iter().find_map(|suffix| word.strip_suffix(*suffix).map(|stem| (stem, *suffix)));
    match found {
        Some((stem, suffix)) if measure(stem) > 1 && (suffix != "ion" || stem.ends_with(['s', 't'])) => stem.to_owned(),
        _ => word,
    }
}

/// Step 5a.
fn final_e(word: String) -> String {
    match word.strip_suffix('e') {
        Some(stem) if measure(stem) > 1 || (measure(stem) == 1 && !ends_short(stem)) => stem.to_owned(),
        _ => word,
    }
}

/// Step 5b.
fn doubled_l(mut word: String) -> String {
    if word.ends_with("ll") && measure(&word[..word.len() - 1]) > 1 {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words and what NLTK's `PorterStemmer` makes of them, made by `scripts/bench/finetune_reference.py --write`.
    const WORDS: &str = include_str!("../../tests/data/porter.txt");

    #[test]
    fn given_words_then_their_stems_are_those_of_nltk() {
        let pairs: Vec<(&str, &str)> = WORDS.lines().filter_map(|line| line.split_once(' ')).collect();
        assert!(pairs.len() > 500);
        let wrong: Vec<_> = pairs.iter().filter(|(word, wanted)| stem(word) != *wanted).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
