//! GGUF encoders and re-rankers on llama.cpp: a thread a model, that owns the context.

use std::path::Path;
use std::sync::{Arc, mpsc as blocking};
use std::thread;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::{LlamaContextParams, LlamaPoolingType};
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use tokio::sync::{mpsc, oneshot};

use super::batching;
use super::cross::Scored;
use super::layout::Prompts;
use super::sentence::Embedded;
use super::stock::Family;
use super::text::EncodeError;
use crate::local::gguf::Header;
use crate::local::llama;
use crate::split::gguf_or_single;
use crate::words::counted;

/// Tokens of one computation, and of one text, at most: encoders see a text whole or not at all.
pub(super) const BATCH_TOKENS: u32 = 2048;
/// Texts of one computation at most.
const BATCH_TEXTS: usize = 64;
/// Requests that wait for a model before their callers wait outside.
const QUEUE: usize = 16;

/// A loaded encoder or re-ranker. Dropping it ends its thread.
pub(super) struct GgufEncoder {
    model: Arc<LlamaModel>,
    max_tokens: usize,
    pub(super) prompts: Prompts,
    jobs: mpsc::Sender<Job>,
}

/// Texts as tokens, each of which fits.
pub(super) struct Texts {
    tokens: Vec<Vec<LlamaToken>>,
    truncated: usize,
}

struct Job {
    texts: Vec<Vec<LlamaToken>>,
    done: oneshot::Sender<Result<Vec<Vec<f32>>, EncodeError>>,
}

impl GgufEncoder {
    /// Loads a model; takes as long as reading its file.
    pub(super) fn load(folder: &Path, threads: usize) -> Result<Self, EncodeError> {
        let path = gguf_or_single(folder);
        let header = Header::read(&path);
        let nomic = header.architecture.starts_with("nomic-bert");
        let (query, document) = if nomic { Family::Nomic.prompts() } else { ("", "") };
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (loaded, when_loaded) = blocking::channel();
        thread::Builder::new()
            .name("gguf encoder".to_owned())
            .spawn(move || serve(&path, &header, threads, queue, &loaded))
            .map_err(|error| EncodeError(error.to_string()))?;
        let model = when_loaded.recv().map_err(|_| EncodeError("loading it ended its thread".to_owned()))??;
        let max_tokens = model.n_ctx_train().min(BATCH_TOKENS) as usize;
        let prompts = Prompts { query: query.to_owned(), document: document.to_owned() };
        Ok(GgufEncoder { model, max_tokens, prompts, jobs })
    }

    /// True when the thread is gone.
    pub(super) fn is_dead(&self) -> bool {
        self.jobs.is_closed()
    }

    /// The tokens of texts; what does not fit is cut, and counted.
    pub(super) fn texts(&self, inputs: &[String]) -> Result<Texts, EncodeError> {
        let vocab = self.model.vocab();
        let mut truncated = 0;
        let mut tokens = Vec::with_capacity(inputs.len());
        for input in inputs {
            let mut text = vocab.tokenize(input.as_bytes(), true, false);
            let last = text.last().copied().ok_or_else(|| EncodeError("a text has no tokens".to_owned()))?;
            if text.len() > self.max_tokens {
                truncated += 1;
                text.truncate(self.max_tokens);
                // The mark of the end stays: some models take its vector for that of the text.
                if vocab.is_control(last) {
                    text.pop();
                    text.push(last);
                }
            }
            tokens.push(text);
        }
        Ok(Texts { tokens, truncated })
    }

    /// The tokens of a query with each document, in the form that llama.cpp's server gives them.
    pub(super) fn pairs(&self, query: &str, documents: &[String]) -> Result<Texts, EncodeError> {
        if self.model.meta_val_str("tokenizer.chat_template.rerank").is_ok() {
            return Err(EncodeError("re-rankers that are asked by a prompt are not supported".to_owned()));
        }
        let outputs = self.model.n_cls_out();
        if outputs != 1 {
            return Err(EncodeError(format!("it has {outputs} outputs; a re-ranker has one")));
        }
        let vocab = self.model.vocab();
        let end = if vocab.eos().0 < 0 { vocab.sep() } else { vocab.eos() };
        let begin = vocab.should_add_bos().then(|| vocab.bos());
        let middle = [vocab.should_add_eos().then_some(end), vocab.should_add_sep().then(|| vocab.sep())];
        let last = vocab.should_add_eos().then_some(end);
        let marks = begin.iter().chain(middle.iter().flatten()).chain(&last).count();
        let plain = |text: &str| vocab.tokenize(text.as_bytes(), false, false);
        let room = self.max_tokens.saturating_sub(marks);
        let mut query = plain(query);
        // A query leaves half of the room to the documents.
        query.truncate(room / 2);
        let mut truncated = 0;
        let mut tokens = Vec::with_capacity(documents.len());
        for document in documents {
            let mut document = plain(document);
            if document.len() > room - query.len() {
                truncated += 1;
                document.truncate(room - query.len());
            }
            let mut pair: Vec<LlamaToken> = begin.into_iter().collect();
            pair.extend(&query);
            pair.extend(middle.iter().flatten());
            pair.extend(document);
            pair.extend(last);
            if pair.is_empty() {
                return Err(EncodeError("a text has no tokens".to_owned()));
            }
            tokens.push(pair);
        }
        Ok(Texts { tokens, truncated })
    }

