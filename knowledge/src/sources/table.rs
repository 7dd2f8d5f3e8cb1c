//! Rows of tabular documents as data: what a warehouse loads.

use super::SourceError;

/// Most columns of a table; a document with more is refused.
pub const MAX_COLUMNS: usize = 2_000;

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing: an empty field, a missing key, `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Everything else. Dates are ISO 8601; nested JSON is its text.
    Text(String),
}

/// The values of a row, as many as the table has columns.
pub type Row = Vec<Cell>;

/// Rows in the order of the document. An error ends them.
pub type Rows = Box<dyn Iterator<Item = Result<Row, SourceError>> + Send>;

/// A table of a document: one for a CSV or JSON file, one for each sheet of a workbook.
pub struct Table {
    /// The sheet, or the document's name without folder and extension.
    pub name: String,
    /// Column names: not empty and without duplicates, at most [`MAX_COLUMNS`].
    pub columns: Vec<String>,
    /// The SQL types of the columns, where the format has types; else none, and they follow from the values.
    pub types: Vec<String>,
    /// The rows behind the header.
    pub rows: Rows,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name).field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Table {
    /// A table whose rows are in memory.
    pub(super) fn of(name: &str, header: Vec<String>, rows: Vec<Row>) -> Self {
        Self {
            name: name.to_owned(),
            columns: column_names(header),
            types: Vec::new(),
            rows: Box::new(rows.into_iter().map(Ok)),
        }
    }

    /// The same, with columns of these types.
    pub(super) fn typed(self, types: Vec<String>) -> Self {
        Self { types, ..self }
    }
}

impl Cell {
    /// How the value reads; nothing for [`Cell::Null`].
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Null => "".into(),
            Self::Bool(value) => value.to_string().into(),
            Self::Int(value) => value.to_string().into(),
            Self::Float(value) => value.to_string().into(),
            Self::Text(value) => value.as_str().into(),
        }
    }

    pub(super) fn of_text(text: &str) -> Self {
        if text.is_empty() { Self::Null } else { Self::Text(text.to_owned()) }
    }

    pub(super) fn of_json(value: &serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Self::Int(whole),
                // As a real it would lose its last digits.
                (None, _) if number.is_u64() => Self::Text(number.to_string()),
                (None, Some(real)) => Self::Float(real),
                (None, None) => Self::Text(number.to_string()),
            },
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(_) | Value::Object(_) => Self::Text(value.to_string()),
        }
    }
}

/// Names for the columns of a header: blanks become `column_3`, a repeated name gets a number behind it.
pub(super) fn column_names(header: Vec<String>) -> Vec<String> {
    let mut taken = std::collections::HashSet::new();
    let name = |(index, given): (usize, String)| {
        let given = given.split_whitespace().collect::<Vec<_>>().join(" ");
        let base = if given.is_empty() { format!("column_{}", index + 1) } else { given };
        let mut name = base.clone();
        let mut number = 2;
        while !taken.insert(name.to_lowercase()) {
            name = format!("{base}_{number}");
            number += 1;
        }
        name
    };
    header.into_iter().enumerate().map(name).collect()
}

/// A row as a line that can be found and understood alone: `name: Ada; born: 1815`. Nothing for a row without values.
pub(super) fn row_line(columns: &[String], row: &[Cell]) -> String {
    let mut line = String::new();
    for (column, cell) in columns.iter().zip(row) {
        let value = cell.text();
        if value.trim().is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push_str("; ");
        }
        line.push_str(column);
        line.push_str(": ");
        let mut words = value.split_whitespace();
        line.extend(words.next());
        words.for_each(|word| line.extend([" ", word]));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_blank_and_repeated_headers_when_named_then_every_column_has_its_own_name() {
        let names = column_names(["a", "", " A ", "a_2", "b\n c", ""].map(str::to_owned).to_vec());
        assert_eq!(names, ["a", "column_2", "A_2", "a_2_2", "b c", "column_6"]);
    }

    #[test]
    fn given_numbers_of_json_when_they_are_cells_then_none_loses_a_digit() {
        for (json, text) in [
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775809", "9223372036854775809"),
            ("18446744073709551615", "18446744073709551615"),
            ("-1", "-1"),
            ("0.5", "0.5"),
        ] {
            assert_eq!(Cell::of_json(&serde_json::from_str(json).unwrap()).text(), text);
        }
    }

    #[test]
    fn given_a_row_when_it_is_a_line_then_values_have_their_columns_and_blanks_are_left_out() {
        let columns = ["name", "born", "note"].map(str::to_owned);
        let row = [Cell::Text("Ada\n Lovelace".into()), Cell::Int(1815), Cell::Null];
        assert_eq!(row_line(&columns, &row), "name: Ada Lovelace; born: 1815");
        assert_eq!(row_line(&columns, &[Cell::Null, Cell::Text("  ".into()), Cell::Null]), "");
    }
}
