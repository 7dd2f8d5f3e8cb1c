//! The one place where a request is let through or refused for who it comes from, and where that is recorded.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::UPGRADE;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use riverrun_schemas::{Namespace, now_ms};

use super::caller::{self, Caller, too_many};
use super::limits::Counted;
use super::operations::{self, Need, Reach};
use super::scope::{Grant, Scope};
use super::session::{self, Via};
use super::store::Bearer;
use crate::error::ApiError;
use crate::routes::web;
use crate::state::Core;
use crate::wire::SessionView;

/// Lets a request through or answers it with 401, 403 or 429.
pub(crate) async fn check(State(core): State<Core>, mut request: Request, next: Next) -> Response {
    let since = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = request.method().clone();
    if method == Method::OPTIONS || (route.is_none() && web::is_page(&method, request.uri().path())) {
        return next.run(request).await;
    }
    let (need, reach) = operations::of(&method, route.as_deref());
    let (token, via) = session::presented(request.headers());
    let bearer = core.access().tokens.bearer(token, now_ms());
    let asked = Asked { need, reach, via, method: &method, headers: request.headers() };
    let judged = judge(&core, &asked, &bearer).await;
    let grant = match bearer {
        Bearer::Known(grant) => Some(grant),
        Bearer::Anyone | Bearer::Unknown => None,
    };
    let caller = Arc::new(Caller::new(grant, core.access().clone()).by(token));
    let response = match judged {
        Err(error) => error.into_response(),
        Ok(()) => {
            if reach == Reach::Listed && caller.is_bound() {
                name_home(&caller, request.uri_mut());
            }
            let path = request.uri().path().to_owned();
            let handled = caller::scope(caller.clone(), async move {
                if reach == Reach::Path
                    && let Err(error) = admit_path(&path)
                {
                    return error.into_response();
                }
                next.run(request).await
            });
            let response = handled.await;
            caller.tell(core.cache().as_ref()).await;
            match caller.verdict(reach.must_look(), response.status()) {
                Some(error) => error.into_response(),
                None => response,
            }
        }
    };
    let done = Done { caller: &caller, via, method: &method, route: route.as_deref(), need };
    record(&done, response.status(), since);
    response
}

struct Asked<'r> {
    need: Need,
    reach: Reach,
    via: Via,
    method: &'r Method,
    headers: &'r HeaderMap,
}

/// Whether a request may be handled at all. Its namespace is looked at when the handler has found it.
async fn judge(core: &Core, asked: &Asked<'_>, bearer: &Bearer) -> Result<(), ApiError> {
    if asked.need == Need::Open {
        return Ok(());
    }
    let (counted, own) = match bearer {
        Bearer::Unknown => return Err(unauthorized()),
        Bearer::Anyone => (Counted::Anyone, None),
        Bearer::Known(grant) => {
            permit(asked, grant)?;
            let reads = matches!(*asked.method, Method::GET | Method::HEAD);
            let changes = !reads || asked.headers.contains_key(UPGRADE);
            if asked.via == Via::Cookie
                && changes
                && !session::is_from_own_page(asked.headers, &core.config().allowed_origins)
            {
                return Err(foreign_page());
            }
            (Counted::Token(grant.name.clone()), grant.per_minute)
        }
    };
    let whose = match bearer {
        Bearer::Known(grant) => format!("token {:?}", grant.name),
        Bearer::Anyone | Bearer::Unknown => "everyone together".to_owned(),
    };
    let limits = &core.access().limits;
    let taken = limits.take_shared(core.cache().as_ref(), counted, own, Instant::now()).await;
    taken.map_err(|wait| too_many(&whose, wait))
}

fn permit(asked: &Asked<'_>, grant: &Grant) -> Result<(), ApiError> {
    if let Need::Scope(scope) = asked.need
        && !grant.allows(scope)
    {
        return Err(lacks(grant, scope));
    }
    if asked.reach == Reach::Everywhere && grant.is_bound() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "token_is_bound",
            format!("token {:?} is bound to namespaces, and this concerns every one", grant.name),
        )
        .hint("use a token without namespaces: riverrun tokens create NAME --scope admin"));
    }
    Ok(())
}

/// The namespace in which whoever has this session may do what wants `scope`: the named one, or else its own; the answer of the API where it
/// may not. For programs that write to the broker, which asks nobody.
///
/// # Errors
///
/// 401 for who has no token that holds, 403 for one without the scope or for another namespace.
pub fn permitted(session: &SessionView, scope: Scope, named: Option<&Namespace>) -> Result<Namespace, ApiError> {
    let Some(home) = &session.namespace else { return Err(unauthorized()) };
    let grant = Grant {
        scopes: session.scopes.iter().copied().collect(),
        namespaces: session.namespaces.clone(),
        ..Grant::everything(session.name.clone().unwrap_or_default())
    };
    if !grant.allows(scope) {
        return Err(lacks(&grant, scope));
    }
    let namespace = named.unwrap_or(home).clone();
    if grant.reaches(&namespace) { Ok(namespace) } else { Err(caller::not_yours(&grant, &namespace)) }
}

