//! Spreadsheets: each sheet is a table whose first row names the columns, and a section of the text.

use std::collections::BTreeMap;
use std::io::Cursor;

use calamine::{Data, DataRef, ExcelDateTime, Ods, OdsError, Reader, Xlsx, XlsxError};
use riverrun_schemas::{agreed, counted};

use super::archive::Package;
use super::builder::Builder;
use super::sheet_beside;
use super::table::{Cell, MAX_COLUMNS, Row, Table, column_names};
use super::xml::{self, Node};
use super::{ExtractedText, Fault, Source, SourceError};
use crate::chunking::{self, Chunker};

const NO_VALUES: &str = "its sheets have no values";

/// Most cells with a value in one document.
const MAX_CELLS: usize = 2_000_000;

/// Excel workbooks (ECMA-376).
pub(super) struct Spreadsheet;

/// Open Document spreadsheets.
pub(super) struct OpenSpreadsheet;

impl Source for Spreadsheet {
    fn name(&self) -> &'static str {
        "xlsx"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["xlsx", "xlsm"]
    }

    fn media_type(&self) -> &'static str {
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn hostile(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let Book { tables, unknown } = workbook(name, bytes)?;
        let mut out = text(tables)?;
        sheet_beside::read(name, "XLSX workbook", bytes)?.write(&mut out);
        if unknown > 0 {
            let (cells, have) = (counted(unknown, "cell"), agreed(unknown, "has", "have"));
            out.note(&format!(
                "{cells} with a formula {have} no value, which the program that wrote them did not work out: open the workbook in a \
                 spreadsheet program and save it again"
            ));
        }
        out.finish(name, NO_VALUES)
    }

    fn has_rows(&self, _name: &str, _bytes: &[u8]) -> bool {
        true
    }

    fn tables(&self, name: &str, bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
        workbook(name, bytes).map(|book| book.tables)
    }
}

/// What a workbook has in its cells.
struct Book {
    tables: Vec<Table>,
    /// Cells with a formula that nobody has worked out yet.
    unknown: usize,
}

fn workbook(name: &str, bytes: &[u8]) -> Result<Book, SourceError> {
    unpack(name, "XLSX workbook", bytes)?;
    let failed = |error| match error {
        XlsxError::Password => protected(name),
        // The library says so of a sheet whose part is not in the package, too.
        XlsxError::WorksheetNotFound(sheet) => SourceError::malformed(
            name,
            "XLSX workbook",
            format!("it lists the sheet {sheet:?} and does not have its part"),
        ),
        error => SourceError::malformed(name, "XLSX workbook", error),
    };
    let mut book: Xlsx<_> = Xlsx::new(Cursor::new(bytes)).map_err(failed)?;
    let (mut left, mut has_blank_cells) = (MAX_CELLS, false);
    let mut tables = Vec::new();
    for sheet in book.sheet_names() {
        let mut cells = match book.worksheet_cells_reader(&sheet) {
            Ok(cells) => cells,
            // Sheets that are charts or macros have no cells.
            Err(XlsxError::NotAWorksheet(_)) => continue,
            Err(error) => return Err(failed(error)),
        };
        // Only cells with a value are kept: a sheet may claim a billion of them and have two.
        let mut rows = Sparse::default();
        while let Some(cell) = cells.next_cell().map_err(failed)? {
            has_blank_cells |= matches!(cell.get_value(), DataRef::Empty);
            rows.put(name, cell.get_position(), of_ref(cell.get_value()), &mut left)?;
        }
        tables.extend(rows.table(name, &sheet)?);
    }
    // It is for a note only: what the cells have was read.
    let unknown = if has_blank_cells { unknown_values(name, bytes).unwrap_or(0) } else { 0 };
    match not_blank(name, tables) {
        Ok(tables) => Ok(Book { tables, unknown }),
        Err(_) if unknown > 0 => Err(SourceError::fault(
            name,
            Fault::NoText,
            "has no text: its cells have formulas, and their values were never worked out",
            "open it in a spreadsheet program, save it again, and ingest that",
        )),
        Err(error) => Err(error),
    }
}

