//! `riverrun ingest`.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use percent_encoding::percent_decode_str;
use riverrun_api::access::scope::Scope;
use riverrun_api::ingest_source;
use riverrun_api::submit::{self, IngestTarget};
use riverrun_api::wire::{CollectionView, IngestAccepted, IngestBody, IngestView, Items};
use riverrun_knowledge::sources::{self, DatabaseAddress, GitAddress, Globs, Place, Scan, SourceError};
use riverrun_schemas::ingest::StartIngest;
use riverrun_schemas::{IngestId, counted, now_ms};
use serde::Serialize;

use super::metadata;
use super::stream::consume::{ConsumeArgs, USUAL_IDLE_SECONDS};
use crate::args::IngestArgs;
use crate::client::{Client, with_query};
use crate::error::{CliError, Exit};
use crate::host::{self, Connection};
use crate::output::{Output, tell};
use crate::progress;
use crate::settings::Settings;

use hand_in::{HandedIn, Here};
use prune::{Listing, Pruned};

mod hand_in;
mod left_out;
mod prune;

/// What commands of the command line name as their writer.
const COMPONENT: &str = "cli";
const POLL: Duration = Duration::from_millis(100);
/// After so long without a word of a worker people are told what is going on.
const QUIET: Duration = Duration::from_secs(60);

/// The variable that a password in the address stands under for as long as the command lasts.
const OWN_PASSWORD: &str = "RIVERRUN_SOURCE_OF_THIS_COMMAND";

/// A request that was checked before anything is started for it.
pub struct Prepared {
    target: IngestTarget,
    /// The password is known to this process only: a running server can't read the source.
    needs_own_stack: bool,
    /// What is gone from the source goes; this is what it lists.
    prunes: Option<Listing>,
    /// The source is a path, which this process can read.
    here: Option<Here>,
    /// What a server is asked, which has settings of its own.
    asked: IngestBody,
    /// The server is elsewhere: nothing of this machine is there.
    is_elsewhere: bool,
}

/// What `stream consume` is to do, when the source is a topic.
pub fn of_topic(args: &IngestArgs) -> Result<Option<ConsumeArgs>, CliError> {
    let is_topic = args.source_type.as_deref() == Some("kafka") || args.source.starts_with("kafka://");
    if !is_topic {
        return Ok(None);
    }
    if let Some(option) = not_for_topics(args) {
        let reason = format!("{option} does not go with topics, and {} is one", args.source);
        return Err(CliError::new(Exit::Usage, reason)
            .hint("leave it out; topics take --follow, --metadata, --embed-backend and the sizes of chunks"));
    }
    Ok(Some(ConsumeArgs {
        collection: args.collection.clone(),
        namespace: args.namespace.clone(),
        topic: args.source.trim_start_matches("kafka://").to_owned(),
        idle_timeout: (!args.follow).then_some(USUAL_IDLE_SECONDS),
        from_beginning: false,
        // Who follows waits for what is to come, be it the topic itself.
        create_topic: args.follow,
        source_type: None,
        chunks: args.chunks.clone(),
        metadata: args.metadata.clone(),
    }))
}

/// An option that was given and says nothing to a reader of topics.
fn not_for_topics(args: &IngestArgs) -> Option<&'static str> {
    let given = [
        ("--table", args.table.is_some()),
        ("--query", args.query.is_some()),
        ("--include", !args.include.is_empty()),
        ("--exclude", !args.exclude.is_empty()),
        ("--depth", args.depth.is_some()),
        ("--sitemap", args.sitemap),
        ("--prune", args.prune),
        ("--strategy", args.strategy.is_some()),
    ];
    given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
}

