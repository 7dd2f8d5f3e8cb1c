//! Sizes that count tokens of the model.

use super::*;

/// Counts words as tokens and reads a hundred of them.
struct Words;

impl riverrun_models::EmbedTokenizer for Words {
    fn tokens(&self, text: &str) -> Result<Vec<std::ops::Range<usize>>, riverrun_models::ModelError> {
        let place = |word: &str| word.as_ptr().addr() - text.as_ptr().addr();
        Ok(text.split_whitespace().map(|word| place(word)..place(word) + word.len()).collect())
    }

    fn max_tokens(&self) -> usize {
        100
    }
}

/// Has a tokenizer for the model `words`, and nothing else.
struct OnlyTokens;

#[async_trait]
impl LanguageModels for OnlyTokens {
    async fn embed(
        &self,
        _model: Option<&str>,
        _inputs: Vec<String>,
        _purpose: riverrun_models::EmbedPurpose,
    ) -> Result<riverrun_models::EmbedReply, riverrun_models::ModelError> {
        Err(riverrun_models::ModelError::Cancelled)
    }

    async fn embed_tokenizer(
        &self,
        model: &str,
    ) -> Result<Arc<dyn riverrun_models::EmbedTokenizer>, riverrun_models::ModelError> {
        match model {
            "words" => Ok(Arc::new(Words)),
            other => Err(riverrun_models::ModelError::Unsupported {
                provider: other.to_owned(),
                what: "count the tokens of an embedding model".to_owned(),
            }),
        }
    }

    fn reranker(&self) -> riverrun_models::Reranker {
        riverrun_models::Reranker::Off
    }

    async fn rerank(&self, _query: String, _documents: Vec<String>) -> Result<Vec<f32>, riverrun_models::ModelError> {
        Err(riverrun_models::ModelError::Cancelled)
    }

    async fn chat(
        &self,
        _provider: Option<&str>,
        _request: riverrun_models::ChatRequest,
        _sink: &mut dyn riverrun_models::DeltaSink,
        _cancel: tokio_util::sync::CancellationToken,
    ) -> Result<riverrun_models::ChatReply, riverrun_models::ModelError> {
        Err(riverrun_models::ModelError::Cancelled)
    }

    async fn count_prompt(
        &self,
        _provider: Option<&str>,
        _request: &riverrun_models::ChatRequest,
    ) -> Result<usize, riverrun_models::ModelError> {
        Err(riverrun_models::ModelError::Cancelled)
    }

    async fn context_tokens(
        &self,
        _provider: Option<&str>,
        _model: &str,
    ) -> Result<usize, riverrun_models::ModelError> {
        Err(riverrun_models::ModelError::Cancelled)
    }
}

#[tokio::test]
async fn given_sizes_in_tokens_when_a_document_is_handed_in_then_the_models_tokenizer_counts_or_the_document_fails() {
    let text = "seven words are in this one sentence. ".repeat(60);
    let mut world = World::new(&[("a.txt", text.as_bytes())]).await;
    world.ingester =
        Ingester::new(world.stack.log().clone(), Schemas::built_in(), world.blobs.clone(), IngesterConfig::default())
            .with_models(Arc::new(OnlyTokens));
    let start = |model: &str, size: i64, unit: &str| StartIngest {
        ingest_id: IngestId::new(),
        embed_model: model.to_owned(),
        chunk_size: size,
        chunk_overlap: 0,
        chunk_unit: Some(unit.to_owned()),
        ..world.start(&world.path("a.txt"))
    };
    let started = world.handle(start("words", 21, "tokens")).await;
    let said = world.handle(started.submissions()[0].clone()).await;
    let counts: Vec<usize> =
        said.chunks.iter().flat_map(|ready| &ready.chunks).map(|chunk| chunk.text.split_whitespace().count()).collect();
    assert_eq!(counts, vec![21; 20], "three sentences each");
    for (model, size, unit, code) in [
        ("words", 101, "tokens", "bad_chunk_size"),
        ("nothing", 21, "tokens", "model_unsupported"),
        ("words", 21, "words", "bad_chunk_unit"),
    ] {
        let started = world.handle(start(model, size, unit)).await;
        let failure = match started.commands.as_slice() {
            [] => started.failure().clone(),
            _ => world.handle(started.submissions()[0].clone()).await.failure().clone(),
        };
        assert!(failure.code == code && failure.hint.is_some(), "{model} {size} {unit}: {failure:?}");
        // The size of a request may be its own: each place that it can come from is named.
        let hint = failure.hint.unwrap_or_default();
        assert!(
            code != "bad_chunk_size" || hint.contains("--chunk-size") && hint.contains("RIVERRUN_CHUNK_SIZE"),
            "{hint}"
        );
    }
}

#[tokio::test]
async fn given_the_late_strategy_when_a_document_is_handed_in_then_its_batches_name_its_text() {
    let world = World::new(&[("a.md", b"# A\n\nOne.\n\n# B\n\nTwo.")]).await;
    let late = StartIngest { strategy: Some("late".to_owned()), ..world.start(&world.path("a.md")) };
    let started = world.handle(late).await;
    let said = world.handle(started.submissions()[0].clone()).await;
    let Some(IngestEvent::DocumentChunked(chunked)) = said.events.last() else { panic!("{said:?}") };
    assert!(said.chunks.iter().all(|ready| ready.context.as_ref() == Some(&chunked.text)), "{said:?}");
}
