//! What every keyword index must do: on the embedded one always, and on a Qdrant server where RIVERRUN_TEST_QDRANT_URL names one.

#[path = "keyword_stores/agreement.rs"]
mod agreement;
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{chunk, collection, document};
use qdrant_client::Qdrant;
use qdrant_client::qdrant::{CreateCollectionBuilder, Distance, VectorParamsBuilder};
use riverrun_schemas::Collection;
use riverrun_stores::keywords::qdrant_index::QdrantKeywords;
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::vectors::qdrant::{QdrantConfig, Quantization};
use riverrun_stores::{ChunkFilter, KeywordIndex, StoreError, StoredChunk, Versions};
use tempfile::TempDir;

/// An index and the folder that it needs.
struct Case {
    index: Arc<dyn KeywordIndex>,
    _folder: Option<TempDir>,
}

fn server(url: &str) -> QdrantKeywords {
    let quantization = Quantization::None;
    let config = QdrantConfig { url: url.to_owned(), api_key: None, quantization, keywords: true };
    QdrantKeywords::open(&config).unwrap()
}

fn cases() -> Vec<Case> {
    let folder = tempfile::tempdir().unwrap();
    let embedded = TantivyIndex::open(TantivyConfig::at(folder.path())).unwrap();
    let mut cases = vec![Case { index: Arc::new(embedded), _folder: Some(folder) }];
    if let Some(url) = std::env::var("RIVERRUN_TEST_QDRANT_URL").ok().filter(|url| !url.is_empty()) {
        cases.push(Case { index: Arc::new(server(&url)), _folder: None });
    }
    cases
}