/// Checks request and source: a missing file must not cost the start of a stack. The settings that come back know the
/// password that stood in the address.
pub fn prepare(args: IngestArgs, settings: &Settings) -> Result<(Prepared, Settings), CliError> {
    if args.follow {
        return Err(CliError::new(Exit::Usage, "--follow belongs to topics, and the source is none")
            .hint("riverrun ingest riverrun.documents --type kafka --follow -c NAME"));
    }
    let prunes = args.prune;
    let mut body = IngestBody {
        source: args.source,
        collection: args.collection,
        namespace: args.namespace,
        source_type: args.source_type,
        table: args.table,
        query: args.query,
        strategy: args.strategy,
        embed_backend: args.chunks.embed_backend,
        chunk_size: args.chunks.chunk_size,
        chunk_overlap: args.chunks.chunk_overlap,
        chunk_unit: args.chunks.chunk_unit,
        include: args.include,
        exclude: args.exclude,
        depth: args.depth,
        sitemap: args.sitemap,
        metadata: metadata(args.metadata.as_deref())?,
    };
    let mut settings = settings.clone();
    let mut needs_own_stack = false;
    if let Some(password) = sources::literal_password(&body.source).map(str::to_owned) {
        settings.source_secrets = settings.source_secrets.with(OWN_PASSWORD, decoded(&password));
        body.source = body.source.replacen(&format!(":{password}@"), &format!(":${{{OWN_PASSWORD}}}@"), 1);
        needs_own_stack = true;
    }
    let target = submit::ingest_target(&body, &host::core(&settings)?.ingest_defaults())?;
    let is_elsewhere = settings.server.is_some();
    let place = sources::place(&body.source, body.source_type.as_deref()).map_err(refused)?;
    ingest_source::check_options(&place, &body)?;
    let is_of_a_disk = matches!(place, Place::Path | Place::Git(GitAddress::Local(_)));
    let globs = Globs::new(&body.include, &body.exclude).map_err(refused)?;
    let mut listing = Listing::of_address(&place, &globs, &body, settings.ingest_limits);
    let mut here = None;
    let source = match place {
        Place::Path => {
            let (source, scan) = checked_path(&body, &target, &globs, &settings, prunes)?;
            listing = Listing::of_path(&source, &scan, &globs, settings.ingest_limits);
            here = Some(Here {
                body: IngestBody { source: source.clone(), ..body.clone() },
                limits: settings.ingest_limits,
            });
            source
        }
        // A path where the ingester is, which may be elsewhere.
        Place::Git(GitAddress::Local(_)) | Place::Database(DatabaseAddress { file: Some(_), .. }) if is_elsewhere => {
            body.source.clone()
        }
        Place::Git(GitAddress::Local(path)) => {
            let source = text(&submit::existing(&path)?)?;
            listing = Some(Listing::Repository { address: source.clone(), globs });
            source
        }
        Place::Database(DatabaseAddress { file: Some(file), .. }) => {
            format!("sqlite:{}", text(&submit::existing(&file)?)?)
        }
        Place::Web(_)
        | Place::Git(GitAddress::Https(_))
        | Place::Database(_)
        | Place::Documents(_)
        | Place::Topic(_) => body.source.clone(),
    };
    if prunes && is_of_a_disk && is_elsewhere {
        return Err(CliError::new(
            Exit::Usage,
            "--prune compares documents with paths, and those that are handed in have none",
        )
        .hint("run it on the machine of the server, without RIVERRUN_SERVER"));
    }
    if prunes && listing.is_none() {
        let what = "--prune belongs to what lists documents: a folder, an archive, a repository or a site, and the source is none of them";
        return Err(CliError::new(Exit::Usage, what).hint(
            "a site is read with --depth or --sitemap; riverrun docs rm removes a document, riverrun collections rm all of them",
        ));
    }
    let prunes = listing.filter(|_| prunes);
    let asked = IngestBody { source, ..body };
    Ok((Prepared { target, needs_own_stack, prunes, here, asked, is_elsewhere }, settings))
}

/// The whole path of something that can be read, and what is there. In a folder there is something to read, unless what is gone is to go.
fn checked_path(
    body: &IngestBody,
    target: &IngestTarget,
    globs: &Globs,
    settings: &Settings,
    prunes: bool,
) -> Result<(String, Scan), CliError> {
    let source = text(&submit::existing(Path::new(&body.source))?)?;
    let scan = sources::scan(&source, target.source_type.as_deref(), globs, settings.ingest_limits).map_err(refused)?;
    if let Scan::Folder(listing) = &scan
        && prune::is_empty(listing)
        && !prunes
    {
        return Err(refused(listing.nothing_readable(&source)));
    }
    Ok((source, scan))
}

