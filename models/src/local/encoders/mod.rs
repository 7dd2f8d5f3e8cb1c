//! Encoders and cross-encoders on candle and llama.cpp: which are loaded, and the way of texts through one.

mod attention;
mod batching;
mod body;
mod cores;
mod cross;
mod encoder;
mod gguf;
mod hidden;
mod kernels;
mod late;
mod layout;
mod matrix;
mod memory;
mod panels;
mod sentence;
mod shares;
mod states;
mod stock;
mod text;
mod tokens;
mod weights;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use moka::future::Cache;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::NAME;
use super::pool::{Class, Files, Lease, ModelPool, Resident};
use super::store::Found;
use crate::catalog;
use crate::error::ModelError;
use crate::provider::{EmbedPurpose, EmbedReply, EmbedRequest, RerankReply, RerankRequest, Usage};
use crate::spans::{EmbedTokenizer, SpansRequest};
use crate::token_vectors::{TokenVectors, TokenVectorsRequest};

use cross::{CrossEncoder, Scored};
use encoder::Encoder;
use gguf::GgufEncoder;
use layout::Prompts;
use memory::Demand;
use sentence::{Embedded, SentenceEncoder};
use tokens::Tokens;

/// Tokenizers that are kept without the weights of their models.
const MAX_TOKENIZERS: u64 = 4;
/// Requests that compute at once; each uses all cores, so more would only take memory.
const MAX_RUNNING: usize = 2;
/// Texts of one request.
const MAX_INPUTS: usize = 65_536;

/// The encoders of a pool.
pub(super) struct Encoders {
    pool: ModelPool,
    tokenizers: Cache<(String, Files), Arc<Tokens>>,
    /// For llama.cpp; what is left of candle's own operations takes those of the process.
    threads: usize,
    running: Arc<Semaphore>,
}

impl Resident for SentenceEncoder {
    const CLASS: Class = Class::Sentence;

    fn is_dead(&self) -> bool {
        false
    }
}

impl Resident for CrossEncoder {
    const CLASS: Class = Class::Cross;

    fn is_dead(&self) -> bool {
        false
    }
}

impl Resident for GgufEncoder {
    const CLASS: Class = Class::Gguf;

    fn is_dead(&self) -> bool {
        GgufEncoder::is_dead(self)
    }
}

impl Encoders {
    pub(super) fn new(threads: usize, pool: ModelPool) -> Self {
        cores::set(threads);
        Encoders {
            pool,
            tokenizers: Cache::new(MAX_TOKENIZERS),
            threads,
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
        }
    }

    pub(super) async fn embed(&self, found: &Found, request: EmbedRequest) -> Result<EmbedReply, ModelError> {
        check_count(request.inputs.len())?;
        let EmbedRequest { model, inputs, purpose, .. } = request;
        let embedded = if found.is_gguf() {
            let encoder = self.gguf(found).await?;
            let inputs = prefixed(inputs, prefix(&found.name, &encoder.prompts, purpose));
            let reader = encoder.shared();
            let texts = self.run(found, move |_| reader.texts(&inputs)).await?;
            encoder.embed(texts).await.map_err(|error| failed(found, &error))?
        } else {
            let encoder = self.loaded(found, SentenceEncoder::load).await?;
            let inputs = prefixed(inputs, prefix(&found.name, &encoder.prompts, purpose));
            self.run(found, move |caller| encoder.embed(inputs, caller)).await?
        };
        if embedded.truncated > 0 {
            tracing::warn!(
                %model,
                truncated = embedded.truncated,
                "texts are longer than the model reads; only their beginnings were embedded"
            );
        }
        Ok(reply(model, embedded))
    }

    /// Embeds spans of one text by what stands around them.
    pub(super) async fn embed_spans(&self, found: &Found, request: SpansRequest) -> Result<EmbedReply, ModelError> {
        check_count(request.spans.len())?;
        if let Some(span) = request.bad_span() {
            return Err(ModelError::bad_request(NAME, format!("{span:?} is no span of the text")));
        }
        if found.is_gguf() {
            return Err(ModelError::unsupported(NAME, "embed chunks within their document with a GGUF model"));
        }
        let encoder = self.loaded(found, SentenceEncoder::load).await?;
        let tokens = self.tokens(found).await?;
        let prefix = prefix(&found.name, &encoder.prompts, EmbedPurpose::Document).to_owned();
        let SpansRequest { model, text, spans } = request;
        let embedded =
            self.run(found, move |caller| late::embed(&encoder, &tokens, &prefix, &text, &spans, caller)).await?;
        Ok(reply(model, embedded))
    }

