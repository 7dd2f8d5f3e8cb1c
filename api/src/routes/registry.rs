//! The read endpoints of a Confluent-compatible schema registry, from the committed list: point a stock deserializer at
//! `http://127.0.0.1:8000`, or at `http://127.0.0.1:8000/registry` where a path of its own is wanted. <https://docs.confluent.io/platform/current/schema-registry/develop/api.html>
//!
//! Registering a schema that is listed answers its id; every other write is refused: new versions come by a change to
//! `schemas/registry.toml`.

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use riverrun_schemas::registry::{self, RegisteredSchema};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::config::MAX_JSON_BYTES;
use crate::extract::Path;

const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";
const COMPATIBILITY: &str = "FULL_TRANSITIVE";

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S> {
    OpenApiRouter::new()
        .routes(routes!(schema_types))
        .routes(routes!(schema_by_id))
        .routes(routes!(schema_text))
        .routes(routes!(schema_versions))
        .routes(routes!(schema_subjects))
        .routes(routes!(subjects))
        .routes(routes!(look_up))
        .routes(routes!(versions, register))
        .routes(routes!(version))
        .routes(routes!(version_text))
        .routes(routes!(config))
        .routes(routes!(subject_config))
        .routes(routes!(mode))
}

/// The same under a path of its own, which the OpenAPI document need not say twice.
pub(crate) fn alias<S: Clone + Send + Sync + 'static>() -> axum::Router<S> {
    let (routes, _) = router().split_for_parts();
    axum::Router::new().nest("/registry", routes)
}

fn answer(body: Value) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], body.to_string()).into_response()
}

/// The registry's own error shape: clients compare `error_code`.
fn refuse(error_code: u32, message: &str) -> Response {
    let status = u16::try_from(error_code / 100)
        .ok()
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
    (
        status,
        [(header::CONTENT_TYPE, CONTENT_TYPE)],
        json!({ "error_code": error_code, "message": message }).to_string(),
    )
        .into_response()
}

fn no_schema() -> Response {
    refuse(40403, "Schema not found")
}

fn by_id(id: &str) -> Option<&'static RegisteredSchema> {
    registry::by_id(id.parse().ok()?)
}

fn described(schema: &RegisteredSchema) -> Value {
    json!({ "subject": schema.subject(), "version": schema.version, "id": schema.id, "schemaType": "AVRO", "schema": schema.text })
}

fn find_version(subject: &str, version: &str) -> Result<&'static RegisteredSchema, Response> {
    let all = registry::versions(subject);
    if all.is_empty() {
        return Err(refuse(40401, &format!("Subject '{subject}' not found.")));
    }
    let found = match version {
        "latest" | "-1" => all.last().copied(),
        number => match number.parse::<u32>() {
            Ok(number) => all.iter().copied().find(|schema| schema.version == number),
            Err(_) => {
                return Err(refuse(42202, &format!("The specified version '{version}' is not a valid version id.")));
            }
        },
    };
    found.ok_or_else(|| refuse(40402, &format!("Version {version} not found.")))
}

/// Schema types that are served.
#[utoipa::path(get, path = "/schemas/types", tag = "registry", responses((status = 200, body = Vec<String>)))]
async fn schema_types() -> Response {
    answer(json!(["AVRO"]))
}

/// A schema by the id in the wire format.
#[utoipa::path(get, path = "/schemas/ids/{id}", tag = "registry", params(("id" = u32, Path)), responses((status = 200), (status = 404)))]
async fn schema_by_id(Path(id): Path<String>) -> Response {
    by_id(&id).map_or_else(no_schema, |schema| answer(json!({ "schemaType": "AVRO", "schema": schema.text })))
}

/// The same, bare.
#[utoipa::path(get, path = "/schemas/ids/{id}/schema", tag = "registry", params(("id" = u32, Path)), responses((status = 200), (status = 404)))]
async fn schema_text(Path(id): Path<String>) -> Response {
    by_id(&id).map_or_else(no_schema, |schema| ([(header::CONTENT_TYPE, CONTENT_TYPE)], schema.text).into_response())
}

/// Subject and version of a schema id.
#[utoipa::path(get, path = "/schemas/ids/{id}/versions", tag = "registry", params(("id" = u32, Path)), responses((status = 200), (status = 404)))]
async fn schema_versions(Path(id): Path<String>) -> Response {
    by_id(&id)
        .map_or_else(no_schema, |schema| answer(json!([{ "subject": schema.subject(), "version": schema.version }])))
}

/// Subjects that have a schema id.
#[utoipa::path(get, path = "/schemas/ids/{id}/subjects", tag = "registry", params(("id" = u32, Path)), responses((status = 200), (status = 404)))]
async fn schema_subjects(Path(id): Path<String>) -> Response {
    by_id(&id).map_or_else(no_schema, |schema| answer(json!([schema.subject()])))
}

