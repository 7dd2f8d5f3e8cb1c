//! One loaded chat model: its weights, and the thread that computes with them.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::constraint::Constraints;
use super::generate::{BATCH_TOKENS, Generated, Job, Session};
use super::memory::Work;
use super::prompt::ControlTokens;
use super::sampling::Sampling;
use super::tally::Tally;
use super::template::{CHATML, ChatTemplate};
use super::thoughts::Marks;
use super::{NAME, is_constrained, tool_calls};
use crate::error::ModelError;
use crate::local::adapter;
use crate::local::llama::{backend, load_model};
use crate::provider::{ChatReply, ChatRequest, DeltaSink, FinishReason, ToolCall, Usage};
use crate::settings::{MAX_PARALLEL, ModelSettings};

/// Deltas that wait for a slow reader; what comes then is sent together, when there is place.
const DELTA_QUEUE: usize = 256;
/// A prompt must leave at least this much of the context for the answer, or what the request asks for if that is less.
const LEAST_ANSWER: usize = 32;

/// What of the settings concerns a loaded model.
#[derive(Debug, Clone)]
pub(super) struct EngineSettings {
    threads: usize,
    context_tokens: usize,
    repetition_tokens: usize,
    parallel: usize,
    queue_length: usize,
    queue_wait: Duration,
    timeout: Duration,
    /// A folder for files of the moment.
    scratch: PathBuf,
}

impl EngineSettings {
    pub(super) fn of(settings: &ModelSettings) -> Self {
        EngineSettings {
            threads: settings.effective_threads(),
            context_tokens: settings.context_tokens,
            repetition_tokens: settings.repetition_tokens,
            parallel: settings.parallel.clamp(1, MAX_PARALLEL),
            queue_length: settings.queue_length.max(1),
            queue_wait: settings.idle_timeout,
            timeout: settings.timeout,
            scratch: settings.cache_dir.clone(),
        }
    }

    /// What a model is loaded for.
    pub(super) fn work(&self) -> Work {
        Work {
            context_tokens: self.context_tokens as u64,
            requests: self.parallel as u64,
            batch_tokens: BATCH_TOKENS as u64,
        }
    }
}

/// A loaded chat model. Dropping it ends its thread and frees its memory.
pub(super) struct Engine {
    name: String,
    model: Arc<LlamaModel>,
    controls: ControlTokens,
    template: ChatTemplate,
    constraints: Constraints,
    context_tokens: usize,
    settings: EngineSettings,
    jobs: mpsc::Sender<Job>,
}

/// A request turned into tokens and samplers.
struct Prepared {
    prompt: Vec<LlamaToken>,
    opened: Option<&'static Marks>,
    sampler: llama_cpp_2::sampling::LlamaSampler,
    max_tokens: usize,
}

impl Engine {
    /// Loads a model, with the adapter of a folder where one is given, and starts its thread.
    pub(super) async fn load(
        name: String,
        path: PathBuf,
        adapter: Option<PathBuf>,
        settings: EngineSettings,
    ) -> Result<Arc<Self>, ModelError> {
        let (jobs, queue) = mpsc::channel(settings.queue_length);
        let (loaded, when_loaded) = oneshot::channel();
        let thread_settings = settings.clone();
        let thread_name = name.clone();
        thread::Builder::new()
            .name(format!("model {name}"))
            .spawn(move || serve(&thread_name, (path.as_path(), adapter.as_deref()), &thread_settings, queue, loaded))
            .map_err(ModelError::internal)?;
        let (model, context_tokens) = when_loaded
            .await
            .map_err(|_| ModelError::internal(format!("loading model {name:?} ended its thread")))??;
        super::blocking(move || {
            let controls = ControlTokens::of(&model.vocab());
            let template = template_of(&name, &model);
            let constraints = Constraints::default();
            Ok(Arc::new(Engine { name, model, controls, template, constraints, context_tokens, settings, jobs }))
        })
        .await
    }

    /// True when the thread is gone.
    pub(super) fn is_dead(&self) -> bool {
        self.jobs.is_closed()
    }

    /// Tokens that prompt and answer may have together.
    pub(super) fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    /// Tokens of a plain text.
    pub(super) fn count_tokens(&self, text: &str) -> usize {
        self.model.vocab().tokenize(text.as_bytes(), false, false).len()
    }

    /// Tokens of a whole request as the model reads it.
    pub(super) fn count_prompt(&self, request: &ChatRequest) -> Result<usize, ModelError> {
        self.tokenize(request).map(|(tokens, _)| tokens.len())
    }

