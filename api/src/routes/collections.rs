//! Collections of documents.

use axum::Json;
use axum::extract::State;
use riverrun_schemas::Collection;
use riverrun_stores::read_models::{Within, deletions, documents};
use riverrun_stores::{GapState, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::collection_check;
use crate::error::ApiError;
use crate::extract::{NamespaceQuery, Path, Query};
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wire::{CollectionCheck, CollectionStanding, CollectionView, FailureView, Items, Problem};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(collections)).routes(routes!(check)).routes(routes!(standing))
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

/// 404 for a collection that is not there, with those of its namespace that are: its name may have a slip in it.
pub(crate) async fn unknown_collection(state: &AppState, collection: Collection) -> ApiError {
    // What goes wrong here leaves the answer as it is.
    let there = documents::collections(&state.parts().sql, Within::Namespace(&collection.namespace)).await;
    let unknown = ApiError::from(StoreError::NoCollection(collection));
    match existing(&there.unwrap_or_default()) {
        Some(hint) => unknown.hint(hint),
        None => unknown,
    }
}

/// The hint with the collections that are there; `None` where none is.
pub(crate) fn existing(there: &[CollectionView]) -> Option<String> {
    let names: Vec<&str> = there.iter().map(|collection| collection.name.as_str()).collect();
    (!names.is_empty()).then(|| format!("existing collections: {}", names.join(", ")))
}

/// Compares vector store, keyword index and read model, chunk by chunk, and tells what else is wrong with the collection. While
/// documents are on their way the three may differ for a moment.
#[utoipa::path(get, path = "/collections/{name}/check", tag = "knowledge", params(("name" = String, Path), CollectionsQuery),
    responses((status = 200, body = CollectionCheck), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn check(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Query(query): Query<CollectionsQuery>,
) -> Result<Json<CollectionCheck>, ApiError> {
    let collection = submit::collection(query.namespace.as_deref(), &name)?;
    let mut found = match collection_check::run(state.parts(), &collection).await {
        Err(error) if error.is_damage() => damaged(&state, &collection, &error).await?,
        other => other?,
    };
    found.problems.extend(gap(&state, &collection, found.orphans.is_empty()));
    if found.chunks == 0 && found.vectors == 0 && found.keywords == 0 && found.is_whole() {
        return Err(unknown_collection(&state, collection).await);
    }
    Ok(Json(found))
}

/// What stands under a name: the collection, if there is one, and the newest removal of everything in it. For whoever fills it from
/// elsewhere, and must not take what was there before a removal for what is there now.
#[utoipa::path(get, path = "/collections/{name}/standing", tag = "knowledge", params(("name" = String, Path), NamespaceQuery),
    responses((status = 200, body = CollectionStanding), (status = 422, body = Problem)))]
async fn standing(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Query(query): Query<NamespaceQuery>,
) -> Result<Json<CollectionStanding>, ApiError> {
    let collection = submit::collection(query.namespace.as_deref(), &name)?;
    let sql = &state.parts().sql;
    // The removal first: a collection that is removed in between is not yet told as removed, and is asked for again.
    let removed_by = deletions::last_of_collection(sql, &collection).await?;
    Ok(Json(CollectionStanding { collection: documents::collection(sql, &collection).await?, removed_by }))
}

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

/// Of a collection with a damaged index nothing is compared: that it is damaged is told, and how much there is elsewhere. An index that was
/// set aside meanwhile holds nothing.
async fn damaged(state: &AppState, collection: &Collection, error: &StoreError) -> Result<CollectionCheck, StoreError> {
    let Collection { namespace, name } = collection;
    let parts = state.parts();
    let hint = format!("riverrun collections rebuild {name} -n {namespace}");
    let problem = FailureView { code: "index_damaged".to_owned(), message: error.to_string(), hint: Some(hint) };
    let readable = |counted: Result<usize, StoreError>| match counted {
        Err(error) if error.is_damage() => Ok(0),
        other => other,
    };
    Ok(CollectionCheck {
        collection: name.to_string(),
        namespace: namespace.to_string(),
        chunks: documents::indexed_chunks(&parts.sql, collection).await?,
        vectors: readable(parts.vectors.count(collection).await)?,
        keywords: readable(parts.keywords.count(collection).await)?,
        orphans: Vec::new(),
        differences: Vec::new(),
        truncated: false,
        missing: 0,
        surplus: 0,
        problems: vec![problem],
    })
}
