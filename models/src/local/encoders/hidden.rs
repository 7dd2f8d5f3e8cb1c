//! The vectors of tokens that an encoder makes.

use candle_core::{Result, Tensor};

/// Rows of `width` numbers, one behind the other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hidden {
    pub(super) width: usize,
    pub(super) numbers: Vec<f32>,
}

/// Which tokens of a text are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of them.
    All,
    /// The first one, which stands for the text.
    First,
}

impl Wanted {
    /// How many there are of a text of so many tokens.
    pub(super) fn of(self, length: usize) -> usize {
        match self {
            Wanted::All => length,
            Wanted::First => length.min(1),
        }
    }
}

impl Hidden {
    /// The rows of a tensor of two dimensions.
    pub(super) fn of(tensor: &Tensor) -> Result<Self> {
        Ok(Hidden { width: tensor.dim(1)?, numbers: numbers(tensor)? })
    }

    pub(super) fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.numbers.chunks_exact(self.width.max(1))
    }

    /// Keeps what is wanted of texts that stand one behind the other; `lengths` are their counts of rows.
    pub(super) fn keep(&mut self, wanted: Wanted, lengths: &[usize]) {
        if wanted == Wanted::All {
            return;
        }
        let (mut from, mut to) = (0, 0);
        for length in lengths {
            let kept = wanted.of(*length) * self.width;
            self.numbers.copy_within(from..from + kept, to);
            from += length * self.width;
            to += kept;
        }
        self.numbers.truncate(to);
    }
}

/// The numbers of a tensor, row by row.
pub(super) fn numbers(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_texts_when_their_first_tokens_are_kept_then_each_has_its_own_and_all_keep_everything() {
        let rows = |numbers: &[f32]| Hidden { width: 2, numbers: numbers.iter().flat_map(|n| [*n, -n]).collect() };
        let mut hidden = rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        hidden.keep(Wanted::All, &[3, 1, 2]);
        assert_eq!(hidden, rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        hidden.keep(Wanted::First, &[3, 1, 2]);
        assert_eq!(hidden, rows(&[1.0, 4.0, 5.0]));
        assert_eq!(hidden.rows().collect::<Vec<_>>(), [[1.0, -1.0], [4.0, -4.0], [5.0, -5.0]]);
    }
}
