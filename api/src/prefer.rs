//! `Prefer` of requests whose outcome takes a while (RFC 7240): whether they wait for it, and for how long.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::state::AppState;
use crate::wait;

/// How long a request waits that says nothing of it.
const USUAL: Duration = Duration::from_secs(30);
/// The longest that one may ask for; whoever asks for more waits so long.
const LONGEST: Duration = Duration::from_secs(300);

/// How long a request waits for its outcome before it answers that the work goes on. With `Prefer: wait=N` N seconds, with
/// `respond-async` alone not at all. It counts from when the request came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    wait: Duration,
    since: Instant,
}

impl Patience {
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
        let (mut wait, mut is_async) = (None, false);
        for preference in given.flat_map(|value| value.split(',')) {
            let bare = preference.split(';').next().unwrap_or_default();
            let (name, value) = bare.split_once('=').unwrap_or((bare, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "respond-async" => is_async = true,
                // The first counts. What can't be read is as if it were not there.
                "wait" => wait = wait.or_else(|| value.trim().trim_matches('"').parse().ok().map(Duration::from_secs)),
                _ => {}
            }
        }
        let otherwise = if is_async { Duration::ZERO } else { USUAL };
        Self { wait: wait.unwrap_or(otherwise).min(LONGEST), since: Instant::now() }
    }

    /// A place among those that wait, for who does; 429 when all are taken.
    pub(crate) fn slot(self, state: &AppState) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        if self.wait.is_zero() { Ok(None) } else { state.stream_slot().map(Some) }
    }

    /// Asks until there is an outcome; `None` when there is none in time, and for who does not wait.
    pub(crate) async fn until<T, E, F>(self, ask: impl FnMut() -> F) -> Result<Option<T>, E>
    where
        F: Future<Output = Result<Option<T>, E>>,
    {
        if self.wait.is_zero() {
            return Ok(None);
        }
        wait::until(self.wait.saturating_sub(self.since.elapsed()), ask).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Patience {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn given_preferences_when_they_are_read_then_the_first_wait_counts_and_what_is_none_does_not() {
        for (given, seconds) in [
            (vec![], 30),
            (vec![""], 30),
            (vec!["return=minimal"], 30),
            (vec!["respond-async"], 0),
            (vec!["Respond-Async; foo=bar"], 0),
            (vec!["wait=7"], 7),
            (vec!["wait = \"7\""], 7),
            (vec!["wait=0"], 0),
            (vec!["wait=100000"], 300),
            (vec!["respond-async, wait=7"], 7),
            (vec!["wait=7, wait=9", "respond-async"], 7),
            (vec!["return=minimal", "wait=7"], 7),
            (vec!["wait=soon"], 30),
            (vec!["wait=-1"], 30),
            (vec!["wait=99999999999999999999999"], 30),
        ] {
            let mut headers = HeaderMap::new();
            for value in &given {
                headers.append("prefer", HeaderValue::from_static(value));
            }
            assert_eq!(Patience::of(&headers).wait.as_secs(), seconds, "{given:?}");
        }
    }
}
