use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use riverrun_models::{Account, ModelError, Purpose, Reranker};
use riverrun_schemas::{ChunkId, Collection, CollectionName, Failure, Namespace, counted};
use riverrun_stores::{
    Cache, CollectionInfo, Gap, Gaps, KeywordHit, KeywordIndex, MAX_HITS, StoreError, StoredChunk, VectorHit,
    VectorStore,
};

use super::adapter::{self, QueryAdapters};
use super::checks::{check, check_model, describe};
use super::context::{StoredTexts, TextFailure, Texts, widen};
use super::error::RetrievalError;
use super::figures::RetrievalFigures;
use super::fusion::{self, Ranked};
use super::query_vectors;
use super::rewrite;
use super::score_fusion::{self, Hits, LEAST_BM25, LEAST_COSINE};
use super::types::{
    Fusion, RERANKING_LEFT_OUT, Scores, SearchItem, SearchMode, SearchRequest, SearchResult, SearchTimes,
};
use crate::chunking::embedding_text_of;
use crate::models::{LanguageModels, charged_to};

/// How many hits of each kind are fused, at least: a chunk that is far down in both lists can still come first.
const MIN_DEPTH: usize = 50;
/// The same for a large `k`, as a multiple of it.
const DEPTH_FACTOR: usize = 4;
/// How many fused chunks are re-ranked, at least and at most: a cross-encoder reads each of them with the query.
const RERANK: std::ops::RangeInclusive<usize> = 20..=50;
/// Most bytes before and behind each passage that an agent reads: the results of its searches go into every later prompt.
const MAX_PASSAGE_BYTES: usize = 4_000;

/// How the note begins that says why a collection was searched as if it had not been tuned.
const TUNING_LEFT_OUT: &str = "tuning was left out";

/// Finds chunks. Clones share the stores and models.
#[derive(Clone)]
pub struct Retriever {
    vectors: Arc<dyn VectorStore>,
    keywords: Arc<dyn KeywordIndex>,
    models: Arc<dyn LanguageModels>,
    figures: Arc<RetrievalFigures>,
    /// Vectors of queries that came before.
    cache: Option<Arc<dyn Cache>>,
    /// Collections that are not whole.
    gaps: Gaps,
    /// What chunks are parts of.
    stored: Option<Arc<dyn StoredTexts>>,
    /// How many bytes before and behind a chunk agents read.
    passage_bytes: usize,
    /// Which collections are tuned.
    adapters: Option<Arc<dyn QueryAdapters>>,
}

impl std::fmt::Debug for Retriever {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retriever").finish_non_exhaustive()
    }
}

/// What both searches found, a list a wording.
struct Found {
    dense: Vec<Vec<VectorHit>>,
    sparse: Vec<Vec<KeywordHit>>,
}

impl Found {
    /// Whether there is nothing beyond what was found, where so many were asked for.
    fn is_all_of(&self, depth: usize) -> bool {
        self.dense.iter().all(|hits| hits.len() < depth) && self.sparse.iter().all(|hits| hits.len() < depth)
    }
}

/// What is told of a search beside what it found.
#[derive(Default)]
struct Told {
    took_ms: SearchTimes,
    notes: Vec<String>,
    tuned: bool,
}

/// Chunks that a search found for a wording, with its scores.
type ScoredList = Vec<(ChunkId, f32)>;

/// What a search does with what it found.
enum Reranking {
    Wanted,
    Unwanted,
    /// It is wanted where it can be had, which it can't: the reason.
    LeftOut(String),
}

impl Retriever {
    /// A retriever over these stores and models.
    pub fn new(
        vectors: Arc<dyn VectorStore>,
        keywords: Arc<dyn KeywordIndex>,
        models: Arc<dyn LanguageModels>,
    ) -> Self {
        Self {
            vectors,
            keywords,
            models,
            figures: Arc::default(),
            cache: None,
            gaps: Gaps::default(),
            stored: None,
            passage_bytes: 0,
            adapters: None,
        }
    }

