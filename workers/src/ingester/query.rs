//! Rows of a database's query: many documents, and one table of all of them.
//!
//! A document has as many rows as can be found well, a table has all. So it is made once the source was read, from the documents that
//! were stored, and belongs to the first of them: it goes with that one. What the query gives no rows for any more goes, too.

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use riverrun_knowledge::sources::{Fault, LeftOutFiles, LineTable, Row};
use riverrun_log::{BlobError, BlobStore, Outgoing};
use riverrun_schemas::ingest::{IngestCommand, IngestEvent, StartIngest, document_id};
use riverrun_schemas::{BlobRef, Collection, DocumentId, Envelope, Failure};
use riverrun_stores::WarehouseLoader;
use riverrun_stores::warehouse::{LoadRow, TableLoad};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::reading::{Origin, Read, Reading};
use super::tables::{failure, missing, retry, text};
use super::{Ingester, blocking, ingest_failed};
use crate::runtime::{WorkError, Worker};

/// Documents that are fetched at a time, and documents whose rows wait for the warehouse: at most twice as many are in memory.
const READ_AHEAD: usize = 4;

/// The table that a request wants of a query's rows.
struct Wanted<'r> {
    start: &'r StartIngest,
    table: &'r str,
    /// The first document of the rows: the table is its.
    first: &'r str,
    document: DocumentId,
    contents: &'r [BlobRef],
}

impl Ingester {
    /// What is said of a query that was read, or could not be. Its documents are named by `base`.
    pub(super) async fn queried(
        &self,
        start: &StartIngest,
        base: &str,
        read: Result<Reading, Failure>,
        cause: &Envelope,
    ) -> Result<Vec<Outgoing>, WorkError> {
        let failed = |failure: Failure| -> Result<Vec<Outgoing>, WorkError> {
            Ok(vec![self.outgoing(IngestEvent::from(ingest_failed(start, failure)), cause)?])
        };
        let (reading, gone) = match read {
            Ok(reading) => {
                let gone = self.removal.batches(start, base, reading.documents.len()).await?;
                (reading, gone)
            }
            Err(failure) if failure.code == Fault::NoText.code() => {
                let gone = self.removal.batches(start, base, 0).await?;
                if gone.is_empty() {
                    // There are none that could have gone: more likely a mistake than a query whose rows are.
                    return failed(failure);
                }
                (Reading { origin: Origin::Query, documents: Vec::new(), left_out: LeftOutFiles::default() }, gone)
            }
            Err(failure) => return failed(failure),
        };
        if let Err(failure) = self.query_table(start, base, &reading).await? {
            return failed(failure);
        }
        let mut out = self.scanned(start, reading, cause)?;
        for command in gone {
            out.push(self.outgoing(IngestCommand::from(command), cause)?);
        }
        Ok(out)
    }

    /// Makes the table that the request names, and removes others of these rows; the inner error is what the request fails with. The
    /// table of a query without rows goes with the first of its documents.
    async fn query_table(
        &self,
        start: &StartIngest,
        base: &str,
        reading: &Reading,
    ) -> Result<Result<(), Failure>, WorkError> {
        let contents: Vec<BlobRef> = reading.documents.iter().filter_map(content).collect();
        if contents.is_empty() {
            return Ok(Ok(()));
        }
        let first = format!("{base}/1");
        let document = document_id(&Collection::new(start.namespace.clone(), start.collection.clone()), &first);
        match (&start.table, self.tables.warehouse()) {
            (Some(table), Some(warehouse)) => {
                let wanted = Wanted { start, table, first: &first, document, contents: &contents };
                loaded(warehouse, self.blobs.as_ref(), &wanted).await
            }
            (Some(table), None) => Ok(Err(missing(table))),
            (None, _) => self.tables.forget(&start.namespace, &document).await.map(Ok),
        }
    }
}

fn content(read: &Read) -> Option<BlobRef> {
    match read {
        Read::Stored { content, .. } => Some(content.clone()),
        Read::Refused { .. } | Read::Skipped => None,
    }
}

async fn loaded(
    warehouse: &dyn WarehouseLoader,
    blobs: &dyn BlobStore,
    wanted: &Wanted<'_>,
) -> Result<Result<(), Failure>, WorkError> {
    let Wanted { start, table, first, document, contents } = wanted;
    let version = version(table, contents);
    let held = warehouse.holds(&start.namespace, table, document, &version).await;
    if !held.map_err(|error| retry(&error))? {
        let lines = match seen(blobs, first, contents).await? {
            Ok(lines) => lines,
            Err(failure) => return Ok(Err(failure)),
        };
        let (sender, parts) = mpsc::channel(READ_AHEAD);
        let load = TableLoad {
            table: (*table).to_owned(),
            document_id: *document,
            collection: start.collection.clone(),
            version: version.clone(),
            columns: lines.columns(),
            types: Vec::new(),
            rows: Box::new(Rows {
                name: (*first).to_owned(),
                lines,
                parts,
                ready: Vec::new().into_iter(),
                is_over: false,
            }),
        };
        let (fed, loaded) = tokio::join!(feed(blobs, contents, sender), warehouse.load(&start.namespace, load));
        // Without all rows the load fails, too; this is why.
        if let Err(error) = fed {
            return unfetched(error).map(Err);
        }
        match loaded {
            Ok(_) => {}
            Err(error) if error.retryable() => return Err(retry(&error)),
            Err(error) => return Ok(Err(failure(&error))),
        }
    }
    let outdated = warehouse.remove_outdated(&start.namespace, document, &version).await;
    outdated.map(|_| Ok(())).map_err(|error| retry(&error))
}

