//! Collections of which searches may not find everything: said from when it is seen until it is mended, so that nobody takes the lack
//! of a hit for an answer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use riverrun_schemas::Collection;

/// An index that could not be opened and was moved out of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Whose.
    pub collection: Collection,
    /// `vector` or `keyword`.
    pub kind: &'static str,
    /// What the engine said.
    pub reason: String,
    /// Where it lies now.
    pub kept_at: PathBuf,
}

/// Where the mending is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapState {
    /// It goes on by itself.
    Mending,
    /// It needs somebody.
    Stuck,
}

/// Why a collection is not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// What is wrong with it.
    pub reason: String,
    /// Where the mending is.
    pub state: GapState,
    /// Heard of on the log only: another process mends it.
    pub elsewhere: bool,
}

impl Gap {
    /// For whoever searches meanwhile.
    pub fn note(&self, collection: &Collection) -> String {
        let now = match self.state {
            GapState::Mending => "it is being made again from the log, and until then results may be incomplete",
            GapState::Stuck => "results may be incomplete",
        };
        format!("index_incomplete: {}: {}; {now}", collection.quoted(), self.reason)
    }

    /// What to do about it.
    pub fn fix(&self, collection: &Collection) -> String {
        let Collection { namespace, name } = collection;
        match self.state {
            GapState::Mending => {
                format!("wait for it; riverrun collections check {name} -n {namespace} tells what is missing yet")
            }
            GapState::Stuck => format!("riverrun collections rebuild {name} -n {namespace}"),
        }
    }
}

/// The gaps of this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Gaps(Arc<RwLock<BTreeMap<Collection, Gap>>>);

impl Gaps {
    /// The collection is not whole; what was said of it before is replaced.
    pub fn note(&self, collection: &Collection, gap: Gap) {
        self.0.write().insert(collection.clone(), gap);
    }

    /// The collection is whole.
    pub fn close(&self, collection: &Collection) {
        self.0.write().remove(collection);
    }

    /// What is wrong with a collection; `None` when nothing is.
    pub fn of(&self, collection: &Collection) -> Option<Gap> {
        self.0.read().get(collection).cloned()
    }

    /// All of them.
    pub fn all(&self) -> Vec<(Collection, Gap)> {
        self.0.read().iter().map(|(collection, gap)| (collection.clone(), gap.clone())).collect()
    }
}
