//! What becomes of a blob. Pure.

use std::collections::HashSet;

use riverrun_log::blobs::KeptBlob;

use super::hash::{self, Hash};

/// What a sweep does with what lies in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Something that lives names it.
    Stays,
    /// Nothing names it, and it may be that this is only not written down yet.
    Waits,
    /// Nothing has named it for long: it goes out of its place.
    GoesAside,
    /// Something names what was set aside.
    ComesBack,
    /// It was set aside for long and is not missed.
    Goes,
}

/// What is known when fates are decided.
#[derive(Debug)]
pub(super) struct Known {
    /// What is named by something that lives.
    pub(super) living: HashSet<Hash>,
    /// What lies in its place.
    pub(super) in_place: HashSet<Hash>,
    /// What is younger waits; in milliseconds since the epoch.
    pub(super) before_ms: i64,
}

impl Known {
    pub(super) fn new(kept: &[KeptBlob], living: HashSet<Hash>, before_ms: i64) -> Self {
        let in_place = kept.iter().filter(|kept| !kept.aside).filter_map(|kept| hash::parse(&kept.sha256)).collect();
        Self { living, in_place, before_ms }
    }

    /// What becomes of one. What is under no hash stays.
    pub(super) fn fate(&self, kept: &KeptBlob) -> Fate {
        let Some(hash) = hash::parse(&kept.sha256) else { return Fate::Stays };
        let (old, lives) = (kept.since_ms <= self.before_ms, self.living.contains(&hash));
        match (kept.aside, lives) {
            (false, true) => Fate::Stays,
            (false, false) => {
                if old {
                    Fate::GoesAside
                } else {
                    Fate::Waits
                }
            }
            (true, true) if !self.in_place.contains(&hash) => Fate::ComesBack,
            // Nobody wants it, or the same content has been put again since.
            (true, _) => {
                if old {
                    Fate::Goes
                } else {
                    Fate::Waits
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(which: u8, since_ms: i64, aside: bool) -> KeptBlob {
        KeptBlob { sha256: format!("{which:064x}"), size_bytes: 1, since_ms, aside }
    }

    fn hash(which: u8) -> Hash {
        hash::parse(&format!("{which:064x}")).unwrap()
    }

    proptest! {
        #[test]
        fn given_any_store_when_fates_are_decided_then_what_is_named_is_in_its_place_and_what_is_young_is_not_touched(
            store in prop::collection::vec((0u8..6, 0i64..10, any::<bool>()), 0..20),
            named in prop::collection::hash_set(0u8..6, 0..6),
            before in 0i64..10,
        ) {
            let store: Vec<KeptBlob> = store.into_iter().map(|(which, since, aside)| kept(which, since, aside)).collect();
            let known = Known::new(&store, named.iter().map(|which| hash(*which)).collect(), before);
            let mut left: HashSet<Hash> = HashSet::new();
            for blob in &store {
                let (fate, name) = (known.fate(blob), hash::parse(&blob.sha256).unwrap());
                match fate {
                    Fate::GoesAside => prop_assert!(!blob.aside && blob.since_ms <= before && !known.living.contains(&name)),
                    // What goes for ever was set aside long ago, and is not the last of a blob that is named.
                    Fate::Goes => prop_assert!(blob.aside && blob.since_ms <= before),
                    Fate::ComesBack => prop_assert!(blob.aside && known.living.contains(&name)),
                    Fate::Stays => prop_assert!(!blob.aside),
                    Fate::Waits => {}
                }
                if matches!(fate, Fate::Stays | Fate::ComesBack) || (fate == Fate::Waits && !blob.aside) {
                    left.insert(name);
                }
            }
            for blob in &store {
                let name = hash::parse(&blob.sha256).unwrap();
                prop_assert!(left.contains(&name) || !known.living.contains(&name), "{} is named and not in its place", blob.sha256);
            }
        }
    }

    #[test]
    fn given_a_blob_that_nothing_names_when_it_is_swept_again_and_again_then_it_goes_in_two_steps_with_time_between() {
        let fate =
            |blob: KeptBlob, before: i64| Known::new(std::slice::from_ref(&blob), HashSet::new(), before).fate(&blob);
        assert_eq!(fate(kept(1, 5, false), 4), Fate::Waits);
        assert_eq!(fate(kept(1, 5, false), 5), Fate::GoesAside);
        assert_eq!(fate(kept(1, 9, true), 8), Fate::Waits);
        assert_eq!(fate(kept(1, 9, true), 9), Fate::Goes);
    }
}
