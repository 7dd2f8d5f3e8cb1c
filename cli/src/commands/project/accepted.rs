//! Waiting for what was accepted. An analyzer that is at other work begins it later, and until then the API does not know it.

use std::time::Duration;

use riverrun_api::wire::{ProjectView, ProposalView, ReportView};
use serde::de::DeserializeOwned;

use super::path;
use super::progress::Seen;
use crate::client::{Client, encode, with_query};
use crate::error::{CliError, Exit};
use crate::output::Output;

const POLL: Duration = Duration::from_millis(100);
const NOT_BEGUN: &str = "waiting for the analyzer";

/// What is at a place; `None` while the API says with the code `unknown` that nothing is.
async fn begun<T: DeserializeOwned>(client: &Client, place: &str, unknown: &str) -> Result<Option<T>, CliError> {
    match client.get(place).await {
        Err(error) if error.code.as_deref() == Some(unknown) => Ok(None),
        answer => answer.map(Some),
    }
}

/// The project when it is imported.
///
/// # Errors
/// When it can't be.
pub(super) async fn imported(
    client: &Client,
    id: &str,
    namespace: Option<String>,
    output: Output,
) -> Result<ProjectView, CliError> {
    let seen = Seen::new(output, "files");
    let place = path(id, "", namespace);
    loop {
        match begun::<ProjectView>(client, &place, "project_not_found").await? {
            None => seen.say(NOT_BEGUN),
            Some(view) if view.status == "importing" => seen.show(&view),
            Some(ProjectView { error: Some(error), .. }) => {
                return Err(CliError::new(Exit::Refused, error.message).maybe_hint(error.hint));
            }
            Some(view) => return Ok(view),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The report of an analysis when it is done.
///
/// # Errors
/// When the analysis fails, or the project is removed.
pub(super) async fn report(
    client: &Client,
    id: &str,
    analysis: String,
    namespace: Option<String>,
    output: Output,
) -> Result<ReportView, CliError> {
    let seen = Seen::new(output, "analyzers");
    let project = path(id, "", namespace.clone());
    let report = format!("/projects/{}/report", encode(id));
    let report = with_query(&report, &[("namespace", namespace), ("analysis", Some(analysis))]);
    loop {
        let view: ProjectView = client.get(&project).await?;
        if view.status == "analyzing" {
            seen.show(&view);
        } else if let Some(report) = begun(client, &report, "not_analyzed").await? {
            return Ok(report);
        } else {
            seen.say(NOT_BEGUN);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// A proposal when there is one or none.
///
/// # Errors
/// When the project is removed.
pub(super) async fn proposal(
    client: &Client,
    id: &str,
    proposal: &str,
    namespace: Option<String>,
    output: Output,
) -> Result<ProposalView, CliError> {
    let seen = Seen::new(output, "rewrites");
    let place = path(id, &format!("/proposals/{}", encode(proposal)), namespace);
    loop {
        match begun::<ProposalView>(client, &place, "no_proposal").await? {
            None => seen.say(NOT_BEGUN),
            Some(proposal) if proposal.status == "proposing" => seen.say("proposing"),
            Some(proposal) => return Ok(proposal),
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::http::StatusCode;
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::{Value, json};

    use super::*;

    const OUTPUT: Output = Output { json: true };

    /// Answers in this order, and then as the last time.
    fn answering(place: &str, answers: Vec<(StatusCode, Value)>) -> Router {
        let answers = Arc::new(Mutex::new(answers));
        let next = move || {
            let mut answers = answers.lock().unwrap();
            let (status, body) = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            std::future::ready((status, Json(body)))
        };
        Router::new().route(place, get(next))
    }

    fn unknown(code: &str) -> (StatusCode, Value) {
        let problem = json!({ "type": "about:blank", "title": "x", "status": 404, "detail": "d", "code": code });
        (StatusCode::NOT_FOUND, problem)
    }

    fn project(status: &str) -> (StatusCode, Value) {
        let view = json!({
            "project_id": "p", "name": "n", "source": "s", "status": status, "files": 1, "languages": [], "size_bytes": 1,
            "skipped": 0, "source_sha256": null, "error": null, "analyses": 0, "progress": null,
            "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
        });
        (StatusCode::OK, view)
    }

    fn proposed(status: &str) -> (StatusCode, Value) {
        let view = json!({
            "proposal_id": "r", "file": "a.py", "status": status, "diff": "", "before_sha256": "", "after_sha256": null,
            "findings_before": 0, "findings_after": 0, "improves": false, "note": null, "model": "m", "total_tokens": 0,
            "created_at": "2026-01-01T00:00:00Z",
        });
        (StatusCode::OK, view)
    }

    #[tokio::test]
    async fn given_work_that_is_begun_after_other_work_when_it_is_waited_for_then_it_is_awaited_and_not_said_to_be_unknown()
     {
        let answers = vec![unknown("project_not_found"), project("importing"), project("imported")];
        let client = Client::InProcess(answering("/projects/p", answers));
        assert_eq!(imported(&client, "p", None, OUTPUT).await.unwrap().status, "imported");

        let answers = vec![unknown("no_proposal"), proposed("proposing"), proposed("refused")];
        let client = Client::InProcess(answering("/projects/p/proposals/r", answers));
        assert_eq!(proposal(&client, "p", "r", None, OUTPUT).await.unwrap().status, "refused");

        let answers = vec![project("analyzing"), project("analyzed"), project("analyzing"), project("analyzed")];
        let failed =
            json!({ "type": "about:blank", "title": "x", "status": 422, "detail": "it failed", "code": "failed" });
        let reports = vec![unknown("not_analyzed"), (StatusCode::UNPROCESSABLE_ENTITY, failed)];
        let router = answering("/projects/p", answers).merge(answering("/projects/p/report", reports));
        let error = report(&Client::InProcess(router), "p", "a".to_owned(), None, OUTPUT).await.unwrap_err();
        assert_eq!(error.message, "it failed");
    }

    #[tokio::test]
    async fn given_a_project_that_is_removed_when_its_work_is_waited_for_then_the_command_ends() {
        for gone in ["/projects/p", "/projects/p/proposals/r"] {
            let client = Client::InProcess(answering(gone, vec![unknown("project_not_found")]));
            let error = match gone {
                "/projects/p" => report(&client, "p", "a".to_owned(), None, OUTPUT).await.map(|_| ()).unwrap_err(),
                _ => proposal(&client, "p", "r", None, OUTPUT).await.map(|_| ()).unwrap_err(),
            };
            assert_eq!(error.code.as_deref(), Some("project_not_found"));
        }
    }
}
