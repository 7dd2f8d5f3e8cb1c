//! Searches that are tuned to judgements: a command on the log, and where it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::response::Response;
use riverrun_knowledge::SearchRequest;
use riverrun_knowledge::retrieval::JudgedQuestion;
use riverrun_log::blobs::sha256_hex;
use riverrun_schemas::ingest::TuneCollection;
use riverrun_schemas::{BlobRef, Collection, CollectionName, DocumentId, IngestId, counted, now_ms};
use riverrun_stores::read_models::keyed::KeyedTable;
use riverrun_stores::read_models::{documents, tunings};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::awaited::Work;
use super::collections::unknown_collection;
use crate::accept::hand_in;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, Path, id};
use crate::keyed::{Keyed, once};
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{JudgementBody, Problem, TuneBody, TuningView};

const TUNING: Work =
    Work { name: "tuning", place: "/tunings", patience: Duration::from_secs(10), first_word: Duration::from_secs(60) };

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(tune)).routes(routes!(show))
}

/// Learns from judgements where the vectors of questions should point, and searches so from then on, unless cross-validation says that it
/// does not help. Nothing is embedded again. `off` has searches be as without.
#[utoipa::path(post, path = "/collections/{name}/tune", tag = "knowledge", params(("name" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same request")),
    request_body = TuneBody,
    responses((status = 200, description = "it has ended: `status` is `done` or `failed`", body = TuningView),
        (status = 202, description = "accepted, and not done within 10 s", body = TuningView),
        (status = 404, description = "no such collection", body = Problem), (status = 409, description = "the key was used with another body", body = Problem), (status = 422, body = Problem)))]
async fn tune(
    State(state): State<AppState>,
    Path(name): Path<String>,
    key: IdempotencyKey,
    Json(body): Json<TuneBody>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    let name = checks.take("collection", name.parse::<CollectionName>());
    check(&mut checks, &body);
    let collection = Collection::new(namespace, checks.finish_with(name)?);
    // Where searches are to be as without, there are none.
    let judgements = serde_json::to_vec(&body.judgements).map_err(|error| ApiError::internal(error.to_string()))?;
    let keyed = key.0.as_deref().map(|key| of_key(key, &collection, &judgements)).transpose()?;
    let sql = &state.parts().sql;
    let tuning_id = match &keyed {
        Some(keyed) => keyed.id(sql, KeyedTable::Tunings).await?,
        None => IngestId::new(),
    };
    if tunings::tuning(sql, tuning_id).await?.is_none() {
        if documents::collection(sql, &collection).await?.is_none() {
            return Err(unknown_collection(&state, collection).await);
        }
        once(keyed.as_ref(), state.reservations(), begin(&state, tuning_id, collection, &body)).await?;
    }
    TUNING.outcome(tuning_id, TuningView::ended, || tunings::tuning(sql, tuning_id)).await
}

/// The request of a key: the same judgements are the same one, others are refused, also after a restart.
fn of_key<'k>(key: &'k str, collection: &Collection, judgements: &[u8]) -> Result<Keyed<'k, IngestId>, ApiError> {
    let (place, judgements) = (collection.physical_name(), sha256_hex(judgements));
    let former = IngestId::derive(&["tune", key, &place, &judgements]);
    let keyed = Keyed::new(key, "tuning", &["tune", key, &place], &json!({ "judgements": judgements }))?;
    Ok(keyed.formerly(former))
}

async fn begin(state: &AppState, tuning_id: IngestId, collection: Collection, body: &TuneBody) -> Result<(), ApiError> {
    let judgements = match body.off {
        Some(true) => None,
        Some(false) | None => Some(kept(state, &collection, &body.judgements).await?),
    };
    let Collection { namespace, name } = collection;
    let command = TuneCollection { ingest_id: tuning_id, namespace, collection: name, judgements, at: now_ms() };
    hand_in(state, command).await
}

