//! The database of one namespace.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use duckdb::{AccessMode, Config, Connection, OptionalExt, appender_params_from_iter, params};
use parking_lot::Mutex;
use riverrun_schemas::{CollectionName, DocumentId};

use crate::warehouse::declared;
use crate::warehouse::duck::DuckConfig;
use crate::warehouse::duck::names::{self, quoted};
use crate::warehouse::infer::Inference;
use crate::warehouse::{Column, LoadRow, QueryResult, TableInfo, TableLoad, WarehouseError};

/// What is known of tables beside their rows; in a schema of its own, out of the way of SHOW TABLES.
const REGISTRY: &str = "CREATE SCHEMA IF NOT EXISTS riverrun;
    CREATE TABLE IF NOT EXISTS riverrun.tables (
        name VARCHAR NOT NULL, document_id VARCHAR NOT NULL, collection VARCHAR NOT NULL,
        version VARCHAR NOT NULL, row_count BIGINT NOT NULL)";

/// Loads first come in here, as text.
const STAGE: &str = "riverrun_stage";

/// What every connection has. Times are in UTC, wherever the machine is; the zone is a setting that can be made only once the engine runs,
/// so that the lock on all of them comes behind it.
const EVERY_CONNECTION: &str = "SET GLOBAL TimeZone = 'UTC';
    SET GLOBAL lock_configuration = true";

/// An open database. Everything on it blocks.
pub(super) struct Database {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// One load at a time: two that replace the same table would undo each other.
    loading: Mutex<()>,
    broken: AtomicBool,
}

impl Database {
    pub(super) fn open(path: PathBuf, config: &DuckConfig) -> Result<Self, WarehouseError> {
        let failed = |error: duckdb::Error| WarehouseError::Database { path: path.clone(), reason: error.to_string() };
        let settings = settings(config).map_err(failed)?;
        let connection = Connection::open_with_flags(&path, settings).map_err(failed)?;
        connection.execute_batch(EVERY_CONNECTION).map_err(failed)?;
        connection.execute_batch(REGISTRY).map_err(failed)?;
        Ok(Self { connection: Mutex::new(connection), loading: Mutex::new(()), broken: AtomicBool::new(false), path })
    }

    /// Another connection to the same database.
    pub(super) fn connect(&self) -> Result<Connection, WarehouseError> {
        self.connection.lock().try_clone().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &duckdb::Error) -> WarehouseError {
        let reason = error.to_string();
        if is_fatal(&reason) {
            self.broken.store(true, Ordering::Release);
        }
        WarehouseError::Database { path: self.path.clone(), reason }
    }

    /// Notes that the engine gave the database up, if that is what a query failed with.
    pub(super) fn note(&self, result: &Result<QueryResult, WarehouseError>) {
        if let Err(WarehouseError::Query { reason }) = result
            && is_fatal(reason)
        {
            self.broken.store(true, Ordering::Release);
        }
    }

