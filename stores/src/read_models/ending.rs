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
        CollectionRebuildFailed, CollectionRebuilt, CollectionReembedFailed, CollectionReembedded, IngestEvent,
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
    async fn given_a_request_that_failed_when_it_is_handed_in_again_and_done_then_that_is_shown_and_no_later_end() {
        let (_folder, sql) = fresh().await;
        let (embedded, made) = (IngestId::derive(&["embedded"]), IngestId::derive(&["made"]));
        let failure = || Failure::new("model_runtime_down", "nobody answers");
        let model = |name: &str| name.to_owned();
        let events = [
            told!(embedded, CollectionReembedFailed { embed_model: model("new"), error: failure(), at: 1 }),
            told!(
                embedded,
                CollectionReembedded { embed_model: model("new"), dimensions: 3, documents: 1, chunks: 2, at: 2 }
            ),
            told!(embedded, CollectionReembedFailed { embed_model: model("new"), error: failure(), at: 3 }),
            told!(made, CollectionRebuildFailed { error: failure(), at: 4 }),
            told!(
                made,
                CollectionRebuilt {
                    embed_model: model("new"),
                    documents: 1,
                    chunks: 2,
                    vectors: 2,
                    keywords: 2,
                    embedded: 0,
                    removed: 0,
                    missing: 0,
                    missing_documents: Vec::new(),
                    at: 5,
                }
            ),
            told!(made, CollectionRebuildFailed { error: failure(), at: 6 }),
        ];
        apply(&sql, &records(events, Projected::Ingest)).await.unwrap();
        let embedded = reembeddings::reembedding(&sql, embedded).await.unwrap().unwrap();
        assert_eq!(
            (embedded.status.as_str(), embedded.error, embedded.finished_at),
            ("done", None, Some(Timestamp(2)))
        );
        let made = rebuilds::rebuild(&sql, made).await.unwrap().unwrap();
        assert_eq!((made.status.as_str(), made.error, made.finished_at), ("done", None, Some(Timestamp(5))));
        let collections = rows(&sql, &["SELECT embed_model FROM collections"]).await;
        assert!(collections.contains("embed_model=new"), "{collections}");
    }
}
