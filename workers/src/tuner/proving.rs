//! Whether a tuning helps: cross-validation over the searches that everyone has.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use riverrun_knowledge::retrieval::metrics::{Judged, Quality, quality};
use riverrun_knowledge::retrieval::{AdapterFailure, Fusion, QueryAdapter, QueryAdapters, RetrievalError, SearchMode};
use riverrun_knowledge::{LanguageModels, Retriever, SearchRequest};
use riverrun_schemas::ingest::SearchGain;
use riverrun_stores::{CollectionInfo, LocalCache};
use sha2::{Digest, Sha256};

use super::Tuner;
use super::learning::{Learned, Material};
use crate::runtime::WorkError;

/// Into how many parts the questions are divided.
const PARTS: usize = 5;
/// The ways of searching.
const SEARCHES: [(&str, SearchMode, Fusion); 3] = [
    ("dense", SearchMode::Dense, Fusion::Rrf),
    ("hybrid", SearchMode::Hybrid, Fusion::Rrf),
    ("scores", SearchMode::Hybrid, Fusion::Scores),
];

/// One adapter for whatever collection is asked for.
struct Only(Arc<QueryAdapter>);

#[async_trait]
impl QueryAdapters for Only {
    async fn of(&self, _info: &CollectionInfo) -> Result<Option<Arc<QueryAdapter>>, AdapterFailure> {
        Ok(Some(self.0.clone()))
    }
}

/// Rankings of documents for the questions that were asked so far, each way.
#[derive(Default)]
struct Rankings([Vec<Vec<String>>; SEARCHES.len()]);

/// What tuning does to each way of searching.
pub(super) async fn gains(
    tuner: &Tuner,
    models: Arc<dyn LanguageModels>,
    info: &CollectionInfo,
    material: &Arc<Material>,
) -> Result<Vec<SearchGain>, WorkError> {
    let retriever = Retriever::new(tuner.vectors.clone(), tuner.keywords.clone(), models)
        .with_cache(Arc::new(LocalCache::default()));
    let parts: Arc<[usize]> = parts(&material.questions).into();
    let (mut before, mut after, mut judged) = (Rankings::default(), Rankings::default(), Vec::new());
    for part in 0..PARTS {
        let others = parts.clone();
        let adapter = material.fit_in_background(move |place| others[place] != part).await?;
        let tuned = retriever.clone().with_adapters(Arc::new(Only(Arc::new(adapter))));
        for (learned, _) in material.questions.iter().zip(parts.iter()).filter(|(_, of)| **of == part) {
            before.ask(&retriever, info, &learned.judged.query).await?;
            after.ask(&tuned, info, &learned.judged.query).await?;
            judged.push(grades(learned));
        }
    }
    let found = SEARCHES.iter().zip(before.0.iter().zip(&after.0));
    Ok(found
        .map(|((name, ..), (before, after))| gain(name, quality_of(before, &judged), quality_of(after, &judged)))
        .collect())
}

/// The part of each question. It follows from the texts, so that the order in which questions came does not matter.
fn parts(questions: &[Learned]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.sort_by_cached_key(|place| (Sha256::digest(&questions[*place].judged.query), *place));
    let mut parts = vec![0; questions.len()];
    order.into_iter().enumerate().for_each(|(rank, place)| parts[place] = rank % PARTS);
    parts
}

impl Rankings {
    async fn ask(&mut self, retriever: &Retriever, info: &CollectionInfo, query: &str) -> Result<(), WorkError> {
        for ((_, mode, fusion), rankings) in SEARCHES.into_iter().zip(&mut self.0) {
            let request = SearchRequest {
                k: SearchRequest::MAX_K,
                per_document: true,
                rerank: Some(false),
                mode,
                fusion,
                ..SearchRequest::new(info.collection.clone(), query)
            };
            let found = retriever.search(&request).await.map_err(search_error)?;
            rankings.push(found.items.iter().map(|item| item.document_id.to_string()).collect());
        }
        Ok(())
    }
}

fn search_error(error: RetrievalError) -> WorkError {
    WorkError::retry(error.code(), error)
}

fn grades(learned: &Learned) -> Judged {
    let grades = learned.judged.documents.iter();
    grades.map(|(document, grade)| (document.to_string(), *grade)).collect::<HashMap<_, _>>()
}

fn quality_of(rankings: &[Vec<String>], judged: &[Judged]) -> Quality {
    quality(rankings.iter().map(Vec::as_slice).zip(judged))
}

fn gain(search: &str, before: Quality, after: Quality) -> SearchGain {
    SearchGain {
        search: search.to_owned(),
        ndcg_before: before.ndcg_at_10,
        ndcg_after: after.ndcg_at_10,
        recall_before: before.recall_at_100,
        recall_after: after.recall_at_100,
    }
}
