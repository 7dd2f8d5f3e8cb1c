//! Databases: the rows of one query, in batches, as JSON Lines documents. Nothing is written there.
//!
//! - `SQL-1` one statement that begins with SELECT, WITH, VALUES or TABLE, in a read-only transaction (SQLite: a file opened for
//!   reading), with a time limit that the server keeps.
//! - `SQL-2` no password is in any message, name or event.
//!
//! What an account may read, a query may read: an account that may read only what is meant is the real limit.

use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Map, Number, Value};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Connection, Row, TypeInfo, ValueRef};
use tokio::sync::mpsc;

use super::gather::Item;
use super::place::{DatabaseAddress, Dialect};
use super::table::column_names;
use super::{Fault, SourceError};

mod batches;

pub(super) use batches::Batches;
pub use batches::{batch_of, batches_of};

/// Most rows of one query.
pub const MAX_ROWS: usize = 100_000;

/// Longest query, in bytes.
const MAX_QUERY: usize = 64 << 10;

/// How long connecting may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// How long the query may run on its server, and its rows may take to come.
const QUERY_TIME: Duration = Duration::from_secs(60);

/// SQLite asks whether to go on each time that it has done so many steps.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// Functions that read files, write them or speak to other servers, by the beginning of their names.
const REFUSED_WORDS: &[&str] = &[
    "pg_read_",
    "pg_ls_",
    "pg_stat_file",
    "pg_terminate_",
    "pg_cancel_",
    "pg_reload_",
    "pg_rotate_",
    "pg_promote",
    "lo_import",
    "lo_export",
    "lo_get",
    "lo_put",
    "lo_from_bytea",
    "lo_creat",
    "dblink",
    "outfile",
    "dumpfile",
    "load_file",
    "load_extension",
    "readfile",
    "writefile",
];

/// Runs the query and sends its rows. `url` has the password in it, `address` has none.
pub(super) async fn read_rows(
    address: &DatabaseAddress,
    url: &str,
    query: Option<&str>,
    out: &mpsc::Sender<Item>,
) -> Result<(), SourceError> {
    let query = query.ok_or_else(|| {
        SourceError::fault(
            &address.shown,
            Fault::BadOption,
            "is a database, and no query says what to read",
            "--query 'SELECT … FROM …'",
        )
    })?;
    let query = check_query(&address.shown, query)?;
    let mut batches = Batches::new(address, &query, out);
    let work = async {
        match address.dialect {
            Dialect::Postgres => postgres(address, url, &query, &mut batches).await,
            Dialect::MySql => mysql(address, url, &query, &mut batches).await,
            Dialect::Sqlite => sqlite(address, &query, &mut batches).await,
        }
    };
    match tokio::time::timeout(CONNECT_TIME + QUERY_TIME, work).await {
        Ok(result) => result?,
        Err(_) => return Err(timed_out(&address.shown)),
    }
    batches.finish().await
}

/// The query without a semicolon at its end, when it is one that reads.
pub fn check_query(shown: &str, query: &str) -> Result<String, SourceError> {
    let refused = |reason: String| {
        SourceError::fault(
            shown,
            Fault::QueryRefused,
            format!("gets no query that is not one SELECT: {reason}"),
            "one statement that begins with SELECT, WITH, VALUES or TABLE; for a semicolon within a text, use the database's function for characters",
        )
    };
    let query = query.trim().trim_end_matches(';').trim_end();
    if query.is_empty() || query.len() > MAX_QUERY {
        return Err(refused(format!("it has {} bytes, of at most {MAX_QUERY}", query.len())));
    }
    // Refused wherever it stands, also in texts: telling texts from code is another rule in each database.
    for (mark, meaning) in
        [(";", "a semicolon"), ("/*!", "an executable comment"), ("\0", "a zero byte"), ("u&\"", "an escaped name")]
    {
        if query.to_lowercase().contains(mark) {
            return Err(refused(format!("it has {meaning} in it")));
        }
    }
    let lower = query.to_lowercase();
    let first = lower.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or_default();
    let begins = lower.trim_start_matches(['(', ' ', '\n', '\t', '\r']);
    if !begins.starts_with(first) || !matches!(first, "select" | "with" | "values" | "table") {
        return Err(refused(format!("it begins with {:?}", super::error::clip(first))));
    }
    let words = lower.split(|c: char| !c.is_alphanumeric() && c != '_');
    match words.into_iter().find(|word| REFUSED_WORDS.iter().any(|refused| word.starts_with(refused))) {
        Some(word) => Err(refused(format!("it has {word:?} in it"))),
        None => Ok(query.to_owned()),
    }
}

