//! `riverrun runs approve`, and asking at a terminal.

use std::io::{BufRead, IsTerminal};

use clap::Args;
use riverrun_api::wire::{
    ApprovalBody, ApprovalDecision, PendingApprovalView, RunAccepted, RunMessage, RunView, StepView,
};
use tokio::sync::oneshot;

use super::watch::follow;
use super::{OneRun, outcome, summary};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, clip, print_json, print_line, stderr_is_terminal, tell};

/// Options of `runs approve`.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    #[command(flatten)]
    run: OneRun,
    /// The step that asks; needed when several do
    step: Option<i64>,
    /// Say no: the run goes on without the call
    #[arg(long)]
    deny: bool,
    /// Why; when the answer is no, the model reads it
    #[arg(long)]
    note: Option<String>,
    /// Follow the run to its end
    #[arg(long)]
    watch: bool,
}

pub async fn run(connection: &Connection, args: ApproveArgs, output: Output) -> Result<(), CliError> {
    let ApproveArgs { run, step, deny, note, watch } = args;
    let step = match step {
        Some(step) => step,
        None => only_question(connection, &run).await?,
    };
    let decision = if deny { ApprovalDecision::Deny } else { ApprovalDecision::Approve };
    let accepted = answer(&connection.client, &run, step, decision, note).await?;
    // Nobody else drives the run while this command has the data folder.
    if !watch && !connection.is_hosting() {
        return output.show(&accepted, |accepted| accepted.run_id.clone());
    }
    let questions = Questions::of(connection, &run).await;
    let mut on_message = |message: &RunMessage| match message {
        RunMessage::Step { step, .. } => questions.told(step),
        RunMessage::Start { .. } | RunMessage::Token { .. } | RunMessage::Final { .. } => Ok(()),
    };
    let result = follow(connection, &run, step, false, &mut on_message).await?;
    if output.json {
        print_json(&result)?;
    } else if let Some(answer) = &result.answer {
        print_line(answer)?;
    }
    tell(&format!("\n{}", summary(&result)));
    outcome(&result)
}

/// The one step of the run that asks.
async fn only_question(connection: &Connection, run: &OneRun) -> Result<i64, CliError> {
    let run_id = &run.run_id;
    let run: RunView = connection.client.get(&run.path("")).await?;
    match run.pending_approvals.as_slice() {
        [pending] => Ok(pending.step),
        [] => {
            Err(CliError::new(Exit::Refused, format!("run {run_id} waits for nobody: it is {}", run.status.as_str()))
                .hint(format!("riverrun runs show {run_id}")))
        }
        several => {
            let steps: Vec<String> = several.iter().map(|pending| pending.step.to_string()).collect();
            Err(CliError::new(Exit::Usage, format!("run {run_id} asks at several steps: {}", steps.join(", ")))
                .hint(format!("riverrun runs approve {run_id} {}", steps[0])))
        }
    }
}

async fn answer(
    client: &Client,
    run: &OneRun,
    step: i64,
    decision: ApprovalDecision,
    note: Option<String>,
) -> Result<RunAccepted, CliError> {
    client.post(&run.path(&format!("/approvals/{step}")), &ApprovalBody { decision, note }).await
}

/// Says what is asked and how it is answered.
pub fn tell_question(run_id: &str, question: &PendingApprovalView) {
    tell(&format!(
        "run {run_id} waits: {}\nhint: riverrun runs approve {run_id} {} (or the same with --deny)",
        question.reason, question.step
    ));
}

/// A run asks where nobody can answer.
pub fn waits(run_id: &str, question: &PendingApprovalView) -> CliError {
    CliError::new(Exit::Refused, format!("run {run_id} waits for approval of {}: {}", question.tool, question.reason))
        .hint(format!("riverrun runs approve {run_id} {} (or the same with --deny)", question.step))
}

/// The questions of a run that is followed: of the steps that were there before, only those that nobody has answered yet still ask.
pub struct Questions {
    run_id: String,
    /// The last step that was there when the run began to be followed.
    known: i64,
    /// Steps up to there that ask.
    open: Vec<i64>,
    /// This process has the data folder: no other command gets at the run to answer.
    alone: bool,
}

