//! What a matrix is fitted to: questions with what they find, and with what people said of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use riverrun_knowledge::LanguageModels;
use riverrun_knowledge::retrieval::{JudgedQuestion, QueryAdapter, metrics, of_length_one};
use riverrun_models::{EmbedPurpose, ModelError};
use riverrun_schemas::{ChunkId, DocumentId};
use riverrun_stores::{ChunkFilter, CollectionInfo, MAX_HITS, VectorStore};
use riverrun_training::query_adapter::{Passages, Question, fit};

use crate::embedder::work_error;
use crate::reembedder::store_error;
use crate::runtime::WorkError;

/// Questions that are embedded together.
const BATCH: usize = 64;
/// Most chunks that are learned from: what bounds the memory, with [`QueryAdapter::MAX_DIMENSIONS`].
const MAX_PASSAGES: usize = 20_000;
/// Fewest chunks that a question is set beside, as far as there are so many.
const MIN_DEPTH: usize = 20;

/// A chunk that a question found.
#[derive(Clone, Copy)]
struct Hit {
    chunk: ChunkId,
    document: DocumentId,
}

/// All that is learned from.
pub(super) struct Material {
    passages: Passages,
    dimensions: usize,
    /// Those with a relevant document that is in the collection.
    pub(super) questions: Vec<Learned>,
}

/// A question, as it was judged and as it is learned from.
pub(super) struct Learned {
    pub(super) judged: JudgedQuestion,
    question: Question,
}

impl Material {
    /// Fits a matrix to the questions whose places are chosen, on a thread of its own.
    pub(super) async fn fit_in_background(
        self: &Arc<Self>,
        chosen: impl Fn(usize) -> bool + Send + 'static,
    ) -> Result<QueryAdapter, WorkError> {
        let material = self.clone();
        let fitted = tokio::task::spawn_blocking(move || {
            let places = material.questions.iter().enumerate().filter(|(place, _)| chosen(*place));
            let questions: Vec<&Question> = places.map(|(_, learned)| &learned.question).collect();
            fit(&material.passages, &questions)
        });
        let matrix = fitted.await.map_err(|error| WorkError::retry("tuning_interrupted", error))?;
        let matrix = matrix.map_err(|error| WorkError::poison("tuning_failed", error))?;
        QueryAdapter::new(self.dimensions, matrix)
            .ok_or_else(|| WorkError::poison("tuning_failed", "the matrix is not square"))
    }
}

/// Embeds the questions, and finds what they are set beside.
pub(super) async fn gather(
    vectors: &dyn VectorStore,
    models: &dyn LanguageModels,
    info: &CollectionInfo,
    judged: Vec<JudgedQuestion>,
) -> Result<Material, WorkError> {
    let judged: Vec<JudgedQuestion> =
        judged.into_iter().filter(|question| question.documents.values().any(|grade| *grade > 0.0)).collect();
    let asked = embed(models, info, &judged).await?;
    let mut found: Vec<Vec<Hit>> = Vec::with_capacity(judged.len());
    for vector in &asked {
        let hits = vectors.search(&info.collection, vector, MAX_HITS, &ChunkFilter::default()).await;
        let hits = hits.map_err(|error| store_error(&error))?.into_iter();
        found.push(hits.map(|hit| Hit { chunk: hit.chunk.chunk_id, document: hit.chunk.document_id }).collect());
    }
    cut(&mut found);
    let mut shelf = Shelf::default();
    let wanted: BTreeSet<ChunkId> = found.iter().flatten().map(|hit| hit.chunk).collect();
    let right: BTreeSet<DocumentId> = judged.iter().flat_map(relevant).collect();
    let documents: BTreeSet<DocumentId> =
        found.iter().flatten().map(|hit| hit.document).chain(right.iter().copied()).collect();
    for document in documents {
        let points = vectors.points(&info.collection, &document).await.map_err(|error| store_error(&error))?;
        let fits = points.into_iter().filter(|point| point.vector.len() == info.dimensions);
        for point in fits.filter(|point| right.contains(&document) || wanted.contains(&point.chunk.chunk_id)) {
            shelf.put(document, point.chunk.chunk_id, &point.vector);
        }
    }
    let learned = |((judged, vector), hits): ((JudgedQuestion, Vec<f32>), Vec<Hit>)| {
        let candidates = shelf.candidates(&judged, &vector, &hits)?;
        Some(Learned { judged, question: Question { vector, candidates } })
    };
    let questions = judged.into_iter().zip(asked).zip(found).filter_map(learned).collect();
    let passages = Passages::new(shelf.flat, info.dimensions);
    let passages = passages.map_err(|error| WorkError::poison("tuning_failed", error))?;
    Ok(Material { passages, dimensions: info.dimensions, questions })
}

