//! Which turns are in the window, and how many become a summary when it overflows. Pure.

/// A window of tokens: a quarter is kept for the summary, the rest is for turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    tokens: usize,
}

impl Window {
    /// A window of so many tokens.
    pub fn new(tokens: usize) -> Self {
        Self { tokens }
    }

    /// All of it.
    pub fn tokens(self) -> usize {
        self.tokens
    }

    /// Most tokens of a summary.
    pub fn summary_tokens(self) -> usize {
        self.tokens / 4
    }

    fn turn_tokens(self) -> usize {
        self.tokens - self.summary_tokens()
    }

    /// How many of the newest turns fit beside `taken` tokens. `turns` are their tokens, oldest first.
    pub fn newest(self, turns: &[usize], taken: usize) -> usize {
        let mut left = self.tokens.saturating_sub(taken);
        turns
            .iter()
            .rev()
            .take_while(|tokens| match left.checked_sub(**tokens) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            })
            .count()
    }

    /// How many of the oldest turns become part of the summary; 0 while all of them fit. When they do not, so many go that
    /// the rest fills half of the room: the next turns then fit without another summary. The newest turn stays when it fits.
    pub fn overflow(self, turns: &[usize]) -> usize {
        let room = self.turn_tokens();
        let all: usize = turns.iter().sum();
        if all <= room {
            return 0;
        }
        let newest = turns.last().copied().unwrap_or(0);
        let target = if newest <= room { newest.max(room / 2) } else { room / 2 };
        let mut rest = all;
        for (index, tokens) in turns.iter().enumerate() {
            if rest <= target {
                return index;
            }
            rest -= tokens;
        }
        turns.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn given_turns_when_the_window_is_filled_then_the_newest_that_fit_are_in_it() {
        let window = Window::new(100);
        for (turns, taken, fit) in [
            (vec![], 0, 0),
            (vec![50, 50], 0, 2),
            (vec![50, 51], 0, 1),
            (vec![10, 101], 0, 0),
            (vec![10, 20, 30], 50, 2),
            (vec![10], 100, 0),
            (vec![10], 200, 0),
        ] {
            assert_eq!(window.newest(&turns, taken), fit, "{turns:?} beside {taken}");
        }
    }

    #[test]
    fn given_turns_that_overflow_when_it_is_asked_how_many_go_then_the_rest_fills_half_of_the_room() {
        let window = Window::new(100); // 25 for the summary, 75 for turns
        for (turns, gone) in [
            (vec![], 0),
            (vec![75], 0),
            (vec![40, 35], 0),
            (vec![40, 36], 1),
            (vec![20, 20, 20, 20], 3),
            (vec![10; 8], 5),
            (vec![10, 70], 1),
            (vec![10, 76], 2),
            (vec![500], 1),
        ] {
            assert_eq!(window.overflow(&turns), gone, "{turns:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_was_said_then_what_stays_fits_the_window_beside_a_full_summary(
            turns in prop::collection::vec(0usize..300, 0..30),
            tokens in 16usize..400,
        ) {
            let window = Window::new(tokens);
            let gone = window.overflow(&turns);
            let rest = &turns[gone..];
            prop_assert!(rest.iter().sum::<usize>() + window.summary_tokens() <= tokens);
            prop_assert_eq!(window.newest(rest, window.summary_tokens()), rest.len());
            prop_assert_eq!(window.overflow(rest), 0, "once is enough");
        }
    }
}
