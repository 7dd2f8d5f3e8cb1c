//! Waiting until the read models show what was put on the log.

use std::time::Duration;

use tokio::time::Instant;

const POLL: Duration = Duration::from_millis(10);

/// Asks until there is something; `None` when that takes longer than `patience`.
pub(crate) async fn until<T, E, F>(patience: Duration, mut ask: impl FnMut() -> F) -> Result<Option<T>, E>
where
    F: Future<Output = Result<Option<T>, E>>,
{
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = ask().await? {
            return Ok(Some(found));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        tokio::time::sleep(POLL).await;
    }
}
