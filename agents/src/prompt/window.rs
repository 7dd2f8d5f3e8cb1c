//! How much of a long history a prompt shows.

/// The newest of `sizes` that a prompt shows, as the index of the first: all of them while they fit `limit` together.
///
/// When one more does not fit, the oldest are left out until half the limit is filled again, not one by one: the words
/// before it then stay the same for many turns, and a runtime keeps what it has read of them. The newest is always shown.
pub(super) fn first_shown(sizes: &[usize], limit: usize) -> usize {
    let (mut first, mut total) = (0, 0);
    for (at, size) in sizes.iter().enumerate() {
        total += size;
        if total > limit {
            while first < at && total > limit / 2 {
                total -= sizes[first];
                first += 1;
            }
        }
    }
    first
}

/// What is said instead of those left out; nothing when there are none.
pub(super) fn left_out(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some("(1 older observation is left out here.)".to_owned()),
        count => Some(format!("({count} older observations are left out here.)")),
    }
}

/// At most `most` characters of a text; what is cut is said.
pub(super) fn shorten(text: &str, most: usize) -> String {
    let total = text.chars().count();
    if total <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most).collect();
    format!("{kept}\n… ({most} of {total} characters shown)")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn everything_is_shown_while_it_fits_and_then_the_oldest_go_in_blocks() {
        assert_eq!(first_shown(&[], 10), 0);
        assert_eq!(first_shown(&[4, 4], 10), 0);
        assert_eq!(first_shown(&[4, 4, 4], 10), 2, "half the limit");
        assert_eq!(first_shown(&[4, 4, 4, 4], 10), 2, "the beginning stays where it was");
        assert_eq!(first_shown(&[99], 10), 0, "the newest is always shown");
        assert_eq!(first_shown(&[1, 99], 10), 1);
    }

    #[test]
    fn what_is_cut_is_said() {
        let text = shorten(&"ä".repeat(6_001), 6_000);
        assert!(text.ends_with("(6000 of 6001 characters shown)"), "{}", &text[text.len() - 60..]);
        assert_eq!(left_out(0), None);
        assert!(left_out(3).unwrap().starts_with("(3 older"));
    }

    proptest! {
        #[test]
        fn a_window_is_bounded_and_moves_only_forward(sizes in prop::collection::vec(1usize..30, 1..60)) {
            let mut before = 0;
            for end in 1..=sizes.len() {
                let first = first_shown(&sizes[..end], 40);
                prop_assert!(first >= before && first < end);
                prop_assert!(sizes[first..end].iter().sum::<usize>() <= 40);
                before = first;
            }
        }
    }
}
