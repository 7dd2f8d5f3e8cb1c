//! Keeps what can be recalled: an exchange becomes an episode when it has ended, episodes and notes get their vectors, and
//! what is forgotten loses them.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_agents::memory::{MemoryModels, OpenTurn, SessionFold, charged_to, episode_id};
use riverrun_log::{AssignedPartition, Outgoing, StartAt, TopicPartition};
use riverrun_models::EmbedPurpose;
use riverrun_schemas::memory::{EpisodeRemembered, MemoryEvent};
use riverrun_schemas::{Session, counted, now_ms};
use riverrun_stores::{EpisodePoint, Episodes};

use super::model_error;
use super::sessions::Sessions;
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};

const NAME: &str = "memory-episodes";
const PARALLEL: usize = 4;
const MAX_BATCH: usize = 32;
/// Longest episode, in characters; what is cut is said.
const MAX_EPISODE: usize = 4_000;

/// Keeps episodes and notes.
pub struct EpisodeKeeper {
    models: Arc<dyn MemoryModels>,
    episodes: Episodes,
    sessions: Sessions,
}

impl EpisodeKeeper {
    /// With these models and vectors.
    pub fn new(models: Arc<dyn MemoryModels>, episodes: Episodes) -> Self {
        Self { models, episodes, sessions: Sessions::default() }
    }

    async fn embed(&self, session: &Session, memories: Vec<(String, String)>) -> Result<(), WorkError> {
        let texts = memories.iter().map(|(_, text)| text.clone()).collect();
        let reply = charged_to(&self.models, session).embed(texts, EmbedPurpose::Document).await;
        let reply = reply.map_err(|error| model_error(&error))?;
        if reply.vectors.len() != memories.len() {
            let (came, wanted) = (counted(reply.vectors.len(), "vector"), counted(memories.len(), "memory"));
            let reason = format!("{came} came for {wanted}");
            return Err(WorkError::retry("bad_response", reason));
        }
        let point = |((id, text), vector)| EpisodePoint { id, text, vector };
        let points = memories.into_iter().zip(reply.vectors).map(point).collect();
        let kept = self.episodes.remember(session, &reply.model, reply.dimensions, points).await;
        kept.map_err(WorkError::from)
    }

    async fn forget(&self, session: &Session, gone: &[Option<Vec<String>>]) -> Result<(), WorkError> {
        for ids in gone {
            let removed = self.episodes.forget(session, ids.as_deref()).await?;
            tracing::info!(%session, removed, "vectors of memories removed");
        }
        Ok(())
    }
}

/// What is to be done for a batch.
#[derive(Default)]
struct Work {
    /// Exchanges that ended.
    ended: Vec<Vec<OpenTurn>>,
    /// Episodes and notes that get a vector, with their words.
    memories: Vec<(String, String)>,
    /// Those that lose theirs, for each request to forget; `None` for all.
    gone: Vec<Option<Vec<String>>>,
}

impl Work {
    /// `None` when the fold lacks words.
    fn of(batch: &[Delivery<MemoryEvent>], fold: &SessionFold) -> Option<Self> {
        let mut work = Self::default();
        let mut memory = |id: String, text: &str| {
            if fold.remembers(&id) {
                work.memories.push((id, text.to_owned()));
            }
        };
        for delivery in batch {
            match &delivery.event {
                MemoryEvent::EpisodeRemembered(event) => memory(event.episode_id.to_string(), &event.text),
                MemoryEvent::NoteWritten(event) => memory(event.note_id.to_string(), &event.text),
                MemoryEvent::TurnRecorded(_) | MemoryEvent::SummaryWritten(_) | MemoryEvent::MemoryForgotten(_) => {}
            }
        }
        for delivery in batch {
            match &delivery.event {
                MemoryEvent::TurnRecorded(event) => work.ended.push(fold.exchange_before(&event.turn_id)?),
                MemoryEvent::MemoryForgotten(event) => {
                    work.gone.push(event.target.as_deref().map(|target| fold.gone_with(target)));
                }
                MemoryEvent::SummaryWritten(_) | MemoryEvent::EpisodeRemembered(_) | MemoryEvent::NoteWritten(_) => {}
            }
        }
        work.ended.retain(|exchange| !exchange.is_empty());
        Some(work)
    }
}

/// An exchange in the words of its turns.
fn episode(session: &Session, turns: &[OpenTurn]) -> Option<EpisodeRemembered> {
    let first = turns.first()?;
    let lines: Vec<String> = turns.iter().map(|turn| format!("{}: {}", turn.role.as_str(), turn.text.trim())).collect();
    let text = lines.join("\n");
    let total = text.chars().count();
    let text = if total > MAX_EPISODE {
        let kept: String = text.chars().take(MAX_EPISODE).collect();
        format!("{kept}… ({MAX_EPISODE} of {total} characters)")
    } else {
        text
    };
    Some(EpisodeRemembered {
        namespace: session.namespace.clone(),
        session: session.name.clone(),
        episode_id: episode_id(session, first.turn_id),
        text,
        turn_ids: turns.iter().map(|turn| turn.turn_id).collect(),
        at: now_ms(),
    })
}

#[async_trait]
impl Worker for EpisodeKeeper {
    type Input = MemoryEvent;

    fn name(&self) -> &'static str {
        NAME
    }

    /// The projector does.
    fn answers_for_topic(&self) -> bool {
        false
    }

    fn lanes(&self) -> Lanes {
        Lanes::PerKey { parallel: PARALLEL, max_batch: MAX_BATCH }
    }

    async fn handle(&self, batch: &[Delivery<MemoryEvent>], context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let Some(last) = batch.last() else { return Ok(Vec::new()) };
        let session = last.event.session();
        let work = self.sessions.with(&session, batch, context, |fold| Work::of(batch, fold)).await?;
        if !work.memories.is_empty() {
            self.embed(&session, work.memories).await?;
        }
        self.forget(&session, &work.gone).await?;
        let episodes = work.ended.iter().filter_map(|turns| episode(&session, turns));
        episodes.map(|event| self.outgoing(MemoryEvent::from(event), &last.envelope)).collect()
    }

    async fn assigned(
        &self,
        partitions: &[AssignedPartition],
        _context: &Context,
    ) -> Result<Vec<(TopicPartition, StartAt)>, WorkError> {
        // Vectors that are gone are made again; what else is written again on the way is there already and counts once.
        let gone = self.episodes.is_empty().await?;
        Ok(self.sessions.assigned(partitions, gone))
    }

    async fn revoked(&self, partitions: &[TopicPartition]) {
        self.sessions.revoked(partitions);
    }
}
