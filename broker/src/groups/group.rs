//! A consumer group as a state machine (the classic protocol of Apache Kafka, `GroupCoordinator`).
//!
//! Every transition is a plain function of the state, the request and the time; a request that has to wait hands in the
//! sender through which it will be answered. Nothing here sleeps, locks or does I/O.

mod joining;
mod member;
mod roster;
mod subscription;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(crate) use member::{Identity, Join, Joined, Life, Member, Phase, Synced};
pub(crate) use roster::Roster;

/// Most members of a group.
pub(crate) const MAX_MEMBERS: usize = 1_000;

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Which start of the broker it lives in; none takes every member id for one of its own.
    life: Option<Life>,
    phase: Phase,
    generation: i32,
    protocol_type: Option<String>,
    protocol: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Instance id → member id.
    instances: HashMap<String, String>,
    /// Ids given out, not come back yet → until when, and over which connection.
    announced: HashMap<String, (Instant, u64)>,
    /// End of the phase of waiting, for joins or for the assignment.
    phase_deadline: Option<Instant>,
    /// Who is to be remembered across a start may differ from what was told last.
    changed: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            life: None,
            phase: Phase::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: HashMap::new(),
            announced: HashMap::new(),
            phase_deadline: None,
            changed: false,
        }
    }
}

impl Group {
    /// A group without members.
    pub(crate) fn within(life: Life) -> Self {
        Self { life: Some(life), ..Self::default() }
    }

    /// What is said to `member_id`, whose instance belongs to another member. Only whoever was replaced here is fenced, which ends
    /// a client for good. An id from before the broker's start was replaced by nobody: a request that its client had on the way,
    /// and that comes behind its return, must not end it.
    fn replaced(&self, member_id: &str) -> ResponseError {
        if self.life.is_none_or(|life| life.gave(member_id)) {
            ResponseError::FencedInstanceId
        } else {
            ResponseError::UnknownMemberId
        }
    }

