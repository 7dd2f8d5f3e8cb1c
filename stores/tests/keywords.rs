//! The embedded keyword index, on real files.

mod common;

use common::{chunk, collection, copy_folder, document};
use proptest::prelude::*;
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::{ChunkFilter, KeywordIndex, StoreError, StoredChunk, Versions};

fn open(folder: &std::path::Path) -> TantivyIndex {
    TantivyIndex::open(TantivyConfig::at(folder)).unwrap()
}

async fn filled(folder: &std::path::Path, chunks: Vec<StoredChunk>) -> TantivyIndex {
    let index = open(folder);
    index.upsert(&collection("notes"), chunks).await.unwrap();
    index.commit(&collection("notes")).await.unwrap();
    index
}

async fn sources(index: &TantivyIndex, query: &str) -> Vec<String> {
    let hits = index.search(&collection("notes"), query, 10, &ChunkFilter::default()).await.unwrap();
    hits.into_iter().map(|hit| hit.chunk.source).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_chunks_then_those_with_the_rarer_words_come_first_with_their_whole_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let chunks = vec![
        chunk("offsets", "v1", 1, "The consumer commits its offsets after the records are handled."),
        chunk("brokers", "v1", 2, "The broker keeps the records."),
        chunk("cooking", "v1", 4, "The soup is ready."),
    ];
    let index = filled(folder.path(), chunks.clone()).await;
    let hits = index
        .search(&collection("notes"), "Which CONSUMERS committed the offset records?", 10, &ChunkFilter::default())
        .await
        .unwrap();
    assert_eq!(hits.iter().map(|hit| hit.chunk.source.as_str()).collect::<Vec<_>>()[..2], ["offsets", "brokers"]);
    assert_eq!(hits[0].chunk, chunks[0]);
    assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score) && hits.iter().all(|hit| hit.score > 0.0));
    assert_eq!(sources(&index, "guide start").await, Vec::<String>::new(), "no chunk here has a heading");
    let only = ChunkFilter { documents: vec![document("brokers"), document("elsewhere")], ..ChunkFilter::default() };
    let hits = index.search(&collection("notes"), "consumer records", 10, &only).await.unwrap();
    assert_eq!(hits.iter().map(|hit| hit.chunk.source.as_str()).collect::<Vec<_>>(), ["brokers"]);
    assert_eq!(index.search(&collection("notes"), "records", 0, &ChunkFilter::default()).await.unwrap(), []);
    assert_eq!(
        index.search(&collection("notes"), "records", usize::MAX, &ChunkFilter::default()).await.unwrap().len(),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_heading_then_its_words_are_found_too() {
    let folder = tempfile::tempdir().unwrap();
    let index = filled(folder.path(), vec![chunk("a", "v1", 3, "First do this.")]).await;
    assert_eq!(sources(&index, "guide").await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_hostile_text_then_it_is_only_words() {
    let folder = tempfile::tempdir().unwrap();
    let index = filled(folder.path(), vec![chunk("a", "v1", 1, "alpha beta a b"), chunk("b", "v1", 1, "to x")]).await;
    let long = "word ".repeat(50_000);
    let table: Vec<(&str, Vec<&str>)> = vec![
        ("a:(^\"", vec!["a"]),
        ("text:alpha AND NOT beta", vec!["a"]),
        ("[x TO *]", vec!["b"]),
        ("\"alpha", vec!["a"]),
        ("((((((((((((((((", vec![]),
        ("*", vec![]),
        ("", vec![]),
        ("\0\u{202e}\u{feff}", vec![]),
        ("alpha^999999999999999999", vec!["a"]),
        ("/(a+)+$/", vec!["a"]),
        (&long, vec![]),
    ];
    for (query, expected) in table {
        assert_eq!(sources(&index, query).await, expected, "{:?}", &query[..query.len().min(40)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_text_is_a_query_and_any_text_can_be_indexed(texts in prop::collection::vec("\\PC{0,200}", 30), queries in prop::collection::vec(".{0,200}", 30)) {
        thread_local! {
            static STATE: (tokio::runtime::Runtime, tempfile::TempDir, TantivyIndex) = {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let folder = tempfile::tempdir().unwrap();
                let index = open(folder.path());
                (runtime, folder, index)
            };
        }
        STATE.with(|(runtime, _, index)| {
            runtime.block_on(async {
                let chunks = texts.iter().enumerate().map(|(n, text)| chunk(&format!("s{n}"), "v1", 1, text)).collect();
                index.upsert(&collection("notes"), chunks).await.unwrap();
                index.commit(&collection("notes")).await.unwrap();
                for query in &queries {
                    index.search(&collection("notes"), query, 5, &ChunkFilter::default()).await.unwrap();
                }
                for text in &texts {
                    let word = text.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty() && word.len() < 100).unwrap_or_default();
                    let hits = index.search(&collection("notes"), word, 1000, &ChunkFilter::default()).await.unwrap();
                    prop_assert!(word.is_empty() || hits.iter().any(|hit| hit.chunk.text == *text), "{:?} does not find its text", word);
                }
                Ok(())
            })
        })?;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_equal_scores_then_chunk_ids_decide_whatever_the_order_of_writing() {
    let mut orders = Vec::new();
    for reversed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut chunks: Vec<_> = (0..20).map(|n| chunk(&format!("s{n}"), "v1", 1, "the same words")).collect();
        if reversed {
            chunks.reverse();
        }
        let index = filled(folder.path(), chunks).await;
        let hits = index.search(&collection("notes"), "words", 7, &ChunkFilter::default()).await.unwrap();
        let ids: Vec<String> = hits.iter().map(|hit| hit.chunk.chunk_id.to_string()).collect();
        assert!(ids.len() == 7 && ids.is_sorted());
        orders.push(ids);
    }
    assert_eq!(orders[0], orders[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_the_same_chunks_twice_then_they_are_there_once_and_old_versions_go() {
    let folder = tempfile::tempdir().unwrap();
    let notes = collection("notes");
    let old =
        vec![chunk("a", "v1", 0, "old words"), chunk("a", "v1", 1, "old words"), chunk("b", "v1", 0, "other words")];
    let index = filled(folder.path(), old.clone()).await;
    index.upsert(&notes, old).await.unwrap();
    index.commit(&notes).await.unwrap();
    assert_eq!(index.count(&notes).await.unwrap(), 3);
    index.upsert(&notes, vec![chunk("a", "v2", 0, "new words")]).await.unwrap();
    assert_eq!(index.delete_document_except(&notes, &document("a"), "v2").await.unwrap(), 2);
    assert_eq!(sources(&index, "old").await.len(), 2, "not before the commit");
    index.commit(&notes).await.unwrap();
    assert_eq!(sources(&index, "old").await, Vec::<String>::new());
    assert_eq!(sources(&index, "new").await, ["a"]);
    assert_eq!(index.delete_document_except(&notes, &document("a"), "v2").await.unwrap(), 0);
    assert_eq!(index.count(&notes).await.unwrap(), 2);
}

/// KEY-1.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_crash_then_what_was_committed_is_there_and_nothing_else() {
    let (folder, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let notes = collection("notes");
    let index = filled(folder.path(), (0..50).map(|n| chunk(&format!("s{n}"), "v1", 0, "kept words")).collect()).await;
    index.upsert(&notes, (50..90).map(|n| chunk(&format!("s{n}"), "v1", 0, "lost words")).collect()).await.unwrap();
    copy_folder(folder.path(), after.path());
    let again = open(after.path());
    assert_eq!(again.count(&notes).await.unwrap(), 50);
    assert_eq!(sources(&again, "lost").await, Vec::<String>::new());
    again.upsert(&notes, (50..90).map(|n| chunk(&format!("s{n}"), "v1", 0, "lost words")).collect()).await.unwrap();
    again.commit(&notes).await.unwrap();
    assert_eq!(again.count(&notes).await.unwrap(), 90);
    drop(again);
    assert_eq!(open(after.path()).count(&notes).await.unwrap(), 90);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_more_collections_than_may_be_open_then_nothing_uncommitted_is_lost_and_none_mixes_with_another() {
    let folder = tempfile::tempdir().unwrap();
    let index = TantivyIndex::open(TantivyConfig { max_open: 2, ..TantivyConfig::at(folder.path()) }).unwrap();
    let collections: Vec<_> = (0..5).map(|n| collection(&format!("c{n}"))).collect();
    for (n, each) in collections.iter().enumerate() {
        index.upsert(each, vec![chunk(&format!("in c{n}"), "v1", 0, "the same words")]).await.unwrap();
    }
    for each in &collections {
        index.commit(each).await.unwrap();
    }
    for (n, each) in collections.iter().enumerate() {
        let hits = index.search(each, "words", 9, &ChunkFilter::default()).await.unwrap();
        assert_eq!(hits.iter().map(|hit| hit.chunk.source.clone()).collect::<Vec<_>>(), [format!("in c{n}")]);
    }
    assert!(index.drop_collection(&collections[1]).await.unwrap());
    assert!(!index.drop_collection(&collections[1]).await.unwrap());
    assert!(matches!(
        index.search(&collections[1], "words", 9, &ChunkFilter::default()).await,
        Err(StoreError::NoCollection(_))
    ));
    assert_eq!(index.count(&collections[2]).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_collection_then_reading_says_so_and_removing_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (index, none) = (open(folder.path()), collection("none"));
    assert!(matches!(index.search(&none, "words", 1, &ChunkFilter::default()).await, Err(StoreError::NoCollection(_))));
    assert_eq!(index.count(&none).await.unwrap(), 0);
    assert_eq!(index.delete_document_except(&none, &document("a"), "v1").await.unwrap(), 0);
    index.commit(&none).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "looking makes no files");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_damaged_files_then_the_collection_is_set_aside_and_named() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), vec![chunk("a", "v1", 0, "words")]).await);
    std::fs::write(folder.path().join("default__notes/meta.json"), "{").unwrap();
    let (index, notes) = (open(folder.path()), collection("notes"));
    assert!(index.exists(&notes).await.unwrap(), "nobody has looked into it yet");
    let error = index.search(&notes, "words", 1, &ChunkFilter::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::NoCollection(_)), "{error}");
    assert!(!index.exists(&notes).await.unwrap());
    let damaged = index.damaged();
    assert!(damaged.len() == 1 && damaged[0].collection == notes && damaged[0].reason.contains("default__notes"));
    assert!(damaged[0].kept_at.join("meta.json").exists(), "{damaged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_index_whose_words_were_cut_by_an_earlier_version_when_it_is_opened_then_it_is_set_aside_to_be_made_again()
 {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), vec![chunk("a", "v1", 0, "words")]).await);
    let meta = folder.path().join("default__notes/meta.json");
    let text = std::fs::read_to_string(&meta).unwrap();
    assert!(text.contains("riverrun_en_2"), "{text}");
    std::fs::write(&meta, text.replace("riverrun_en_2", "riverrun_en_1")).unwrap();
    let (index, notes) = (open(folder.path()), collection("notes"));
    let error = index.search(&notes, "words", 1, &ChunkFilter::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::NoCollection(_)), "{error}");
    let damaged = index.damaged();
    assert!(damaged.len() == 1 && damaged[0].reason.contains("another version"), "{damaged:?}");
    index.upsert(&notes, vec![chunk("a", "v1", 0, "words")]).await.unwrap();
    index.commit(&notes).await.unwrap();
    assert_eq!(sources(&index, "words").await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_byte_that_changed_in_any_file_of_words_then_looking_through_them_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), vec![chunk("a", "v1", 0, "words"), chunk("b", "v1", 0, "more words")]).await);
    let place = folder.path().join("default__notes");
    open(folder.path()).verify(&collection("notes")).await.unwrap();
    let files: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in files {
        let of_words =
            path.extension().is_some_and(|kind| ["store", "idx", "term", "pos"].iter().any(|one| kind == *one));
        if !of_words {
            continue;
        }
        let whole = std::fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        bytes[0] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let index = open(folder.path());
        let error = index.verify(&collection("notes")).await.err();
        // One that can't even be opened is set aside at once.
        assert!(error.is_some_and(|error| error.is_damage()) || !index.damaged().is_empty(), "{}", path.display());
        for kept in index.damaged() {
            std::fs::rename(kept.kept_at, &place).unwrap();
        }
        drop(index);
        std::fs::write(&path, &whole).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_versions_of_a_document_then_each_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let chunks = vec![chunk("a", "v1", 0, "words"), chunk("a", "v2", 0, "words"), chunk("a", "v2", 1, "more")];
    let (index, notes) = (filled(folder.path(), chunks).await, collection("notes"));
    for (versions, expected) in [
        (Versions::All, 3),
        (Versions::Only("v2".to_owned()), 2),
        (Versions::Except("v2".to_owned()), 1),
        (Versions::Only("v3".to_owned()), 0),
    ] {
        assert_eq!(index.count_document(&notes, &document("a"), &versions).await.unwrap(), expected, "{versions:?}");
    }
    assert_eq!(index.count_document(&collection("none"), &document("a"), &Versions::All).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_tags_then_only_chunks_that_have_one_of_each_list_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let tagged = |source: &str, tags: &[&str]| StoredChunk {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..chunk(source, "v1", 0, "the same words")
    };
    let index =
        filled(folder.path(), vec![tagged("a", &["t=1", "y=a"]), tagged("b", &["t=1"]), tagged("c", &[])]).await;
    for (lists, expected) in [
        (vec![vec!["t=1"]], vec!["a", "b"]),
        (vec![vec!["t=1"], vec!["y=b", "y=a"]], vec!["a"]),
        (vec![vec!["t=2"]], vec![]),
        (vec![], vec!["a", "b", "c"]),
    ] {
        let tags = lists.iter().map(|list| list.iter().map(|tag| (*tag).to_owned()).collect()).collect();
        let filter = ChunkFilter { tags, ..ChunkFilter::default() };
        let hits = index.search(&collection("notes"), "words", 10, &filter).await.unwrap();
        let mut found: Vec<&str> = hits.iter().map(|hit| hit.chunk.source.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{lists:?}");
    }
}
