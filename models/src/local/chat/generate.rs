//! The loop over tokens, on the thread that owns the model's context. Several requests share the context, each in a sequence of its own:
//! every computation takes the next token of each answer and a part of each prompt (continuous batching, after Yu et al., "Orca: A
//! Distributed Serving System for Transformer-Based Generative Models", 2022).

use std::sync::Arc;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::vocab::LlamaVocab;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::output::{Ending, Output};
use super::prefix::reusable;
use super::repetition::{ends_in_circles, goes_in_circles};
use super::schedule::{Free, choose, shares};
use super::thoughts::{Marks, Piece};
use crate::error::ModelError;
use crate::provider::{FinishReason, Usage};
use crate::words::counted;

/// Tokens of one computation at most: so many are computed between two looks at cancellations and new requests.
pub(super) const BATCH_TOKENS: usize = 128;

/// A request that is ready to run.
pub(super) struct Job {
    pub(super) prompt: Vec<LlamaToken>,
    pub(super) sampler: LlamaSampler,
    pub(super) stops: Vec<String>,
    pub(super) hold_tool_calls: bool,
    /// The block of thoughts that the prompt left open.
    pub(super) opened: Option<&'static Marks>,
    pub(super) max_tokens: usize,
    /// How many tokens have to be the same over and over for the answer to be ended; 0 is never.
    pub(super) repetition_tokens: usize,
    pub(super) deltas: mpsc::Sender<Piece>,
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
    /// Thoughts that did not go out yet; they stand before what is not shown of `text`.
    pub(super) thoughts: String,
    pub(super) finish: FinishReason,
    pub(super) usage: Usage,
}

/// A context and its sequences.
pub(super) struct Session<'model> {
    model: &'model LlamaModel,
    context: LlamaContext<'model>,
    batch: LlamaBatch<'static>,
    slots: Vec<Slot>,
    clock: u64,
}

/// One sequence.
#[derive(Default)]
struct Slot {
    /// The tokens whose keys and values are in the cache, in order.
    cached: Vec<LlamaToken>,
    active: Option<Active>,
    last_used: u64,
}

/// A request under way.
struct Active {
    /// The prompt and what was generated. Those beyond the cached ones are still to be computed.
    tokens: Vec<LlamaToken>,
    prompt: usize,
    sampler: LlamaSampler,
    output: Output,
    max_tokens: usize,
    repetition_tokens: usize,
    deltas: mpsc::Sender<Piece>,
    /// What a slow reader has no place for yet. An answer bounds it, and nobody else waits for that reader.
    unsent: Piece,
    cancel: CancellationToken,
    done: oneshot::Sender<Result<Generated, ModelError>>,
}

enum Ended {
    Stop { by_string: bool },
    Length,
    Repetition,
    Cancelled,
}

impl<'model> Session<'model> {
    /// A session of `parallel` sequences, for which the context has been made.
    pub(super) fn new(model: &'model Arc<LlamaModel>, context: LlamaContext<'model>, parallel: usize) -> Self {
        let slots = (0..parallel.max(1)).map(|_| Slot::default()).collect();
        // A token belongs to one sequence.
        Session { model, context, batch: LlamaBatch::new(BATCH_TOKENS, 1), slots, clock: 0 }
    }

    /// Runs jobs, in the order in which they come, until nobody can send any more.
    pub(super) fn run(&mut self, queue: &mut mpsc::Receiver<Job>) {
        while self.admit(queue) {
            self.step();
        }
    }

    /// Gives waiting jobs to free sequences; waits for one when there is nothing to do. False when none will come.
    fn admit(&mut self, queue: &mut mpsc::Receiver<Job>) -> bool {
        if self.slots.iter().all(|slot| slot.active.is_none()) {
            match queue.blocking_recv() {
                Some(job) => self.start(job),
                None => return false,
            }
        }
        while self.slots.iter().any(|slot| slot.active.is_none()) {
            match queue.try_recv() {
                Ok(job) => self.start(job),
                Err(_) => break,
            }
        }
        true
    }