fn text(path: &Path) -> Result<String, CliError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| CliError::new(Exit::Refused, format!("{} is not valid UTF-8", path.display())).hint("rename it"))
}

/// A password as it is, from how addresses write it.
fn decoded(password: &str) -> String {
    percent_decode_str(password).decode_utf8_lossy().into_owned()
}

fn refused(error: SourceError) -> CliError {
    CliError::new(Exit::Refused, error.to_string())
        .hint("riverrun ingest --help shows what a source may be")
        .maybe_hint(error.hint())
}

pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    let Prepared { target, needs_own_stack, prunes, here, asked, is_elsewhere } = prepared;
    if needs_own_stack && !connection.is_hosting() {
        return Err(ingest_source::password_in_address(&sources::shown(&asked.source)).into());
    }
    let began = now_ms();
    let (view, handed_in) = match here {
        Some(here) if is_elsewhere => {
            let done = hand_in::run(connection, here, output).await?;
            (done.view.clone(), Some(done))
        }
        None if is_elsewhere => {
            let ingest_id = posted(connection, &asked).await?;
            (watch(&connection.client, &ingest_id, QUIET, output).await?, None)
        }
        // What is pruned is compared with paths, which documents that are handed in don't have.
        here => begun(connection, &asked, target, here.filter(|_| prunes.is_none()), output).await?,
    };
    if !output.json {
        let last = outcome(&view).err().and_then(|error| error.hint);
        view.failures.iter().for_each(|failure| {
            tell(&format!("failed: {}", of_source(&failure.source, &failure.error.message)));
            // What the command ends with is told there.
            let own = failure.error.hint.iter().filter(|hint| last.as_ref() != Some(*hint));
            own.for_each(|hint| tell(&format!("        {hint}")));
        });
        for of in &view.notes {
            of.notes.iter().for_each(|note| tell(&format!("note: {}: {note}", of.source)));
        }
    }
    let pruned = match &prunes {
        Some(listing) => Some(prune::run(&connection.client, listing, &view, began, connection.reads_here()).await),
        None => None,
    };
    let is_emptied = matches!(pruned, Some(Ok(Pruned { is_emptied: true, .. })));
    let removed = match &pruned {
        Some(Ok(pruned)) if view.error.is_none() || is_emptied => Some(pruned.documents),
        Some(Ok(_) | Err(_)) | None => None,
    };
    let receipt = Receipt { view: &view, pruned: removed };
    // Nothing that was taken in is nothing to go on with: then the counts are words for people.
    if output.json || view.indexed + view.unchanged > 0 {
        output.show(&receipt, Receipt::counts)?;
    } else {
        tell(&receipt.counts());
    }
    if let Err(failed) = outcome(&view)
        && !is_emptied
    {
        // One failure ends the command; the other is told.
        if let Some(Err(error)) = pruned {
            tell(&error.message);
        }
        return Err(failed);
    }
    pruned.transpose()?;
    handed_in.map_or(Ok(()), |done| done.outcome())
}

/// What came of an ingest, and of the documents that its source holds no more.
#[derive(Serialize)]
struct Receipt<'v> {
    #[serde(flatten)]
    view: &'v IngestView,
    /// How many were removed; not there where nothing was to be, or could be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pruned: Option<usize>,
}

impl Receipt<'_> {
    fn counts(&self) -> String {
        let pruned = self.pruned.map_or(String::new(), |documents| format!(" · {documents} gone from it removed"));
        format!("{}{pruned}", counts(self.view))
    }
}

/// Starts the ingest and waits for its end. What the ingester can't read of this machine is handed in.
async fn begun(
    connection: &Connection,
    asked: &IngestBody,
    target: IngestTarget,
    here: Option<Here>,
    output: Output,
) -> Result<(IngestView, Option<HandedIn>), CliError> {
    let ingest_id = if connection.is_hosting() {
        put(connection, asked, target).await?
    } else {
        started(connection, asked, target).await?
    };
    let view = watch(&connection.client, &ingest_id, QUIET, output).await?;
    match here.filter(|_| !connection.reads_here()) {
        Some(here) if hand_in::is_out_of_reach(&view) => {
            let done = hand_in::run(connection, here, output).await?;
            Ok((done.view.clone(), Some(done)))
        }
        Some(_) | None => Ok((view, None)),
    }
}

