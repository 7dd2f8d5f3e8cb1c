//! The embedded keyword index against a plain map: whatever is written, deleted, committed and lost, in whatever order.

mod common;

use std::collections::BTreeMap;

use common::{chunk, collection, document};
use proptest::prelude::*;
use riverrun_schemas::ChunkId;
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::{KeywordIndex, StoredChunk, Versions};

const SOURCES: [&str; 3] = ["a", "b", "c"];
const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];

#[derive(Debug, Clone)]
enum Step {
    /// Some chunks of a version of a document, which may be there already.
    Write {
        source: usize,
        version: usize,
        ordinals: Vec<i32>,
    },
    Delete {
        source: usize,
        versions: Versions,
    },
    Commit,
    /// The process ends without a word: what was not committed is lost.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let version = || 0..VERSIONS.len();
    let versions = prop_oneof![
        Just(Versions::All),
        version().prop_map(|version| Versions::Only(VERSIONS[version].to_owned())),
        version().prop_map(|version| Versions::Except(VERSIONS[version].to_owned())),
    ];
    let step = prop_oneof![
        4 => (0..SOURCES.len(), version(), prop::collection::vec(0..4, 1..6))
            .prop_map(|(source, version, ordinals)| Step::Write { source, version, ordinals }),
        3 => (0..SOURCES.len(), versions).prop_map(|(source, versions)| Step::Delete { source, versions }),
        2 => Just(Step::Commit),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..24)
}

fn is_meant(chunk: &StoredChunk, source: &str, versions: &Versions) -> bool {
    chunk.source == source
        && match versions {
            Versions::All => true,
            Versions::Only(version) => chunk.version == *version,
            Versions::Except(version) => chunk.version != *version,
        }
}

async fn ids(index: &TantivyIndex) -> Vec<ChunkId> {
    index.ids(&collection("notes"), None, 1_000).await.unwrap().items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_written_deleted_committed_and_lost_then_each_chunk_that_a_map_would_have_is_there_once(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let open = || TantivyIndex::open(TantivyConfig::at(folder.path())).unwrap();
        let notes = collection("notes");
        runtime.block_on(async {
            let mut index = open();
            let (mut written, mut committed) = (BTreeMap::new(), BTreeMap::new());
            for step in steps.into_iter().chain([Step::Commit]) {
                match step {
                    Step::Write { source, version, ordinals } => {
                        let chunks: Vec<_> =
                            ordinals.iter().map(|&ordinal| chunk(SOURCES[source], VERSIONS[version], ordinal, "some words")).collect();
                        written.extend(chunks.iter().map(|chunk| (chunk.chunk_id, chunk.clone())));
                        index.upsert(&notes, chunks).await.unwrap();
                    }
                    Step::Delete { source, versions } => {
                        let found = index.delete_document(&notes, &document(SOURCES[source]), &versions).await.unwrap();
                        let seen = committed.values().filter(|chunk| is_meant(chunk, SOURCES[source], &versions)).count();
                        prop_assert_eq!(found, seen, "what was committed is counted");
                        written.retain(|_, chunk| !is_meant(chunk, SOURCES[source], &versions));
                    }
                    Step::Commit => {
                        index.commit(&notes).await.unwrap();
                        committed.clone_from(&written);
                        prop_assert_eq!(ids(&index).await, committed.keys().copied().collect::<Vec<_>>());
                        prop_assert_eq!(index.count(&notes).await.unwrap(), committed.len());
                    }
                    Step::Crash => {
                        drop(index);
                        index = open();
                        written.clone_from(&committed);
                    }
                }
            }
            Ok(())
        })?;
    }
}
