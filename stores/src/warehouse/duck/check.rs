//! Whether a text is one reading statement. Decided on the tree that the engine's own parser makes of it
//! (`json_serialize_sql`, which knows SELECT statements and nothing else), never on the text.

use duckdb::Connection;
use serde_json::Value;

use crate::warehouse::WarehouseError;

/// Longest statement in bytes.
const MAX_SQL_BYTES: usize = 32 << 10;

/// Table functions that make rows of their arguments and look at nothing else. All others (files, secrets, settings, logs,
/// other statements) are refused.
const TABLE_FUNCTIONS: [&str; 6] = ["range", "generate_series", "unnest", "json_each", "json_tree", "repeat"];

/// Views of the engine about tables of the namespace; its others tell of the machine.
const ENGINE_VIEWS: [&str; 2] = ["duckdb_tables", "duckdb_columns"];

/// A statement that only reads.
pub(super) struct Reading {
    /// The statement as the engine writes down what it understood, without comments and semicolons; `None` for one
    /// that lists (SHOW, DESCRIBE, SUMMARIZE), which is run as it came.
    pub(super) select: Option<String>,
}

pub(super) fn reading(connection: &Connection, sql: &str) -> Result<Reading, WarehouseError> {
    if sql.len() > MAX_SQL_BYTES {
        return Err(refused(format!("it has {} bytes, which is more than {MAX_SQL_BYTES}", sql.len())));
    }
    let tree: String = connection
        .query_row("SELECT json_serialize_sql(?::VARCHAR)::VARCHAR", [sql], |row| row.get(0))
        .map_err(|error| refused(error.to_string()))?;
    let parsed: Value = serde_json::from_str(&tree).map_err(|error| refused(unreadable(&tree, &error)))?;
    if parsed["error"] == Value::Bool(true) {
        return Err(refused(match parsed["error_type"].as_str() {
            Some("not implemented") => "only reading statements are run here".to_owned(),
            _ => parsed["error_message"].as_str().unwrap_or("it can't be parsed").to_owned(),
        }));
    }
    let statement = match parsed["statements"].as_array().map(Vec::as_slice) {
        Some([statement]) => statement,
        Some([]) | None => return Err(refused("there is no statement in it".to_owned())),
        Some(several) => {
            return Err(refused(format!("{} statements came, and one is run at a time", several.len())));
        }
    };
    check(statement)?;
    let lists = statement["node"]["from_table"]["type"] == "SHOW_REF";
    let select = if lists {
        None
    } else {
        let text = connection
            .query_row("SELECT json_deserialize_sql(?::VARCHAR::JSON)", [tree.as_str()], |row| row.get(0))
            .map_err(|error| refused(error.to_string()))?;
        Some(text)
    };
    Ok(Reading { select })
}

/// Why nothing can be said of a tree that the engine made. It writes a number that is too great for it as `Infinity`, which it can't read
/// again either.
fn unreadable(tree: &str, error: &serde_json::Error) -> String {
    let said = error.to_string();
    if said.starts_with("recursion limit exceeded") {
        "it is nested too deeply".to_owned()
    } else if tree.contains(":Infinity") || tree.contains(":-Infinity") {
        "a number in it is more than a DOUBLE holds; the one without an end is written 'infinity'::DOUBLE".to_owned()
    } else {
        format!("what the engine made of it can't be read: {said}")
    }
}

/// Looks at every table that the statement names, wherever it does.
fn check(node: &Value) -> Result<(), WarehouseError> {
    match node {
        Value::Object(fields) => {
            match fields.get("type").and_then(Value::as_str) {
                Some("TABLE_FUNCTION") => check_function(&fields["function"])?,
                Some("BASE_TABLE") => check_table(fields.get("table_name").and_then(Value::as_str).unwrap_or(""))?,
                Some(_) | None => {}
            }
            fields.values().try_for_each(check)
        }
        Value::Array(items) => items.iter().try_for_each(check),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn check_function(function: &Value) -> Result<(), WarehouseError> {
    let name = function["function_name"].as_str().unwrap_or("").to_lowercase();
    if TABLE_FUNCTIONS.contains(&name.as_str()) {
        return Ok(());
    }
    Err(refused(format!("the table function {name} is not one of those that may be used")))
}

fn check_table(name: &str) -> Result<(), WarehouseError> {
    let name = name.to_lowercase();
    let of_the_engine = name.starts_with("duckdb_") || name.starts_with("pragma_");
    if of_the_engine && !ENGINE_VIEWS.contains(&name.as_str()) {
        return Err(refused(format!("{name} tells of the engine and not of the data")));
    }
    Ok(())
}

fn refused(reason: String) -> WarehouseError {
    WarehouseError::Refused { reason }
}
