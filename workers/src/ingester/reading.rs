//! The first half of the ingester's work: from a source to stored documents.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use riverrun_knowledge::sources::{
    self, FolderListing, FoundDocument, Gathered, Globs, Item, LeftOutFiles, LeftOutReason, Place, Scan, SourceError,
    SourceRequest,
};
use riverrun_schemas::ingest::StartIngest;
use riverrun_schemas::{BlobRef, Failure};
use tokio::sync::mpsc;

use super::measures::config;
use super::{Ingester, blocking};
use crate::runtime::WorkError;

/// Documents of one request that are read and stored at a time: at most this many files are in memory.
const READ_AHEAD: usize = 4;

/// A document whose bytes are stored, or why it isn't.
pub(super) enum Read {
    /// `has_rows` is told only where the request wants tables.
    Stored {
        source: String,
        source_type: Option<String>,
        content: BlobRef,
        has_rows: bool,
    },
    Refused {
        source: String,
        failure: Failure,
    },
    Skipped,
}

/// What the documents of a request are to each other.
pub(super) enum Origin {
    /// One document that was named itself.
    Alone,
    /// Members of a folder, archive, repository or site, whose sources begin with this.
    Members(String),
    /// Rows of one query.
    Query,
}

/// What was read of a source.
pub(super) struct Reading {
    /// What its documents are to each other.
    pub(super) origin: Origin,
    /// Documents that were stored or refused.
    pub(super) documents: Vec<Read>,
    /// What was left out, and why.
    pub(super) left_out: LeftOutFiles,
}

/// The inner error is what the whole request fails with.
type ReadSource = Result<Result<Reading, Failure>, WorkError>;

impl Ingester {
    /// Reads everything behind a source.
    pub(super) async fn read_source(&self, start: &StartIngest) -> ReadSource {
        if let Err(failure) = config(start.chunk_size, start.chunk_overlap, start.chunk_unit.as_deref()) {
            return Ok(Err(failure));
        }
        let globs = match Globs::new(&start.include, &start.exclude) {
            Ok(globs) => globs,
            Err(error) => return Ok(Err(error.failure())),
        };
        if let Some(content) = &start.content {
            return self.read_uploaded_archive(start, content, globs).await;
        }
        match sources::place(&start.source, start.source_type.as_deref()) {
            Ok(Place::Path) => self.read_path(start, globs).await,
            Ok(place) => {
                let origin = origin(&place, start);
                let (request, access, limits) = (request(start), self.access.clone(), self.config.limits);
                let gather = |out| async move { sources::gather(request, &access, limits, out).await };
                self.store_all(start, origin, gather).await
            }
            Err(error) => Ok(Err(error.failure())),
        }
    }

    async fn read_path(&self, start: &StartIngest, globs: Globs) -> ReadSource {
        let (source, forced, limits) = (start.source.clone(), start.source_type.clone(), self.config.limits);
        let of_path = globs.clone();
        let scan = blocking(move || sources::scan(&source, forced.as_deref(), &of_path, limits)).await?;
        Ok(match scan {
            Ok(Scan::File(found)) => match self.read(found, start).await? {
                Read::Refused { failure, .. } => Err(failure),
                read @ (Read::Stored { .. } | Read::Skipped) => {
                    Ok(Reading { origin: Origin::Alone, documents: vec![read], left_out: LeftOutFiles::default() })
                }
            },
            Ok(Scan::Folder(listing)) => self.read_folder(listing, start).await?,
            Ok(Scan::Archive(found)) => {
                let file = found.clone();
                match blocking(move || sources::read_archive(&file, limits)).await? {
                    Ok(bytes) => self.read_archive(start, found.source, bytes, globs).await?,
                    Err(error) => Err(error.failure()),
                }
            }
            Err(error) => Err(error.failure()),
        })
    }

    async fn read_folder(&self, mut listing: FolderListing, start: &StartIngest) -> ReadSource {
        let found = std::mem::take(&mut listing.documents);
        let reads: Vec<Read> = stream::iter(found)
            .map(|found| self.read_in_folder(found, start))
            .buffered(READ_AHEAD)
            .try_collect()
            .await?;
        let (skipped, mut documents): (Vec<Read>, Vec<Read>) =
            reads.into_iter().partition(|read| matches!(read, Read::Skipped));
        let refused = std::mem::take(&mut listing.refused).into_iter();
        documents
            .extend(refused.map(|(found, error)| Read::Refused { source: found.source, failure: error.failure() }));
        listing.left_out.add(LeftOutReason::NotText, None, skipped.len());
        if documents.is_empty() {
            return Ok(Err(listing.nothing_readable(&start.source).failure()));
        }
        Ok(Ok(Reading { origin: Origin::Members(listing.root), documents, left_out: listing.left_out }))
    }

