//! The time of a run while one process drives it.

use std::time::Instant;

use riverrun_schemas::now_ms;

/// The system's time when driving began, and what has passed since by a clock that nobody sets. A run whose time is limited has neither more
/// nor less of it when somebody sets the system's clock meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunClock {
    began_ms: i64,
    began: Instant,
}

impl RunClock {
    pub(super) fn start() -> Self {
        RunClock { began_ms: now_ms(), began: Instant::now() }
    }

    /// Milliseconds since the epoch, UTC: for how long something takes, not for what a person reads.
    pub(super) fn now_ms(&self) -> i64 {
        let passed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.began_ms.saturating_add(passed)
    }
}
