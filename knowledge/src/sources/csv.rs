//! Comma- and tab-separated values (RFC 4180 and what people write instead): delimiter and encoding are told by the content.

use super::builder::Builder;
use super::table::{Cell, MAX_COLUMNS, Row, Table, column_names};
use super::{ExtractedText, Fault, Source, SourceError, decode, stem};
use crate::chunking::{self, Chunker};

/// Delimiters that are tried, the likeliest first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Bytes at the beginning that the delimiter is told by.
const SNIFF_BYTES: usize = 64 << 10;

/// Records at the beginning that the delimiter is told by.
const SNIFF_RECORDS: usize = 100;

/// Comma-separated values, or with another delimiter.
pub(super) struct Csv;

/// Tab-separated values.
pub(super) struct Tsv;

impl Source for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["csv"]
    }

    fn media_type(&self) -> &'static str {
        "text/csv"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        Ok(text(name, open(name, bytes, None)?)?.decoded_from(decode::encoding_of_any(bytes, None)))
    }

    fn tables(&self, name: &str, bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
        Ok(vec![open(name, bytes, None)?])
    }
}

impl Source for Tsv {
    fn name(&self) -> &'static str {
        "tsv"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tsv", "tab"]
    }

    fn media_type(&self) -> &'static str {
        "text/tab-separated-values"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        Ok(text(name, open(name, bytes, Some(b'\t'))?)?.decoded_from(decode::encoding_of_any(bytes, None)))
    }

    fn tables(&self, name: &str, bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
        Ok(vec![open(name, bytes, Some(b'\t'))?])
    }
}

fn text(name: &str, table: Table) -> Result<ExtractedText, SourceError> {
    let mut out = Builder::default();
    for row in table.rows {
        out.row(&table.columns, &row?);
    }
    if out.is_blank() {
        // A header alone is still something that can be found.
        out.line(&table.columns.join("; "));
    }
    out.finish(name, "its fields are blank")
}

/// The table of a document. Its first record is the header, unless it has nothing but numbers.
fn open(name: &str, bytes: &[u8], delimiter: Option<u8>) -> Result<Table, SourceError> {
    let text = decode::decode_any(name, bytes, None)?;
    let delimiter = delimiter.unwrap_or_else(|| sniff(&text));
    let mut header = Vec::new();
    let mut width = 0;
    for (index, record) in reader(std::io::Cursor::new(text.as_bytes()), delimiter).into_records().enumerate() {
        let record = record.map_err(|error| SourceError::malformed(name, "CSV", error))?;
        width = width.max(record.len());
        if index == 0 {
            header = record.iter().map(str::to_owned).collect();
        }
    }
    if width > MAX_COLUMNS {
        return Err(SourceError::fault(
            name,
            Fault::LimitExceeded,
            format!("has {width} columns; at most {MAX_COLUMNS} are read"),
            "leave columns out, or force the type with --type text",
        ));
    }
    let headless = !header.is_empty() && header.iter().all(|field| field.trim().parse::<f64>().is_ok());
    let mut names = if headless { Vec::new() } else { header };
    names.resize(width, String::new());
    let records = reader(std::io::Cursor::new(text.into_bytes()), delimiter).into_records();
    let owner = name.to_owned();
    let rows = records.skip(usize::from(!headless)).map(move |record| {
        let record = record.map_err(|error| SourceError::malformed(&owner, "CSV", error))?;
        let mut row: Row = record.iter().map(|field| Cell::of_text(field.trim())).collect();
        row.resize(width, Cell::Null);
        Ok(row)
    });
    Ok(Table { name: stem(name), columns: column_names(names), types: Vec::new(), rows: Box::new(rows) })
}

fn reader<R: std::io::Read>(bytes: R, delimiter: u8) -> csv::Reader<R> {
    csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(bytes)
}

/// The delimiter that gives the most records the same number of fields, of those that give more than one; a comma when none
/// does.
fn sniff(text: &str) -> u8 {
    let mut end = text.len().min(SNIFF_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let score = |delimiter: u8| {
        let records = reader(&text.as_bytes()[..end], delimiter).into_records();
        let widths: Vec<usize> = records.take(SNIFF_RECORDS).map_while(Result::ok).map(|record| record.len()).collect();
        let first = widths.first().copied().unwrap_or(1);
        let alike = widths.iter().filter(|width| **width == first).count();
        if first < 2 { (0, 0) } else { (alike * 100 / widths.len(), first) }
    };
    let best = DELIMITERS.into_iter().rev().max_by_key(|delimiter| score(*delimiter)).unwrap_or(b',');
    if score(best) == (0, 0) { b',' } else { best }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(bytes: &[u8]) -> (Vec<String>, Vec<Vec<String>>) {
        let table = Csv.tables("/x/data.csv", bytes).unwrap().remove(0);
        assert_eq!(table.name, "data");
        let rows = table.rows.map(|row| row.unwrap().iter().map(|cell| cell.text().into_owned()).collect()).collect();
        (table.columns, rows)
    }

    #[test]
    fn given_every_delimiter_line_end_and_encoding_when_read_then_rows_are_the_same() {
        let plain = "name,note\nAda,\"first, and \"\"last\"\"\"\nJosé,\"two\nlines\"\n";
        let semicolon = "name;note\r\nAda;\"first, and \"\"last\"\"\"\r\nJosé;\"two\nlines\"";
        let tab = "name\tnote\rAda\t\"first, and \"\"last\"\"\"\rJosé\t\"two\nlines\"\r";
        let (latin, ..) = encoding_rs::WINDOWS_1252.encode(semicolon);
        let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(tab.encode_utf16().flat_map(u16::to_le_bytes)).collect();
        let marked = ["\u{feff}\"name\",\"note\"\n", plain.split_once('\n').unwrap().1].concat();
        for bytes in [plain.as_bytes(), semicolon.as_bytes(), tab.as_bytes(), &latin, &utf16, marked.as_bytes()] {
            let (columns, rows) = rows(bytes);
            assert_eq!(columns, ["name", "note"], "{bytes:?}");
            assert_eq!(rows, [["Ada", "first, and \"last\""], ["José", "two\nlines"]], "{bytes:?}");
        }
    }

    #[test]
    fn given_uneven_rows_when_read_then_none_is_lost() {
        let (columns, rows) = rows(b"a,b\n1\n2,3,4\n\n5,6\n");
        assert_eq!(columns, ["a", "b", "column_3"]);
        assert_eq!(rows, [["1", "", ""], ["2", "3", "4"], ["5", "6", ""]]);
        let (columns, rows) = self::rows(b"1,2\n3,4\n");
        assert_eq!((columns, rows.len()), (vec!["column_1".to_owned(), "column_2".to_owned()], 2));
    }

    #[test]
    fn given_a_table_when_its_text_is_taken_then_each_row_can_be_understood_alone() {
        let text = Csv.extract("a.csv", b"city,people\nUlm,126000\nBern,\n").unwrap();
        assert_eq!(text.text, "city: Ulm; people: 126000\ncity: Bern\n");
        assert_eq!(Csv.extract("a.csv", b"city,people\n").unwrap().text, "city; people\n");
        assert_eq!(Csv.extract("a.csv", b"").unwrap_err().code(), "empty_document");
        let wide = format!("{}\n", ",".repeat(MAX_COLUMNS));
        assert_eq!(Csv.extract("a.csv", wide.as_bytes()).unwrap_err().code(), "limit_exceeded");
    }
}