    /// Vectors of length 1, in the order of the texts.
    pub(super) async fn embed(&self, texts: Texts) -> Result<Embedded, EncodeError> {
        let Texts { tokens, truncated } = texts;
        let count = tokens.iter().map(Vec::len).sum::<usize>() as u64;
        let mut vectors = self.run(tokens).await?;
        for vector in &mut vectors {
            let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-12);
            vector.iter_mut().for_each(|x| *x /= norm);
        }
        Ok(Embedded { vectors, truncated, tokens: count })
    }

    /// Scores between 0 and 1, in the order of the pairs; higher is nearer.
    pub(super) async fn scores(&self, pairs: Texts) -> Result<Scored, EncodeError> {
        let truncated = pairs.truncated;
        let tokens = pairs.tokens.iter().map(Vec::len).sum::<usize>() as u64;
        let outputs = self.run(pairs.tokens).await?;
        let squash = |logit: f32| 1.0 / (1.0 + (-logit).exp());
        let scores = outputs.into_iter().map(|output| squash(output.first().copied().unwrap_or(0.0))).collect();
        Ok(Scored { scores, truncated, tokens })
    }

    async fn run(&self, texts: Vec<Vec<LlamaToken>>) -> Result<Vec<Vec<f32>>, EncodeError> {
        let ended = || EncodeError("its thread ended".to_owned());
        let (done, when_done) = oneshot::channel();
        self.jobs.send(Job { texts, done }).await.map_err(|_| ended())?;
        when_done.await.map_err(|_| ended())?
    }
}

/// The life of a model's thread: load, say so, run jobs until the encoder is dropped.
fn serve(
    path: &Path,
    header: &Header,
    threads: usize,
    mut queue: mpsc::Receiver<Job>,
    loaded: &blocking::Sender<Result<Arc<LlamaModel>, EncodeError>>,
) {
    let model = match llama::load_model(path) {
        Ok(model) => Arc::new(model),
        Err(reason) => return drop(loaded.send(Err(EncodeError(reason)))),
    };
    let mut context = match new_context(&model, header, threads) {
        Ok(context) => context,
        Err(reason) => return drop(loaded.send(Err(EncodeError(reason)))),
    };
    let mut batch = LlamaBatch::new(BATCH_TOKENS as usize, 1);
    if loaded.send(Ok(Arc::clone(&model))).is_err() {
        return;
    }
    while let Some(job) = queue.blocking_recv() {
        let result = compute_all(&mut context, &mut batch, &job);
        let _ = job.done.send(result);
    }
}

fn new_context<'model>(
    model: &'model LlamaModel,
    header: &Header,
    threads: usize,
) -> Result<LlamaContext<'model>, String> {
    let threads = i32::try_from(threads).unwrap_or(1);
    // An encoder that does not say how it pools is taken for one that takes the mean.
    let pooling = if header.pooling.is_some() { LlamaPoolingType::Unspecified } else { LlamaPoolingType::Mean };
    let params = LlamaContextParams::default()
        .with_n_ctx(std::num::NonZeroU32::new(BATCH_TOKENS))
        .with_n_batch(BATCH_TOKENS)
        .with_n_ubatch(BATCH_TOKENS)
        .with_n_seq_max(BATCH_TEXTS as u32)
        // All texts share the context, however long each is.
        .with_kv_unified(true)
        .with_embeddings(true)
        .with_pooling_type(pooling)
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    model
        .new_context(llama::backend()?, params)
        .map_err(|error| format!("no context of {BATCH_TOKENS} tokens: {error}"))
}

fn compute_all(
    context: &mut LlamaContext<'_>,
    batch: &mut LlamaBatch<'_>,
    job: &Job,
) -> Result<Vec<Vec<f32>>, EncodeError> {
    let lengths: Vec<usize> = job.texts.iter().map(Vec::len).collect();
    let mut vectors = Vec::with_capacity(lengths.len());
    for range in batching::plan(&lengths) {
        for texts in job.texts[range].chunks(BATCH_TEXTS) {
            // Nobody waits for the rest when the caller has gone.
            if job.done.is_closed() {
                return Ok(vectors);
            }
            vectors.extend(compute(context, batch, texts)?);
        }
    }
    Ok(vectors)
}

fn compute(
    context: &mut LlamaContext<'_>,
    batch: &mut LlamaBatch<'_>,
    texts: &[Vec<LlamaToken>],
) -> Result<Vec<Vec<f32>>, EncodeError> {
    context.clear_kv_cache();
    batch.clear();
    for (sequence, tokens) in (0..).zip(texts) {
        for (position, token) in (0..).zip(tokens) {
            batch.add(*token, position, &[sequence], true).map_err(|error| EncodeError(error.to_string()))?;
        }
    }
    context
        .decode(batch)
        .map_err(|error| EncodeError(format!("computing {} failed: {error}", counted(texts.len(), "text"))))?;
    let vector = |(sequence, _): (i32, &Vec<LlamaToken>)| {
        let vector = context.embeddings_seq_ith(sequence).map(<[f32]>::to_vec);
        vector.map_err(|error| EncodeError(error.to_string()))
    };
    (0..).zip(texts).map(vector).collect()
}
