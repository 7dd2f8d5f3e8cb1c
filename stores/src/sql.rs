//! The SQL database of the read models: SQLite in one file. Statements are those that PostgreSQL understands too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{SqlSafeStr, Sqlite, Transaction};

use crate::error::StoreError;

/// Number, what it does, and the statements; a number is never given twice and its statements never change.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "read models", include_str!("../migrations/0001_read_models.sql")),
    (23, "run states", include_str!("../migrations/0023_run_states.sql")),
    (50, "memory", include_str!("../migrations/0050_memory.sql")),
    (70, "deletions", include_str!("../migrations/0070_deletions.sql")),
    (100, "fine-tuning", include_str!("../migrations/0100_finetune.sql")),
    (120, "projects", include_str!("../migrations/0120_projects.sql")),
    (150, "reembeddings", include_str!("../migrations/0150_reembeddings.sql")),
];

const READERS: u32 = 4;
/// A larger database is not looked through at start; damage is then found when the page is read.
const MAX_CHECKED_BYTES: u64 = 256 << 20;
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The database: one writer and a few readers, which see the last committed state while the writer works.
#[derive(Debug, Clone)]
pub struct Sql {
    path: PathBuf,
    reader: SqlitePool,
    writer: SqlitePool,
}

impl Sql {
    /// Opens the file, making it and its folder if need be, and brings its tables up to date.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            tokio::fs::create_dir_all(folder).await.map_err(StoreError::io("creating", folder))?;
        }
        let unusable = |error: &dyn std::fmt::Display| StoreError::DatabaseUnusable {
            path: path.clone(),
            reason: error.to_string(),
        };
        let options = options(&path);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options.clone())
            .await
            .map_err(|error| unusable(&error))?;
        migrator().run(&writer).await.map_err(|error| unusable(&error))?;
        if tokio::fs::metadata(&path).await.is_ok_and(|file| file.len() <= MAX_CHECKED_BYTES) {
            check(&writer).await.map_err(|reason| unusable(&reason))?;
        }
        let reader = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(options.pragma("query_only", "ON"))
            .await
            .map_err(|error| unusable(&error))?;
        Ok(Self { path, reader, writer })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for statements in progress and closes the file.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }

    pub(crate) fn reader(&self) -> &SqlitePool {
        &self.reader
    }

    /// A transaction that may write. There is one at a time.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        Ok(self.writer.begin_with("BEGIN IMMEDIATE").await?)
    }
}

fn migrator() -> Migrator {
    let migration = |(number, what, statements): (i64, &'static str, &'static str)| {
        Migration::new(number, what.into(), MigrationType::Simple, statements.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.iter().copied().map(migration).collect())
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // A power failure may take back the last transactions, rows and checkpoint together; they are read from the log again.
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
}

/// Looks at every page, so that damage is found at start and not by a caller.
async fn check(writer: &SqlitePool) -> Result<(), String> {
    let verdict: String =
        sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(writer).await.map_err(|error| error.to_string())?;
    if verdict == "ok" { Ok(()) } else { Err(verdict) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn given_a_file_that_is_no_database_then_the_error_names_it_and_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("text.db", b"this is not a database, whatever its name says".repeat(100)),
            ("noise.db", (0..20_000u32).map(|i| (i * 7919 % 251) as u8).collect()),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let error = Sql::open(&path).await.unwrap_err();
            assert_eq!(error.code(), "database_unusable");
            assert!(error.to_string().contains(name), "{error}");
            assert!(error.hint().unwrap().contains("delete"));
        }
    }

    #[tokio::test]
    async fn given_a_damaged_page_then_it_is_found_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read.db");
        Sql::open(&path).await.unwrap().close().await;
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..].fill(0xa5);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Sql::open(&path).await.unwrap_err().code(), "database_unusable");
    }

    #[tokio::test]
    async fn readers_can_not_write() {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(folder.path().join("sub/read.db")).await.unwrap();
        assert!(sqlx::query("DELETE FROM runs").execute(sql.reader()).await.is_err());
    }
}
