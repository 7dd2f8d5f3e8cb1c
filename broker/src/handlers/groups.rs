//! Group membership: translation between the wire and the state machine.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    ListGroupsRequest, ListGroupsResponse, SyncGroupRequest, SyncGroupResponse,
};
use tokio::sync::oneshot;

use super::{Context, code, of_coordinator, operations, text};
use crate::groups::group::{Group, Identity, Join, Joined, Phase, Synced};
use crate::meta::Entry;

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A copy that does not keep the whole buffer alive in which the request came.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// The group takes the request before this returns; its answer comes when the group is complete.
pub(super) fn join_group(
    context: &Context,
    version: i16,
    request: JoinGroupRequest,
) -> impl Future<Output = JoinGroupResponse> + Send + use<> {
    let entered = ask_to_join(context, version, request);
    async move {
        match entered {
            Ok(receiver) => match receiver.await {
                Ok(joined) => join_answer(version, joined),
                Err(_) => refuse_join(version, ResponseError::CoordinatorNotAvailable, String::new()),
            },
            Err(refused) => *refused,
        }
    }
}

fn ask_to_join(
    context: &Context,
    version: i16,
    request: JoinGroupRequest,
) -> Result<oneshot::Receiver<Joined>, Box<JoinGroupResponse>> {
    let config = &context.node.config;
    let session_timeout = millis(request.session_timeout_ms);
    let refused = if request.group_id.is_empty() {
        Some(ResponseError::InvalidGroupId)
    } else if !(config.min_session_timeout..=config.max_session_timeout).contains(&session_timeout) {
        Some(ResponseError::InvalidSessionTimeout)
    } else {
        None
    };
    if let Some(error) = refused {
        return Err(Box::new(refuse_join(version, error, request.member_id.to_string())));
    }
    let rebalance_timeout = if version >= 1 { millis(request.rebalance_timeout_ms) } else { session_timeout };
    let join = Join {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        client_id: context.client_id.clone(),
        client_host: format!("/{}", context.peer.ip()),
        session_timeout,
        rebalance_timeout,
        protocol_type: request.protocol_type.to_string(),
        protocols: request.protocols.into_iter().map(|p| (p.name.to_string(), own(&p.metadata))).collect(),
        must_return: version >= 4,
        can_skip_assignment: version >= 9,
        connection: context.attendance.connection(),
    };
    enter(context, &request.group_id, join)
        .ok_or_else(|| Box::new(refuse_join(version, ResponseError::UnknownMemberId, request.member_id.to_string())))
}

/// Has a group take the request. Only a newcomer makes one: none where a member asks for a group that there is not.
fn enter(context: &Context, group: &str, join: Join) -> Option<oneshot::Receiver<Joined>> {
    let is_new = join.member_id.is_empty();
    let prefix = join.instance_id.clone().unwrap_or_else(|| context.client_id.clone());
    let mut id = join.member_id.clone();
    let (sender, receiver) = oneshot::channel();
    let mut once = Some((join, sender));
    let groups = &context.node.groups;
    let transition = |group: &mut Group, now| {
        if let Some((join, sender)) = once.take() {
            let new_id = || {
                id = groups.new_member_id(&prefix);
                id.clone()
            };
            group.join(now, join, new_id, sender);
        }
    };
    if is_new {
        groups.with(group, transition);
    } else {
        groups.peek(group, transition)?;
    }
    context.attendance.note(group, &id);
    Some(receiver)
}

fn refuse_join(version: i16, error: ResponseError, member_id: String) -> JoinGroupResponse {
    join_answer(version, Joined { error: Some(error), member_id, generation: -1, ..Joined::default() })
}

