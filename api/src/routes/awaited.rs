//! Work that a request puts on the log and then waits for, a while: removals, rebuilds, re-embeddings, tunings.

use std::time::Duration;

use axum::Json as Reply;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use riverrun_schemas::IngestId;
use riverrun_stores::StoreError;
use serde::Serialize;
use tokio::time::Instant;

use super::runs::location;
use crate::error::ApiError;

const POLL: Duration = Duration::from_millis(25);

/// A kind of work.
pub(super) struct Work {
    /// As it is called, such as `rebuild`: errors and their codes have it.
    pub(super) name: &'static str,
    /// Where it is looked at, such as `/rebuilds`.
    pub(super) place: &'static str,
    /// How long a request waits for its end before it answers that the work goes on.
    pub(super) patience: Duration,
    /// How long it waits for the first word of a worker.
    pub(super) first_word: Duration,
}

impl Work {
    /// What is known of it when it is over, or when patience is. 503 where no worker has said a word.
    pub(super) async fn wait<V, F>(
        &self,
        id: IngestId,
        is_over: impl Fn(&V) -> bool,
        mut look: impl FnMut() -> F,
    ) -> Result<V, ApiError>
    where
        F: Future<Output = Result<Option<V>, StoreError>>,
    {
        let since = Instant::now();
        loop {
            match look().await? {
                Some(view) if is_over(&view) || since.elapsed() > self.patience => return Ok(view),
                None if since.elapsed() > self.first_word => return Err(self.not_begun(id)),
                Some(_) | None => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// Waits for it and answers with what is known then.
    pub(super) async fn outcome<V: Serialize, F>(
        &self,
        id: IngestId,
        is_over: impl Fn(&V) -> bool,
        look: impl FnMut() -> F,
    ) -> Result<Response, ApiError>
    where
        F: Future<Output = Result<Option<V>, StoreError>>,
    {
        let view = self.wait(id, &is_over, look).await?;
        let is_over = is_over(&view);
        Ok(self.answer(id, view, is_over))
    }

    /// 200 with what came of it, or 202 with where it can be looked at.
    pub(super) fn answer<V: Serialize>(&self, id: IngestId, view: V, is_over: bool) -> Response {
        if is_over {
            return Reply(view).into_response();
        }
        (StatusCode::ACCEPTED, location(&format!("{}/{id}", self.place)), Reply(view)).into_response()
    }

    /// 404 for what nobody has heard of.
    pub(super) fn unknown(&self, id: IngestId) -> ApiError {
        let name = self.name;
        ApiError::not_found(&format!("{name}_not_found"), format!("nothing was heard of {name} {id} yet"))
    }

    fn not_begun(&self, id: IngestId) -> ApiError {
        let name = self.name;
        let detail = format!("{name} {id} is on the log, and no worker has said a word of it");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, format!("{name}_not_begun"), detail)
            .hint(format!("GET {}/{id} tells where it is", self.place))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use axum::http::header::LOCATION;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const WORK: Work = Work { name: "rebuild", place: "/rebuilds", patience: LONG, first_word: LONG };

    /// Waits for what is `known` at each look, the last of it from then on; tells what came, and after how many looks.
    async fn waited(work: &Work, known: &[Option<u32>]) -> (Result<u32, ApiError>, usize) {
        let looks = Cell::new(0);
        let look = || {
            let at = looks.replace(looks.get() + 1).min(known.len() - 1);
            std::future::ready(Ok(known[at]))
        };
        let came = work.wait(IngestId::new(), |view| *view == 3, look).await;
        (came, looks.get())
    }

    #[tokio::test]
    async fn given_work_when_it_is_waited_for_then_its_end_is_told_and_what_goes_on_when_patience_is_over() {
        let (ended, looks) = waited(&WORK, &[None, None, Some(1), Some(3)]).await;
        assert!(matches!(ended, Ok(3)) && looks == 4, "{ended:?} {looks}");
        let impatient = Work { patience: Duration::ZERO, ..WORK };
        let (going_on, looks) = waited(&impatient, &[None, None, Some(2), Some(3)]).await;
        assert!(matches!(going_on, Ok(2)) && looks == 3, "{going_on:?} {looks}");
        let unheard = Work { first_word: Duration::ZERO, ..WORK };
        let problem = waited(&unheard, &[None]).await.0.unwrap_err().problem();
        assert_eq!((problem.status, problem.code.as_str()), (503, "rebuild_not_begun"));
        assert!(problem.hint.unwrap().contains("/rebuilds/ing_"));
    }

    #[test]
    fn given_work_that_is_over_or_goes_on_when_it_is_answered_then_only_the_second_says_where_to_look() {
        let id = IngestId::new();
        let over = WORK.answer(id, 3, true);
        assert!(over.status() == StatusCode::OK && !over.headers().contains_key(LOCATION));
        let going_on = WORK.answer(id, 2, false);
        assert_eq!(going_on.status(), StatusCode::ACCEPTED);
        assert_eq!(going_on.headers()[LOCATION], format!("/rebuilds/{id}").as_str());
        assert_eq!(WORK.unknown(id).problem().code, "rebuild_not_found");
    }
}