    /// The tokenizer of an encoder; its weights are not read.
    pub(super) async fn tokenizer(&self, found: &Found) -> Result<Arc<dyn EmbedTokenizer>, ModelError> {
        if found.is_gguf() {
            return Err(ModelError::unsupported(NAME, "tell the places of the tokens of a GGUF model"));
        }
        let tokens: Arc<dyn EmbedTokenizer> = self.tokens(found).await?;
        Ok(tokens)
    }

    /// The tokens of texts as a layer sees them; nothing is put before the texts.
    pub(super) async fn token_vectors(
        &self,
        found: &Found,
        request: TokenVectorsRequest,
    ) -> Result<TokenVectors, ModelError> {
        let TokenVectorsRequest { texts, layer, .. } = request;
        if texts.len() > states::MAX_TEXTS {
            let (count, most) = (texts.len(), states::MAX_TEXTS);
            return Err(ModelError::bad_request(NAME, format!("{count} texts for their tokens; at most {most}")));
        }
        let layered = "show the layers of this model; name one of the families bert and mpnet";
        if found.is_gguf() {
            return Err(ModelError::unsupported(NAME, layered));
        }
        let encoder = self.loaded(found, SentenceEncoder::load).await?;
        let Some(layers) = encoder.encoder.layered().map(Encoder::layers) else {
            return Err(ModelError::unsupported(NAME, layered));
        };
        let layer = layer.unwrap_or_else(|| states::usual_layer(layers));
        if layer > layers {
            let reason = format!("layer {layer} of model {:?}, which has {layers}", found.name);
            return Err(ModelError::bad_request(NAME, reason));
        }
        self.run(found, move |caller| states::embed(&encoder, texts, layer, caller)).await
    }

    pub(super) async fn rerank(&self, found: &Found, request: RerankRequest) -> Result<RerankReply, ModelError> {
        check_count(request.documents.len())?;
        let Scored { scores, truncated, tokens } = if found.is_gguf() {
            let encoder = self.gguf(found).await?;
            let reader = encoder.shared();
            let pairs = self.run(found, move |_| reader.pairs(&request.query, &request.documents)).await?;
            encoder.scores(pairs).await.map_err(|error| failed(found, &error))?
        } else {
            let encoder = self.loaded(found, CrossEncoder::load).await?;
            self.run(found, move |caller| encoder.scores(&request.query, request.documents, caller)).await?
        };
        if truncated > 0 {
            tracing::warn!(
                model = found.name,
                truncated,
                "documents are longer than the model reads; only their beginnings were scored"
            );
        }
        Ok(RerankReply { scores, usage: Usage { prompt_tokens: tokens, completion_tokens: 0, ..Usage::default() } })
    }

    /// Work for whoever waits, when its turn comes.
    async fn run<T: Send + 'static>(
        &self,
        found: &Found,
        work: impl FnOnce(&CancellationToken) -> Result<T, text::EncodeError> + Send + 'static,
    ) -> Result<T, ModelError> {
        let permit = Arc::clone(&self.running).acquire_owned().await.map_err(ModelError::internal)?;
        let caller = CancellationToken::new();
        // A thread goes on when its future is dropped; it looks at this between its batches.
        let _gone = caller.clone().drop_guard();
        let (answers, answer) = oneshot::channel();
        // Not to a blocking thread, which would hand it on: a short text is computed in little more time than a thread takes to wake up.
        cores::spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&caller)));
            drop(permit);
            if let Ok(result) = outcome {
                let _ = answers.send(result);
            }
        });
        match answer.await {
            Ok(result) => result.map_err(|error| failed(found, &error)),
            Err(_) => Err(ModelError::internal(format!("model {:?} panicked; the log says where", found.name))),
        }
    }

    async fn gguf(&self, found: &Found) -> Result<Lease<GgufEncoder>, ModelError> {
        let threads = self.threads;
        self.loaded(found, move |folder| GgufEncoder::load(folder, threads)).await
    }

    async fn loaded<E: Resident>(
        &self,
        found: &Found,
        load: impl FnOnce(&Path) -> Result<E, text::EncodeError> + Send + 'static,
    ) -> Result<Lease<E>, ModelError> {
        let weights = found.weights();
        let files = Files::of(&weights, None);
        let memory = async {
            let (folder, gguf) = (found.folder.clone(), found.is_gguf());
            let demand = move || if gguf { Demand::of_gguf(&weights) } else { Demand::of_candle(&folder, &weights) };
            let demand = tokio::task::spawn_blocking(demand).await.map_err(ModelError::internal)?;
            demand.within(self.pool.bytes(), &found.name)
        };
        let load = async {
            let folder = found.folder.clone();
            let encoder = tokio::task::spawn_blocking(move || load(&folder)).await;
            let encoder = encoder.map_err(|error| unreadable(found, error.to_string()))?;
            encoder.map(Arc::new).map_err(|error| unreadable(found, error.to_string()))
        };
        self.pool.lease(&found.name, files, memory, load).await
    }

    /// The tokenizer of an encoder without its weights, read once however many ask for it at the same time.
    async fn tokens(&self, found: &Found) -> Result<Arc<Tokens>, ModelError> {
        let folder = found.folder.clone();
        let load = async {
            let tokens = tokio::task::spawn_blocking(move || Tokens::load(&folder)).await;
            tokens.map_err(|error| error.to_string())?.map(Arc::new).map_err(|error| error.to_string())
        };
        // A model that was replaced under its name has another one.
        let files = Files::of(&found.folder.join("tokenizer.json"), None);
        let tokens = self.tokenizers.try_get_with((found.name.clone(), files), load).await;
        tokens.map_err(|reason| unreadable(found, reason.to_string()))
    }
}

