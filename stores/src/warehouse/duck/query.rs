//! One query, on a connection of its own.

use duckdb::Connection;

use crate::warehouse::duck::check::{self, Reading};
use crate::warehouse::duck::values::{self, Shape};
use crate::warehouse::{Column, QueryLimits, QueryResult, WarehouseError};

/// Most bytes of an answer's values, as JSON.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Checks and runs a statement. The transaction is a reading one, so that the engine, too, writes nothing.
pub(super) fn run(
    connection: &Connection,
    sql: &str,
    limits: QueryLimits,
    memory_mb: usize,
) -> Result<QueryResult, WarehouseError> {
    let failed = |error: duckdb::Error| failed(&error, limits, memory_mb);
    let reading = check::reading(connection, sql)?;
    connection.execute_batch("BEGIN TRANSACTION READ ONLY").map_err(failed)?;
    answer(connection, sql, &reading, limits.rows).map_err(|error| match failed(error) {
        WarehouseError::Query { reason } if reading.select.is_some() => {
            WarehouseError::Query { reason: without_describe(&reason) }
        }
        other => other,
    })
}

fn answer(connection: &Connection, sql: &str, reading: &Reading, limit: usize) -> duckdb::Result<QueryResult> {
    let described = match &reading.select {
        Some(select) => Some(describe(connection, select)?),
        None => None,
    };
    let limited = match &reading.select {
        // One more than wanted tells whether there are more.
        Some(select) => format!("SELECT * FROM ({select}\n) LIMIT {}", limit.saturating_add(1)),
        None => sql.to_owned(),
    };
    let mut statement = connection.prepare(&limited)?;
    let mut rows = statement.query([])?;
    let columns = match (described, rows.as_ref()) {
        (Some(columns), _) => columns,
        (None, Some(statement)) => listed(statement),
        (None, None) => Vec::new(),
    };
    let shapes: Vec<Shape> = match rows.as_ref() {
        Some(statement) => {
            (0..statement.column_count()).map(|at| Shape::of(&statement.column_logical_type(at))).collect()
        }
        None => Vec::new(),
    };
    let mut found = Vec::new();
    let (mut bytes, mut truncated) = (0, false);
    while let Some(row) = rows.next()? {
        let values: Vec<_> = shapes
            .iter()
            .enumerate()
            .map(|(at, shape)| Ok(values::json(row.get::<_, duckdb::types::Value>(at)?, shape)))
            .collect::<duckdb::Result<_>>()?;
        bytes += values.iter().map(values::weight).sum::<usize>();
        if found.len() == limit || bytes > MAX_ANSWER_BYTES {
            truncated = true;
            break;
        }
        found.push(values);
    }
    Ok(QueryResult { columns, rows: found, truncated })
}

fn describe(connection: &Connection, select: &str) -> duckdb::Result<Vec<Column>> {
    let mut statement = connection.prepare(&format!("DESCRIBE {select}"))?;
    let columns = statement.query_map([], |row| Ok(Column { name: row.get(0)?, sql_type: row.get(1)? }))?;
    columns.collect()
}

/// The columns of a statement that lists, whose types are few.
fn listed(statement: &duckdb::Statement<'_>) -> Vec<Column> {
    let names = statement.column_names().into_iter().enumerate();
    names
        .map(|(at, name)| {
            let sql_type = format!("{:?}", statement.column_logical_type(at).id()).to_uppercase();
            Column { name, sql_type }
        })
        .collect()
}

fn failed(error: &duckdb::Error, limits: QueryLimits, memory_mb: usize) -> WarehouseError {
    let reason = error.to_string();
    if reason.contains("Out of Memory Error") {
        WarehouseError::OutOfMemory { limit_mb: memory_mb }
    } else if reason.contains("INTERRUPT Error") {
        WarehouseError::TimedOut { limit: limits.time }
    } else {
        WarehouseError::Query { reason }
    }
}

/// What the engine says of a query, without the word that was put in front to ask for its columns: the caret below the line goes left with it.
fn without_describe(reason: &str) -> String {
    const FRONT: &str = "LINE 1: DESCRIBE ";
    let Some((before, rest)) = reason.split_once(FRONT) else { return reason.to_owned() };
    let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
    let below = below.strip_prefix(&" ".repeat("DESCRIBE ".len())).unwrap_or(below);
    format!("{before}LINE 1: {line}\n{below}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_query_that_fails_when_the_engine_says_where_then_the_caret_stands_below_what_was_asked() {
        let said = "Binder Error: no column \"b\"\n\nLINE 1: DESCRIBE SELECT b FROM t\n                        ^";
        let told = "Binder Error: no column \"b\"\n\nLINE 1: SELECT b FROM t\n               ^";
        assert_eq!(without_describe(said), told);
        for as_it_is in ["Binder Error: no column \"b\"", "LINE 1: ...where b > 1\n    ^"] {
            assert_eq!(without_describe(as_it_is), as_it_is);
        }
    }
}
