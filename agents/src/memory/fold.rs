//! A conversation, folded from its events: what workers decide from. The tables are folded by the same rules
//! (`stores::read_models::memory`), and a test holds the two together.

use std::collections::{BTreeMap, HashMap, HashSet};

use riverrun_schemas::memory::{MemoryEvent, MemoryForgotten, SummaryWritten, TurnRecorded, TurnRole};
use riverrun_schemas::{EpisodeId, Session, SummaryId, TurnId};

/// An exchange is ended after so many turns, whoever speaks.
const MAX_EXCHANGE_TURNS: i64 = 20;

/// A turn that no summary covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    /// The turn.
    pub turn_id: TurnId,
    /// Its place.
    pub seq: i64,
    /// Who spoke.
    pub role: TurnRole,
    /// The words.
    pub text: String,
}

/// What a summary is decided from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basis {
    /// The summary in force, with its words.
    pub previous: Option<(SummaryId, String)>,
    /// The turns that it does not cover, in their order.
    pub open: Vec<OpenTurn>,
    /// Requests to forget so far: a summary that is made after one has another id than one that was made before it.
    pub forgets: u32,
}

#[derive(Debug, Clone)]
struct Turn {
    turn_id: TurnId,
    role: TurnRole,
    /// Gone when a summary covers it, to save memory, or when it was forgotten.
    text: Option<String>,
    forgotten: bool,
    /// The first turn of an exchange.
    starts: bool,
}

#[derive(Debug, Clone)]
struct Summary {
    id: SummaryId,
    through_seq: i64,
    text: String,
}

/// What an event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It counts.
    Counted,
    /// It does not: a copy, or something that names what was forgotten.
    Void,
}

/// The fold of one conversation. `default()` is one in which nothing was said.
#[derive(Debug, Clone, Default)]
pub struct SessionFold {
    turns: BTreeMap<i64, Turn>,
    by_id: HashMap<TurnId, i64>,
    /// In force, each going on from the one before.
    summaries: Vec<Summary>,
    summary_ids: HashSet<SummaryId>,
    items: HashMap<String, Item>,
    forgets: u32,
    /// Up to here, words were let go of.
    pruned_to: i64,
}

/// An episode or a note.
#[derive(Debug, Clone)]
struct Item {
    turn_ids: Vec<TurnId>,
    forgotten: bool,
}

impl SessionFold {
    /// Takes the next event of the conversation.
    pub fn apply(&mut self, event: &MemoryEvent) -> Taken {
        match event {
            MemoryEvent::TurnRecorded(event) => self.turn(event),
            MemoryEvent::SummaryWritten(event) => self.summary(event),
            MemoryEvent::EpisodeRemembered(event) => self.item(event.episode_id.to_string(), &event.turn_ids),
            MemoryEvent::NoteWritten(event) => self.item(event.note_id.to_string(), &event.turn_ids),
            MemoryEvent::MemoryForgotten(event) => {
                self.forget(event);
                Taken::Counted
            }
        }
    }

    fn turn(&mut self, event: &TurnRecorded) -> Taken {
        if self.by_id.contains_key(&event.turn_id) {
            return Taken::Void;
        }
        let seq = self.turns.last_key_value().map_or(0, |(seq, _)| *seq) + 1;
        let last_start = self.turns.iter().rev().find(|(_, turn)| turn.starts).map(|(seq, _)| *seq);
        let starts = match last_start {
            None => true,
            Some(start) => event.role == TurnRole::User || seq - start >= MAX_EXCHANGE_TURNS,
        };
        let turn =
            Turn { turn_id: event.turn_id, role: event.role, text: Some(event.text.clone()), forgotten: false, starts };
        self.by_id.insert(event.turn_id, seq);
        self.turns.insert(seq, turn);
        Taken::Counted
    }

    fn summary(&mut self, event: &SummaryWritten) -> Taken {
        let known = self.summary_ids.contains(&event.summary_id);
        if known
            || event.through_seq <= self.through_seq()
            || event.previous != self.summaries.last().map(|summary| summary.id)
            || self.names_nothing_forgotten(&event.turn_ids) == Taken::Void
        {
            return Taken::Void;
        }
        self.summary_ids.insert(event.summary_id);
        self.summaries.push(Summary { id: event.summary_id, through_seq: event.through_seq, text: event.text.clone() });
        Taken::Counted
    }

    fn item(&mut self, id: String, turn_ids: &[TurnId]) -> Taken {
        if self.items.contains_key(&id) || self.names_nothing_forgotten(turn_ids) == Taken::Void {
            return Taken::Void;
        }
        self.items.insert(id, Item { turn_ids: turn_ids.to_vec(), forgotten: false });
        Taken::Counted
    }

    fn names_nothing_forgotten(&self, turns: &[TurnId]) -> Taken {
        let forgotten = |id: &TurnId| self.by_id.get(id).is_some_and(|seq| self.turns[seq].forgotten);
        if turns.iter().any(forgotten) { Taken::Void } else { Taken::Counted }
    }