/// What the model wants before a text: the catalog's word, then that of the model's files, then that of its family.
fn prefix<'a>(model: &str, prompts: &'a Prompts, purpose: EmbedPurpose) -> &'a str {
    catalog::find(model).map_or_else(
        || prompts.before(purpose),
        |entry| match purpose {
            EmbedPurpose::Document => entry.document_prefix.as_str(),
            EmbedPurpose::Query => entry.query_prefix.as_str(),
        },
    )
}

fn prefixed(inputs: Vec<String>, prefix: &str) -> Vec<String> {
    if prefix.is_empty() { inputs } else { inputs.iter().map(|input| format!("{prefix}{input}")).collect() }
}

fn failed(found: &Found, error: &text::EncodeError) -> ModelError {
    ModelError::internal(format!("model {:?}: {error}", found.name))
}

fn reply(model: String, embedded: Embedded) -> EmbedReply {
    let dimensions = embedded.vectors.first().map_or(0, Vec::len);
    let usage = Usage { prompt_tokens: embedded.tokens, completion_tokens: 0, ..Usage::default() };
    EmbedReply { model, vectors: embedded.vectors, dimensions, truncated: embedded.truncated, usage }
}

fn check_count(count: usize) -> Result<(), ModelError> {
    if count > MAX_INPUTS {
        return Err(ModelError::bad_request(NAME, format!("{count} texts in one request; at most {MAX_INPUTS}")));
    }
    Ok(())
}

fn unreadable(found: &Found, reason: String) -> ModelError {
    found.unreadable(reason)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::provider::ModelKind;
    use crate::settings::ModelSettings;

    fn found() -> Found {
        Found { name: "m".into(), folder: "m".into(), kind: ModelKind::Embed, adapter: None, own: false }
    }

    #[tokio::test]
    async fn given_a_computation_that_panics_when_it_runs_then_its_caller_is_told_and_the_next_one_is_answered() {
        let encoders = Encoders::new(1, ModelPool::new(&ModelSettings::default()));
        for _ in 0..=MAX_RUNNING {
            let error = encoders.run::<()>(&found(), |_| panic!("on purpose")).await.unwrap_err();
            assert!(error.to_string().contains("model \"m\" panicked"), "{error}");
        }
        assert_eq!(encoders.run(&found(), |_| Ok(7)).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn given_a_caller_that_goes_when_its_texts_are_computed_then_the_work_is_told_and_its_place_is_free() {
        let encoders = Arc::new(Encoders::new(1, ModelPool::new(&ModelSettings::default())));
        let (begins, began) = oneshot::channel();
        let (ends, ended) = oneshot::channel();
        let running = Arc::clone(&encoders);
        let calling = tokio::spawn(async move {
            let work = move |caller: &CancellationToken| {
                let _ = begins.send(());
                while text::check_waited_for(caller).is_ok() {
                    std::thread::yield_now();
                }
                let _ = ends.send(());
                Ok(())
            };
            running.run(&found(), work).await
        });
        began.await.unwrap();
        calling.abort();
        tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap().unwrap();
        assert!(encoders.running.acquire_many(MAX_RUNNING as u32).await.is_ok());
    }
}
