//! What is said in conversations, and what is made of it: `riverrun.memory.events`, keyed by namespace and session, so that
//! all of a conversation is in one order. Turns count from 1 in that order; a turn that comes twice (same id) counts once.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::ids::{EpisodeId, EventId, ForgetId, NoteId, RunId, SummaryId, TurnId};
use crate::names::Namespace;
use crate::session::{Session, SessionName};

/// Who spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnRole {
    /// A person, or the task of a run.
    User,
    /// The model, or the answer of a run.
    Assistant,
    /// Whoever set the conversation up.
    System,
    /// A tool.
    Tool,
    /// A role of a newer version; treated as data of nobody.
    Unknown,
}

impl TurnRole {
    /// The roles that can be asked for.
    pub const ALL: [TurnRole; 4] = [TurnRole::User, TurnRole::Assistant, TurnRole::System, TurnRole::Tool];

    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            TurnRole::User => "user",
            TurnRole::Assistant => "assistant",
            TurnRole::System => "system",
            TurnRole::Tool => "tool",
            TurnRole::Unknown => "unknown",
        }
    }

    /// The role of that name; one that this build does not know is [`TurnRole::Unknown`].
    pub fn by_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|role| role.as_str() == name).unwrap_or(TurnRole::Unknown)
    }
}

/// Somebody said something in a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRecorded {
    /// The namespace.
    pub namespace: Namespace,
    /// The conversation.
    pub session: SessionName,
    /// Derived from its cause; a turn with an id that is there already is the same one.
    pub turn_id: TurnId,
    /// Who spoke.
    pub role: TurnRole,
    /// The words.
    pub text: String,
    /// The run whose task or answer this is.
    pub run_id: Option<RunId>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The older turns in a few sentences. It counts when [`SummaryWritten::previous`] is the summary in force, it covers more than
/// that, and none of its turns was forgotten: of two that were written at the same time the first one counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryWritten {
    /// The namespace.
    pub namespace: Namespace,
    /// The conversation.
    pub session: SessionName,
    /// Derived from the turns that it covers.
    pub summary_id: SummaryId,
    /// It stands for every turn up to this one.
    pub through_seq: i64,
    /// The summary that it goes on from.
    pub previous: Option<SummaryId>,
    /// The turns that it adds to that.
    pub turn_ids: Vec<TurnId>,
    /// The words.
    pub text: String,
    /// The chat model that wrote it.
    pub model: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// An exchange that can be found again by similarity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeRemembered {
    /// The namespace.
    pub namespace: Namespace,
    /// The conversation.
    pub session: SessionName,
    /// Derived from its first turn.
    pub episode_id: EpisodeId,
    /// What was said, in the words of the turns.
    pub text: String,
    /// The turns that it is made of.
    pub turn_ids: Vec<TurnId>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A fact that an agent put down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoteWritten {
    /// The namespace.
    pub namespace: Namespace,
    /// The conversation.
    pub session: SessionName,
    /// Derived from the tool call.
    pub note_id: NoteId,
    /// The words.
    pub text: String,
    /// The turns that it comes from.
    pub turn_ids: Vec<TurnId>,
    /// The run that put it down.
    pub run_id: Option<RunId>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A memory is to be gone from every index, with everything that was made from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryForgotten {
    /// The namespace.
    pub namespace: Namespace,
    /// The conversation.
    pub session: SessionName,
    /// The request.
    pub forget_id: ForgetId,
    /// Id of a turn, episode, summary or note; `None` for the whole conversation.
    pub target: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

macro_rules! key {
    ($event:expr) => {
        format!("{}/{}", $event.namespace, $event.session)
    };
}

/// An event id that follows from the conversation, the kind and the id of what it is about.
macro_rules! id {
    ($event:expr, $kind:literal, $id:expr) => {
        EventId::derive(&[$event.namespace.as_str(), $event.session.as_str(), $kind, &$id.to_string()])
    };
}

event_set! {
    /// Events of conversations.
    MemoryEvent on MemoryEvents;
    /// Somebody said something.
    TurnRecorded = "riverrun.memory.TurnRecorded", key |e| key!(e), id |e| id!(e, "turn", e.turn_id);
    /// The older turns in a few sentences.
    SummaryWritten = "riverrun.memory.SummaryWritten", key |e| key!(e), id |e| id!(e, "summary", e.summary_id);
    /// An exchange that can be found again.
    EpisodeRemembered = "riverrun.memory.EpisodeRemembered", key |e| key!(e), id |e| id!(e, "episode", e.episode_id);
    /// A fact that an agent put down.
    NoteWritten = "riverrun.memory.NoteWritten", key |e| key!(e), id |e| id!(e, "note", e.note_id);
    /// A memory is to be gone.
    MemoryForgotten = "riverrun.memory.MemoryForgotten", key |e| key!(e), id |e| id!(e, "forget", e.forget_id);
}

impl MemoryEvent {
    /// The conversation that is spoken of.
    pub fn session(&self) -> Session {
        let (namespace, name) = match self {
            MemoryEvent::TurnRecorded(e) => (&e.namespace, &e.session),
            MemoryEvent::SummaryWritten(e) => (&e.namespace, &e.session),
            MemoryEvent::EpisodeRemembered(e) => (&e.namespace, &e.session),
            MemoryEvent::NoteWritten(e) => (&e.namespace, &e.session),
            MemoryEvent::MemoryForgotten(e) => (&e.namespace, &e.session),
        };
        Session::new(namespace.clone(), name.clone())
    }
}

/// Ids that follow from what a run says: the same for whoever records it, however often.
pub fn run_turn_id(run_id: RunId, role: TurnRole) -> TurnId {
    TurnId::derive(&["run", &run_id.to_string(), role.as_str()])
}
