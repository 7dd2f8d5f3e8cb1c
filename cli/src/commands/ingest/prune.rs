//! `riverrun ingest SOURCE --prune`: documents of the source that it holds no more are removed.
//!
//! A source is a list of documents, and what is missing from the whole of it is gone. Of a folder this process sees the files. What an
//! archive, a repository or a site lists is known to the ingester that has just read it: each document of the list was touched by that
//! request, and one that was not is on it no more.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use riverrun_api::wire::{DeletionView, DocumentView, IngestBody, IngestView, Page, Timestamp};
use riverrun_knowledge::sources::{self, FolderListing, GitAddress, Globs, Item, Limits, MAX_PAGES, Place, Scan};
use riverrun_schemas::counted;
use riverrun_stores::read_models::DocumentStatus;
use tokio::sync::mpsc;

use super::refused;
use crate::client::{Client, encode, with_query};
use crate::error::{CliError, Exit};
use crate::output::tell;

/// Documents that are asked for together.
const PAGE: u32 = 200;
/// What parts a document's source from the archive or repository that it came from.
const OF_ARCHIVE: &str = "!/";
const OF_REPOSITORY: &str = "#";
/// Why an ingest ended that found nothing to read.
const NOTHING: &str = "no_readable_documents";

/// A source that lists documents.
#[derive(Debug)]
pub(super) enum Listing {
    /// A folder of this machine, and whether anything can be read in it.
    Folder { path: String, is_empty: bool },
    /// A zip archive of this machine.
    Archive { path: String, globs: Globs, limits: Limits },
    /// A repository, by its address as documents have it.
    Repository { address: String, globs: Globs },
    /// Pages that were found from a first one or on a sitemap. `most` of them are read.
    Site { globs: Globs, most: usize, is_sitemap: bool },
}

impl Listing {
    /// What is listed at an address; `None` where that is a single page, or no list of documents. Paths are looked at first.
    pub(super) fn of_address(place: &Place, globs: &Globs, body: &IngestBody, limits: Limits) -> Option<Self> {
        let globs = globs.clone();
        match place {
            Place::Git(GitAddress::Https(url)) => Some(Self::Repository { address: url.to_string(), globs }),
            Place::Web(_) if body.depth.is_some_and(|depth| depth > 0) || body.sitemap => {
                Some(Self::Site { globs, most: limits.max_files.min(MAX_PAGES), is_sitemap: body.sitemap })
            }
            Place::Path
            | Place::Git(GitAddress::Local(_))
            | Place::Web(_)
            | Place::Database(_)
            | Place::Documents(_)
            | Place::Topic(_) => None,
        }
    }

    /// What is listed at a path of this machine; `None` for a single file.
    pub(super) fn of_path(path: &str, scan: &Scan, globs: &Globs, limits: Limits) -> Option<Self> {
        let (path, globs) = (path.to_owned(), globs.clone());
        match scan {
            Scan::Folder(found) => Some(Self::Folder { path, is_empty: is_empty(found) }),
            Scan::Archive(_) => Some(Self::Archive { path, globs, limits }),
            Scan::File(_) => None,
        }
    }

    /// Whether an ingest of it that found nothing to read has found that there is nothing: then all that was there is gone. A server that
    /// reads another machine's folder under that path, or a site that answers with nothing, does not say so.
    async fn is_known_empty(&self, view: &IngestView) -> Result<bool, CliError> {
        if view.error.as_ref().is_none_or(|error| error.code != NOTHING) {
            return Ok(false);
        }
        match self {
            Listing::Folder { is_empty, .. } => Ok(*is_empty),
            Listing::Archive { path, globs, limits } => is_empty_archive(path, globs, *limits).await,
            Listing::Repository { .. } => Ok(true),
            Listing::Site { .. } => Ok(false),
        }
    }

    /// Why what was read may not be the whole list. Archives, repositories and folders over a limit are read not at all.
    fn missing(&self, view: &IngestView, reads_here: bool) -> Option<String> {
        let Listing::Site { most, is_sitemap, .. } = self else { return None };
        if view.failed > 0 {
            return Some(format!("{} could not be read", counted(view.failed, "page")));
        }
        // Pages that lead to one that is read anyway are left out, too. Where links were followed, under the limit of this process, the
        // numbers tell that it was only those.
        let seen = view.documents.unwrap_or(0) + view.skipped;
        let may_be_cut = *is_sitemap || !reads_here || usize::try_from(seen).is_ok_and(|seen| seen > *most);
        (view.skipped > 0 && may_be_cut)
            .then(|| format!("{} left out, perhaps for a limit", counted(view.skipped, "page")))
    }