    /// Puts a job into a free sequence.
    fn start(&mut self, job: Job) {
        let Job {
            prompt,
            sampler,
            stops,
            hold_tool_calls,
            opened,
            max_tokens,
            repetition_tokens,
            deltas,
            cancel,
            started,
            done,
        } = job;
        let free: Vec<Free<'_, LlamaToken>> = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.active.is_none())
            .map(|(id, slot)| Free { id, cached: slot.cached.as_slice(), last_used: slot.last_used })
            .collect();
        let chosen = choose(&free, &prompt);
        let Some(id) = chosen else { return };
        let kept = self.keep(id, &prompt);
        tracing::debug!(tokens = prompt.len(), reused = kept, sequence = id, "computing a prompt");
        // Nobody listens when the caller has gone; the token then says so too.
        let _ = started.send(());
        self.clock += 1;
        if let Some(slot) = self.slots.get_mut(id) {
            slot.last_used = self.clock;
            slot.active = Some(Active {
                prompt: prompt.len(),
                tokens: prompt,
                sampler,
                output: Output::new(&stops, hold_tool_calls, opened),
                max_tokens,
                repetition_tokens,
                deltas,
                unsent: Piece::default(),
                cancel,
                done,
            });
        }
    }

    /// Drops from a sequence what is not of the prompt's beginning, and answers how much stays; architectures that cannot drop a part
    /// start anew.
    fn keep(&mut self, id: usize, prompt: &[LlamaToken]) -> usize {
        let Some(slot) = self.slots.get_mut(id) else { return 0 };
        let keep = reusable(&slot.cached, prompt);
        if keep < slot.cached.len() {
            let sequence = sequence(id);
            let from = u32::try_from(keep).unwrap_or(u32::MAX);
            if self.context.kv_cache_seq_rm(sequence, Some(from), None).is_ok() {
                slot.cached.truncate(keep);
            } else {
                // A whole sequence can always be removed.
                let _ = self.context.kv_cache_seq_rm(sequence, None, None);
                slot.cached.clear();
            }
        }
        slot.cached.len()
    }

