//! `riverrun agent run`.

use std::time::Duration;

use riverrun_api::submit;
use riverrun_api::wire::{Budget, CollectionView, Items, RunBody, RunMessage, RunView};
use riverrun_schemas::RunId;
use riverrun_schemas::agent::RunRequest;

use super::super::metadata;
use super::super::runs::watch::follow;
use super::super::runs::{outcome, step_line, summary};
use crate::args::AgentRunArgs;
use crate::client::with_query;
use crate::error::{CliError, Exit};
use crate::host::{self, Connection};
use crate::output::{Output, print_json, print_line, tell};
use crate::settings::Settings;

const COMPONENT: &str = "cli";
/// How long a worker may take to take the run.
const FIRST_WORD: Duration = Duration::from_secs(60);

/// A request that was checked before anything is started for it.
pub struct Prepared {
    request: RunRequest,
    steps: bool,
}

/// Checks the request: an unknown agent must not cost the start of a stack.
pub fn prepare(args: AgentRunArgs, settings: &Settings) -> Result<Prepared, CliError> {
    let some = |names: Vec<String>| (!names.is_empty()).then_some(names);
    let body = RunBody {
        task: args.task,
        agent: args.agent,
        namespace: args.namespace,
        session: args.session,
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
    let request = submit::run_request(body, &host::core(settings)?.known())?;
    Ok(Prepared { request, steps: args.steps })
}

pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    let Prepared { request, steps } = prepared;
    check_collections(connection, &request).await?;
    let run_id = RunId::new();
    submit::submit_run(&connection.producer()?, run_id, request, COMPONENT)
        .await
        .map_err(riverrun_api::ApiError::from)?;
    let result = watch(connection, run_id, steps && !output.json).await?;
    if output.json {
        print_json(&result)?;
        return outcome(&result);
    }
    if let Some(answer) = &result.answer {
        print_line(answer)?;
    }
    for citation in &result.citations {
        print_line(&format!(
            "[{}] {} bytes {}..{}",
            citation.n, citation.source, citation.span.start, citation.span.end
        ))?;
    }
    tell(&format!("\n{}", summary(&result)));
    outcome(&result)
}

/// Collections that a run names must be there: a misspelt one would silently be an empty one.
async fn check_collections(connection: &Connection, request: &RunRequest) -> Result<(), CliError> {
    let Some(names) = &request.collections else { return Ok(()) };
    let path = with_query("/collections", &[("namespace", Some(request.namespace.to_string()))]);
    let there: Items<CollectionView> = connection.client.get(&path).await?;
    match names.iter().find(|name| !there.items.iter().any(|collection| collection.name.as_str() == name.as_str())) {
        None => Ok(()),
        Some(missing) => Err(CliError::new(
            Exit::Refused,
            format!("collection {missing:?} does not exist in namespace {:?}", request.namespace.as_str()),
        )
        .hint(format!("riverrun collections --namespace {}", request.namespace))),
    }
}

async fn watch(connection: &Connection, run_id: RunId, steps: bool) -> Result<RunView, CliError> {
    let since = tokio::time::Instant::now();
    let id = run_id.to_string();
    let mut on_message = |message: &RunMessage| match message {
        RunMessage::Step { step } if steps => print_line(&step_line(step)),
        RunMessage::Final { .. } if steps => print_line(" "),
        RunMessage::Start { .. } | RunMessage::Step { .. } | RunMessage::Token { .. } | RunMessage::Final { .. } => {
            Ok(())
        }
    };
    loop {
        match follow(connection, &id, 0, false, &mut on_message).await {
            // The command is on the log; a busy worker may take a moment to take it.
            Err(error) if error.exit == Exit::Refused && since.elapsed() < FIRST_WORD => {}
            Err(error) if error.exit == Exit::Interrupted => {
                return Err(error.hint(format!(
                    "the run goes on with the next riverrun serve; riverrun runs cancel {id} stops it"
                )));
            }
            other => return other,
        }
    }
}
