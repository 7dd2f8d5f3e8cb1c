//! What is asked about conversations. Every question names its conversation; there is no way to ask without one.

use riverrun_schemas::{ForgetId, Session, TurnId};
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::memory_views::{ReceiptView, RemovedView, SessionSize, SummaryView, TurnView, WhyView};
use crate::read_models::page::{Page, PageRequest};
use crate::read_models::runs::id;
use crate::read_models::time::Timestamp;
use crate::sql::{DbConnection, DbRow, Sql, storable};

/// Most source turns of an answer to "why".
const MAX_SOURCES: i64 = 500;

/// Reads for one conversation; errors name the database.
macro_rules! query {
    ($session:expr, $statement:literal) => {
        sqlx::query($statement).bind($session.namespace.as_str().to_owned()).bind($session.name.as_str().to_owned())
    };
}

/// Turns in their order.
pub async fn turns(sql: &Sql, session: &Session, page: &PageRequest) -> Result<Page<TurnView>, StoreError> {
    let after = match page.cursor.as_deref() {
        None => 0,
        Some(cursor) => cursor.parse::<i64>().map_err(|_| StoreError::Cursor(cursor.chars().take(80).collect()))?,
    };
    let rows = query!(
        session,
        "SELECT * FROM memory_turns WHERE namespace = $1 AND session = $2 AND forgotten = 0 AND seq > $3
         ORDER BY seq LIMIT $4"
    )
    .bind(after)
    .bind(page.limit() + 1)
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let items = rows.iter().map(turn_view).collect::<Result<Vec<_>, _>>()?;
    Ok(Page::of(items, page.limit(), |turn| turn.seq.to_string()))
}

/// The newest turns behind `after_seq`, oldest first; at most `limit`.
pub async fn newest_turns(
    sql: &Sql,
    session: &Session,
    after_seq: i64,
    limit: u32,
) -> Result<Vec<TurnView>, StoreError> {
    let rows = query!(
        session,
        "SELECT * FROM memory_turns WHERE namespace = $1 AND session = $2 AND forgotten = 0 AND seq > $3
         ORDER BY seq DESC LIMIT $4"
    )
    .bind(after_seq)
    .bind(i64::from(limit))
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().rev().map(turn_view).collect()
}