async fn postgres(
    address: &DatabaseAddress,
    url: &str,
    query: &str,
    batches: &mut Batches<'_>,
) -> Result<(), SourceError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|_| bad_address(&address.shown))?
        .application_name("riverrun")
        .disable_statement_logging();
    let mut connection = connected(address, PgConnection::connect_with(&options)).await?;
    let failed = |error| failed(address, &error);
    for statement in ["BEGIN READ ONLY", "SET LOCAL statement_timeout = '60s'", "SET LOCAL lock_timeout = '10s'"] {
        sqlx::raw_sql(statement).execute(&mut connection).await.map_err(failed)?;
    }
    // As a part of another statement, prepared as one: what is no query is no part of one.
    let wrapped = format!("SELECT row_to_json(riverrun_row)::text FROM ({query}\n) AS riverrun_row");
    let rows = sqlx::query_scalar::<_, String>(AssertSqlSafe(wrapped)).fetch(&mut connection);
    batches.take_all(address, rows.map(|row| row.map(|json| (json.len(), json)))).await?;
    let _ = connection.close().await;
    Ok(())
}

async fn mysql(
    address: &DatabaseAddress,
    url: &str,
    query: &str,
    batches: &mut Batches<'_>,
) -> Result<(), SourceError> {
    let url = url.replacen("mariadb://", "mysql://", 1);
    let options =
        MySqlConnectOptions::from_str(&url).map_err(|_| bad_address(&address.shown))?.disable_statement_logging();
    let mut connection = connected(address, MySqlConnection::connect_with(&options)).await?;
    // One of the two is there: the first in MySQL (milliseconds), the second in MariaDB (seconds).
    let limits = ["SET SESSION max_execution_time = 60000", "SET SESSION max_statement_time = 60"];
    let mut limited = false;
    for statement in limits {
        limited |= sqlx::raw_sql(statement).execute(&mut connection).await.is_ok();
    }
    if !limited {
        return Err(SourceError::fault(
            &address.shown,
            Fault::SourceFailed,
            "takes no time limit for queries",
            "use MySQL 5.7.8, MariaDB 10.1 or later",
        ));
    }
    sqlx::raw_sql("START TRANSACTION READ ONLY")
        .execute(&mut connection)
        .await
        .map_err(|error| failed(address, &error))?;
    // By the text protocol, in which every value is its text.
    let rows = sqlx::raw_sql(AssertSqlSafe(query.to_owned())).fetch(&mut connection);
    batches.take_all(address, rows.map(|row| row.map(|row| sized(mysql_row(&row))))).await?;
    let _ = connection.close().await;
    Ok(())
}

async fn sqlite(address: &DatabaseAddress, query: &str, batches: &mut Batches<'_>) -> Result<(), SourceError> {
    let file = address.file.as_deref().unwrap_or(Path::new(""));
    if !file.is_absolute() {
        return Err(SourceError::NotAbsolute { path: file.display().to_string() });
    }
    if !file.is_file() {
        return Err(SourceError::NotFound { path: file.display().to_string() });
    }
    let options = SqliteConnectOptions::new()
        .filename(file)
        .read_only(true)
        .create_if_missing(false)
        .pragma("query_only", "1")
        .pragma("trusted_schema", "0")
        .disable_statement_logging();
    let mut connection = connected(address, SqliteConnection::connect_with(&options)).await?;
    let failed = |error| failed(address, &error);
    let until = Instant::now() + QUERY_TIME;
    connection
        .lock_handle()
        .await
        .map_err(failed)?
        .set_progress_handler(STEPS_BETWEEN_LOOKS, move || Instant::now() < until);
    let rows = sqlx::query(AssertSqlSafe(query.to_owned())).fetch(&mut connection);
    batches.take_all(address, rows.map(|row| row.map(|row| sized(sqlite_row(&row))))).await?;
    let _ = connection.close().await;
    Ok(())
}

