//! Documents of a collection.

use axum::Json;
use axum::extract::State;
use riverrun_schemas::{Collection, CollectionName};
use riverrun_stores::StoreError;
use riverrun_stores::read_models::{PageRequest, documents as read};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::Query;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{DocumentView, Page, Problem};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(documents))
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
    checks.require(query.limit != Some(0), "limit", "must be at least 1");
    checks.finish()?;
    let name = name.ok_or_else(|| ApiError::internal("a collection name passed its check and is not there"))?;
    let collection = Collection::new(namespace, name);
    let page = PageRequest { limit: query.limit, cursor: query.cursor };
    let found = read::documents(&state.parts().sql, &collection, &page).await?;
    if found.items.is_empty()
        && page.cursor.is_none()
        && read::collection(&state.parts().sql, &collection).await?.is_none()
    {
        return Err(StoreError::NoCollection(collection).into());
    }
    Ok(Json(Page { items: found.items, next_cursor: found.next_cursor }))
}
