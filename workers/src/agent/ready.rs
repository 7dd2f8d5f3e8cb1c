//! What a partition gives out: runs that can be driven, and what an event led to.

use riverrun_agents::RunState;
use riverrun_agents::decide::Ending;
use riverrun_schemas::TurnId;
use riverrun_schemas::agent::RunSnapshotted;
use tokio::sync::mpsc;

use super::driver::Seen;

/// A run that can be driven.
pub(super) struct ReadyRun {
    pub(super) state: RunState,
    pub(super) accepted_offset: i64,
    /// Offset behind the last event in the fold.
    pub(super) next_offset: i64,
    pub(super) inbox: mpsc::UnboundedReceiver<Seen>,
    /// How it is to end without having begun.
    pub(super) ends: Option<Ending>,
    /// The last turn of the run that ended before it in its conversation, as far as is known here.
    pub(super) behind: Option<TurnId>,
}

/// What an event led to.
pub(super) enum Folded {
    /// The run's fold is in the blob store: [`Partition::open_from`](super::partition::Partition::open_from) takes it.
    Snapshot(Box<RunSnapshotted>),
    /// It is in the fold.
    Known,
}