async fn connected<C>(
    address: &DatabaseAddress,
    connecting: impl Future<Output = Result<C, sqlx::Error>>,
) -> Result<C, SourceError> {
    match tokio::time::timeout(CONNECT_TIME, connecting).await {
        Ok(connection) => connection.map_err(|error| failed(address, &error)),
        Err(_) => Err(SourceError::fault(
            &address.shown,
            Fault::SourceFailed,
            format!("does not answer within {} s", CONNECT_TIME.as_secs()),
            "check host, port and that the server runs",
        )),
    }
}

fn bad_address(shown: &str) -> SourceError {
    SourceError::fault(
        shown,
        Fault::AddressRefused,
        "is no address of a database",
        "postgres://user:${RIVERRUN_SOURCE_PASSWORD}@host:port/database",
    )
}

fn timed_out(shown: &str) -> SourceError {
    SourceError::fault(
        shown,
        Fault::TimedOut,
        format!("takes more than {} s to answer the query", QUERY_TIME.as_secs()),
        "ask for less, or add an index",
    )
}

/// What the server said is kept: it speaks of the query. What libraries say of addresses is not: it may hold the password.
fn failed(address: &DatabaseAddress, error: &sqlx::Error) -> SourceError {
    let reason = match error {
        sqlx::Error::Database(said) => {
            let message: String = said.message().chars().filter(|c| !c.is_control()).take(300).collect();
            if message.contains("statement timeout")
                || message.contains("interrupted")
                || message.contains("max_statement_time")
                || message.contains("maximum statement execution time")
            {
                return timed_out(&address.shown);
            }
            format!("says: {message}")
        }
        sqlx::Error::Io(error) => format!("can't be reached: {}", error.kind()),
        sqlx::Error::Tls(_) => "can't be reached by TLS".to_owned(),
        _ => "gave an answer that can't be read".to_owned(),
    };
    SourceError::fault(
        &address.shown,
        Fault::SourceFailed,
        reason,
        "check address, account and query with the database's own client",
    )
}

fn sized(row: Map<String, Value>) -> (usize, String) {
    let json = Value::Object(row).to_string();
    (json.len(), json)
}

fn mysql_row(row: &MySqlRow) -> Map<String, Value> {
    let value = |column: &sqlx::mysql::MySqlColumn| {
        let text = row.try_get_unchecked::<Option<Vec<u8>>, _>(column.ordinal()).ok().flatten();
        let Some(bytes) = text else { return Value::Null };
        let kind = column.type_info().name().to_uppercase();
        let number = || {
            let text = std::str::from_utf8(&bytes).ok()?;
            if kind.contains("INT") {
                // Of the numbers without a sign the larger half is no i64.
                text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from)).ok()
            } else {
                text.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number)
            }
        };
        let is_number = ["INT", "FLOAT", "DOUBLE"].iter().any(|name| kind.contains(name));
        is_number.then(number).flatten().unwrap_or_else(|| text_or_size(&bytes))
    };
    named(row.columns(), row.columns().iter().map(value))
}

fn sqlite_row(row: &SqliteRow) -> Map<String, Value> {
    let value = |column: &sqlx::sqlite::SqliteColumn| {
        let at = column.ordinal();
        let Ok(raw) = row.try_get_raw(at) else { return Value::Null };
        match raw.type_info().name() {
            _ if raw.is_null() => Value::Null,
            "INTEGER" | "BOOLEAN" => row.try_get_unchecked::<i64, _>(at).map_or(Value::Null, Value::from),
            "REAL" => {
                row.try_get_unchecked::<f64, _>(at).ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
            }
            "BLOB" => row.try_get_unchecked::<Vec<u8>, _>(at).map_or(Value::Null, |bytes| text_or_size(&bytes)),
            _ => row.try_get_unchecked::<String, _>(at).map_or(Value::Null, Value::from),
        }
    };
    named(row.columns(), row.columns().iter().map(value))
}

/// Values by the names of their columns; a name that comes again, as in `SELECT a.id, b.id`, gets a number behind it.
fn named<C: Column>(columns: &[C], values: impl Iterator<Item = Value>) -> Map<String, Value> {
    column_names(columns.iter().map(|column| column.name().to_owned()).collect()).into_iter().zip(values).collect()
}

/// Bytes that are text as text; of others only how many they are.
fn text_or_size(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Value::from(text),
        _ => Value::from(format!("({} bytes)", bytes.len())),
    }
}

#[cfg(test)]
mod tests;
