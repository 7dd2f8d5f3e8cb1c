//! Things that are costly to keep open, one a folder: opened when first used, the least recently used closed when there
//! are too many.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

type Slot<T> = Arc<RwLock<Option<T>>>;

struct Entry<T> {
    slot: Slot<T>,
    used: u64,
}

struct Entries<T> {
    by_name: HashMap<String, Entry<T>>,
    clock: u64,
}

/// What can be closed when others need its place.
pub(crate) trait Closable {
    /// Closing it loses nothing that somebody still means to make durable.
    fn may_close(&self) -> bool;
}

/// At most `max_open` open things, those that may not be closed apart, of one kind, by name. Calls
/// block: use it from blocking threads only.
pub(crate) struct OpenSet<T> {
    max_open: usize,
    entries: Mutex<Entries<T>>,
}

impl<T: Closable> OpenSet<T> {
    pub(crate) fn new(max_open: usize) -> Self {
        Self { max_open: max_open.max(1), entries: Mutex::new(Entries { by_name: HashMap::new(), clock: 0 }) }
    }

    /// Uses the thing beside other readers, opening it first if need be. Does not wait behind waiting writers.
    pub(crate) fn read<R, E>(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<T, E>,
        work: impl FnOnce(&T) -> Result<R, E>,
    ) -> Result<R, E> {
        let slot = self.slot(name);
        let guard = slot.read_recursive();
        if let Some(thing) = guard.as_ref() {
            return work(thing);
        }
        drop(guard);
        let mut guard = slot.write();
        if guard.is_none() {
            *guard = Some(open()?);
        }
        let guard = RwLockWriteGuard::downgrade(guard);
        let result = match guard.as_ref() {
            Some(thing) => work(thing),
            None => unreachable!("filled above, and the lock was held since"),
        };
        drop(guard);
        self.close_surplus(name);
        result
    }

    /// Looks at the thing without waiting; `None` where it is not open, or somebody uses it alone.
    pub(crate) fn glance<R>(&self, name: &str, look: impl FnOnce(&T) -> R) -> Option<R> {
        let slot = self.entries.lock().by_name.get(name)?.slot.clone();
        let guard = slot.try_read_recursive()?;
        guard.as_ref().map(look)
    }

    /// Uses the thing alone, opening it first if need be. A panic in `work` closes the thing and is passed on.
    pub(crate) fn write<R, E>(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<T, E>,
        work: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        let slot = self.slot(name);
        let mut guard = slot.write();
        let fresh = guard.is_none();
        let thing = match guard.as_mut() {
            Some(thing) => thing,
            None => guard.insert(open()?),
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| work(thing)));
        let result = match outcome {
            Ok(result) => result,
            Err(panic) => {
                // What a panic left behind is not trusted: the next use opens what is on disk. Closing may panic again.
                let left = guard.take();
                let _ = catch_unwind(AssertUnwindSafe(|| drop(left)));
                drop(guard);
                std::panic::resume_unwind(panic);
            }
        };
        drop(guard);
        if fresh {
            self.close_surplus(name);
        }
        result
    }

    /// Closes the thing if it is open and keeps everybody out while `then` runs.
    pub(crate) fn closed<R>(&self, name: &str, then: impl FnOnce() -> R) -> R {
        let slot = self.slot(name);
        let mut guard = slot.write();
        drop(guard.take());
        let result = then();
        drop(guard);
        self.entries.lock().by_name.remove_if_unused(name, &slot);
        result
    }

    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.entries.lock().by_name.values().filter(|entry| entry.slot.read().is_some()).count()
    }

    fn slot(&self, name: &str) -> Slot<T> {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let used = entries.clock;
        let entry =
            entries.by_name.entry(name.to_owned()).or_insert_with(|| Entry { slot: Arc::new(RwLock::new(None)), used });
        entry.used = used;
        entry.slot.clone()
    }

    /// Closes the least recently used ones that nobody uses right now.
    fn close_surplus(&self, keep: &str) {
        loop {
            let oldest = {
                let entries = self.entries.lock();
                if entries.by_name.len() <= self.max_open {
                    return;
                }
                let unused = |entry: &Entry<T>| {
                    Arc::strong_count(&entry.slot) == 1
                        && entry.slot.try_read().is_some_and(|thing| thing.as_ref().is_none_or(Closable::may_close))
                };
                let idle = entries.by_name.iter().filter(|(name, entry)| name.as_str() != keep && unused(entry));
                idle.min_by_key(|(_, entry)| entry.used).map(|(name, entry)| (name.clone(), entry.slot.clone()))
            };
            let Some((name, slot)) = oldest else { return };
            // Under the slot's own lock, so that nobody opens the folder a second time before it is closed.
            let mut guard = slot.write();
            if guard.as_ref().is_some_and(|thing| !thing.may_close()) {
                return; // somebody began to write to it meanwhile; the next use closes what is too many
            }
            drop(guard.take());
            drop(guard);
            self.entries.lock().by_name.remove_if_unused(&name, &slot);
        }
    }
}

