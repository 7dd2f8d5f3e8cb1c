//! What a matrix is fitted to: questions with what they find, and with what people said of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use riverrun_knowledge::LanguageModels;
use riverrun_knowledge::retrieval::{JudgedQuestion, QueryAdapter, metrics, of_length_one};
use riverrun_models::{EmbedPurpose, ModelError};
use riverrun_schemas::{ChunkId, Collection, DocumentId};
use riverrun_stores::{ChunkFilter, CollectionInfo, MAX_HITS, VectorStore};
use riverrun_training::query_adapter::{Passages, Question, fit};
use tokio_util::sync::CancellationToken;

use super::read_error;
use crate::embedder::work_error;
use crate::runtime::WorkError;

/// Questions that are embedded together.
const BATCH: usize = 64;
/// Documents that are looked for together.
const MAX_LOOKED_FOR: usize = 1_000;
/// Most chunks that all questions are set beside, and most that are relevant to them: what bounds the memory, with
/// [`QueryAdapter::MAX_DIMENSIONS`].
const MAX_PASSAGES: usize = 20_000;
/// Fewest chunks that a question is set beside, and fewest that are relevant to it, as far as there are so many.
const MIN_DEPTH: usize = MAX_PASSAGES / JudgedQuestion::MAX;

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
        let (material, unwanted) = (self.clone(), CancellationToken::new());
        // Who is stopped meanwhile, or loses the partition, leaves no thread behind that goes on for minutes.
        let _guard = unwanted.clone().drop_guard();
        let fitted = tokio::task::spawn_blocking(move || {
            let places = material.questions.iter().enumerate().filter(|(place, _)| chosen(*place));
            let questions: Vec<&Question> = places.map(|(_, learned)| &learned.question).collect();
            fit(&material.passages, &questions, &|| unwanted.is_cancelled())
        });
        let matrix = fitted.await.map_err(|error| WorkError::retry("tuning_interrupted", error))?;
        let matrix = matrix.map_err(|error| WorkError::poison("tuning_failed", error))?;
        QueryAdapter::new(self.dimensions, matrix)
            .ok_or_else(|| WorkError::poison("tuning_failed", "the matrix is not square"))
    }
}

/// Those of the questions to which a document is relevant that is in the collection. Others count for nothing.
pub(super) async fn answerable(
    vectors: &dyn VectorStore,
    collection: &Collection,
    mut judged: Vec<JudgedQuestion>,
) -> Result<Vec<JudgedQuestion>, WorkError> {
    let wanted: BTreeSet<DocumentId> = judged.iter().flat_map(relevant).map(|(document, _)| document).collect();
    let wanted: Vec<DocumentId> = wanted.into_iter().collect();
    let mut there: BTreeSet<DocumentId> = BTreeSet::new();
    for documents in wanted.chunks(MAX_LOOKED_FOR) {
        let found = vectors.count_documents(collection, documents).await.map_err(read_error)?;
        there.extend(found.into_keys());
    }
    for question in &mut judged {
        question.documents.retain(|document, grade| *grade <= 0.0 || there.contains(document));
    }
    judged.retain(|question| relevant(question).next().is_some());
    Ok(judged)
}