    /// The same that moves the vectors of queries where a collection was tuned.
    pub fn with_adapters(self, adapters: Arc<dyn QueryAdapters>) -> Self {
        Self { adapters: Some(adapters), ..self }
    }

    /// The same with vectors of queries kept for a while.
    pub fn with_cache(self, cache: Arc<dyn Cache>) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// The same that says of which collections something may be lacking.
    pub fn with_gaps(self, gaps: Gaps) -> Self {
        Self { gaps, ..self }
    }

    /// The same that can show what stands around chunks; to agents it shows `passage_bytes` of it, at most 4,000.
    pub fn with_texts(self, stored: Arc<dyn StoredTexts>, passage_bytes: usize) -> Self {
        Self { stored: Some(stored), passage_bytes: passage_bytes.min(MAX_PASSAGE_BYTES), ..self }
    }

    /// The texts that chunks are parts of, as far as they can be read, and why the rest can't.
    pub(crate) async fn texts(&self, found: &[(&Collection, &SearchItem)]) -> (Texts, Option<TextFailure>) {
        let mut texts = Texts::default();
        let Some(stored) = &self.stored else {
            return (texts, Some(TextFailure("no stored texts are at hand".to_owned())));
        };
        for (collection, item) in found {
            if let Err(failure) = texts.add(stored.as_ref(), collection, item).await {
                tracing::warn!(error = %failure, "what stands around chunks is left out");
                return (texts, Some(failure));
            }
        }
        (texts, None)
    }

    /// Chunks of any collections, best first, as agents read them: with what stands around them, where that is set.
    pub async fn passages(&self, found: Vec<(Collection, SearchItem)>) -> Vec<SearchItem> {
        let pairs: Vec<(&Collection, &SearchItem)> = found.iter().map(|pair| (&pair.0, &pair.1)).collect();
        let texts = if self.passage_bytes > 0 { self.texts(&pairs).await.0 } else { Texts::default() };
        let items: Vec<SearchItem> = found.into_iter().map(|(_, item)| item).collect();
        widen(&items, &texts, self.passage_bytes)
    }

    /// What is to be said about collections of a namespace that are not whole; `None` asks about all of them.
    pub fn lacking(&self, namespace: &Namespace, collections: Option<&[CollectionName]>) -> Vec<String> {
        let asked = |of: &Collection| {
            of.namespace == *namespace && collections.is_none_or(|collections| collections.contains(&of.name))
        };
        let gaps = self.gaps.all().into_iter().filter(|(of, _)| asked(of));
        gaps.map(|(of, gap)| gap.note(&of)).collect()
    }

    /// How long its searches took.
    pub fn figures(&self) -> &RetrievalFigures {
        &self.figures
    }

    /// The best chunks for a query.
    pub async fn search(&self, request: &SearchRequest) -> Result<SearchResult, RetrievalError> {
        check(request)?;
        // Before the search: what is written meanwhile may have been missed by it.
        let gap = self.gaps.of(&request.collection);
        // Before anything is asked of a model.
        check_model(request, &self.collection(&request.collection).await?)?;
        let reranking = self.reranking(request);
        let mut told = Told::default();
        let wordings = self.wordings(request, &mut told).await;
        let (mut items, info) = self.fused(request, &wordings, &mut told).await?;
        let Told { mut took_ms, mut notes, tuned } = told;
        match reranking {
            Reranking::Unwanted => {}
            _ if items.is_empty() => {}
            Reranking::LeftOut(reason) => notes.push(left_out(&reason)),
            Reranking::Wanted => {
                let since = Instant::now();
                match self.rerank(request, &mut items).await {
                    Ok(()) => took_ms.rerank = Some(elapsed_ms(since)),
                    Err(error) if request.rerank == Some(true) => return Err(error.into()),
                    Err(error) => {
                        tracing::warn!(error = %error, "re-ranking left out");
                        notes.push(left_out(&error.to_string()));
                    }
                }
            }
        }
        items.truncate(request.k);
        self.figures.observe(&took_ms);
        let gap = gap.or_else(|| self.gaps.of(&request.collection));
        let incomplete = gap.map(|gap| incomplete(&gap, &request.collection));
        notes.extend(incomplete.as_ref().map(|failure| failure.message.clone()));
        Ok(SearchResult { items, took_ms, embed_model: info.model, tuned, notes, incomplete })
    }

