//! What `/health` answers, kept for a moment: whoever asks everything that the program leans on whether it is there should not be
//! able to keep it busy with that, and nobody needs a token to ask.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::Mutex;

/// How old an answer may be.
const MAX_AGE: Duration = Duration::from_millis(250);

/// The last answer, and since when it stands.
#[derive(Debug, Default)]
pub(crate) struct HealthPage(Mutex<Option<(Instant, Bytes)>>);

impl HealthPage {
    /// The last answer, or a new one when it is too old. Those who ask meanwhile wait for the same.
    ///
    /// # Errors
    /// What `look` fails with; the next one who asks looks again.
    pub(crate) async fn get<E>(&self, look: impl Future<Output = Result<Bytes, E>>) -> Result<Bytes, E> {
        let mut last = self.0.lock().await;
        if let Some((at, page)) = last.as_ref()
            && at.elapsed() < MAX_AGE
        {
            return Ok(page.clone());
        }
        let page = look.await?;
        *last = Some((Instant::now(), page.clone()));
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    async fn look(looks: &AtomicUsize) -> Result<Bytes, ()> {
        looks.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        Ok(Bytes::from_static(b"new"))
    }

    #[tokio::test]
    async fn given_an_answer_that_is_too_old_when_many_ask_at_once_then_one_looks_and_all_have_what_it_saw() {
        let old = Instant::now().checked_sub(MAX_AGE).unwrap();
        let (page, looks) = (HealthPage(Mutex::new(Some((old, Bytes::from_static(b"old"))))), AtomicUsize::new(0));
        let answers = futures::future::join_all((0..100).map(|_| page.get(look(&looks)))).await;
        assert!(answers.iter().all(|answer| answer.as_deref() == Ok(&b"new"[..])));
        assert_eq!(looks.into_inner(), 1);
    }

    #[tokio::test]
    async fn given_a_look_that_fails_when_the_next_one_asks_then_it_looks_again() {
        let (page, looks) = (HealthPage::default(), AtomicUsize::new(0));
        assert_eq!(page.get(async { Err("away") }).await, Err("away"));
        assert_eq!(page.get(look(&looks)).await.as_deref(), Ok(&b"new"[..]));
    }
}
