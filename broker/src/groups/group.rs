//! A consumer group as a state machine (the classic protocol of Apache Kafka, `GroupCoordinator`).
//!
//! Every transition is a plain function of the state, the request and the time; a request that has to wait hands in the
//! sender through which it will be answered. Nothing here sleeps, locks or does I/O.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Most members of a group.
pub(crate) const MAX_MEMBERS: usize = 1_000;

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
    session_timeout: Duration,
    rebalance_timeout: Duration,
    deadline: Instant,
    joining: Option<oneshot::Sender<Joined>>,
    syncing: Option<oneshot::Sender<Synced>>,
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

    fn is_waiting(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }
}

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    phase: Phase,
    generation: i32,
    protocol_type: Option<String>,
    protocol: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Instance id → member id.
    instances: HashMap<String, String>,
    /// Ids given out, not come back yet → until when.
    announced: HashMap<String, Instant>,
    /// End of the phase of waiting, for joins or for the assignment.
    phase_deadline: Option<Instant>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            phase: Phase::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: HashMap::new(),
            announced: HashMap::new(),
            phase_deadline: None,
        }
    }
}

impl Group {
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

    #[expect(clippy::type_complexity, reason = "the reply travels back to the one place that answers errors")]
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
                self.announced.insert(id.clone(), now + join.session_timeout);
                return refuse(reply, ResponseError::MemberIdRequired, &id);
            }
            self.admit(now, id, join, reply);
            return Ok(());
        }
        if join.instance_id.is_some() && known_instance.as_ref() != Some(&id) {
            let error =
                if known_instance.is_some() { ResponseError::FencedInstanceId } else { ResponseError::UnknownMemberId };
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
        let unchanged = self.phase == Phase::Stable && member.protocols == join.protocols;
        member.protocols = join.protocols;
        member.client_id = join.client_id;
        member.client_host = join.client_host;
        member.session_timeout = join.session_timeout;
        member.rebalance_timeout = join.rebalance_timeout;
        member.deadline = now + join.session_timeout;
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        let was_leader = self.leader.as_deref() == Some(old);
        if was_leader {
            self.leader = Some(id.clone());
        }
        if unchanged {
            self.members.insert(id.clone(), member);
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
    fn rebalance(&mut self, now: Instant) {
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
    fn complete_join_if_ready(&mut self, now: Instant, timed_out: bool) {
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
        if self.members.values().all(|member| member.joining.is_none()) {
            // Only static members that are away: keep waiting for them.
            self.phase_deadline = Some(now + self.longest_rebalance());
            return;
        }
        self.protocol = self.choose_protocol();
        let leader_joined =
            self.leader.as_ref().and_then(|id| self.members.get(id)).is_some_and(|member| member.joining.is_some());
        if !leader_joined {
            let joined = self.members.iter().find(|(_, member)| member.joining.is_some());
            self.leader = joined.map(|(id, _)| id.clone());
        }
        self.phase = Phase::CompletingRebalance;
        self.phase_deadline = Some(now + self.longest_rebalance());
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = self.joined(&id);
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.assignment = Bytes::new();
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

    /// Checks who calls; a good call counts as a heartbeat.
    pub(crate) fn check(&mut self, now: Instant, who: Identity<'_>) -> Result<(), ResponseError> {
        if let Some(instance) = who.instance_id {
            match self.instances.get(instance) {
                None => return Err(ResponseError::UnknownMemberId),
                Some(id) if id != who.member_id => return Err(ResponseError::FencedInstanceId),
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
        member.syncing = Some(reply);
        if self.phase == Phase::CompletingRebalance && self.leader.as_deref() == Some(who.member_id) {
            let mut assignments: HashMap<String, Bytes> = assignments.into_iter().collect();
            for (id, member) in &mut self.members {
                member.assignment = assignments.remove(id).unwrap_or_default();
            }
            self.phase = Phase::Stable;
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
                    return Err(ResponseError::FencedInstanceId);
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

    /// Checks whether a commit of offsets may be made, by a member or from outside the group.
    pub(crate) fn check_commit(
        &mut self,
        now: Instant,
        who: Identity<'_>,
        transactional: bool,
    ) -> Result<(), ResponseError> {
        if who.generation < 0 && who.member_id.is_empty() && who.instance_id.is_none() {
            // A lone consumer that uses the group only as a name; transactional producers of old versions do so too.
            return if self.phase == Phase::Empty || transactional {
                Ok(())
            } else {
                Err(ResponseError::UnknownMemberId)
            };
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
        sessions.chain(self.announced.values().copied()).chain(self.phase_deadline).min()
    }

    /// Lets time take effect: sessions end, waits end.
    pub(crate) fn tick(&mut self, now: Instant) {
        let announced = self.announced.len();
        self.announced.retain(|_, until| *until > now);
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
                // Whoever has not synced by now is gone; if that was the leader, the others begin anew.
                Phase::CompletingRebalance => self.drop_unsynced(now),
                Phase::Stable => self.drop_unsynced(now),
                Phase::Empty | Phase::Dead => self.phase_deadline = None,
            }
        } else if some_never_came {
            self.complete_join_if_ready(now, false);
        }
    }

    fn drop_unsynced(&mut self, now: Instant) {
        self.phase_deadline = None;
        if self.phase != Phase::CompletingRebalance {
            return;
        }
        let missing: Vec<String> =
            self.members.iter().filter(|(_, member)| member.syncing.is_none()).map(|(id, _)| id.clone()).collect();
        missing.iter().for_each(|id| self.forget(id));
        self.rebalance(now);
        self.complete_join_if_ready(now, false);
    }

    /// Topics that members of a consumer group are subscribed to; none if that cannot be told.
    pub(crate) fn subscribed_topics(&self) -> HashSet<String> {
        let mut topics = HashSet::new();
        for member in self.members.values() {
            for (_, metadata) in &member.protocols {
                topics.extend(subscription_topics(metadata));
            }
        }
        topics
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

/// The topics in a consumer's subscription metadata (`ConsumerProtocolSubscription`: version, array of topics, …).
fn subscription_topics(metadata: &[u8]) -> Vec<String> {
    fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = from.split_at_checked(count)?;
        *from = rest;
        Some(taken)
    }
    let mut rest = metadata;
    let mut read = || -> Option<Vec<String>> {
        take(&mut rest, 2)?;
        let count = i32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
        let mut topics = Vec::new();
        for _ in 0..count {
            let length = i16::from_be_bytes(take(&mut rest, 2)?.try_into().ok()?);
            let name = take(&mut rest, usize::try_from(length).ok()?)?;
            topics.push(String::from_utf8(name.to_vec()).ok()?);
        }
        Some(topics)
    };
    read().unwrap_or_default()
}
