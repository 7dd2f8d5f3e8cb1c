//! What the sizes of a document's chunks count: characters, or tokens of its embedding model.

use std::sync::Arc;

use riverrun_knowledge::LanguageModels;
use riverrun_knowledge::chunking::{ChunkConfig, ChunkUnit, Measure};
use riverrun_models::ModelError;
use riverrun_schemas::Failure;
use riverrun_schemas::ingest::SubmitDocument;

use crate::embedder::{may_pass, work_error};
use crate::runtime::WorkError;

/// The models, in a process that has some.
#[derive(Default)]
pub(super) struct Measures(Option<Arc<dyn LanguageModels>>);

impl std::fmt::Debug for Measures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Measures").field(&self.0.is_some()).finish()
    }
}

impl Measures {
    pub(super) fn of(models: Arc<dyn LanguageModels>) -> Self {
        Self(Some(models))
    }

    /// The sizes that the document's request asks for; the inner error is what the document fails with.
    pub(super) async fn of_document(
        &self,
        submit: &SubmitDocument,
    ) -> Result<Result<(ChunkConfig, Measure), Failure>, WorkError> {
        let config = match config(submit.chunk_size, submit.chunk_overlap, submit.chunk_unit.as_deref()) {
            Ok(config) => config,
            Err(failure) => return Ok(Err(failure)),
        };
        if config.unit() == ChunkUnit::Characters {
            return Ok(Ok((config, Measure::Characters)));
        }
        let model = &submit.embed_model;
        let tokenizer = match &self.0 {
            Some(models) => models.embed_tokenizer(model).await,
            None => {
                let what = "count the tokens of an embedding model in a process without models".to_owned();
                Err(ModelError::Unsupported { provider: model.clone(), what })
            }
        };
        match tokenizer {
            Ok(tokenizer) => {
                let fits = config.for_window(model, tokenizer.max_tokens()).map_err(|error| error.failure());
                Ok(fits.map(|config| (config, Measure::Tokens(tokenizer))))
            }
            Err(error) if may_pass(&error) => Err(work_error(&error)),
            Err(error) => Ok(Err(no_tokenizer(model, &error))),
        }
    }
}

/// Checks what a request says of sizes.
pub(super) fn config(size: i64, overlap: i64, unit: Option<&str>) -> Result<ChunkConfig, Failure> {
    let checked = ChunkUnit::named(unit).and_then(|unit| ChunkConfig::in_unit(size, overlap, unit));
    checked.map_err(|error| error.failure())
}

fn no_tokenizer(model: &str, error: &ModelError) -> Failure {
    Failure::new(error.code(), format!("the tokens of {model} can't be counted: {error}"))
        .with_hint("set RIVERRUN_CHUNK_UNIT to characters, or take an embedding model that runs in this process")
}