/// The version of a table: the same rows in the same documents have the same, as long as it has the same name.
fn version(table: &str, contents: &[BlobRef]) -> String {
    let mut hash = Sha256::new();
    hash.update((table.len() as u64).to_be_bytes());
    hash.update(table);
    contents.iter().for_each(|content| hash.update(&content.sha256));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The columns of all rows; the inner error is what the request fails with.
async fn seen(
    blobs: &dyn BlobStore,
    name: &str,
    contents: &[BlobRef],
) -> Result<Result<LineTable, Failure>, WorkError> {
    let mut lines = LineTable::default();
    let mut fetched = std::pin::pin!(fetched(blobs, contents));
    while let Some(bytes) = fetched.next().await {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return unfetched(error).map(Err),
        };
        let name = name.to_owned();
        let read = blocking(move || lines.see(&name, &bytes).map(|()| lines)).await?;
        lines = match read {
            Ok(lines) => lines,
            Err(error) => return Ok(Err(error.failure())),
        };
    }
    Ok(Ok(lines))
}

fn fetched(blobs: &dyn BlobStore, contents: &[BlobRef]) -> impl Stream<Item = Result<Bytes, BlobError>> {
    let contents = contents.to_vec();
    stream::iter(contents).map(move |content| async move { blobs.get(&content).await }).buffered(READ_AHEAD)
}

/// What the request fails with, or that it is to be tried again.
fn unfetched(error: BlobError) -> Result<Failure, WorkError> {
    if error.retryable() { Err(error.into()) } else { Ok(Failure::new(error.code(), error.to_string())) }
}

/// What the reader of rows is handed.
enum Part {
    /// Rows as JSON Lines.
    Lines(Bytes),
    /// There are no more. Without this the load must not succeed: whoever feeds it may be dropped while it goes on.
    End,
}

async fn feed(blobs: &dyn BlobStore, contents: &[BlobRef], out: mpsc::Sender<Part>) -> Result<(), BlobError> {
    let mut fetched = std::pin::pin!(fetched(blobs, contents));
    while let Some(bytes) = fetched.next().await {
        if out.send(Part::Lines(bytes?)).await.is_err() {
            return Ok(()); // the load has ended
        }
    }
    let _ = out.send(Part::End).await;
    Ok(())
}

/// Rows as they are fed. Blocks.
struct Rows {
    name: String,
    lines: LineTable,
    parts: mpsc::Receiver<Part>,
    ready: std::vec::IntoIter<Row>,
    is_over: bool,
}

impl Iterator for Rows {
    type Item = Result<LoadRow, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.next() {
                return Some(Ok(row.iter().map(text).collect()));
            }
            if self.is_over {
                return None;
            }
            let read = match self.parts.blocking_recv() {
                Some(Part::Lines(bytes)) => self.lines.rows(&self.name, &bytes).map_err(|error| error.to_string()),
                Some(Part::End) => {
                    self.is_over = true;
                    Ok(Vec::new())
                }
                None => Err("reading the rows of the query broke off".to_owned()),
            };
            match read {
                Ok(rows) => self.ready = rows.into_iter(),
                Err(reason) => {
                    self.is_over = true;
                    return Some(Err(reason));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_rows_that_are_no_more_fed_before_their_end_when_read_then_the_last_is_an_error() {
        let read = |parts: Vec<Part>| -> Vec<Result<LoadRow, String>> {
            let (sender, receiver) = mpsc::channel(READ_AHEAD);
            let mut lines = LineTable::default();
            for part in parts {
                if let Part::Lines(bytes) = &part {
                    lines.see("q", bytes).unwrap();
                }
                sender.try_send(part).unwrap_or_else(|_| panic!("too many parts"));
            }
            drop(sender);
            let rows =
                Rows { name: "q".to_owned(), lines, parts: receiver, ready: Vec::new().into_iter(), is_over: false };
            rows.collect()
        };
        let part = |text: &'static str| Part::Lines(Bytes::from_static(text.as_bytes()));
        let cells = |cells: &[Option<&str>]| -> Result<LoadRow, String> {
            Ok(cells.iter().map(|cell| cell.map(str::to_owned)).collect())
        };
        let whole = read(vec![part("{\"a\":1}\n"), part("{\"b\":\"x\",\"a\":null}\n"), Part::End]);
        assert_eq!(whole, [cells(&[Some("1"), None]), cells(&[None, Some("x")])]);
        let cut = read(vec![part("{\"a\":1}\n")]);
        assert_eq!(cut[0], cells(&[Some("1")]));
        assert!(cut.len() == 2 && cut[1].as_ref().is_err_and(|reason| reason.contains("broke off")), "{cut:?}");
    }

    #[test]
    fn given_other_rows_or_another_name_when_a_table_is_versioned_then_its_version_is_another() {
        let of = |table: &str, hashes: &[&str]| {
            let content =
                |hash: &&str| BlobRef { sha256: (*hash).to_owned(), size_bytes: 1, media_type: String::new() };
            version(table, &hashes.iter().map(content).collect::<Vec<_>>())
        };
        let first = of("t", &["a", "b"]);
        assert_eq!(of("t", &["a", "b"]), first);
        for other in [of("t", &["b", "a"]), of("t", &["a"]), of("u", &["a", "b"])] {
            assert_ne!(other, first);
        }
    }
}
