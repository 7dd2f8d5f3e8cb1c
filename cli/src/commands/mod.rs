//! One file a verb, one folder a noun.

mod agent;
mod agents;
pub(crate) mod blobs;
pub mod canvas;
pub mod chains;
pub mod chaos;
mod chat;
pub(crate) mod collections;
mod completion;
mod diagnose;
pub(crate) mod dlq;
pub(crate) mod docs;
mod embed;
pub mod finetune;
mod ingest;
mod mcp;
pub mod memory;
pub(crate) mod models;
mod openapi;
pub(crate) mod project;
mod providers;
pub(crate) mod rag;
mod rebuild;
mod reembed;
pub mod runs;
pub mod search;
pub mod stream;
pub mod tokens;
mod tools;
mod topics;
pub mod transfer;
mod tune;
pub mod usage;
pub(crate) mod warehouse;
pub mod worker;

use std::future::Future;

use futures::FutureExt;
use serde_json::{Map, Value};
use tokio::task::unconstrained;

use crate::args::{AgentCommand, Command, RagCommand, ToolsArgs, ToolsCommand};
use crate::commands::canvas::CanvasCommand;
use crate::commands::dlq::DlqCommand;
use crate::commands::finetune::FinetuneCommand;
use crate::commands::models::ModelsCommand;
use crate::commands::stream::StreamCommand;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::Output;
use crate::serve;
use crate::settings::Settings;
use crate::signals::Signals;

/// Runs a command.
pub async fn run(command: Command, settings: &Settings, output: Output) -> Result<(), CliError> {
    let name = command.name();
    match command {
        Command::Serve(args) => serve::serve(args, settings).await,
        Command::Worker(args) => worker::run(args, settings).await,
        Command::Completion { shell } => completion::run(shell),
        Command::Openapi => openapi::run(),
        Command::Export(args) => until_signal(transfer::export::run(args, settings, output)).await,
        Command::Import(args) => until_signal(transfer::import::run(args, settings, output)).await,
        Command::Tokens(command) => tokens::run(command, settings, output),
        Command::Diagnose => until_signal(diagnose::run(settings, output)).await,
        Command::Providers => with_light(settings, async |c| providers::run(c, output).await).await,
        Command::Agents => with_light(settings, async |c| agents::run(c, output).await).await,
        Command::Tools(ToolsArgs { command: Some(ToolsCommand::Check { file }), .. }) => {
            tools::check::run(settings, file.as_deref(), output)
        }
        Command::Tools(ToolsArgs { command: Some(ToolsCommand::Ls(args)), .. }) => {
            with_light(settings, async |c| tools::ls::run(c, args, output).await).await
        }
        Command::Tools(args) => with_light(settings, async |c| tools::ls::run(c, args.namespace, output).await).await,
        Command::Mcp(args) => with_full(settings, name, async |c| mcp::run(c, args).await).await,
        Command::Usage(args) => with_full(settings, name, async |c| usage::run(c, args, output).await).await,
        Command::Topics => with_light(settings, async |c| topics::run(c, output).await).await,
        Command::Chat(args) => with_light(settings, async |c| chat::run(c, args, output).await).await,
        Command::Embed(args) => with_light(settings, async |c| embed::run(c, args, output).await).await,
        Command::Models(args) => match args.command {
            Some(ModelsCommand::Pull { model }) => models::pull::run(settings, &model, output).await,
            Some(ModelsCommand::Rm { model }) => models::rm::run(settings, &model, output),
            Some(ModelsCommand::Show { model, provider }) => {
                with_full(settings, name, async |c| models::show::run(c, &model, provider, output).await).await
            }
            Some(ModelsCommand::Probe { model, provider }) => {
                with_full(settings, name, async |c| models::probe::run(c, model, provider, output).await).await
            }
            Some(ModelsCommand::Ls { provider }) => {
                with_light(settings, async |c| models::ls::run(c, provider, output).await).await
            }
            None => with_light(settings, async |c| models::ls::run(c, args.provider, output).await).await,
        },
        Command::Ingest(args) => {
            if let Some(consume) = ingest::of_topic(&args)? {
                return stream::consume::run(consume, settings, name, output).await;
            }
            let (prepared, settings) = ingest::prepare(args, settings)?;
            with_full(&settings, name, async |c| ingest::run(c, prepared, output).await).await
        }
        Command::Stream(command) => match command {
            StreamCommand::Produce(args) => {
                let prepared = stream::produce::prepare(args)?;
                with_full(settings, name, async |c| stream::produce::run(c, prepared, output).await).await
            }
            StreamCommand::Consume(args) => stream::consume::run(args, settings, name, output).await,
        },
        Command::Collections(args) => {
            with_full(settings, name, async |c| collections::run(c, args, output).await).await
        }
        Command::Search(args) | Command::Rag(RagCommand::Search(args)) => {
            with_full(settings, name, async |c| search::run(c, args, output).await).await
        }
        Command::Rag(RagCommand::Ask(args)) => {
            with_full(settings, name, async |c| rag::ask::run(c, args, output).await).await
        }
        Command::Rag(RagCommand::Eval(args)) => {
            let prepared = rag::eval::prepare(args)?;
            with_full(settings, name, async |c| rag::eval::run(c, prepared, output).await).await
        }
        Command::Agent(AgentCommand::Run(args)) => {
            let prepared = agent::run::prepare(*args, settings)?;
            with_full(settings, name, async |c| agent::run::run(c, prepared, output).await).await
        }
        Command::Canvas(CanvasCommand::Run(args)) if args.is_saved() => {
            with_full(settings, name, async |c| {
                let prepared = canvas::fetch(c, args, settings).await?;
                canvas::run(c, prepared, output).await
            })
            .await
        }
        Command::Canvas(CanvasCommand::Run(args)) => {
            let prepared = canvas::prepare(args, settings)?;
            with_full(settings, name, async |c| canvas::run(c, prepared, output).await).await
        }
        Command::Canvas(CanvasCommand::Saved(command)) => {
            with_full(settings, name, async |c| canvas::run_saved(c, command, output).await).await
        }
        Command::Canvas(CanvasCommand::Check { file }) => canvas::check(&file, output),
        Command::Chains(command) => with_full(settings, name, async |c| chains::run(c, command, output).await).await,
        Command::Runs(command) => with_full(settings, name, async |c| runs::run(c, command, output).await).await,
        Command::Chaos(command) => chaos::run(command, output).await,
        Command::Finetune(FinetuneCommand::Eval(args)) if !args.needs_judge() => {
            until_signal(finetune::eval::run(None, &settings.models, args, output)).await
        }
        Command::Finetune(FinetuneCommand::Eval(args)) => {
            with_light(settings, async |c| finetune::eval::run(Some(c), &settings.models, args, output).await).await
        }
        Command::Finetune(command) => {
            with_full(settings, name, async |c| finetune::run(c, command, &settings.models, output).await).await
        }
        Command::Docs(command) => with_full(settings, name, async |c| docs::run(c, command, output).await).await,
        Command::Project(project::ProjectCommand::Tools(command)) => {
            with_light(settings, async |c| project::tools::run(c, command, output).await).await
        }
        Command::Project(command) => {
            let (command, settings) = project::prepare(command, settings)?;
            with_full(&settings, name, async |c| project::run(c, command, output).await).await
        }
        Command::Warehouse(command) => {
            command.check(output)?;
            with_full(settings, name, async |c| warehouse::run(c, command, output).await).await
        }
        Command::Blobs(command) => with_full(settings, name, async |c| blobs::run(c, command, output).await).await,
        Command::Memory(command) => with_full(settings, name, async |c| memory::run(c, command, output).await).await,
        Command::Dlq(command) => match command {
            DlqCommand::Ls { topic, limit } => {
                with_full(settings, name, async |c| dlq::ls::run(c, topic, limit, output).await).await
            }
            DlqCommand::Show { id, to } => {
                with_full(settings, name, async |c| dlq::show::run(c, &id, to, output).await).await
            }
            DlqCommand::Drop { id } => with_full(settings, name, async |c| dlq::drop::run(c, &id, output).await).await,
            DlqCommand::Redrive { id, again } => {
                with_full(settings, name, async |c| dlq::redrive::run(c, &id, again, output).await).await
            }
        },
    }
}

