//! Places that hold many documents, or that are no file: archives, web sites, repositories, databases.

use tokio::sync::mpsc;

use super::globs::Globs;
use super::left_out::LeftOutReason;
use super::place::{Place, place};
use super::{Fault, Limits, Source, SourceError, database, document_store, repository, web_site, zip_archive};
use crate::web::GuardedClient;

/// What is to be read.
#[derive(Debug, Clone, Default)]
pub struct SourceRequest {
    /// A path, an address or a topic, without a password: `${RIVERRUN_SOURCE_…}` stands for one.
    pub source: String,
    /// The forced type.
    pub forced: Option<String>,
    /// SQL of a database, or a filter as JSON.
    pub query: Option<String>,
    /// Globs of what to read.
    pub include: Vec<String>,
    /// Globs of what to leave out.
    pub exclude: Vec<String>,
    /// How many links away from the first page of a web site is read.
    pub depth: u32,
    /// Whether the address is a sitemap, whose pages are read.
    pub sitemap: bool,
}

/// How places are reached.
#[derive(Debug, Clone)]
pub struct Access {
    /// For everything by HTTP.
    pub web: GuardedClient,
    /// What `${RIVERRUN_SOURCE_…}` in an address stands for.
    pub secrets: super::place::SourceSecrets,
}

/// A document that was found.
#[derive(Debug)]
pub struct Gathered {
    /// Where it came from: its id is derived from it.
    pub source: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What takes its text out.
    pub kind: &'static dyn Source,
}

/// What is found in a place, one after the other.
#[derive(Debug)]
pub enum Item {
    /// A document.
    Document(Gathered),
    /// Something that looks wanted and can't be read.
    Refused {
        /// Where it came from.
        source: String,
        /// Why.
        error: SourceError,
    },
    /// Something that is left out on purpose.
    Skipped {
        /// Why.
        reason: LeftOutReason,
        /// The extension that nobody reads.
        extension: Option<String>,
    },
}

impl Item {
    /// Something that is left out for another reason than its extension.
    pub(super) fn skipped(reason: LeftOutReason) -> Self {
        Self::Skipped { reason, extension: None }
    }
}

/// Reads everything in a place that is not a file or folder of this machine. Sends what it finds, waits while the receiver is
/// busy, and ends when it is gone. An error is one of the whole place.
pub async fn gather(
    request: SourceRequest,
    access: &Access,
    limits: Limits,
    out: mpsc::Sender<Item>,
) -> Result<(), SourceError> {
    let globs = Globs::new(&request.include, &request.exclude)?;
    match place(&request.source, request.forced.as_deref())? {
        Place::Web(url) => web_site::read_site(&url, &request, &globs, &access.web, limits, &out).await,
        Place::Git(address) => repository::read_repository(&address, &globs, &access.web, limits, &out).await,
        Place::Database(address) => {
            let url = access.secrets.fill(&request.source)?;
            database::read_rows(&address, &url, request.query.as_deref(), &out).await
        }
        Place::Documents(address) => {
            let url = access.secrets.fill(&request.source)?;
            document_store::read_documents(&address, &url, request.query.as_deref(), &out).await
        }
        Place::Topic(topic) => Err(SourceError::fault(
            &topic,
            Fault::BadOption,
            "is a topic, which a consumer reads and no single request",
            format!("riverrun stream consume --topic {topic} --collection NAME"),
        )),
        Place::Path => Err(SourceError::NotFound { path: request.source }),
    }
}

/// Reads the members of an archive that is in memory.
pub async fn gather_archive(
    source: String,
    bytes: Vec<u8>,
    globs: Globs,
    limits: Limits,
    out: mpsc::Sender<Item>,
) -> Result<(), SourceError> {
    let name = source.clone();
    let read = tokio::task::spawn_blocking(move || {
        zip_archive::read_members(&source, &bytes, &globs, limits, |item| out.blocking_send(item).is_ok())
    });
    read.await.unwrap_or_else(|_| {
        Err(SourceError::fault(&name, Fault::ExtractionFailed, "made the reader of archives fail", "pack it again"))
    })
}
