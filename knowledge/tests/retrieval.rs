//! Retrieval over the real embedded stores.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{RIVERS, Stores, TestModels, collection};
use riverrun_knowledge::retrieval::{Fusion, RetrievalError, SearchMode};
use riverrun_knowledge::{SearchRequest, SearchResult};
use riverrun_models::{ModelError, Reranker};
use riverrun_schemas::{ChunkId, Collection, ingest};
use riverrun_stores::{ChunkFilter, KeywordIndex, VectorStore};

async fn rivers() -> (Stores, Collection) {
    let stores = Stores::new();
    let docs = collection("docs");
    stores.index(&docs, RIVERS).await;
    (stores, docs)
}

fn sources(result: &SearchResult) -> Vec<&str> {
    result.items.iter().map(|item| item.source.as_str()).collect()
}

#[tokio::test]
async fn given_documents_when_searched_then_both_searches_are_fused_and_items_are_whole() {
    let (stores, docs) = rivers().await;
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    let result = retriever.search(&SearchRequest::new(docs.clone(), "Where does the Elbe rise?")).await.unwrap();
    let best = &result.items[0];
    assert_eq!(best.source, "/docs/elbe.md");
    assert_eq!(best.document_id, ingest::document_id(&docs, "/docs/elbe.md"));
    let text = RIVERS[1].1;
    assert_eq!(&text[best.span.start as usize..best.span.end as usize], best.text);
    assert_eq!(best.heading(), Some("Elbe"));
    assert!(best.scores.dense.is_some() && best.scores.sparse.is_some() && best.scores.rerank.is_none());
    assert!(best.score == best.scores.fused && (best.scores.fused - 2.0 / 61.0).abs() < 1e-9);
    assert_eq!(result.took_ms.rerank, None);
    assert_eq!((result.embed_model.as_str(), result.notes.len()), (common::MODEL, 0));

    let json = serde_json::to_value(&result).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&json["items"][0]),
        ["chunk_id", "document_id", "source", "text", "score", "scores", "span", "metadata"]
    );
    assert_eq!(keys(&json["items"][0]["scores"]), ["dense", "sparse", "fused", "rerank"]);
    assert_eq!(keys(&json["took_ms"]), ["embed", "dense", "sparse", "fuse", "rerank"]);
}

#[tokio::test]
async fn given_fusion_by_scores_when_searched_then_each_score_is_a_share_of_its_lists_best() {
    let (stores, docs) = rivers().await;
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    let by_scores = SearchRequest {
        k: 100,
        fusion: Fusion::Scores,
        ..SearchRequest::new(docs.clone(), "Where does the Elbe rise in the mountains?")
    };
    let found = retriever.search(&by_scores).await.unwrap();
    assert_eq!(sources(&found)[0], "/docs/elbe.md");
    let scores = || found.items.iter().map(|item| item.scores);
    let best_dense = scores().filter_map(|scores| scores.dense).map(f64::from).fold(-1.0, f64::max);
    let best_sparse = scores().filter_map(|scores| scores.sparse).map(f64::from).fold(0.0, f64::max);
    assert!(best_dense > 0.0 && best_sparse > 0.0);
    for item in &found.items {
        let dense = item.scores.dense.map_or(0.0, |score| (f64::from(score) + 1.0) / (best_dense + 1.0));
        let sparse = item.scores.sparse.map_or(0.0, |score| f64::from(score) / best_sparse);
        let fused = 0.8 * dense + 0.2 * sparse;
        assert!((item.score - fused).abs() < 1e-9 && item.score == item.scores.fused, "{item:?} is not {fused}");
    }
    assert!(found.items.windows(2).all(|pair| pair[0].score >= pair[1].score));
    // Each of the two searches alone gives its part.
    for (mode, most) in [(SearchMode::Dense, 0.8), (SearchMode::Sparse, 0.2)] {
        let alone = retriever.search(&SearchRequest { mode, ..by_scores.clone() }).await.unwrap();
        assert!((alone.items[0].score - most).abs() < 1e-9, "{mode:?}: {alone:?}");
    }
}

#[tokio::test]
async fn given_other_wordings_when_fused_by_scores_then_each_chunk_has_its_best_over_them() {
    let (stores, docs) = rivers().await;
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    let river = SearchRequest {
        k: 100,
        fusion: Fusion::Scores,
        ..SearchRequest::new(docs.clone(), "Where does the Elbe rise?")
    };
    let bread = SearchRequest { query: "How long is dough kneaded?".to_owned(), ..river.clone() };
    let both = SearchRequest { wordings: vec![bread.query.clone()], ..river.clone() };
    let mut best: BTreeMap<ChunkId, f64> = BTreeMap::new();
    for request in [&river, &bread] {
        for item in retriever.search(request).await.unwrap().items {
            let kept = best.entry(item.chunk_id).or_default();
            *kept = kept.max(item.score);
        }
    }
    let found = retriever.search(&both).await.unwrap();
    let scores: BTreeMap<ChunkId, f64> = found.items.iter().map(|item| (item.chunk_id, item.score)).collect();
    assert_eq!(scores, best);
}

