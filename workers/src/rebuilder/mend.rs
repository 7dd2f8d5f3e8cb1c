//! One rebuild: what the log says is compared with what the indexes have, and what differs is written.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use riverrun_knowledge::charged_to;
use riverrun_knowledge::chunking::embedding_text_of;
use riverrun_log::{Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_models::{Account, Purpose};
use riverrun_schemas::ingest::{ChunkEvent, EmbeddingEvent, IngestEvent};
use riverrun_schemas::{ChunkId, Collection, Decoded, DocumentId, Envelope, EventSet, IngestId, Topic};
use riverrun_stores::{Gap, GapState, StoreError, VectorPoint, Versions};

use super::Rebuilder;
use super::batch::{Batch, Needs};
use super::fold::{Ends, Fold, Origin, Place, Version};
use super::follow::Follow;
use crate::embedder::{vectors, work_error};
use crate::indexer::{drop_if_empty, flush_vectors};
use crate::runtime::{Context, WorkError};

mod again;
mod torn;

/// Times that what is there is compared with the log: each further one takes somebody who changed it meanwhile.
const MAX_ROUNDS: usize = 10;
/// Chunks that are written together, while nobody else writes to the collection.
const MAX_GROUP: usize = 1_024;
/// Chunks that are embedded together.
const MAX_BATCH: usize = 64;

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// The collection's model; empty when it holds nothing.
    pub(super) model: String,
    pub(super) documents: usize,
    pub(super) chunks: usize,
    pub(super) vectors: usize,
    pub(super) keywords: usize,
    pub(super) embedded: usize,
    pub(super) removed: usize,
    /// Documents of which neither the log nor their stored bytes gave the chunks.
    pub(super) missing: Vec<DocumentId>,
}

/// What differs.
#[derive(Debug, Default)]
struct Todo {
    /// Batches that an index lacks, by where they are read.
    writes: BTreeMap<(Origin, i32), BTreeMap<i64, Needs>>,
    /// Documents of which other versions are there, too.
    stale: Vec<DocumentId>,
    /// Documents of which the two indexes have as many chunks, and not the same ones.
    torn: Vec<DocumentId>,
    /// Documents that should not be there.
    gone: Vec<DocumentId>,
    missing: Vec<DocumentId>,
}

impl Todo {
    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.stale.is_empty() && self.gone.is_empty() && self.torn.is_empty()
    }

    fn write(&mut self, version: &Version, origin: Origin, needs: Needs) {
        for Place { partition, offset } in version.places() {
            self.writes.entry((origin, partition)).or_default().insert(offset, needs);
        }
    }
}

/// What the collection's vectors are made with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Target {
    model: String,
    /// Length of its vectors; `None` when there are none yet.
    dimensions: Option<usize>,
}

/// Whether the collection is still what it was when a round began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Still {
    Same,
    /// It got another model meanwhile: nothing of this round fits any more.
    Changed,
}

pub(super) struct Mend<'r> {
    rebuilder: &'r Rebuilder,
    context: &'r Context,
    collection: &'r Collection,
    /// The request, and the record that it came with.
    request: (IngestId, &'r Envelope),
    /// What is nowhere on the log was handed in again.
    handed_in: bool,
    events: Follow,
    embeddings: Follow,
    /// Chunks without vectors were looked for.
    chunks_read: bool,
    fold: Fold,
    /// How far the embeddings went when it began: what comes later is the indexer's.
    ends: Ends,
    /// Documents that it wrote to: what comes of these later is its own to look after, too. An indexer in another process may have been
    /// at them between the look at the log and the writing.
    written: BTreeSet<DocumentId>,
    done: Done,
}

