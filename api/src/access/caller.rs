//! Who asks, for as long as a request is handled: every namespace that a handler takes from a request passes here, so that
//! no handler has to think of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use riverrun_schemas::{Namespace, now_ms};
use riverrun_stores::Cache;

use super::Access;
use super::limits::Counted;
use super::scope::Grant;
use super::tokens::{TokenHash, hash};
use crate::error::ApiError;

/// How often a stream asks whether the token that it was opened with still is one.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Who asks, and what was found out about the request while it was handled.
pub(crate) struct Caller {
    grant: Option<Arc<Grant>>,
    /// The hash of the token; none for who needs none.
    token: Option<TokenHash>,
    access: Arc<Access>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    namespace: Option<Namespace>,
    refused: Option<ApiError>,
    /// Counted by this process, not yet by the others.
    untold: Vec<Namespace>,
}

tokio::task_local! {
    static CALLER: Arc<Caller>;
}

/// Handles a request of `caller`.
pub(crate) async fn scope<F: Future>(caller: Arc<Caller>, work: F) -> F::Output {
    CALLER.scope(caller, work).await
}

/// Who asks; `None` outside of requests, where everything is allowed.
pub(crate) fn current() -> Option<Arc<Caller>> {
    CALLER.try_with(Arc::clone).ok()
}

/// The namespace of a request which names none.
pub(crate) fn home() -> Namespace {
    current().and_then(|caller| caller.home()).unwrap_or_default()
}

/// The namespaces that the caller is bound to; empty is every one.
pub(crate) fn bound_to() -> Vec<Namespace> {
    current().and_then(|caller| Some(caller.grant.as_ref()?.namespaces.clone())).unwrap_or_default()
}

/// Checks that the caller may do something in a namespace now; the reason where not.
pub(crate) fn admit(namespace: &Namespace) -> Result<(), ApiError> {
    current().map_or(Ok(()), |caller| caller.admit(namespace))
}

/// Notes that what an id stands for was checked to be in one of the caller's namespaces.
pub(crate) fn looked_at(namespace: &Namespace) {
    if let Some(caller) = current() {
        caller.seen.lock().namespace = Some(namespace.clone());
    }
}

/// Ends when the token of the request that is handled now is none any more, since it was revoked or its time is over; never for who
/// needs none. For streams, which outlive their requests.
pub(crate) fn token_lost() -> impl Future<Output = ()> + Send + 'static {
    let held = current().and_then(|caller| Some((caller.token?, caller.access.clone())));
    async move {
        let Some((token, access)) = held else { return std::future::pending().await };
        while access.tokens.holds(&token, now_ms()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Caller {
    pub(crate) fn new(grant: Option<Arc<Grant>>, access: Arc<Access>) -> Self {
        Self { grant, token: None, access, seen: Mutex::default() }
    }

    /// The same, by this token.
    pub(crate) fn by(self, token: Option<&str>) -> Self {
        Self { token: token.filter(|_| self.grant.is_some()).map(hash), ..self }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.is_bound())
    }

    /// The namespace of its requests which name none.
    pub(crate) fn home(&self) -> Option<Namespace> {
        self.grant.as_ref().map(|grant| grant.home())
    }

    pub(crate) fn name(&self) -> &str {
        self.grant.as_ref().map_or("anyone", |grant| grant.name.as_str())
    }

    /// The namespace that was looked at last.
    pub(crate) fn namespace(&self) -> Option<Namespace> {
        self.seen.lock().namespace.clone()
    }

    fn admit(&self, namespace: &Namespace) -> Result<(), ApiError> {
        let judged = match &self.grant {
            Some(grant) if !grant.reaches(namespace) => Err(not_yours(grant, namespace)),
            _ => self
                .access
                .limits
                .take(Counted::Namespace(namespace.to_string()), None, Instant::now())
                .map_err(|wait| too_many(&format!("namespace {namespace}"), wait)),
        };
        let mut seen = self.seen.lock();
        seen.namespace = Some(namespace.clone());
        match &judged {
            Ok(()) => seen.untold.push(namespace.clone()),
            Err(error) => seen.refused = Some(error.clone()),
        }
        judged
    }

    /// Counts what was let through for the other processes too. Handlers name namespaces where nothing can be waited for, so this comes
    /// after them: processes together may let through as many too many as they have requests in work.
    pub(crate) async fn tell(&self, cache: &dyn Cache) {
        let untold = std::mem::take(&mut self.seen.lock().untold);
        for namespace in untold {
            self.access.limits.tell(cache, Counted::Namespace(namespace.to_string()), Instant::now()).await;
        }
    }

    /// What has to be answered instead, whatever the handler says: the namespace was refused, or none was looked at where
    /// one had to be.
    pub(crate) fn verdict(&self, must_look: bool, status: StatusCode) -> Option<ApiError> {
        let seen = self.seen.lock();
        if seen.refused.is_some() {
            return seen.refused.clone();
        }
        let answers = status.is_success() || status.is_redirection() || status == StatusCode::SWITCHING_PROTOCOLS;
        (must_look && answers && self.is_bound() && seen.namespace.is_none()).then(|| {
            let names = self.grant.as_ref().map(|grant| names(grant)).unwrap_or_default();
            ApiError::new(
                StatusCode::FORBIDDEN,
                "namespace_required",
                format!("token {:?} is bound to namespaces, and the request names none", self.name()),
            )
            .hint(format!("name one of {names}"))
        })
    }
}

fn names(grant: &Grant) -> String {
    grant.namespaces.iter().map(Namespace::as_str).collect::<Vec<_>>().join(", ")
}

pub(crate) fn not_yours(grant: &Grant, namespace: &Namespace) -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        "namespace_not_allowed",
        format!("token {:?} may do nothing in namespace {:?}", grant.name, namespace.as_str()),
    )
    .hint(format!("name one of {}", names(grant)))
}

