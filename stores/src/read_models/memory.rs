//! Conversations: turns, summaries, episodes and notes. The projection; queries are in [`super::memory_queries`].
//!
//! All events of a conversation lie in one partition, so that whoever folds them counts the same turns:
//! `MEM-1` a turn, summary, episode or note counts once, whatever comes twice, and never again once it was forgotten.
//! `MEM-2` what was made from a turn goes with it: episodes and notes that name it, summaries that cover it; and what names a
//! forgotten turn does not count when it comes later.

use riverrun_schemas::memory::{
    EpisodeRemembered, MemoryEvent, MemoryForgotten, NoteWritten, SummaryWritten, TurnRecorded,
};
use riverrun_schemas::{Session, TurnId};

use crate::error::StoreError;
use crate::sql::{DbConnection, storable};

/// Folds one event into the tables.
pub(crate) async fn apply(connection: &mut DbConnection, event: &MemoryEvent) -> Result<(), StoreError> {
    let session = event.session();
    match event {
        MemoryEvent::TurnRecorded(event) => turn(connection, &session, event).await,
        MemoryEvent::SummaryWritten(event) => summary(connection, &session, event).await,
        MemoryEvent::EpisodeRemembered(event) => episode(connection, &session, event).await,
        MemoryEvent::NoteWritten(event) => note(connection, &session, event).await,
        MemoryEvent::MemoryForgotten(event) => forget(connection, &session, event).await,
    }
}

/// A query with namespace and session as its first two values.
macro_rules! of {
    ($session:expr, $statement:literal) => {
        sqlx::query($statement).bind($session.namespace.as_str().to_owned()).bind($session.name.as_str().to_owned())
    };
}