    async fn collection(&self, collection: &Collection) -> Result<CollectionInfo, RetrievalError> {
        if let Some(info) = self.vectors.info(collection).await? {
            return Ok(info);
        }
        if let Some(gap) = self.gaps.of(collection) {
            return Err(RetrievalError::Incomplete { collection: collection.clone(), gap });
        }
        let existing = self.collections(&collection.namespace).await?.iter().map(ToString::to_string).collect();
        Err(RetrievalError::CollectionNotFound { collection: collection.clone(), existing })
    }

    /// The collections of a namespace, by name.
    pub async fn collections(&self, namespace: &Namespace) -> Result<Vec<CollectionName>, RetrievalError> {
        let all = self.vectors.list().await?;
        let mut names: Vec<_> = all
            .into_iter()
            .filter(|info| info.collection.namespace == *namespace)
            .map(|info| info.collection.name)
            .collect();
        names.sort();
        Ok(names)
    }

    /// Who says nothing is not made to wait for a model that has to be fetched first.
    fn reranking(&self, request: &SearchRequest) -> Reranking {
        match request.rerank {
            Some(true) => Reranking::Wanted,
            Some(false) => Reranking::Unwanted,
            None => match self.models.reranker() {
                Reranker::Ready => Reranking::Wanted,
                Reranker::Off => Reranking::Unwanted,
                Reranker::Fetching { model } => Reranking::LeftOut(format!("the re-ranker {model:?} is being fetched")),
                Reranker::Missing { model, fix } => {
                    Reranking::LeftOut(format!("the re-ranker {model:?} is not here: {fix}"))
                }
            },
        }
    }

    /// The query and what else is searched for.
    async fn wordings(&self, request: &SearchRequest, told: &mut Told) -> Vec<String> {
        let mut wordings = vec![request.query.clone()];
        wordings.extend(request.wordings.iter().cloned());
        if request.rewrite {
            let since = Instant::now();
            match rewrite::wordings(self.models_for(request).as_ref(), &request.query).await {
                Ok(found) => wordings.extend(found),
                Err(error) => {
                    tracing::warn!(error = %error, "other wordings left out");
                    told.notes.push(format!("other wordings were left out: {error}"));
                }
            }
            told.took_ms.rewrite = Some(elapsed_ms(since));
        }
        wordings
    }

    /// What both searches found, fused. Where documents are counted they go deeper until there are enough or nothing is left, and no
    /// deeper than a search may: of documents with many chunks there can be fewer.
    async fn fused(
        &self,
        request: &SearchRequest,
        wordings: &[String],
        told: &mut Told,
    ) -> Result<(Vec<SearchItem>, CollectionInfo), RetrievalError> {
        let mut depth = MIN_DEPTH.max(DEPTH_FACTOR * request.k);
        loop {
            let (found, info) = self.of_one_model(request, wordings, depth, told).await?;
            let is_deepest = !request.per_document || depth >= MAX_HITS || found.is_all_of(depth);
            let since = Instant::now();
            let mut items = fuse(found, request.fusion);
            if request.per_document {
                keep_best_of_each_document(&mut items);
            }
            told.took_ms.fuse += elapsed_ms(since);
            if is_deepest || items.len() >= request.k {
                return Ok((items, info));
            }
            depth = MAX_HITS.min(DEPTH_FACTOR * depth);
        }
    }

    /// Both searches, done again when the collection got another embedding model meanwhile: then vectors of two models were
    /// compared. It ends, because every further round takes another swap.
    async fn of_one_model(
        &self,
        request: &SearchRequest,
        wordings: &[String],
        depth: usize,
        told: &mut Told,
    ) -> Result<(Found, CollectionInfo), RetrievalError> {
        let mut info = self.collection(&request.collection).await?;
        loop {
            check_model(request, &info)?;
            let found = self.both(request, wordings, &info, depth, told).await;
            let now = self.collection(&request.collection).await?;
            if now == info {
                return Ok((found?, info));
            }
            info = now;
        }
    }