impl Questions {
    /// Those of a run as it is now. One that no read model knows yet is new, and so are its questions.
    pub async fn of(connection: &Connection, run: &OneRun) -> Self {
        let known = connection.client.get::<RunView>(&run.path("")).await.ok();
        Self {
            run_id: run.run_id.clone(),
            known: known.as_ref().and_then(|run| run.steps.last()).map_or(0, |step| step.seq),
            open: known.iter().flat_map(|run| &run.pending_approvals).map(|pending| pending.step).collect(),
            alone: connection.is_hosting(),
        }
    }

    /// Says what a step asks. Where nobody can answer that is the end: the run would be waited for without one.
    pub fn told(&self, step: &StepView) -> Result<(), CliError> {
        match PendingApprovalView::of(step).filter(|question| self.is_open(question.step)) {
            None => Ok(()),
            Some(question) if self.alone => Err(waits(&self.run_id, &question)),
            Some(question) => {
                tell_question(&self.run_id, &question);
                Ok(())
            }
        }
    }

    fn is_open(&self, step: i64) -> bool {
        step > self.known || self.open.contains(&step)
    }
}

/// Whether there is somebody at a terminal to be asked.
pub fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal() && stderr_is_terminal()
}

/// Asks at the terminal and sends the answer. Ends without an answer when the input does.
pub async fn ask(client: Client, run: OneRun, question: PendingApprovalView) {
    tell(&format!(
        "\n{}({})\n{}\napprove? [y]es, [n]o, or why not: ",
        question.tool,
        clip(&question.arguments.to_string(), 2_000),
        question.reason
    ));
    let Some(line) = read_line().await else { return };
    let (decision, note) = read_answer(&line);
    if let Err(error) = answer(&client, &run, question.step, decision, note).await {
        // Somebody else may have answered meanwhile.
        tell(&format!("the answer was not taken: {error}"));
    }
}

/// Yes, no, or no with these words.
fn read_answer(line: &str) -> (ApprovalDecision, Option<String>) {
    match line.trim() {
        "y" | "Y" | "yes" | "Yes" => (ApprovalDecision::Approve, None),
        "" | "n" | "N" | "no" | "No" => (ApprovalDecision::Deny, None),
        why => (ApprovalDecision::Deny, Some(why.to_owned())),
    }
}

/// A line of input. Its thread is nobody's: a command that ends does not wait for one that is never written.
pub async fn read_line() -> Option<String> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.is_ok_and(|bytes| bytes > 0) {
            let _ = sender.send(line);
        }
    });
    receiver.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_run_that_is_followed_when_its_steps_come_then_only_open_questions_are_told_and_end_it_where_nobody_can_answer()
     {
        let step = |seq: i64, kind: &str| -> StepView {
            serde_json::from_value(serde_json::json!({
                "seq": seq, "kind": kind, "agent": "react", "text": "it changes something", "at": "2026-01-01T00:00:00Z",
                "tool": { "call_id": "c", "name": "count", "arguments": {} },
            }))
            .unwrap()
        };
        let questions = |alone| Questions { run_id: "run_x".to_owned(), known: 6, open: vec![5], alone };
        let told = |alone, seq, kind| questions(alone).told(&step(seq, kind));
        for seq in 1..=7 {
            assert!(told(false, seq, "approval").is_ok() && told(true, seq, "tool_call").is_ok(), "{seq}");
        }
        for answered in [3, 6] {
            assert!(told(true, answered, "approval").is_ok(), "{answered}");
        }
        for open in [5, 7] {
            let error = told(true, open, "approval").unwrap_err();
            let hint = format!("riverrun runs approve run_x {open} (or the same with --deny)");
            assert_eq!((error.exit, error.hint), (Exit::Refused, Some(hint)));
        }
    }

    #[test]
    fn given_lines_when_they_are_read_as_answers_then_only_a_clear_yes_approves() {
        for yes in ["y", "yes\n", " Y \n"] {
            assert_eq!(read_answer(yes), (ApprovalDecision::Approve, None), "{yes:?}");
        }
        for no in ["", "\n", "n", "no"] {
            assert_eq!(read_answer(no), (ApprovalDecision::Deny, None), "{no:?}");
        }
        assert_eq!(read_answer("too dear\n"), (ApprovalDecision::Deny, Some("too dear".into())));
    }
}
