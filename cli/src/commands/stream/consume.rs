//! `riverrun stream consume`, and `riverrun ingest --type kafka`.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;
use riverrun_api::access::scope::Scope;
use riverrun_api::stack;
use riverrun_api::submit;
use riverrun_api::wire::{CollectionStanding, IngestBody, IngestView};
use riverrun_log::BlobStore;
use riverrun_schemas::{Collection, IngestId, Topic, agreed, counted};
use riverrun_workers::stream::{self, Gate, StreamConfig, StreamTarget};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::super::until_signal;
use super::produce::failed;
use crate::args::ChunkArgs;
use crate::client::{Client, encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::{self, Connection};
use crate::output::{Output, tell};
use crate::progress;
use crate::settings::Settings;
use crate::signals::Signals;

const POLL: Duration = Duration::from_millis(100);
/// How often the collection is asked for while whoever knows it is away, and how long is waited in between.
const ASKS: usize = 30;
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long the next of the documents that were handed in may take to be found.
const PATIENCE: Duration = Duration::from_secs(600);
/// Idle time-out of a topic that is read once.
pub const USUAL_IDLE_SECONDS: f64 = 5.0;

/// Options of `stream consume`.
#[derive(Debug, Args)]
pub struct ConsumeArgs {
    /// The collection; made when it is not there
    #[arg(short, long)]
    pub collection: String,
    /// Its namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The topic
    #[arg(long, default_value = Topic::Documents.name())]
    pub topic: String,
    /// End when no document came for so many seconds; goes on until it is stopped when left out
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<f64>,
    /// Begin with the first record of the topic, wherever the collection was the last time; documents that are the same stay
    #[arg(long)]
    pub from_beginning: bool,
    /// Make the topic when it is not there, and wait for what comes
    #[arg(long)]
    pub create_topic: bool,
    /// Force the type of every document
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub source_type: Option<String>,
    /// How they are split and embedded.
    #[command(flatten)]
    pub chunks: ChunkArgs,
    /// A JSON object to keep with each document
    #[arg(long, value_name = "JSON")]
    pub metadata: Option<String>,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Summary {
    topic: String,
    namespace: String,
    collection: String,
    records: usize,
    documents: usize,
    indexed: i64,
    unchanged: i64,
    failed: i64,
    dead_letters: usize,
    /// The topic was read from its beginning although the collection had been further on.
    from_beginning: bool,
}

/// Takes documents until nothing came for a while or until a signal; then waits for what was taken.
pub async fn run(args: ConsumeArgs, settings: &Settings, name: &str, output: Output) -> Result<(), CliError> {
    let idle = idle(args.idle_timeout)?;
    let target = target(&args, settings)?;
    let topic = args.topic.clone();
    let (create_topic, from_beginning) = (args.create_topic, args.from_beginning);
    if !stream::is_open_topic(&topic) {
        return Err(failed(&stream::StreamError::WrongTopic(topic)));
    }
    let connection = until_signal(Connection::full(settings, name)).await?;
    let result = async {
        let stop = CancellationToken::new();
        let log = connection.log()?.clone();
        // The broker asks nobody who writes to it.
        let named = args.namespace.as_ref().map(|_| target.collection.namespace.clone());
        let namespace = until_signal(connection.permitted(Scope::Ingest, named.as_ref())).await?;
        let place = Collection::new(namespace, target.collection.name.clone());
        let target = StreamTarget { collection: place.clone(), ..target };
        let config = StreamConfig { log, topic: topic.clone(), target, idle, create_topic, from_beginning };
        let consumed = consume(&connection, settings, config, &stop, output).await?;
        let waited = until_signal(summary(&connection, topic, &place, consumed)).await;
        let left = "what was taken stays on the log: riverrun docs ls shows how far it is";
        let is_left = |error: &CliError| error.exit == Exit::Interrupted;
        let summary = waited.map_err(|error| if is_left(&error) { error.hint(left) } else { error })?;
        output.show(&summary, people)?;
        if summary.failed > 0 || summary.dead_letters > 0 {
            return Err(CliError::new(
                Exit::Failed,
                format!(
                    "{} failed, {} {}",
                    counted(summary.failed, "document"),
                    counted(summary.dead_letters, "record"),
                    agreed(summary.dead_letters, "is a dead letter", "are dead letters")
                ),
            )
            .hint("riverrun docs ls shows documents, riverrun dlq ls dead letters"));
        }
        Ok(())
    }
    .await;
    // Stopping takes its own few seconds; whoever insists is let go.
    let _ = until_signal(async {
        connection.close().await;
        Ok(())
    })
    .await;
    result
}

async fn consume(
    connection: &Connection,
    settings: &Settings,
    config: StreamConfig,
    stop: &CancellationToken,
    output: Output,
) -> Result<stream::Consumed, CliError> {
    let StreamTarget { collection, embed_model, .. } = config.target.clone();
    let begins = (!output.json).then(|| {
        let topic = &config.topic;
        format!("taking documents from {topic}; Ctrl-C ends it, and the next time goes on from there")
    });
    let gate = Standing { client: &connection.client, collection, embed_model, begins: Mutex::new(begins) };
    let producer = connection.producer()?;
    let blobs: Arc<dyn BlobStore> = Arc::new(
        stack::blobs(&settings.data_dir, settings.s3.as_ref())
            .map_err(|error| CliError::new(Exit::Failed, error.to_string()).hint("riverrun diagnose"))?,
    );
    let mut signals = Signals::listen()?;
    let line = progress::line(output);
    let told = |so_far: &stream::Consumed| {
        let (taken, dead) = (counted(so_far.documents, "document"), counted(so_far.dead_letters, "dead letter"));
        line.set_message(format!("{taken} taken, {dead}"));
        line.tick();
    };
    let work = stream::consume(config, &producer, &blobs, &gate, stop.clone(), told);
    let mut work = std::pin::pin!(work);
    let done = tokio::select! {
        done = &mut work => done,
        () = signals.next() => {
            // What is in work is finished and committed first; a second signal insists.
            stop.cancel();
            tokio::select! {
                done = &mut work => done,
                () = signals.next() => {
                    line.finish_and_clear();
                    return Err(CliError::interrupted().hint("the same command again goes on from there"));
                }
            }
        }
    };
    line.finish_and_clear();
    done
}

/// What stands under the collection's name: nothing of the topic is taken for vectors of another model, and a collection that was removed
/// is filled from the beginning.
struct Standing<'c> {
    client: &'c Client,
    collection: Collection,
    embed_model: String,
    /// What people are told when the topic was found and the collection takes its documents, once.
    begins: Mutex<Option<String>>,
}

impl Gate for Standing<'_> {
    type Refusal = CliError;

    async fn ask(&self) -> Result<Option<IngestId>, CliError> {
        let Collection { namespace, name } = &self.collection;
        let path = format!("/collections/{}/standing", encode(name.as_str()));
        let path = with_query(&path, &[("namespace", Some(namespace.to_string()))]);
        let mut asked = 0;
        loop {
            asked += 1;
            match self.client.get::<CollectionStanding>(&path).await {
                Ok(CollectionStanding { collection, removed_by }) => {
                    submit::same_embed_model(collection.as_ref(), &self.embed_model)?;
                    if let Some(begins) = self.begins.lock().take() {
                        tell(&begins);
                    }
                    return Ok(removed_by);
                }
                // A server that is started again goes on, and so does who reads for it.
                Err(error) if error.exit == Exit::ServiceDown && asked < ASKS => tokio::time::sleep(ASK_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }
}

fn idle(seconds: Option<f64>) -> Result<Option<Duration>, CliError> {
    const LONGEST: f64 = 1e9;
    seconds
        .map(|seconds| {
            if (0.0..=LONGEST).contains(&seconds) {
                Ok(Duration::from_secs_f64(seconds))
            } else {
                Err(CliError::new(Exit::Usage, format!("--idle-timeout is {seconds}, which is no number of seconds"))
                    .hint("--idle-timeout 10"))
            }
        })
        .transpose()
}

fn target(args: &ConsumeArgs, settings: &Settings) -> Result<StreamTarget, CliError> {
    let defaults = host::core(settings)?.ingest_defaults();
    let metadata = super::super::metadata(args.metadata.as_deref())?;
    let body = IngestBody {
        source: args.topic.clone(),
        collection: args.collection.clone(),
        namespace: args.namespace.clone(),
        source_type: args.source_type.clone(),
        embed_backend: args.chunks.embed_backend.clone(),
        chunk_size: args.chunks.chunk_size,
        chunk_overlap: args.chunks.chunk_overlap,
        chunk_unit: args.chunks.chunk_unit.clone(),
        metadata: metadata.clone(),
        ..IngestBody::default()
    };
    let checked = submit::ingest_target(&body, &defaults)?;
    let (chunk_size, chunk_overlap, chunk_unit) = checked.chunk_sizes();
    Ok(StreamTarget {
        collection: Collection::new(checked.namespace, checked.collection),
        embed_model: checked.embed_model,
        chunk_size,
        chunk_overlap,
        chunk_unit,
        source_type: checked.source_type,
        metadata,
    })
}

/// Waits until every document that was handed in has ended, and counts how.
async fn summary(
    connection: &Connection,
    topic: String,
    place: &Collection,
    consumed: stream::Consumed,
) -> Result<Summary, CliError> {
    let mut summary = Summary {
        topic,
        namespace: place.namespace.to_string(),
        collection: place.name.to_string(),
        records: consumed.records,
        documents: consumed.documents,
        indexed: 0,
        unchanged: 0,
        failed: 0,
        dead_letters: consumed.dead_letters,
        from_beginning: consumed.began_again,
    };
    for ingest in consumed.ingests {
        let until = tokio::time::Instant::now() + PATIENCE;
        let Some(view) = ended(connection, ingest, until).await? else {
            let when = if connection.is_hosting() { "with the next riverrun serve" } else { "without this command" };
            tell(&format!("some documents are still on their way; they go on {when}"));
            break;
        };
        summary.indexed += view.indexed;
        summary.unchanged += view.unchanged;
        summary.failed += view.failed;
    }
    Ok(summary)
}

async fn ended(
    connection: &Connection,
    ingest: IngestId,
    until: tokio::time::Instant,
) -> Result<Option<IngestView>, CliError> {
    loop {
        match connection.client.get::<IngestView>(&format!("/ingest/{ingest}")).await {
            Ok(view) if view.ended() => return Ok(Some(view)),
            // The command is on the log; the first word of it may take a moment.
            Ok(_) => {}
            Err(error) if error.exit == Exit::Refused => {}
            Err(error) => return Err(error),
        }
        if tokio::time::Instant::now() > until {
            return Ok(None);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn people(summary: &Summary) -> String {
    let from = if summary.from_beginning { " from the beginning of the topic" } else { "" };
    format!(
        "{}{from} · indexed {} · unchanged {} · failed {} · dead letters {} in {}/{}",
        counted(summary.records, "record"),
        summary.indexed,
        summary.unchanged,
        summary.failed,
        summary.dead_letters,
        summary.namespace,
        summary.collection
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::testing::{answering, unknown};

    async fn asked(answer: (u16, Value), embed_model: &str) -> Result<Option<IngestId>, CliError> {
        let client = answering(&[("/collections/notes/standing", vec![answer])]);
        let collection = Collection::new(riverrun_schemas::Namespace::default(), "notes".parse().unwrap());
        let begins = Mutex::new(None);
        Standing { client: &client, collection, embed_model: embed_model.to_owned(), begins }.ask().await
    }

    #[tokio::test]
    async fn given_what_stands_under_a_name_when_a_topic_is_to_be_taken_then_another_embedding_model_is_refused_before_anything()
     {
        let removed_by = IngestId::new();
        let standing = |model: Option<&str>| {
            let collection = model.map(|model| {
                json!({
                    "name": "notes", "namespace": "default", "physical_name": "default__notes", "documents": 1, "chunks": 1,
                    "embedding": { "model": model, "dimensions": 384 }, "updated_at": "2026-01-01T00:00:00Z",
                })
            });
            (200, json!({ "collection": collection, "removed_by": removed_by.to_string() }))
        };
        assert_eq!(asked(standing(None), "m").await.unwrap(), Some(removed_by));
        assert_eq!(asked(standing(Some("m")), "m").await.unwrap(), Some(removed_by));
        let never = (200, json!({ "collection": null, "removed_by": null }));
        assert_eq!(asked(never, "m").await.unwrap(), None);
        let refused = asked(standing(Some("m")), "other").await.unwrap_err();
        assert_eq!((refused.exit, refused.code.as_deref()), (Exit::Refused, Some("embedding_model_mismatch")));
        assert!(refused.hint.unwrap().contains("RIVERRUN_DEFAULT_EMBED_MODEL=m"));
        // What is wrong otherwise is told at once.
        assert_eq!(asked(unknown("forbidden"), "m").await.unwrap_err().code.as_deref(), Some("forbidden"));
    }

    #[tokio::test]
    async fn given_a_collection_when_it_is_asked_for_then_people_hear_that_documents_are_taken_only_where_it_takes_them()
     {
        let takes = (200, json!({ "collection": null, "removed_by": null }));
        for (answer, told) in [(takes, true), (unknown("forbidden"), false)] {
            let client = answering(&[("/collections/notes/standing", vec![answer])]);
            let collection = Collection::new(riverrun_schemas::Namespace::default(), "notes".parse().unwrap());
            let begins = Mutex::new(Some("taking documents".to_owned()));
            let gate = Standing { client: &client, collection, embed_model: "m".to_owned(), begins };
            assert_eq!(gate.ask().await.is_ok(), told);
            assert_eq!(gate.begins.lock().is_none(), told);
        }
    }
}
