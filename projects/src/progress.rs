//! How far a piece of work is, for whoever looks while it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is done and of how much. Its clones count together.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// So much more is to be done.
    pub fn expect(&self, more: usize) {
        self.0.total.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// One more is done.
    pub fn step(&self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    /// What is done, and of how much: 0 while nobody knows.
    pub fn seen(&self) -> (u64, u64) {
        (self.0.done.load(Ordering::Relaxed), self.0.total.load(Ordering::Relaxed))
    }
}
