//! Joining, and the rebalance that it leads to.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::subscription::asks_for_the_same;
use super::{Group, Join, Joined, MAX_MEMBERS, Member, Phase, Synced};

impl Group {
    /// Joins, or joins again. Answers at once or when the rebalance is complete.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        join: Join,
        new_id: impl FnOnce() -> String,
        reply: oneshot::Sender<Joined>,
    ) {
        if let Err((error, member_id)) = self.try_join(now, join, new_id, reply) {
            let (reply, error) = error;
            let _ = reply.send(Joined { error: Some(error), member_id, generation: -1, ..Joined::default() });
        }
    }

    fn try_join(
        &mut self,
        now: Instant,
        join: Join,
        new_id: impl FnOnce() -> String,
        reply: oneshot::Sender<Joined>,
    ) -> Result<(), ((oneshot::Sender<Joined>, ResponseError), String)> {
        let refuse = |reply, error, id: &str| Err(((reply, error), id.to_owned()));
        let id = join.member_id.clone();
        if !self.fits(&join) {
            return refuse(reply, ResponseError::InconsistentGroupProtocol, &id);
        }
        let known_instance = join.instance_id.as_ref().and_then(|instance| self.instances.get(instance).cloned());
        if id.is_empty() {
            if let Some(old) = known_instance {
                self.replace_static(now, &old, join, new_id(), reply);
                return Ok(());
            }
            if self.members.len() + self.announced.len() >= MAX_MEMBERS {
                return refuse(reply, ResponseError::GroupMaxSizeReached, &id);
            }
            let id = new_id();
            if join.must_return && join.instance_id.is_none() {
                self.announced.insert(id.clone(), (now + join.session_timeout, join.connection));
                return refuse(reply, ResponseError::MemberIdRequired, &id);
            }
            self.admit(now, id, join, reply);
            return Ok(());
        }
        if join.instance_id.is_some() && known_instance.as_ref() != Some(&id) {
            let error = if known_instance.is_some() { self.replaced(&id) } else { ResponseError::UnknownMemberId };
            return refuse(reply, error, &id);
        }
        if self.announced.remove(&id).is_some() {
            self.admit(now, id, join, reply);
            return Ok(());
        }
        if !self.members.contains_key(&id) {
            return refuse(reply, ResponseError::UnknownMemberId, &id);
        }
        self.rejoin(now, &id, join, reply);
        Ok(())
    }

    /// Whether the newcomer's protocols go with everyone else's.
    fn fits(&self, join: &Join) -> bool {
        if join.protocol_type.is_empty() || join.protocols.is_empty() {
            return false;
        }
        if self.members.keys().all(|id| *id == join.member_id) {
            return true;
        }
        let same_type = self.protocol_type.as_deref() == Some(&join.protocol_type);
        same_type && join.protocols.iter().any(|(name, _)| self.is_supported_by_all(name, &join.member_id))
    }

    fn is_supported_by_all(&self, protocol: &str, except: &str) -> bool {
        let others = self.members.iter().filter(|(id, _)| *id != except);
        others.into_iter().all(|(_, member)| member.protocols.iter().any(|(name, _)| name == protocol))
    }

    fn admit(&mut self, now: Instant, id: String, join: Join, reply: oneshot::Sender<Joined>) {
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        let member = Member {
            instance_id: join.instance_id,
            client_id: join.client_id,
            client_host: join.client_host,
            protocols: join.protocols,
            assignment: Bytes::new(),
            session_timeout: join.session_timeout,
            rebalance_timeout: join.rebalance_timeout,
            deadline: now + join.session_timeout,
            joining: Some(reply),
            syncing: None,
            has_synced: false,
            connection: join.connection,
        };
        self.members.insert(id, member);
        self.rebalance(now);
        self.complete_join_if_ready(now, false);
    }

    fn rejoin(&mut self, now: Instant, id: &str, join: Join, reply: oneshot::Sender<Joined>) {
        let is_leader = self.leader.as_deref() == Some(id);
        let Some(member) = self.members.get_mut(id) else { return };
        let same = member.protocols == join.protocols;
        member.session_timeout = join.session_timeout;
        member.rebalance_timeout = join.rebalance_timeout;
        member.connection = join.connection;
        member.deadline = now + join.session_timeout;
        let keeps = match self.phase {
            Phase::CompletingRebalance => same,
            Phase::Stable => same && !is_leader,
            Phase::Empty | Phase::PreparingRebalance | Phase::Dead => false,
        };
        if keeps {
            let _ = reply.send(self.joined(id));
            return;
        }
        member.protocols = join.protocols;
        // A second join of the same member takes the place of the first, whose connection is gone.
        member.joining = Some(reply);
        self.rebalance(now);
        self.complete_join_if_ready(now, false);
    }

    /// A static member is back under a new id; the group goes on as it was if nothing has changed for it.
    fn replace_static(&mut self, now: Instant, old: &str, join: Join, id: String, reply: oneshot::Sender<Joined>) {
        let Some(mut member) = self.members.remove(old) else { return };
        fence(&mut member);
        let unchanged =
            self.phase == Phase::Stable && asks_for_the_same(&join.protocol_type, &member.protocols, &join.protocols);
        member.protocols = join.protocols;
        member.client_id = join.client_id;
        member.client_host = join.client_host;
        member.session_timeout = join.session_timeout;
        member.rebalance_timeout = join.rebalance_timeout;
        member.connection = join.connection;
        member.deadline = now + join.session_timeout;
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        let was_leader = self.leader.as_deref() == Some(old);
        if was_leader {
            self.leader = Some(id.clone());
        }
        if unchanged {
            // What it has is what its old self had: there is nothing to wait for.
            member.has_synced = true;
            self.members.insert(id.clone(), member);
            self.changed = true;
            let mut answer = self.joined(&id);
            answer.skip_assignment = was_leader && join.can_skip_assignment;
            if was_leader && !join.can_skip_assignment {
                // Told that its old self leads, the member does not assign anew.
                answer.leader = old.to_owned();
                answer.members.clear();
            }
            let _ = reply.send(answer);
            return;
        }
        member.joining = Some(reply);
        self.members.insert(id, member);
        self.rebalance(now);
        self.complete_join_if_ready(now, false);
    }

    /// Everyone has to join again.
    pub(super) fn rebalance(&mut self, now: Instant) {
        if self.phase == Phase::PreparingRebalance {
            return;
        }
        for member in self.members.values_mut() {
            if let Some(reply) = member.syncing.take() {
                let _ = reply.send(Synced { error: Some(ResponseError::RebalanceInProgress), ..Synced::default() });
                member.deadline = now + member.session_timeout;
            }
        }
        self.phase = Phase::PreparingRebalance;
        self.phase_deadline = Some(now + self.longest_rebalance());
    }

    fn longest_rebalance(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    /// Ends the wait for joins when all are there, or (`timed_out`) with those who are.
    pub(super) fn complete_join_if_ready(&mut self, now: Instant, timed_out: bool) {
        if self.phase != Phase::PreparingRebalance {
            return;
        }
        let all = self.members.values().all(|member| member.joining.is_some()) && self.announced.is_empty();
        if !all && !timed_out {
            return;
        }
        // Dynamic members that did not come are gone; static ones stay until their session ends.
        let gone: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| member.joining.is_none() && member.instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        gone.iter().for_each(|id| self.forget(id));
        self.generation = self.generation.wrapping_add(1).max(1);
        self.phase_deadline = None;
        if self.members.is_empty() {
            self.become_empty();
            return;
        }
        if !self.members.values().any(Member::is_joining) {
            // Only static members that are away: keep waiting for them.
            self.phase_deadline = Some(now + self.longest_rebalance());
            return;
        }
        self.protocol = self.choose_protocol();
        let leader_joined = self.leader.as_ref().and_then(|id| self.members.get(id)).is_some_and(Member::is_joining);
        if !leader_joined {
            let joined = self.members.iter().find(|(_, member)| member.is_joining());
            self.leader = joined.map(|(id, _)| id.clone());
        }
        self.phase = Phase::CompletingRebalance;
        self.phase_deadline = Some(now + self.longest_rebalance());
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = self.joined(&id);
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.assignment = Bytes::new();
            member.has_synced = false;
            if let Some(reply) = member.joining.take() {
                member.deadline = now + member.session_timeout;
                let _ = reply.send(answer);
            }
        }
    }

    /// Every member votes for its most preferred protocol among those that all support.
    fn choose_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let vote = member.protocols.iter().find(|(name, _)| self.is_supported_by_all(name, ""));
            if let Some((name, _)) = vote {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.to_owned())
    }

    fn joined(&self, id: &str) -> Joined {
        let leader = self.leader.clone().unwrap_or_default();
        let protocol = self.protocol.clone().unwrap_or_default();
        let members = if leader == id {
            let all = self.members.iter();
            all.map(|(id, member)| (id.clone(), member.instance_id.clone(), member.metadata(&protocol))).collect()
        } else {
            Vec::new()
        };
        Joined {
            error: None,
            member_id: id.to_owned(),
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader,
            members,
            skip_assignment: false,
        }
    }
}

fn fence(member: &mut Member) {
    let error = Some(ResponseError::FencedInstanceId);
    if let Some(reply) = member.joining.take() {
        let _ = reply.send(Joined { error, generation: -1, ..Joined::default() });
    }
    if let Some(reply) = member.syncing.take() {
        let _ = reply.send(Synced { error, ..Synced::default() });
    }
}
