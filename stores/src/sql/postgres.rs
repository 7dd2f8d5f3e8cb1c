//! PostgreSQL for the read models: shared by every process of a cluster.

use std::time::Duration;

use sqlx::any::AnyPoolOptions;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{Any, AnyPool, Connection, Executor, Transaction};
use url::Url;

use crate::error::StoreError;
use crate::sql::{MIGRATIONS, migrator};

/// Statements of one moment.
pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Connections of one process.
const READERS: u32 = 8;
/// How long a connection is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Whoever writes holds it until the transaction ends: two projectors then find each other's checkpoint instead of
/// each other's rows. The number is this program's; any that nobody else takes would do.
const ONE_WRITER: &str = "SELECT pg_advisory_xact_lock(8239744371)";
const FIX: &str = "start the server and make the database, or check RIVERRUN_DATABASE_URL (postgres://user:password@host:5432/database)";
const READ_ONLY: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY";
/// Runs before the shared migrations, which count from 1.
const FUNCTIONS: (i64, &str, &str) = (0, "functions", include_str!("../../migrations/postgres/0000_functions.sql"));

/// Reader and writer, with the tables up to date. Processes that start at once wait for the one that migrates.
pub(super) async fn connect(url: &str) -> Result<(AnyPool, AnyPool), StoreError> {
    let failed = |error: &dyn std::fmt::Display| StoreError::Server {
        service: "PostgreSQL",
        address: shown(url),
        reason: error.to_string(),
        fix: FIX.to_owned(),
    };
    // A pool waits for a server that refuses, and then says only that it waited: one connection says why.
    match tokio::time::timeout(PATIENCE, PgConnection::connect(url)).await {
        Ok(Ok(connection)) => connection.close().await.map_err(|error| failed(&error))?,
        Ok(Err(error)) => return Err(failed(&error)),
        Err(_) => return Err(failed(&format!("no answer within {} s", PATIENCE.as_secs()))),
    }
    let first = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(PATIENCE)
        .connect(url)
        .await
        .map_err(|error| failed(&error))?;
    let migrated = migrator(migrations()).run(&first).await;
    first.close().await;
    migrated.map_err(|error| failed(&error))?;
    let pool = |connections| AnyPoolOptions::new().max_connections(connections).acquire_timeout(PATIENCE);
    let writer = pool(1).connect(url).await.map_err(|error| failed(&error))?;
    let reader = pool(READERS)
        .after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(READ_ONLY).await?;
                Ok(())
            })
        })
        .connect(url)
        .await
        .map_err(|error| failed(&error))?;
    Ok((reader, writer))
}

pub(super) async fn begin(writer: &AnyPool) -> Result<Transaction<'static, Any>, StoreError> {
    let mut transaction = writer.begin().await?;
    sqlx::query(ONE_WRITER).execute(&mut *transaction).await?;
    Ok(transaction)
}

/// The shared ones, with text in the order of its bytes: cursors of lists mean the same in both databases.
fn migrations() -> impl Iterator<Item = (i64, &'static str, String)> {
    let (number, what, statements) = FUNCTIONS;
    let shared = MIGRATIONS
        .iter()
        .map(|(number, what, statements)| (*number, *what, statements.replace(" TEXT", " TEXT COLLATE \"C\"")));
    std::iter::once((number, what, statements.to_owned())).chain(shared)
}

/// The address without user and password.
pub(super) fn shown(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "an address that can't be read".to_owned() };
    let emptied = url.set_username("").and_then(|()| url.set_password(None));
    url.set_query(None); // may hold a password too
    if emptied.is_err() { "an address that can't be shown".to_owned() } else { url.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_an_address_when_it_is_shown_then_no_secret_is_in_it() {
        for url in ["postgres://ann:s3cret@db:5432/river", "postgres://ann@db:5432/river?password=s3cret"] {
            assert_eq!(shown(url), "postgres://db:5432/river");
        }
        assert!(!shown("ann:s3cret@db").contains("s3cret") && !shown("s3cret").contains("s3cret"));
    }

    #[test]
    fn given_the_shared_migrations_then_text_is_ordered_by_bytes_and_nothing_else_is_changed() {
        let all: Vec<_> = migrations().collect();
        assert_eq!(all.len(), MIGRATIONS.len() + 1);
        assert!(all[1].2.contains("namespace           TEXT COLLATE \"C\"   NOT NULL"));
        assert_eq!(all[1].2.replace(" COLLATE \"C\"", ""), MIGRATIONS[0].2);
    }

    #[tokio::test]
    async fn given_no_server_then_the_error_names_address_and_setting() {
        let error = connect("postgres://ann:s3cret@127.0.0.1:1/river").await.unwrap_err();
        assert_eq!(error.code(), "store_server_down");
        assert!(error.to_string().contains("127.0.0.1:1") && !error.to_string().contains("s3cret"), "{error}");
        assert!(error.hint().unwrap().contains("RIVERRUN_DATABASE_URL"));
    }
}
