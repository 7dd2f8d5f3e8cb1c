//! An API as tests want it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Json;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use super::*;

/// Gives these answers to the path, one after the other, and the last one from then on.
pub(crate) fn answering(routes: &[(&str, Vec<(u16, Value)>)]) -> Client {
    let mut router = Router::new();
    for (place, answers) in routes {
        let (answers, asked) = (answers.clone(), Arc::new(AtomicUsize::new(0)));
        let answer = move || {
            let at = asked.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
            let (status, body) = answers[at].clone();
            let status = StatusCode::from_u16(status).unwrap();
            std::future::ready::<Response>((status, Json(body)).into_response())
        };
        router = router.route(place, get(answer));
    }
    Client::InProcess(router)
}

/// What is not there.
pub(crate) fn unknown(code: &str) -> (u16, Value) {
    let problem = json!({ "type": "x", "title": "Not Found", "status": 404, "detail": "not there", "code": code });
    (404, problem)
}