#[tokio::test]
async fn given_a_collection_without_keywords_when_searched_then_its_vectors_answer_and_a_removed_one_is_named() {
    let (stores, docs) = rivers().await;
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    let hybrid = SearchRequest::new(docs.clone(), "Where does the Elbe rise?");
    let sparse = SearchRequest { mode: SearchMode::Sparse, ..hybrid.clone() };
    // As a new collection is, whose first document is being indexed.
    stores.keywords.drop_collection(&docs).await.unwrap();
    let found = retriever.search(&hybrid).await.unwrap();
    assert_eq!(sources(&found)[0], "/docs/elbe.md");
    assert!(found.items.iter().all(|item| item.scores.sparse.is_none()));
    assert!(retriever.search(&sparse).await.unwrap().items.is_empty());
    stores.vectors.drop_collection(&docs).await.unwrap();
    for request in [hybrid, sparse] {
        let error = retriever.search(&request).await.unwrap_err();
        assert!(matches!(error, RetrievalError::CollectionNotFound { .. }), "{error}");
    }
}

#[tokio::test]
async fn given_k_and_a_filter_when_searched_then_they_bound_the_answer() {
    let (stores, docs) = rivers().await;
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    let one = SearchRequest { k: 1, ..SearchRequest::new(docs.clone(), "rises flows") };
    assert_eq!(retriever.search(&one).await.unwrap().items.len(), 1);
    let only_bread =
        ChunkFilter { documents: vec![ingest::document_id(&docs, "/docs/bread.txt")], ..ChunkFilter::default() };
    let filtered = SearchRequest { filter: only_bread, ..SearchRequest::new(docs, "Where does the Elbe rise?") };
    assert!(sources(&retriever.search(&filtered).await.unwrap()).iter().all(|source| *source == "/docs/bread.txt"));
}

