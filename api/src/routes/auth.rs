//! The login of the web pages. The cookie is set for the browser; programs send their token with each request.

use std::time::Instant;

use axum::extract::{FromRef, State};
use axum::http::header::{CACHE_CONTROL, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use riverrun_schemas::now_ms;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::caller::too_many;
use crate::access::limits::Counted;
use crate::access::scope::{Grant, Scope};
use crate::access::session;
use crate::access::store::Bearer;
use crate::error::ApiError;
use crate::extract::Json;
use crate::state::Core;
use crate::wire::{AuthMode, LoginBody, Problem, SessionView};

pub(super) fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(show, log_in, log_out))
}

/// Whether a token is wanted, and what the caller's one allows. Answered with 200 also to who has none.
#[utoipa::path(get, path = "/auth/session", tag = "operation", responses((status = 200, body = SessionView)))]
async fn show(State(core): State<Core>, headers: HeaderMap) -> Response {
    let (token, _) = session::presented(&headers);
    answer(&view(&core.access().tokens.bearer(token, now_ms())), None)
}

/// Sets a cookie for the token, which scripts can't read and other sites' pages don't send. It holds for 12 hours, or until
/// the token is revoked.
#[utoipa::path(post, path = "/auth/session", tag = "operation", request_body = LoginBody,
    responses((status = 200, body = SessionView), (status = 401, description = "no such token", body = Problem),
        (status = 429, description = "too many logins", body = Problem)))]
async fn log_in(
    State(core): State<Core>,
    headers: HeaderMap,
    Json(body): Json<LoginBody>,
) -> Result<Response, ApiError> {
    let taken = core.access().limits.take_shared(core.cache().as_ref(), Counted::Login, None, Instant::now()).await;
    taken.map_err(|wait| too_many("logins", wait))?;
    let bearer = core.access().tokens.bearer(Some(&body.token), now_ms());
    match &bearer {
        Bearer::Unknown => Err(ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", "there is no such token")
            .hint("riverrun tokens ls shows which there are; riverrun tokens create makes one")),
        Bearer::Anyone => Ok(answer(&view(&bearer), None)),
        Bearer::Known(_) => {
            let cookie = session::set_cookie(&body.token, &headers).ok_or_else(|| {
                ApiError::field("token", "has characters that a cookie can't carry; make one by riverrun tokens create")
            })?;
            Ok(answer(&view(&bearer), Some(cookie)))
        }
    }
}

/// Takes the cookie away.
#[utoipa::path(delete, path = "/auth/session", tag = "operation", responses((status = 200, body = SessionView)))]
async fn log_out(State(core): State<Core>, headers: HeaderMap) -> Response {
    answer(&view(&core.access().tokens.bearer(None, now_ms())), Some(session::clear_cookie(&headers)))
}

fn answer(view: &SessionView, cookie: Option<HeaderValue>) -> Response {
    let mut response = axum::Json(view).into_response();
    let headers: [(HeaderName, Option<HeaderValue>); 2] =
        [(SET_COOKIE, cookie), (CACHE_CONTROL, Some(HeaderValue::from_static("no-store")))];
    for (name, value) in headers {
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn view(bearer: &Bearer) -> SessionView {
    match bearer {
        Bearer::Anyone => granted(AuthMode::Off, None, &Grant::everything("")),
        Bearer::Known(grant) => granted(AuthMode::Required, Some(grant.name.clone()), grant),
        Bearer::Unknown => SessionView {
            auth: AuthMode::Required,
            name: None,
            scopes: Vec::new(),
            namespace: None,
            namespaces: Vec::new(),
        },
    }
}

fn granted(auth: AuthMode, name: Option<String>, grant: &Grant) -> SessionView {
    SessionView {
        auth,
        name,
        scopes: Scope::ALL.into_iter().filter(|scope| grant.allows(*scope)).collect(),
        namespace: Some(grant.home()),
        namespaces: grant.namespaces.clone(),
    }
}
