//! Comma- and tab-separated values (RFC 4180 and what people write instead): delimiter and encoding are told by the content.

use std::borrow::Cow;

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

    fn has_rows(&self, _name: &str, _bytes: &[u8]) -> bool {
        true
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

    fn has_rows(&self, _name: &str, _bytes: &[u8]) -> bool {
        true
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
    let mut text = decode::decode_any(name, bytes, None)?;
    let (said, start) = said_delimiter(&text).map_or((None, 0), |(said, start)| (Some(said), start));
    let delimiter = said.or(delimiter).unwrap_or_else(|| sniff(&text[start..]));
    let mended = match legal_quotes(&text[start..], delimiter) {
        Cow::Owned(mended) => Some(mended),
        Cow::Borrowed(_) => None,
    };
    let text = mended.unwrap_or_else(|| text.split_off(start));
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
        let beginning = legal_quotes(&text[..end], delimiter);
        let records = reader(beginning.as_bytes(), delimiter).into_records();
        let widths: Vec<usize> = records.take(SNIFF_RECORDS).map_while(Result::ok).map(|record| record.len()).collect();
        let first = widths.first().copied().unwrap_or(1);
        let alike = widths.iter().filter(|width| **width == first).count();
        if first < 2 { (0, 0) } else { (alike * 100 / widths.len(), first) }
    };
    let best = DELIMITERS.into_iter().rev().max_by_key(|delimiter| score(*delimiter)).unwrap_or(b',');
    if score(best) == (0, 0) { b',' } else { best }
}

/// The delimiter that a first line `sep=;` names, as spreadsheets write it for each other, and where the line behind it begins.
fn said_delimiter(text: &str) -> Option<(u8, usize)> {
    let line = text.split(['\r', '\n']).next()?;
    let said = line.trim_matches('"');
    let (name, delimiter) = said.split_at_checked(4)?;
    let &[delimiter] = delimiter.as_bytes() else { return None };
    if !name.eq_ignore_ascii_case("sep=") || delimiter.is_ascii_alphanumeric() || delimiter == b'"' {
        return None;
    }
    let ends = text[line.len()..].bytes().take(2);
    Some((delimiter, line.len() + if ends.eq(*b"\r\n") { 2 } else { 1.min(text.len() - line.len()) }))
}

/// The text with every cell as RFC 4180 has it. A cell that begins with a quotation mark and is no quoted cell would take what
/// stands behind it, rows as well, into itself up to the next mark: here it is what it is, marks included. Where it is one with
/// marks as `\"`, that is what is meant.
///
/// Each cell is looked at a bounded number of times: a mark that ends a search either is no beginning of a cell, or begins one
/// whose own search ends at once.
fn legal_quotes(text: &str, delimiter: u8) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut mended, mut copied, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        let quoted = bytes[at] == b'"';
        let legal = if quoted { quoted_end(bytes, at, delimiter, false) } else { Some(cell_end(bytes, at, delimiter)) };
        at = legal.unwrap_or_else(|| {
            let (end, cell) = match quoted_end(bytes, at, delimiter, true) {
                Some(end) => (end, without_escapes(&text[at..end])),
                None => {
                    let end = cell_end(bytes, at, delimiter);
                    (end, text[at..end].to_owned())
                }
            };
            mended.push_str(&text[copied..at]);
            mended.push('"');
            mended.push_str(&cell.replace('"', "\"\""));
            mended.push('"');
            copied = end;
            end
        });
        // What ended the cell.
        at += 1;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(&text[copied..]);
    Cow::Owned(mended)
}

fn ends_cell(byte: u8, delimiter: u8) -> bool {
    byte == delimiter || byte == b'\n' || byte == b'\r'
}

/// Where the cell without quotation marks that begins at `at` ends.
fn cell_end(bytes: &[u8], at: usize, delimiter: u8) -> usize {
    bytes[at..].iter().position(|byte| ends_cell(*byte, delimiter)).map_or(bytes.len(), |length| at + length)
}

/// Where the quoted cell that begins at `at` ends, blanks behind its last mark included. `None` when it is no quoted cell: its
/// marks are doubled, or with `escapes` have a backslash before them.
fn quoted_end(bytes: &[u8], at: usize, delimiter: u8, escapes: bool) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match *bytes.get(at)? {
            b'\\' if escapes => at += 2,
            b'"' if !escapes && bytes.get(at + 1) == Some(&b'"') => at += 2,
            b'"' => {
                let blanks = bytes[at + 1..].iter().take_while(|byte| **byte == b' ').count();
                let end = at + 1 + blanks;
                return bytes.get(end).is_none_or(|byte| ends_cell(*byte, delimiter)).then_some(end);
            }
            _ => at += 1,
        }
    }
}

