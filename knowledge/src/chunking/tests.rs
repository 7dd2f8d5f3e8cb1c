use std::sync::Arc;

use proptest::prelude::*;
use riverrun_models::{EmbedTokenizer, ModelError};
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
fn given_a_table_that_fits_when_split_then_one_chunk_has_all_of_it_whatever_stands_before() {
    let rows: String = (0..9).map(|row| format!("| launch {row} | {row} euros and some cents |\n")).collect();
    let table = format!("| launch | price |\n| --- | --- |\n{rows}");
    for sentences in 0..24 {
        let before = "A sentence of a paragraph. ".repeat(sentences);
        let text = format!("{before}\n\n{table}\nWhat is said behind it is short.\n");
        for overlap in [0, 60, 100, 250] {
            let found = split(&MarkdownChunks, &text, 400, overlap);
            assert_invariants(&text, 400, &found);
            let whole = found.iter().filter(|chunk| chunk.text.contains(table.trim_end())).count();
            assert_eq!(whole, 1, "{sentences} sentences before, overlap {overlap}: {found:#?}");
        }
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
        version("aa", text, config(800, 100), "m", Some("{}")),
    ] {
        assert_ne!(base, other);
    }
    // Chunks follow from the model only where its tokens are counted: a collection can be embedded anew without its sources.
    assert_eq!(base, version("aa", text, config(800, 100), "n", None));
    let tokens = ChunkConfig::in_unit(800, 100, ChunkUnit::Tokens).unwrap();
    let of_model = |model| version("aa", text, tokens, model, None);
    assert!(of_model("m") != of_model("n") && of_model("m") != base);
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
        context: None,
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
        context: _,
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

/// Tokens of up to three letters of a word, each other character one of its own: parts of a word have other tokens than within it.
struct Threes;

impl EmbedTokenizer for Threes {
    fn tokens(&self, text: &str) -> Result<Vec<std::ops::Range<usize>>, ModelError> {
        let mut tokens: Vec<std::ops::Range<usize>> = Vec::new();
        let mut letters = 0;
        for (start, letter) in text.char_indices() {
            let end = start + letter.len_utf8();
            if !letter.is_alphanumeric() {
                letters = 0;
                if !letter.is_whitespace() {
                    tokens.push(start..end);
                }
                continue;
            }
            match tokens.last_mut().filter(|_| letters % 3 != 0) {
                Some(token) => token.end = end,
                None => tokens.push(start..end),
            }
            letters += 1;
        }
        Ok(tokens)
    }

    fn max_tokens(&self) -> usize {
        100
    }
}

fn split_tokens(strategy: &dyn Chunker, text: &str, size: i64, overlap: i64) -> Vec<Chunk> {
    let config = ChunkConfig::in_unit(size, overlap, ChunkUnit::Tokens).unwrap();
    let sizing = Sizing::new(config, Measure::Tokens(Arc::new(Threes)));
    chunks("x", &ExtractedText::plain(text.to_owned()), strategy, sizing, &DocumentId::derive(&["d"]), "v").unwrap()
}

fn assert_token_sizes(text: &str, size: usize, chunks: &[Chunk]) {
    assert_invariants(text, usize::MAX, chunks);
    for chunk in chunks {
        let tokens = Threes.tokens(&chunk.text).unwrap().len();
        assert!(tokens <= size || chunk.text.chars().count() == 1, "{tokens} > {size}: {:?}", chunk.text);
        assert!(chunk.text.len() <= size * 64, "{} bytes in {size} tokens", chunk.text.len());
    }
}

#[test]
fn given_sizes_in_tokens_when_split_then_chunks_have_as_many_as_fit_by_the_models_tokenizer() {
    let prose: String = (0..500).map(|n| format!("Sentence number {n} says a little more than nothing. ")).collect();
    for strategy in CHUNKERS {
        let chunks = split_tokens(*strategy, &prose, 60, 15);
        assert_token_sizes(&prose, 60, &chunks);
        let counts: Vec<usize> = chunks.iter().map(|chunk| Threes.tokens(&chunk.text).unwrap().len()).collect();
        assert!(counts.iter().rev().skip(1).all(|count| *count > 30), "{}: {counts:?}", strategy.name());
    }
}

/// Makes one token of everything, as tokenizers do of long words that they do not know.
struct One;

impl EmbedTokenizer for One {
    fn tokens(&self, text: &str) -> Result<Vec<std::ops::Range<usize>>, ModelError> {
        Ok(std::iter::once(0..text.len()).collect())
    }

    fn max_tokens(&self) -> usize {
        100
    }
}

#[test]
fn given_a_tokenizer_with_one_token_for_all_when_split_then_no_chunk_is_endless() {
    let text = "x".repeat(30_000);
    let config = ChunkConfig::in_unit(10, 0, ChunkUnit::Tokens).unwrap();
    let sizing = Sizing::new(config, Measure::Tokens(Arc::new(One)));
    let extracted = ExtractedText::plain(text.clone());
    let found = chunks("x", &extracted, &Recursive, sizing, &DocumentId::derive(&["d"]), "v").unwrap();
    assert_invariants(&text, 640, &found);
}

#[test]
fn given_more_tokens_than_the_model_reads_when_checked_then_both_numbers_are_named() {
    let config = ChunkConfig::in_unit(101, 0, ChunkUnit::Tokens).unwrap();
    let error = config.for_window("m", Threes.max_tokens()).unwrap_err();
    assert_eq!(error.code(), "bad_chunk_size");
    assert!(error.to_string().contains("101") && error.to_string().contains("100"), "{error}");
    assert_eq!(ChunkConfig::in_unit(3_001, 0, ChunkUnit::Tokens).unwrap_err().code(), "bad_chunk_size");
    assert_eq!(ChunkUnit::named(Some("words")).unwrap_err().code(), "bad_chunk_unit");
    for name in ChunkUnit::NAMES {
        assert_eq!(ChunkUnit::named(Some(name)).unwrap().as_str(), name);
    }
}

#[test]
fn given_a_batch_when_its_context_is_taken_then_its_chunks_lie_in_it_and_those_of_another_text_do_not() {
    let text = "A short sentence about a long river. ".repeat(2_000);
    let chunks = split(&Late, &text, 200, 40);
    for batch in chunks.chunks(32) {
        let (bytes, spans) = Late::context(&text, batch).unwrap();
        for (span, chunk) in spans.iter().zip(batch) {
            assert_eq!(text[bytes.clone()][span.clone()], chunk.text);
        }
        assert!(bytes.len() <= 32 * 200 + (16 << 10) + 8);
    }
    assert!(Late::context("another text", &chunks).is_none() && Late::context(&text, &[]).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn arbitrary_text_keeps_the_invariants_in_tokens(text in "(\\PC|[ \r\n\t\u{0}\u{200d}\u{301}]){0,300}", size in 1i64..40, share in 0i64..100) {
        for strategy in CHUNKERS {
            assert_token_sizes(&text, size as usize, &split_tokens(*strategy, &text, size, size * share / 100));
        }
    }
}