/// Where a request is.
#[utoipa::path(get, path = "/tunings/{id}", tag = "knowledge", params(("id" = String, Path)),
    responses((status = 200, body = TuningView), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(tuning): Path<String>) -> Result<Reply<TuningView>, ApiError> {
    let tuning_id: IngestId = id(&tuning)?;
    let known = tunings::tuning(&state.parts().sql, tuning_id).await?;
    known.map(Reply).ok_or_else(|| unknown_tuning(tuning_id))
}

pub(crate) fn unknown_tuning(tuning_id: IngestId) -> ApiError {
    TUNING.unknown(tuning_id)
}

fn check(checks: &mut Checks, body: &TuneBody) {
    let count = body.judgements.len();
    if body.off == Some(true) {
        checks.require(count == 0, "judgements", "does not go with `off`");
        return;
    }
    let (least, most) = (JudgedQuestion::MIN, JudgedQuestion::MAX);
    checks.require(
        (least..=most).contains(&count),
        "judgements",
        format!("has {}, which is not between {least} and {most}", counted(count, "question")),
    );
    let mut seen = BTreeSet::new();
    for (at, judgement) in body.judgements.iter().take(JudgedQuestion::MAX).enumerate() {
        let field = format!("judgements[{at}]");
        checks.text(&format!("{field}.query"), &judgement.query, SearchRequest::MAX_QUERY_BYTES);
        // One that is both learned from and tested on would tell of itself.
        checks.require(
            seen.insert(judgement.query.trim()),
            &format!("{field}.query"),
            "is among the questions before it",
        );
        let (graded, most) = (judgement.documents.len(), JudgedQuestion::MAX_DOCUMENTS);
        checks.require(
            graded <= most,
            &format!("{field}.documents"),
            format!("has {graded} documents; at most {most} are judged"),
        );
        for (document, grade) in judgement.documents.iter().take(JudgedQuestion::MAX_DOCUMENTS) {
            checks.between(&format!("{field}.documents[{document:?}]"), Some(*grade), 0.0..=JudgedQuestion::MAX_GRADE);
        }
    }
}

/// Puts the judgements where the worker reads them, with the ids of documents.
async fn kept(state: &AppState, collection: &Collection, judgements: &[JudgementBody]) -> Result<BlobRef, ApiError> {
    let names: BTreeSet<&str> =
        judgements.iter().flat_map(|judgement| judgement.documents.keys().map(String::as_str)).collect();
    let known = documents::named(&state.parts().sql, collection, &names).await?;
    let questions: Vec<JudgedQuestion> = judgements.iter().map(|judgement| question(judgement, &known)).collect();
    let bytes = serde_json::to_vec(&questions).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(state.parts().blobs.put_bytes(bytes.into(), "application/json").await?)
}

fn question(judgement: &JudgementBody, known: &HashMap<String, DocumentId>) -> JudgedQuestion {
    let graded = judgement.documents.iter().filter_map(|(name, grade)| Some((*known.get(name)?, *grade)));
    let mut documents: BTreeMap<DocumentId, f64> = BTreeMap::new();
    // Two names of one document: the better grade counts.
    graded.for_each(|(document, grade)| {
        let kept = documents.entry(document).or_insert(grade);
        *kept = kept.max(grade);
    });
    JudgedQuestion { query: judgement.query.trim().to_owned(), documents }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::Namespace;

    use super::*;

    #[test]
    fn given_a_key_when_a_request_is_named_then_it_follows_from_key_collection_and_judgements() {
        let notes = Collection::new(Namespace::default(), "notes".parse().unwrap());
        let others = Collection::new(Namespace::default(), "others".parse().unwrap());
        let named = |key: &str, collection: &Collection, judgements: &[u8]| {
            format!("{:?}", of_key(key, collection, judgements).unwrap())
        };
        let first = named("k", &notes, b"[1]");
        assert_eq!(named("k", &notes, b"[1]"), first);
        for other in [named("l", &notes, b"[1]"), named("k", &others, b"[1]"), named("k", &notes, b"[2]")] {
            assert_ne!(other, first);
        }
    }
}