fn join_answer(version: i16, joined: Joined) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|(id, instance, metadata)| {
        let member = JoinGroupResponseMember::default().with_member_id(text(id)).with_metadata(metadata);
        if version >= 5 { member.with_group_instance_id(instance.map(text)) } else { member }
    });
    // The name may be null only since version 7.
    let protocol = if version >= 7 { joined.protocol } else { Some(joined.protocol.unwrap_or_default()) };
    let answer = JoinGroupResponse::default()
        .with_error_code(joined.error.map_or(0, |error| error.code()))
        .with_generation_id(joined.generation)
        .with_protocol_name(protocol.map(text))
        .with_leader(text(joined.leader))
        .with_member_id(text(joined.member_id))
        .with_members(members.collect());
    let answer = if version >= 7 { answer.with_protocol_type(joined.protocol_type.map(text)) } else { answer };
    if version >= 9 { answer.with_skip_assignment(joined.skip_assignment) } else { answer }
}

pub(super) async fn sync_group(context: &Context, version: i16, request: SyncGroupRequest) -> SyncGroupResponse {
    let who = Identity {
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id,
    };
    let assignments = request.assignments.iter().map(|one| (one.member_id.to_string(), own(&one.assignment))).collect();
    let (sender, receiver) = oneshot::channel();
    if request.group_id.is_empty() {
        return SyncGroupResponse::default().with_error_code(ResponseError::InvalidGroupId.code());
    }
    let known = context.node.groups.peek(&request.group_id, |group, now| {
        group.sync(now, who, request.protocol_type.as_deref(), request.protocol_name.as_deref(), assignments, sender);
    });
    let unknown = Synced { error: Some(ResponseError::UnknownMemberId), ..Synced::default() };
    let synced = match known {
        Some(()) => receiver.await.unwrap_or(unknown),
        None => unknown,
    };
    let answer = SyncGroupResponse::default()
        .with_error_code(synced.error.map_or(0, |error| error.code()))
        .with_assignment(synced.assignment);
    if version < 5 {
        return answer;
    }
    answer.with_protocol_type(synced.protocol_type.map(text)).with_protocol_name(synced.protocol.map(text))
}

pub(super) async fn heartbeat(context: &Context, _: i16, request: HeartbeatRequest) -> HeartbeatResponse {
    let who = Identity {
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id,
    };
    if request.group_id.is_empty() {
        return HeartbeatResponse::default().with_error_code(ResponseError::InvalidGroupId.code());
    }
    let beat = context.node.groups.peek(&request.group_id, |group, now| group.heartbeat(now, who));
    HeartbeatResponse::default().with_error_code(code(&beat.unwrap_or(Err(ResponseError::UnknownMemberId))))
}

pub(super) fn leave_group(context: &Context, version: i16, request: LeaveGroupRequest) -> LeaveGroupResponse {
    let leave = |member: &str, instance: Option<&str>| {
        let left = context.node.groups.peek(&request.group_id, |group, now| group.leave(now, member, instance));
        left.unwrap_or(Err(ResponseError::UnknownMemberId))
    };
    if request.group_id.is_empty() {
        return LeaveGroupResponse::default().with_error_code(ResponseError::InvalidGroupId.code());
    }
    if version < 3 {
        return LeaveGroupResponse::default().with_error_code(code(&leave(&request.member_id, None)));
    }
    let members = request.members.iter().map(|member| {
        let left = leave(&member.member_id, member.group_instance_id.as_deref());
        MemberResponse::default()
            .with_member_id(member.member_id.clone())
            .with_group_instance_id(member.group_instance_id.clone())
            .with_error_code(code(&left))
    });
    LeaveGroupResponse::default().with_members(members.collect())
}

/// Ids of groups with members and of groups with offsets, committed or held by open transactions.
fn all_groups(context: &Context) -> Vec<String> {
    let mut ids = context.node.groups.ids();
    ids.extend(context.node.journal.lock().group_ids().cloned());
    ids.sort_unstable();
    ids.dedup();
    ids
}

