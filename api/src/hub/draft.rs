//! What one listener has heard of the text that a model is writing.

use riverrun_schemas::tokens::Attempt;

/// The text that was heard last.
#[derive(Debug, Default)]
pub(super) struct Draft {
    seq: i64,
    attempt: Option<Attempt>,
}

/// What a piece is to the pieces before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// More of the same text, or the first that is heard of one.
    Next,
    /// The text of the same step from its beginning: what was heard of it is void.
    Anew,
    /// Of an attempt that was given up. A worker that lost its run may still write.
    Void,
}

impl Draft {
    /// Takes the next piece. One whose writer names no attempt goes on with whatever there is.
    pub(super) fn take(&mut self, seq: i64, attempt: Option<Attempt>) -> Piece {
        let piece = match (attempt, self.attempt) {
            (Some(now), Some(heard)) if now < heard => return Piece::Void,
            (Some(now), Some(heard)) if now > heard && seq == self.seq => Piece::Anew,
            _ => Piece::Next,
        };
        *self = Self { seq, attempt: attempt.or(self.attempt) };
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_pieces_of_several_attempts_when_they_are_taken_then_a_later_one_begins_anew_and_an_earlier_one_is_void() {
        let mut draft = Draft::default();
        for (seq, attempt, expected) in [
            (2, Some((1, 1)), Piece::Next),
            (2, Some((1, 1)), Piece::Next),
            (2, Some((1, 2)), Piece::Anew),
            (2, Some((2, 1)), Piece::Anew),
            (2, Some((1, 2)), Piece::Void),
            (2, Some((2, 1)), Piece::Next),
            (2, None, Piece::Next),
            (4, Some((2, 2)), Piece::Next),
            (4, Some((3, 1)), Piece::Anew),
            (2, Some((2, 2)), Piece::Void),
        ] {
            let attempt = attempt.map(|(epoch, text)| Attempt { epoch, text });
            assert_eq!(draft.take(seq, attempt), expected, "{seq} {attempt:?}");
        }
    }
}
