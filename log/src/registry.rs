//! Where the schemas of records come from: the committed list first, then whatever outside source there is.
//!
//! An id means one thing everywhere (`REGISTRY-1`): an outside registry gets this build's schemas under the ids of the
//! committed list, or the process does not start. What it knows beyond them are schemas of newer builds.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_schemas::codec::WriterSchema;
use riverrun_schemas::{DecodeError, Decoded, EventSet, framing, registry};

use crate::record::Record;

mod client;
mod enrol;
mod error;

pub use client::{Credentials, RegistryConfig, RegistryStatus, SchemaRegistry};
pub use error::RegistryError;

/// Most outside schemas, and most ids without one, that are remembered; beyond it the oldest is asked for again.
const REMEMBERED: usize = 10_000;
/// For so long an id that the source did not know is not asked for again.
const ABSENT_FOR: Duration = Duration::from_secs(30);
/// Pauses between questions to a source that is away; they double.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// A source of schemas beside the committed list, such as a schema registry that newer builds use.
#[async_trait]
pub trait SchemaSource: Send + Sync + 'static {
    /// The schema of that id; `None` when the source has none. An error means that it can't tell now; it comes within seconds.
    async fn schema(&self, id: u32) -> Result<Option<WriterSchema>, RegistryError>;
}

/// Reads records with every schema that this process can find. Clones share what was found.
#[derive(Clone, Default)]
pub struct Schemas {
    outside: Option<Arc<Outside>>,
    registry: Option<SchemaRegistry>,
}

struct Outside {
    source: Box<dyn SchemaSource>,
    known: Mutex<Known>,
    /// One question at a time: what one reader asks others need not.
    asking: tokio::sync::Mutex<()>,
    absent_for: Duration,
}

#[derive(Default)]
struct Known {
    found: HashMap<u32, WriterSchema>,
    found_order: VecDeque<u32>,
    absent: HashMap<u32, Instant>,
}

impl std::fmt::Debug for Schemas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schemas").field("outside", &self.outside.is_some()).finish_non_exhaustive()
    }
}

/// The same source, asked by the same memory.
impl PartialEq for Schemas {
    fn eq(&self, other: &Self) -> bool {
        match (&self.outside, &other.outside) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (mine, theirs) => mine.is_none() && theirs.is_none(),
        }
    }
}

impl Eq for Schemas {}

impl Schemas {
    /// The committed list and nothing else.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// The committed list, then `source`.
    pub fn with_source(source: impl SchemaSource) -> Self {
        Self::remembering(source, ABSENT_FOR)
    }

    /// The committed list, then a registry that has been joined.
    pub(crate) fn with_registry(joined: SchemaRegistry) -> Self {
        Self { registry: Some(joined.clone()), ..Self::with_source(joined) }
    }

    fn remembering(source: impl SchemaSource, absent_for: Duration) -> Self {
        let outside = Outside {
            source: Box::new(source),
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            absent_for,
        };
        Self { outside: Some(Arc::new(outside)), registry: None }
    }

    /// The outside registry, where there is one.
    pub fn registry(&self) -> Option<&SchemaRegistry> {
        self.registry.as_ref()
    }

    /// The event in a record, whose schema is in the committed list or was [asked for](Self::ask) before.
    pub fn decode<E: EventSet>(&self, record: &Record) -> Result<Decoded<E>, DecodeError> {
        record.decode(&|id| self.outside.as_ref()?.known.lock().found.get(&id).cloned())
    }

    /// Whether there is nothing to ask for a record: [`decode`](Self::decode) finds its schema, or nobody has it.
    pub fn is_settled(&self, record: &Record) -> bool {
        self.outside.as_ref().is_none_or(|outside| foreign_id(record).is_none_or(|id| outside.is_settled(id)))
    }

    /// Asks for the schema of a record, where only the outside source can know it. Afterwards [`decode`](Self::decode) finds it,
    /// or nobody has it. Fails, within seconds, while the source can't tell.
    pub async fn ask(&self, record: &Record) -> Result<(), RegistryError> {
        let Some(outside) = &self.outside else { return Ok(()) };
        match foreign_id(record) {
            Some(id) => outside.ask(id).await,
            None => Ok(()),
        }
    }

    /// The same, as often as it takes. Cancel-safe.
    pub async fn settle(&self, record: &Record) {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.ask(record).await {
            tracing::warn!(position = %record.position(), error = %error, "the schema of a record can't be asked for; its reader waits");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}

/// The schema id of a framed record that is not in the committed list.
fn foreign_id(record: &Record) -> Option<u32> {
    let (id, _) = framing::unframe(record.payload.as_deref()?).ok()?;
    registry::by_id(id).is_none().then_some(id)
}

impl Outside {
    async fn ask(&self, id: u32) -> Result<(), RegistryError> {
        if self.is_settled(id) {
            return Ok(());
        }
        let _turn = self.asking.lock().await;
        if self.is_settled(id) {
            return Ok(());
        }
        let found = self.source.schema(id).await?;
        self.known.lock().remember(id, found);
        Ok(())
    }

    fn is_settled(&self, id: u32) -> bool {
        let known = self.known.lock();
        known.found.contains_key(&id) || known.absent.get(&id).is_some_and(|since| since.elapsed() < self.absent_for)
    }
}

impl Known {
    fn remember(&mut self, id: u32, found: Option<WriterSchema>) {
        let Some(schema) = found else {
            if self.absent.len() >= REMEMBERED {
                self.absent.clear();
            }
            self.absent.insert(id, Instant::now());
            return;
        };
        self.absent.remove(&id);
        if self.found.insert(id, schema).is_none() {
            self.found_order.push_back(id);
        }
        if self.found_order.len() > REMEMBERED
            && let Some(oldest) = self.found_order.pop_front()
        {
            self.found.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
