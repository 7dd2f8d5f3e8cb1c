//! Sequences, one behind the other.

use crate::text::Encoded;

/// Where a sequence lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) length: usize,
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
    /// For each row the place of its sequence in `spans`.
    pub(crate) sequence: Vec<usize>,
}

impl Batch {
    pub(crate) fn of<'e>(sequences: impl IntoIterator<Item = &'e Encoded>) -> Self {
        let mut batch = Batch::default();
        sequences.into_iter().for_each(|encoded| batch.push(encoded));
        batch
    }

    fn push(&mut self, encoded: &Encoded) {
        let start = self.tokens.len();
        let place = self.spans.len();
        for (at, (id, taught)) in encoded.ids.iter().zip(&encoded.taught).enumerate() {
            self.tokens.push(*id);
            self.positions.push(at as u32);
            if *taught && at > 0 {
                self.rows.push((start + at - 1) as u32);
                self.targets.push(*id);
                self.sequence.push(place);
            }
        }
        self.spans.push(Span { start, length: encoded.ids.len() });
    }

    /// The longest sequence.
    pub(crate) fn longest(&self) -> usize {
        self.spans.iter().map(|span| span.length).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_two_sequences_then_positions_begin_anew_and_nothing_is_predicted_across_them() {
        let encoded = |ids: &[u32], taught: &[bool]| Encoded { ids: ids.to_vec(), taught: taught.to_vec() };
        let batch = Batch::of(&[encoded(&[5, 6, 7], &[false, true, true]), encoded(&[8, 9], &[true, true])]);
        assert_eq!(batch.tokens, [5, 6, 7, 8, 9]);
        assert_eq!(batch.positions, [0, 1, 2, 0, 1]);
        assert_eq!((batch.rows, batch.targets), (vec![0, 1, 3], vec![6, 7, 9]));
        assert_eq!(batch.sequence, [0, 0, 1]);
    }
}