    /// Runs a request. Dropping the future stops the generation.
    pub(super) async fn chat(
        self: &Arc<Self>,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        let engine = Arc::clone(self);
        let (request, prepared) =
            super::blocking(move || engine.prepare(&request).map(|prepared| (request, prepared))).await?;
        let stop = cancel.child_token();
        let _stop_when_dropped = stop.clone().drop_guard();
        let (deltas, mut pieces) = mpsc::channel(DELTA_QUEUE);
        let (started, mut when_started) = oneshot::channel();
        let (done, when_done) = oneshot::channel();
        let prompt_tokens = prepared.prompt.len();
        let job = Job {
            prompt: prepared.prompt,
            sampler: prepared.sampler,
            stops: request.stop.clone(),
            // The whole answer is what was asked for.
            hold_tool_calls: !request.tools.is_empty() && !is_constrained(&request),
            opened: prepared.opened,
            max_tokens: prepared.max_tokens,
            // What has a form may have to repeat itself.
            repetition_tokens: if is_constrained(&request) { 0 } else { self.settings.repetition_tokens },
            deltas,
            cancel: stop,
            started,
            done,
        };
        if !self.enqueue(job, &cancel).await? {
            return Ok(self.cancelled());
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(self.cancelled()),
            begun = &mut when_started => begun.map_err(|_| self.died())?,
        }
        let mut tally = Tally::of(prompt_tokens, sink);
        let finished = tokio::time::timeout(self.settings.timeout, async {
            while let Some(piece) = pieces.recv().await {
                if !piece.thoughts.is_empty() {
                    tally.thought(&piece.thoughts);
                }
                if !piece.text.is_empty() {
                    tally.delta(&piece.text);
                }
            }
            when_done.await.map_err(|_| self.died())?
        });
        let generated = finished.await.map_err(|_| ModelError::Timeout {
            provider: NAME.to_owned(),
            limit: self.settings.timeout,
            what: " for the whole answer",
        })??;
        tally.told();
        self.reply(&request, generated, &mut tally)
    }

    /// Puts a job into the queue; false when cancelled while waiting for a place.
    async fn enqueue(&self, job: Job, cancel: &CancellationToken) -> Result<bool, ModelError> {
        let place = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(false),
            place = tokio::time::timeout(self.settings.queue_wait, self.jobs.reserve()) => place,
        };
        match place {
            Ok(Ok(place)) => {
                place.send(job);
                Ok(true)
            }
            Ok(Err(_)) => Err(self.died()),
            Err(_) => Err(ModelError::RateLimited {
                provider: NAME.to_owned(),
                reason: format!(
                    "{} requests wait for model {:?} since more than {} ms",
                    self.settings.queue_length,
                    self.name,
                    self.settings.queue_wait.as_millis()
                ),
                retry_after: None,
            }),
        }
    }

    fn prepare(&self, request: &ChatRequest) -> Result<Prepared, ModelError> {
        if request.messages.is_empty() {
            return Err(ModelError::bad_request(NAME, "the request has no messages"));
        }
        let sampling = Sampling::of(request)?;
        let (prompt, opened) = self.tokenize(request)?;
        let room = self.context_tokens.saturating_sub(prompt.len());
        let asked = request.max_tokens.map_or(usize::MAX, |max| max as usize);
        if prompt.is_empty() || room < asked.clamp(1, LEAST_ANSWER) {
            return Err(ModelError::ContextOverflow {
                model: self.name.clone(),
                tokens: prompt.len(),
                limit: self.context_tokens,
            });
        }
        let constraint = self.constraints.sampler(&self.model, request)?;
        let sampler = sampling.chain(constraint, self.model.n_vocab());
        Ok(Prepared { prompt, opened, sampler, max_tokens: asked.min(room) })
    }

    /// The prompt, and the block of thoughts that it leaves open.
    fn tokenize(&self, request: &ChatRequest) -> Result<(Vec<LlamaToken>, Option<&'static Marks>), ModelError> {
        let rendered = self.template.render(request, &|text| self.controls.guard(text)).map_err(|reason| {
            ModelError::bad_request(NAME, format!("the chat template of {:?} fails: {reason}", self.name))
        })?;
        Ok((self.controls.tokenize(&self.model.vocab(), &rendered.prompt), rendered.opened))
    }

    /// Takes tool calls out of the text and checks constrained JSON.
    fn reply(
        &self,
        request: &ChatRequest,
        generated: Generated,
        sink: &mut dyn DeltaSink,
    ) -> Result<ChatReply, ModelError> {
        let Generated { mut text, shown, thoughts, mut finish, usage } = generated;
        if !thoughts.is_empty() {
            sink.thought(&thoughts);
        }
        let is_whole = request.response_schema.is_some() && finish == FinishReason::Stop && request.stop.is_empty();
        if is_whole && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&text) {
            sink.used(usage);
            return Err(ModelError::bad_response(NAME, None, format!("constrained decoding gave no JSON: {error}")));
        }
        let mut calls = Vec::new();
        let may_call = !request.tools.is_empty() && !is_constrained(request) && finish != FinishReason::Cancelled;
        if may_call && let Some(parsed) = tool_calls::parse(&text, &request.tools) {
            text.truncate(parsed.prefix_end);
            text.push_str(&parsed.tail);
            calls = number(request, parsed.calls);
            finish = FinishReason::ToolCalls;
        }
        if let Some(rest) = text.get(shown..).filter(|rest| !rest.is_empty()) {
            sink.delta(rest);
        }
        Ok(ChatReply { text, tool_calls: calls, usage, finish, model: self.name.clone() })
    }

    fn cancelled(&self) -> ChatReply {
        ChatReply {
            text: String::new(),
            tool_calls: Vec::new(),
            usage: Usage::default(),
            finish: FinishReason::Cancelled,
            model: self.name.clone(),
        }
    }

    fn died(&self) -> ModelError {
        ModelError::internal(format!("the thread of model {:?} ended; the next request loads it anew", self.name))
    }
}