/// Tests share a server.
fn own(name: &str) -> Collection {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    collection(&format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

async fn fill(index: &dyn KeywordIndex, collection: &Collection, chunks: Vec<StoredChunk>) {
    index.upsert(collection, chunks).await.unwrap();
    index.commit(collection).await.unwrap();
}

async fn sources(
    index: &dyn KeywordIndex,
    collection: &Collection,
    query: &str,
    k: usize,
    filter: &ChunkFilter,
) -> Vec<String> {
    let hits = index.search(collection, query, k, filter).await.unwrap();
    assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score) && hits.iter().all(|hit| hit.score > 0.0));
    hits.into_iter().map(|hit| hit.chunk.source).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_chunks_when_they_are_searched_then_those_with_the_rarer_words_come_first_and_hostile_text_is_only_words()
{
    let everywhere = ChunkFilter::default();
    for Case { index, _folder } in cases() {
        let (index, notes) = (index.as_ref(), own("words"));
        let chunks = vec![
            chunk("offsets", "v1", 1, "The consumer commits its offsets after the records are handled."),
            chunk("brokers", "v1", 2, "The broker keeps the records."),
            chunk("cooking", "v1", 3, "The soup is ready."),
            chunk("signs", "v1", 4, "(){}^~"),
        ];
        fill(index, &notes, chunks.clone()).await;
        let found =
            index.search(&notes, "Which CONSUMERS committed the offset records?", 10, &everywhere).await.unwrap();
        assert_eq!(found[0].chunk, chunks[0]);
        assert_eq!(found[1].chunk, chunks[1]);
        assert_eq!(sources(index, &notes, "guide", 10, &everywhere).await, ["cooking"], "a heading is searched");
        for query in ["", "*", "((((((", "\0\u{202e}\u{feff}", "nowhere"] {
            assert!(sources(index, &notes, query, 10, &everywhere).await.is_empty(), "{query:?}");
        }
        for query in ["soup:(^\"", "NOT soup AND", "/(soup)+$/", "soup^999999999"] {
            assert_eq!(sources(index, &notes, query, 10, &everywhere).await, ["cooking"], "{query:?}");
        }
        assert!(sources(index, &notes, "records", 0, &everywhere).await.is_empty());
        assert_eq!(sources(index, &notes, "records", usize::MAX, &everywhere).await.len(), 2);
        assert!(index.drop_collection(&notes).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_scripts_without_spaces_when_a_word_inside_is_searched_then_its_chunk_comes_first() {
    let everywhere = ChunkFilter::default();
    for Case { index, _folder } in cases() {
        let (index, notes) = (index.as_ref(), own("unspaced"));
        let texts = [
            ("zh", "莱茵河发源于瑞士阿尔卑斯山，流入北海。"),
            ("ja", "滑空場では日曜日にウインチ曳航を行う。"),
            ("th", "แม่น้ำไรน์ไหลลงสู่ทะเลเหนือ"),
            ("lo", "ແມ່ນ້ຳຂອງໄຫຼຜ່ານປະເທດລາວ"),
            ("km", "ទន្លេមេគង្គហូរកាត់ប្រទេសកម្ពុជា"),
            ("my", "ဧရာဝတီမြစ်သည်ပင်လယ်သို့စီးဆင်းသည်"),
            ("en", "The Rhine rises in the Swiss Alps."),
        ];
        fill(index, &notes, texts.iter().map(|(name, text)| chunk(name, "v1", 1, text)).collect()).await;
        for (query, expected) in [
            ("瑞士", "zh"),
            ("阿尔卑斯山在哪里", "zh"),
            ("海", "zh"),
            ("ウインチ", "ja"),
            ("日曜日", "ja"),
            ("ทะเล", "th"),
            ("น้ำ", "th"),
            ("ປະເທດ", "lo"),
            ("កម្ពុជា", "km"),
            ("ပင်လယ်", "my"),
            ("alps", "en"),
        ] {
            let found = sources(index, &notes, query, 10, &everywhere).await;
            assert_eq!(found.first().map(String::as_str), Some(expected), "{query}");
        }
        assert!(sources(index, &notes, "柏林", 10, &everywhere).await.is_empty());
        index.drop_collection(&notes).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_words_that_an_earlier_version_cut_when_the_collection_is_made_or_removed_then_they_go_from_the_server() {
    let Some(url) = std::env::var("RIVERRUN_TEST_QDRANT_URL").ok().filter(|url| !url.is_empty()) else { return };
    let client = Qdrant::from_url(&url).skip_compatibility_check().build().unwrap();
    let (index, notes) = (server(&url), own("former"));
    let former = format!("riverrun.keywords.data.riverrun_en_1.{}", notes.physical_name());
    let make_former = || {
        let vectors = VectorParamsBuilder::new(4, Distance::Cosine);
        client.create_collection(CreateCollectionBuilder::new(former.as_str()).vectors_config(vectors))
    };
    make_former().await.unwrap();
    fill(&index, &notes, vec![chunk("a", "v1", 1, "some words")]).await;
    assert!(client.collection_info(former.as_str()).await.is_err());
    make_former().await.unwrap();
    assert!(index.drop_collection(&notes).await.unwrap());
    assert!(client.collection_info(former.as_str()).await.is_err());
    assert!(!index.drop_collection(&notes).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_filters_when_they_are_used_then_only_what_they_let_through_is_found() {
    for Case { index, _folder } in cases() {
        let (index, notes) = (index.as_ref(), own("filters"));
        let tagged = |source: &str, tags: &[&str]| StoredChunk {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..chunk(source, "v1", 1, "the same words")
        };
        fill(index, &notes, vec![tagged("a", &["t=1", "y=a"]), tagged("b", &["t=1"]), tagged("c", &[])]).await;
        for (lists, documents, expected) in [
            (vec![vec!["t=1"]], vec![], vec!["a", "b"]),
            (vec![vec!["t=1"], vec!["y=b", "y=a"]], vec![], vec!["a"]),
            (vec![vec!["t=2"]], vec![], vec![]),
            (vec![], vec!["b", "c"], vec!["b", "c"]),
            (vec![vec!["t=1"]], vec!["b", "c"], vec!["b"]),
        ] {
            let tags = lists.iter().map(|list| list.iter().map(|tag| (*tag).to_owned()).collect()).collect();
            let filter = ChunkFilter { tags, documents: documents.iter().map(|name| document(name)).collect() };
            let mut found = sources(index, &notes, "words", 10, &filter).await;
            found.sort_unstable();
            assert_eq!(found, expected, "{lists:?} {documents:?}");
        }
        index.drop_collection(&notes).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_versions_when_they_are_written_twice_and_removed_then_the_others_are_there_once() {
    for Case { index, _folder } in cases() {
        let (index, notes) = (index.as_ref(), own("versions"));
        for version in ["v1", "v2", "v2"] {
            let chunks = (0..3).map(|n| chunk("a", version, n, "some words")).collect();
            fill(index, &notes, chunks).await;
        }
        fill(index, &notes, vec![chunk("b", "v1", 0, "other words")]).await;
        let (a, b) = (document("a"), document("b"));
        assert_eq!(index.count(&notes).await.unwrap(), 7);
        assert_eq!(index.documents(&notes).await.unwrap(), BTreeMap::from([(a, 6), (b, 1)]));
        for (versions, gone) in [
            (Versions::Except("v2".to_owned()), 3),
            (Versions::Except("v2".to_owned()), 0),
            (Versions::Only("v1".to_owned()), 0),
            (Versions::All, 3),
        ] {
            assert_eq!(index.delete_document(&notes, &a, &versions).await.unwrap(), gone, "{versions:?}");
            index.commit(&notes).await.unwrap();
        }
        assert_eq!(index.documents(&notes).await.unwrap(), BTreeMap::from([(b, 1)]));
        assert!(index.drop_collection(&notes).await.unwrap());
        assert!(!index.drop_collection(&notes).await.unwrap());
        assert_eq!(index.count(&notes).await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_equal_scores_when_some_are_asked_for_then_chunk_ids_decide() {
    for Case { index, _folder } in cases() {
        let (index, notes) = (index.as_ref(), own("ties"));
        fill(index, &notes, (0..20).map(|n| chunk(&format!("s{n}"), "v1", 1, "the same words")).collect()).await;
        let hits = index.search(&notes, "words", 7, &ChunkFilter::default()).await.unwrap();
        let ids: Vec<String> = hits.iter().map(|hit| hit.chunk.chunk_id.to_string()).collect();
        assert!(ids.len() == 7 && ids.is_sorted());
        index.drop_collection(&notes).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_collection_when_it_is_used_then_reading_says_so_and_removing_finds_nothing() {
    for Case { index, _folder } in cases() {
        let (index, none) = (index.as_ref(), own("none"));
        for (query, k) in [("words", 1), ("words", 0)] {
            let found = index.search(&none, query, k, &ChunkFilter::default()).await;
            assert!(matches!(found, Err(StoreError::NoCollection(_))), "{found:?}");
        }
        assert_eq!(index.count(&none).await.unwrap(), 0);
        assert_eq!(index.delete_document(&none, &document("a"), &Versions::All).await.unwrap(), 0);
        assert!(index.documents(&none).await.unwrap().is_empty());
        index.commit(&none).await.unwrap();
        assert!(!index.drop_collection(&none).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_server_when_it_is_asked_then_the_error_can_be_tried_again_and_names_the_fix() {
    let error = server("http://127.0.0.1:1").count(&own("notes")).await.unwrap_err();
    assert!(error.retryable() && error.code() == "store_server_down", "{error}");
    assert!(error.hint().unwrap().contains("RIVERRUN_QDRANT_URL"), "{error}");
}
