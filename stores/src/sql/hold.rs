//! Being alone with something among all processes that share a database.

use sqlx::{Any, Transaction};

use crate::error::StoreError;
use crate::sql::{Sql, SqlKind};

/// Tells of a name, in a space of 64 bits; two names of one number wait for each other without need.
const TRY: &str = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))";

/// Nobody else holds the same name until this is dropped. A connection that the server loses gives it back, too: what is done
/// meanwhile has to bear being done beside somebody else's work once in a while, as it bears being done twice.
#[must_use]
pub struct Held {
    _transaction: Option<Transaction<'static, Any>>,
}

impl Sql {
    /// Tries to hold a name; `None` while somebody else does. A file has one process, which has locks of its own: there nobody
    /// else ever does. On a server it takes a connection of those that read for as long as it is held.
    pub async fn try_hold(&self, name: &str) -> Result<Option<Held>, StoreError> {
        match self.kind {
            SqlKind::Sqlite => Ok(Some(Held { _transaction: None })),
            SqlKind::Postgres => {
                let mut transaction = self.reader.begin().await?;
                let alone: bool = sqlx::query_scalar(TRY).bind(name).fetch_one(&mut *transaction).await?;
                Ok(alone.then_some(Held { _transaction: Some(transaction) }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn given_a_file_when_a_name_is_held_then_nothing_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(folder.path().join("read.db")).await.unwrap();
        let held = sql.try_hold("notes").await.unwrap();
        assert!(held.is_some() && sql.try_hold("notes").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn given_a_server_when_a_name_is_held_then_another_process_has_to_wait_for_it_and_for_no_other() {
        let Some(url) = std::env::var("RIVERRUN_TEST_DATABASE_URL").ok().filter(|url| !url.is_empty()) else { return };
        let (one, other) = (Sql::connect(&url).await.unwrap(), Sql::connect(&url).await.unwrap());
        let name = format!("held by {}", std::process::id());
        let held = one.try_hold(&name).await.unwrap().unwrap();
        assert!(other.try_hold(&name).await.unwrap().is_none());
        assert!(other.try_hold(&format!("not {name}")).await.unwrap().is_some());
        drop(held);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while other.try_hold(&name).await.unwrap().is_none() {
            assert!(std::time::Instant::now() < until, "it was given back");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}
