//! How far a request about a collection came: what its row says of its end, whatever it asked for.

use riverrun_schemas::Failure;
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::run_views::{FailureView, failure_view};
use crate::read_models::runs::from_json;
use crate::read_models::time::Timestamp;
use crate::sql::DbRow;

/// The end of a request, or that it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Why it failed.
    pub(crate) error: Option<FailureView>,
    /// When it ended, one way or the other.
    pub(crate) finished_at: Option<Timestamp>,
}

impl Ending {
    /// Reads `error` and `finished_at` of a row of `table`; `key` names the row where that can't be read.
    pub(crate) fn of(row: &DbRow, table: &'static str, key: &str) -> Result<Self, StoreError> {
        let error: Option<String> = row.try_get("error")?;
        let error = error.as_deref().map(|text| from_json::<Failure>(table, key, text)).transpose()?;
        let finished_at: Option<i64> = row.try_get("finished_at")?;
        Ok(Self { error: error.as_ref().map(failure_view), finished_at: finished_at.map(Timestamp) })
    }

    /// `running`, `done` or `failed`.
    pub(crate) fn status(&self) -> &'static str {
        match (&self.error, &self.finished_at) {
            (Some(_), _) => "failed",
            (None, Some(_)) => "done",
            (None, None) => "running",
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::ingest::{
        CollectionRebuildFailed, CollectionRebuilding, CollectionRebuilt, CollectionReembedFailed,
        CollectionReembedded, CollectionReembedding, IngestEvent,
    };
    use riverrun_schemas::{Collection, IngestId, Namespace};

    use super::*;
    use crate::read_models::testing::{fresh, records, rows};
    use crate::read_models::{Projected, apply, rebuilds, reembeddings};

    /// What is said of a request about the collection `notes`.
    macro_rules! told {
        ($request:expr, $event:ident { $($field:ident: $value:expr),* $(,)? }) => {{
            let Collection { namespace, name } = Collection::new(Namespace::default(), "notes".parse().unwrap());
            IngestEvent::from($event { ingest_id: $request, namespace, collection: name, $($field: $value,)* })
        }};
    }

    fn failure() -> Failure {
        Failure::new("model_runtime_down", "nobody answers")
    }

    fn new_model() -> String {
        "new".to_owned()
    }

    fn embedding() -> IngestId {
        IngestId::derive(&["embedding"])
    }

    fn making() -> IngestId {
        IngestId::derive(&["making"])
    }

    /// Both requests are in work.
    fn begun(moment: i64) -> [IngestEvent; 2] {
        [
            told!(
                embedding(),
                CollectionReembedding {
                    from_model: "old".to_owned(),
                    embed_model: new_model(),
                    documents: 1,
                    chunks: 2,
                    at: moment,
                }
            ),
            told!(making(), CollectionRebuilding { reason: "it was asked for".to_owned(), at: moment }),
        ]
    }

    fn failed(moment: i64) -> [IngestEvent; 2] {
        [
            told!(embedding(), CollectionReembedFailed { embed_model: new_model(), error: failure(), at: moment }),
            told!(making(), CollectionRebuildFailed { error: failure(), at: moment }),
        ]
    }

    fn done(moment: i64) -> [IngestEvent; 2] {
        [
            told!(
                embedding(),
                CollectionReembedded { embed_model: new_model(), dimensions: 3, documents: 1, chunks: 2, at: moment }
            ),
            told!(
                making(),
                CollectionRebuilt {
                    embed_model: new_model(),
                    documents: 1,
                    chunks: 2,
                    vectors: 2,
                    keywords: 2,
                    embedded: 0,
                    removed: 0,
                    missing: 0,
                    missing_documents: Vec::new(),
                    at: moment,
                }
            ),
        ]
    }

    #[test]
    fn given_what_a_row_says_of_an_end_when_it_is_shown_then_an_error_comes_before_the_end_and_none_is_under_way() {
        let error = || Some(failure_view(&Failure::new("x", "it failed")));
        let status =
            |error, finished_at: Option<i64>| Ending { error, finished_at: finished_at.map(Timestamp) }.status();
        assert_eq!(
            (status(None, None), status(None, Some(1)), status(error(), Some(1)), status(error(), None)),
            ("running", "done", "failed", "failed")
        );
    }

    #[tokio::test]
    async fn given_requests_that_failed_when_they_are_handed_in_again_then_they_are_in_work_until_the_first_success() {
        let (_folder, sql) = fresh().await;
        let mut events = Vec::new();
        for (more, status, created_at, finished_at) in [
            (failed(1), "failed", 1, Some(1)),
            // One that does not get so far as to say that it has begun.
            (failed(2), "failed", 1, Some(1)),
            (begun(3), "running", 3, None),
            // As a delivery that is handed in again after a crash tells it.
            (begun(4), "running", 3, None),
            (failed(5), "failed", 3, Some(5)),
            (begun(6), "running", 6, None),
            (done(7), "done", 6, Some(7)),
            (failed(8), "done", 6, Some(7)),
            (begun(9), "done", 6, Some(7)),
            (done(10), "done", 6, Some(7)),
        ] {
            events.extend(more);
            apply(&sql, &records(events.clone(), Projected::Ingest)).await.unwrap();
            let embedded = reembeddings::reembedding(&sql, embedding()).await.unwrap().unwrap();
            let made = rebuilds::rebuild(&sql, making()).await.unwrap().unwrap();
            for (found, error, times) in [
                (embedded.status, embedded.error, (embedded.created_at, embedded.finished_at)),
                (made.status, made.error, (made.created_at, made.finished_at)),
            ] {
                assert_eq!((found.as_str(), error.is_some()), (status, status == "failed"), "{events:?}");
                assert_eq!(times, (Timestamp(created_at), finished_at.map(Timestamp)), "{events:?}");
            }
            let running = rebuilds::running(&sql).await.unwrap();
            assert_eq!(running.len(), usize::from(status == "running"), "{events:?}");
        }
        let collections = rows(&sql, &["SELECT embed_model FROM collections"]).await;
        assert!(collections.contains("embed_model=new"), "{collections}");
    }

    #[tokio::test]
    async fn given_a_request_that_failed_when_it_is_done_after_all_then_that_is_shown() {
        let (_folder, sql) = fresh().await;
        let events = [failed(1), done(2)].into_iter().flatten();
        apply(&sql, &records(events, Projected::Ingest)).await.unwrap();
        let embedded = reembeddings::reembedding(&sql, embedding()).await.unwrap().unwrap();
        assert_eq!(
            (embedded.status.as_str(), embedded.error, embedded.finished_at),
            ("done", None, Some(Timestamp(2)))
        );
        let made = rebuilds::rebuild(&sql, making()).await.unwrap().unwrap();
        assert_eq!((made.status.as_str(), made.error, made.finished_at), ("done", None, Some(Timestamp(2))));
    }
}
