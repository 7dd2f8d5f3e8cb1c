//! given a run whose conversation outgrows its model's context, when it goes on, then a step says what is left out, every
//! prompt fits, and the run ends as it would have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_agents::compaction::Compacted;
use riverrun_agents::tools::{Tool, ToolContext, ToolError, ToolManifest};
use riverrun_schemas::agent::{AgentEvent, RunFinished, RunOutcome, RunRequest, StartRun, StepKind, ToolEffect};
use riverrun_schemas::{RunId, now_ms};
use serde_json::{Value, json};
use wiremock::matchers::path;
use wiremock::{Mock, Request, Respond, ResponseTemplate};

use super::common::{World, ends, request};
use super::{doomed, kinds};

const CONTEXT: usize = 2_048;
/// Bytes a token that prompts are estimated with, and the tokens that are kept for an answer within that context.
const BYTES_PER_TOKEN: usize = 3;
const RESERVED: usize = CONTEXT / 4;

/// The n-th page of a book: about 600 tokens, with an end that is nowhere else.
fn page(n: usize) -> String {
    format!("page-{n}: {}end-{n}.", "words and words. ".repeat(105))
}

struct Pages;

#[async_trait]
impl Tool for Pages {
    fn manifest(&self) -> ToolManifest {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        ToolManifest::builtin("page", "Reads a page.", schema, ToolEffect::None)
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let n = arguments["n"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        Ok(json!(page(n)))
    }
}

/// Reads one page after the other, then answers. It refuses longer prompts, as Ollama does.
struct Reader {
    pages: usize,
    most_bytes: usize,
    /// While it is set, nothing is said to a prompt that its first page has left.
    holds: Arc<AtomicBool>,
    read: Arc<Mutex<Vec<String>>>,
}

/// The highest page in a prompt.
fn newest_page(prompt: &str) -> usize {
    let numbers = prompt.split("page-").skip(1).filter_map(|rest| rest.split(':').next()?.parse().ok());
    numbers.max().unwrap_or(0)
}

fn prompt_of(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap()).collect()
}

impl Reader {
    /// What it says to a prompt; to one for an action, another page or the choice to answer.
    fn reply(&self, prompt: String, acts: bool) -> String {
        let next = newest_page(&prompt) + 1;
        self.read.lock().push(prompt);
        match acts {
            true if next <= self.pages => {
                json!({ "thought": "read on", "tool": "page", "arguments": { "n": next } }).to_string()
            }
            true => json!({ "thought": "enough", "tool": "answer", "arguments": {} }).to_string(),
            false => "the book was read".to_owned(),
        }
    }
}

impl Respond for Reader {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let prompt = prompt_of(&body);
        if prompt.len() > self.most_bytes {
            return ResponseTemplate::new(400)
                .set_body_json(json!({ "error": "the input length exceeds the context length" }));
        }
        let is_held = self.holds.load(Ordering::SeqCst) && newest_page(&prompt) > 1 && !prompt.contains("end-1.");
        let text = self.reply(prompt, body["format"].is_object());
        let piece = json!({ "model": "scripted", "message": { "role": "assistant", "content": text }, "done": false });
        let end = json!({ "model": "scripted", "message": { "role": "assistant", "content": "" }, "done": true,
            "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5 });
        let answer = ResponseTemplate::new(200).set_body_string(format!("{piece}\n{end}\n"));
        if is_held { answer.set_delay(Duration::from_secs(3_600)) } else { answer }
    }
}

/// A world with a reader; the prompts that it has read.
async fn library(
    pages: usize,
    context: Option<usize>,
    most_bytes: usize,
    holds: &Arc<AtomicBool>,
) -> (World, Arc<Mutex<Vec<String>>>) {
    let read = Arc::new(Mutex::new(Vec::new()));
    let reader = Reader { pages, most_bytes, holds: holds.clone(), read: read.clone() };
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    (world.with(reader, context, Arc::new(Pages)).await, read)
}

async fn start(world: &World, task: &str) -> RunId {
    let run_id = RunId::new();
    let request = RunRequest { task: task.into(), tools: Some(vec!["page".into()]), ..request() };
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
    run_id
}

/// What the run has left out, in order.
fn compactions(events: &[AgentEvent], run_id: RunId) -> Vec<Compacted> {
    events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::RunAdvanced(advance) if advance.run_id == run_id => Some(&advance.steps),
            _ => None,
        })
        .flatten()
        .filter(|step| step.kind == StepKind::Compaction)
        .map(|step| Compacted::read(step.text.as_deref().unwrap()).unwrap())
        .collect()
}