/// How many cells have a formula and no value, as libraries write them that can't work formulas out. One whose value is the empty
/// text says so by its type.
fn unknown_values(name: &str, bytes: &[u8]) -> Result<usize, SourceError> {
    let mut package = Package::open(name, "XLSX workbook", bytes)?;
    let mut count = 0;
    for part in package.parts().iter().filter(|part| part.starts_with("xl/worksheets/") && part.ends_with(".xml")) {
        let Some(xml) = package.xml(part)? else { continue };
        let (mut is_formula, mut has_value, mut in_value) = (false, false, false);
        xml::walk(name, "XLSX workbook", &xml, |node| match node {
            Node::Open(tag) => {
                in_value = tag.name() == "v";
                match tag.name() {
                    "c" => (is_formula, has_value) = (false, tag.attribute("t").as_deref() == Some("str")),
                    "f" => is_formula = true,
                    _ => {}
                }
            }
            Node::Text(text) => has_value |= in_value && !text.trim().is_empty(),
            Node::Close("c") => count += usize::from(is_formula && !has_value),
            Node::Close(_) => in_value = false,
        })?;
    }
    Ok(count)
}

impl Source for OpenSpreadsheet {
    fn name(&self) -> &'static str {
        "ods"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["ods"]
    }

    fn media_type(&self) -> &'static str {
        "application/vnd.oasis.opendocument.spreadsheet"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn hostile(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        text(self.tables(name, bytes)?)?.finish(name, NO_VALUES)
    }

    fn has_rows(&self, _name: &str, _bytes: &[u8]) -> bool {
        true
    }

    fn tables(&self, name: &str, bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
        unpack(name, "ODS spreadsheet", bytes)?;
        let failed = |error| match error {
            OdsError::Password => protected(name),
            error => SourceError::malformed(name, "ODS spreadsheet", error),
        };
        let mut book: Ods<_> = Ods::new(Cursor::new(bytes)).map_err(failed)?;
        let mut left = MAX_CELLS;
        let mut tables = Vec::new();
        for sheet in book.sheet_names() {
            let range = book.worksheet_range(&sheet).map_err(failed)?;
            let mut rows = Sparse::default();
            for (row, column, value) in range.used_cells() {
                let at = (u32::try_from(row).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX));
                rows.put(name, at, of_data(value), &mut left)?;
            }
            tables.extend(rows.table(name, &sheet)?);
        }
        not_blank(name, tables)
    }
}

/// Unpacks everything once within limits, so that the reader of the format meets no bomb.
fn unpack(name: &str, format: &'static str, bytes: &[u8]) -> Result<(), SourceError> {
    let mut package = Package::open(name, format, bytes)?;
    let sheets = |part: &&String| part.ends_with(".xml") || part.ends_with(".rels");
    for part in package.parts().iter().filter(sheets) {
        package.part(part)?;
    }
    Ok(())
}

fn protected(name: &str) -> SourceError {
    SourceError::fault(name, Fault::Encrypted, "is protected by a password", "save it without a password")
}

fn not_blank(name: &str, tables: Vec<Table>) -> Result<Vec<Table>, SourceError> {
    if tables.is_empty() { Err(SourceError::no_text(name, NO_VALUES)) } else { Ok(tables) }
}

fn text(tables: Vec<Table>) -> Result<Builder, SourceError> {
    let mut out = Builder::default();
    for table in tables {
        out.heading(1, &table.name);
        let mut blank = true;
        for row in table.rows {
            blank = false;
            out.row(&table.columns, &row?);
        }
        if blank {
            out.line(&table.columns.join("; "));
        }
    }
    Ok(out)
}

/// The cells of a sheet that have a value, by row and column.
#[derive(Default)]
struct Sparse(BTreeMap<u32, BTreeMap<u32, Cell>>);

impl Sparse {
    fn put(&mut self, name: &str, (row, column): (u32, u32), cell: Cell, left: &mut usize) -> Result<(), SourceError> {
        if cell == Cell::Null {
            return Ok(());
        }
        *left = left.checked_sub(1).ok_or_else(|| {
            SourceError::fault(
                name,
                Fault::LimitExceeded,
                format!("has more than {MAX_CELLS} cells with a value"),
                "split it, or save its sheets as CSV files",
            )
        })?;
        self.0.entry(row).or_default().insert(column, cell);
        Ok(())
    }