#[tokio::test]
async fn given_long_documents_when_each_counts_once_then_the_search_goes_deep_enough_for_the_others() {
    let (stores, docs) = (Stores::new(), collection("docs"));
    let long = "# Rivers\n\n".to_owned()
        + &"The Elbe rises in the Giant Mountains and the Elbe flows to Hamburg.\n\n".repeat(120);
    let others: Vec<(String, String)> = (0..3)
        .map(|n| {
            (format!("/docs/other-{n}.md"), format!("The Elbe is mentioned beside many other rivers of page {n}.\n"))
        })
        .collect();
    let mut all = vec![("/docs/long.md", long.as_str())];
    all.extend(others.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    stores.index(&docs, &all).await;
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    for mode in [SearchMode::Hybrid, SearchMode::Dense, SearchMode::Sparse] {
        let chunks =
            SearchRequest { mode, k: 4, ..SearchRequest::new(docs.clone(), "The Elbe rises in the Giant Mountains") };
        let found = retriever.search(&chunks).await.unwrap();
        assert_eq!(sources(&found), ["/docs/long.md"; 4], "{mode:?}");
        let documents = SearchRequest { per_document: true, ..chunks };
        let found = retriever.search(&documents).await.unwrap();
        let names: BTreeSet<&str> = sources(&found).into_iter().collect();
        assert_eq!((sources(&found)[0], found.items.len(), names.len()), ("/docs/long.md", 4, 4), "{mode:?}");
        // More than there are: it ends.
        let found = retriever.search(&SearchRequest { k: 100, ..documents }).await.unwrap();
        assert_eq!(found.items.len(), 4, "{mode:?}");
    }
}

#[tokio::test]
async fn given_a_reranker_when_searched_then_its_order_and_scores_count() {
    let (stores, docs) = rivers().await;
    let models = Arc::new(TestModels { reranker: Reranker::Ready, ..TestModels::default() });
    let retriever = stores.retriever(&models);
    let request = SearchRequest::new(docs, "Where does the Elbe rise?");
    let result = retriever.search(&request).await.unwrap();
    assert!(result.items.windows(2).all(|pair| pair[0].score >= pair[1].score));
    assert!(result.items.iter().all(|item| item.scores.rerank.map(f64::from) == Some(item.score)));
    assert!(result.took_ms.rerank.is_some());
    let without = retriever.search(&SearchRequest { rerank: Some(false), ..request }).await.unwrap();
    assert!(without.items.iter().all(|item| item.scores.rerank.is_none()));
}

#[tokio::test]
async fn given_a_failing_reranker_when_searched_then_it_is_told_or_fails_as_asked() {
    let (stores, docs) = rivers().await;
    let broken = ModelError::Internal { reason: "broken".to_owned() };
    let models = TestModels { reranker: Reranker::Ready, reranks: Err(broken), ..TestModels::default() };
    let retriever = stores.retriever(&Arc::new(models));
    let request = SearchRequest::new(docs.clone(), "Where does the Elbe rise?");
    let result = retriever.search(&request).await.unwrap();
    assert_eq!(result.items[0].source, "/docs/elbe.md");
    assert!(result.notes[0].contains("re-ranking was left out"), "{:?}", result.notes);
    let demanded = retriever.search(&SearchRequest { rerank: Some(true), ..request }).await.unwrap_err();
    assert_eq!(demanded.code(), "model_internal");
}

#[tokio::test]
async fn given_a_reranker_that_is_not_here_when_nobody_insists_then_the_search_goes_on_and_says_what_it_may() {
    let (stores, docs) = rivers().await;
    let model = "someone/tiny".to_owned();
    let fetching = Reranker::Fetching { model: model.clone() };
    let missing = Reranker::Missing { model, fix: "fetch it".to_owned() };
    for (reranker, wanted) in [
        (fetching, Some("re-ranking was left out: the re-ranker \"someone/tiny\" is being fetched")),
        (missing, Some("re-ranking was left out: the re-ranker \"someone/tiny\" is not here: fetch it")),
        (Reranker::Off, None),
    ] {
        let retriever = stores.retriever(&Arc::new(TestModels { reranker, ..TestModels::default() }));
        let request = SearchRequest::new(docs.clone(), "Where does the Elbe rise?");
        let result = retriever.search(&request).await.unwrap();
        assert_eq!(result.notes, Vec::from_iter(wanted));
        assert!(result.items[0].scores.rerank.is_none() && result.took_ms.rerank.is_none());
        let unwanted = SearchRequest { rerank: Some(false), ..request.clone() };
        assert!(retriever.search(&unwanted).await.unwrap().notes.is_empty());
        // Who insists waits for it.
        let insisted = retriever.search(&SearchRequest { rerank: Some(true), ..request }).await.unwrap();
        assert!(insisted.items[0].scores.rerank.is_some() && insisted.notes.is_empty());
    }
}

#[tokio::test]
async fn given_bad_requests_when_searched_then_each_has_its_code_and_fix() {
    let (stores, docs) = rivers().await;
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    let base = SearchRequest::new(docs.clone(), "rhine");
    for (request, code, hint) in [
        (SearchRequest { query: " \n".into(), ..base.clone() }, "empty_query", "ask something"),
        (SearchRequest { query: "x".repeat(20_000), ..base.clone() }, "query_too_long", "shorten"),
        (SearchRequest { k: 0, ..base.clone() }, "bad_k", "between 1 and 100"),
        (SearchRequest { k: 101, ..base.clone() }, "bad_k", "between 1 and 100"),
        (
            SearchRequest { collection: collection("nothing"), ..base.clone() },
            "collection_not_found",
            "existing collections: docs",
        ),
        (
            SearchRequest { embed_model: Some("other".into()), ..base.clone() },
            "embedding_model_mismatch",
            "\"words\" (256 dimensions)",
        ),
    ] {
        let error = retriever.search(&request).await.unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
    }
    let elsewhere =
        SearchRequest { collection: Collection::new("other".parse().unwrap(), docs.name.clone()), ..base.clone() };
    let error = retriever.search(&elsewhere).await.unwrap_err();
    assert!(
        matches!(&error, RetrievalError::CollectionNotFound { existing, .. } if existing.is_empty()),
        "another namespace's names do not show"
    );

    let changed = stores.retriever(&Arc::new(TestModels { dimensions: 64, ..TestModels::default() }));
    assert_eq!(changed.search(&base).await.unwrap_err().code(), "embedding_model_mismatch");
}

#[tokio::test]
async fn given_hostile_queries_when_searched_then_they_are_only_words() {
    let (stores, docs) = rivers().await;
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    for query in ["a:(^", "\"a:(a^", "rhine AND (", "* OR *", "text:[* TO *]", "\u{0}rhine", "'; DROP TABLE x;--", "🦀"]
    {
        retriever.search(&SearchRequest::new(docs.clone(), query)).await.unwrap();
    }
}

#[tokio::test]
async fn given_a_collection_that_cannot_be_searched_when_several_are_then_the_others_answer_and_a_note_tells() {
    let (stores, docs) = rivers().await;
    let other = collection("other");
    // Made by a model whose vectors had another length.
    stores.vectors.ensure(&other, common::DIMENSIONS / 2, common::MODEL).await.unwrap();
    let retriever = stores.retriever(&Arc::new(TestModels::default()));
    let namespace = docs.namespace.clone();
    let query = "Where does the Elbe rise?";
    let named = [other.name.clone(), docs.name.clone()];
    for collections in [None, Some(&named[..])] {
        let several = retriever.search_several(&namespace, collections, query, 2).await.unwrap();
        assert_eq!((several.found[0].0.clone(), several.found[0].1.source.as_str()), (docs.clone(), "/docs/elbe.md"));
        assert!(several.found.len() <= 2);
        assert_eq!(several.notes.len(), 1, "{:?}", several.notes);
        assert!(several.notes[0].contains("\"other\"") && several.notes[0].contains("was not searched"));
    }
    let error = retriever.search_several(&namespace, Some(&[other.name]), query, 2).await.unwrap_err();
    assert_eq!(error.code(), "embedding_model_mismatch");
    let error = retriever.search_several(&namespace, None, " ", 2).await.unwrap_err();
    assert_eq!(error.code(), "empty_query");
}