    /// Where the group stands.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }
    /// `consumer` for consumer groups.
    pub(crate) fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }
    /// The chosen assignor.
    pub(crate) fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }
    /// The members by id.
    pub(crate) fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Checks who calls; a good call counts as a heartbeat.
    pub(crate) fn check(&mut self, now: Instant, who: Identity<'_>) -> Result<(), ResponseError> {
        if let Some(instance) = who.instance_id {
            match self.instances.get(instance) {
                None => return Err(ResponseError::UnknownMemberId),
                Some(id) if id != who.member_id => return Err(self.replaced(who.member_id)),
                Some(_) => {}
            }
        }
        let generation = self.generation;
        let member = self.members.get_mut(who.member_id).ok_or(ResponseError::UnknownMemberId)?;
        if who.generation != generation {
            return Err(ResponseError::IllegalGeneration);
        }
        member.deadline = now + member.session_timeout;
        Ok(())
    }

    /// Hands in (the leader) or fetches (everyone) the assignment.
    pub(crate) fn sync(
        &mut self,
        now: Instant,
        who: Identity<'_>,
        protocol_type: Option<&str>,
        protocol: Option<&str>,
        assignments: Vec<(String, Bytes)>,
        reply: oneshot::Sender<Synced>,
    ) {
        let differs =
            |given: Option<&str>, own: &Option<String>| given.is_some_and(|given| own.as_deref() != Some(given));
        let error = self.check(now, who).err().or_else(|| {
            let inconsistent = differs(protocol_type, &self.protocol_type) || differs(protocol, &self.protocol);
            inconsistent.then_some(ResponseError::InconsistentGroupProtocol)
        });
        let error = error.or(match self.phase {
            Phase::Empty | Phase::Dead => Some(ResponseError::UnknownMemberId),
            Phase::PreparingRebalance => Some(ResponseError::RebalanceInProgress),
            Phase::CompletingRebalance | Phase::Stable => None,
        });
        if error.is_some() {
            let _ = reply.send(Synced { error, ..Synced::default() });
            return;
        }
        let Some(member) = self.members.get_mut(who.member_id) else { return };
        member.has_synced = true;
        member.syncing = Some(reply);
        if self.phase == Phase::CompletingRebalance && self.leader.as_deref() == Some(who.member_id) {
            let mut assignments: HashMap<String, Bytes> = assignments.into_iter().collect();
            for (id, member) in &mut self.members {
                member.assignment = assignments.remove(id).unwrap_or_default();
            }
            self.phase = Phase::Stable;
            self.changed = true;
        }
        if self.phase == Phase::Stable {
            self.answer_syncs(now);
        }
    }

    fn answer_syncs(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            if let Some(reply) = member.syncing.take() {
                member.deadline = now + member.session_timeout;
                let _ = reply.send(Synced {
                    error: None,
                    protocol_type: self.protocol_type.clone(),
                    protocol: self.protocol.clone(),
                    assignment: member.assignment.clone(),
                });
            }
        }
    }

    /// A sign of life.
    pub(crate) fn heartbeat(&mut self, now: Instant, who: Identity<'_>) -> Result<(), ResponseError> {
        self.check(now, who)?;
        match self.phase {
            Phase::PreparingRebalance => Err(ResponseError::RebalanceInProgress),
            Phase::CompletingRebalance | Phase::Stable => Ok(()),
            Phase::Empty | Phase::Dead => Err(ResponseError::UnknownMemberId),
        }
    }

    /// A member goes. A static one may be named by its instance id alone.
    pub(crate) fn leave(
        &mut self,
        now: Instant,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ResponseError> {
        let id = match instance_id {
            Some(instance) => {
                let id = self.instances.get(instance).ok_or(ResponseError::UnknownMemberId)?;
                if !member_id.is_empty() && id != member_id {
                    return Err(self.replaced(member_id));
                }
                id.clone()
            }
            None => member_id.to_owned(),
        };
        if self.announced.remove(&id).is_some() {
            self.complete_join_if_ready(now, false);
            return Ok(());
        }
        if !self.members.contains_key(&id) {
            return Err(ResponseError::UnknownMemberId);
        }
        self.remove(now, &id);
        Ok(())
    }

    /// The connection has ended over which this member asked to join. Clients that are closed within a rebalance do not leave the group;
    /// all others would wait for their sessions to end. One with a name may come back under it.
    pub(crate) fn hang_up(&mut self, now: Instant, member_id: &str, connection: u64) {
        if self.announced.get(member_id).is_some_and(|(_, over)| *over == connection) {
            self.announced.remove(member_id);
            self.complete_join_if_ready(now, false);
            return;
        }
        let member = self.members.get(member_id).filter(|member| member.connection == connection);
        let rebalances = self.phase != Phase::Stable;
        if member.is_some_and(|member| member.instance_id.is_none() && (rebalances || member.is_arriving())) {
            self.remove(now, member_id);
        }
    }

    /// Checks whether a commit of offsets may be made, by a member or from outside the group.
    pub(crate) fn check_commit(
        &mut self,
        now: Instant,
        who: Identity<'_>,
        transactional: bool,
    ) -> Result<(), ResponseError> {
        if who.generation < 0 && self.phase == Phase::Empty {
            // An admin client, or a lone consumer that uses the group only as a name.
            return Ok(());
        }
        if who.generation < 0 && who.member_id.is_empty() && who.instance_id.is_none() {
            // Transactional producers of old versions do not say who they are.
            return if transactional { Ok(()) } else { Err(ResponseError::UnknownMemberId) };
        }
        self.check(now, who)?;
        if self.phase == Phase::CompletingRebalance && !transactional {
            return Err(ResponseError::RebalanceInProgress);
        }
        Ok(())
    }

    fn remove(&mut self, now: Instant, id: &str) {
        self.forget(id);
        match self.phase {
            Phase::Stable | Phase::CompletingRebalance => {
                self.rebalance(now);
                self.complete_join_if_ready(now, false);
            }
            Phase::PreparingRebalance => self.complete_join_if_ready(now, false),
            Phase::Empty | Phase::Dead => {}
        }
    }

    fn forget(&mut self, id: &str) {
        let Some(mut member) = self.members.remove(id) else { return };
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = None;
        }
        let error = Some(ResponseError::UnknownMemberId);
        if let Some(reply) = member.joining.take() {
            let _ = reply.send(Joined { error, member_id: id.into(), generation: -1, ..Joined::default() });
        }
        if let Some(reply) = member.syncing.take() {
            let _ = reply.send(Synced { error, ..Synced::default() });
        }
    }

    fn become_empty(&mut self) {
        self.phase = Phase::Empty;
        self.changed = true;
        self.protocol = None;
        self.leader = None;
        self.phase_deadline = None;
    }

    /// Puts an end to the group.
    pub(crate) fn kill(&mut self) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        ids.iter().for_each(|id| self.forget(id));
        self.announced.clear();
        self.become_empty();
        self.phase = Phase::Dead;
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let sessions = self.members.values().filter(|member| !member.is_waiting()).map(|member| member.deadline);
        sessions.chain(self.announced.values().map(|(until, _)| *until)).chain(self.phase_deadline).min()
    }

    /// Lets time take effect: sessions end, waits end.
    pub(crate) fn tick(&mut self, now: Instant) {
        let announced = self.announced.len();
        self.announced.retain(|_, (until, _)| *until > now);
        let some_never_came = self.announced.len() < announced;
        let dead: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| !member.is_waiting() && member.deadline <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &dead {
            tracing::info!(member = %id, "group member timed out");
            self.remove(now, id);
        }
        if self.phase_deadline.is_some_and(|deadline| deadline <= now) {
            match self.phase {
                Phase::PreparingRebalance => self.complete_join_if_ready(now, true),
                // Whoever has not come for its assignment by now is gone, and the others begin anew: it would keep partitions
                // that it does not know of for as long as it sends heartbeats.
                Phase::CompletingRebalance | Phase::Stable => self.drop_unsynced(now),
                Phase::Empty | Phase::Dead => self.phase_deadline = None,
            }
        } else if some_never_came {
            self.complete_join_if_ready(now, false);
        }
    }

    fn drop_unsynced(&mut self, now: Instant) {
        self.phase_deadline = None;
        let missing: Vec<String> =
            self.members.iter().filter(|(_, member)| !member.has_synced).map(|(id, _)| id.clone()).collect();
        if missing.is_empty() {
            return;
        }
        missing.iter().for_each(|id| self.forget(id));
        self.rebalance(now);
        self.complete_join_if_ready(now, false);
    }
}
