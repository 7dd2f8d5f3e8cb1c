//! `riverrun ingest`.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use riverrun_api::submit::{self, IngestTarget};
use riverrun_api::wire::{CollectionView, IngestBody, IngestView, Items};
use riverrun_knowledge::sources::{self, Scan, SourceError};
use riverrun_schemas::IngestId;
use riverrun_schemas::ingest::StartIngest;

use super::metadata;
use crate::args::IngestArgs;
use crate::client::with_query;
use crate::error::{CliError, Exit};
use crate::host::{self, Connection};
use crate::output::{Output, stderr_is_terminal, tell};
use crate::settings::Settings;

/// What commands of the command line name as their writer.
const COMPONENT: &str = "cli";
const POLL: Duration = Duration::from_millis(100);
/// How long a worker may take to say a first word.
const FIRST_WORD: Duration = Duration::from_secs(60);

/// A request that was checked before anything is started for it.
pub struct Prepared {
    source: String,
    target: IngestTarget,
}

/// Checks request and source: a missing file must not cost the start of a stack.
pub fn prepare(args: IngestArgs, settings: &Settings) -> Result<Prepared, CliError> {
    let body = IngestBody {
        source: args.source.clone(),
        collection: args.collection,
        namespace: args.namespace,
        source_type: args.source_type,
        table: args.table,
        query: args.query,
        strategy: args.strategy,
        embed_backend: args.embed_backend,
        metadata: metadata(args.metadata.as_deref())?,
    };
    let target = submit::ingest_target(&body, &host::core(settings)?.ingest_defaults())?;
    let path = submit::existing(Path::new(&args.source))?;
    let source = path
        .to_str()
        .ok_or_else(|| {
            CliError::new(Exit::Refused, format!("{} is not valid UTF-8", path.display())).hint("rename it")
        })?
        .to_owned();
    match sources::scan(&source, target.source_type.as_deref(), settings.ingest_limits).map_err(refused)? {
        Scan::File(_) => {}
        Scan::Folder(listing) if listing.documents.is_empty() && listing.refused.is_empty() => {
            return Err(refused(listing.nothing_readable(&source)));
        }
        Scan::Folder(_) => {}
    }
    Ok(Prepared { source, target })
}

fn refused(error: SourceError) -> CliError {
    CliError::new(Exit::Refused, error.to_string())
        .hint("riverrun ingest --help shows what a source may be")
        .maybe_hint(error.hint())
}

pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    let ingest_id = IngestId::new();
    let command: StartIngest =
        submit::ingest_command(&prepared.source, prepared.target, &connection.core.ingest_defaults(), ingest_id);
    let known: Items<CollectionView> = connection
        .client
        .get(&with_query("/collections", &[("namespace", Some(command.namespace.to_string()))]))
        .await?;
    let known = known.items.iter().find(|collection| collection.name == command.collection);
    submit::same_embed_model(known, &connection.core.ingest_defaults())?;
    submit::submit_ingest(&connection.producer()?, command, COMPONENT).await.map_err(riverrun_api::ApiError::from)?;
    let view = watch(connection, ingest_id, !output.json).await?;
    if !output.json {
        view.failures.iter().for_each(|failure| {
            tell(&format!("failed: {}: {}", failure.source, failure.error.message));
            failure.error.hint.iter().for_each(|hint| tell(&format!("        {hint}")));
        });
    }
    // Nothing that was taken in is nothing to go on with: then the counts are words for people.
    if output.json || view.indexed + view.unchanged > 0 {
        output.show(&view, counts)?;
    } else {
        tell(&counts(&view));
    }
    outcome(&view)
}

/// Waits for the end, with a bar where people look.
async fn watch(connection: &Connection, ingest_id: IngestId, show: bool) -> Result<IngestView, CliError> {
    let bar = bar(show && stderr_is_terminal());
    let since = tokio::time::Instant::now();
    loop {
        match connection.client.get::<IngestView>(&format!("/ingest/{ingest_id}")).await {
            Ok(view) => {
                progress(&bar, &view);
                if view.ended() {
                    bar.finish_and_clear();
                    return Ok(view);
                }
            }
            // The command is on the log; the first word of it may take a moment.
            Err(error) if error.exit == Exit::Refused && since.elapsed() < FIRST_WORD => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(POLL).await;
    }
}

fn bar(visible: bool) -> ProgressBar {
    let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("[{wide_bar}] {pos}/{len} documents · {msg} · {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn progress(bar: &ProgressBar, view: &IngestView) {
    if let Some(documents) = view.documents {
        bar.set_length(u64::try_from(documents).unwrap_or(0));
    }
    bar.set_position(u64::try_from(view.indexed + view.unchanged + view.failed).unwrap_or(0));
    bar.set_message(format!("{} chunks", view.chunks));
}

fn counts(view: &IngestView) -> String {
    let skipped = if view.skipped > 0 { format!(" · skipped {}", view.skipped) } else { String::new() };
    format!(
        "indexed {} · unchanged {} · failed {}{skipped} · {} chunks in {}/{}",
        view.indexed, view.unchanged, view.failed, view.chunks, view.namespace, view.collection
    )
}

fn outcome(view: &IngestView) -> Result<(), CliError> {
    if let Some(error) = &view.error {
        return Err(CliError::new(exit_of(&error.code), error.message.clone())
            .hint("riverrun ingest --help shows what a source may be")
            .maybe_hint(error.hint.clone()));
    }
    match view.failures.first() {
        None => Ok(()),
        Some(first) => {
            let message = format!("{} of {} documents failed", view.failed, view.documents.unwrap_or(view.failed));
            Err(CliError::new(exit_of(&first.error.code), message)
                .hint("riverrun docs ls shows which")
                .maybe_hint(first.error.hint.clone()))
        }
    }
}

fn exit_of(code: &str) -> Exit {
    if matches!(code, "model_runtime_down" | "model_missing") { Exit::ServiceDown } else { Exit::Failed }
}
