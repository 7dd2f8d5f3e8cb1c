//! Work that computes, beside the runtime: others wait for its threads.

use crate::error::ProjectError;

/// Does work on a thread where it may take its time; `what` it does stands in the error.
///
/// # Errors
/// When it breaks off, which is a defect.
pub async fn aside<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ProjectError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        ProjectError::refused("work_broke_off", format!("{what} broke off; this is a defect"), "ask for it again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn given_work_that_ends_or_breaks_off_when_it_is_done_aside_then_its_result_comes_or_what_it_was() {
        assert_eq!(aside("counting", || 3).await.unwrap(), 3);
        let failure = aside("counting", || -> u8 { panic!("on purpose") }).await.unwrap_err().failure();
        assert_eq!(
            (failure.code.as_str(), failure.message.starts_with("counting broke off")),
            ("work_broke_off", true)
        );
    }
}
