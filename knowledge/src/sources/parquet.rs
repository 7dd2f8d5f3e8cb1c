//! Parquet: rows and columns, read by the engine of the warehouse.

use std::io::Write;

use riverrun_stores::warehouse::parquet::{self, ParquetRows};

use super::builder::Builder;
use super::table::{Cell, Row, Table};
use super::{ExtractedText, Fault, Source, SourceError, stem};
use crate::chunking::{self, Chunker};

/// Most rows of one file: all of them are in memory.
const MAX_ROWS: usize = 1_000_000;

/// Apache Parquet.
pub(super) struct Parquet;

impl Source for Parquet {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["parquet", "pq"]
    }

    fn media_type(&self) -> &'static str {
        "application/vnd.apache.parquet"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn needs_folder(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let found = read(name, bytes)?;
        let mut out = Builder::default();
        for row in found.rows {
            out.row(&found.columns, &cells(row));
        }
        if out.is_blank() {
            // The columns alone are still something that can be found.
            out.line(&found.columns.join("; "));
        }
        out.finish(name, "it has no values")
    }

    fn has_rows(&self, _name: &str, _bytes: &[u8]) -> bool {
        true
    }

    fn tables(&self, name: &str, bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
        let found = read(name, bytes)?;
        let rows = found.rows.into_iter().map(cells).collect();
        Ok(vec![Table::of(&stem(name), found.columns, rows).typed(found.types)])
    }
}

/// The engine reads files, not bytes.
fn read(name: &str, bytes: &[u8]) -> Result<ParquetRows, SourceError> {
    if bytes.is_empty() {
        return Err(SourceError::Empty { name: name.to_owned(), detail: "" });
    }
    let fault = |kind, what: String, fix: &str| SourceError::fault(name, kind, what, fix);
    let failed = |error: std::io::Error| {
        fault(
            Fault::ExtractionFailed,
            format!("can't be put where it is read: {error}"),
            "check that the folder for temporary files (TMPDIR) has room",
        )
    };
    let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.flush()).map_err(failed)?;
    parquet::read(file.path(), MAX_ROWS).map_err(|reason| {
        fault(Fault::Malformed, format!("is no Parquet file that can be read: {reason}"), "write the file again")
    })
}

fn cells(row: Vec<Option<String>>) -> Row {
    row.into_iter().map(|cell| cell.map_or(Cell::Null, Cell::Text)).collect()
}
