use proptest::prelude::*;
use riverrun_schemas::ingest::ChunksReady;
use riverrun_schemas::ingest::{ChunkEvent, ChunksEmbedded, EmbeddedChunk, EmbeddingEvent};
use riverrun_schemas::{EventSet, IngestId, Namespace};

use super::*;
use crate::sources;

fn split(strategy: &dyn Chunker, text: &str, size: i64, overlap: i64) -> Vec<Chunk> {
    let source = sources::by_name("markdown").unwrap();
    let extracted = source.extract("x", text.as_bytes()).unwrap_or_else(|_| ExtractedText::plain(text.to_owned()));
    let config = ChunkConfig::new(size, overlap).unwrap();
    chunks("x", &extracted, strategy, config, &DocumentId::derive(&["d"]), "v").unwrap()
}

/// `CHUNK-1` to `CHUNK-4`.
fn assert_invariants(text: &str, size: usize, chunks: &[Chunk]) {
    let mut covered = 0;
    for (ordinal, chunk) in chunks.iter().enumerate() {
        let (start, end) = (chunk.start as usize, chunk.end as usize);
        assert_eq!(&text[start..end], chunk.text);
        assert_eq!(chunk.ordinal as usize, ordinal);
        assert!(!chunk.text.trim().is_empty());
        assert!(chunk.text.chars().count() <= size, "{} > {size}", chunk.text.chars().count());
        if start > covered {
            assert!(text[covered..start].trim().is_empty(), "{:?} is in no chunk", &text[covered..start]);
        }
        covered = covered.max(end);
    }
    assert!(text[covered..].trim().is_empty(), "{:?} is in no chunk", &text[covered..]);
    for pair in chunks.windows(2) {
        assert!(pair[0].start < pair[1].start && pair[0].end < pair[1].end, "{pair:?}");
        assert_ne!(pair[0].chunk_id, pair[1].chunk_id);
    }
}

#[test]
fn given_repeated_text_when_split_then_spans_point_at_the_right_copy() {
    for text in ["chunk chunk", &"This is a test, please dont be mad at me. ".repeat(6)] {
        for strategy in CHUNKERS {
            for (size, overlap) in [(5, 0), (5, 4), (20, 7), (50, 49)] {
                let chunks = split(*strategy, text, size, overlap);
                assert!(!chunks.is_empty());
                assert_invariants(text, size as usize, &chunks);
            }
        }
    }
}

#[test]
fn given_bad_sizes_when_checked_then_the_error_names_the_setting() {
    for (size, overlap, code) in [
        (0, 0, "bad_chunk_size"),
        (-1, 0, "bad_chunk_size"),
        (i64::MAX, 0, "bad_chunk_size"),
        (100, 100, "bad_chunk_overlap"),
        (100, 150, "bad_chunk_overlap"),
        (100, -1, "bad_chunk_overlap"),
    ] {
        let error = ChunkConfig::new(size, overlap).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(
            error.to_string().contains("RIVERRUN_CHUNK_SIZE") && error.hint().contains("RIVERRUN_CHUNK_"),
            "{error}"
        );
    }
    assert_eq!(ChunkConfig::new(800, 100), Ok(ChunkConfig::default()));
}

#[test]
fn given_too_many_chunks_when_split_then_the_document_is_refused() {
    let text = ExtractedText::plain("a\n".repeat(MAX_CHUNKS + 1));
    let config = ChunkConfig::new(1, 0).unwrap();
    let error = chunks("/a.txt", &text, &Recursive, config, &DocumentId::derive(&["d"]), "v").unwrap_err();
    assert_eq!(error.code(), "too_many_chunks");
    assert!(error.to_string().starts_with("/a.txt has more than 100000 chunks"));
}

#[test]
fn given_a_text_of_many_windows_when_split_then_chunks_go_on_as_in_one() {
    let prose: String = (0..2000).map(|n| format!("Sentence number {n} says a little more than nothing. ")).collect();
    for strategy in CHUNKERS {
        let chunks = split(*strategy, &prose, 200, 60);
        assert_invariants(&prose, 200, &chunks);
        // Neighbours overlap everywhere, at the seams of windows too, and no chunk is a leftover.
        for pair in chunks.windows(2) {
            assert!(pair[1].start < pair[0].end, "{pair:?}");
        }
        assert!(chunks.iter().rev().skip(1).all(|chunk| chunk.text.len() > 100), "{}", strategy.name());
    }
}

