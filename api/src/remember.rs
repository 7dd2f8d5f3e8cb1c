//! Writing to conversations: the event on the log, then the tables, so that whoever wrote reads what they wrote.

use std::time::Duration;

use riverrun_agents::memory::{MAX_TURN_BYTES, MAX_TURNS};
use riverrun_schemas::memory::{MemoryEvent, MemoryForgotten, TurnRecorded, TurnRole};
use riverrun_schemas::{ForgetId, Session, SessionName, TurnId, now_ms};
use riverrun_stores::read_models::{ReceiptView, Timestamp, TurnView, memory_queries as read};

use crate::accept::{COMPONENT, key_taken};
use crate::error::ApiError;
use crate::state::AppState;
use crate::submit::{Checks, one_of};
use crate::wait::until;
use crate::wire::{ForgetCounts, ForgetDone};

/// How long the tables and vectors may take to follow the log before the answer says that they have not.
const PATIENCE: Duration = Duration::from_secs(5);

/// A conversation; the default ones where none is named.
pub fn session(checks: &mut Checks, namespace: Option<&str>, session: Option<&str>) -> Session {
    let namespace = checks.namespace(namespace);
    let name = match session {
        None => SessionName::default(),
        Some(text) => checks.take("session", text.parse()).unwrap_or_default(),
    };
    Session::new(namespace, name)
}

/// A text that can be a turn.
pub fn turn_text(checks: &mut Checks, text: &str) {
    checks.text("text", text, MAX_TURN_BYTES);
}

/// A role that can be given.
pub fn role(checks: &mut Checks, name: &str) -> TurnRole {
    let role = TurnRole::by_name(name);
    one_of(checks, "role", Some(name), ["user", "assistant", "system", "tool"].into_iter());
    role
}

/// The id of what is said with an idempotency key: it counts within its conversation.
pub fn turn_id(session: &Session, key: Option<&str>) -> TurnId {
    match key {
        None => TurnId::new(),
        Some(key) => TurnId::derive(&["idempotency-key", session.namespace.as_str(), session.name.as_str(), key]),
    }
}

/// Refuses when the conversation is full.
pub async fn check_room(state: &AppState, session: &Session) -> Result<(), ApiError> {
    let turns = read::size(&state.parts().sql, session).await?.turns;
    if turns < MAX_TURNS {
        return Ok(());
    }
    let detail = format!("conversation {session} has {turns} turns, which is the limit");
    Err(ApiError::conflict("session_full", detail).hint(format!(
        "begin another session, or forget this one: riverrun memory forget -n {} -s {:?}",
        session.namespace,
        session.name.as_str()
    )))
}

/// Records a turn and returns it as the tables have it; `seq` is 0 when they have not caught up in time. A turn of that id
/// that says something else is a conflict.
pub async fn record(
    state: &AppState,
    session: &Session,
    turn_id: TurnId,
    role: TurnRole,
    text: &str,
) -> Result<TurnView, ApiError> {
    if let Some(known) = read::turn(&state.parts().sql, session, turn_id).await? {
        return same_turn(known, role, text);
    }
    let event = TurnRecorded {
        namespace: session.namespace.clone(),
        session: session.name.clone(),
        turn_id,
        role,
        text: text.to_owned(),
        run_id: None,
        at: now_ms(),
    };
    state.parts().producer.send(&MemoryEvent::from(event.clone()), COMPONENT, None).await?;
    let sql = &state.parts().sql;
    match until(PATIENCE, || read::turn(sql, session, turn_id)).await? {
        Some(turn) => same_turn(turn, role, text),
        None => Ok(TurnView {
            turn_id,
            seq: 0,
            role: role.as_str().to_owned(),
            text: event.text,
            namespace: event.namespace,
            session: event.session,
            run_id: None,
            at: Timestamp(event.at),
        }),
    }
}

fn same_turn(known: TurnView, role: TurnRole, text: &str) -> Result<TurnView, ApiError> {
    if known.role == role.as_str() && known.text == text {
        return Ok(known);
    }
    Err(key_taken("the idempotency key", "turn"))
}

/// Forgets a memory, or the whole conversation, and tells what is gone from each index.
pub async fn forget(state: &AppState, session: &Session, target: Option<&str>) -> Result<ForgetDone, ApiError> {
    let parts = state.parts();
    check_there(state, session, target).await?;
    let items = read::gone_with(&parts.sql, session, target).await?;
    let ids = target.map(|_| items.as_slice());
    let episodes = parts.memory.episodes();
    let before = episodes.count(session, ids).await?;
    let event = MemoryForgotten {
        namespace: session.namespace.clone(),
        session: session.name.clone(),
        forget_id: ForgetId::new(),
        target: target.map(str::to_owned),
        at: now_ms(),
    };
    parts.producer.send(&MemoryEvent::from(event.clone()), COMPONENT, None).await?;
    let receipt = until(PATIENCE, || read::receipt(&parts.sql, session, event.forget_id)).await?;
    let gone =
        until(PATIENCE, || async { Ok::<_, ApiError>((episodes.count(session, ids).await? == 0).then_some(())) })
            .await?;
    let after = if gone.is_some() { 0 } else { episodes.count(session, ids).await? };
    let vectors = i64::try_from(before.saturating_sub(after)).unwrap_or(i64::MAX);
    Ok(ForgetDone {
        forget_id: event.forget_id,
        namespace: event.namespace,
        session: event.session,
        target: event.target,
        removed: counts(receipt.as_ref(), vectors),
        pending: receipt.is_none() || after > 0,
        at: Timestamp(event.at),
    })
}

fn counts(receipt: Option<&ReceiptView>, vectors: i64) -> ForgetCounts {
    let removed = receipt.map(|receipt| receipt.removed).unwrap_or_default();
    ForgetCounts {
        turns: removed.turns,
        summaries: removed.summaries,
        episodes: removed.episodes,
        notes: removed.notes,
        vectors,
    }
}

async fn check_there(state: &AppState, session: &Session, target: Option<&str>) -> Result<(), ApiError> {
    let sql = &state.parts().sql;
    let there = match target {
        Some(id) => read::why(sql, session, id).await?.is_some(),
        None => {
            let size = read::size(sql, session).await?;
            size.turns + size.notes > 0
        }
    };
    if there { Ok(()) } else { Err(unknown(session, target)) }
}

/// 404 for a memory, or a conversation, that is not there: the same words whether it never was or is another's.
pub fn unknown(session: &Session, id: Option<&str>) -> ApiError {
    let what = id.map_or_else(String::new, |id| format!("memory {:?} of ", id.chars().take(80).collect::<String>()));
    // Turns have their ids in their list, what was made of them in what a model is shown.
    let list =
        if id.is_some_and(|id| id.starts_with("trn_")) { "riverrun memory turns" } else { "riverrun memory context" };
    let hint = format!("{list} -n {} -s {:?}", session.namespace, session.name.as_str());
    ApiError::not_found("memory_not_found", format!("{what}conversation {session} does not exist")).hint(hint)
}
