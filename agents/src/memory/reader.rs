//! Memory as it is stored: tables and vectors to read from, the log to write to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riverrun_log::Producer;
use riverrun_models::EmbedPurpose;
use riverrun_schemas::memory::{MemoryEvent, NoteWritten};
use riverrun_schemas::{Session, TurnId, now_ms};
use riverrun_stores::read_models::memory_queries as read;
use riverrun_stores::{EpisodeHit, Episodes, MAX_HITS, Sql};

use super::models::{MemoryModels, charged_to};
use super::window::Window;
use super::{
    ContextRequest, MAX_NOTES, MAX_RECALL, MAX_WINDOW_TURNS, Memory, MemoryContext, MemoryError, NewNote,
    RecalledMemory,
};

/// Memories less similar than this are not recalled, however few there are.
const MIN_SCORE: f32 = 0.2;
/// How many more memories are looked for than are wanted: some are in the window already, some were just forgotten.
const SLACK: usize = 10;
/// How many times more are looked for where these were not enough. The last search asks for [`MAX_HITS`], which is more than
/// [`MAX_WINDOW_TURNS`] turns can have episodes: what is shown already never stands in front of all that is not.
const WIDER: usize = 4;
/// Memories that found no room, after which no smaller one is looked for.
const MAX_WITHOUT_ROOM: usize = 10;
/// How long a run waits for the turns of the one before it: they come by the log and two workers.
const TURN_TIME: Duration = Duration::from_secs(3);
const TURN_PAUSE: Duration = Duration::from_millis(10);
/// Name in `ce_source`.
const COMPONENT: &str = "memory";

/// Memory over tables, vectors, models and the log. Cheap to clone.
#[derive(Clone)]
pub struct StoredMemory {
    sql: Sql,
    episodes: Episodes,
    models: Arc<dyn MemoryModels>,
    producer: Producer,
    window: Window,
}

impl StoredMemory {
    /// With a window of so many tokens.
    pub fn new(
        sql: Sql,
        episodes: Episodes,
        models: Arc<dyn MemoryModels>,
        producer: Producer,
        window_tokens: usize,
    ) -> Self {
        Self { sql, episodes, models, producer, window: Window::new(window_tokens) }
    }

    /// The vectors.
    pub fn episodes(&self) -> &Episodes {
        &self.episodes
    }

    /// What counts tokens, writes and embeds.
    pub fn models(&self) -> &Arc<dyn MemoryModels> {
        &self.models
    }

    /// Tokens of the window.
    pub fn window_tokens(&self) -> usize {
        self.window.tokens()
    }

    /// Summary and newest turns within the window.
    async fn window(&self, session: &Session, reserved: usize) -> Result<MemoryContext, MemoryError> {
        let summary = read::summary(&self.sql, session).await?;
        let mut taken = reserved;
        if let Some(summary) = &summary {
            taken += self.models.count_tokens(&summary.text).await;
        }
        let through = summary.as_ref().map_or(0, |summary| summary.through_seq);
        let turns = read::newest_turns(&self.sql, session, through, MAX_WINDOW_TURNS).await?;
        let mut tokens = Vec::with_capacity(turns.len());
        // Newest first, and no further than the window reaches: a long backlog costs no more than a full window.
        let mut sum = taken;
        for turn in turns.iter().rev() {
            let count = self.models.count_tokens(&turn.text).await;
            tokens.insert(0, count);
            sum += count;
            if sum > self.window.tokens() {
                break;
            }
        }
        let fit = self.window.newest(&tokens, taken);
        let left_out = turns.len() - fit;
        Ok(MemoryContext {
            tokens: taken - reserved + tokens[tokens.len() - fit..].iter().sum::<usize>(),
            turns: turns.into_iter().skip(left_out).collect(),
            summary,
            episodes: Vec::new(),
            window_tokens: self.window.tokens(),
            turns_left_out: left_out,
            notes: Vec::new(),
        })
    }