/// What a quoted cell with backslashes before marks and backslashes means.
fn without_escapes(cell: &str) -> String {
    let inner = cell.trim_end_matches(' ');
    let inner = inner.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(inner);
    let mut meant = String::with_capacity(inner.len());
    let mut characters = inner.chars().peekable();
    while let Some(character) = characters.next() {
        match characters.peek() {
            Some(&escaped @ ('"' | '\\')) if character == '\\' => {
                meant.push(escaped);
                characters.next();
            }
            _ => meant.push(character),
        }
    }
    meant
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
    fn given_cells_that_begin_with_a_mark_and_are_not_quoted_when_read_then_no_row_is_lost() {
        for delimiter in [",", ";", "\t", "|"] {
            for end in ["\n", "\r\n", "\r"] {
                let lines = [
                    ["name", "note"],
                    ["\"open", "5"],
                    ["\"in\" front", "6"],
                    ["\"\"\"odd", "7"],
                    ["\"whole, one\"", "8"],
                    ["\"last", "9"],
                ];
                let text = lines.map(|cells| cells.join(delimiter)).join(end);
                let (columns, rows) = rows(text.as_bytes());
                assert_eq!(columns, ["name", "note"], "{text:?}");
                let expected =
                    [["\"open", "5"], ["\"in\" front", "6"], ["\"\"\"odd", "7"], ["whole, one", "8"], ["\"last", "9"]];
                assert_eq!(rows, expected, "{text:?}");
            }
        }
    }

    #[test]
    fn given_marks_with_backslashes_and_blanks_behind_cells_when_read_then_cells_are_whole() {
        let (_, rows) = rows(b"a,b\n\"she said \\\"hi, you\\\", \\\\o/\",1\n\"Doe, Jane\" ,2\n\"C:\\\",3\n");
        assert_eq!(rows, [["she said \"hi, you\", \\o/", "1"], ["Doe, Jane", "2"], ["C:\\", "3"]]);
    }

    #[test]
    fn given_a_first_line_that_says_the_delimiter_when_read_then_it_is_no_row() {
        for first in ["sep=;\r\n", "SEP=;\n", "\"sep=;\"\r", "\u{feff}sep=;\n"] {
            let (columns, rows) = rows([first, "a;b,c\n1;2,3\n"].concat().as_bytes());
            assert_eq!(columns, ["a", "b,c"], "{first:?}");
            assert_eq!(rows, [["1", "2,3"]], "{first:?}");
        }
        let (columns, rows) = rows(b"sep=^\na^b\n1^2\n");
        assert_eq!((columns, rows), (vec!["a".to_owned(), "b".to_owned()], vec![vec!["1".to_owned(), "2".to_owned()]]));
        // A column may have such a name.
        let (columns, _) = self::rows(b"sep=x,b\n1,2\n");
        assert_eq!(columns, ["sep=x", "b"]);
        assert_eq!(Csv.extract("a.csv", b"sep=;").unwrap_err().code(), "no_text");
    }

    #[test]
    fn given_every_legal_table_when_marks_are_mended_then_it_stays_as_it_is() {
        for legal in ["", "a", "\"\"", "\"\"\"\"", "a,\"b\"\"c\",\"d\ne\"\r\n\"f\"", "a\"b,c\n", "\"x\"  \n,,\n\n"] {
            assert!(matches!(legal_quotes(legal, b','), Cow::Borrowed(_)), "{legal:?}");
        }
    }

    /// With a search to the end for each mark this would take hours.
    #[test]
    fn given_nothing_but_marks_when_they_are_mended_then_it_comes_to_an_end() {
        for piece in
            ["\"", "\"a,", "\"\"\"a,", "\"\"\"\"a,", "\"\\\"a,", "\"a\n", ",\"\"\"", "\"a \" \n", "\" ", "\\\","]
        {
            let hostile = piece.repeat((1 << 20) / piece.len());
            assert!(legal_quotes(&hostile, b',').len() >= hostile.len(), "{piece:?}");
        }
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
