//! Counts as people read them. This crate stands below the one that the others have theirs from.

use std::fmt::Display;

/// So many of something: `1 thread`, `8 threads`.
pub(crate) fn counted(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    let end = if count == "1" { "" } else { "s" };
    format!("{count} {one}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_counts_when_they_are_told_then_one_is_singular_and_no_other_number_is() {
        let told = [counted(0, "thread"), counted(1_u64, "thread"), counted(11_usize, "thread")];
        assert_eq!(told, ["0 threads", "1 thread", "11 threads"]);
    }
}