    /// One computation for all that are under way.
    fn step(&mut self) {
        for slot in &mut self.slots {
            if slot.active.as_ref().is_some_and(|active| active.cancel.is_cancelled()) {
                slot.end(Ended::Cancelled);
            }
        }
        let needs: Vec<usize> = self.slots.iter().map(Slot::need).collect();
        if needs.iter().all(|need| *need == 0) {
            return;
        }
        match self.compute(&shares(&needs, BATCH_TOKENS)) {
            Ok(outputs) => {
                for (id, output) in outputs {
                    self.advance(id, output);
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Computes the next tokens of each sequence. Answers the sequences whose next token can now be drawn, with the places of their
    /// outputs.
    fn compute(&mut self, shares: &[usize]) -> Result<Vec<(usize, i32)>, ModelError> {
        self.batch.clear();
        let mut outputs = Vec::new();
        for (id, (slot, share)) in self.slots.iter().zip(shares).enumerate() {
            let Some(active) = &slot.active else { continue };
            let end = slot.cached.len() + share;
            for (index, token) in active.tokens.iter().enumerate().take(end).skip(slot.cached.len()) {
                let last = index + 1 == active.tokens.len();
                if last {
                    outputs.push((id, self.batch.n_tokens()));
                }
                let position = i32::try_from(index).map_err(ModelError::internal)?;
                self.batch.add(*token, position, &[sequence(id)], last).map_err(ModelError::internal)?;
            }
        }
        let count = self.batch.n_tokens();
        self.context
            .decode(&mut self.batch)
            .map_err(|error| ModelError::internal(format!("computing {} failed: {error}", counted(count, "token"))))?;
        for (slot, share) in self.slots.iter_mut().zip(shares) {
            if let Some(active) = &slot.active {
                let computed = active.tokens.iter().skip(slot.cached.len()).take(*share);
                slot.cached.extend(computed);
            }
        }
        Ok(outputs)
    }

    /// Draws the next token of a sequence.
    fn advance(&mut self, id: usize, output: i32) {
        let model = self.model;
        let Some(slot) = self.slots.get_mut(id) else { return };
        let Some(active) = &mut slot.active else { return };
        if let Some(ended) = active.draw(&self.context, &model.vocab(), output) {
            slot.end(ended);
        }
    }

    /// Ends all that are under way: what the cache holds after a failure is not known.
    fn fail(&mut self, error: &ModelError) {
        self.context.clear_kv_cache();
        for slot in &mut self.slots {
            slot.cached.clear();
            if let Some(active) = slot.active.take() {
                let _ = active.done.send(Err(error.clone()));
            }
        }
    }
}

/// The number of a sequence as llama.cpp counts them; there are at most 64.
fn sequence(id: usize) -> i32 {
    id as i32
}

impl Slot {
    /// Tokens that are to be computed.
    fn need(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.tokens.len().saturating_sub(self.cached.len()))
    }

    /// Answers the request and is free; what was computed stays for the next one.
    fn end(&mut self, ended: Ended) {
        if let Some(active) = self.active.take() {
            active.answer(&ended);
        }
    }
}

impl Active {
    fn generated(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    /// Draws a token from the output at a place of the last computation; how the request ended when that was its last.
    fn draw(&mut self, context: &LlamaContext<'_>, vocab: &LlamaVocab<'_>, output: i32) -> Option<Ended> {
        if self.generated() >= self.max_tokens {
            return Some(self.at_its_limit());
        }
        let token = self.sampler.sample(context, output);
        if vocab.is_eog(token) {
            return Some(Ended::Stop { by_string: false });
        }
        self.tokens.push(token);
        let letters = self.letters(vocab, token);
        let (piece, stopped) = self.output.push(&letters);
        if !self.show(&piece) {
            return Some(Ended::Cancelled);
        }
        if stopped {
            return Some(Ended::Stop { by_string: true });
        }
        if goes_in_circles(self.answered(), self.repetition_tokens) {
            return Some(Ended::Repetition);
        }
        (self.generated() >= self.max_tokens).then(|| self.at_its_limit())
    }

    /// What a token is of the answer. Control tokens are nothing, but for marks that the answer is read by.
    fn letters(&self, vocab: &LlamaVocab<'_>, token: LlamaToken) -> Vec<u8> {
        let plain = vocab.token_to_piece(token, false, None);
        if !plain.is_empty() {
            return plain;
        }
        let mark = vocab.token_to_piece(token, true, None);
        if self.output.reads(&mark) { mark } else { plain }
    }

    /// The tokens of the answer.
    fn answered(&self) -> &[LlamaToken] {
        self.tokens.get(self.prompt..).unwrap_or_default()
    }

    /// How an answer ends that may have no more tokens: whoever reads it is told when most of it was the same.
    fn at_its_limit(&self) -> Ended {
        if ends_in_circles(self.answered(), self.repetition_tokens) { Ended::Repetition } else { Ended::Length }
    }

    /// Sends what can be told on its way; false when nobody reads any more.
    fn show(&mut self, piece: &Piece) -> bool {
        self.unsent.append(piece);
        if self.unsent.is_empty() {
            return true;
        }
        match self.deltas.try_send(std::mem::take(&mut self.unsent)) {
            Ok(()) => true,
            Err(TrySendError::Full(piece)) => {
                self.unsent = piece;
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }

    fn answer(self, ended: &Ended) {
        let usage = Usage {
            prompt_tokens: self.prompt as u64,
            completion_tokens: (self.tokens.len() - self.prompt) as u64,
            ..Usage::default()
        };
        let Ending { text, shown, thoughts } = self.output.finish(matches!(ended, Ended::Stop { by_string: true }));
        let finish = match ended {
            Ended::Stop { .. } => FinishReason::Stop,
            Ended::Length => FinishReason::Length,
            Ended::Repetition => FinishReason::Repetition,
            Ended::Cancelled => FinishReason::Cancelled,
        };
        // What a slow reader did not take comes with the answer.
        let shown = shown.saturating_sub(self.unsent.text.len());
        let thoughts = self.unsent.thoughts + &thoughts;
        let _ = self.done.send(Ok(Generated { text, shown, thoughts, finish, usage }));
    }
}
