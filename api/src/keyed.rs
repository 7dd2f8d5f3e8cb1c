//! Ids of what is asked for under an idempotency key (`API-4`). The first half of an id follows from the key, the second from what is
//! asked: a repeat comes to the same id, in any process and after any restart, and another request under the same key comes to a
//! neighbour of the first one's, which the read model has.

use std::fmt::Display;
use std::str::FromStr;

use riverrun_schemas::{AnalysisId, ChangeId, IngestId, ProjectId, ProposalId};
use riverrun_stores::Sql;
use riverrun_stores::read_models::keyed::{self, KeyedTable};
use serde::Serialize;
use serde_json::Value;

use crate::accept::key_conflict;
use crate::error::ApiError;
use crate::reservations::{Held, Reservations};

/// An id that may follow from a key.
pub(crate) trait KeyId: Copy + PartialEq + Display + FromStr<Err: Display> {
    fn of_key(parts: &[&str]) -> Self;
    fn of_request(parts: &[&str], asked: &str) -> Self;
    fn beside(self) -> (Self, Self);
}

macro_rules! key_ids {
    ($($id:ident),+) => {$(
        impl KeyId for $id {
            fn of_key(parts: &[&str]) -> Self {
                Self::derive(parts)
            }

            fn of_request(parts: &[&str], asked: &str) -> Self {
                Self::derive_beside(parts, &[asked])
            }

            fn beside(self) -> (Self, Self) {
                self.neighbours()
            }
        }
    )+};
}

key_ids!(AnalysisId, ChangeId, IngestId, ProjectId, ProposalId);

/// What is asked for under a key.
#[derive(Debug)]
pub(crate) struct Keyed<'k, I> {
    key: &'k str,
    /// What it is, in a word.
    what: &'static str,
    id: I,
    /// The id that earlier versions gave it.
    former: I,
    asked: String,
}

impl<'k, I: KeyId> Keyed<'k, I> {
    /// `parts` is the key with all that tells it from the same key elsewhere.
    pub(crate) fn new(
        key: &'k str,
        what: &'static str,
        parts: &[&str],
        asked: &impl Serialize,
    ) -> Result<Self, ApiError> {
        let asked = canonical(asked)?;
        Ok(Self { key, what, id: I::of_request(parts, &asked), former: I::of_key(parts), asked })
    }

    /// The same where earlier versions drew another id than that of the key alone.
    pub(crate) fn formerly(self, former: I) -> Self {
        Self { former, ..self }
    }

    /// The id of the request: the one that it has already, where it came before. 409 where the key was used for another one.
    pub(crate) async fn id(&self, sql: &Sql, table: KeyedTable) -> Result<I, ApiError> {
        let known = keyed::known(sql, table, self.id.beside(), self.former).await?;
        self.chosen(&known).ok_or_else(|| key_conflict(self.key, self.what))
    }

    fn chosen(&self, known: &[I]) -> Option<I> {
        let before = [self.id, self.former].into_iter().find(|id| known.contains(id));
        before.or_else(|| known.is_empty().then_some(self.id))
    }

    /// Uses the key until the read model has the request. 409 where it is in use for another one.
    pub(crate) fn reserve<'r>(&self, reservations: &'r Reservations) -> Result<Held<'r>, ApiError> {
        let place = self.id.beside().0.to_string();
        reservations.reserve(&place, self.asked.as_bytes()).ok_or_else(|| key_conflict(self.key, self.what))
    }
}

/// Begins what is asked for, unless the same request under its key has begun it. 409 where the key is in use for another one.
pub(crate) async fn once<I: KeyId>(
    keyed: Option<&Keyed<'_, I>>,
    reservations: &Reservations,
    begin: impl Future<Output = Result<(), ApiError>>,
) -> Result<(), ApiError> {
    let Some(keyed) = keyed else { return begin.await };
    let held = keyed.reserve(reservations)?;
    if !held.is_begun() {
        begin.await?;
        held.keep();
    }
    Ok(())
}