impl<'r> Mend<'r> {
    /// Reads the log.
    pub(super) async fn open(
        rebuilder: &'r Rebuilder,
        context: &'r Context,
        collection: &'r Collection,
        request: (IngestId, &'r Envelope),
    ) -> Result<Self, WorkError> {
        let mut fold = Fold::new(collection.clone());
        let (log, schemas) = (&context.log, &context.schemas);
        // Events first: what is heard of a document on the second topic is then never older than what is known of the first.
        let events = Follow::open(log, Topic::IngestEvents, |record| take_event(schemas, record, &mut fold)).await?;
        let embeddings =
            Follow::open(log, Topic::IngestEmbeddings, |record| take_embedding(schemas, record, &mut fold)).await?;
        let ends = embeddings.ends();
        Ok(Self {
            rebuilder,
            context,
            collection,
            request,
            handed_in: false,
            events,
            embeddings,
            chunks_read: false,
            fold,
            ends,
            written: BTreeSet::new(),
            done: Done::default(),
        })
    }

    /// Goes on until nothing differs.
    pub(super) async fn run(mut self) -> Result<Done, WorkError> {
        for _ in 0..MAX_ROUNDS {
            self.catch_up().await?;
            let target = self.target().await?;
            if self.fold.lacks_embeddings(&target.model) && !self.chunks_read {
                self.read_chunks().await?;
            }
            let mut todo = self.differences(&target).await?;
            if todo.is_empty() {
                todo.torn = self.torn(&target).await?;
            }
            if todo.is_empty() {
                if self.hand_in_again(&todo.missing, &target.model).await? {
                    continue;
                }
                return self.finished(target, todo.missing).await;
            }
            self.say(&todo);
            if self.write(&todo, &target).await? == Still::Same {
                self.clean(&todo, &target).await?;
            }
        }
        let reason = format!("{} was changed all the while it was made again", self.collection.quoted());
        Err(WorkError::retry("rebuild_unfinished", reason))
    }

    async fn catch_up(&mut self) -> Result<(), WorkError> {
        let Self { context, events, embeddings, fold, .. } = self;
        let (log, schemas) = (&context.log, &context.schemas);
        events.read_to_end(log, |record| take_event(schemas, record, fold)).await?;
        embeddings.read_to_end(log, |record| take_embedding(schemas, record, fold)).await?;
        Ok(())
    }

    async fn read_chunks(&mut self) -> Result<(), WorkError> {
        let Self { context, fold, .. } = self;
        let schemas = &context.schemas;
        let take = |record: &Record| {
            if let Some(event) = decoded::<ChunkEvent>(schemas, record) {
                fold.chunks(&event, place(record));
            }
        };
        Follow::open(&context.log, Topic::IngestChunks, take).await?;
        self.chunks_read = true;
        Ok(())
    }

    /// What is there decides; where nothing is, what was there last.
    async fn target(&self) -> Result<Target, StoreError> {
        let there = self.rebuilder.vectors.info(self.collection).await?;
        Ok(match there {
            Some(info) => Target { model: info.model, dimensions: Some(info.dimensions) },
            None => Target { model: self.fold.model().unwrap_or_default().to_owned(), dimensions: None },
        })
    }

    async fn differences(&self, target: &Target) -> Result<Todo, StoreError> {
        let vectors = self.rebuilder.vectors.documents(self.collection).await?;
        let keywords = self.rebuilder.keywords.documents(self.collection).await?;
        let mut todo = Todo::default();
        for (document, wanted) in self.fold.all(&target.model) {
            let there = (vectors.get(&document).copied().unwrap_or(0), keywords.get(&document).copied().unwrap_or(0));
            let is_later = |version: &Version| !self.written.contains(&document) && version.is_behind(&self.ends);
            if wanted.whole.is_some_and(|(version, origin)| origin == Origin::Embeddings && is_later(version)) {
                continue;
            }
            if let Some((version, origin)) = wanted.whole {
                let of_version = self.of_version(&document, version, there).await?;
                let lacks =
                    Needs { vectors: of_version.0 < version.chunks(), keywords: of_version.1 < version.chunks() };
                if lacks != Needs::default() {
                    todo.write(version, origin, lacks);
                }
                if wanted.coming.is_none() && of_version != there {
                    todo.stale.push(document);
                }
            }
            if let Some(version) = wanted.coming.filter(|version| !is_later(version)) {
                let of_version = self.of_version(&document, version, there).await?;
                let lacks =
                    Needs { vectors: of_version.0 < version.chunks(), keywords: of_version.1 < version.chunks() };
                if lacks != Needs::default() {
                    todo.write(version, Origin::Embeddings, lacks);
                }
            }
            if wanted.lost.is_some_and(|chunks| there != (chunks, chunks)) {
                todo.missing.push(document);
            }
        }
        for document in vectors.keys().chain(keywords.keys().filter(|document| !vectors.contains_key(*document))) {
            if self.is_gone(document, target) {
                todo.gone.push(*document);
            }
        }
        Ok(todo)
    }

    fn is_gone(&self, document: &DocumentId, target: &Target) -> bool {
        let wanted = self.fold.wanted(document, &target.model);
        if self.written.contains(document) { wanted.is_nothing() } else { wanted.is_gone(&self.ends) }
    }

    /// How many chunks of the version each index has, of `there` that it has of the document.
    async fn of_version(
        &self,
        document: &DocumentId,
        version: &Version,
        there: (usize, usize),
    ) -> Result<(usize, usize), StoreError> {
        let only = Versions::Only(version.version.clone());
        let vectors = match there.0 {
            0 => 0,
            _ => self.rebuilder.vectors.count_document(self.collection, document, &only).await?,
        };
        let keywords = match there.1 {
            0 => 0,
            _ => match self.rebuilder.keywords.count_document(self.collection, document, &only).await {
                // One that does not know versions is taken at its word.
                Err(StoreError::Unsupported(_)) => there.1,
                counted => counted?,
            },
        };
        Ok((vectors, keywords))
    }

    /// From here on searches may lack what is written now.
    fn say(&self, todo: &Todo) {
        let batches: usize = todo.writes.values().map(BTreeMap::len).sum();
        tracing::info!(collection = %self.collection, batches, removed = todo.gone.len(), "making a collection again from the log");
        if batches > 0 && self.rebuilder.gaps.of(self.collection).is_none() {
            let reason = "some of its chunks are not in its indexes".to_owned();
            self.rebuilder.gaps.note(self.collection, Gap { reason, state: GapState::Mending, elsewhere: false });
        }
    }

    async fn write(&mut self, todo: &Todo, target: &Target) -> Result<Still, WorkError> {
        for ((origin, partition), places) in &todo.writes {
            if self.write_partition(*origin, *partition, places, target).await? == Still::Changed {
                return Ok(Still::Changed);
            }
        }
        Ok(Still::Same)
    }

    async fn write_partition(
        &mut self,
        origin: Origin,
        partition: i32,
        places: &BTreeMap<i64, Needs>,
        target: &Target,
    ) -> Result<Still, WorkError> {
        let (Some((first, _)), Some((last, _))) = (places.first_key_value(), places.last_key_value()) else {
            return Ok(Still::Same);
        };
        let topic = match origin {
            Origin::Embeddings => Topic::IngestEmbeddings,
            Origin::Chunks => Topic::IngestChunks,
        };
        let from = TopicPartition::new(topic.name(), partition);
        let mut range = Tail::read_range(&self.context.log, from, StartAt::Offset(*first)).await?;
        let (mut group, mut chunks) = (Vec::new(), 0);
        // What falls off the log meanwhile is seen by the next try.
        while let Some(record) = range.next().await.map_err(|error| WorkError::retry(error.code(), &error))? {
            if record.offset > *last {
                break;
            }
            let needs = places.get(&record.offset);
            let batch = needs.and_then(|needs| Batch::of(&self.context.schemas, &record, origin, *needs));
            let Some(batch) = batch else { continue };
            chunks += batch.chunks.len();
            group.push(batch);
            if chunks >= MAX_GROUP {
                chunks = 0;
                if self.write_group(std::mem::take(&mut group), target).await? == Still::Changed {
                    return Ok(Still::Changed);
                }
            }
        }
        if group.is_empty() { Ok(Still::Same) } else { self.write_group(group, target).await }
    }

    /// Writes batches that are still wanted, alone with the collection (`VEC-2`, `KEY-2`), and makes them durable.
    async fn write_group(&mut self, mut group: Vec<Batch>, target: &Target) -> Result<Still, WorkError> {
        self.rebuilder.go_on()?;
        for batch in &mut group {
            self.give_vectors(batch, target).await?;
        }
        let turn = self.rebuilder.turns.of(self.collection);
        let _alone = turn.lock().await;
        // REBUILD-2: what the indexer has done with these documents is on the log by now, and nothing more is done meanwhile.
        self.catch_up().await?;
        if self.is_still(target).await? == Still::Changed {
            return Ok(Still::Changed);
        }
        group.retain(|batch| self.fold.wanted(&batch.document, &target.model).is(batch.ingest, &batch.version));
        self.write_wanted(group, target).await?;
        Ok(Still::Same)
    }

    async fn is_still(&self, target: &Target) -> Result<Still, WorkError> {
        let now = self.target().await?;
        Ok(if now.model == target.model { Still::Same } else { Still::Changed })
    }

    async fn write_wanted(&mut self, group: Vec<Batch>, target: &Target) -> Result<(), StoreError> {
        let (vectors, keywords) = (&self.rebuilder.vectors, &self.rebuilder.keywords);
        for batch in group {
            self.written.insert(batch.document);
            if let Some(points) = batch.points.filter(|points| batch.needs.vectors && !points.is_empty()) {
                vectors.ensure(self.collection, batch.dimensions, &target.model).await?;
                self.done.vectors += points.len();
                vectors.upsert(self.collection, points).await?;
            }
            if batch.needs.keywords {
                self.done.keywords += batch.chunks.len();
                keywords.upsert(self.collection, batch.chunks).await?;
            }
        }
        tokio::try_join!(flush_vectors(vectors.as_ref(), self.collection), keywords.commit(self.collection))?;
        Ok(())
    }

    /// Embeds what the log has no vector of the collection's model for, but what is there already.
    async fn give_vectors(&mut self, batch: &mut Batch, target: &Target) -> Result<(), WorkError> {
        let fits = batch.model == target.model && target.dimensions.is_none_or(|length| length == batch.dimensions);
        if !batch.needs.vectors || (fits && batch.points.is_some()) {
            return Ok(());
        }
        let there = self.there(batch).await?;
        let missing: Vec<_> = batch.chunks.iter().filter(|chunk| !there.contains(&chunk.chunk_id)).cloned().collect();
        let mut points = Vec::with_capacity(missing.len());
        let account = Account::of(&self.collection.namespace, Purpose::Ingest);
        let models = charged_to(&self.rebuilder.models, account);
        for part in missing.chunks(MAX_BATCH) {
            let texts = part.iter().map(|chunk| embedding_text_of(chunk.heading.as_deref(), &chunk.text)).collect();
            let reply = vectors(models.as_ref(), &target.model, texts).await;
            let reply = reply.map_err(|error| work_error(&error))?;
            batch.dimensions = reply.dimensions;
            self.done.embedded += part.len();
            points.extend(part.iter().cloned().zip(reply.vectors).map(|(chunk, vector)| VectorPoint { chunk, vector }));
            self.rebuilder.go_on()?;
        }
        batch.points = Some(points);
        Ok(())
    }

    /// Chunks of the batch's document that have a vector: after a crash they are not embedded again.
    async fn there(&self, batch: &Batch) -> Result<HashSet<ChunkId>, WorkError> {
        match self.rebuilder.vectors.chunks(self.collection, &batch.document).await {
            Ok(chunks) => Ok(chunks.into_iter().map(|chunk| chunk.chunk_id).collect()),
            Err(StoreError::Unsupported(_)) => Ok(HashSet::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what nothing on the log stands for any more.
    async fn clean(&mut self, todo: &Todo, target: &Target) -> Result<(), WorkError> {
        if todo.stale.is_empty() && todo.gone.is_empty() && todo.torn.is_empty() {
            return Ok(());
        }
        let turn = self.rebuilder.turns.of(self.collection);
        let _alone = turn.lock().await;
        self.catch_up().await?;
        match self.is_still(target).await? {
            Still::Same => self.remove(todo, target).await.map_err(WorkError::from),
            Still::Changed => Ok(()),
        }
    }

    async fn remove(&mut self, todo: &Todo, target: &Target) -> Result<(), StoreError> {
        let (vectors, keywords) = (&self.rebuilder.vectors, &self.rebuilder.keywords);
        let stale = todo.stale.iter().filter_map(|document| {
            let wanted = self.fold.wanted(document, &target.model);
            let (version, _) = wanted.whole.filter(|_| wanted.coming.is_none())?;
            Some((*document, Versions::Except(version.version.clone())))
        });
        let gone = todo.gone.iter().filter(|document| self.is_gone(document, target));
        let gone: Vec<_> = gone.map(|document| (*document, Versions::All)).collect();
        let torn = self.still_torn(&todo.torn, target).await?;
        self.done.removed += gone.len();
        for (document, versions) in stale.chain(gone).chain(torn) {
            vectors.delete_document(self.collection, &document, &versions).await?;
            keywords.delete_document(self.collection, &document, &versions).await?;
        }
        tokio::try_join!(flush_vectors(vectors.as_ref(), self.collection), keywords.commit(self.collection))?;
        drop_if_empty(vectors.as_ref(), keywords.as_ref(), self.collection).await
    }

    async fn finished(mut self, target: Target, missing: Vec<DocumentId>) -> Result<Done, WorkError> {
        let there = self.rebuilder.vectors.documents(self.collection).await?;
        self.done.documents = there.len();
        self.done.chunks = there.values().sum();
        self.done.model = if there.is_empty() { String::new() } else { target.model };
        self.done.missing = missing;
        Ok(self.done)
    }
}

fn place(record: &Record) -> Place {
    Place { partition: record.partition, offset: record.offset }
}

/// The event in a record; what this build can't read is nobody's chunks.
fn decoded<E: EventSet>(schemas: &Schemas, record: &Record) -> Option<E> {
    match schemas.decode::<E>(record) {
        Ok(Decoded::Event(event)) => Some(event),
        Ok(Decoded::UnknownType { .. }) | Err(_) => None,
    }
}

fn take_event(schemas: &Schemas, record: &Record, fold: &mut Fold) {
    if let Some(event) = decoded::<IngestEvent>(schemas, record) {
        fold.event(&event);
    }
}

fn take_embedding(schemas: &Schemas, record: &Record, fold: &mut Fold) {
    if let Some(event) = decoded::<EmbeddingEvent>(schemas, record) {
        fold.embedding(&event, place(record));
    }
}
