//! Documents of a collection.

use axum::Json;
use axum::extract::State;
use riverrun_schemas::{Collection, CollectionName, DocumentId, Namespace};
use riverrun_stores::documents::{DocumentKey, SourceDocument};
use riverrun_stores::read_models::documents as read;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::collections::unknown_collection;
use crate::error::ApiError;
use crate::extract::{NamespaceQuery, Path, Query, id};
use crate::kept::kept;
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wire::{DocumentDetail, DocumentView, Page, Problem};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(documents)).routes(routes!(show))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct DocumentsQuery {
    /// The collection.
    collection: String,
    /// Its namespace; `default` when left out.
    namespace: Option<String>,
    /// Most documents of a page; 50 when left out, 500 at most.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Documents of a collection, by source.
#[utoipa::path(get, path = "/documents", tag = "knowledge", params(DocumentsQuery),
    responses((status = 200, body = Page<DocumentView>), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn documents(
    State(state): State<AppState>,
    Query(query): Query<DocumentsQuery>,
) -> Result<Json<Page<DocumentView>>, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(query.namespace.as_deref());
    let name = checks.take("collection", query.collection.parse::<CollectionName>());
    let page = checks.page(query.limit, query.cursor);
    let collection = Collection::new(namespace, checks.finish_with(name)?);
    let found = read::documents(&state.parts().sql, &collection, &page).await?;
    if found.items.is_empty() && read::collection(&state.parts().sql, &collection).await?.is_none() {
        return Err(unknown_collection(&state, collection).await);
    }
    Ok(Json(Page { items: found.items, next_cursor: found.next_cursor }))
}

/// A document with its versions, and what is known of the bytes that they were made of.
#[utoipa::path(get, path = "/documents/{id}", tag = "knowledge", params(("id" = String, Path), NamespaceQuery),
    responses((status = 200, body = DocumentDetail), (status = 404, body = Problem)))]
async fn show(
    State(state): State<AppState>,
    Path(document): Path<String>,
    Query(query): Query<NamespaceQuery>,
) -> Result<Json<DocumentDetail>, ApiError> {
    let document_id: DocumentId = id(&document)?;
    let namespace = submit::namespace(query.namespace.as_deref())?;
    let sql = &state.parts().sql;
    let document =
        read::document_in(sql, &namespace, document_id).await?.ok_or_else(|| unknown(document_id, &namespace))?;
    let versions = read::document_versions(sql, document_id).await?;
    let source = kept(&state, &DocumentKey::source(&namespace, document_id)).await;
    let source_versions =
        source.as_ref().and_then(SourceDocument::of).map(|source| source.versions).unwrap_or_default();
    Ok(Json(DocumentDetail { document, versions, source_versions }))
}

pub(super) fn unknown(document_id: DocumentId, namespace: &Namespace) -> ApiError {
    let what = format!("there is no document {document_id} in namespace {:?}", namespace.as_str());
    ApiError::not_found("document_not_found", what).hint("riverrun docs ls -c COLLECTION lists those of a collection")
}