    /// Dense search, which has to embed the wordings first, and keyword search beside it.
    async fn both(
        &self,
        request: &SearchRequest,
        wordings: &[String],
        info: &CollectionInfo,
        depth: usize,
        told: &mut Told,
    ) -> Result<Found, RetrievalError> {
        let (collection, filter) = (&request.collection, &request.filter);
        let dense = async {
            if request.mode == SearchMode::Sparse {
                return Ok((Vec::new(), Ok(false), 0.0, 0.0));
            }
            let since = Instant::now();
            let mut vectors = self.embed_queries(request, wordings, info).await?;
            let adapters = self.adapters.as_deref().filter(|_| request.tuned);
            let tuned = adapter::apply(adapters, info, &mut vectors).await;
            let embed_ms = elapsed_ms(since);
            let since = Instant::now();
            let searches = vectors.iter().map(|vector| self.vectors.search(collection, vector, depth, filter));
            let hits = join_all(searches).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok::<_, RetrievalError>((hits, tuned, embed_ms, elapsed_ms(since)))
        };
        let sparse = async {
            if request.mode == SearchMode::Dense {
                return Ok((Vec::new(), 0.0));
            }
            let since = Instant::now();
            let searches = wordings.iter().map(|wording| self.keywords.search(collection, wording, depth, filter));
            let found = join_all(searches).await.into_iter();
            let hits = found.map(or_nothing).collect::<Result<Vec<_>, _>>()?;
            Ok::<_, RetrievalError>((hits, elapsed_ms(since)))
        };
        let ((dense, tuned, embed_ms, dense_ms), (sparse, sparse_ms)) = tokio::try_join!(dense, sparse)?;
        told.took_ms.embed += embed_ms;
        told.took_ms.dense += dense_ms;
        told.took_ms.sparse += sparse_ms;
        told.tuned = *tuned.as_ref().unwrap_or(&false);
        if let Err(failure) = tuned {
            tracing::warn!(error = %failure, "tuning left out");
            told.notes.retain(|note| !note.starts_with(TUNING_LEFT_OUT));
            told.notes.push(format!("{TUNING_LEFT_OUT}: {failure}"));
        }
        Ok(Found { dense, sparse })
    }

    async fn embed_queries(
        &self,
        request: &SearchRequest,
        wordings: &[String],
        info: &CollectionInfo,
    ) -> Result<Vec<Vec<f32>>, RetrievalError> {
        let models = self.models_for(request);
        let reply = query_vectors::embed(models.as_ref(), self.cache.as_deref(), info, wordings).await?;
        match reply.vectors.iter().find(|vector| vector.len() != info.dimensions) {
            Some(vector) => Err(RetrievalError::EmbeddingModelMismatch {
                collection: request.collection.clone(),
                stored: describe(&info.model, info.dimensions),
                wanted: describe(&reply.model, vector.len()),
            }),
            None => Ok(reply.vectors),
        }
    }

    /// The models, charged to the namespace that is searched.
    fn models_for(&self, request: &SearchRequest) -> Arc<dyn LanguageModels> {
        charged_to(&self.models, Account::of(&request.collection.namespace, Purpose::Search))
    }

    /// Puts the best fused chunks into the order of the cross-encoder; the rest goes.
    async fn rerank(&self, request: &SearchRequest, items: &mut Vec<SearchItem>) -> Result<(), ModelError> {
        items.truncate((DEPTH_FACTOR * request.k).clamp(*RERANK.start(), (*RERANK.end()).max(request.k)));
        let documents: Vec<String> = items.iter().map(readable).collect();
        let scores = self.models_for(request).rerank(request.query.clone(), documents).await?;
        if scores.len() != items.len() || scores.iter().any(|score| !score.is_finite()) {
            return Err(ModelError::Internal {
                reason: format!("{} came for {}", counted(scores.len(), "usable score"), counted(items.len(), "chunk")),
            });
        }
        for (item, score) in items.iter_mut().zip(scores) {
            item.scores.rerank = Some(score);
            item.score = f64::from(score);
        }
        // Stable: equal scores stay in fused order.
        items.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(())
    }
}

