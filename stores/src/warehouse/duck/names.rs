//! Names of tables and columns: any text, always quoted.

use std::collections::HashSet;

use crate::warehouse::{MAX_COLUMNS, MAX_TABLE_NAME_BYTES, WarehouseError};

/// Longest name of a column in bytes; what is behind it goes.
const MAX_COLUMN_NAME_BYTES: usize = 255;
/// The engine's own views are named so, and a table must not stand before one.
const RESERVED_PREFIXES: [&str; 3] = ["duckdb_", "pragma_", "sqlite_"];

/// Quoted as SQL has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether a table may have the name.
pub fn check_table(name: &str) -> Result<(), WarehouseError> {
    let lower = name.to_lowercase();
    let reason = if name.trim().is_empty() {
        "it is empty"
    } else if name.len() > MAX_TABLE_NAME_BYTES {
        "it is longer than 255 bytes"
    } else if name.chars().any(char::is_control) {
        "it holds control characters"
    } else if RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
        "names that begin with duckdb_, pragma_ or sqlite_ are the engine's"
    } else {
        return Ok(());
    };
    Err(WarehouseError::TableName { name: name.chars().take(40).collect(), reason })
}

/// Names that are not empty and differ in more than case, in order.
pub(super) fn columns(table: &str, columns: &[String]) -> Result<Vec<String>, WarehouseError> {
    if columns.is_empty() || columns.len() > MAX_COLUMNS {
        let reason = format!("it has {} columns, which is not between 1 and {MAX_COLUMNS}", columns.len());
        return Err(WarehouseError::Rows { table: table.to_owned(), reason });
    }
    let mut taken = HashSet::new();
    Ok(columns.iter().zip(1..).map(|(column, at)| unique(&usable(column, at), &mut taken)).collect())
}

fn usable(name: &str, at: usize) -> String {
    let clean: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let clean = clean.trim();
    let end = (0..=MAX_COLUMN_NAME_BYTES.min(clean.len())).rev().find(|end| clean.is_char_boundary(*end));
    match &clean[..end.unwrap_or(0)] {
        "" => format!("column_{at}"),
        name => name.to_owned(),
    }
}

fn unique(name: &str, taken: &mut HashSet<String>) -> String {
    let mut candidate = name.to_owned();
    let mut number = 2;
    while !taken.insert(candidate.to_lowercase()) {
        candidate = format!("{name}_{number}");
        number += 1;
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_empty_repeated_or_odd_names_then_every_column_has_its_own() {
        let given = ["a", "A", "", "a_2", "  ", "x\0y", "last, first"].map(str::to_owned);
        assert_eq!(columns("t", &given).unwrap(), ["a", "A_2", "column_3", "a_2_2", "column_5", "x y", "last, first"]);
        assert!(columns("t", &[]).is_err());
    }

    #[test]
    fn given_names_that_could_mislead_then_they_are_refused_by_name() {
        for name in ["", " ", "a\0b", "duckdb_tables", "PRAGMA_x", &"x".repeat(10_000)] {
            assert_eq!(check_table(name).unwrap_err().code(), "bad_table_name", "{name}");
        }
        for name in ["select", "a\"; DROP TABLE x;--", "🦆", "Überblick 2024", "../x"] {
            check_table(name).unwrap();
        }
    }
}
