//! What of a group outlives a start of the broker: who its members are and what each was assigned, as Apache Kafka keeps it. A
//! start then moves no partition away from a member that is still at work on it.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tokio::time::Instant;

use super::{Group, Life, Member, Phase};

/// Bytes of metadata and assignments up to which a group is remembered.
const MAX_BYTES: usize = 4 << 20;

/// The members of a stable group; nobody where it is not to be remembered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Roster {
    generation: i32,
    protocol_type: Option<String>,
    protocol: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Enrolled>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Enrolled {
    instance_id: Option<String>,
    client_id: String,
    client_host: String,
    protocols: Vec<(String, Blob)>,
    assignment: Blob,
    session_timeout: Duration,
    rebalance_timeout: Duration,
}

/// Bytes, which the journal's JSON has in base64.
#[derive(Debug, Clone, PartialEq)]
struct Blob(Bytes);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(|bytes| Blob(bytes.into())).map_err(de::Error::custom)
    }
}

impl Roster {
    /// Whether there is nobody to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl Group {
    /// Who is to be remembered, when that has changed since the last call. While members join anew it is those of before.
    pub(crate) fn take_change(&mut self) -> Option<Roster> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        match self.phase {
            Phase::Stable if self.held_bytes() <= MAX_BYTES => Some(self.roster()),
            Phase::Stable | Phase::Empty | Phase::Dead => Some(Roster::default()),
            Phase::PreparingRebalance | Phase::CompletingRebalance => None,
        }
    }

    fn held_bytes(&self) -> usize {
        let held = |member: &Member| {
            member.assignment.len() + member.protocols.iter().map(|(_, metadata)| metadata.len()).sum::<usize>()
        };
        self.members.values().map(held).sum()
    }

    fn roster(&self) -> Roster {
        let enrolled = |member: &Member| Enrolled {
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            protocols: member.protocols.iter().map(|(name, bytes)| (name.clone(), Blob(bytes.clone()))).collect(),
            assignment: Blob(member.assignment.clone()),
            session_timeout: member.session_timeout,
            rebalance_timeout: member.rebalance_timeout,
        };
        Roster {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: self.members.iter().map(|(id, member)| (id.clone(), enrolled(member))).collect(),
        }
    }

    /// The group of a roster, each of whose members has a session from now on to show itself in.
    pub(crate) fn restored(life: Life, roster: Roster, now: Instant) -> Self {
        let member = |one: Enrolled| Member {
            instance_id: one.instance_id,
            client_id: one.client_id,
            client_host: one.client_host,
            protocols: one.protocols.into_iter().map(|(name, Blob(bytes))| (name, bytes)).collect(),
            assignment: one.assignment.0,
            session_timeout: one.session_timeout,
            rebalance_timeout: one.rebalance_timeout,
            deadline: now + one.session_timeout,
            joining: None,
            syncing: None,
            has_synced: true,
            connection: 0,
        };
        let members: BTreeMap<String, Member> = roster.members.into_iter().map(|(id, one)| (id, member(one))).collect();
        let instances = members.iter().filter_map(|(id, member)| Some((member.instance_id.clone()?, id.clone())));
        Self {
            phase: Phase::Stable,
            generation: roster.generation,
            protocol_type: roster.protocol_type,
            protocol: roster.protocol,
            leader: roster.leader,
            instances: instances.collect(),
            members,
            ..Self::within(life)
        }
    }
}
