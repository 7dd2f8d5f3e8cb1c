//! How long searches took, stage by stage, since the process started.

use parking_lot::Mutex;

use super::types::SearchTimes;

/// Upper bounds of the buckets of a stage, in seconds.
pub const STAGE_BUCKETS: [f64; 8] = [0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

/// A stage of a search in figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// `rewrite`, `embed`, `dense`, `sparse`, `fuse` or `rerank`.
    pub name: &'static str,
    /// Searches that had it.
    pub count: u64,
    /// Seconds of all of them.
    pub seconds: f64,
    /// Searches whose stage took no longer than the bound at the same place of [`STAGE_BUCKETS`].
    pub buckets: [u64; STAGE_BUCKETS.len()],
}

/// What searches took.
#[derive(Debug)]
pub struct RetrievalFigures {
    stages: Mutex<[Stage; 6]>,
}

impl Default for RetrievalFigures {
    fn default() -> Self {
        let stage = |name| Stage { name, count: 0, seconds: 0.0, buckets: [0; STAGE_BUCKETS.len()] };
        Self { stages: Mutex::new(["rewrite", "embed", "dense", "sparse", "fuse", "rerank"].map(stage)) }
    }
}

impl RetrievalFigures {
    /// Counts a search.
    pub(super) fn observe(&self, took_ms: &SearchTimes) {
        let SearchTimes { rewrite, embed, dense, sparse, fuse, rerank } = *took_ms;
        let times = [rewrite, Some(embed), Some(dense), Some(sparse), Some(fuse), rerank];
        for (stage, ms) in self.stages.lock().iter_mut().zip(times) {
            let Some(seconds) = ms.map(|ms| ms / 1_000.0) else { continue };
            stage.count += 1;
            stage.seconds += seconds;
            for (bucket, bound) in stage.buckets.iter_mut().zip(STAGE_BUCKETS) {
                *bucket += u64::from(seconds <= bound);
            }
        }
    }

    /// Every stage.
    pub fn stages(&self) -> [Stage; 6] {
        *self.stages.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_searches_when_they_are_counted_then_stages_that_were_left_out_do_not_count() {
        let figures = RetrievalFigures::default();
        let times = SearchTimes { rewrite: None, embed: 2.0, dense: 0.5, sparse: 20.0, fuse: 0.0, rerank: None };
        figures.observe(&times);
        figures.observe(&SearchTimes { rerank: Some(400.0), ..times });
        let [rewrite, embed, dense, _, _, rerank] = figures.stages();
        assert_eq!((rewrite.name, rewrite.count), ("rewrite", 0));
        assert_eq!((embed.name, embed.count, embed.buckets), ("embed", 2, [0, 2, 2, 2, 2, 2, 2, 2]));
        assert_eq!((dense.buckets[0], rerank.count, rerank.buckets[5], rerank.buckets[6]), (2, 1, 0, 1));
        assert!((embed.seconds - 0.004).abs() < 1e-9);
    }
}
