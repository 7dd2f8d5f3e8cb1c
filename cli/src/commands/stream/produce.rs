//! `riverrun stream produce`.

use std::io::Read;

use clap::{Args, ValueEnum};
use riverrun_log::Outgoing;
use riverrun_schemas::documents::{DocumentMessage, PublishDocument};
use riverrun_schemas::{Topic, now_ms};
use riverrun_workers::stream::{self, CONTENT_TYPE, StreamError};
use serde::Serialize;

use super::super::metadata;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::Output;

/// Who writes what the command publishes.
const COMPONENT: &str = "cli";
/// Largest text of one record, in bytes: brokers take about a mebibyte.
const MAX_TEXT: usize = 900 << 10;

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Plain bytes, with a header for the media type
    Text,
    /// A `riverrun.documents.PublishDocument`, which can carry metadata
    Avro,
}

/// Options of `stream produce`.
#[derive(Debug, Args)]
pub struct ProduceArgs {
    /// The document; `-` reads it from stdin
    pub text: String,
    /// The topic; made when it is not there
    #[arg(long, default_value = Topic::Documents.name())]
    pub topic: String,
    /// Names the document for good: the same name again replaces it
    #[arg(long)]
    pub key: Option<String>,
    /// How it is written; avro with --metadata, else text
    #[arg(long, value_enum)]
    pub format: Option<Form>,
    /// Media type of the text, such as text/markdown
    #[arg(long, value_name = "MEDIA-TYPE")]
    pub content_type: Option<String>,
    /// A JSON object to keep with the document; only with avro
    #[arg(long, value_name = "JSON")]
    pub metadata: Option<String>,
}

/// A document that was checked before anything is started for it.
pub struct Prepared {
    topic: String,
    record: Outgoing,
}

/// Where the document is now.
#[derive(Debug, Serialize)]
struct Published {
    topic: String,
    partition: i32,
    offset: i64,
}

/// Checks topic and text.
pub fn prepare(args: ProduceArgs) -> Result<Prepared, CliError> {
    if !stream::is_open_topic(&args.topic) {
        return Err(failed(&StreamError::WrongTopic(args.topic)));
    }
    let text = text(&args.text)?;
    let form = args.format.unwrap_or(if args.metadata.is_some() { Form::Avro } else { Form::Text });
    let metadata = metadata(args.metadata.as_deref())?;
    let record = match form {
        Form::Avro => avro(&args.topic, text, args.key, args.content_type, metadata)?,
        Form::Text if metadata.is_some() => {
            return Err(CliError::new(Exit::Usage, "plain text has no place for metadata").hint("--format avro"));
        }
        Form::Text => Outgoing {
            topic: args.topic.as_str().into(),
            partition: None,
            key: args.key.map(|key| key.into_bytes().into()),
            payload: Some(text.into_bytes().into()),
            headers: args.content_type.map(|kind| (CONTENT_TYPE.to_owned(), kind.into_bytes())).into_iter().collect(),
        },
    };
    Ok(Prepared { topic: args.topic, record })
}

fn text(given: &str) -> Result<String, CliError> {
    let mut text = given.to_owned();
    if given == "-" {
        text.clear();
        let limit = u64::try_from(MAX_TEXT).unwrap_or(u64::MAX) + 1;
        std::io::stdin().take(limit).read_to_string(&mut text).map_err(|error| {
            CliError::new(Exit::Refused, format!("the document can't be read from stdin: {error}"))
                .hint("a document is text in UTF-8; riverrun ingest takes files of other kinds")
        })?;
    }
    if text.trim().is_empty() {
        return Err(CliError::new(Exit::Usage, "the document is empty").hint("riverrun stream produce 'some text'"));
    }
    if text.len() > MAX_TEXT {
        return Err(CliError::new(
            Exit::Refused,
            format!("the document has more than {MAX_TEXT} bytes, which no record carries"),
        )
        .hint("riverrun ingest takes larger ones"));
    }
    Ok(text)
}

fn avro(
    topic: &str,
    text: String,
    key: Option<String>,
    content_type: Option<String>,
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
) -> Result<Outgoing, CliError> {
    let metadata_json = metadata.map(|object| serde_json::Value::Object(object).to_string());
    let document =
        PublishDocument { name: key.clone().unwrap_or_default(), text, content_type, metadata_json, at: now_ms() };
    let record = Outgoing::event(&DocumentMessage::from(document), COMPONENT, None)
        .map_err(|error| CliError::new(Exit::Refused, error.to_string()).maybe_hint(error.hint().map(str::to_owned)))?;
    // Without a name there is nothing to order by: the documents spread over the partitions.
    Ok(Outgoing { topic: topic.into(), key: key.map(|key| key.into_bytes().into()), ..record })
}

/// Publishes it.
pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    stream::ensure_topic(connection.log()?, &prepared.topic).await.map_err(|error| failed(&error))?;
    let position = connection.producer()?.send_one(prepared.record).await.map_err(|error| failed(&error.into()))?;
    let published = Published { topic: prepared.topic, partition: position.partition, offset: position.offset };
    output.show(&published, |at| format!("published on {} partition {} offset {}", at.topic, at.partition, at.offset))
}

impl From<StreamError> for CliError {
    fn from(error: StreamError) -> Self {
        failed(&error)
    }
}

/// A failure of streaming as the command line tells it.
pub(super) fn failed(error: &StreamError) -> CliError {
    match error {
        StreamError::WrongTopic(_) => CliError::new(Exit::Refused, error.to_string()).hint(format!(
            "the public topic is {}; others have letters, digits, '.', '_' and '-'",
            Topic::Documents.name()
        )),
        StreamError::NoTopic(_) => CliError::new(Exit::Refused, error.to_string()).hint(
            "riverrun topics lists those that are there; riverrun stream produce --topic makes one, and --create-topic makes it and waits for what comes",
        ),
        StreamError::Log(inner) => {
            let exit = if inner.retryable() { Exit::ServiceDown } else { Exit::Failed };
            CliError::new(exit, error.to_string()).maybe_hint(inner.hint().map(str::to_owned))
        }
        StreamError::Blobs(_) => CliError::new(Exit::Failed, error.to_string()).hint("riverrun diagnose"),
    }
}
