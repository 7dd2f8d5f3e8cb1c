//! JSON and JSON Lines: a list of objects is a table, everything else is `path: value` lines.

use serde_json::{Map, Value};

use super::builder::Builder;
use super::table::{Cell, MAX_COLUMNS, Row, Table};
use super::{ExtractedText, Fault, Source, SourceError, decode, json_digits, stem};
use crate::chunking::{self, Chunker};

/// Most values of one document: each takes some tens of bytes of memory however short it is.
const MAX_VALUES: usize = 2_000_000;

/// JSON (RFC 8259).
pub(super) struct Json;

/// One JSON value a line.
pub(super) struct JsonLines;

impl Source for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["json"]
    }

    fn media_type(&self) -> &'static str {
        "application/json"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let value = parse(name, bytes)?;
        let mut out = Builder::default();
        match &value {
            Value::Array(items) => items.iter().for_each(|item| write_item(item, &mut out)),
            value => write_value("", value, &mut out),
        }
        Ok(out.finish(name, "it has no values")?.decoded_from(decode::encoding_of(bytes)))
    }

    fn has_rows(&self, name: &str, bytes: &[u8]) -> bool {
        !self.tables(name, bytes).is_err_and(|error| error.code() == Fault::NotTabular.code())
    }

    fn tables(&self, name: &str, bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
        match parse(name, bytes)? {
            Value::Array(items) => table(name, items),
            value @ Value::Object(_) => table(name, vec![value]),
            _ => Err(not_tabular(name)),
        }
    }
}

impl Source for JsonLines {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["jsonl", "ndjson"]
    }

    fn media_type(&self) -> &'static str {
        "application/jsonl"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let mut out = Builder::default();
        parse_lines(name, bytes)?.iter().for_each(|item| write_item(item, &mut out));
        Ok(out.finish(name, "it has no values")?.decoded_from(decode::encoding_of(bytes)))
    }

    fn has_rows(&self, name: &str, bytes: &[u8]) -> bool {
        !self.tables(name, bytes).is_err_and(|error| error.code() == Fault::NotTabular.code())
    }

    fn tables(&self, name: &str, bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
        table(name, parse_lines(name, bytes)?)
    }
}

fn read(name: &str, bytes: &[u8]) -> Result<String, SourceError> {
    let text = decode::decode(name, bytes)?;
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    if values > MAX_VALUES {
        return Err(SourceError::fault(
            name,
            Fault::LimitExceeded,
            format!("has more than {MAX_VALUES} values, the limit of one document"),
            "split it, for example into JSON Lines files",
        ));
    }
    Ok(text)
}

pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Value, SourceError> {
    let text = read(name, bytes)?;
    serde_json::from_str(&json_digits::kept(&text)).map_err(|error| SourceError::malformed(name, "JSON", error))
}

fn parse_lines(name: &str, bytes: &[u8]) -> Result<Vec<Value>, SourceError> {
    let text = read(name, bytes)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(&json_digits::kept(line))
                .map_err(|error| SourceError::malformed(name, "JSON Lines", of_line(index + 1, &error)))
        })
        .collect()
}

/// What the parser says of a line, which counts lines within that one.
fn of_line(line: usize, error: &serde_json::Error) -> String {
    let (said, column) = (error.to_string(), error.column());
    let reason = said.strip_suffix(&format!(" at line {} column {column}", error.line())).unwrap_or(&said);
    format!("{reason} at line {line} column {column}")
}

/// One member of a list, as one line where it is an object.
fn write_item(item: &Value, out: &mut Builder) {
    match item {
        Value::Object(fields) => {
            let mut flat = Vec::new();
            flatten("", item, &mut flat);
            let (columns, row): (Vec<String>, Vec<Cell>) = flat.into_iter().unzip();
            debug_assert!(columns.len() >= fields.len() || fields.is_empty());
            out.row(&columns, &row);
        }
        item => write_value("", item, out),
    }
}

/// A value as one line for each of its leaves.
fn write_value(path: &str, value: &Value, out: &mut Builder) {
    let mut flat = Vec::new();
    flatten(path, value, &mut flat);
    for (path, cell) in flat {
        if path.is_empty() {
            out.line(&cell.text());
        } else {
            out.row(&[path], &[cell]);
        }
    }
}

/// The leaves of a value with their paths. Nesting is limited by the parser.
fn flatten(path: &str, value: &Value, out: &mut Vec<(String, Cell)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value, out);
            }
        }
        Value::Array(items) if items.iter().all(|item| !item.is_array() && !item.is_object()) => {
            let words: Vec<String> = items.iter().map(|item| Cell::of_json(item).text().into_owned()).collect();
            out.push((path.to_owned(), Cell::of_text(&words.join(", "))));
        }
        Value::Array(items) => items.iter().for_each(|item| flatten(path, item, out)),
        leaf => out.push((path.to_owned(), Cell::of_json(leaf))),
    }
}

/// The rows of many JSON Lines documents as one table, which is never in memory whole: a column for every key, in the order in which
/// they come.
#[derive(Debug, Default)]
pub struct LineTable {
    columns: Map<String, Value>,
}

impl LineTable {
    /// Takes the keys of the next document.
    pub fn see(&mut self, name: &str, bytes: &[u8]) -> Result<(), SourceError> {
        add_columns(name, &parse_lines(name, bytes)?, &mut self.columns)
    }

    /// The columns of all documents that were seen.
    pub fn columns(&self) -> Vec<String> {
        self.columns.keys().cloned().collect()
    }