    fn forget(&mut self, event: &MemoryForgotten) {
        self.forgets += 1;
        match event.target.as_deref() {
            None => {
                self.turns.values_mut().for_each(Turn::forget);
                self.items.values_mut().for_each(|item| item.forgotten = true);
                self.summaries.clear();
            }
            Some(target) => {
                let turn = target.parse::<TurnId>().ok().and_then(|id| self.by_id.get(&id).copied());
                if let Some(seq) = turn {
                    self.turns.get_mut(&seq).into_iter().for_each(Turn::forget);
                    self.summaries.retain(|summary| summary.through_seq < seq);
                }
                for id in self.gone_with(target) {
                    self.items.get_mut(&id).into_iter().for_each(|item| item.forgotten = true);
                }
                let summary = target.parse::<SummaryId>().ok();
                let through = self.summaries.iter().find(|one| Some(one.id) == summary).map(|one| one.through_seq);
                if let Some(through) = through {
                    self.summaries.retain(|summary| summary.through_seq < through);
                }
            }
        }
    }

    /// Episodes and notes that go when `target` does: itself, or what was made from it. Also those that are gone already.
    pub fn gone_with(&self, target: &str) -> Vec<String> {
        let turn = target.parse::<TurnId>().ok();
        let goes =
            |(id, item): &(&String, &Item)| *id == target || turn.is_some_and(|turn| item.turn_ids.contains(&turn));
        let mut gone: Vec<String> = self.items.iter().filter(goes).map(|(id, _)| id.clone()).collect();
        gone.sort_unstable();
        gone
    }

    /// Whether the conversation has this episode or note, and it was not forgotten.
    pub fn remembers(&self, id: &str) -> bool {
        self.items.get(id).is_some_and(|item| !item.forgotten)
    }

    fn through_seq(&self) -> i64 {
        self.summaries.last().map_or(0, |summary| summary.through_seq)
    }

    /// The summary in force and its words.
    pub fn summary_in_force(&self) -> Option<(SummaryId, &str)> {
        self.summaries.last().map(|summary| (summary.id, summary.text.as_str()))
    }

    /// What the next summary is decided from; `None` as for [`SessionFold::open_turns`].
    pub fn basis(&self) -> Option<Basis> {
        let previous = self.summary_in_force().map(|(id, text)| (id, text.to_owned()));
        Some(Basis { previous, open: self.open_turns()?, forgets: self.forgets })
    }

    /// The turns that no summary covers, in their order; `None` when words are missing that were let go of, so that the
    /// fold has to be made anew from the log.
    pub fn open_turns(&self) -> Option<Vec<OpenTurn>> {
        let open = self.turns.range(self.through_seq() + 1..).filter(|(_, turn)| !turn.forgotten);
        open.map(|(seq, turn)| turn.open(*seq)).collect()
    }

    /// The turns of the exchange that ended when this turn began another; empty when it began none or nothing is left of
    /// the exchange; `None` as for [`SessionFold::open_turns`].
    pub fn exchange_before(&self, turn_id: &TurnId) -> Option<Vec<OpenTurn>> {
        let Some(seq) = self.by_id.get(turn_id).copied() else { return Some(Vec::new()) };
        if !self.turns[&seq].starts {
            return Some(Vec::new());
        }
        let before = self.turns.range(..seq);
        let Some((start, _)) = before.rev().find(|(_, turn)| turn.starts) else { return Some(Vec::new()) };
        let exchange = self.turns.range(*start..seq).filter(|(_, turn)| !turn.forgotten);
        exchange.map(|(seq, turn)| turn.open(*seq)).collect()
    }

    /// Lets go of words that are only needed when a summary is forgotten: those of covered turns whose exchange has ended.
    pub fn prune(&mut self) {
        let last_start = self.turns.iter().rev().find(|(_, turn)| turn.starts).map_or(0, |(seq, _)| *seq);
        let end = self.through_seq().min(last_start - 1);
        if end > self.pruned_to {
            self.turns.range_mut(self.pruned_to + 1..=end).for_each(|(_, turn)| turn.text = None);
            self.pruned_to = end;
        }
        // Of older summaries only the place is needed, for when a newer one is forgotten; their words are short.
    }
}

impl Turn {
    fn forget(&mut self) {
        self.forgotten = true;
        self.text = None;
    }

    fn open(&self, seq: i64) -> Option<OpenTurn> {
        let text = self.text.clone()?;
        Some(OpenTurn { turn_id: self.turn_id, seq, role: self.role, text })
    }
}

/// The id of an exchange that begins with that turn.
pub fn episode_id(session: &Session, first: TurnId) -> EpisodeId {
    EpisodeId::derive(&[session.namespace.as_str(), session.name.as_str(), &first.to_string()])
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
