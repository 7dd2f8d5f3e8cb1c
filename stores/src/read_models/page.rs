//! Lists that are read in pages.

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::sql::storable;

/// No page is longer, whatever was asked for.
pub const MAX_PAGE: u32 = 500;
const DEFAULT_PAGE: u32 = 50;

/// Which page is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// Most items; 50 when not said, 500 at most.
    pub limit: Option<u32>,
    /// `next_cursor` of the page before; `None` for the first page.
    pub cursor: Option<String>,
}

impl PageRequest {
    /// Most items of the page.
    pub fn limit(&self) -> i64 {
        i64::from(self.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE))
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page starts; `None` on the last one.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page of one item more than `limit`, when there is one: that there is more is known without a second query.
    pub(crate) fn of(mut items: Vec<T>, limit: i64, cursor: impl Fn(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or(1);
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(cursor);
        Self { items, next_cursor }
    }
}

/// Where a list that is ordered by time and id goes on.
pub(crate) struct TimeCursor {
    pub(crate) at: i64,
    pub(crate) id: String,
}

impl TimeCursor {
    pub(crate) fn encode(at: i64, id: &str) -> String {
        format!("{at}.{id}")
    }

    pub(crate) fn decode(cursor: &str) -> Result<Self, StoreError> {
        let parsed = cursor.split_once('.').and_then(|(at, id)| Some(Self { at: at.parse().ok()?, id: storable(id) }));
        parsed.ok_or_else(|| StoreError::Cursor(cursor.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_cursors_when_they_are_read_then_their_ids_can_be_bound_and_what_is_none_is_refused() {
        for (text, at, id) in
            [("7.run_a", 7, "run_a"), ("-1.a.b", -1, "a.b"), ("7.", 7, ""), ("7.a\0b", 7, "a\u{fffd}b")]
        {
            let cursor = TimeCursor::decode(text).unwrap();
            assert_eq!((cursor.at, cursor.id.as_str()), (at, id), "{text:?}");
        }
        for text in ["", "7", ".a", "x.a", "7e3.a", "9223372036854775808.a"] {
            assert!(matches!(TimeCursor::decode(text), Err(StoreError::Cursor(_))), "{text:?}");
        }
    }
}
