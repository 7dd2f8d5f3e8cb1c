//! Sequences, one behind the other. What several of them begin with is there once: with causal attention its hidden states are the
//! same in each of them, and so are what goes forward and what comes back through it. Templates, system prompts, and the prompt of
//! two answers of which one is preferred are shared like this.

use crate::text::Encoded;

/// Where the tokens lie that a sequence does not share with one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// Places of the tokens that its sequence begins with, which others brought.
    pub(crate) before: Vec<usize>,
}

impl Span {
    /// Tokens of its sequence up to its end.
    pub(crate) fn seen(&self) -> usize {
        self.before.len() + self.length
    }

    /// Places of its own tokens.
    pub(crate) fn own(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.length
    }

    /// Places of the tokens of its sequence up to its end.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.before.iter().copied().chain(self.own())
    }
}

/// Sequences of a pass, and which of their tokens are scored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) tokens: Vec<u32>,
    /// Position of each token in its sequence.
    pub(crate) positions: Vec<u32>,
    pub(crate) spans: Vec<Span>,
    /// Tokens whose hidden state predicts the next one that is scored.
    pub(crate) rows: Vec<u32>,
    /// The tokens that are scored, one for each row.
    pub(crate) targets: Vec<u32>,
    /// For each row its sequence.
    pub(crate) sequence: Vec<usize>,
    /// The last token of each sequence.
    pub(crate) ends: Vec<u32>,
    /// Tokens of all sequences, those that are shared as often as they stand.
    pub(crate) given: usize,
}

impl Batch {
    pub(crate) fn of<'e>(sequences: impl IntoIterator<Item = &'e Encoded>) -> Self {
        let mut batch = Batch::default();
        let mut paths: Vec<Vec<usize>> = Vec::new();
        for encoded in sequences {
            let path = batch.push(encoded, &paths);
            paths.push(path);
        }
        batch
    }

    /// Adds a sequence beside others, whose tokens lie at `paths`, and gives the places of its own.
    fn push(&mut self, encoded: &Encoded, paths: &[Vec<usize>]) -> Vec<usize> {
        let (before, start) = (self.shared(&encoded.ids, paths).to_vec(), self.tokens.len());
        for (at, id) in encoded.ids.iter().enumerate().skip(before.len()) {
            self.tokens.push(*id);
            self.positions.push(at as u32);
        }
        let path: Vec<usize> = before.iter().copied().chain(start..self.tokens.len()).collect();
        for (at, (id, taught)) in encoded.ids.iter().zip(&encoded.taught).enumerate().skip(1) {
            if *taught {
                self.rows.push(path[at - 1] as u32);
                self.targets.push(*id);
                self.sequence.push(self.ends.len());
            }
        }
        self.ends.push(path.last().map_or(0, |last| *last as u32));
        self.given += path.len();
        let length = self.tokens.len() - start;
        if length > 0 {
            self.spans.push(Span { start, length, before });
        }
        path
    }

    /// The longest of what sequences that are there have in common with the beginning of another.
    fn shared<'p>(&self, ids: &[u32], paths: &'p [Vec<usize>]) -> &'p [usize] {
        let same = |path: &'p Vec<usize>| {
            let count = path.iter().zip(ids).take_while(|(place, id)| self.tokens[**place] == **id).count();
            &path[..count]
        };
        paths.iter().map(same).max_by_key(|same| same.len()).unwrap_or_default()
    }

    /// The longest sequence.
    pub(crate) fn longest(&self) -> usize {
        self.spans.iter().map(Span::seen).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(ids: &[u32], taught: &[bool]) -> Encoded {
        Encoded { ids: ids.to_vec(), taught: taught.to_vec() }
    }

    #[test]
    fn given_two_sequences_then_positions_begin_anew_and_nothing_is_predicted_across_them() {
        let batch = Batch::of(&[encoded(&[5, 6, 7], &[false, true, true]), encoded(&[8, 9], &[true, true])]);
        assert_eq!(batch.tokens, [5, 6, 7, 8, 9]);
        assert_eq!(batch.positions, [0, 1, 2, 0, 1]);
        assert_eq!((batch.rows, batch.targets), (vec![0, 1, 3], vec![6, 7, 9]));
        assert_eq!(batch.sequence, [0, 0, 1]);
        assert_eq!((batch.ends, batch.given), (vec![2, 4], 5));
    }

    #[test]
    fn given_sequences_that_begin_alike_then_what_they_share_is_there_once_and_scored_for_each() {
        let batch = Batch::of(&[
            encoded(&[5, 6, 7, 8], &[false, false, true, true]),
            encoded(&[5, 6, 9], &[false, false, true]),
            encoded(&[5, 6, 9, 4], &[false, true, true, true]),
            encoded(&[5, 6], &[false, true]),
        ]);
        assert_eq!(batch.tokens, [5, 6, 7, 8, 9, 4]);
        assert_eq!(batch.positions, [0, 1, 2, 3, 2, 3]);
        let span = |start, length, before: &[usize]| Span { start, length, before: before.to_vec() };
        assert_eq!(batch.spans, [span(0, 4, &[]), span(4, 1, &[0, 1]), span(5, 1, &[0, 1, 4])]);
        assert_eq!(batch.rows, [1, 2, 1, 0, 1, 4, 0]);
        assert_eq!(batch.targets, [7, 8, 9, 6, 9, 4, 6]);
        assert_eq!(batch.sequence, [0, 0, 1, 2, 2, 2, 3]);
        assert_eq!((batch.longest(), batch.given), (4, 13));
        assert_eq!(batch.ends, [3, 4, 5, 1]);
    }
}
