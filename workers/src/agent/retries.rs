//! When a model call that failed is made again.

use std::time::Duration;

use riverrun_models::ModelError;

/// A model call that fails in a way that may pass is made again so often.
const MOST: u32 = 2;
const PAUSE: Duration = Duration::from_millis(500);
/// A provider that asks for a longer wait is not waited for: whoever started the run learns of it now, with the wait.
const LONGEST: Duration = Duration::from_secs(60);

/// How long to wait before a call is made again that was `made` again so often already; none when it is not.
pub(super) fn pause(error: &ModelError, made: u32) -> Option<Duration> {
    if made >= MOST || !error.retryable() || error.code() == "model_runtime_down" {
        return None;
    }
    let own = PAUSE * (made + 1);
    let asked = if let ModelError::RateLimited { retry_after, .. } = error { *retry_after } else { None };
    Some(asked.map_or(own, |asked| own.max(asked))).filter(|pause| *pause <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(seconds: Option<u64>) -> ModelError {
        let retry_after = seconds.map(Duration::from_secs);
        ModelError::RateLimited { provider: "p".to_owned(), reason: "busy".to_owned(), retry_after }
    }

    #[test]
    fn given_failed_calls_when_they_may_pass_then_they_are_made_again_after_what_the_provider_asks_for() {
        assert_eq!(pause(&busy(None), 0), Some(PAUSE));
        assert_eq!(pause(&busy(None), 1), Some(2 * PAUSE));
        assert_eq!(pause(&busy(Some(30)), 0), Some(Duration::from_secs(30)));
        assert_eq!(pause(&busy(Some(0)), 0), Some(PAUSE));
        assert_eq!(pause(&busy(Some(3600)), 0), None);
        assert_eq!(pause(&busy(None), MOST), None);
        assert_eq!(pause(&ModelError::Cancelled, 0), None);
    }
}
