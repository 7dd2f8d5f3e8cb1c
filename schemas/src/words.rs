//! Counts as people read them. Pure, and here because every crate that says something has this one.

use std::fmt::Display;

/// So many of something: `1 document`, `8 documents`. `one` is the word, or the words, for one of it; the last of them gets the plural.
pub fn counted(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    if is_one(&count) { format!("{count} {one}") } else { format!("{count} {}", plural(one)) }
}

/// The word for so many: `singular` for one of them, `plural` for every other number. For verbs (`is`, `are`) and whatever [`counted`]
/// does not know.
pub fn agreed<'w>(count: impl Display, singular: &'w str, plural: &'w str) -> &'w str {
    if is_one(&count.to_string()) { singular } else { plural }
}

fn is_one(count: &str) -> bool {
    count == "1"
}

/// The regular plurals of English, and `-is` as in analysis.
fn plural(one: &str) -> String {
    let is_after_vowel = |stem: &str| stem.ends_with(['a', 'e', 'i', 'o', 'u']);
    if let Some(stem) = one.strip_suffix("is") {
        return format!("{stem}es");
    }
    match one.strip_suffix('y') {
        Some(stem) if !is_after_vowel(stem) => format!("{stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| one.ends_with(end)) => format!("{one}es"),
        _ => format!("{one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_counts_of_any_type_when_they_are_told_then_one_is_singular_and_no_other_number_is() {
        for (told, expected) in [
            (counted(0, "file"), "0 files"),
            (counted(1, "file"), "1 file"),
            (counted(2_usize, "file"), "2 files"),
            (counted(1_i64, "file"), "1 file"),
            (counted(-1, "file"), "-1 files"),
            (counted(11_u32, "file"), "11 files"),
            (counted(21_u64, "file"), "21 files"),
            (counted(101, "file"), "101 files"),
        ] {
            assert_eq!(told, expected);
        }
        assert_eq!((agreed(1, "is", "are"), agreed(0, "is", "are"), agreed(2, "is", "are")), ("is", "are", "are"));
    }

    #[test]
    fn given_words_when_there_are_several_then_each_has_the_plural_that_people_write() {
        for (one, many) in [
            ("finding", "findings"),
            ("judged question", "judged questions"),
            ("MCP server", "MCP servers"),
            ("query", "queries"),
            ("memory", "memories"),
            ("key", "keys"),
            ("process", "processes"),
            ("canvas", "canvases"),
            ("batch", "batches"),
            ("box", "boxes"),
            ("analysis", "analyses"),
            ("byte", "bytes"),
            ("advisory", "advisories"),
        ] {
            assert_eq!(counted(2, one), format!("2 {many}"));
            assert_eq!(counted(1, one), format!("1 {one}"));
        }
    }
}
