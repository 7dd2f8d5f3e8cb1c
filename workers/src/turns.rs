//! One lock a collection: who writes to a vector collection does so alone (`VEC-2`), whichever worker it is, in whichever process.
//!
//! Within a process it is a lock in memory. Where several processes may write (read models on a server that all of them share), a
//! lock of that server comes on top; while the server is away nobody writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_schemas::Collection;
use riverrun_stores::sql::Held;
use riverrun_stores::{Sql, SqlKind};

/// How often a collection that another process has is asked for again.
const AGAIN: Duration = Duration::from_millis(20);
/// The same while the server does not answer.
const AWAY: Duration = Duration::from_secs(1);

type Local = Arc<tokio::sync::Mutex<()>>;

/// The locks, each for as long as somebody wants it. Clones share them.
#[derive(Clone, Default)]
pub struct Turns {
    here: Arc<Mutex<HashMap<Collection, Local>>>,
    across: Option<Sql>,
}

/// The lock of a collection.
pub(crate) struct Turn {
    here: Local,
    across: Option<(Sql, String)>,
}

/// Nobody else writes to the collection until this is dropped.
pub(crate) struct Alone {
    // First given back, so that who waits in this process finds the other lock free.
    _across: Option<Held>,
    _here: tokio::sync::OwnedMutexGuard<()>,
}

impl Turns {
    /// Locks that hold for every process which shares these read models.
    pub fn across(sql: Sql) -> Self {
        Self { here: Arc::default(), across: (sql.kind() == SqlKind::Postgres).then_some(sql) }
    }

    /// The lock of a collection.
    pub(crate) fn of(&self, collection: &Collection) -> Turn {
        let mut turns = self.here.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let here = turns.entry(collection.clone()).or_default().clone();
        let across =
            self.across.clone().map(|sql| (sql, format!("riverrun collection {}", collection.physical_name())));
        Turn { here, across }
    }
}

impl Turn {
    /// Waits for its turn.
    pub(crate) async fn lock(&self) -> Alone {
        let here = self.here.clone().lock_owned().await;
        let across = match &self.across {
            Some((sql, name)) => Some(hold(sql, name).await),
            None => None,
        };
        Alone { _across: across, _here: here }
    }
}

async fn hold(sql: &Sql, name: &str) -> Held {
    loop {
        let pause = match sql.try_hold(name).await {
            Ok(Some(held)) => return held,
            Ok(None) => AGAIN,
            Err(error) => {
                tracing::warn!(error = %error, name, "the lock of a collection can't be asked for; its writers wait");
                AWAY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn given_a_collection_when_one_has_it_then_another_waits_and_a_third_collection_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(folder.path().join("read.db")).await.unwrap();
        for turns in [Turns::default(), Turns::across(sql)] {
            let of = |name: &str| turns.of(&Collection::new("default".parse().unwrap(), name.parse().unwrap()));
            let (notes, again, other) = (of("notes"), of("notes"), of("other"));
            let alone = notes.lock().await;
            drop(other.lock().await);
            let waits = tokio::time::timeout(Duration::from_millis(50), again.lock()).await;
            assert!(waits.is_err());
            drop(alone);
            drop(again.lock().await);
        }
    }
}
