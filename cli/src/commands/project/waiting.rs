//! Waiting for what was asked of a project. Its worker does one thing of a project after the other, and some projects at a time: what was
//! accepted may be begun much later, and until then the API knows nothing of it.

use std::time::Duration;

use riverrun_api::wire::{ProjectView, ProposalView, ReportView};
use tokio::time::Instant;

use super::path;
use super::progress::Seen;
use crate::client::{Client, encode, with_query};
use crate::error::{CliError, Exit};

const POLL: Duration = Duration::from_millis(100);
const NOT_BEGUN: &str = "waiting for the analyzer";
/// How long the worker may have other things to do.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits at an API.
pub(super) struct Waiting<'c> {
    client: &'c Client,
    patience: Duration,
}

impl<'c> Waiting<'c> {
    pub(super) fn at(client: &'c Client) -> Self {
        Self { client, patience: PATIENCE }
    }

    /// Whether the API only says that the work has not begun.
    fn is_not_begun(&self, error: &CliError, code: &str, since: Instant) -> bool {
        error.code.as_deref() == Some(code) && since.elapsed() < self.patience
    }

    /// The project once it is imported.
    pub(super) async fn imported(
        &self,
        id: &str,
        namespace: Option<String>,
        seen: Seen,
    ) -> Result<ProjectView, CliError> {
        let since = Instant::now();
        let place = path(id, "", namespace);
        loop {
            match self.client.get::<ProjectView>(&place).await {
                Ok(view) if view.status == "importing" => seen.show(&view),
                Ok(view) => match view.error {
                    None => return Ok(view),
                    Some(error) => {
                        return Err(CliError::new(Exit::Refused, error.message).maybe_hint(error.hint));
                    }
                },
                Err(error) if self.is_not_begun(&error, "project_not_found", since) => seen.say(NOT_BEGUN),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The report of an analysis once it is done.
    pub(super) async fn report(
        &self,
        id: &str,
        analysis_id: &str,
        namespace: Option<String>,
        seen: Seen,
    ) -> Result<ReportView, CliError> {
        let mut since = Instant::now();
        let query = [("namespace", namespace.clone()), ("analysis", Some(analysis_id.to_owned()))];
        let place = with_query(&format!("/projects/{}/report", encode(id)), &query);
        let project = path(id, "", namespace);
        loop {
            match self.client.get::<ReportView>(&place).await {
                Err(error) if self.is_not_begun(&error, "not_analyzed", since) => {}
                ended => return ended,
            }
            // This analysis, or one that was asked for before it.
            let view: ProjectView = self.client.get(&project).await?;
            if view.status == "analyzing" {
                since = Instant::now();
                seen.show(&view);
            } else {
                seen.say(NOT_BEGUN);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// A proposal once it is made.
    pub(super) async fn proposal(
        &self,
        id: &str,
        proposal_id: &str,
        namespace: Option<String>,
        seen: Seen,
    ) -> Result<ProposalView, CliError> {
        let since = Instant::now();
        let place = path(id, &format!("/proposals/{}", encode(proposal_id)), namespace);
        loop {
            match self.client.get::<ProposalView>(&place).await {
                Ok(proposal) if proposal.status == "proposing" => seen.say("proposing"),
                Err(error) if self.is_not_begun(&error, "no_proposal", since) => seen.say(NOT_BEGUN),
                ended => return ended,
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::testing::{answering, unknown};
    use crate::output::Output;

    fn project(status: &str, error: Option<&str>) -> (u16, Value) {
        let error = error.map(|message| json!({ "code": "source_changed", "message": message, "hint": "again" }));
        let view = json!({
            "project_id": "prj_1", "name": "n", "source": "s", "status": status, "files": 1, "languages": [], "size_bytes": 1,
            "skipped": 0, "source_sha256": null, "error": error, "analyses": 0, "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
        });
        (200, view)
    }

    fn proposed(status: &str) -> (u16, Value) {
        let view = json!({
            "proposal_id": "prp_1", "file": "a.py", "status": status, "diff": "", "before_sha256": "", "after_sha256": null,
            "findings_before": 1, "findings_after": 1, "improves": false, "note": null, "model": "m", "total_tokens": 1,
            "created_at": "2026-01-01T00:00:00Z",
        });
        (200, view)
    }

    fn seen() -> Seen {
        Seen::new(Output { json: true }, "file")
    }

    #[tokio::test]
    async fn given_a_worker_that_is_busy_when_something_is_asked_of_it_then_it_is_waited_for() {
        let importing = vec![unknown("project_not_found"), project("importing", None), project("imported", None)];
        let client = answering(&[("/projects/prj_1", importing)]);
        assert_eq!(Waiting::at(&client).imported("prj_1", None, seen()).await.unwrap().status, "imported");

        // Another analysis is done first; then this one begins.
        let report_view = json!({
            "took_ms": 1, "summary": { "findings": 0, "by_severity": {}, "by_tool": {}, "files": 1, "lines": 1 }, "findings": [],
            "findings_truncated": false, "metrics": {}, "file_metrics": [], "tools": [],
        });
        let mut reports = vec![unknown("not_analyzed"); 4];
        reports.push((200, report_view));
        let states = ["analyzing", "analyzed", "analyzed", "analyzing"].map(|status| project(status, None));
        let client = answering(&[("/projects/prj_1/report", reports), ("/projects/prj_1", states.to_vec())]);
        assert_eq!(Waiting::at(&client).report("prj_1", "anl_1", None, seen()).await.unwrap().took_ms, 1);

        let proposals = vec![unknown("no_proposal"), proposed("proposing"), proposed("refused")];
        let client = answering(&[("/projects/prj_1/proposals/prp_1", proposals)]);
        assert_eq!(Waiting::at(&client).proposal("prj_1", "prp_1", None, seen()).await.unwrap().status, "refused");
    }

    #[tokio::test]
    async fn given_work_that_never_begins_or_fails_when_it_is_waited_for_then_that_is_told() {
        let idle = project("imported", None);
        let client = answering(&[
            ("/projects/prj_1", vec![idle]),
            ("/projects/prj_1/report", vec![unknown("not_analyzed")]),
            ("/projects/prj_1/proposals/prp_1", vec![unknown("no_proposal")]),
            ("/projects/prj_2", vec![unknown("project_not_found")]),
            ("/projects/prj_3", vec![project("failed", Some("its source changed"))]),
            ("/projects/prj_4/report", vec![unknown("not_analyzed")]),
            ("/projects/prj_4", vec![unknown("project_not_found")]),
        ]);
        let waiting = Waiting { patience: Duration::ZERO, ..Waiting::at(&client) };
        let code = |error: CliError| error.code.unwrap_or_default();
        assert_eq!(code(waiting.report("prj_1", "anl_1", None, seen()).await.unwrap_err()), "not_analyzed");
        assert_eq!(code(waiting.proposal("prj_1", "prp_1", None, seen()).await.unwrap_err()), "no_proposal");
        assert_eq!(code(waiting.imported("prj_2", None, seen()).await.unwrap_err()), "project_not_found");
        let failed = waiting.imported("prj_3", None, seen()).await.unwrap_err();
        assert_eq!((failed.exit, failed.hint.as_deref()), (Exit::Refused, Some("again")));
        // A project that is removed meanwhile has no analysis to wait for.
        let removed = Waiting::at(&client).report("prj_4", "anl_1", None, seen()).await.unwrap_err();
        assert_eq!(code(removed), "project_not_found");
    }
}
