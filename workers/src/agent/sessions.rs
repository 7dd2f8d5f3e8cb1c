//! Whose turn it is in a session. No I/O.
//!
//! All runs of a session lie in one partition when their ids are drawn for it (`riverrun_log::partition_of`), so that the
//! order of their acceptances is the order of their turns for every process alike.

use std::collections::{HashMap, VecDeque};

use riverrun_schemas::agent::{RunFinished, RunRequest};
use riverrun_schemas::memory::{TurnRole, run_turn_id};
use riverrun_schemas::{Namespace, RunId, TurnId};

/// Sessions whose last end is remembered: what a run says takes a moment until the next one can read it, and no longer.
const MAX_ENDS: usize = 10_000;

/// A session within its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    namespace: Namespace,
    session: String,
}

impl SessionKey {
    pub(super) fn of(request: &RunRequest) -> Option<Self> {
        let session = request.session.clone()?;
        Some(Self { namespace: request.namespace.clone(), session })
    }
}

/// The open runs of each session, oldest first.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    lines: HashMap<SessionKey, VecDeque<RunId>>,
    /// The last turn of the run that ended last.
    last_turns: HashMap<SessionKey, TurnId>,
    /// Of those, the oldest first.
    ends: VecDeque<SessionKey>,
}

impl Sessions {
    /// Puts a run at the end of its session's line, once; gives those before it.
    pub(super) fn join(&mut self, session: SessionKey, run: RunId) -> Vec<RunId> {
        let line = self.lines.entry(session).or_default();
        let place = line.iter().position(|other| *other == run).unwrap_or_else(|| {
            line.push_back(run);
            line.len() - 1
        });
        line.iter().take(place).copied().collect()
    }

    /// The run will never be: nobody waits for it.
    pub(super) fn forget(&mut self, run: &RunId) {
        self.lines.values_mut().for_each(|line| line.retain(|other| other != run));
        self.lines.retain(|_, line| !line.is_empty());
    }

    /// A run of the session has ended: its answer is its last turn in the conversation, or else its task.
    pub(super) fn ended(&mut self, session: &SessionKey, finished: &RunFinished) {
        let answered = finished.answer.as_deref().is_some_and(|answer| !answer.trim().is_empty());
        let role = if answered { TurnRole::Assistant } else { TurnRole::User };
        if self.last_turns.insert(session.clone(), run_turn_id(finished.run_id, role)).is_none() {
            self.ends.push_back(session.clone());
        }
        while self.ends.len() > MAX_ENDS {
            if let Some(oldest) = self.ends.pop_front() {
                self.last_turns.remove(&oldest);
            }
        }
    }

    /// The last turn of the run that ended last in the session, as far as is known.
    pub(super) fn last_turn(&self, session: &SessionKey) -> Option<TurnId> {
        self.last_turns.get(session).copied()
    }

    /// Whether it is the run's turn.
    pub(super) fn is_first(&self, session: &SessionKey, run: &RunId) -> bool {
        self.lines.get(session).is_none_or(|line| line.front() == Some(run))
    }

    /// The run has ended; gives the next one, when it was this one's turn.
    pub(super) fn leave(&mut self, session: &SessionKey, run: &RunId) -> Option<RunId> {
        let line = self.lines.get_mut(session)?;
        let was_first = line.front() == Some(run);
        line.retain(|other| other != run);
        let next = line.front().copied();
        if next.is_none() {
            self.lines.remove(session);
        }
        next.filter(|_| was_first)
    }
}
