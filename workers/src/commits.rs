//! Group commit: who comes to a collection while somebody else writes to it is made durable together with him.
//!
//! A commit costs the same for a few chunks as for many: files that are synced, threads that are started, segments that are merged
//! again later. Of those who write, the first asks for the commit once he has written; until it is his turn again, all who waited have
//! written too, and his commit is theirs (DeWitt et al., "Implementation Techniques for Main Memory Database Systems", 1984). So is its
//! failure: then all of them begin again (`VEC-2`, `KEY-2`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use riverrun_schemas::Collection;

use crate::turns::{Alone, Turns};

/// The groups, each for as long as somebody writes to its collection.
#[derive(Default)]
pub(crate) struct Commits {
    groups: Mutex<HashMap<Collection, Arc<Group>>>,
}

/// Those who write to a collection, one after the other. The group is alone with the collection from the first write to the commit.
#[derive(Default)]
struct Group {
    state: tokio::sync::Mutex<State>,
    members: AtomicUsize,
}

#[derive(Default)]
struct State {
    alone: Option<Alone>,
    round: Round,
}

/// What is written between two commits: whether it was committed, or lost, once that is known.
type Round = Arc<OnceLock<bool>>;

/// What a member wrote.
pub(crate) struct Written(Round);

/// Somebody who writes, and leaves when this is dropped.
pub(crate) struct Member {
    group: Arc<Group>,
}

/// A member whose turn it is: no other one writes or commits. Whatever the group wrote since its last commit is lost when this is dropped
/// and neither [`Self::wrote`] nor [`Self::committed`] was said.
pub(crate) struct Writing<'a> {
    state: tokio::sync::MutexGuard<'a, State>,
    is_over: bool,
}

/// What has become of what a member wrote.
pub(crate) enum Fate<'a> {
    /// It is still to be committed, with all that others wrote.
    Open(Writing<'a>),
    /// Another member committed it.
    Committed,
    /// Another member failed: it is to be written again.
    Lost,
}

impl Commits {
    /// Joins those who write to the collection.
    pub(crate) fn join(&self, collection: &Collection) -> Member {
        let mut groups = self.groups.lock();
        groups.retain(|_, group| Arc::strong_count(group) > 1);
        let group = groups.entry(collection.clone()).or_default().clone();
        group.members.fetch_add(1, Ordering::AcqRel);
        Member { group }
    }
}

impl Member {
    /// Waits for its turn within the group, and for that of the group with the collection where it has none.
    pub(crate) async fn turn(&self, turns: &Turns, collection: &Collection) -> Writing<'_> {
        let mut state = self.group.state.lock().await;
        if state.alone.is_none() {
            state.alone = Some(turns.of(collection).lock().await);
        }
        Writing { state, is_over: false }
    }

    /// Waits for its turn within the group, which is alone with the collection as long as this is neither committed nor lost.
    pub(crate) async fn fate(&self, written: &Written) -> Fate<'_> {
        let state = self.group.state.lock().await;
        match written.0.get() {
            None => Fate::Open(Writing { state, is_over: false }),
            Some(true) => Fate::Committed,
            Some(false) => Fate::Lost,
        }
    }
}

impl Drop for Member {
    /// Who was asked to stop between writing and commit must not keep the collection from others. What he wrote is written again, by
    /// whoever gets his records.
    fn drop(&mut self) {
        let was_last = self.group.members.fetch_sub(1, Ordering::AcqRel) == 1;
        // Where somebody is at it, he joined after this was the last one, and sees to it.
        if was_last && let Ok(mut state) = self.group.state.try_lock() {
            state.alone = None;
        }
    }
}

impl Writing<'_> {
    /// Says that it has written, and lets the next one write.
    pub(crate) fn wrote(mut self) -> Written {
        self.is_over = true;
        Written(self.state.round.clone())
    }

    /// Says that everything written so far is committed; the group is not alone with the collection any more.
    pub(crate) fn committed(mut self) {
        self.end(true);
    }

    fn end(&mut self, is_committed: bool) {
        self.is_over = true;
        let round = std::mem::take(&mut self.state.round);
        // It is new since the last end.
        let _ = round.set(is_committed);
        self.state.alone = None;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn notes() -> Collection {
        Collection::new("default".parse().unwrap(), "notes".parse().unwrap())
    }

    fn is_free(turns: &Turns) -> bool {
        turns.of(&notes()).lock().now_or_never().is_some()
    }

    #[tokio::test]
    async fn given_some_who_wait_while_one_writes_when_he_asks_for_the_commit_then_it_is_for_all_of_them() {
        let (commits, turns) = (Commits::default(), Turns::default());
        let (members, turns) = ([(); 3].map(|()| commits.join(&notes())), &turns);
        let first = members[0].turn(turns, &notes()).await;
        let mut waiting = [&members[1], &members[2]].map(|member| {
            Box::pin(async move {
                let written = member.turn(turns, &notes()).await.wrote();
                matches!(member.fate(&written).await, Fate::Committed)
            })
        });
        assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()), "the first is still writing");
        let written = first.wrote();
        let mut fate = Box::pin(members[0].fate(&written));
        assert!(fate.as_mut().now_or_never().is_none(), "those who waited write before");
        assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()), "they wrote, and wait");
        let Some(Fate::Open(writing)) = fate.now_or_never() else { panic!("its turn has come") };
        assert!(!is_free(turns), "nobody else is at the collection before the commit");
        writing.committed();
        for one in waiting {
            assert_eq!(one.now_or_never(), Some(true), "it was committed with the first");
        }
        assert!(is_free(turns));
    }

    #[tokio::test]
    async fn given_a_write_or_a_commit_that_fails_when_others_wrote_before_then_they_begin_again_and_later_ones_do_not()
    {
        let (commits, turns) = (Commits::default(), Turns::default());
        let [early, failing, late] = [(); 3].map(|()| commits.join(&notes()));
        for at_commit in [false, true] {
            let written = early.turn(&turns, &notes()).await.wrote();
            let turn = failing.turn(&turns, &notes()).await;
            if at_commit {
                let own = turn.wrote();
                assert!(matches!(failing.fate(&own).await, Fate::Open(_)), "and is dropped, not committed");
            } else {
                drop(turn);
            }
            assert!(is_free(&turns));
            let after = late.turn(&turns, &notes()).await.wrote();
            let Fate::Open(writing) = late.fate(&after).await else { panic!("nobody committed") };
            writing.committed();
            assert!(matches!(early.fate(&written).await, Fate::Lost), "a later commit has nothing of it");
            assert!(matches!(late.fate(&after).await, Fate::Committed));
        }
    }

    #[tokio::test]
    async fn given_one_who_leaves_between_writing_and_commit_then_the_collection_is_free_once_no_other_writes() {
        let (commits, turns) = (Commits::default(), Turns::default());
        let (first, second) = (commits.join(&notes()), commits.join(&notes()));
        first.turn(&turns, &notes()).await.wrote();
        second.turn(&turns, &notes()).await.wrote();
        drop(first);
        assert!(!is_free(&turns), "what the other one wrote is not committed");
        drop(second);
        assert!(is_free(&turns));
    }
}
