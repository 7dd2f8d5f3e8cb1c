//! Which judgements and matrices tunings still have: what those who search read ([`riverrun_stores::read_models::tunings`]). Judgements
//! are kept until their tuning has ended; the matrix of a collection until one that was begun later has ended, or the collection. Of a
//! request the first success counts, and of a removal the first word of it, however often it is told; what was begun before its collection
//! was removed is none of the next one.

use std::collections::HashMap;

use riverrun_schemas::ingest::{CollectionTuneFailed, CollectionTuned, CollectionTuning, CollectionWithdrawn};
use riverrun_schemas::{Collection, IngestId};

use super::hash::Hash;

/// The tunings of a log. Those of a collection lie in different partitions, which are read one after the other: nothing depends on their
/// order. Pure.
#[derive(Debug, Clone, Default)]
pub(super) struct Tunings {
    judgements: HashMap<IngestId, Vec<Hash>>,
    /// When those began that have not ended well, and whether they have failed since.
    begun: HashMap<IngestId, (i64, bool)>,
    /// Those that ended well, by their requests.
    ended: HashMap<IngestId, Ended>,
    /// The removals of collections, by their requests, and when each was done first.
    removals: HashMap<IngestId, (Collection, i64)>,
}

#[derive(Debug, Clone)]
struct Ended {
    collection: Collection,
    begun: i64,
    /// The matrix; none where searches are as without.
    names: Vec<Hash>,
}

impl Tunings {
    pub(super) fn asked(&mut self, request: IngestId, names: Vec<Hash>) {
        self.judgements.entry(request).or_default().extend(names);
    }

    pub(super) fn begun(&mut self, event: &CollectionTuning) {
        let begun = self.begun.entry(event.ingest_id).or_insert((event.at, false));
        if begun.1 {
            *begun = (event.at, false);
        }
    }

    pub(super) fn tuned(&mut self, event: &CollectionTuned, names: Vec<Hash>) {
        self.judgements.remove(&event.ingest_id);
        let begun = self.begun.remove(&event.ingest_id).map_or(event.at, |(begun, _)| begun);
        let collection = Collection::new(event.namespace.clone(), event.collection.clone());
        self.ended.entry(event.ingest_id).or_insert(Ended { collection, begun, names });
    }

    /// One that may be handed in again from its dead letter is named by that.
    pub(super) fn failed(&mut self, event: &CollectionTuneFailed) {
        self.judgements.remove(&event.ingest_id);
        self.begun.entry(event.ingest_id).or_insert((event.at, true)).1 = true;
    }

    pub(super) fn removed(&mut self, event: &CollectionWithdrawn) {
        let collection = Collection::new(event.namespace.clone(), event.collection.clone());
        self.removals.entry(event.ingest_id).or_insert((collection, event.at));
    }

    /// What is still named. Of tunings that were begun at the same moment all are.
    pub(super) fn living(self) -> impl Iterator<Item = Hash> {
        let Self { judgements, ended, removals, .. } = self;
        let mut removed: HashMap<Collection, i64> = HashMap::new();
        for (collection, at) in removals.into_values() {
            let last = removed.entry(collection).or_insert(at);
            *last = (*last).max(at);
        }
        let mut last: HashMap<Collection, (i64, Vec<Hash>)> = HashMap::new();
        let counts = |ended: &Ended| removed.get(&ended.collection).is_none_or(|removed| ended.begun >= *removed);
        for Ended { collection, begun, names } in ended.into_values().filter(counts) {
            let of = last.entry(collection).or_insert((begun, Vec::new()));
            if begun > of.0 {
                *of = (begun, names);
            } else if begun == of.0 {
                of.1.extend(names);
            }
        }
        judgements.into_values().flatten().chain(last.into_values().flat_map(|(_, names)| names))
    }
}