pub(super) async fn list_groups(context: &Context, version: i16, request: ListGroupsRequest) -> ListGroupsResponse {
    let matches = |filter: &[kafka_protocol::protocol::StrBytes], value: &str| {
        filter.is_empty() || filter.iter().any(|word| word.eq_ignore_ascii_case(value))
    };
    let listed = all_groups(context).into_iter().filter_map(|id| {
        let look = |group: &mut Group, _| (group.phase(), group.protocol_type().unwrap_or_default().to_owned());
        let live = context.node.groups.peek(&id, look);
        let (phase, protocol_type) = live.unwrap_or((Phase::Empty, String::new()));
        if !matches(&request.states_filter, phase.as_str()) || !matches(&request.types_filter, "classic") {
            return None;
        }
        let listed = ListedGroup::default().with_group_id(GroupId(text(id))).with_protocol_type(text(protocol_type));
        let listed = if version >= 4 { listed.with_group_state(text(phase.as_str())) } else { listed };
        Some(if version >= 5 { listed.with_group_type(text("classic")) } else { listed })
    });
    ListGroupsResponse::default().with_groups(listed.collect())
}

pub(super) async fn describe_groups(
    context: &Context,
    version: i16,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let groups = request.groups.into_iter().map(|id| {
        let described = context.node.groups.peek(&id, |group, _| describe(group, version));
        let described = described.unwrap_or_else(|| {
            let is_known = context.node.journal.lock().knows_group(&id);
            let phase = if is_known { Phase::Empty } else { Phase::Dead };
            let answer = DescribedGroup::default().with_group_state(text(phase.as_str()));
            if version >= 6 && !is_known {
                let message = format!("group {} not found", id.0);
                return answer
                    .with_error_code(ResponseError::GroupIdNotFound.code())
                    .with_error_message(Some(text(message)));
            }
            answer
        });
        let may = if request.include_authorized_operations { operations::GROUP } else { operations::NOT_ASKED };
        described.with_group_id(id).with_authorized_operations(may)
    });
    DescribeGroupsResponse::default().with_groups(groups.collect())
}

fn describe(group: &Group, version: i16) -> DescribedGroup {
    // Assignments and metadata mean something only once they are agreed upon.
    let protocol = group.protocol().filter(|_| group.phase() == Phase::Stable).unwrap_or_default();
    let members = group.members().iter().map(|(id, member)| {
        let described = DescribedGroupMember::default()
            .with_member_id(text(id.clone()))
            .with_client_id(text(member.client_id.clone()))
            .with_client_host(text(member.client_host.clone()))
            .with_member_metadata(member.metadata(protocol))
            .with_member_assignment(member.assignment.clone());
        if version >= 4 { described.with_group_instance_id(member.instance_id.clone().map(text)) } else { described }
    });
    DescribedGroup::default()
        .with_group_state(text(group.phase().as_str()))
        .with_protocol_type(text(group.protocol_type().unwrap_or_default()))
        .with_protocol_data(text(protocol))
        .with_members(members.collect())
}

pub(super) async fn delete_groups(context: &Context, _: i16, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for id in request.groups_names {
        let deleted = delete_group(context, &id).await;
        results.push(DeletableGroupResult::default().with_group_id(id).with_error_code(code(&deleted)));
    }
    DeleteGroupsResponse::default().with_results(results)
}

/// Like Apache Kafka, takes away what open transactions hold for the group: they do not keep it from being empty.
async fn delete_group(context: &Context, id: &str) -> Result<(), ResponseError> {
    let phase = context.node.groups.peek(id, |group, _| group.phase());
    let is_known = context.node.journal.lock().knows_group(id);
    match phase {
        None if !is_known => return Err(ResponseError::GroupIdNotFound),
        None | Some(Phase::Empty) => {}
        Some(_) => return Err(ResponseError::NonEmptyGroup),
    }
    let recorded = context.node.journal.record(Entry::GroupDeleted { group: id.to_owned() }).await;
    recorded.map_err(of_coordinator)?;
    context.node.groups.remove(id);
    Ok(())
}