/// Embeds the questions, and finds what they are set beside.
pub(super) async fn gather(
    vectors: &dyn VectorStore,
    models: &dyn LanguageModels,
    info: &CollectionInfo,
    mut judged: Vec<JudgedQuestion>,
) -> Result<Material, WorkError> {
    // JUDGE-2: sums of numbers depend on their order.
    judged.sort_by(|a, b| a.query.cmp(&b.query));
    let asked = embed(models, info, &judged).await?;
    let mut found: Vec<Vec<Hit>> = Vec::with_capacity(judged.len());
    for vector in &asked {
        let hits = vectors.search(&info.collection, vector, MAX_HITS, &ChunkFilter::default()).await;
        let hits = hits.map_err(read_error)?.into_iter();
        found.push(hits.map(|hit| Hit { chunk: hit.chunk.chunk_id, document: hit.chunk.document_id }).collect());
    }
    cut(&mut found);
    let (mut shelf, mut right) = (Shelf::default(), Right::of(&judged));
    let wanted: BTreeSet<ChunkId> = found.iter().flatten().map(|hit| hit.chunk).collect();
    let found_in = found.iter().flatten().map(|hit| hit.document);
    let documents: BTreeSet<DocumentId> = found_in.chain(right.askers.keys().copied()).collect();
    for document in documents {
        let points = vectors.points(&info.collection, &document).await.map_err(read_error)?;
        let fits = points.into_iter().filter(|point| point.vector.len() == info.dimensions);
        let mut chunks: Vec<(ChunkId, Vec<f32>)> =
            fits.map(|point| (point.chunk.chunk_id, of_length_one(&point.vector))).collect();
        // They lie in any order.
        chunks.sort_by_key(|(chunk, _)| *chunk);
        for (chunk, vector) in chunks.iter().filter(|(chunk, _)| wanted.contains(chunk)) {
            shelf.put(*chunk, vector);
        }
        right.learn(&document, &chunks, &asked, &mut shelf);
    }
    let mut questions = Vec::with_capacity(judged.len());
    for (((judged, vector), right), hits) in judged.into_iter().zip(asked).zip(right.candidates).zip(found) {
        if let Some(candidates) = shelf.candidates(&judged, right, &hits) {
            questions.push(Learned { judged, question: Question { vector, candidates } });
        }
    }
    let passages = Passages::new(shelf.flat, info.dimensions);
    let passages = passages.map_err(|error| WorkError::poison("tuning_failed", error))?;
    Ok(Material { passages, dimensions: info.dimensions, questions })
}

fn relevant(question: &JudgedQuestion) -> impl Iterator<Item = (DocumentId, f64)> + '_ {
    question.documents.iter().filter(|(_, grade)| **grade > 0.0).map(|(document, grade)| (*document, *grade))
}

/// The documents that a question is to find, the best first, as many as are learned from.
fn best(question: &JudgedQuestion, most: usize) -> Vec<(DocumentId, f64)> {
    let mut documents: Vec<(DocumentId, f64)> = relevant(question).collect();
    // Stable: of those with one grade the first by their ids.
    documents.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    documents.truncate(most);
    documents
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
        depth = (depth / 2).max(MIN_DEPTH);
    }
    found.iter_mut().for_each(|hits| hits.truncate(depth));
}

/// Vectors of chunks, one behind the other.
#[derive(Default)]
struct Shelf {
    flat: Vec<f32>,
    places: HashMap<ChunkId, usize>,
}

impl Shelf {
    /// Where the chunk stands, from now on at the latest.
    fn put(&mut self, chunk: ChunkId, vector: &[f32]) -> usize {
        let next = self.places.len();
        let place = *self.places.entry(chunk).or_insert(next);
        if place == next {
            self.flat.extend_from_slice(vector);
        }
        place
    }

    /// What a question is set beside: what is right, and what was found of other documents. `None` when nothing is right.
    fn candidates(
        &self,
        judged: &JudgedQuestion,
        mut candidates: BTreeMap<usize, f32>,
        hits: &[Hit],
    ) -> Option<Vec<(usize, f32)>> {
        if candidates.is_empty() {
            return None;
        }
        let others = hits.iter().filter(|hit| judged.documents.get(&hit.document).is_none_or(|grade| *grade <= 0.0));
        for place in others.filter_map(|hit| self.places.get(&hit.chunk)) {
            candidates.entry(*place).or_insert(0.0);
        }
        Some(candidates.into_iter().collect())
    }
}

/// What questions are to find.
struct Right {
    /// By document the questions that look for it, each by its place and with the gain.
    askers: BTreeMap<DocumentId, Vec<(usize, f32)>>,
    /// Of each question the places of chunks, with the gains.
    candidates: Vec<BTreeMap<usize, f32>>,
}

impl Right {
    fn of(judged: &[JudgedQuestion]) -> Self {
        let most = (MAX_PASSAGES / judged.len().max(1)).max(MIN_DEPTH);
        let mut askers: BTreeMap<DocumentId, Vec<(usize, f32)>> = BTreeMap::new();
        for (at, question) in judged.iter().enumerate() {
            for (document, grade) in best(question, most) {
                askers.entry(document).or_default().push((at, metrics::gain(grade) as f32));
            }
        }
        Self { askers, candidates: vec![BTreeMap::new(); judged.len()] }
    }

