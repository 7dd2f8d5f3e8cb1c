//! Which texts are computed together.

/// Texts of one batch at most.
const MAX_TEXTS: usize = 32;
/// Tokens of one batch at most, padding included: bounds the memory of the attention scores.
const MAX_TOKENS: usize = 8192;
/// Padding that a text may cost. A batch of its own costs about as much as this many tokens, because all weights are read once more.
const MAX_PADDING: usize = 32;

/// Groups texts by their token counts: longest first, so that texts of one batch have about the same length and little is padded.
/// Every index comes exactly once.
pub(super) fn plan(lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(lengths[*index]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut longest = 0;
    for index in order {
        match batches.last_mut() {
            Some(batch)
                if batch.len() < MAX_TEXTS
                    && (batch.len() + 1) * longest <= MAX_TOKENS
                    && longest - lengths[index] <= MAX_PADDING =>
            {
                batch.push(index);
            }
            _ => {
                longest = lengths[index];
                batches.push(vec![index]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_lengths_when_batches_are_planned_then_each_text_is_in_one_and_bounds_hold() {
        for lengths in [vec![], vec![5], (0..100).map(|n| n * 37 % 512 + 1).collect(), vec![9000; 3], vec![512; 40]] {
            let batches = plan(&lengths);
            let mut all: Vec<usize> = batches.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
            for batch in batches {
                let longest = batch.iter().map(|index| lengths[*index]).max().unwrap();
                assert!(batch.iter().all(|index| longest - lengths[*index] <= MAX_PADDING));
                assert!(batch.len() == 1 || (batch.len() <= MAX_TEXTS && batch.len() * longest <= MAX_TOKENS));
            }
        }
    }
}
