//! The SQL database of the read models: SQLite in one file, or a PostgreSQL server. Statements are those that both
//! understand and are said once; what each needs to open, to begin and to migrate is in here and in [`postgres`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::any::{AnyPoolOptions, AnyRow, install_default_drivers};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use sqlx::{Any, AnyConnection, AnyPool, Executor, SqlSafeStr, Transaction};
use url::Url;

use crate::error::StoreError;

mod hold;
mod postgres;

pub use hold::Held;

/// Number, what it does, and the statements; a number is never given twice and its statements never change. Both databases
/// run them: types are TEXT, BIGINT and DOUBLE PRECISION, sums of BIGINT are cast to BIGINT where they are read.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "read models", include_str!("../migrations/0001_read_models.sql")),
    (23, "run states", include_str!("../migrations/0023_run_states.sql")),
    (50, "memory", include_str!("../migrations/0050_memory.sql")),
    (70, "deletions", include_str!("../migrations/0070_deletions.sql")),
    (100, "fine-tuning", include_str!("../migrations/0100_finetune.sql")),
    (120, "projects", include_str!("../migrations/0120_projects.sql")),
    (150, "reembeddings", include_str!("../migrations/0150_reembeddings.sql")),
    (175, "rebuilds", include_str!("../migrations/0175_rebuilds.sql")),
    (192, "json documents", include_str!("../migrations/0192_json_documents.sql")),
    (200, "chains", include_str!("../migrations/0200_chains.sql")),
    (208, "model cards", include_str!("../migrations/0208_model_cards.sql")),
    (209, "model calls", include_str!("../migrations/0209_model_calls.sql")),
    (211, "tunings", include_str!("../migrations/0211_tunings.sql")),
    (215, "unpriced tokens", include_str!("../migrations/0215_unpriced_tokens.sql")),
    (216, "ingest notes", include_str!("../migrations/0216_ingest_notes.sql")),
    (217, "removals by collection", include_str!("../migrations/0217_removals_by_collection.sql")),
    (218, "decisions", include_str!("../migrations/0218_decisions.sql")),
];

const READERS: u32 = 4;
/// A larger database is not looked through at start; damage is then found when the page is read.
const MAX_CHECKED_BYTES: u64 = 256 << 20;
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Each connection to the file. A power failure may take back the last transactions, rows and checkpoint together; they
/// are read from the log again.
const FILE_SETTINGS: &str = "PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 10000";

/// A connection to either database.
pub(crate) type DbConnection = AnyConnection;
/// A row of either database.
pub(crate) type DbRow = AnyRow;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlKind {
    /// A file of this process.
    Sqlite,
    /// A server, which several processes share.
    Postgres,
}