fn relevant(question: &JudgedQuestion) -> impl Iterator<Item = DocumentId> + '_ {
    question.documents.iter().filter(|(_, grade)| **grade > 0.0).map(|(document, _)| *document)
}

async fn embed(
    models: &dyn LanguageModels,
    info: &CollectionInfo,
    judged: &[JudgedQuestion],
) -> Result<Vec<Vec<f32>>, WorkError> {
    let mut vectors = Vec::with_capacity(judged.len());
    for batch in judged.chunks(BATCH) {
        let texts: Vec<String> = batch.iter().map(|question| question.query.clone()).collect();
        let reply = models.embed(Some(&info.model), texts, EmbedPurpose::Query).await;
        let reply = reply.map_err(|error| work_error(&error))?;
        if reply.vectors.len() != batch.len() || reply.vectors.iter().any(|vector| vector.len() != info.dimensions) {
            let reason = format!("vectors of {} questions don't fit those of the collection", batch.len());
            return Err(work_error(&ModelError::Internal { reason }));
        }
        vectors.extend(reply.vectors.iter().map(|vector| of_length_one(vector)));
    }
    Ok(vectors)
}

/// Leaves of each question's hits the best, so that all together are no more chunks than are learned from.
fn cut(found: &mut [Vec<Hit>]) {
    let mut depth = MAX_HITS;
    loop {
        let chunks: BTreeSet<ChunkId> =
            found.iter().flat_map(|hits| hits.iter().take(depth)).map(|hit| hit.chunk).collect();
        if chunks.len() <= MAX_PASSAGES || depth <= MIN_DEPTH {
            break;
        }
        depth /= 2;
    }
    found.iter_mut().for_each(|hits| hits.truncate(depth));
}

/// Vectors of chunks, one behind the other.
#[derive(Default)]
struct Shelf {
    flat: Vec<f32>,
    places: HashMap<ChunkId, usize>,
    documents: BTreeMap<DocumentId, Vec<usize>>,
}

impl Shelf {
    fn put(&mut self, document: DocumentId, chunk: ChunkId, vector: &[f32]) {
        let place = self.places.len();
        if self.places.insert(chunk, place).is_none() {
            self.flat.extend(of_length_one(vector));
            self.documents.entry(document).or_default().push(place);
        }
    }

    /// What a question is set beside: of each relevant document the chunk that is nearest, with its gain, and what was found of others.
    /// `None` when no relevant document is in the collection.
    fn candidates(&self, judged: &JudgedQuestion, vector: &[f32], hits: &[Hit]) -> Option<Vec<(usize, f32)>> {
        let mut candidates: BTreeMap<usize, f32> = BTreeMap::new();
        for document in relevant(judged) {
            let places = self.documents.get(&document).into_iter().flatten().copied();
            let nearest = places.max_by(|a, b| self.cosine(vector, *a).total_cmp(&self.cosine(vector, *b)));
            candidates.extend(nearest.map(|place| (place, metrics::gain(judged.documents[&document]) as f32)));
        }
        if candidates.is_empty() {
            return None;
        }
        let others = hits.iter().filter(|hit| judged.documents.get(&hit.document).is_none_or(|grade| *grade <= 0.0));
        for place in others.filter_map(|hit| self.places.get(&hit.chunk)) {
            candidates.entry(*place).or_insert(0.0);
        }
        Some(candidates.into_iter().collect())
    }

    fn cosine(&self, vector: &[f32], place: usize) -> f32 {
        let start = place * vector.len();
        vector.iter().zip(&self.flat[start..start + vector.len()]).map(|(a, b)| a * b).sum()
    }
}