/// A new collection has its vectors a moment before its keywords, and keywords that are being made again hold nothing yet: what has
/// none is searched by meaning alone. Whether the collection is there at all was asked of the vectors.
fn or_nothing(hits: Result<Vec<KeywordHit>, StoreError>) -> Result<Vec<KeywordHit>, StoreError> {
    match hits {
        Err(StoreError::NoCollection(_)) => Ok(Vec::new()),
        other => other,
    }
}

fn left_out(reason: &str) -> String {
    format!("{RERANKING_LEFT_OUT}: {reason}")
}

fn incomplete(gap: &Gap, collection: &Collection) -> Failure {
    Failure::new("index_incomplete", gap.note(collection)).with_hint(gap.fix(collection))
}

/// A chunk with the headings that it stands under, as it was embedded.
fn readable(item: &SearchItem) -> String {
    embedding_text_of(item.heading(), &item.text)
}

fn fuse(found: Found, fusion: Fusion) -> Vec<SearchItem> {
    let dense: Vec<ScoredList> =
        found.dense.iter().map(|hits| hits.iter().map(|hit| (hit.chunk.chunk_id, hit.score)).collect()).collect();
    let sparse: Vec<ScoredList> =
        found.sparse.iter().map(|hits| hits.iter().map(|hit| (hit.chunk.chunk_id, hit.score)).collect()).collect();
    let fused = match fusion {
        Fusion::Rrf => by_ranks(&dense, &sparse),
        Fusion::Scores => by_scores(&dense, &sparse),
    };
    // The query itself comes first: its scores are shown where it found the chunk.
    let mut chunks: HashMap<ChunkId, (StoredChunk, Option<f32>, Option<f32>)> = HashMap::new();
    for VectorHit { chunk, score } in found.dense.into_iter().flatten() {
        chunks.entry(chunk.chunk_id).or_insert((chunk, Some(score), None));
    }
    for KeywordHit { chunk, score } in found.sparse.into_iter().flatten() {
        chunks.entry(chunk.chunk_id).or_insert((chunk, None, None)).2.get_or_insert(score);
    }
    let item = |(id, fused): (ChunkId, f64)| {
        let (chunk, dense, sparse) = chunks.remove(&id)?;
        Some(SearchItem::new(chunk, Scores { dense, sparse, fused, rerank: None }))
    };
    fused.into_iter().filter_map(item).collect()
}

/// Of each document the first of its chunks.
fn keep_best_of_each_document(items: &mut Vec<SearchItem>) {
    let mut seen = HashSet::new();
    items.retain(|item| seen.insert(item.document_id));
}

fn by_ranks(dense: &[ScoredList], sparse: &[ScoredList]) -> Vec<(ChunkId, f64)> {
    let dense = dense.iter().map(|hits| Ranked { hits, least: LEAST_COSINE });
    let sparse = sparse.iter().map(|hits| Ranked { hits, least: LEAST_BM25 });
    let lists: Vec<Ranked<'_, ChunkId>> = dense.chain(sparse).collect();
    fusion::fuse(&lists, fusion::K)
}

fn by_scores(dense: &[ScoredList], sparse: &[ScoredList]) -> Vec<(ChunkId, f64)> {
    let wordings: Vec<Hits<'_, ChunkId>> = (0..dense.len().max(sparse.len()))
        .map(|at| Hits { dense: list_at(dense, at), sparse: list_at(sparse, at) })
        .collect();
    score_fusion::fuse(&wordings, score_fusion::ALPHA)
}

/// A wording's list; of a search that was not done it is empty.
fn list_at(lists: &[ScoredList], at: usize) -> &[(ChunkId, f32)] {
    lists.get(at).map(Vec::as_slice).unwrap_or_default()
}

/// Milliseconds since then, to the microsecond.
pub(crate) fn elapsed_ms(since: Instant) -> f64 {
    since.elapsed().as_micros() as f64 / 1000.0
}
