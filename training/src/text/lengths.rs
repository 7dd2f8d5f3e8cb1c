//! How long examples are, in tokens of a model: each by itself, and together in a pass.

use serde::{Deserialize, Serialize};

use super::{Encoded, TextCodec};
use crate::dataset::Example;

/// How long the examples of a dataset are, in tokens of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// The shortest.
    pub min: u64,
    /// Half are no longer.
    pub p50: u64,
    /// 95 of 100 are no longer.
    pub p95: u64,
    /// The longest.
    pub max: u64,
    /// All together.
    pub total: u64,
    /// What they take of a pass.
    #[serde(flatten)]
    pub widths: Widths,
}

impl Lengths {
    /// Of examples, prompts and answers together; of a preference, its longer answer counts. `None` without any. The error says why
    /// an example can't be written for the model.
    pub fn of<'e>(examples: impl IntoIterator<Item = &'e Example>, text: &TextCodec) -> Result<Option<Self>, String> {
        let (mut lengths, mut counted) = (Vec::new(), CountedWidths::default());
        for example in examples {
            let sequences = text.sequences(example)?;
            let sequences: Vec<&Encoded> = sequences.iter().collect();
            lengths.push(sequences.iter().map(|encoded| encoded.ids.len() as u64).max().unwrap_or_default());
            counted.add(&sequences);
        }
        lengths.sort_unstable();
        let at = |part: usize| lengths.get((lengths.len().saturating_sub(1)) * part / 100).copied();
        let of = |widths: Widths| {
            Some(Self { min: at(0)?, p50: at(50)?, p95: at(95)?, max: at(100)?, total: lengths.iter().sum(), widths })
        };
        Ok(counted.widths().and_then(of))
    }
}

/// What examples take of a pass at most, in which the tokens that sequences begin with are there once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Widths {
    /// Tokens that every sequence begins with.
    pub shared: u64,
    /// Tokens of the widest example; of a preference, those of both answers, and what the two begin with once.
    pub widest: u64,
    /// Most tokens of an example that are scored; of a preference, of both answers.
    pub scored: u64,
}

/// Counts [`Widths`] example by example.
#[derive(Debug, Default)]
pub struct CountedWidths {
    beginning: Option<Vec<u32>>,
    widest: usize,
    scored: usize,
}

impl CountedWidths {
    /// Adds an example: its sequence, or the two of a preference.
    pub fn add(&mut self, sequences: &[&Encoded]) {
        let mut tokens = 0;
        for (at, encoded) in sequences.iter().enumerate() {
            let known = sequences[..at].iter().map(|other| common(&other.ids, &encoded.ids)).max().unwrap_or_default();
            tokens += encoded.ids.len() - known;
            match &mut self.beginning {
                Some(beginning) => {
                    let same = common(beginning, &encoded.ids);
                    beginning.truncate(same);
                }
                None => self.beginning = Some(encoded.ids.clone()),
            }
        }
        self.widest = self.widest.max(tokens);
        self.scored = self.scored.max(sequences.iter().map(|encoded| encoded.taught_tokens()).sum());
    }

    /// What was counted; `None` where there was no example.
    pub fn widths(&self) -> Option<Widths> {
        let shared = self.beginning.as_ref()?.len() as u64;
        Some(Widths { shared, widest: self.widest as u64, scored: self.scored as u64 })
    }
}

/// How many tokens two sequences begin with alike.
fn common(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Batch;
    use crate::rng::Rng;

    fn encoded(ids: &[u32], taught: usize) -> Encoded {
        let first = ids.len() - taught;
        Encoded { ids: ids.to_vec(), taught: (0..ids.len()).map(|at| at >= first).collect() }
    }

    #[test]
    fn given_examples_then_what_all_begin_with_is_told_and_the_widest_counts_what_its_answers_share_once() {
        let mut counted = CountedWidths::default();
        assert_eq!(counted.widths(), None);
        counted.add(&[&encoded(&[1, 2, 3, 4, 5], 2), &encoded(&[1, 2, 3, 6], 1)]);
        assert_eq!(counted.widths(), Some(Widths { shared: 3, widest: 6, scored: 3 }));
        counted.add(&[&encoded(&[1, 2, 7], 1), &encoded(&[1, 2, 8], 1)]);
        assert_eq!(counted.widths(), Some(Widths { shared: 2, widest: 6, scored: 3 }));
    }

    #[test]
    fn given_any_batch_then_it_has_no_more_tokens_and_rows_than_the_widths_say() {
        let mut rng = Rng::of(3, &[]);
        let mut below = |most: usize| rng.below(most);
        for _ in 0..200 {
            let examples: Vec<[Encoded; 2]> = (0..4)
                .map(|_| {
                    // Few tokens, so that many begin alike.
                    let prompt: Vec<u32> =
                        (0..2 + below(4)).map(|at| if at < 2 { 9 } else { below(2) as u32 }).collect();
                    [(); 2].map(|()| {
                        let answer = (0..1 + below(3)).map(|_| below(2) as u32).collect::<Vec<u32>>();
                        encoded(&[prompt.as_slice(), &answer].concat(), answer.len())
                    })
                })
                .collect();
            let mut counted = CountedWidths::default();
            examples.iter().for_each(|[chosen, rejected]| counted.add(&[chosen, rejected]));
            let Widths { shared, widest, scored } = counted.widths().unwrap();
            let batch = Batch::of(examples.iter().flatten());
            assert!(shared >= 2 && batch.tokens.len() as u64 <= shared + 4 * (widest - shared), "{examples:?}");
            assert!(batch.rows.len() as u64 <= 4 * scored, "{examples:?}");
        }
    }
}