/// 429 with the time after which it may be tried again.
pub(crate) fn too_many(whose: &str, wait: std::time::Duration) -> ApiError {
    ApiError::busy(format!("the requests of {whose} have reached their limit a minute"))
        .code_as("rate_limited")
        .retry_after(wait)
        .hint("wait as long as Retry-After says, or raise RIVERRUN_RATE_PER_TOKEN or RIVERRUN_RATE_PER_NAMESPACE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ApiConfig;
    use crate::submit::Checks;

    fn caller(namespaces: &[&str], per_namespace: u32) -> Arc<Caller> {
        let grant = Grant {
            namespaces: namespaces.iter().map(|name| name.parse().unwrap()).collect(),
            ..Grant::everything("ann")
        };
        let config = ApiConfig { rate_per_namespace: per_namespace, ..ApiConfig::default() };
        Arc::new(Caller::new(Some(Arc::new(grant)), Arc::new(Access::new(&config))))
    }

    async fn namespace_of(caller: &Arc<Caller>, given: Option<&str>) -> Result<Namespace, ApiError> {
        scope(caller.clone(), async {
            let mut checks = Checks::default();
            let namespace = checks.namespace(given);
            checks.finish().map(|()| namespace)
        })
        .await
    }

    #[tokio::test]
    async fn given_a_bound_token_when_a_request_names_a_namespace_then_only_its_own_pass() {
        let bound = caller(&["team", "other"], 0);
        assert_eq!(namespace_of(&bound, None).await.unwrap().as_str(), "team", "its first is its own");
        assert_eq!(namespace_of(&bound, Some("other")).await.unwrap().as_str(), "other");
        assert!(bound.verdict(true, StatusCode::OK).is_none());
        for name in ["default", "team-2", "tea"] {
            assert!(namespace_of(&bound, Some(name)).await.is_err(), "{name}");
            assert_eq!(bound.verdict(true, StatusCode::OK).unwrap().code(), "namespace_not_allowed");
        }
        let everywhere = caller(&[], 0);
        assert_eq!(namespace_of(&everywhere, None).await.unwrap(), Namespace::default());
        assert!(namespace_of(&everywhere, Some("team-2")).await.is_ok());
        assert!(current().is_none());
    }

    #[tokio::test]
    async fn given_an_answer_for_which_no_namespace_was_looked_at_then_a_bound_token_does_not_get_it() {
        let bound = caller(&["team"], 0);
        assert_eq!(bound.verdict(true, StatusCode::OK).unwrap().code(), "namespace_required");
        assert_eq!(bound.verdict(true, StatusCode::SWITCHING_PROTOCOLS).unwrap().code(), "namespace_required");
        assert!(bound.verdict(true, StatusCode::NOT_FOUND).is_none());
        assert!(bound.verdict(false, StatusCode::OK).is_none());
        assert!(caller(&[], 0).verdict(true, StatusCode::OK).is_none());
    }

    #[tokio::test]
    async fn given_a_namespace_at_its_limit_when_a_request_names_it_then_it_is_429() {
        let everywhere = caller(&[], 1);
        assert!(namespace_of(&everywhere, Some("team")).await.is_ok());
        assert!(namespace_of(&everywhere, Some("team")).await.is_err());
        assert_eq!(everywhere.verdict(false, StatusCode::UNPROCESSABLE_ENTITY).unwrap().status(), 429);
    }
}