    /// The table, its first row with a value as the header; columns without any value are left out.
    fn table(self, name: &str, sheet: &str) -> Result<Option<Table>, SourceError> {
        let mut columns: Vec<u32> = self.0.values().flat_map(|row| row.keys().copied()).collect();
        columns.sort_unstable();
        columns.dedup();
        if columns.len() > MAX_COLUMNS {
            return Err(SourceError::fault(
                name,
                Fault::LimitExceeded,
                format!("has {} columns in its sheet {sheet:?}; at most {MAX_COLUMNS} are read", columns.len()),
                "leave columns out, or split the sheet",
            ));
        }
        let mut rows = self
            .0
            .into_values()
            .map(|mut row| -> Row { columns.iter().map(|column| row.remove(column).unwrap_or(Cell::Null)).collect() });
        let Some(first) = rows.next() else { return Ok(None) };
        let header: Vec<String> = first.iter().map(|cell| cell.text().into_owned()).collect();
        let rows = rows.collect::<Vec<_>>();
        Ok(Some(Table {
            name: sheet.to_owned(),
            columns: column_names(header),
            types: Vec::new(),
            rows: Box::new(rows.into_iter().map(Ok)),
        }))
    }
}

fn of_data(data: &Data) -> Cell {
    match data {
        Data::Int(value) => Cell::Int(*value),
        Data::Float(value) => number(*value),
        Data::String(text) | Data::DateTimeIso(text) | Data::DurationIso(text) => Cell::of_text(text.trim()),
        Data::Bool(value) => Cell::Bool(*value),
        Data::DateTime(time) => Cell::Text(time_text(*time)),
        Data::Error(error) => Cell::Text(error.to_string()),
        Data::Empty => Cell::Null,
    }
}

fn of_ref(data: &DataRef<'_>) -> Cell {
    match data {
        DataRef::Int(value) => Cell::Int(*value),
        DataRef::Float(value) => number(*value),
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => Cell::of_text(text.trim()),
        DataRef::SharedString(text) => Cell::of_text(text.trim()),
        DataRef::Bool(value) => Cell::Bool(*value),
        DataRef::DateTime(time) => Cell::Text(time_text(*time)),
        DataRef::Error(error) => Cell::Text(error.to_string()),
        DataRef::Empty => Cell::Null,
    }
}

/// Workbooks know no whole numbers.
fn number(value: f64) -> Cell {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    if value.fract() == 0.0 && value.abs() < EXACT { Cell::Int(value as i64) } else { Cell::Float(value) }
}

/// ISO 8601: a date where it has no time, a time where it has no date.
fn time_text(time: ExcelDateTime) -> String {
    if time.is_duration() {
        let seconds = (time.as_f64() * 86_400.0).round() as i64;
        return format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    }
    let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
    let clock = format!("{hour:02}:{minute:02}:{second:02}");
    match (time.as_f64() < 1.0, time.as_f64().fract() == 0.0) {
        (true, _) => clock,
        (false, true) => format!("{year:04}-{month:02}-{day:02}"),
        (false, false) => format!("{year:04}-{month:02}-{day:02}T{clock}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(columns: usize) -> Result<Option<Table>, SourceError> {
        let (mut rows, mut left) = (Sparse::default(), MAX_CELLS);
        for column in 0..columns {
            rows.put("wide.xlsx", (0, u32::try_from(column).unwrap()), Cell::Int(1), &mut left).unwrap();
        }
        rows.table("wide.xlsx", "Sheet1")
    }

    #[test]
    fn given_a_sheet_with_too_many_columns_when_read_then_it_is_refused_and_never_cut() {
        assert_eq!(sheet(MAX_COLUMNS).unwrap().unwrap().columns.len(), MAX_COLUMNS);
        assert!(sheet(0).unwrap().is_none());
        let error = sheet(MAX_COLUMNS + 1).unwrap_err();
        assert_eq!(error.code(), "limit_exceeded");
        assert!(error.to_string().contains("2001 columns in its sheet \"Sheet1\""), "{error}");
    }
}