/// What is asked, as a text that neither the order of fields nor those that say nothing change.
fn canonical(asked: &impl Serialize) -> Result<String, ApiError> {
    let mut value = serde_json::to_value(asked).map_err(|error| ApiError::internal(error.to_string()))?;
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, field| !field.is_null());
    }
    value.sort_all_objects();
    Ok(value.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    fn keyed(key: &'static str, asked: &Value) -> Keyed<'static, IngestId> {
        Keyed::new(key, "ingest", &["idempotency-key", "default", key], asked).unwrap()
    }

    #[test]
    fn given_requests_when_their_ids_are_drawn_then_key_and_body_count_and_neither_order_nor_empty_fields() {
        let first = keyed("k", &json!({"a": 1, "b": {"c": 2, "d": 3}, "e": null}));
        let same = keyed("k", &json!({"b": {"d": 3, "c": 2}, "a": 1}));
        assert_eq!(first.id, same.id);
        for (key, body) in [
            ("k", json!({"a": 2, "b": {"c": 2, "d": 3}})),
            ("k", json!({"a": 1})),
            ("k", json!({"a": 1, "b": {"c": 2, "d": 3, "e": null}})),
            ("other", json!({"a": 1, "b": {"c": 2, "d": 3}})),
        ] {
            let other = keyed(key, &body);
            assert_ne!(other.id, first.id, "{key} {body}");
            assert_eq!(other.id.neighbours() == first.id.neighbours(), key == "k", "{key} {body}");
        }
    }

    #[test]
    fn given_what_is_known_of_a_key_when_it_is_used_then_a_repeat_finds_its_own_and_another_body_nothing() {
        let (first, other) = (keyed("k", &json!({"a": 1})), keyed("k", &json!({"a": 2})));
        let former = IngestId::derive(&["idempotency-key", "default", "k"]);
        for (known, chosen) in [
            (vec![], Some(first.id)),
            (vec![first.id], Some(first.id)),
            (vec![other.id], None),
            (vec![other.id, first.id], Some(first.id)),
            (vec![former], Some(former)),
            (vec![former, first.id], Some(first.id)),
        ] {
            assert_eq!(first.chosen(&known), chosen, "{known:?}");
        }
    }

    #[test]
    fn given_a_key_in_use_when_it_comes_with_another_body_then_it_is_a_conflict_and_the_same_body_is_not() {
        let reservations = Reservations::default();
        let (first, other) = (keyed("k", &json!({"a": 1})), keyed("k", &json!({"a": 2})));
        first.reserve(&reservations).unwrap().keep();
        assert!(!first.reserve(&reservations).unwrap().is_first());
        let refused = other.reserve(&reservations).unwrap_err().problem();
        assert_eq!((refused.status, refused.code.as_str()), (409, "idempotency_key_reused"));
        assert!(keyed("k2", &json!({"a": 2})).reserve(&reservations).unwrap().is_first());
    }

    #[tokio::test]
    async fn given_requests_under_a_key_when_they_come_together_then_it_begins_once_and_again_where_it_failed() {
        let (reservations, begun) = (Reservations::default(), AtomicUsize::new(0));
        let (first, other) = (keyed("k", &json!({"a": 1})), keyed("k", &json!({"a": 2})));
        let begin = |well: bool| {
            let begun = &begun;
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                if well { Ok(()) } else { Err(ApiError::internal("no log")) }
            }
        };
        assert!(once(Some(&first), &reservations, begin(false)).await.is_err());
        once(Some(&first), &reservations, begin(true)).await.unwrap();
        once(Some(&first), &reservations, begin(true)).await.unwrap();
        let refused = once(Some(&other), &reservations, begin(true)).await.unwrap_err().problem();
        assert_eq!((refused.status, refused.code.as_str()), (409, "idempotency_key_reused"));
        assert_eq!(begun.load(Ordering::Relaxed), 2, "one that failed, and one of two repeats");
        once::<IngestId>(None, &reservations, begin(true)).await.unwrap();
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        let late = keyed("late", &json!({"a": 1}));
        let on_its_way = late.reserve(&reservations).unwrap();
        once(Some(&late), &reservations, begin(true)).await.unwrap();
        assert_eq!(begun.load(Ordering::Relaxed), 4, "who is answered does not count on one that may fail");
        drop(on_its_way);
    }
}