/// Checks a run that has read its book; gives what it has left out.
async fn check(world: &World, run_id: RunId, end: &RunFinished, pages: usize) -> Vec<Compacted> {
    assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("the book was read")), "{end:?}");
    let events = world.events().await;
    let kinds = kinds(&events, run_id);
    let of = |kind: StepKind| kinds.iter().filter(|(_, known)| *known == kind).count();
    assert_eq!((of(StepKind::ToolCall), of(StepKind::ToolResult), ends(&events, run_id)), (pages, pages, 1));
    assert!(kinds.iter().zip(1..).all(|((seq, _), expected)| *seq == expected), "{kinds:?}");
    let compactions = compactions(&events, run_id);
    assert!(!compactions.is_empty(), "it outgrew its context");
    let mut dropped = BTreeSet::new();
    for compacted in &compactions {
        assert!(compacted.tokens_after < compacted.tokens_before, "{compacted:?}");
        assert!(!compacted.dropped_steps.is_empty() || !compacted.shortened_steps.is_empty(), "{compacted:?}");
        for seq in &compacted.dropped_steps {
            assert!(dropped.insert(*seq), "step {seq} is left out twice: {compactions:?}");
        }
    }
    compactions
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_outgrows_its_context_says_what_it_leaves_out_and_goes_on() {
    let (world, read) = library(6, Some(CONTEXT), usize::MAX, &Arc::default()).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = start(&world, "read the book").await;
    let end = world.finished(run_id).await;
    for compacted in check(&world, run_id, &end, 6).await {
        assert_eq!((compacted.context_tokens, compacted.reserved_tokens), (CONTEXT, RESERVED));
        assert!(compacted.estimated && compacted.tokens_after <= CONTEXT - RESERVED, "{compacted:?}");
    }
    let read = read.lock().clone();
    assert_eq!(read.len(), 8, "six pages, the choice to answer, the answer");
    for prompt in &read {
        assert!(prompt.len() <= BYTES_PER_TOKEN * (CONTEXT - RESERVED), "{} bytes", prompt.len());
        let newest = newest_page(prompt);
        assert!(newest == 0 || prompt.contains(&page(newest)), "the newest page is whole");
        assert!(prompt.contains("read the book"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_a_run_goes_on_with_what_it_has_left_out() {
    let holds = Arc::new(AtomicBool::new(true));
    let (world, read) = library(6, Some(CONTEXT), usize::MAX, &holds).await;
    let first = doomed(&world, "w");
    let run_id = start(&world, "read the book").await;
    world.until("something is left out", |events| !compactions(events, run_id).is_empty()).await;
    first.shutdown_background();
    holds.store(false, Ordering::SeqCst);
    let before = read.lock().len();
    let (_worker, _stop) = world.worker("w");
    let end = world.finished(run_id).await;
    let compactions = check(&world, run_id, &end, 6).await;
    assert!(compactions.iter().all(|compacted| compacted.tokens_after <= CONTEXT - RESERVED), "{compactions:?}");
    let read = read.lock().clone();
    assert!(read.len() > before);
    assert!(read.iter().all(|prompt| prompt.len() <= BYTES_PER_TOKEN * (CONTEXT - RESERVED)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_the_models_server_finds_too_large_is_made_smaller_too() {
    let (world, read) = library(5, None, 5_000, &Arc::default()).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = start(&world, "read the book").await;
    let end = world.finished(run_id).await;
    check(&world, run_id, &end, 5).await;
    assert_eq!(read.lock().len(), 7, "five pages, the choice to answer, the answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_task_alone_is_too_large_ends_with_what_to_do() {
    let (world, read) = library(1, Some(CONTEXT), 4_000, &Arc::default()).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = start(&world, &"a long task. ".repeat(600)).await;
    let end = world.finished(run_id).await;
    let error = end.error.unwrap();
    assert_eq!((end.status, error.code.as_str()), (RunOutcome::Failed, "context_overflow"));
    assert!(error.hint.is_some_and(|hint| hint.contains("RIVERRUN_MODEL_CONTEXT_TOKENS")));
    assert!(compactions(&world.events().await, run_id).is_empty(), "there was nothing to leave out");
    assert_eq!(read.lock().len(), 0);
}

/// The same reader behind the API of llama.cpp's server.
struct ServedReader(Reader);

impl Respond for ServedReader {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let text = self.0.reply(prompt_of(&body), body["response_format"].is_object());
        let piece = json!({ "choices": [{ "delta": { "content": text }, "finish_reason": null }] });
        let end = json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
        let events = format!("data: {piece}\n\ndata: {end}\n\ndata: [DONE]\n\n");
        ResponseTemplate::new(200).set_body_raw(events, "text/event-stream")
    }
}

/// Its tokenizer: four bytes a token.
struct Tokenizer;

const TOKEN_BYTES: usize = 4;

impl Respond for Tokenizer {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        ResponseTemplate::new(200)
            .set_body_json(json!({ "count": body["content"].as_str().unwrap().len() / TOKEN_BYTES }))
    }
}

async fn start_served(world: &World, task: &str) -> RunId {
    let run_id = RunId::new();
    let (provider, model) = (Some("llamacpp".to_owned()), Some("served".to_owned()));
    let request = RunRequest { task: task.into(), tools: Some(vec!["page".into()]), provider, model, ..request() };
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
    run_id
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_provider_has_a_tokenizer_prompts_are_counted_by_it_and_one_that_cannot_fit_is_not_sent() {
    let (world, read) = library(6, None, usize::MAX, &Arc::default()).await;
    let reader = Reader { pages: 6, most_bytes: usize::MAX, holds: Arc::default(), read: read.clone() };
    let models = json!({ "data": [{ "id": "served", "max_context_length": CONTEXT }] });
    let models = ResponseTemplate::new(200).set_body_json(models);
    Mock::given(path("/v1/models")).respond_with(models).mount(world.model()).await;
    Mock::given(path("/tokenize")).respond_with(Tokenizer).mount(world.model()).await;
    Mock::given(path("/v1/chat/completions")).respond_with(ServedReader(reader)).mount(world.model()).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = start_served(&world, "read the book").await;
    let end = world.finished(run_id).await;
    for compacted in check(&world, run_id, &end, 6).await {
        assert!(!compacted.estimated && compacted.tokens_after <= CONTEXT - RESERVED, "{compacted:?}");
    }
    let prompts = read.lock().clone();
    assert_eq!(prompts.len(), 8);
    assert!(prompts.iter().all(|prompt| prompt.len() / TOKEN_BYTES <= CONTEXT - RESERVED));
    assert!(
        prompts.iter().any(|prompt| prompt.len() / BYTES_PER_TOKEN > CONTEXT - RESERVED),
        "by an estimate some would not have fitted"
    );

    let run_id = start_served(&world, &"a long task. ".repeat(700)).await;
    let error = world.finished(run_id).await.error.unwrap();
    assert_eq!(error.code, "context_overflow");
    assert!(error.message.contains(&format!("{CONTEXT} tokens")) && error.hint.is_some(), "{error:?}");
    assert_eq!(read.lock().len(), 8, "the model was not asked");
}