fn lacks(grant: &Grant, scope: Scope) -> ApiError {
    let has = grant.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ");
    ApiError::new(
        StatusCode::FORBIDDEN,
        "scope_missing",
        format!("token {:?} has the scopes {has}; this wants {scope}", grant.name),
    )
    .hint(format!("use a token that has it: riverrun tokens create NAME --scope {scope}"))
}

fn unauthorized() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", "the request has no valid token").hint(
        "send `Authorization: Bearer <token>` with a token of RIVERRUN_API_TOKENS or of `riverrun tokens create`, or log in at POST /auth/session",
    )
}

fn foreign_page() -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        "origin_not_allowed",
        "a login counts only for pages of this server itself",
    )
    .hint("send the token as `Authorization: Bearer <token>`, or add the page's origin to RIVERRUN_API_ALLOWED_ORIGINS")
}

/// `/mcp` is the namespace of whoever names none, `/mcp/{namespace}` that one.
fn admit_path(path: &str) -> Result<(), ApiError> {
    match path.strip_prefix("/mcp/") {
        Some(name) => caller::admit(&name.parse::<Namespace>()?),
        None => caller::admit(&caller::home()),
    }
}

/// Adds a bound token's first namespace where the query names none.
fn name_home(caller: &Arc<Caller>, uri: &mut Uri) {
    let query = uri.query().unwrap_or_default();
    if query.split('&').any(|pair| pair.split('=').next() == Some("namespace")) {
        return;
    }
    let Some(home) = caller.home() else { return };
    let joined = if query.is_empty() { String::new() } else { format!("{query}&") };
    let path = format!("{}?{joined}namespace={home}", uri.path());
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = path.parse().ok();
    if let Ok(named) = Uri::from_parts(parts) {
        *uri = named;
    }
}

struct Done<'r> {
    caller: &'r Caller,
    via: Via,
    method: &'r Method,
    route: Option<&'r str>,
    need: Need,
}

/// Who did what, when and how it ended: for what changes something or is for operators, and for whatever was refused.
/// Never a body, a query or a token.
fn record(done: &Done<'_>, status: StatusCode, since: Instant) {
    let refused = matches!(status.as_u16(), 401 | 403 | 429);
    let changes = !matches!(*done.method, Method::GET | Method::HEAD);
    let counts = refused || changes || done.need == Need::Scope(Scope::Admin);
    if !counts {
        return;
    }
    let namespace = done.caller.namespace();
    tracing::info!(
        target: "riverrun::audit",
        who = done.caller.name(),
        via = done.via.as_str(),
        method = done.method.as_str(),
        operation = done.route.unwrap_or("none"),
        namespace = namespace.as_ref().map_or("-", |namespace| namespace.as_str()),
        status = status.as_u16(),
        refused,
        took_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        "request"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::AuthMode;

    #[test]
    fn given_a_session_when_a_program_asks_before_it_writes_to_the_broker_then_it_hears_what_the_api_would_answer() {
        let named = |name: &str| name.parse::<Namespace>().unwrap();
        let session = |auth, scopes: &[Scope], namespaces: &[&str]| SessionView {
            auth,
            name: (auth == AuthMode::Required).then(|| "ann".to_owned()),
            scopes: scopes.to_vec(),
            namespace: Some(namespaces.first().map_or_else(Namespace::default, |name| named(name))),
            namespaces: namespaces.iter().map(|name| named(name)).collect(),
        };
        let anyone = session(AuthMode::Off, &Scope::ALL, &[]);
        let reader = session(AuthMode::Required, &[Scope::Read], &[]);
        let bound = session(AuthMode::Required, &[Scope::Read, Scope::Ingest], &["team", "other"]);
        let nobody = SessionView { scopes: Vec::new(), namespace: None, name: None, ..reader.clone() };
        for (session, scope, asked, expected) in [
            (&anyone, Scope::Ingest, None, Ok("default")),
            (&anyone, Scope::Run, Some("team"), Ok("team")),
            (&bound, Scope::Ingest, None, Ok("team")),
            (&bound, Scope::Ingest, Some("other"), Ok("other")),
            (&bound, Scope::Ingest, Some("default"), Err((403, "namespace_not_allowed"))),
            (&bound, Scope::Run, None, Err((403, "scope_missing"))),
            (&reader, Scope::Ingest, Some("team"), Err((403, "scope_missing"))),
            (&nobody, Scope::Read, None, Err((401, "unauthorized"))),
        ] {
            let told = permitted(session, scope, asked.map(named).as_ref());
            let told = told.map_err(|error| (error.status().as_u16(), error.problem().code));
            let told = told.as_ref().map(Namespace::as_str).map_err(|(status, code)| (*status, code.as_str()));
            assert_eq!(told, expected, "{session:?} {scope} {asked:?}");
        }
    }
}