#[test]
fn given_a_markdown_document_when_split_then_chunks_carry_their_headings() {
    let text = "# Rivers\n\nIntro to rivers.\n\n## Rhine\n\nThe Rhine rises in the Alps.\n\n## Elbe\n\nThe Elbe rises in the Giant Mountains.\n";
    let chunks = split(&MarkdownChunks, text, 60, 0);
    assert_invariants(text, 60, &chunks);
    let shown: Vec<String> = chunks
        .iter()
        .map(|chunk| {
            format!("{}..{} {:?} {:?}", chunk.start, chunk.end, chunk.heading.as_deref().unwrap_or("-"), chunk.text)
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn given_anything_that_chunks_follow_from_when_it_changes_then_so_does_the_version() {
    let (text, markdown) = (sources::by_name("text").unwrap(), sources::by_name("markdown").unwrap());
    let config = |size, overlap| ChunkConfig::new(size, overlap).unwrap();
    let version = |content, source: &dyn crate::sources::Source, config, model, metadata| {
        version(content, source, source.chunker(), config, model, metadata, None)
    };
    let base = version("aa", text, config(800, 100), "m", None);
    assert_eq!(base.len(), 64);
    assert_eq!(base, version("aa", text, config(800, 100), "m", None));
    let other_strategy = super::version("aa", text, &MarkdownChunks, config(800, 100), "m", None, None);
    let with_table = super::version("aa", text, text.chunker(), config(800, 100), "m", None, Some("t"));
    assert!(base != other_strategy && base != with_table);
    for other in [
        version("ab", text, config(800, 100), "m", None),
        version("aa", markdown, config(800, 100), "m", None),
        version("aa", text, config(801, 100), "m", None),
        version("aa", text, config(800, 101), "m", None),
        version("aa", text, config(800, 100), "n", None),
        version("aa", text, config(800, 100), "m", Some("{}")),
    ] {
        assert_ne!(base, other);
    }
}

#[test]
fn given_the_largest_chunks_when_batched_then_every_event_fits_with_its_vectors() {
    let text = "\u{1F600}".repeat(MAX_SIZE * 3);
    let whole = split(&Recursive, &text, MAX_SIZE as i64, 0);
    let small = split(&Recursive, &"words and more words. ".repeat(4000), 800, 100);
    let count = small.len();
    let batched = batches(small);
    assert_eq!(batched.iter().map(Vec::len).sum::<usize>(), count);
    for batch in batches(whole).into_iter().chain(batched) {
        assert!(batch.len() <= MAX_BATCH_CHUNKS);
        let ready = ready(batch.clone());
        assert!(ChunkEvent::from(ready.clone()).encode().unwrap().len() < 200 << 10);
        let vector = vec![0.5; MAX_DIMENSIONS];
        let embedded = embedded(ready, &vector);
        assert!(EmbeddingEvent::from(embedded).encode().unwrap().len() <= 256 << 10);
    }
    assert!(batches(Vec::new()).is_empty());
}

fn ready(chunks: Vec<Chunk>) -> ChunksReady {
    ChunksReady {
        document_id: DocumentId::derive(&["d"]),
        ingest_id: IngestId::derive(&["i"]),
        namespace: Namespace::default(),
        collection: "docs".parse().unwrap(),
        source: "/a".repeat(2000),
        version: "v".repeat(64),
        embed_model: "m".into(),
        batch: 0,
        batches: 1,
        metadata_json: Some("m".repeat(16 << 10)),
        at: 0,
        chunks,
    }
}

fn embedded(ready: ChunksReady, vector: &[f32]) -> ChunksEmbedded {
    let ChunksReady {
        document_id,
        ingest_id,
        namespace,
        collection,
        source,
        version,
        embed_model,
        batch,
        batches,
        metadata_json,
        at,
        chunks,
    } = ready;
    let chunks = chunks.into_iter().map(|chunk| EmbeddedChunk::new(chunk, vector)).collect();
    let dimensions = vector.len() as i32;
    ChunksEmbedded {
        document_id,
        ingest_id,
        namespace,
        collection,
        source,
        version,
        embed_model,
        batch,
        batches,
        metadata_json,
        at,
        dimensions,
        chunks,
    }
}

#[test]
fn given_programs_when_split_then_functions_stay_together_where_they_fit() {
    let body = |n: usize, line: &str| (0..n).map(|_| line.to_owned()).collect::<String>();
    for (language, one, two) in [
        (
            "rust",
            format!("fn one() {{\n{}}}", body(5, "    work();\n")),
            format!("fn two() {{\n{}}}", body(5, "    rest();\n")),
        ),
        (
            "python",
            format!("def one():\n{}", body(5, "    work()\n")),
            format!("def two():\n{}", body(5, "    rest()\n")),
        ),
        (
            "javascript",
            format!("function one() {{\n{}}}", body(5, "  work();\n")),
            format!("function two() {{\n{}}}", body(5, "  rest();\n")),
        ),
        (
            "typescript",
            format!("function one(): void {{\n{}}}", body(5, "  work();\n")),
            format!("function two(): void {{\n{}}}", body(5, "  rest();\n")),
        ),
        (
            "go",
            format!("func one() {{\n{}}}", body(5, "\twork()\n")),
            format!("func two() {{\n{}}}", body(5, "\trest()\n")),
        ),
    ] {
        let program = format!("{one}\n\n{two}\n");
        let text = ExtractedText { language: Some(language.to_owned()), ..ExtractedText::plain(program.clone()) };
        let config = ChunkConfig::new(90, 0).unwrap();
        let found = chunks("x", &text, &Recursive, config, &DocumentId::derive(&["d"]), "v").unwrap();
        assert_invariants(&program, 90, &found);
        let parts: Vec<&str> = found.iter().map(|chunk| chunk.text.trim()).collect();
        assert_eq!(parts, [one.trim(), two.trim()], "{language}");
    }
}

#[test]
fn given_a_strategy_when_it_is_named_then_it_counts_and_an_unknown_one_lists_the_known() {
    let text = sources::by_name("text").unwrap();
    assert_eq!(chunker(None, text).ok().unwrap().name(), "recursive");
    assert_eq!(chunker(Some("markdown"), text).ok().unwrap().name(), "markdown");
    let error = chunker(Some("magic"), text).err().unwrap();
    assert!(error.code() == "unknown_strategy" && error.hint().contains("recursive"), "{error}");
}

fn markdown_text() -> impl Strategy<Value = String> {
    let block = prop_oneof![
        "#{1,6} [a-z ]{1,20}\n",
        "[a-zA-Z ,.]{1,120}\n",
        "\\PC{0,80}\n",
        "[-*] [a-z ]{1,40}\n",
        "```\n[a-z#\n]{0,60}\n```\n",
        "\\| [a-z]{1,8} \\| [a-z]{1,8} \\|\n",
        "> [a-z ]{1,40}\n",
        "[ \t]{0,8}\r?\n",
        "\u{3000}*[\u{4e00}-\u{4e20}]{0,60}\n",
    ];
    proptest::collection::vec(block, 0..24).prop_map(|blocks| blocks.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn arbitrary_text_keeps_the_invariants(text in "(\\PC|[ \r\n\t\u{0}\u{200d}\u{301}]){0,400}", size in 1i64..80, share in 0i64..100) {
        for strategy in CHUNKERS {
            assert_invariants(&text, size as usize, &split(*strategy, &text, size, size * share / 100));
        }
    }

    #[test]
    fn programs_keep_the_invariants(text in "(fn |def |\\{|\\}|\\(|\\)|\"|'|//|#|:|;|\n|    |[a-z]{1,9}|\\PC){0,120}", size in 1i64..120, share in 0i64..100) {
        for language in ["rust", "python", "javascript", "typescript", "tsx", "go", "cobol"] {
            let program = ExtractedText { language: Some(language.to_owned()), ..ExtractedText::plain(text.clone()) };
            let config = ChunkConfig::new(size, size * share / 100).unwrap();
            let found = chunks("x", &program, &Recursive, config, &DocumentId::derive(&["d"]), "v").unwrap();
            assert_invariants(&text, size as usize, &found);
        }
    }

    #[test]
    fn markdown_keeps_the_invariants(text in markdown_text(), size in 1i64..300, share in 0i64..100) {
        for strategy in CHUNKERS {
            assert_invariants(&text, size as usize, &split(*strategy, &text, size, size * share / 100));
        }
    }
}