    /// Among others, a file without an extension that turns out to be no text is left out, not refused.
    async fn read_in_folder(&self, found: FoundDocument, start: &StartIngest) -> Result<Read, WorkError> {
        match self.read(found, start).await? {
            Read::Refused { source, failure } if failure.code == "unsupported_type" => {
                tracing::debug!(source, "file without an extension is no text and is left out");
                Ok(Read::Skipped)
            }
            read @ (Read::Stored { .. } | Read::Refused { .. } | Read::Skipped) => Ok(read),
        }
    }

    async fn read(&self, found: FoundDocument, start: &StartIngest) -> Result<Read, WorkError> {
        let (file, forced, limits) = (found.clone(), start.source_type.clone(), self.config.limits);
        match blocking(move || sources::read_document(&file, forced.as_deref(), limits)).await? {
            Ok((bytes, kind)) => {
                let source_type = start.source_type.clone();
                self.stored(Gathered { source: found.source, bytes, kind }, source_type, start).await
            }
            Err(error) => Ok(Read::Refused { source: found.source, failure: error.failure() }),
        }
    }

    /// An archive that was handed in with the request: its bytes are in the blob store.
    async fn read_uploaded_archive(&self, start: &StartIngest, content: &BlobRef, globs: Globs) -> ReadSource {
        match self.blobs.get(content).await {
            Ok(bytes) => self.read_archive(start, start.source.clone(), bytes.to_vec(), globs).await,
            Err(error) if error.retryable() => Err(error.into()),
            Err(error) => Ok(Err(Failure::new(error.code(), error.to_string()))),
        }
    }

    async fn read_archive(&self, start: &StartIngest, source: String, bytes: Vec<u8>, globs: Globs) -> ReadSource {
        let limits = self.config.limits;
        let origin = Origin::Members(source.clone());
        self.store_all(start, origin, |out| sources::gather_archive(source, bytes, globs, limits, out)).await
    }

    /// Stores what a gatherer finds while it goes on looking.
    async fn store_all<G>(
        &self,
        start: &StartIngest,
        origin: Origin,
        gather: impl FnOnce(mpsc::Sender<Item>) -> G,
    ) -> ReadSource
    where
        G: Future<Output = Result<(), SourceError>>,
    {
        let (sender, mut found) = mpsc::channel(READ_AHEAD);
        let storing = async move {
            let mut reading = Reading { origin, documents: Vec::new(), left_out: LeftOutFiles::default() };
            while let Some(item) = found.recv().await {
                match item {
                    Item::Document(document) => {
                        let source_type = Some(document.kind.name().to_owned());
                        reading.documents.push(self.stored(document, source_type, start).await?);
                    }
                    Item::Refused { source, error } => {
                        reading.documents.push(Read::Refused { source, failure: error.failure() });
                    }
                    Item::Skipped { reason, extension } => reading.left_out.add(reason, extension.as_deref(), 1),
                }
            }
            Ok::<_, WorkError>(reading)
        };
        // Both at once; an error of storing drops the receiver and with it the gatherer's reason to go on.
        let (gathered, stored) = tokio::join!(gather(sender), storing);
        let reading = stored?;
        Ok(match gathered {
            Err(error) => Err(error.failure()),
            Ok(()) if reading.documents.is_empty() => {
                let listing = FolderListing { left_out: reading.left_out, ..FolderListing::default() };
                Err(listing.nothing_readable(&sources::shown(&start.source)).failure())
            }
            Ok(()) => Ok(reading),
        })
    }

    async fn stored(
        &self,
        document: Gathered,
        source_type: Option<String>,
        start: &StartIngest,
    ) -> Result<Read, WorkError> {
        let Gathered { source, bytes, kind } = document;
        let bytes = Bytes::from(bytes);
        let content = self.blobs.put_bytes(bytes.clone(), kind.media_type()).await?;
        let has_rows = match start.table {
            Some(_) => {
                let name = source.clone();
                blocking(move || kind.has_rows(&name, &bytes)).await?
            }
            None => false,
        };
        Ok(Read::Stored { source, source_type, content, has_rows })
    }
}

/// What documents of a place that is no path are to each other.
fn origin(place: &Place, start: &StartIngest) -> Origin {
    match place {
        Place::Database(_) | Place::Documents(_) => Origin::Query,
        Place::Web(_) if start.depth.unwrap_or(0) == 0 && !start.sitemap => Origin::Alone,
        Place::Web(_) | Place::Git(_) | Place::Path | Place::Topic(_) => Origin::Members(start.source.clone()),
    }
}

fn request(start: &StartIngest) -> SourceRequest {
    SourceRequest {
        source: start.source.clone(),
        forced: start.source_type.clone(),
        query: start.query.clone(),
        include: start.include.clone(),
        exclude: start.exclude.clone(),
        depth: start.depth.and_then(|depth| u32::try_from(depth).ok()).unwrap_or(0),
        sitemap: start.sitemap,
    }
}