    /// Whether a document of the collection may be one that the source listed before and does not now. Pages are told by who read them
    /// last, which is not known here.
    fn may_have_lost(&self, document: &DocumentView, request: &Request<'_>, is_there: impl Fn(&str) -> bool) -> bool {
        let source = document.source.as_str();
        match self {
            Listing::Folder { path, .. } => is_gone(path, source, is_there),
            Listing::Archive { path, globs, .. } => {
                request.passed_by(document) && is_within(path, OF_ARCHIVE, globs, source) && !is_there(source)
            }
            Listing::Repository { address, globs } => {
                request.passed_by(document) && is_within(address, OF_REPOSITORY, globs, source) && !is_there(source)
            }
            Listing::Site { globs, .. } => request.passed_by(document) && is_page(globs, source),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Listing::Folder { .. } => "its file is gone",
            Listing::Archive { .. } => "it is not in the archive any more",
            Listing::Repository { .. } => "it is not in the repository any more",
            Listing::Site { .. } => "the site leads to it no more",
        }
    }
}

/// The request that has just read the source.
struct Request<'v> {
    ingest_id: &'v str,
    source: Option<&'v str>,
    /// What happened to a document from then on was done by others, who may know better.
    began: Timestamp,
}

impl Request<'_> {
    /// Whether the request left the document alone, and nobody has touched it since.
    fn passed_by(&self, document: &DocumentView) -> bool {
        document.status != DocumentStatus::Deleting
            && document.ingest_id.to_string() != self.ingest_id
            && document.updated_at < self.began
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pruned {
    /// Documents that were removed.
    pub(super) documents: usize,
    /// The source holds nothing to read, and that is no failure: all that it held was to go.
    pub(super) is_emptied: bool,
}

/// Removes what of the source is in the collection of `view` and not in the source, and says so. Removes nothing where the source was not
/// read, or may not have been read to its end. `began` is when the ingest was asked for, in ms since the epoch; `reads_here` says
/// that the ingester is this process, under its limits.
pub(super) async fn run(
    client: &Client,
    listing: &Listing,
    view: &IngestView,
    began: i64,
    reads_here: bool,
) -> Result<Pruned, CliError> {
    let mut pruned = Pruned { documents: 0, is_emptied: listing.is_known_empty(view).await? };
    if view.error.is_some() && !pruned.is_emptied {
        return Ok(pruned);
    }
    if let Some(reason) = listing.missing(view, reads_here) {
        let what = format!("nothing was removed: {reason}, so what is gone from the site is not known");
        return Err(CliError::new(Exit::Failed, what)
            .hint("mend the pages that fail, or begin further down the site; riverrun docs rm removes a document"));
    }
    // All of them first: a page that is looked at while documents go is another page.
    for document in gone(client, listing, view, began).await? {
        let path = format!("/documents/{}", encode(&document.document_id.to_string()));
        let receipt: DeletionView =
            client.delete(&with_query(&path, &[("namespace", Some(view.namespace.clone()))])).await?;
        let rest = if receipt.is_done() { "" } else { "; its chunks are being removed" };
        tell(&format!("removed {}: {}{rest}", document.source, listing.reason()));
        pruned.documents += 1;
    }
    Ok(pruned)
}

async fn gone(
    client: &Client,
    listing: &Listing,
    view: &IngestView,
    began: i64,
) -> Result<Vec<DocumentView>, CliError> {
    let request = Request {
        ingest_id: &view.ingest_id,
        source: view.source.as_deref(),
        // By two clocks: that of this machine, and that of the ingester.
        began: view.created_at.min(Timestamp(began)),
    };
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let asked = [
            ("collection", Some(view.collection.clone())),
            ("namespace", Some(view.namespace.clone())),
            ("limit", Some(PAGE.to_string())),
            ("cursor", cursor),
        ];
        let page = match client.get::<Page<DocumentView>>(&with_query("/documents", &asked)).await {
            // Without documents there is no collection.
            Err(error) if error.code.as_deref() == Some("collection_not_found") => break,
            page => page?,
        };
        found.extend(page.items.into_iter().filter(|document| listing.may_have_lost(document, &request, is_there)));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if matches!(listing, Listing::Site { .. }) { of_the_same_site(client, found, &request).await } else { Ok(found) }
}

/// Those that were read last from where the request began: the same page may be on the list of another crawl, or have been named alone.
async fn of_the_same_site(
    client: &Client,
    found: Vec<DocumentView>,
    request: &Request<'_>,
) -> Result<Vec<DocumentView>, CliError> {
    let mut asked: HashMap<String, bool> = HashMap::new();
    let mut of_it = Vec::new();
    for document in found {
        let last = document.ingest_id.to_string();
        let is_same = match asked.get(&last) {
            Some(known) => *known,
            None => {
                let is_same = match client.get::<IngestView>(&format!("/ingest/{last}")).await {
                    Ok(view) => view.source.is_some() && view.source.as_deref() == request.source,
                    Err(error) if error.code.as_deref() == Some("ingest_not_found") => false,
                    Err(error) => return Err(error),
                };
                asked.insert(last, is_same);
                is_same
            }
        };
        if is_same {
            of_it.push(document);
        }
    }
    Ok(of_it)
}

/// Whether a folder has nothing that could be a document.
pub(super) fn is_empty(listing: &FolderListing) -> bool {
    listing.documents.is_empty() && listing.refused.is_empty()
}

/// Whether nothing in an archive of this machine can be read.
async fn is_empty_archive(path: &str, globs: &Globs, limits: Limits) -> Result<bool, CliError> {
    let (source, globs, all) = (path.to_owned(), globs.clone(), Globs::all());
    let read = tokio::task::spawn_blocking(move || -> Result<Option<(Vec<u8>, String)>, CliError> {
        match sources::scan(&source, Some(sources::ZIP), &all, limits).map_err(refused)? {
            Scan::Archive(found) => Ok(Some((sources::read_archive(&found, limits).map_err(refused)?, source))),
            Scan::File(_) | Scan::Folder(_) => Ok(None),
        }
    });
    let broke_off = |_| CliError::new(Exit::Failed, format!("reading {path} broke off")).hint("try it again");
    let Some((bytes, source)) = read.await.map_err(broke_off)?? else { return Ok(false) };
    let (out, mut items) = mpsc::channel(1);
    // Ends at the first document, and with it the gatherer.
    let look = async move {
        while let Some(item) = items.recv().await {
            if !matches!(item, Item::Skipped { .. }) {
                return false;
            }
        }
        true
    };
    let (gathered, is_empty) = tokio::join!(sources::gather_archive(source, bytes, globs, limits, out), look);
    gathered.map_err(refused)?;
    Ok(is_empty)
}

/// Whether the source is a file below the folder that is not there any more. What came from an archive or a repository is there for as
/// long as that is.
fn is_gone(folder: &str, source: &str, is_there: impl Fn(&str) -> bool) -> bool {
    let is_below = source != folder && Path::new(source).starts_with(folder);
    let mut holders = [OF_ARCHIVE, OF_REPOSITORY]
        .into_iter()
        .flat_map(|part| source.match_indices(part))
        .map(|(at, _)| &source[..at]);
    is_below && !is_there(source) && !holders.any(is_there)
}

/// Whether the source is of that archive or repository and wanted by the globs: what they leave out was not looked for.
fn is_within(holder: &str, part: &str, globs: &Globs, source: &str) -> bool {
    let within = source.strip_prefix(holder).and_then(|rest| rest.strip_prefix(part));
    within.is_some_and(|within| globs.wants(Path::new(within)))
}

/// Whether the source is an address that the globs do not leave out.
fn is_page(globs: &Globs, source: &str) -> bool {
    let Some(rest) = source.strip_prefix("https://").or_else(|| source.strip_prefix("http://")) else { return false };
    let path = rest.split(['?', '#']).next().unwrap_or_default().split_once('/').map_or("", |(_, path)| path);
    globs.wants(Path::new(path))
}

/// What can't be told is there.
fn is_there(path: &str) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests;