    /// Takes of a document the chunk that is nearest to each question that looks for it.
    fn learn(&mut self, document: &DocumentId, chunks: &[(ChunkId, Vec<f32>)], asked: &[Vec<f32>], shelf: &mut Shelf) {
        for (at, gain) in self.askers.get(document).into_iter().flatten() {
            let cosines = chunks.iter().map(|(_, vector)| cosine(&asked[*at], vector));
            let nearest = cosines.zip(chunks).max_by(|(a, _), (b, _)| a.total_cmp(b));
            if let Some((_, (chunk, vector))) = nearest {
                self.candidates[*at].insert(shelf.put(*chunk, vector), *gain);
            }
        }
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(number: usize) -> DocumentId {
        DocumentId::derive(&[&number.to_string()])
    }

    fn question(text: &str, grades: impl IntoIterator<Item = f64>) -> JudgedQuestion {
        let documents = grades.into_iter().enumerate().map(|(at, grade)| (document(at), grade)).collect();
        JudgedQuestion { query: text.to_owned(), documents }
    }

    #[test]
    fn given_many_documents_that_are_relevant_when_they_are_learned_from_then_only_the_best_of_each_question_are() {
        // Of each grade from 0 to 9 three.
        let grades = || (0..30_u8).map(|number| f64::from(number % 10));
        let judged: Vec<JudgedQuestion> =
            (0..JudgedQuestion::MAX).map(|number| question(&number.to_string(), grades())).collect();
        let right = Right::of(&judged);
        assert_eq!(right.askers.values().map(Vec::len).sum::<usize>(), MAX_PASSAGES);
        assert!(right.askers.values().flatten().all(|(_, gain)| *gain >= metrics::gain(6.0) as f32));
        // Few questions are learned from with all that people found; what has the grade 0 is not relevant.
        assert_eq!(Right::of(&judged[..10]).askers.len(), 27);
    }

    #[test]
    fn given_documents_that_questions_look_for_when_they_are_read_then_each_takes_its_nearest_chunk_once() {
        let judged = [question("a", [1.0]), question("b", [3.0]), question("c", [0.0])];
        let asked = [vec![1.0, 0.0], vec![0.0, 1.0], vec![1.0, 0.0]];
        let chunk = |number: usize| ChunkId::derive(&[&number.to_string()]);
        let chunks = [(chunk(0), vec![0.6, 0.8]), (chunk(1), vec![1.0, 0.0])];
        let (mut shelf, mut right) = (Shelf::default(), Right::of(&judged));
        right.learn(&document(0), &chunks, &asked, &mut shelf);
        assert_eq!(shelf.flat, [1.0, 0.0, 0.6, 0.8]);
        let hits = [Hit { chunk: chunk(0), document: document(0) }, Hit { chunk: chunk(1), document: document(0) }];
        let candidates = |at: usize| shelf.candidates(&judged[at], right.candidates[at].clone(), &hits);
        assert_eq!((candidates(0), candidates(1)), (Some(vec![(0, 1.0)]), Some(vec![(1, 7.0)])));
        assert_eq!(candidates(2), None, "nothing is relevant to it");
    }

    #[test]
    fn given_more_hits_than_are_learned_from_when_they_are_cut_then_all_questions_together_keep_no_more() {
        for questions in [10, 200, JudgedQuestion::MAX] {
            let hit = |number: usize| Hit { chunk: ChunkId::derive(&[&number.to_string()]), document: document(0) };
            // Each question finds what no other does, as far as a test may take.
            let depth = (4 * MAX_PASSAGES / questions).min(MAX_HITS);
            let mut found: Vec<Vec<Hit>> =
                (0..questions).map(|at| (0..depth).map(|hit_at| hit(at * depth + hit_at)).collect()).collect();
            cut(&mut found);
            let kept: usize = found.iter().map(Vec::len).sum();
            assert!(kept <= MAX_PASSAGES && kept >= questions * MIN_DEPTH, "{kept} for {questions}");
        }
    }
}
