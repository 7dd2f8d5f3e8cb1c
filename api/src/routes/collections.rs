//! Collections of documents.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Path, State};
use riverrun_schemas::{Collection, DocumentId};
use riverrun_stores::read_models::{Within, documents};
use riverrun_stores::{GapState, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::Query;
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wire::{CollectionCheck, CollectionView, FailureView, Items, Orphan, Problem};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(collections)).routes(routes!(check))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct CollectionsQuery {
    /// Only those of this namespace; of every one when left out.
    namespace: Option<String>,
}

/// Collections, with how much is in them.
#[utoipa::path(get, path = "/collections", tag = "knowledge", params(CollectionsQuery),
    responses((status = 200, body = Items<CollectionView>), (status = 422, body = Problem)))]
async fn collections(
    State(state): State<AppState>,
    Query(query): Query<CollectionsQuery>,
) -> Result<Json<Items<CollectionView>>, ApiError> {
    let mut checks = Checks::default();
    let namespace = query.namespace.as_deref().map(|name| checks.namespace(Some(name)));
    checks.finish()?;
    let within = namespace.as_ref().map_or(Within::EveryNamespace, Within::Namespace);
    let items = documents::collections(&state.parts().sql, within).await?;
    Ok(Json(Items { items }))
}

/// Compares vector store, keyword index and read model, document by document, and tells what else is wrong with the collection. While
/// documents are on their way the three may differ for a moment.
#[utoipa::path(get, path = "/collections/{name}/check", tag = "knowledge", params(("name" = String, Path), CollectionsQuery),
    responses((status = 200, body = CollectionCheck), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn check(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Query(query): Query<CollectionsQuery>,
) -> Result<Json<CollectionCheck>, ApiError> {
    let collection = submit::collection(query.namespace.as_deref(), &name)?;
    let parts = state.parts();
    let chunks = documents::indexed_documents(&parts.sql, &collection).await?;
    let (vectors, keywords) = (parts.vectors.documents(&collection).await, parts.keywords.documents(&collection).await);
    let mut problems = Vec::new();
    let vectors = readable(vectors, &collection, &mut problems)?;
    let keywords = readable(keywords, &collection, &mut problems)?;
    let found = compare(&collection, &chunks, &vectors, &keywords);
    problems.extend(gap(&state, &collection, found.orphans.is_empty()));
    if chunks.is_empty() && vectors.is_empty() && keywords.is_empty() && problems.is_empty() {
        return Err(StoreError::NoCollection(collection).into());
    }
    Ok(Json(CollectionCheck { problems, ..found }))
}

type Counts = BTreeMap<DocumentId, usize>;

/// What is known to be wrong with the collection. Whatever may go on yet: one whose parts agree is whole.
fn gap(state: &AppState, collection: &Collection, agree: bool) -> Option<FailureView> {
    let gap = state.parts().gaps.of(collection)?;
    let code = match gap.state {
        GapState::Mending if agree => return None,
        GapState::Mending => "rebuilding",
        GapState::Stuck => "rebuild_needed",
    };
    let hint = Some(gap.fix(collection));
    Some(FailureView { code: code.to_owned(), message: gap.reason, hint })
}

/// A damaged index holds nothing, and is told.
fn readable(
    found: Result<Counts, StoreError>,
    collection: &Collection,
    problems: &mut Vec<FailureView>,
) -> Result<Counts, StoreError> {
    match found {
        Err(error) if error.is_damage() => {
            let Collection { namespace, name } = collection;
            let hint = format!("riverrun collections rebuild {name} -n {namespace}");
            let (code, message) = ("index_damaged".to_owned(), error.to_string());
            problems.push(FailureView { code, message, hint: Some(hint) });
            Ok(Counts::new())
        }
        other => other,
    }
}

fn compare(collection: &Collection, chunks: &Counts, vectors: &Counts, keywords: &Counts) -> CollectionCheck {
    let all: BTreeSet<&DocumentId> = chunks.keys().chain(vectors.keys()).chain(keywords.keys()).collect();
    let of = |counts: &Counts, id: &DocumentId| counts.get(id).copied().unwrap_or(0);
    let orphan = |id: &DocumentId| {
        let (chunks, vectors, keywords) = (of(chunks, id), of(vectors, id), of(keywords, id));
        (chunks != vectors || vectors != keywords).then(|| Orphan {
            document_id: id.to_string(),
            chunks,
            vectors,
            keywords,
        })
    };
    let beyond = |counts: &Counts, others: &Counts| -> usize {
        counts.iter().map(|(id, count)| count.saturating_sub(of(others, id))).sum()
    };
    CollectionCheck {
        missing: beyond(chunks, vectors) + beyond(chunks, keywords),
        surplus: beyond(vectors, chunks) + beyond(keywords, chunks),
        problems: Vec::new(),
        collection: collection.name.to_string(),
        namespace: collection.namespace.to_string(),
        chunks: chunks.values().sum(),
        vectors: vectors.values().sum(),
        keywords: keywords.values().sum(),
        orphans: all.into_iter().filter_map(orphan).collect(),
    }
}
