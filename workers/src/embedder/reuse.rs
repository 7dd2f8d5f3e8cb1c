//! Vectors that a document has already: where a chunk's text stayed, it is not embedded again.
//!
//! A vector in the index may be another than the model would give now: the chunk was embedded within its document (`late`), or the
//! model is another under the same name. So the first batch in which a document has something that stayed embeds one such chunk all
//! the same. Where that vector points elsewhere than the old one, nothing of the document's is taken over.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use riverrun_knowledge::chunking::{embedding_text, embedding_text_of};
use riverrun_schemas::ingest::ChunksReady;
use riverrun_schemas::{Collection, DocumentId, IngestId};
use riverrun_stores::{StoreError, VectorPoint, VectorStore, Versions};
use sha2::{Digest, Sha256};

/// A document of more chunks is embedded wholly: its vectors are in memory for as long as it is worked on.
const MAX_CHUNKS: usize = 5_000;
/// Documents that are remembered: those whose batches come by turns.
const MAX_OPEN: usize = 4;
/// Cosine from which two vectors are the same but for rounding. A chunk within other text is further off.
const SAME: f32 = 0.999;

const UNPROVEN: u8 = 0;
const PROVEN: u8 = 1;
const REFUTED: u8 = 2;

type Text = [u8; 32];

/// The vectors of one document's chunks, by what was embedded.
#[derive(Debug)]
pub(super) struct Known {
    vectors: HashMap<Text, Vec<f32>>,
    standing: AtomicU8,
}

impl Known {
    fn of(points: Vec<VectorPoint>) -> Self {
        let of_point = |VectorPoint { chunk, vector }: VectorPoint| {
            (hash(&embedding_text_of(chunk.heading.as_deref(), &chunk.text)), vector)
        };
        Self { vectors: points.into_iter().map(of_point).collect(), standing: AtomicU8::new(UNPROVEN) }
    }

    fn is(&self, standing: u8) -> bool {
        self.standing.load(Ordering::Relaxed) == standing
    }

    fn becomes(&self, standing: u8) {
        self.standing.store(standing, Ordering::Relaxed);
    }
}

fn hash(text: &str) -> Text {
    Sha256::digest(text).into()
}

/// Finds out what documents have already. Without a store of vectors that is nothing.
#[derive(Default)]
pub(super) struct Reuse {
    store: Option<Arc<dyn VectorStore>>,
    open: Mutex<VecDeque<((IngestId, DocumentId), Option<Arc<Known>>)>>,
}

impl Reuse {
    pub(super) fn of(store: Arc<dyn VectorStore>) -> Self {
        Self { store: Some(store), open: Mutex::default() }
    }

    /// What the document of a batch has already.
    pub(super) async fn known(&self, ready: &ChunksReady) -> Option<Arc<Known>> {
        let store = self.store.as_ref()?;
        let document = (ready.ingest_id, ready.document_id);
        let remembered = self.open.lock().iter().find(|(open, _)| *open == document).map(|(_, known)| known.clone());
        if let Some(known) = remembered {
            return known;
        }
        let known = match load(store.as_ref(), ready).await {
            Ok(known) => known.map(Arc::new),
            // All of it is embedded then.
            Err(error) => {
                tracing::debug!(source = ready.source, %error, "what a document has already could not be read");
                None
            }
        };
        let mut open = self.open.lock();
        open.push_back((document, known.clone()));
        if open.len() > MAX_OPEN {
            open.pop_front();
        }
        known
    }
}

async fn load(store: &dyn VectorStore, ready: &ChunksReady) -> Result<Option<Known>, StoreError> {
    let collection = Collection::new(ready.namespace.clone(), ready.collection.clone());
    let info = store.info(&collection).await?;
    if info.is_none_or(|info| info.model != ready.embed_model) {
        return Ok(None);
    }
    let there = store.count_document(&collection, &ready.document_id, &Versions::All).await?;
    if there == 0 || there > MAX_CHUNKS {
        return Ok(None);
    }
    Ok(Some(Known::of(store.points(&collection, &ready.document_id).await?)))
}