/// All subjects: `<topic>-<record>`.
#[utoipa::path(get, path = "/subjects", tag = "registry", responses((status = 200, body = Vec<String>)))]
async fn subjects() -> Response {
    let mut subjects: Vec<String> = registry::all().iter().map(RegisteredSchema::subject).collect();
    subjects.sort();
    subjects.dedup();
    answer(json!(subjects))
}

/// Version numbers of a subject.
#[utoipa::path(get, path = "/subjects/{subject}/versions", tag = "registry", params(("subject" = String, Path)), responses((status = 200, body = Vec<u32>), (status = 404)))]
async fn versions(Path(subject): Path<String>) -> Response {
    let versions: Vec<u32> = registry::versions(&subject).iter().map(|schema| schema.version).collect();
    if versions.is_empty() {
        refuse(40401, &format!("Subject '{subject}' not found."))
    } else {
        answer(json!(versions))
    }
}

/// One version of a subject, or `latest`.
#[utoipa::path(get, path = "/subjects/{subject}/versions/{version}", tag = "registry",
    params(("subject" = String, Path), ("version" = String, Path)), responses((status = 200), (status = 404), (status = 422)))]
async fn version(Path((subject, version)): Path<(String, String)>) -> Response {
    find_version(&subject, &version).map_or_else(|refused| refused, |schema| answer(described(schema)))
}

/// The same, bare.
#[utoipa::path(get, path = "/subjects/{subject}/versions/{version}/schema", tag = "registry",
    params(("subject" = String, Path), ("version" = String, Path)), responses((status = 200), (status = 404), (status = 422)))]
async fn version_text(Path((subject, version)): Path<(String, String)>) -> Response {
    find_version(&subject, &version)
        .map_or_else(|refused| refused, |schema| ([(header::CONTENT_TYPE, CONTENT_TYPE)], schema.text).into_response())
}

#[derive(Deserialize)]
struct SchemaBody {
    schema: String,
    #[serde(rename = "schemaType", default)]
    schema_type: Option<String>,
}

/// The schema of a body. The content type is not looked at: clients send several.
async fn asked(request: Request) -> Result<Value, Response> {
    let bytes = axum::body::to_bytes(request.into_body(), MAX_JSON_BYTES)
        .await
        .map_err(|_| refuse(41301, "Body is too large"))?;
    let body: SchemaBody =
        serde_json::from_slice(&bytes).map_err(|error| refuse(40001, &format!("Body is not a schema: {error}")))?;
    if body.schema_type.as_deref().is_some_and(|kind| kind != "AVRO") {
        return Err(refuse(42201, "Only AVRO schemas are served"));
    }
    serde_json::from_str(&body.schema).map_err(|error| refuse(42201, &format!("Invalid schema: {error}")))
}

/// The same schema is the same JSON, however it is laid out.
fn find_same(subject: &str, wanted: &Value) -> Result<&'static RegisteredSchema, Response> {
    let all = registry::versions(subject);
    if all.is_empty() {
        return Err(refuse(40401, &format!("Subject '{subject}' not found.")));
    }
    all.into_iter()
        .find(|schema| serde_json::from_str::<Value>(schema.text).is_ok_and(|listed| listed == *wanted))
        .ok_or_else(no_schema)
}

/// Whether a subject has this schema, and as which version.
#[utoipa::path(post, path = "/subjects/{subject}", tag = "registry", params(("subject" = String, Path)), responses((status = 200), (status = 404), (status = 422)))]
async fn look_up(Path(subject): Path<String>, request: Request) -> Response {
    match asked(request).await.and_then(|wanted| find_same(&subject, &wanted)) {
        Ok(schema) => answer(described(schema)),
        Err(refused) => refused,
    }
}

/// The id of a listed schema; others are refused, because the list is committed.
#[utoipa::path(post, path = "/subjects/{subject}/versions", tag = "registry", params(("subject" = String, Path)), responses((status = 200), (status = 422)))]
async fn register(Path(subject): Path<String>, request: Request) -> Response {
    match asked(request).await {
        Ok(wanted) => match find_same(&subject, &wanted) {
            Ok(schema) => answer(json!({ "id": schema.id })),
            Err(_) => refuse(42205, "This registry is read-only: new versions are added to schemas/registry.toml"),
        },
        Err(refused) => refused,
    }
}

/// The rule that new versions follow.
#[utoipa::path(get, path = "/config", tag = "registry", responses((status = 200)))]
async fn config() -> Response {
    answer(json!({ "compatibilityLevel": COMPATIBILITY }))
}

/// The same, for a subject.
#[utoipa::path(get, path = "/config/{subject}", tag = "registry", params(("subject" = String, Path)), responses((status = 200)))]
async fn subject_config(Path(subject): Path<String>) -> Response {
    answer(json!({ "subject": subject, "compatibilityLevel": COMPATIBILITY }))
}

/// Whether the registry takes writes.
#[utoipa::path(get, path = "/mode", tag = "registry", responses((status = 200)))]
async fn mode() -> Response {
    answer(json!({ "mode": "READONLY" }))
}
