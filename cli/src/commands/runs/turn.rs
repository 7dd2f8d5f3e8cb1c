//! Runs that wait for their turn in a conversation. While a command has the data folder, nobody else gets at the run before them to answer
//! what that one asks.

use std::time::Duration;

use riverrun_api::wire::{Page, RunStatus, RunSummary, RunView};
use riverrun_schemas::RunId;

use super::OneRun;
use crate::client::{Client, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;

const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// So often in a row a run has to wait behind the same one: what is about to be cancelled asks for a moment more.
const TIMES: u32 = 3;

/// Where a run is in its conversation.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// It has begun, or has none to wait for.
    Begun,
    /// It waits, and what is before it goes on.
    Waits,
    /// It waits behind a run that asks somebody.
    Behind(RunId),
}

/// Ends when the run can't begin, with what to do; never beside a server.
pub async fn stuck(connection: &Connection, run: &OneRun) -> CliError {
    if !connection.is_hosting() {
        return std::future::pending().await;
    }
    let mut times = 0;
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        match turn(&connection.client, run).await {
            Ok(Turn::Begun) => return std::future::pending().await,
            // Not to be able to look is no reason to give up.
            Ok(Turn::Waits) | Err(_) => times = 0,
            Ok(Turn::Behind(earlier)) => {
                times += 1;
                if times >= TIMES {
                    return behind(&run.run_id, earlier);
                }
            }
        }
    }
}

fn behind(run_id: &str, earlier: RunId) -> CliError {
    let what = format!("run {run_id} waits behind run {earlier} of its conversation, which waits for approval");
    CliError::new(Exit::Refused, what).hint(format!(
        "riverrun runs approve {earlier}, or riverrun runs cancel {earlier}; then riverrun runs watch {run_id}"
    ))
}

async fn turn(client: &Client, run: &OneRun) -> Result<Turn, CliError> {
    let view: RunView = client.get(&run.path("")).await?;
    let Some(session) = view.session.clone().filter(|_| view.status == RunStatus::Queued) else {
        return Ok(Turn::Begun);
    };
    let query = [
        ("namespace", Some(view.namespace.clone())),
        ("session", Some(session)),
        ("status", Some(RunStatus::WaitingApproval.as_str().to_owned())),
    ];
    let asking: Page<RunSummary> = client.get(&with_query("/runs", &query)).await?;
    let is_before = |other: &&RunSummary| other.run_id != view.run_id && other.created_at <= view.created_at;
    Ok(asking.items.iter().find(is_before).map_or(Turn::Waits, |other| Turn::Behind(other.run_id)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::testing::answering;

    fn run(name: &str, status: &str, session: Option<&str>, created_at: &str) -> Value {
        json!({
            "run_id": RunId::derive(&[name]), "status": status, "namespace": "default", "task": "t", "agent": "react", "answer": null,
            "citations": [], "steps": [], "session": session, "stop_reason": null, "trace_id": null, "created_at": created_at,
            "usage": { "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 }, "finished_at": null,
        })
    }

    #[tokio::test]
    async fn given_a_run_of_a_conversation_when_it_is_looked_at_then_only_an_earlier_one_that_asks_is_in_its_way() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let asking = |name: &str, at: &str| {
            let mut summary = run(name, "waiting_approval", Some("ann"), at);
            summary["steps"] = json!(3);
            summary
        };
        let id = RunId::derive(&["own"]).to_string();
        let (own, place) = (OneRun::anywhere(id.clone()), format!("/runs/{id}"));
        for (view, others, wanted) in [
            (
                run("own", "queued", Some("ann"), late),
                vec![asking("other", early)],
                Turn::Behind(RunId::derive(&["other"])),
            ),
            (run("own", "queued", Some("ann"), early), vec![asking("other", late)], Turn::Waits),
            (run("own", "queued", Some("ann"), late), vec![asking("own", late)], Turn::Waits),
            (run("own", "queued", Some("ann"), late), vec![], Turn::Waits),
            (run("own", "queued", None, late), vec![asking("other", early)], Turn::Begun),
            (run("own", "running", Some("ann"), late), vec![asking("other", early)], Turn::Begun),
        ] {
            let page = json!({ "items": others, "next_cursor": null });
            let client = answering(&[(place.as_str(), vec![(200, view)]), ("/runs", vec![(200, page)])]);
            assert_eq!(turn(&client, &own).await.unwrap(), wanted);
        }
        let told = behind(&id, RunId::derive(&["other"]));
        assert!(told.exit == Exit::Refused && told.hint.unwrap().contains(&format!("runs watch {id}")));
    }
}
