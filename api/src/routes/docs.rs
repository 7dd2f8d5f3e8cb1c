//! The OpenAPI document and its interactive page. Both are part of the program: nothing is fetched from elsewhere.

use std::sync::OnceLock;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Paths;
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::{Info, OpenApi, OpenApiBuilder, RefOr, Tag};
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::error::{self, ApiError};
use crate::state::AppState;

const DOCUMENT: &str = "/openapi.json";

const DESCRIPTION: &str = "\
Runs language-model agents on an event log. Errors are RFC 9457 problem documents with a stable `code` and a `hint`.

**WebSockets** (not part of OpenAPI): `/ws/agent` takes a first message with the fields of `POST /agent/run` and optionally `tokens: true`, then says \
`start`, `step`…, `final`. `/ws/runs/{id}?after=<seq>&tokens=<bool>` says the same of any run, live or ended, from any point. `/ws/ingest/{id}` says `start`, \
`progress`…, `final`. `/ws/finetune/{id}?after=<step>` says the same of a training. Close codes: 1007 the first message can't be read, 1008 it is refused, 1009 a message is larger than 64 KiB, 1013 the client is too slow \
and may come back with `after`, 1011 something failed; reasons say which.

**Limits**: JSON bodies 1 MiB, uploads 64 MiB in 100 files of 20 MiB, 2,048 open streams (429 beyond), pages of 500.

**Access**: requests must be for a loopback host or one of `RIVERRUN_API_ALLOWED_HOSTS`; pages of other origins must be in `RIVERRUN_API_ALLOWED_ORIGINS`. \
Where there are tokens (`RIVERRUN_API_TOKENS`, `riverrun tokens create`), every operation but `/health`, `/ready`, `/metrics` and `/auth/session` wants \
`Authorization: Bearer <token>` with the scope that is named at it, or the cookie of a login. WebSocket clients that can't set headers ask for the \
subprotocols `riverrun` and `riverrun.bearer.<token>`.";

/// The OpenAPI document.
pub fn openapi() -> OpenApi {
    let (_, collected) = super::core::<AppState>().merge(super::stack()).split_for_parts();
    describe(collected)
}

fn describe(mut collected: OpenApi) -> OpenApi {
    crate::isolation::describe(&mut collected.paths);
    crate::idempotency::describe(&mut collected.paths);
    describe_places(&mut collected.paths);
    crate::access::operations::describe(&mut collected);
    let mut info = Info::new("riverrun", env!("CARGO_PKG_VERSION"));
    info.description = Some(DESCRIPTION.to_owned());
    let tags = [
        ("agents", "runs of agents, and what there is for them"),
        ("knowledge", "documents, search, answers"),
        ("projects", "code in isolated copies: analyses, proposals, changes"),
        ("canvases", "canvases that are kept on the server"),
        ("memory", "conversations: turns, summaries, episodes, notes"),
        ("models", "model providers"),
        ("finetune", "datasets, trainings of models, and the versions that came out"),
        ("openai", "the API of OpenAI's clients, for models and agents"),
        ("log", "topics and dead letters"),
        ("registry", "a Confluent-compatible schema registry, read-only"),
        ("operation", "health, figures, login"),
    ];
    let tags: Vec<Tag> = tags
        .into_iter()
        .map(|(name, description)| {
            let mut tag = Tag::new(name);
            tag.description = Some(description.to_owned());
            tag
        })
        .collect();
    OpenApiBuilder::new().info(info).paths(collected.paths).components(collected.components).tags(Some(tags)).build()
}

/// Whatever is accepted says where to look.
fn describe_places(paths: &mut Paths) {
    for item in paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            let Some(RefOr::T(accepted)) = operation.responses.responses.get_mut("202") else { continue };
            let text = Some(Object::with_type(Type::String));
            let place = HeaderBuilder::new().schema(text).description(Some("where to look")).build();
            accepted.headers.entry("Location".to_owned()).or_insert(RefOr::T(place));
        }
    }
}

/// `/docs` and `/openapi.json`.
pub(crate) fn router() -> Router {
    let page: Router = SwaggerUi::new("/docs").config(Config::from(DOCUMENT)).into();
    page.layer(middleware::from_fn(tell_missing)).route(DOCUMENT, get(document))
}

/// The page's own answer for a file that is none of its own says nothing.
async fn tell_missing(request: Request, next: Next) -> Response {
    let uri = request.uri().clone();
    let response = next.run(request).await;
    if response.status() == StatusCode::NOT_FOUND { error::no_route(uri).await.into_response() } else { response }
}

/// The document as text. It is made when it is first asked for: most servers never are, and as values it takes some megabytes.
async fn document() -> Result<Response, ApiError> {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = match TEXT.get() {
        Some(text) => text.clone(),
        None => {
            let made = tokio::task::spawn_blocking(|| serde_json::to_vec(&openapi())).await;
            let made = made.map_err(|error| ApiError::internal(format!("the description broke off: {error}")))?;
            let made = made.map_err(|error| ApiError::internal(format!("the description is no JSON: {error}")))?;
            TEXT.get_or_init(|| made.into()).clone()
        }
    };
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], text).into_response())
}

#[cfg(test)]
mod tests {
    #[test]
    fn given_the_description_then_the_one_that_the_web_pages_types_are_made_from_is_the_same() {
        let kept = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../web/openapi.json")).unwrap();
        let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
        let now = serde_json::to_value(super::openapi()).unwrap();
        assert!(kept == now, "web/openapi.json is not what the API says of itself; run ./x types");
    }
}
