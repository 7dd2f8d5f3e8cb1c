//! The groups of this broker: looking them up, and letting time pass for them.

pub(crate) mod attendance;
pub(crate) mod expiry;
pub(crate) mod group;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use group::{Group, Life, Phase, Roster};

/// All groups that have or had members since the start.
pub(crate) struct Groups {
    life: Life,
    cells: Mutex<HashMap<String, Arc<Cell>>>,
    changes: mpsc::UnboundedSender<Change>,
}

/// A group has other members to remember.
#[derive(Debug)]
pub(crate) struct Change {
    /// Its id.
    pub group: String,
    /// Those that it has now.
    pub roster: Roster,
    /// Whether there are none; one with too many to be remembered has members all the same.
    pub is_empty: bool,
}

struct Cell {
    id: String,
    changes: mpsc::UnboundedSender<Change>,
    group: Mutex<Group>,
    timer: Mutex<Timer>,
    changed: Notify,
}

impl Cell {
    /// Tells what is to be remembered. Under the group's lock, so that it is told in the order in which it came about.
    fn tell(&self, group: &mut Group) {
        if let Some(roster) = group.take_change() {
            let is_empty = matches!(group.phase(), Phase::Empty | Phase::Dead);
            let change = Change { group: self.id.clone(), roster, is_empty };
            let _ = self.changes.send(change); // nobody listens while the broker stops
        }
    }
}

/// When the group's timer task wakes; none while there is no such task.
#[derive(Default)]
struct Timer {
    wakes_at: Option<Instant>,
}

impl Groups {
    /// No groups; what is to be remembered of those that come is told to `changes`.
    pub(crate) fn new(changes: mpsc::UnboundedSender<Change>) -> Self {
        Self { life: Life::begin(), cells: Mutex::default(), changes }
    }

    /// Puts back what was remembered before a start.
    pub(crate) fn restore(&self, rosters: impl IntoIterator<Item = (String, Roster)>) {
        for (id, roster) in rosters {
            let group = Group::restored(self.life, roster, Instant::now());
            let deadline = group.next_deadline();
            let cell = self.cell(&id, group);
            self.cells.lock().insert(id, cell.clone());
            keep_time(&cell, deadline);
        }
    }

    fn cell(&self, id: &str, group: Group) -> Arc<Cell> {
        Arc::new(Cell {
            id: id.to_owned(),
            changes: self.changes.clone(),
            group: Mutex::new(group),
            timer: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A member id that was never given out.
    pub(crate) fn new_member_id(&self, prefix: &str) -> String {
        self.life.new_member_id(prefix)
    }

    /// Whether this start of the broker gave out the member id.
    pub(crate) fn gave(&self, member_id: &str) -> bool {
        self.life.gave(member_id)
    }

    /// Runs a transition of a group, which comes into being if need be.
    pub(crate) fn with<T>(&self, id: &str, mut transition: impl FnMut(&mut Group, Instant) -> T) -> T {
        loop {
            let new = || self.cell(id, Group::within(self.life));
            let cell = self.cells.lock().entry(id.to_owned()).or_insert_with(new).clone();
            let mut group = cell.group.lock();
            if group.phase() == Phase::Dead {
                // Locks are taken in the order cells, group.
                drop(group);
                self.cells.lock().retain(|_, other| !Arc::ptr_eq(other, &cell));
                continue;
            }
            let now = Instant::now();
            let result = transition(&mut group, now);
            cell.tell(&mut group);
            let deadline = group.next_deadline();
            drop(group);
            keep_time(&cell, deadline);
            return result;
        }
    }

    /// Looks at a group without creating it.
    pub(crate) fn peek<T>(&self, id: &str, look: impl FnOnce(&mut Group, Instant) -> T) -> Option<T> {
        let cell = self.cells.lock().get(id)?.clone();
        let mut group = cell.group.lock();
        if group.phase() == Phase::Dead {
            return None;
        }
        let now = Instant::now();
        let result = look(&mut group, now);
        cell.tell(&mut group);
        let deadline = group.next_deadline();
        drop(group);
        keep_time(&cell, deadline);
        Some(result)
    }

    /// Ids of the groups known here.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.cells.lock().keys().cloned().collect()
    }

    /// Takes a group away.
    pub(crate) fn remove(&self, id: &str) {
        if let Some(cell) = self.cells.lock().remove(id) {
            cell.group.lock().kill();
            cell.changed.notify_one();
        }
    }

    /// Drops the memory of groups without members for which `keep` says no.
    pub(crate) fn drop_empty(&self, keep: impl Fn(&str) -> bool) {
        self.cells.lock().retain(|id, cell| {
            let mut group = cell.group.lock();
            let idle = group.phase() == Phase::Empty && group.next_deadline().is_none();
            if idle && !keep(id) {
                group.kill();
                return false;
            }
            true
        });
    }
}

/// Sees to it that a timer task wakes at `deadline`. A task that would wake earlier is left alone: it looks again by itself.
fn keep_time(cell: &Arc<Cell>, deadline: Option<Instant>) {
    let Some(deadline) = deadline else { return };
    let mut timer = cell.timer.lock();
    match timer.wakes_at {
        None => {
            timer.wakes_at = Some(deadline);
            drop(timer);
            tokio::spawn(run_timer(cell.clone()));
        }
        Some(wakes_at) if deadline < wakes_at => cell.changed.notify_one(),
        Some(_) => {}
    }
}

async fn run_timer(cell: Arc<Cell>) {
    loop {
        let deadline = {
            let mut group = cell.group.lock();
            group.tick(Instant::now());
            cell.tell(&mut group);
            let deadline = group.next_deadline();
            // Set under the group's lock, so that no transition slips in between.
            cell.timer.lock().wakes_at = deadline;
            deadline
        };
        let Some(deadline) = deadline else { return };
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => {}
            () = cell.changed.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests;
