//! Waiting until the read models show what was put on the log.

use std::time::Duration;

use tokio::time::Instant;

/// Between two questions: an eighth of what was waited already, but no less and no more than these.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(250);

/// Asks until there is something; `None` when that takes longer than `patience`.
pub(crate) async fn until<T, E, F>(patience: Duration, mut ask: impl FnMut() -> F) -> Result<Option<T>, E>
where
    F: Future<Output = Result<Option<T>, E>>,
{
    let since = Instant::now();
    loop {
        if let Some(found) = ask().await? {
            return Ok(Some(found));
        }
        let waited = since.elapsed();
        if waited > patience {
            return Ok(None);
        }
        tokio::time::sleep((waited / 8).clamp(SHORTEST, LONGEST)).await;
    }
}
