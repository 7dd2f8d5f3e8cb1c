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
    use super::*;

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
}
