//! Collections of documents.

use axum::Json;
use axum::extract::State;
use riverrun_stores::read_models::documents;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::Query;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{CollectionView, Items, Problem};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(collections))
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
    let items = documents::collections(&state.parts().sql, namespace.as_ref()).await?;
    Ok(Json(Items { items }))
}