/// A turn of the conversation.
pub async fn turn(sql: &Sql, session: &Session, turn_id: TurnId) -> Result<Option<TurnView>, StoreError> {
    let row = query!(
        session,
        "SELECT * FROM memory_turns WHERE namespace = $1 AND session = $2 AND turn_id = $3 AND forgotten = 0"
    )
    .bind(turn_id.to_string())
    .fetch_optional(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.as_ref().map(turn_view).transpose()
}

/// Whether a turn is there, or was and is forgotten.
pub async fn has_turn(sql: &Sql, session: &Session, turn_id: TurnId) -> Result<bool, StoreError> {
    let row = query!(session, "SELECT seq FROM memory_turns WHERE namespace = $1 AND session = $2 AND turn_id = $3")
        .bind(turn_id.to_string())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    Ok(row.is_some())
}

/// The summary in force.
pub async fn summary(sql: &Sql, session: &Session) -> Result<Option<SummaryView>, StoreError> {
    let row = query!(
        session,
        "SELECT * FROM memory_summaries WHERE namespace = $1 AND session = $2 AND forgotten = 0
         ORDER BY through_seq DESC LIMIT 1"
    )
    .fetch_optional(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.as_ref().map(summary_view).transpose()
}

/// How much the conversation holds.
pub async fn size(sql: &Sql, session: &Session) -> Result<SessionSize, StoreError> {
    let row = query!(
        session,
        "SELECT (SELECT COUNT(*) FROM memory_turns WHERE namespace = $1 AND session = $2 AND forgotten = 0) AS turns,
                (SELECT COUNT(*) FROM memory_items WHERE namespace = $1 AND session = $2 AND kind = 'note' AND forgotten = 0) AS notes"
    )
    .fetch_one(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    Ok(SessionSize { turns: row.try_get("turns")?, notes: row.try_get("notes")? })
}

/// Episodes and notes that go when `target` does: itself, or what was made from it; all of the conversation without one.
pub async fn gone_with(sql: &Sql, session: &Session, target: Option<&str>) -> Result<Vec<String>, StoreError> {
    let rows = query!(
        session,
        "SELECT item_id FROM memory_items WHERE namespace = $1 AND session = $2 AND forgotten = 0
           AND (CAST($3 AS TEXT) IS NULL OR item_id = $3 OR item_id IN
             (SELECT item_id FROM memory_sources WHERE namespace = $1 AND session = $2 AND turn_id = $3))
         ORDER BY item_id"
    )
    .bind(target.map(storable))
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().map(|row| Ok(row.try_get("item_id")?)).collect()
}

async fn item_sources(
    connection: &mut DbConnection,
    session: &Session,
    item_id: &str,
) -> Result<Vec<TurnView>, StoreError> {
    let rows = query!(
        session,
        "SELECT t.* FROM memory_turns t JOIN memory_sources s
           ON s.namespace = t.namespace AND s.session = t.session AND s.turn_id = t.turn_id
         WHERE t.namespace = $1 AND t.session = $2 AND s.item_id = $3 AND t.forgotten = 0 ORDER BY t.seq"
    )
    .bind(storable(item_id))
    .fetch_all(connection)
    .await?;
    rows.iter().map(turn_view).collect()
}

/// Where a memory of the conversation comes from; `None` when it has no such memory.
pub async fn why(sql: &Sql, session: &Session, id: &str) -> Result<Option<WhyView>, StoreError> {
    let attempt = async {
        let mut connection = sql.reader().acquire().await?;
        if let Some(why) = why_turn(&mut connection, session, id).await? {
            return Ok(Some(why));
        }
        if let Some(why) = why_summary(&mut connection, session, id).await? {
            return Ok(Some(why));
        }
        why_item(&mut connection, session, id).await
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}

async fn why_turn(
    connection: &mut DbConnection,
    session: &Session,
    turn_id: &str,
) -> Result<Option<WhyView>, StoreError> {
    let row = query!(
        session,
        "SELECT * FROM memory_turns WHERE namespace = $1 AND session = $2 AND turn_id = $3 AND forgotten = 0"
    )
    .bind(storable(turn_id))
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let turn = turn_view(&row)?;
    Ok(Some(WhyView {
        id: turn_id.to_owned(),
        kind: "turn".to_owned(),
        text: turn.text.clone(),
        run_id: turn.run_id,
        model: None,
        at: turn.at,
        sources: vec![turn],
    }))
}

async fn why_summary(
    connection: &mut DbConnection,
    session: &Session,
    summary_id: &str,
) -> Result<Option<WhyView>, StoreError> {
    let row = query!(
        session,
        "SELECT * FROM memory_summaries WHERE namespace = $1 AND session = $2 AND summary_id = $3 AND forgotten = 0"
    )
    .bind(storable(summary_id))
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let summary = summary_view(&row)?;
    let rows = query!(
        session,
        "SELECT * FROM memory_turns WHERE namespace = $1 AND session = $2 AND seq <= $3 AND forgotten = 0
         ORDER BY seq DESC LIMIT $4"
    )
    .bind(summary.through_seq)
    .bind(MAX_SOURCES)
    .fetch_all(connection)
    .await?;
    Ok(Some(WhyView {
        id: summary_id.to_owned(),
        kind: "summary".to_owned(),
        text: summary.text,
        sources: rows.iter().rev().map(turn_view).collect::<Result<_, _>>()?,
        run_id: None,
        model: Some(summary.model),
        at: summary.at,
    }))
}

async fn why_item(
    connection: &mut DbConnection,
    session: &Session,
    item_id: &str,
) -> Result<Option<WhyView>, StoreError> {
    let row = query!(
        session,
        "SELECT * FROM memory_items WHERE namespace = $1 AND session = $2 AND item_id = $3 AND forgotten = 0"
    )
    .bind(storable(item_id))
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(WhyView {
        id: item_id.to_owned(),
        kind: row.try_get("kind")?,
        text: row.try_get("text")?,
        sources: item_sources(connection, session, item_id).await?,
        run_id: run_of(&row)?,
        model: None,
        at: Timestamp(row.try_get("at")?),
    }))
}

/// What a request to forget came to; `None` while it is not in the tables yet.
pub async fn receipt(sql: &Sql, session: &Session, forget_id: ForgetId) -> Result<Option<ReceiptView>, StoreError> {
    let row = query!(session, "SELECT * FROM memory_receipts WHERE namespace = $1 AND session = $2 AND forget_id = $3")
        .bind(forget_id.to_string())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.map(|row| {
        Ok(ReceiptView {
            forget_id,
            namespace: session.namespace.clone(),
            session: session.name.clone(),
            target: row.try_get("target")?,
            removed: RemovedView {
                turns: row.try_get("turns")?,
                summaries: row.try_get("summaries")?,
                episodes: row.try_get("episodes")?,
                notes: row.try_get("notes")?,
            },
            at: Timestamp(row.try_get("at")?),
        })
    })
    .transpose()
}

fn run_of(row: &DbRow) -> Result<Option<riverrun_schemas::RunId>, StoreError> {
    let text: Option<String> = row.try_get("run_id")?;
    text.as_deref().map(|text| id("memory_turns", text)).transpose()
}

fn turn_view(row: &DbRow) -> Result<TurnView, StoreError> {
    Ok(TurnView {
        turn_id: id("memory_turns", row.try_get("turn_id")?)?,
        seq: row.try_get("seq")?,
        role: row.try_get("role")?,
        text: row.try_get("text")?,
        namespace: id("memory_turns", row.try_get("namespace")?)?,
        session: id("memory_turns", row.try_get("session")?)?,
        run_id: run_of(row)?,
        at: Timestamp(row.try_get("at")?),
    })
}

fn summary_view(row: &DbRow) -> Result<SummaryView, StoreError> {
    Ok(SummaryView {
        summary_id: id("memory_summaries", row.try_get("summary_id")?)?,
        through_seq: row.try_get("through_seq")?,
        text: row.try_get("text")?,
        model: row.try_get("model")?,
        at: Timestamp(row.try_get("at")?),
    })
}
