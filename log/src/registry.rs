//! Where the schemas of records come from: the committed list first, then whatever outside source there is.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_schemas::codec::WriterSchema;
use riverrun_schemas::{DecodeError, Decoded, EventSet};

use crate::record::Record;

/// Most outside schemas that are remembered; beyond it the source is asked again.
const REMEMBERED: usize = 10_000;

/// A source of schemas beside the committed list, such as a schema registry of newer builds.
pub trait SchemaSource: Send + Sync + 'static {
    /// The schema of that id; `None` when the source does not know it. May block.
    fn schema(&self, id: u32) -> Option<WriterSchema>;
}

/// Reads records with every schema that this process can find. Clones share what was found.
#[derive(Clone, Default)]
pub struct Schemas {
    outside: Option<Arc<dyn SchemaSource>>,
    found: Arc<Mutex<HashMap<u32, WriterSchema>>>,
}

impl std::fmt::Debug for Schemas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schemas").field("outside", &self.outside.is_some()).finish_non_exhaustive()
    }
}

impl Schemas {
    /// The committed list and nothing else.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// The committed list, then `source`.
    pub fn with_source(source: Arc<dyn SchemaSource>) -> Self {
        Self { outside: Some(source), found: Arc::default() }
    }

    /// The event in a record.
    pub fn decode<E: EventSet>(&self, record: &Record) -> Result<Decoded<E>, DecodeError> {
        record.decode(&|id| self.look_up(id))
    }

    fn look_up(&self, id: u32) -> Option<WriterSchema> {
        let outside = self.outside.as_ref()?;
        if let Some(schema) = self.found.lock().get(&id) {
            return Some(schema.clone());
        }
        let schema = outside.schema(id)?;
        let mut found = self.found.lock();
        if found.len() >= REMEMBERED {
            found.clear();
        }
        found.insert(id, schema.clone());
        Some(schema)
    }
}