    /// Whether the engine gave the database up: it has to be opened anew.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    pub(super) fn load(&self, load: TableLoad) -> Result<TableInfo, WarehouseError> {
        names::check_table(&load.table)?;
        let columns = names::columns(&load.table, &load.columns)?;
        let _alone = self.loading.lock();
        if self.holds(&load.table, &load.document_id, &load.version)? {
            let known = self.tables()?.into_iter().find(|table| same_name(&table.name, &load.table));
            if let Some(known) = known {
                return Ok(known);
            }
        }
        let connection = self.connect()?;
        self.check_owner(&connection, &load.table, &load.document_id)?;
        connection.execute_batch("BEGIN TRANSACTION").map_err(|error| self.failed(&error))?;
        let info = self.replace(&connection, load, columns)?;
        connection.execute_batch("COMMIT").map_err(|error| self.failed(&error))?;
        Ok(info)
        // Whatever failed above leaves the transaction to the end of its connection, which takes it back.
    }

    /// Refuses a name under which another document has its rows: they would be gone without a word.
    fn check_owner(&self, connection: &Connection, table: &str, document: &DocumentId) -> Result<(), WarehouseError> {
        let other = connection
            .query_row(
                "SELECT name, document_id, collection FROM riverrun.tables WHERE lower(name) = lower(?) AND document_id <> ?",
                params![table, document.to_string()],
                |row| Ok::<(String, String, String), _>((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()
            .map_err(|error| self.failed(&error))?;
        let Some((table, document_id, collection)) = other else { return Ok(()) };
        match (document_id.parse::<DocumentId>(), collection.parse::<CollectionName>()) {
            (Ok(document_id), Ok(collection)) => Err(WarehouseError::Taken { table, document_id, collection }),
            // A row that is damaged says nothing of whose the rows are: its table is replaced.
            (Err(_), _) | (_, Err(_)) => Ok(()),
        }
    }

    fn replace(
        &self,
        connection: &Connection,
        load: TableLoad,
        names: Vec<String>,
    ) -> Result<TableInfo, WarehouseError> {
        let TableLoad { table, document_id, collection, version, columns, types, rows } = load;
        let stage = quoted(STAGE);
        let cells: Vec<String> = (0..columns.len()).map(|at| format!("c{at} VARCHAR")).collect();
        connection
            .execute_batch(&format!("CREATE TEMP TABLE {stage} ({})", cells.join(", ")))
            .map_err(|error| self.failed(&error))?;
        let (count, inferred) = self.stage(connection, &table, columns.len(), rows)?;
        let known = types.iter().map(|name| declared::sql_type(name)).chain(std::iter::repeat(None));
        let types: Vec<String> = inferred.into_iter().zip(known).map(|(found, known)| known.unwrap_or(found)).collect();
        let selected: Vec<String> = (0..)
            .zip(&names)
            .zip(&types)
            .map(|((at, name), sql_type)| format!("CAST(c{at} AS {sql_type}) AS {}", quoted(name)))
            .collect();
        let name = quoted(&table);
        // Not in one statement with REPLACE: a name in other letters would stay as it was.
        connection
            .execute_batch(&format!(
                "DROP TABLE IF EXISTS main.{name};
                 CREATE TABLE main.{name} AS SELECT {} FROM {stage} ORDER BY rowid;
                 DROP TABLE {stage}",
                selected.join(", ")
            ))
            .map_err(|error| rows_error(&table, &error))?;
        let there: i64 = connection
            .query_row(&format!("SELECT count(*) FROM main.{name}"), [], |row| row.get(0))
            .map_err(|error| self.failed(&error))?;
        if there != count {
            let reason = format!("{there} of {} came into it", riverrun_schemas::counted(count, "row"));
            return Err(WarehouseError::Rows { table, reason });
        }
        connection
            .execute("DELETE FROM riverrun.tables WHERE lower(name) = lower(?)", params![table])
            .and_then(|_| {
                connection.execute(
                    "INSERT INTO riverrun.tables VALUES (?, ?, ?, ?, ?)",
                    params![table, document_id.to_string(), collection.as_str(), version, count],
                )
            })
            .map_err(|error| self.failed(&error))?;
        let columns = names.into_iter().zip(types).map(|(name, sql_type)| Column { name, sql_type }).collect();
        Ok(TableInfo { name: table, columns, rows: count, document_id, collection, version })
    }

    /// Writes the rows as text; returns how many came and the type of each column.
    fn stage(
        &self,
        connection: &Connection,
        table: &str,
        width: usize,
        rows: impl Iterator<Item = Result<LoadRow, String>>,
    ) -> Result<(i64, Vec<String>), WarehouseError> {
        let refuse = |reason: String| WarehouseError::Rows { table: table.to_owned(), reason };
        let mut inferences = vec![Inference::default(); width];
        let mut appender =
            connection.appender_to_catalog_and_db(STAGE, "temp", "main").map_err(|error| self.failed(&error))?;
        let mut count = 0;
        for row in rows {
            let row = row.map_err(refuse)?;
            count += 1;
            if row.len() != width {
                return Err(refuse(format!("row {count} has {} values for {width} columns", row.len())));
            }
            let cells = || row.iter().map(|cell| cell.as_deref().filter(|cell| !cell.is_empty()));
            inferences.iter_mut().zip(cells()).for_each(|(inference, cell)| inference.see(cell));
            appender.append_row(appender_params_from_iter(cells())).map_err(|error| self.failed(&error))?;
        }
        appender.flush().map_err(|error| self.failed(&error))?;
        Ok((count, inferences.iter().map(Inference::sql_type).collect()))
    }

    pub(super) fn holds(&self, table: &str, document: &DocumentId, version: &str) -> Result<bool, WarehouseError> {
        self.connect()?
            .query_row(
                "SELECT count(*) > 0 FROM riverrun.tables WHERE lower(name) = lower(?) AND document_id = ? AND version = ?",
                params![table, document.to_string(), version],
                |row| row.get(0),
            )
            .map_err(|error| self.failed(&error))
    }

    pub(super) fn remove_document(&self, document: &DocumentId) -> Result<Vec<TableInfo>, WarehouseError> {
        self.remove(document, |_| true)
    }

    pub(super) fn remove_outdated(
        &self,
        document: &DocumentId,
        version: &str,
    ) -> Result<Vec<TableInfo>, WarehouseError> {
        self.remove(document, |table| table.version != version)
    }

    /// Removes those of the document's tables.
    fn remove(
        &self,
        document: &DocumentId,
        is_doomed: impl Fn(&TableInfo) -> bool,
    ) -> Result<Vec<TableInfo>, WarehouseError> {
        let connection = self.connect()?;
        // Asked of every document that is taken in, and most have no table: they don't wait for a load that goes on.
        let has_tables: bool = connection
            .query_row(
                "SELECT count(*) > 0 FROM riverrun.tables WHERE document_id = ?",
                params![document.to_string()],
                |row| row.get(0),
            )
            .map_err(|error| self.failed(&error))?;
        if !has_tables {
            return Ok(Vec::new());
        }
        let _alone = self.loading.lock();
        // Whoever else writes waits, so what is listed stays so. Columns are asked only of what goes.
        let registered = registered(&connection).map_err(|error| self.failed(&error))?;
        let is_doomed = |table: &TableInfo| table.document_id == *document && is_doomed(table);
        let mut doomed: Vec<TableInfo> = registered.into_iter().filter(is_doomed).collect();
        if doomed.is_empty() {
            return Ok(doomed);
        }
        for table in &mut doomed {
            table.columns = columns_of(&connection, &table.name).map_err(|error| self.failed(&error))?;
        }
        let removed = || -> duckdb::Result<()> {
            connection.execute_batch("BEGIN TRANSACTION")?;
            for table in &doomed {
                connection.execute_batch(&format!("DROP TABLE IF EXISTS main.{}", quoted(&table.name)))?;
                connection.execute("DELETE FROM riverrun.tables WHERE name = ?", params![table.name])?;
            }
            connection.execute_batch("COMMIT")
        };
        removed().map_err(|error| self.failed(&error))?;
        Ok(doomed)
    }

    pub(super) fn tables(&self) -> Result<Vec<TableInfo>, WarehouseError> {
        let connection = self.connect()?;
        // Tables and columns as of one moment, whatever is loaded meanwhile.
        connection.execute_batch("BEGIN TRANSACTION READ ONLY").map_err(|error| self.failed(&error))?;
        let mut found = registered(&connection).map_err(|error| self.failed(&error))?;
        for table in &mut found {
            table.columns = columns_of(&connection, &table.name).map_err(|error| self.failed(&error))?;
        }
        Ok(found)
    }
}

/// Everything that reaches out of the database is off, and stays off: [`EVERY_CONNECTION`] locks it.
fn settings(config: &DuckConfig) -> duckdb::Result<Config> {
    Config::default()
        .access_mode(AccessMode::ReadWrite)?
        // What does not fit into memory fails, instead of filling the disk. It cannot be said any more once access is off.
        .with("temp_directory", "")?
        .enable_external_access(false)?
        .enable_autoload_extension(false)?
        .with("autoinstall_known_extensions", "false")?
        .with("allow_community_extensions", "false")?
        .max_memory(&format!("{}MB", config.memory_mb))?
        .threads(i64::try_from(config.threads).unwrap_or(1))
}

/// The engine's words for a database that it does not use any more.
fn is_fatal(reason: &str) -> bool {
    reason.contains("database has been invalidated") || reason.contains("FATAL Error")
}

fn same_name(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

fn rows_error(table: &str, error: &duckdb::Error) -> WarehouseError {
    WarehouseError::Rows { table: table.to_owned(), reason: error.to_string() }
}

fn registered(connection: &Connection) -> duckdb::Result<Vec<TableInfo>> {
    let mut statement = connection
        .prepare("SELECT name, document_id, collection, version, row_count FROM riverrun.tables ORDER BY name")?;
    let rows = statement.query_map([], |row| {
        let texts: (String, String, String, String, i64) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
        Ok(texts)
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (name, document_id, collection, version, rows) = row?;
        // Written by this file alone; a row that is damaged is left out, and its table is replaced by the next load.
        let (Ok(document_id), Ok(collection)) =
            (document_id.parse::<DocumentId>(), collection.parse::<CollectionName>())
        else {
            tracing::warn!(table = name, "row of the warehouse's list of tables is damaged");
            continue;
        };
        found.push(TableInfo { name, columns: Vec::new(), rows, document_id, collection, version });
    }
    Ok(found)
}

fn columns_of(connection: &Connection, table: &str) -> duckdb::Result<Vec<Column>> {
    let mut statement = connection.prepare(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = 'main' AND table_name = ? AND NOT internal ORDER BY column_index",
    )?;
    let rows = statement.query_map([table], |row| Ok(Column { name: row.get(0)?, sql_type: row.get(1)? }))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_an_open_database_when_a_connection_would_change_a_setting_then_the_engine_refuses_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path().join("own.duckdb"), &DuckConfig::at(folder.path())).unwrap();
        let connection = database.connect().unwrap();
        for statement in [
            "SET TimeZone = 'Asia/Kathmandu'",
            "SET GLOBAL TimeZone = 'Asia/Kathmandu'",
            "SET enable_external_access = true",
            "SET threads = 4",
            "SET lock_configuration = false",
        ] {
            let error = connection.execute_batch(statement).expect_err(statement).to_string();
            assert!(error.contains("locked"), "{statement}: {error}");
        }
    }
}
