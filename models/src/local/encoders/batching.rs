//! Which texts are computed together.

/// Tokens of one batch at most: bounds the memory of a layer's results.
pub(super) const MAX_TOKENS: usize = 2048;

/// Groups texts, in their order, by their token counts. Nothing is padded, so that it does not matter how different they are. Every text
/// comes exactly once.
pub(super) fn plan(lengths: &[usize]) -> Vec<std::ops::Range<usize>> {
    let mut batches: Vec<std::ops::Range<usize>> = Vec::new();
    let mut tokens = 0;
    for (index, length) in lengths.iter().enumerate() {
        tokens += length;
        match batches.last_mut() {
            Some(batch) if tokens <= MAX_TOKENS => batch.end = index + 1,
            _ => {
                tokens = *length;
                batches.push(index..index + 1);
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
            let all: Vec<usize> = batches.iter().cloned().flatten().collect();
            assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
            for batch in batches {
                assert!(batch.len() == 1 || lengths[batch].iter().sum::<usize>() <= MAX_TOKENS);
            }
        }
        assert_eq!(plan(&[512; 8]), [0..4, 4..8]);
    }
}