/// Gives calls ids that go on from those in the conversation, so that the same conversation gives the same ids.
fn number(request: &ChatRequest, calls: Vec<tool_calls::Call>) -> Vec<ToolCall> {
    let before: usize = request.messages.iter().map(|message| message.tool_calls.len()).sum();
    let with_id = |(index, call): (usize, tool_calls::Call)| ToolCall {
        id: format!("call_{}", before + index + 1),
        name: call.name,
        arguments: call.arguments,
    };
    calls.into_iter().enumerate().map(with_id).collect()
}

/// The life of a model's thread: load, say so, run jobs until the engine is dropped.
fn serve(
    name: &str,
    (path, adapter): (&Path, Option<&Path>),
    settings: &EngineSettings,
    mut queue: mpsc::Receiver<Job>,
    loaded: oneshot::Sender<Result<(Arc<LlamaModel>, usize), ModelError>>,
) {
    let unreadable = |reason: String| ModelError::ModelUnreadable {
        model: name.to_owned(),
        path: adapter.unwrap_or(path).display().to_string(),
        reason,
        fix: None,
    };
    let mut model = match load_model(path) {
        Ok(model) => model,
        Err(reason) => return drop(loaded.send(Err(unreadable(reason)))),
    };
    // Before the context is made: its computations have room for what the adapter adds.
    let mut lora = match adapter.map(|folder| adapter::apply(folder, &settings.scratch, &mut model)).transpose() {
        Ok(lora) => lora,
        Err(reason) => return drop(loaded.send(Err(unreadable(reason)))),
    };
    let model = Arc::new(model);
    let context_tokens = settings.context_tokens.min(model.n_ctx_train() as usize).max(1);
    let mut context = match new_context(&model, context_tokens, settings) {
        Ok(context) => context,
        Err(reason) => return drop(loaded.send(Err(unreadable(reason)))),
    };
    if let Some(lora) = &mut lora
        && let Err(error) = context.lora_adapter_set(lora, 1.0)
    {
        return drop(loaded.send(Err(unreadable(format!("the adapter can't be applied: {error}")))));
    }
    let (threads, parallel) = (settings.threads, settings.parallel);
    tracing::debug!(model = name, context_tokens, threads, parallel, "chat model loaded");
    let mut session = Session::new(&model, context, parallel);
    if loaded.send(Ok((Arc::clone(&model), context_tokens))).is_err() {
        return;
    }
    session.run(&mut queue);
    tracing::debug!(model = name, "chat model unloaded");
}

fn new_context<'model>(
    model: &'model LlamaModel,
    context_tokens: usize,
    settings: &EngineSettings,
) -> Result<llama_cpp_2::context::LlamaContext<'model>, String> {
    let threads = i32::try_from(settings.threads).unwrap_or(1);
    let number = |number: usize| u32::try_from(number).map_err(|error| error.to_string());
    let batch = BATCH_TOKENS as u32;
    // The context is divided evenly; each request has the whole length to itself.
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(number(context_tokens.saturating_mul(settings.parallel))?))
        .with_n_batch(batch)
        .with_n_ubatch(batch)
        .with_n_seq_max(number(settings.parallel)?)
        .with_kv_unified(false)
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    model.new_context(backend()?, params).map_err(|error| {
        format!(
            "no context of {} times {context_tokens} tokens: {error}; lower RIVERRUN_MODEL_PARALLEL or \
             RIVERRUN_MODEL_CONTEXT_TOKENS",
            settings.parallel
        )
    })
}

fn template_of(name: &str, model: &LlamaModel) -> ChatTemplate {
    let source = model.meta_val_str("tokenizer.chat_template").unwrap_or_else(|_| {
        tracing::warn!(model = name, "the model brings no chat template; using ChatML");
        CHATML.to_owned()
    });
    let vocab = model.vocab();
    let text = |token: LlamaToken| {
        if token.0 < 0 {
            String::new()
        } else {
            String::from_utf8_lossy(&vocab.token_to_piece(token, true, None)).into_owned()
        }
    };
    ChatTemplate::new(source, text(vocab.bos()), text(vocab.eos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Message;

    #[test]
    fn given_a_conversation_with_calls_when_more_are_numbered_then_ids_go_on() {
        let call = tool_calls::Call { name: "a".into(), arguments: serde_json::json!({}) };
        let earlier = ToolCall { id: "call_1".into(), name: "a".into(), arguments: serde_json::json!({}) };
        let mut request = ChatRequest { messages: vec![Message::user("x")], ..ChatRequest::default() };
        assert_eq!(number(&request, vec![call.clone()])[0].id, "call_1");
        request.messages.push(Message { tool_calls: vec![earlier], ..Message::assistant("") });
        assert_eq!(number(&request, vec![call])[0].id, "call_2");
    }
}