/// Runs with what needs neither log nor stores.
async fn with_light(
    settings: &Settings,
    work: impl AsyncFnOnce(&Connection) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let connection = Connection::light(settings).await?;
    let result = until_signal(work(&connection)).await;
    connection.keep_usage(settings);
    result
}

/// Runs with log and stores; what was started for it is stopped however it ends.
async fn with_full(
    settings: &Settings,
    name: &str,
    work: impl AsyncFnOnce(&Connection) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let connection = until_signal(Connection::full(settings, name)).await?;
    let result = until_signal(work(&connection)).await;
    if result.is_ok() {
        let _ = until_signal(async {
            connection.finish_fetching().await;
            Ok(())
        })
        .await;
    }
    // Stopping takes its own few seconds; whoever insists with a second signal is let go.
    let _ = until_signal(async {
        connection.close().await;
        Ok(())
    })
    .await;
    result
}

/// The work's own end, or 130 at the first signal. Work that listens itself ends as it wants to.
async fn until_signal<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let mut signals = Signals::listen()?;
    until(work, signals.next()).await
}

async fn until<T>(
    work: impl Future<Output = Result<T, CliError>>,
    signal: impl Future<Output = ()>,
) -> Result<T, CliError> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        result = &mut work => return result,
        () = signal => {}
    }
    // It may have come just after the work was looked at: work that listens itself hears of it now.
    unconstrained(work).now_or_never().unwrap_or_else(|| Err(CliError::interrupted()))
}

/// A JSON object of the caller's.
fn metadata(text: Option<&str>) -> Result<Option<Map<String, Value>>, CliError> {
    text.map(|text| {
        serde_json::from_str(text).map_err(|error| {
            CliError::new(Exit::Usage, format!("--metadata {text:?} is not a JSON object: {error}"))
                .hint("--metadata '{\"team\": \"a\"}'")
        })
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn given_a_signal_that_comes_while_the_work_is_looked_at_when_it_listens_itself_then_it_ends_as_it_wants_to()
    {
        for listens in [true, false] {
            let (signal, mut own) = watch::channel(());
            let mut outer = signal.subscribe();
            let work = async {
                tokio::select! {
                    biased;
                    _ = own.changed(), if listens => Err::<(), _>(CliError::interrupted().hint("what is left")),
                    () = std::future::poll_fn(|_| { signal.send_replace(()); Poll::Pending }) => Ok(()),
                }
            };
            let heard = async {
                let _ = outer.changed().await;
            };
            let error = until(work, heard).await.unwrap_err();
            assert_eq!((error.exit, error.hint.is_some()), (Exit::Interrupted, listens));
        }
    }
}
