//! `riverrun runs watch`.

use axum::http::Method;
use futures::StreamExt;
use riverrun_api::wire::{RunMessage, RunView};

use super::approve::Questions;
use super::turn::stuck;
use super::{OneRun, outcome, step_line, summary};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, print_json_line, print_line, print_piece, reader_gone, tell};

pub async fn run(
    connection: &Connection,
    run: &OneRun,
    after: i64,
    tokens: bool,
    output: Output,
) -> Result<(), CliError> {
    let questions = Questions::of(connection, run).await;
    let mut writing = false;
    let mut on_message = |message: &RunMessage| {
        if output.json {
            print_json_line(message)?;
            return match message {
                RunMessage::Step { step, .. } => questions.told(step),
                RunMessage::Start { .. } | RunMessage::Token { .. } | RunMessage::Final { .. } => Ok(()),
            };
        }
        let goes_on = matches!(message, RunMessage::Token { restart: false, .. });
        if std::mem::replace(&mut writing, matches!(message, RunMessage::Token { .. })) && !goes_on {
            print_piece("\n")?;
        }
        match message {
            RunMessage::Start { .. } => Ok(()),
            RunMessage::Step { step, .. } => {
                print_line(&step_line(step))?;
                questions.told(step)
            }
            RunMessage::Token { text, .. } => print_piece(text),
            RunMessage::Final { result, .. } => match &result.answer {
                Some(answer) => print_line(&format!("\n{answer}")),
                None => Ok(()),
            },
        }
    };
    let result = tokio::select! {
        result = follow(connection, run, after, tokens, &mut on_message) => result?,
        error = stuck(connection, run) => return Err(error),
        () = reader_gone() => return Ok(()),
    };
    if !output.json {
        tell(&format!("\n{}", summary(&result)));
    }
    outcome(&result)
}

/// Follows a run to its end; every message goes to `on_message`, the result comes back too.
pub async fn follow(
    connection: &Connection,
    run: &OneRun,
    after: i64,
    tokens: bool,
    on_message: &mut (dyn FnMut(&RunMessage) -> Result<(), CliError> + Send),
) -> Result<RunView, CliError> {
    let (mut last, mut tries) = (after, 0);
    loop {
        let query = [("after", Some(last.to_string())), ("tokens", Some(tokens.to_string()))];
        let path = run.path_with("/events", &query);
        let events = connection.client.events(Method::GET, &path, None).await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            // A connection that broke is taken up again where it was.
            let Ok(event) = event else { break };
            tries = 0;
            let message: RunMessage = event.json()?;
            if let RunMessage::Step { step, .. } = &message {
                last = step.seq;
            }
            on_message(&message)?;
            if let RunMessage::Final { result, steps_truncated, .. } = message {
                // Not every step fits into a message, and a run is shown with all of them.
                return if steps_truncated { connection.client.get(&run.path("")).await } else { Ok(*result) };
            }
        }
        tries += 1;
        if tries > MAX_TRIES {
            let run_id = &run.run_id;
            return Err(CliError::new(Exit::Failed, format!("the stream of run {run_id} broke off"))
                .hint(format!("the run goes on: riverrun runs watch {run_id} --after {last}")));
        }
    }
}

/// How often a stream that says nothing is taken up again.
const MAX_TRIES: usize = 5;