trait RemoveIfUnused<T> {
    fn remove_if_unused(&mut self, name: &str, slot: &Slot<T>);
}

impl<T> RemoveIfUnused<T> for HashMap<String, Entry<T>> {
    /// Forgets a slot that only the map and the caller hold; whoever took it meanwhile goes on with it.
    fn remove_if_unused(&mut self, name: &str, slot: &Slot<T>) {
        if self.get(name).is_some_and(|entry| Arc::ptr_eq(&entry.slot, slot) && Arc::strong_count(slot) == 2) {
            self.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    impl Closable for String {
        fn may_close(&self) -> bool {
            !self.starts_with("dirty")
        }
    }

    impl Closable for Arc<AtomicUsize> {
        fn may_close(&self) -> bool {
            true
        }
    }

    impl Closable for u32 {
        fn may_close(&self) -> bool {
            true
        }
    }

    #[test]
    fn given_things_that_may_not_be_closed_then_they_stay_open() {
        let set = OpenSet::<String>::new(1);
        for name in ["dirty1", "a", "dirty2", "b", "c"] {
            set.read(name, || Ok::<_, Infallible>(name.to_owned()), |_| Ok(())).unwrap();
        }
        let is_open = |name: &str| set.slot(name).read().is_some();
        assert!(is_open("dirty1") && is_open("dirty2") && !is_open("a"));
    }

    #[test]
    fn given_more_names_than_places_then_the_least_recently_used_is_closed() {
        let set = OpenSet::<String>::new(2);
        let opened = AtomicUsize::new(0);
        let touch = |name: &str| {
            let open = || {
                opened.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Infallible>(name.to_owned())
            };
            let found = set.read(name, open, |thing| Ok(thing.clone())).unwrap();
            assert_eq!(found, name);
        };
        for name in ["a", "b", "a", "c"] {
            touch(name);
        }
        assert_eq!((opened.load(Ordering::SeqCst), set.open_count()), (3, 2));
        touch("a");
        assert_eq!(opened.load(Ordering::SeqCst), 3, "a was used after b, so b had to go");
        touch("b");
        assert_eq!(opened.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn given_many_threads_then_a_name_is_never_open_twice() {
        let set = Arc::new(OpenSet::<Arc<AtomicUsize>>::new(1));
        let live: Vec<Arc<AtomicUsize>> = (0..3).map(|_| Arc::new(AtomicUsize::new(0))).collect();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (set, live) = (set.clone(), live.clone());
                scope.spawn(move || {
                    for round in 0..300 {
                        let which = (worker + round) % 3;
                        let counter = live[which].clone();
                        let open = || Ok::<_, Infallible>(counter.clone());
                        set.write(&which.to_string(), open, |thing| {
                            assert_eq!(thing.fetch_add(1, Ordering::SeqCst), 0);
                            thing.fetch_sub(1, Ordering::SeqCst);
                            Ok(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert!(set.open_count() <= 1 + 4);
    }

    #[test]
    fn given_a_panic_while_writing_then_the_next_use_opens_anew() {
        let set = OpenSet::<u32>::new(2);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            set.write("a", || Ok::<_, Infallible>(1), |_| -> Result<(), Infallible> { panic!("on purpose") })
        }));
        assert!(panicked.is_err());
        assert_eq!(set.read("a", || Ok::<_, Infallible>(2), |n| Ok(*n)), Ok(2));
    }
}