/// Asks the server that has the data folder, whose tokens, limits and settings count. Callers of its API may have less read than its user
/// who speaks to its broker: what it says is closed to them is put on the log by this process, as far as the token goes.
async fn started(connection: &Connection, asked: &IngestBody, target: IngestTarget) -> Result<String, CliError> {
    match posted(connection, asked).await {
        Err(refused) if is_closed(&refused) => {
            let named = asked.namespace.as_ref().map(|_| &target.namespace);
            let namespace = connection.permitted(Scope::Ingest, named).await?;
            put(connection, asked, IngestTarget { namespace, ..target }).await
        }
        answered => answered,
    }
}

/// Whether the API has only refused to look at the source: it is outside of what its callers may have read, or its process sees nothing
/// there, which says nothing of the ingester or of what can be handed in.
fn is_closed(refused: &CliError) -> bool {
    matches!(refused.code.as_deref(), Some("source_not_allowed" | "source_not_found" | "source_unreadable"))
}

async fn posted(connection: &Connection, asked: &IngestBody) -> Result<String, CliError> {
    let accepted: IngestAccepted = connection.client.post("/ingest", asked).await?;
    Ok(accepted.ingest_id)
}

/// Puts the request on the log.
async fn put(connection: &Connection, asked: &IngestBody, target: IngestTarget) -> Result<String, CliError> {
    let ingest_id = IngestId::new();
    let command: StartIngest = submit::ingest_command(&asked.source, target, ingest_id);
    let known: Items<CollectionView> = connection
        .client
        .get(&with_query("/collections", &[("namespace", Some(command.namespace.to_string()))]))
        .await?;
    let known = known.items.iter().find(|collection| collection.name == command.collection);
    submit::same_embed_model(known, &command.embed_model)?;
    submit::submit_ingest(&connection.producer()?, command, COMPONENT).await.map_err(riverrun_api::ApiError::from)?;
    Ok(ingest_id.to_string())
}

/// A reason with the source in front, which some reasons begin with themselves.
fn of_source(source: &str, reason: &str) -> String {
    if reason.starts_with(source) { reason.to_owned() } else { format!("{source}: {reason}") }
}

