//! Who has asked to join groups over a connection, so that the groups hear of its end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Groups;

/// Members of one connection, at most; a client has one or a few. Of more the first are missed when their sessions end.
const MAX_NOTED: usize = 1_000;

/// Numbers connections; no member of an earlier start has one of these.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// The members of a connection.
#[derive(Debug)]
pub(crate) struct Attendance {
    connection: u64,
    /// Group and member id.
    members: Mutex<VecDeque<(String, String)>>,
}

impl Default for Attendance {
    fn default() -> Self {
        Self { connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed), members: Mutex::default() }
    }
}

impl Attendance {
    /// The connection's number.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// A member has asked to join.
    pub(crate) fn note(&self, group: &str, member_id: &str) {
        let mut members = self.members.lock();
        if members.iter().any(|(of, id)| of == group && id == member_id) {
            return;
        }
        if members.len() == MAX_NOTED {
            members.pop_front();
        }
        members.push_back((group.to_owned(), member_id.to_owned()));
    }

    /// The connection has ended.
    pub(crate) fn end(&self, groups: &Groups) {
        let members = std::mem::take(&mut *self.members.lock());
        for (group, member_id) in members {
            groups.peek(&group, |group, now| group.hang_up(now, &member_id, self.connection));
        }
    }
}
