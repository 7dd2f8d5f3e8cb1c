//! `riverrun agent run`.

use std::time::Duration;

use riverrun_api::submit;
use riverrun_api::wire::{Budget, PendingApprovalView, RunAccepted, RunBody, RunMessage, RunView};
use riverrun_schemas::RunId;
use tokio::sync::mpsc;

use super::super::metadata;
use super::super::runs::turn::stuck;
use super::super::runs::watch::follow;
use super::super::runs::{OneRun, approve, outcome, step_line, summary};
use crate::args::AgentRunArgs;
use crate::error::{CliError, Exit};
use crate::host::{self, Connection};
use crate::output::{Output, print_json, print_line, tell};
use crate::settings::Settings;
use crate::signals::Signals;

/// How long a worker may take to take the run.
const FIRST_WORD: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A request that was checked before anything is started for it.
pub struct Prepared {
    body: RunBody,
    steps: bool,
}

/// Checks the request: an unknown agent must not cost the start of a stack. A server has agents, tools and providers of its own, and checks
/// it by those.
pub fn prepare(args: AgentRunArgs, settings: &Settings) -> Result<Prepared, CliError> {
    let some = |names: Vec<String>| (!names.is_empty()).then_some(names);
    let body = RunBody {
        task: args.task,
        agent: args.agent,
        namespace: args.namespace,
        session: args.session,
        session_policy: args.session_policy.map(Into::into),
        provider: args.provider,
        model: args.model,
        temperature: args.temperature,
        max_iters: args.max_iters,
        tools: some(args.tools),
        collections: some(args.collections),
        budget: (args.budget_tokens.is_some() || args.budget_seconds.is_some())
            .then_some(Budget { tokens: args.budget_tokens, seconds: args.budget_seconds }),
        approval: args.approval.map(Into::into),
        metadata: metadata(args.metadata.as_deref())?,
    };
    if host::settings_count(settings)? {
        submit::run_request(body.clone(), &host::core(settings)?.known())?;
    }
    Ok(Prepared { body, steps: args.steps })
}

pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    let Prepared { body, steps } = prepared;
    let accepted: RunAccepted = connection.client.post("/runs", &body).await?;
    let run_id = accepted.run_id.parse::<RunId>().map_err(|error| CliError::new(Exit::Failed, error.to_string()))?;
    let result = watch(connection, run_id, steps && !output.json, !output.json).await?;
    if output.json {
        print_json(&result)?;
        return outcome(&result);
    }
    print_answer(&result)?;
    tell(&format!("\n{}", summary(&result)));
    outcome(&result)
}

/// The answer with the places that it names.
pub fn print_answer(result: &RunView) -> Result<(), CliError> {
    if let Some(answer) = &result.answer {
        print_line(answer)?;
    }
    for citation in &result.citations {
        print_line(&format!(
            "[{}] {} bytes {}..{}",
            citation.n, citation.source, citation.span.start, citation.span.end
        ))?;
    }
    Ok(())
}

/// Whether the run is only not known yet: its command is on the log, and a busy worker may take a moment to take it. Whatever else the API
/// refuses, it refuses the next time too.
fn is_unheard(error: &CliError) -> bool {
    error.code.as_deref() == Some("run_not_found")
}

/// What becomes of a run whose command is interrupted.
fn left(run_id: &str, alone: bool) -> String {
    let goes_on = if alone { "goes on with the next riverrun serve" } else { "goes on" };
    format!("run {run_id} {goes_on}: riverrun runs watch {run_id} follows it, riverrun runs cancel {run_id} stops it")
}

/// Follows the run. Its questions are asked here when somebody is there; otherwise it is said how to answer, and when
/// nobody could (this process has the data folder), the command ends and the run waits.
pub async fn watch(connection: &Connection, run_id: RunId, steps: bool, ask: bool) -> Result<RunView, CliError> {
    let ask = ask && approve::somebody_is_there();
    let since = tokio::time::Instant::now();
    let id = run_id.to_string();
    let run = OneRun::anywhere(id.clone());
    let (questions, mut asked) = mpsc::unbounded_channel::<PendingApprovalView>();
    let alone = connection.is_hosting();
    let mut on_message = |message: &RunMessage| match message {
        RunMessage::Step { step, .. } => {
            if steps {
                print_line(&step_line(step))?;
            }
            match PendingApprovalView::of(step) {
                None => Ok(()),
                Some(question) if ask => {
                    let _ = questions.send(question); // its receiver lives as long as this function
                    Ok(())
                }
                Some(question) if alone => Err(approve::waits(&id, &question)),
                Some(question) => {
                    approve::tell_question(&id, &question);
                    Ok(())
                }
            }
        }
        RunMessage::Final { .. } if steps => print_line(" "),
        RunMessage::Start { .. } | RunMessage::Token { .. } | RunMessage::Final { .. } => Ok(()),
    };
    let following = async {
        loop {
            match follow(connection, &run, 0, false, &mut on_message).await {
                Err(error) if is_unheard(&error) && since.elapsed() < FIRST_WORD => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                other => return other,
            }
        }
    };
    let answering = async {
        // One question after the other: there is one terminal.
        while let Some(question) = asked.recv().await {
            approve::ask(connection.client.clone(), run.clone(), question).await;
        }
        std::future::pending().await
    };
    let mut signals = Signals::listen()?;
    tokio::select! {
        result = following => result,
        never = answering => never,
        error = stuck(connection, &run) => Err(error),
        // Whoever ends the command is told what it leaves behind.
        () = signals.next() => Err(CliError::interrupted().hint(left(&id, alone))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_why_a_run_that_was_just_started_is_not_shown_when_that_is_told_then_only_one_that_is_not_known_yet_is_waited_for()
     {
        let refused = |code: Option<&str>| {
            is_unheard(&CliError { code: code.map(str::to_owned), ..CliError::new(Exit::Refused, "refused") })
        };
        assert!(refused(Some("run_not_found")));
        for code in [None, Some("scope_missing"), Some("unauthorized"), Some("namespace_not_allowed")] {
            assert!(!refused(code), "{code:?}");
        }
    }
}