async fn turn(connection: &mut DbConnection, session: &Session, event: &TurnRecorded) -> Result<(), StoreError> {
    of!(
        session,
        "INSERT INTO memory_turns (namespace, session, turn_id, seq, role, text, run_id, forgotten, at)
         SELECT $1, $2, $3, COALESCE(MAX(seq), 0) + 1, $4, $5, $6, 0, $7 FROM memory_turns WHERE namespace = $1 AND session = $2
         ON CONFLICT (namespace, session, turn_id) DO NOTHING"
    )
    .bind(event.turn_id.to_string())
    .bind(event.role.as_str())
    .bind(storable(&event.text))
    .bind(event.run_id.map(|id| id.to_string()))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

async fn summary(connection: &mut DbConnection, session: &Session, event: &SummaryWritten) -> Result<(), StoreError> {
    let in_force: Option<(String, i64)> = sqlx::query_as(
        "SELECT summary_id, through_seq FROM memory_summaries WHERE namespace = $1 AND session = $2 AND forgotten = 0
         ORDER BY through_seq DESC LIMIT 1",
    )
    .bind(session.namespace.as_str())
    .bind(session.name.as_str())
    .fetch_optional(&mut *connection)
    .await?;
    let (previous, through) = in_force.map_or((None, 0), |(id, through)| (Some(id), through));
    if previous != event.previous.map(|id| id.to_string())
        || event.through_seq <= through
        || any_forgotten(connection, session, &event.turn_ids).await?
    {
        return Ok(());
    }
    of!(
        session,
        "INSERT INTO memory_summaries (namespace, session, summary_id, through_seq, text, model, forgotten, at)
         VALUES ($1, $2, $3, $4, $5, $6, 0, $7) ON CONFLICT (namespace, session, summary_id) DO NOTHING"
    )
    .bind(event.summary_id.to_string())
    .bind(event.through_seq)
    .bind(storable(&event.text))
    .bind(storable(&event.model))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

struct Item<'e> {
    id: String,
    kind: &'static str,
    text: &'e str,
    turn_ids: &'e [TurnId],
    run_id: Option<String>,
    at: i64,
}

async fn episode(
    connection: &mut DbConnection,
    session: &Session,
    event: &EpisodeRemembered,
) -> Result<(), StoreError> {
    let item = Item {
        id: event.episode_id.to_string(),
        kind: "episode",
        text: &event.text,
        turn_ids: &event.turn_ids,
        run_id: None,
        at: event.at,
    };
    remember(connection, session, item).await
}

async fn note(connection: &mut DbConnection, session: &Session, event: &NoteWritten) -> Result<(), StoreError> {
    let item = Item {
        id: event.note_id.to_string(),
        kind: "note",
        text: &event.text,
        turn_ids: &event.turn_ids,
        run_id: event.run_id.map(|id| id.to_string()),
        at: event.at,
    };
    remember(connection, session, item).await
}

async fn remember(connection: &mut DbConnection, session: &Session, item: Item<'_>) -> Result<(), StoreError> {
    if any_forgotten(connection, session, item.turn_ids).await? {
        return Ok(());
    }
    let new = of!(
        session,
        "INSERT INTO memory_items (namespace, session, item_id, kind, text, run_id, forgotten, at)
         VALUES ($1, $2, $3, $4, $5, $6, 0, $7) ON CONFLICT (namespace, session, item_id) DO NOTHING"
    )
    .bind(&item.id)
    .bind(item.kind)
    .bind(storable(item.text))
    .bind(item.run_id)
    .bind(item.at)
    .execute(&mut *connection)
    .await?;
    if new.rows_affected() == 0 {
        return Ok(());
    }
    for turn_id in item.turn_ids {
        of!(
            session,
            "INSERT INTO memory_sources (namespace, session, item_id, turn_id) VALUES ($1, $2, $3, $4)
             ON CONFLICT (namespace, session, item_id, turn_id) DO NOTHING"
        )
        .bind(&item.id)
        .bind(turn_id.to_string())
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

async fn any_forgotten(connection: &mut DbConnection, session: &Session, turns: &[TurnId]) -> Result<bool, StoreError> {
    for turn_id in turns {
        let forgotten: Option<i64> = sqlx::query_scalar(
            "SELECT forgotten FROM memory_turns WHERE namespace = $1 AND session = $2 AND turn_id = $3",
        )
        .bind(session.namespace.as_str())
        .bind(session.name.as_str())
        .bind(turn_id.to_string())
        .fetch_optional(&mut *connection)
        .await?;
        if forgotten == Some(1) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many rows of each kind lost their words.
#[derive(Default)]
struct Gone {
    turns: u64,
    summaries: u64,
    episodes: u64,
    notes: u64,
}

async fn forget(connection: &mut DbConnection, session: &Session, event: &MemoryForgotten) -> Result<(), StoreError> {
    let gone = match event.target.as_deref() {
        None => forget_all(connection, session).await?,
        Some(id) if id.starts_with("trn_") => forget_turn(connection, session, id).await?,
        Some(id) if id.starts_with("sum_") => {
            Gone { summaries: forget_summaries_from(connection, session, id).await?, ..Gone::default() }
        }
        Some(id) => forget_item(connection, session, id).await?,
    };
    of!(
        session,
        "INSERT INTO memory_receipts (namespace, session, forget_id, target, turns, summaries, episodes, notes, at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (namespace, session, forget_id) DO NOTHING"
    )
    .bind(event.forget_id.to_string())
    .bind(event.target.as_deref().map(storable))
    .bind(count(gone.turns))
    .bind(count(gone.summaries))
    .bind(count(gone.episodes))
    .bind(count(gone.notes))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

fn count(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

async fn forget_all(connection: &mut DbConnection, session: &Session) -> Result<Gone, StoreError> {
    let turns = of!(
        session,
        "UPDATE memory_turns SET text = '', forgotten = 1 WHERE namespace = $1 AND session = $2 AND forgotten = 0"
    )
    .execute(&mut *connection)
    .await?
    .rows_affected();
    let summaries = of!(
        session,
        "UPDATE memory_summaries SET text = '', forgotten = 1 WHERE namespace = $1 AND session = $2 AND forgotten = 0"
    )
    .execute(&mut *connection)
    .await?
    .rows_affected();
    let mut gone = Gone { turns, summaries, ..Gone::default() };
    for (kind, rows) in [("episode", &mut gone.episodes), ("note", &mut gone.notes)] {
        *rows = of!(
            session,
            "UPDATE memory_items SET text = '', forgotten = 1
             WHERE namespace = $1 AND session = $2 AND kind = $3 AND forgotten = 0"
        )
        .bind(kind)
        .execute(&mut *connection)
        .await?
        .rows_affected();
    }
    Ok(gone)
}

async fn forget_turn(connection: &mut DbConnection, session: &Session, turn_id: &str) -> Result<Gone, StoreError> {
    let turns = of!(
        session,
        "UPDATE memory_turns SET text = '', forgotten = 1
         WHERE namespace = $1 AND session = $2 AND turn_id = $3 AND forgotten = 0"
    )
    .bind(turn_id)
    .execute(&mut *connection)
    .await?
    .rows_affected();
    let summaries = of!(
        session,
        "UPDATE memory_summaries SET text = '', forgotten = 1
         WHERE namespace = $1 AND session = $2 AND forgotten = 0
           AND through_seq >= (SELECT seq FROM memory_turns WHERE namespace = $1 AND session = $2 AND turn_id = $3)"
    )
    .bind(turn_id)
    .execute(&mut *connection)
    .await?
    .rows_affected();
    let mut gone = Gone { turns, summaries, ..Gone::default() };
    for (kind, rows) in [("episode", &mut gone.episodes), ("note", &mut gone.notes)] {
        *rows = of!(
            session,
            "UPDATE memory_items SET text = '', forgotten = 1
             WHERE namespace = $1 AND session = $2 AND kind = $4 AND forgotten = 0
               AND item_id IN (SELECT item_id FROM memory_sources WHERE namespace = $1 AND session = $2 AND turn_id = $3)"
        )
        .bind(turn_id)
        .bind(kind)
        .execute(&mut *connection)
        .await?
        .rows_affected();
    }
    Ok(gone)
}

/// A summary goes with those that go on from it.
async fn forget_summaries_from(
    connection: &mut DbConnection,
    session: &Session,
    summary_id: &str,
) -> Result<u64, StoreError> {
    let result = of!(
        session,
        "UPDATE memory_summaries SET text = '', forgotten = 1
         WHERE namespace = $1 AND session = $2 AND forgotten = 0
           AND through_seq >= (SELECT through_seq FROM memory_summaries WHERE namespace = $1 AND session = $2 AND summary_id = $3 AND forgotten = 0)"
    )
    .bind(summary_id)
    .execute(connection)
    .await?;
    Ok(result.rows_affected())
}

async fn forget_item(connection: &mut DbConnection, session: &Session, id: &str) -> Result<Gone, StoreError> {
    let rows = of!(
        session,
        "UPDATE memory_items SET text = '', forgotten = 1
         WHERE namespace = $1 AND session = $2 AND item_id = $3 AND forgotten = 0"
    )
    .bind(id)
    .execute(connection)
    .await?
    .rows_affected();
    Ok(if id.starts_with("epi_") {
        Gone { episodes: rows, ..Gone::default() }
    } else {
        Gone { notes: rows, ..Gone::default() }
    })
}