/// Waits for the end, with a bar where people look. Nothing is heard of an ingest before all of its source is read, and that may take
/// minutes: after `quiet` without a word that is told, and not taken for a failure.
async fn watch(
    client: &Client,
    ingest_id: impl Display,
    quiet: Duration,
    output: Output,
) -> Result<IngestView, CliError> {
    let bar = progress::bar(output, None, "documents");
    let since = tokio::time::Instant::now();
    let mut is_told = false;
    loop {
        match client.get::<IngestView>(&format!("/ingest/{ingest_id}")).await {
            Ok(view) => {
                advance(&bar, &view);
                if view.ended() {
                    bar.finish_and_clear();
                    return Ok(view);
                }
            }
            // Its command is on the log.
            Err(error) if error.code.as_deref() == Some("ingest_not_found") => {
                if since.elapsed() >= quiet && !std::mem::replace(&mut is_told, true) {
                    bar.suspend(|| {
                        tell("the source is still being read; riverrun diagnose shows where workers are behind")
                    });
                }
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(POLL).await;
    }
}

fn advance(bar: &ProgressBar, view: &IngestView) {
    if let Some(documents) = view.documents {
        bar.set_length(u64::try_from(documents).unwrap_or(0));
    }
    bar.set_position(u64::try_from(view.indexed + view.unchanged + view.failed).unwrap_or(0));
    let failed = if view.failed > 0 { format!(" · {} failed", view.failed) } else { String::new() };
    bar.set_message(format!("{}{failed}", counted(view.chunks, "chunk")));
}

fn counts(view: &IngestView) -> String {
    let skipped = left_out::words(view);
    format!(
        "indexed {} · unchanged {} · failed {}{skipped} · {} in {}/{}",
        view.indexed,
        view.unchanged,
        view.failed,
        counted(view.chunks, "chunk"),
        view.namespace,
        view.collection
    )
}

fn outcome(view: &IngestView) -> Result<(), CliError> {
    if let Some(error) = &view.error {
        return Err(CliError::new(Exit::of_failure(&error.code), error.message.clone())
            .hint("riverrun ingest --help shows what a source may be")
            .maybe_hint(error.hint.clone()));
    }
    match view.failures.first() {
        None => Ok(()),
        Some(first) => {
            let all = counted(view.documents.unwrap_or(view.failed), "document");
            let message = format!("{} of {all} failed", view.failed);
            Err(CliError::new(Exit::of_failure(&first.error.code), message)
                .hint("riverrun docs ls shows which")
                .maybe_hint(first.error.hint.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::client::testing::{answering, unknown};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: IngestArgs,
    }

    fn of(line: &str) -> Result<Option<ConsumeArgs>, CliError> {
        of_topic(&Line::try_parse_from(std::iter::once("ingest").chain(line.split(' '))).unwrap().args)
    }

    #[test]
    fn given_a_reason_when_it_is_shown_then_the_source_stands_in_it_once() {
        assert_eq!(
            of_source("/a/b.pdf", "/a/b.pdf is no readable PDF: cut off"),
            "/a/b.pdf is no readable PDF: cut off"
        );
        assert_eq!(of_source("/a/b.pdf", "no text in 3 pages"), "/a/b.pdf: no text in 3 pages");
    }

    #[tokio::test]
    async fn given_a_source_that_takes_long_to_read_when_its_ingest_is_watched_then_it_is_waited_for() {
        let (ingest_id, output) = (IngestId::new(), Output { json: true });
        let view = |status: &str| {
            let view = serde_json::json!({
                "ingest_id": ingest_id.to_string(), "status": status, "namespace": "default", "collection": "c", "source": null,
                "documents": null, "skipped": 0, "queued": 0, "chunked": 0, "embedded": 0, "indexed": 1, "unchanged": 0,
                "failed": 0, "chunks": 1, "failures": [], "created_at": "2026-01-01T00:00:00Z", "finished_at": null,
            });
            (200, view)
        };
        let place = format!("/ingest/{ingest_id}");
        let unheard = unknown("ingest_not_found");
        let client =
            answering(&[(place.as_str(), vec![unheard.clone(), unheard.clone(), view("running"), view("done")])]);
        assert_eq!(watch(&client, ingest_id, Duration::ZERO, output).await.unwrap().status, "done");
        // Whatever else is wrong is told at once.
        let client = answering(&[(place.as_str(), vec![unheard, unknown("forbidden")])]);
        let error = watch(&client, ingest_id, QUIET, output).await.unwrap_err();
        assert_eq!(error.code.as_deref(), Some("forbidden"));
    }

    #[test]
    fn given_a_topic_when_options_come_with_it_then_each_is_heard_or_refused_by_name() {
        let consume = of(
            "notes -t kafka -c c --follow --chunk-size 200 --chunk-overlap 20 --chunk-unit tokens --embed-backend hf",
        );
        let consume = consume.unwrap().unwrap();
        assert_eq!((consume.topic.as_str(), consume.idle_timeout), ("notes", None));
        let chunks = consume.chunks;
        assert_eq!((chunks.chunk_size, chunks.chunk_overlap), (Some(200), Some(20)));
        assert_eq!((chunks.chunk_unit.as_deref(), chunks.embed_backend.as_deref()), (Some("tokens"), Some("hf")));
        for option in [
            "--table t",
            "--query q",
            "--include *.md",
            "--exclude *.md",
            "--depth 1",
            "--sitemap",
            "--prune",
            "--strategy late",
        ] {
            let error = of(&format!("kafka://notes -c c {option}")).unwrap_err().to_string();
            assert!(error.contains(option.split(' ').next().unwrap()), "{option}: {error}");
            assert!(of(&format!("notes.md -c c {option}")).unwrap().is_none());
        }
    }
}
