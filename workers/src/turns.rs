//! One lock a collection: who writes to a vector collection does so alone (`VEC-2`), whichever worker it is.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_schemas::Collection;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// The locks, each for as long as somebody wants it. Clones share them.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<HashMap<Collection, Lock>>>);

impl Turns {
    /// The lock of a collection.
    pub(crate) fn of(&self, collection: &Collection) -> Lock {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(collection.clone()).or_default().clone()
    }
}