/// The chunks of a batch on their way to their vectors. Pure.
pub(super) struct Plan {
    texts: Vec<String>,
    vectors: Vec<Option<Vec<f32>>>,
    known: Option<Arc<Known>>,
    /// A chunk that is embedded although it stayed, and its old vector.
    probe: Option<(usize, Vec<f32>)>,
}

impl Plan {
    /// The plan of each batch: what is taken over and what is to be embedded.
    pub(super) fn all<'r>(batches: impl IntoIterator<Item = (&'r ChunksReady, Option<Arc<Known>>)>) -> Vec<Self> {
        let mut plans: Vec<Self> = Vec::new();
        for (ready, known) in batches {
            let mut plan = Self::of(ready, known);
            // One probe a document.
            let probed = plans.iter().any(|other| other.probe.is_some() && other.is_with(&plan));
            if !probed {
                plan.take_probe();
            }
            plans.push(plan);
        }
        plans
    }

    fn of(ready: &ChunksReady, known: Option<Arc<Known>>) -> Self {
        let texts: Vec<String> = ready.chunks.iter().map(embedding_text).collect();
        let usable = known.filter(|known| !known.is(REFUTED));
        let vectors = match &usable {
            Some(known) => texts.iter().map(|text| known.vectors.get(&hash(text)).cloned()).collect(),
            None => vec![None; texts.len()],
        };
        Self { texts, vectors, known: usable, probe: None }
    }

    fn is_with(&self, other: &Self) -> bool {
        match (&self.known, &other.known) {
            (Some(own), Some(others)) => Arc::ptr_eq(own, others),
            (None, _) | (_, None) => false,
        }
    }

    fn take_probe(&mut self) {
        if self.known.as_ref().is_some_and(|known| known.is(UNPROVEN)) {
            let stayed = self.vectors.iter().position(Option::is_some);
            self.probe = stayed.and_then(|at| Some((at, self.vectors[at].take()?)));
        }
    }

    /// The texts that have no vector yet.
    pub(super) fn lacking(&self) -> impl Iterator<Item = &String> {
        self.texts.iter().zip(&self.vectors).filter(|(_, vector)| vector.is_none()).map(|(text, _)| text)
    }

    /// Takes a vector for each of [`Self::lacking`].
    pub(super) fn fill(&mut self, made: &mut impl Iterator<Item = Vec<f32>>) {
        for vector in self.vectors.iter_mut().filter(|vector| vector.is_none()) {
            *vector = made.next();
        }
    }

    /// Compares what was embedded once more with what was there.
    pub(super) fn prove(&self) {
        let (Some(known), Some((at, old))) = (&self.known, &self.probe) else { return };
        let is_same = self.vectors[*at].as_ref().is_some_and(|new| cosine(old, new) >= SAME);
        known.becomes(if is_same { PROVEN } else { REFUTED });
    }

    /// Lets go of what was taken over where that was refuted, or where it has not the length that vectors have now.
    pub(super) fn settle(&mut self, dimensions: usize) {
        let Some(known) = &self.known else { return };
        if self.vectors.iter().flatten().any(|vector| vector.len() != dimensions) {
            known.becomes(REFUTED);
        }
        if known.is(REFUTED) {
            self.vectors.fill(None);
        }
    }

    /// The vectors, once all are there.
    pub(super) fn finished(self) -> Option<Vec<Vec<f32>>> {
        self.vectors.into_iter().collect()
    }

    /// The length of a vector that is there.
    pub(super) fn dimensions(&self) -> Option<usize> {
        self.vectors.iter().flatten().next().map(Vec::len)
    }
}

/// Of vectors of another length, or of no length, it is 0.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { dot(a, b) / lengths } else { 0.0 }
}
