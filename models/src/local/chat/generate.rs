//! The loop over tokens of one request, on the thread that owns the model's context.

use std::sync::Arc;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::output::Output;
use super::prefix::{batches, reusable};
use crate::error::ModelError;
use crate::provider::{FinishReason, Usage};

/// The one sequence of the context.
const SEQUENCE: i32 = 0;
/// Prompt tokens that are computed between two looks at the cancellation.
pub(super) const PREFILL_BATCH: usize = 128;

/// A request that is ready to run.
pub(super) struct Job {
    pub(super) prompt: Vec<LlamaToken>,
    pub(super) sampler: LlamaSampler,
    pub(super) stops: Vec<String>,
    pub(super) hold_tool_calls: bool,
    pub(super) max_tokens: usize,
    pub(super) deltas: mpsc::Sender<String>,
    pub(super) cancel: CancellationToken,
    pub(super) started: oneshot::Sender<()>,
    pub(super) done: oneshot::Sender<Result<Generated, ModelError>>,
}

/// What a job generated.
#[derive(Debug)]
pub(super) struct Generated {
    pub(super) text: String,
    /// Bytes of `text` that went out as deltas.
    pub(super) shown: usize,
    pub(super) finish: FinishReason,
    pub(super) usage: Usage,
}

/// A context and what its key-value cache holds.
pub(super) struct Session<'model> {
    model: &'model LlamaModel,
    context: LlamaContext<'model>,
    batch: LlamaBatch<'static>,
    /// The tokens whose keys and values are in the cache, in order.
    cached: Vec<LlamaToken>,
}

enum Ended {
    Stop { by_string: bool },
    Length,
    Cancelled,
}

impl<'model> Session<'model> {
    pub(super) fn new(model: &'model Arc<LlamaModel>, context: LlamaContext<'model>) -> Self {
        Session { model, context, batch: LlamaBatch::new(PREFILL_BATCH, 1), cached: Vec::new() }
    }

    /// Runs one job and answers it.
    pub(super) fn run(&mut self, job: Job) {
        let Job { prompt, mut sampler, stops, hold_tool_calls, max_tokens, deltas, cancel, started, done } = job;
        // Nobody listens when the caller has gone; the token then says so too.
        let _ = started.send(());
        let mut output = Output::new(&stops, hold_tool_calls);
        let mut generated = 0;
        let ended = self.fill(&prompt, &cancel).and_then(|filled| match filled {
            true => self.decode(&mut sampler, &mut output, max_tokens, &deltas, &cancel, &mut generated),
            false => Ok(Ended::Cancelled),
        });
        let _ = done.send(ended.map(|ended| {
            let (text, shown) = output.finish(matches!(ended, Ended::Stop { by_string: true }));
            let finish = match ended {
                Ended::Stop { .. } => FinishReason::Stop,
                Ended::Length => FinishReason::Length,
                Ended::Cancelled => FinishReason::Cancelled,
            };
            let usage = Usage { prompt_tokens: prompt.len() as u64, completion_tokens: generated as u64 };
            Generated { text, shown, finish, usage }
        }));
    }

    /// Computes the prompt, beginning behind what the cache already holds of it. False when cancelled.
    fn fill(&mut self, prompt: &[LlamaToken], cancel: &CancellationToken) -> Result<bool, ModelError> {
        let keep = self.keep(reusable(&self.cached, prompt))?;
        tracing::debug!(tokens = prompt.len(), reused = keep, "computing the prompt");
        for range in batches(keep, prompt.len(), PREFILL_BATCH) {
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let last = range.end == prompt.len();
            self.compute(&prompt[range], last)?;
        }
        Ok(true)
    }

    /// Drops everything behind the first `keep` tokens from the cache; architectures that cannot drop a part start anew.
    fn keep(&mut self, keep: usize) -> Result<usize, ModelError> {
        if keep < self.cached.len() {
            let from = u32::try_from(keep).map_err(ModelError::internal)?;
            if self.context.kv_cache_seq_rm(SEQUENCE, Some(from), None).is_err() {
                self.forget();
                return Ok(0);
            }
            self.cached.truncate(keep);
        }
        Ok(keep)
    }

    fn forget(&mut self) {
        self.context.clear_kv_cache();
        self.cached.clear();
    }

    /// Computes tokens behind those in the cache.
    fn compute(&mut self, tokens: &[LlamaToken], with_logits: bool) -> Result<(), ModelError> {
        self.batch.clear();
        let last = tokens.len().saturating_sub(1);
        for (index, token) in tokens.iter().enumerate() {
            let position = i32::try_from(self.cached.len() + index).map_err(ModelError::internal)?;
            self.batch
                .add(*token, position, &[SEQUENCE], with_logits && index == last)
                .map_err(ModelError::internal)?;
        }
        if let Err(error) = self.context.decode(&mut self.batch) {
            // What the cache holds after a failure is not known.
            self.forget();
            return Err(ModelError::internal(format!("computing {} tokens failed: {error}", tokens.len())));
        }
        self.cached.extend_from_slice(tokens);
        Ok(())
    }

    fn decode(
        &mut self,
        sampler: &mut LlamaSampler,
        output: &mut Output,
        max_tokens: usize,
        deltas: &mpsc::Sender<String>,
        cancel: &CancellationToken,
        generated: &mut usize,
    ) -> Result<Ended, ModelError> {
        let model = self.model;
        let vocab = model.vocab();
        loop {
            if *generated >= max_tokens {
                return Ok(Ended::Length);
            }
            if cancel.is_cancelled() {
                return Ok(Ended::Cancelled);
            }
            let token = sampler.sample(&self.context, -1);
            if vocab.is_eog(token) {
                return Ok(Ended::Stop { by_string: false });
            }
            *generated += 1;
            let (piece, stopped) = output.push(&vocab.token_to_piece(token, false, None));
            if !piece.is_empty() && deltas.blocking_send(piece).is_err() {
                return Ok(Ended::Cancelled);
            }
            if stopped {
                return Ok(Ended::Stop { by_string: true });
            }
            if *generated < max_tokens {
                self.compute(&[token], true)?;
            }
        }
    }
}