    /// What resembles the query and is not in the window, at most half a window of it.
    async fn recall(
        &self,
        session: &Session,
        query: &str,
        k: usize,
        shown: &HashSet<TurnId>,
    ) -> Result<Vec<RecalledMemory>, MemoryError> {
        let models = charged_to(&self.models, session);
        let reply = models.embed(vec![query.to_owned()], EmbedPurpose::Query).await?;
        let Some(vector) = reply.vectors.first() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let mut looked_at = HashSet::new();
        let mut room = self.window.tokens() / 2;
        let mut without_room = 0;
        let mut most = k + SLACK;
        loop {
            let hits = self.episodes.recall(session, &reply.model, vector, most).await?;
            // Best first: behind one that resembles too little, or behind fewer than were asked for, there is none that counts.
            let has_more = hits.len() >= most && hits.last().is_some_and(|hit| hit.score >= MIN_SCORE);
            for hit in hits.into_iter().filter(|hit| hit.score >= MIN_SCORE) {
                if found.len() == k || without_room == MAX_WITHOUT_ROOM {
                    return Ok(found);
                }
                if !looked_at.insert(hit.id.clone()) {
                    continue;
                }
                let Some(memory) = self.known(session, hit, shown).await? else { continue };
                match room.checked_sub(self.models.count_tokens(&memory.text).await) {
                    Some(rest) => {
                        room = rest;
                        found.push(memory);
                    }
                    None => without_room += 1,
                }
            }
            if found.len() == k || !has_more || most >= MAX_HITS {
                return Ok(found);
            }
            most = (most * WIDER).min(MAX_HITS);
        }
    }

    /// A hit as the tables have it; `None` when it was forgotten or is shown already.
    async fn known(
        &self,
        session: &Session,
        hit: EpisodeHit,
        shown: &HashSet<TurnId>,
    ) -> Result<Option<RecalledMemory>, MemoryError> {
        let Some(why) = read::why(&self.sql, session, &hit.id).await? else { return Ok(None) };
        let turn_ids: Vec<TurnId> = why.sources.iter().map(|turn| turn.turn_id).collect();
        if why.kind == "episode" && turn_ids.iter().all(|turn| shown.contains(turn)) {
            return Ok(None);
        }
        Ok(Some(RecalledMemory {
            id: hit.id,
            kind: why.kind,
            text: why.text,
            score: hit.score,
            turn_ids,
            run_id: why.run_id,
        }))
    }
}

#[async_trait]
impl Memory for StoredMemory {
    async fn context(&self, session: &Session, request: &ContextRequest) -> Result<MemoryContext, MemoryError> {
        let mut context = self.window(session, request.reserved_tokens).await?;
        if let Some(query) = request.query.as_deref().filter(|query| !query.trim().is_empty()) {
            let shown = context.turns.iter().map(|turn| turn.turn_id).collect();
            match self.recall(session, query, request.k.min(MAX_RECALL), &shown).await {
                Ok(found) => context.episodes = found,
                // Without the embedding model the window is still worth having; that something is missing is said.
                Err(MemoryError::Model(error)) => context.notes.push(format!("nothing could be recalled: {error}")),
                Err(error) => return Err(error),
            }
        }
        Ok(context)
    }

    async fn await_turn(&self, session: &Session, turn: TurnId) {
        let end = tokio::time::Instant::now() + TURN_TIME;
        loop {
            match read::has_turn(&self.sql, session, turn).await {
                Ok(true) => return,
                Ok(false) if tokio::time::Instant::now() < end => tokio::time::sleep(TURN_PAUSE).await,
                Ok(false) => {
                    tracing::warn!(turn_id = %turn, "the turns of the run before are not there yet; a run goes on without them");
                    return;
                }
                // Whoever reads the conversation next meets the same trouble and tells of it.
                Err(error) => {
                    tracing::debug!(turn_id = %turn, error = %error, "can't look for a turn");
                    return;
                }
            }
        }
    }

    async fn note(&self, session: &Session, note: NewNote) -> Result<(), MemoryError> {
        let count = read::size(&self.sql, session).await?.notes;
        if count >= MAX_NOTES {
            return Err(MemoryError::Full { session: session.clone(), what: "notes", count });
        }
        let event = NoteWritten {
            namespace: session.namespace.clone(),
            session: session.name.clone(),
            note_id: note.note_id,
            text: note.text,
            turn_ids: note.turn_ids,
            run_id: note.run_id,
            at: now_ms(),
        };
        self.producer.send(&MemoryEvent::from(event), COMPONENT, None).await?;
        Ok(())
    }
}