/// The database: one writer at a time and a few readers, which see the last committed state while the writer works.
#[derive(Debug, Clone)]
pub struct Sql {
    kind: SqlKind,
    place: PathBuf,
    reader: AnyPool,
    writer: AnyPool,
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
        prepare(&path).await.map_err(|reason| unusable(&reason))?;
        install_default_drivers();
        let url = file_url(&path).map_err(|reason| unusable(&reason))?;
        let writer = file_pool(1, FILE_SETTINGS).connect(url.as_str()).await.map_err(|error| unusable(&error))?;
        let reader = file_pool(READERS, "PRAGMA busy_timeout = 10000; PRAGMA query_only = ON")
            .connect(url.as_str())
            .await
            .map_err(|error| unusable(&error))?;
        Ok(Self { kind: SqlKind::Sqlite, place: path, reader, writer })
    }

    /// Connects to a server, `postgres://user:password@host:port/database`, and brings its tables up to date.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        install_default_drivers();
        let (reader, writer) = postgres::connect(url).await?;
        Ok(Self { kind: SqlKind::Postgres, place: PathBuf::from(postgres::shown(url)), reader, writer })
    }

    /// Which database it is.
    pub fn kind(&self) -> SqlKind {
        self.kind
    }

    /// The file, or the server's address without user and password.
    pub fn path(&self) -> &Path {
        &self.place
    }

    /// The version that the database tells.
    pub async fn version(&self) -> Result<String, StoreError> {
        let statement = match self.kind {
            SqlKind::Sqlite => "SELECT sqlite_version()",
            SqlKind::Postgres => "SELECT current_setting('server_version')",
        };
        Ok(sqlx::query_scalar(statement).fetch_one(&self.reader).await?)
    }

    /// Waits for statements in progress and closes the database.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }

    pub(crate) fn reader(&self) -> &AnyPool {
        &self.reader
    }

    /// A transaction that may write. There is one at a time, of all processes that share the database (`READ-1`).
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        match self.kind {
            SqlKind::Sqlite => Ok(self.writer.begin_with("BEGIN IMMEDIATE").await?),
            SqlKind::Postgres => postgres::begin(&self.writer).await,
        }
    }

    /// A transaction whose statements all see the state of one moment.
    pub(crate) async fn snapshot(&self) -> Result<Transaction<'static, Any>, StoreError> {
        match self.kind {
            SqlKind::Sqlite => Ok(self.reader.begin().await?),
            SqlKind::Postgres => Ok(self.reader.begin_with(postgres::SNAPSHOT).await?),
        }
    }
}

/// What is bound as text: PostgreSQL refuses NUL, and a record that holds one must not stop the projector. Both databases
/// keep the same, U+FFFD instead.
pub(crate) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn migrator(migrations: impl IntoIterator<Item = (i64, &'static str, String)>) -> Migrator {
    let migration = |(number, what, statements): (i64, &'static str, String)| {
        let statements = sqlx::AssertSqlSafe(statements).into_sql_str();
        Migration::new(number, what.into(), MigrationType::Simple, statements, false)
    };
    Migrator::with_migrations(migrations.into_iter().map(migration).collect())
}

/// Makes the file, with its tables, and looks at it.
async fn prepare(path: &Path) -> Result<(), String> {
    let told = |error: sqlx::Error| error.to_string();
    let first = SqlitePoolOptions::new().max_connections(1).connect_with(options(path)).await.map_err(told)?;
    let shared = MIGRATIONS.iter().map(|(number, what, statements)| (*number, *what, (*statements).to_owned()));
    let mut ready = migrator(shared).run(&first).await.map_err(|error| error.to_string());
    if ready.is_ok() && tokio::fs::metadata(path).await.is_ok_and(|file| file.len() <= MAX_CHECKED_BYTES) {
        ready = check(&first).await;
    }
    first.close().await;
    ready
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal) // stays in the file
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
}

fn file_pool(connections: u32, settings: &'static str) -> AnyPoolOptions {
    AnyPoolOptions::new().max_connections(connections).after_connect(move |connection, _| {
        Box::pin(async move {
            connection.execute(settings).await?;
            Ok(())
        })
    })
}

/// The address by which the common driver opens the file.
fn file_url(path: &Path) -> Result<Url, String> {
    let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
    let text = absolute.to_str().ok_or("its name is not Unicode")?;
    let mut url = Url::parse("sqlite:///").map_err(|error| error.to_string())?;
    url.set_path(&text.replace('%', "%25"));
    Ok(url)
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

    #[tokio::test]
    async fn given_names_that_an_address_would_misread_then_the_file_of_that_name_is_used() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a b.db", "50%.db", "%41.db", "what?.db", "c#.db", "ü.db"] {
            let path = folder.path().join(name);
            let sql = Sql::open(&path).await.unwrap();
            assert_eq!(sql.kind(), SqlKind::Sqlite);
            assert!(!sql.version().await.unwrap().is_empty());
            sql.close().await;
            assert!(path.is_file(), "{name}");
        }
        assert!(std::fs::read_dir(folder.path()).unwrap().count() < 3 * 6 + 1, "no other file was made");
    }
}