    /// The rows of a document, with a value for each of these columns.
    pub fn rows(&self, name: &str, bytes: &[u8]) -> Result<Vec<Row>, SourceError> {
        let cell = |item: &Value, key: &String| item.get(key).map_or(Cell::Null, Cell::of_json);
        let row = |item: &Value| -> Row { self.columns.keys().map(|key| cell(item, key)).collect() };
        Ok(parse_lines(name, bytes)?.iter().map(row).collect())
    }
}

/// Adds the keys of objects that are no columns yet.
fn add_columns(name: &str, items: &[Value], columns: &mut Map<String, Value>) -> Result<(), SourceError> {
    for item in items {
        let Value::Object(fields) = item else { return Err(not_tabular(name)) };
        for key in fields.keys() {
            columns.entry(key.clone()).or_insert(Value::Null);
        }
        if columns.len() > MAX_COLUMNS {
            return Err(SourceError::fault(
                name,
                Fault::LimitExceeded,
                format!("has more than {MAX_COLUMNS} different keys; no table has so many columns"),
                "leave --table out",
            ));
        }
    }
    Ok(())
}

/// The table of a list of objects: a column for every key, in the order in which they come.
fn table(name: &str, items: Vec<Value>) -> Result<Vec<Table>, SourceError> {
    let mut columns: Map<String, Value> = Map::new();
    add_columns(name, &items, &mut columns)?;
    if columns.is_empty() {
        return Err(not_tabular(name));
    }
    let keys: Vec<String> = columns.into_iter().map(|(key, _)| key).collect();
    let row =
        |item: &Value| -> Row { keys.iter().map(|key| item.get(key).map_or(Cell::Null, Cell::of_json)).collect() };
    let rows = items.iter().map(row).collect();
    Ok(vec![Table::of(&stem(name), keys, rows)])
}

fn not_tabular(name: &str) -> SourceError {
    SourceError::fault(name, Fault::NotTabular, "is no list of objects, so it has no rows", "leave --table out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_values_of_every_shape_when_read_then_each_leaf_has_its_path() {
        let text = |json: &str| Json.extract("a.json", json.as_bytes()).map(|text| text.text);
        assert_eq!(
            text(r#"[{"a":1,"b":{"c":"x","d":[1,2]}},{"a":null,"e":true}]"#).unwrap(),
            "a: 1; b.c: x; b.d: 1, 2\ne: true\n"
        );
        assert_eq!(text(r#"{"a":{"b":"x"},"l":[{"n":1},{"n":2}]}"#).unwrap(), "a.b: x\nl.n: 1\nl.n: 2\n");
        assert_eq!(text("\"word\"").unwrap(), "word\n");
        for (json, code) in [
            ("{}", "no_text"),
            ("[]", "no_text"),
            ("null", "no_text"),
            ("{\"a\"", "malformed_document"),
            ("", "empty_document"),
            (&"[".repeat(10_000), "malformed_document"),
        ] {
            assert_eq!(text(json).unwrap_err().code(), code, "{json:.20}");
        }
        let many = format!("[{}1]", "1,".repeat(MAX_VALUES));
        assert_eq!(text(&many).unwrap_err().code(), "limit_exceeded");
    }

    #[test]
    fn given_numbers_of_any_length_when_read_then_text_and_rows_have_them_as_they_are_written() {
        let json = b"[{\"id\":123456789012345678901234567890,\"sum\":1234567890123456.78,\"far\":[1e400,2.50]}]";
        let text = Json.extract("a.json", json).unwrap().text;
        assert_eq!(text, "id: 123456789012345678901234567890; sum: 1234567890123456.78; far: 1e400, 2.5\n");
        let line = b"{\"id\":18446744073709551616,\"rate\":0.1234567890123456789}\n";
        let row = JsonLines.tables("a.jsonl", line).unwrap().remove(0).rows.next().unwrap().unwrap();
        assert_eq!(row, ["18446744073709551616", "0.1234567890123456789"].map(|text| Cell::Text(text.into())));
        assert_eq!(Json.extract("a.json", b"{18446744073709551616:1}").unwrap_err().code(), "malformed_document");
    }

    #[test]
    fn given_lines_when_read_then_they_are_a_table_and_a_bad_one_is_named() {
        let lines = b"\xef\xbb\xbf{\"a\":1}\r\n\r\n{\"b\":2.5,\"a\":\"x\"}\n";
        let table = JsonLines.tables("/d/t.jsonl", lines).unwrap().remove(0);
        assert_eq!((table.name.as_str(), table.columns), ("t", vec!["a".to_owned(), "b".to_owned()]));
        let rows: Vec<Row> = table.rows.map(Result::unwrap).collect();
        assert_eq!(rows, [vec![Cell::Int(1), Cell::Null], vec![Cell::Text("x".into()), Cell::Float(2.5)]]);
        let (mut parts, more) = (LineTable::default(), b"{\"c\":null,\"b\":true}\n");
        for bytes in [&lines[..], &more[..]] {
            parts.see("/d/t", bytes).unwrap();
        }
        assert_eq!(parts.columns(), ["a", "b", "c"]);
        assert_eq!(parts.rows("/d/t", more).unwrap(), [vec![Cell::Null, Cell::Bool(true), Cell::Null]]);
        assert_eq!(parts.rows("/d/t", lines).unwrap().len(), 2);
        assert_eq!(parts.see("/d/t", b"7\n").unwrap_err().code(), "not_tabular");
        let bad = JsonLines.extract("t.jsonl", b"{\"a\":1}\n{oops\n").unwrap_err();
        assert!(bad.to_string().contains("at line 2 column "), "{bad}");
        assert_eq!(bad.to_string().matches("line ").count(), 1, "the parser's own number of the line is none: {bad}");
        assert_eq!(Json.tables("a.json", b"[1,2]").unwrap_err().code(), "not_tabular");
    }
}
