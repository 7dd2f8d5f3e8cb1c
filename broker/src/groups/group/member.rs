//! What members and the group say to each other, and what the group knows of a member.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

/// A start of the broker, by which the member ids that it gives out can be told from those of earlier ones: of these only the
/// members of stable groups are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life(u32);

impl Life {
    /// A new one.
    pub(crate) fn begin() -> Self {
        Self(Uuid::new_v4().as_fields().0)
    }

    /// A member id that was never given out: `prefix` and a UUID, as Kafka makes them.
    pub(crate) fn new_member_id(self, prefix: &str) -> String {
        let random = Uuid::new_v4();
        let (_, second, third, rest) = random.as_fields();
        format!("{prefix}-{}", Uuid::from_fields(self.0, second, third, rest))
    }

    /// Whether this start gave out the id.
    pub(crate) fn gave(self, member_id: &str) -> bool {
        const UUID_CHARS: usize = 36;
        let uuid = member_id.len().checked_sub(UUID_CHARS).and_then(|at| member_id.get(at..));
        uuid.and_then(|uuid| Uuid::try_parse(uuid).ok()).is_some_and(|uuid| uuid.as_fields().0 == self.0)
    }
}

/// Where a group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No members.
    Empty,
    /// Waiting for every member to join again.
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    /// Everyone has an assignment.
    Stable,
    /// Deleted; whoever still holds it looks the group up again.
    Dead,
}

impl Phase {
    /// The name that Kafka gives it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Phase::Empty => "Empty",
            Phase::PreparingRebalance => "PreparingRebalance",
            Phase::CompletingRebalance => "CompletingRebalance",
            Phase::Stable => "Stable",
            Phase::Dead => "Dead",
        }
    }
}

/// A request to join.
#[derive(Debug, Clone)]
pub(crate) struct Join {
    /// Empty for a newcomer.
    pub member_id: String,
    /// Set for a static member.
    pub instance_id: Option<String>,
    /// Who calls.
    pub client_id: String,
    /// From where.
    pub client_host: String,
    /// Time without a heartbeat after which a member is gone.
    pub session_timeout: Duration,
    /// Time that members have to join again.
    pub rebalance_timeout: Duration,
    /// `consumer`, `connect`, …
    pub protocol_type: String,
    /// Supported protocols in order of preference.
    pub protocols: Vec<(String, Bytes)>,
    /// Whether a newcomer must come back with the id that it is given.
    pub must_return: bool,
    /// Whether a leader understands that it need not assign.
    pub can_skip_assignment: bool,
    /// The connection that it comes over.
    pub connection: u64,
}

/// The answer to a join.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    /// None is success.
    pub error: Option<ResponseError>,
    /// The member's id.
    pub member_id: String,
    /// The generation, -1 on error.
    pub generation: i32,
    /// Protocol type.
    pub protocol_type: Option<String>,
    /// The chosen protocol.
    pub protocol: Option<String>,
    /// Who assigns.
    pub leader: String,
    /// For the leader: everyone's id, instance id and metadata.
    pub members: Vec<(String, Option<String>, Bytes)>,
    /// The leader need not assign, the old assignment stands.
    pub skip_assignment: bool,
}

/// The answer to a sync.
#[derive(Debug, Clone, Default)]
pub(crate) struct Synced {
    /// None is success.
    pub error: Option<ResponseError>,
    /// Protocol type.
    pub protocol_type: Option<String>,
    /// The chosen protocol.
    pub protocol: Option<String>,
    /// The member's assignment.
    pub assignment: Bytes,
}

/// Who a member says it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity<'a> {
    /// Its id.
    pub member_id: &'a str,
    /// Its instance id, if static.
    pub instance_id: Option<&'a str>,
    /// The generation it knows.
    pub generation: i32,
}

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its instance id, if static.
    pub instance_id: Option<String>,
    /// Who.
    pub client_id: String,
    /// From where.
    pub client_host: String,
    /// Its protocols.
    pub protocols: Vec<(String, Bytes)>,
    /// What it was assigned.
    pub assignment: Bytes,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    pub(super) deadline: Instant,
    pub(super) joining: Option<oneshot::Sender<Joined>>,
    pub(super) syncing: Option<oneshot::Sender<Synced>>,
    /// Whether it has come for its assignment since it joined last.
    pub(super) has_synced: bool,
    /// Over which it joined last; 0 before it has since the broker's start.
    pub(super) connection: u64,
}

impl Member {
    /// The metadata for the group's protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    /// Whether it waits for an answer, on a connection that is still there.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_joining() || self.syncing.as_ref().is_some_and(|reply| !reply.is_closed())
    }

    pub(super) fn is_joining(&self) -> bool {
        self.joining.as_ref().is_some_and(|reply| !reply.is_closed())
    }

    /// Whether it is on its way into the group: it has not come for what it was assigned, or was not answered yet.
    pub(super) fn is_arriving(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some() || !self.has_synced
    }
}
