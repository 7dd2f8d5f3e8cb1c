//! The committed list of schemas (`schemas/registry.toml`): which id means which schema, for ever. The API answers the
//! read endpoints of a Confluent-compatible registry from it, so that stock deserializers work without one.

use std::collections::HashMap;
use std::sync::LazyLock;

use apache_avro::Schema;
use serde::Deserialize;

use crate::topics::Topic;

mod files {
    include!(concat!(env!("OUT_DIR"), "/schema_files.rs"));
}

/// One version of one schema.
#[derive(Debug, Clone)]
pub struct RegisteredSchema {
    /// The id in the wire format.
    pub id: u32,
    /// The topic it is written on.
    pub topic: Topic,
    /// Full name of the record, for example `riverrun.agent.RunAccepted`.
    pub record: String,
    /// Counts from 1 within the subject.
    pub version: u32,
    /// Where it is stored, from this crate's folder on.
    pub file: String,
    /// SHA-256 of the stored file when it was listed, in hex: a stored schema is never edited.
    pub sha256: String,
    /// The `.avsc` text, byte for byte.
    pub text: &'static str,
    /// The same, parsed.
    pub schema: Schema,
}

impl RegisteredSchema {
    /// Subject by the topic-record name strategy: `<topic>-<record>`.
    pub fn subject(&self) -> String {
        format!("{}-{}", self.topic.name(), self.record)
    }

    /// Whether bytes written with `text` are those written with this schema: their parsing canonical forms are one, in which
    /// neither layout nor documentation nor defaults count.
    pub fn is_same(&self, text: &str) -> bool {
        Schema::parse_str(text).is_ok_and(|other| other.canonical_form() == self.schema.canonical_form())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: u32,
    topic: String,
    record: String,
    version: u32,
    file: String,
    sha256: String,
}

#[derive(Deserialize)]
struct List {
    schema: Vec<Entry>,
}

struct Registry {
    by_id: HashMap<u32, &'static RegisteredSchema>,
    newest: HashMap<(Topic, &'static str), &'static RegisteredSchema>,
    all: &'static [RegisteredSchema],
}

fn load() -> Registry {
    let proven = "registry.toml is checked by a test";
    let list: List = toml::from_str(files::REGISTRY).unwrap_or_else(|error| unreachable!("{proven}: {error}"));
    let all: Vec<RegisteredSchema> = list
        .schema
        .into_iter()
        .map(|entry| {
            let text = files::FILES
                .iter()
                .find(|(name, _)| *name == entry.file)
                .map(|(_, text)| *text)
                .unwrap_or_else(|| unreachable!("{proven}: {} is missing", entry.file));
            RegisteredSchema {
                id: entry.id,
                topic: Topic::by_name(&entry.topic).unwrap_or_else(|| unreachable!("{proven}: {}", entry.topic)),
                record: entry.record,
                version: entry.version,
                text,
                schema: Schema::parse_str(text)
                    .unwrap_or_else(|error| unreachable!("{proven}: {}: {error}", entry.file)),
                file: entry.file,
                sha256: entry.sha256,
            }
        })
        .collect();
    let all: &'static [RegisteredSchema] = Vec::leak(all); // lives as long as the process, like the constants it is made of
    let mut newest: HashMap<(Topic, &'static str), &'static RegisteredSchema> = HashMap::new();
    for schema in all {
        let slot = newest.entry((schema.topic, schema.record.as_str())).or_insert(schema);
        if slot.version < schema.version {
            *slot = schema;
        }
    }
    Registry { by_id: all.iter().map(|schema| (schema.id, schema)).collect(), newest, all }
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(load);

/// The schema of that id.
pub fn by_id(id: u32) -> Option<&'static RegisteredSchema> {
    REGISTRY.by_id.get(&id).copied()
}

/// The newest version of a record on a topic: what this build writes.
pub fn newest(topic: Topic, record: &str) -> Option<&'static RegisteredSchema> {
    // The key's lifetime is that of the process; look up by value instead of asking callers for a static string.
    REGISTRY.newest.iter().find(|((t, r), _)| *t == topic && *r == record).map(|(_, schema)| *schema)
}

/// Every `.avsc` file that is stored, listed or not.
pub fn files() -> impl Iterator<Item = &'static str> {
    files::FILES.iter().map(|(name, _)| *name)
}

/// Every schema, by id.
pub fn all() -> &'static [RegisteredSchema] {
    REGISTRY.all
}

/// Every version of a subject, oldest first; empty when there is no such subject.
pub fn versions(subject: &str) -> Vec<&'static RegisteredSchema> {
    let mut found: Vec<_> = all().iter().filter(|schema| schema.subject() == subject).collect();
    found.sort_by_key(|schema| schema.version);
    found
}
