//! OpenAI's protocol, which most services and servers speak, each with the differences of its [`Dialect`].

pub(super) mod dialect;
mod request;

use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::gathered::Gathered;
use super::protocol::{EmbedPart, Embedded, Fault, Listed, Protocol, changes, first_given, json, ranks_in};
use super::set;
use crate::error::ModelError;
use crate::http::Call;
use crate::http::refusal::{is_out_of_quota, message_of, overflow_of};
use crate::provider::{ChatRequest, DeltaSink, EmbedPurpose, FinishReason, ModelKind, Usage};
use dialect::Dialect;
pub(crate) use request::{short_id, wire_tools};

/// A tool call's place in a message beyond this is refused: it comes from the server.
const MAX_INDEX: usize = 4096;

/// OpenAI's protocol in a dialect.
#[derive(Debug, Clone)]
pub(super) struct OpenAi {
    pub(super) dialect: Dialect,
    /// For a dialect with deployments: the version of the API; none for the paths that need none.
    pub(super) api_version: Option<String>,
}

impl OpenAi {
    fn path(&self, what: &str, model: &str) -> String {
        match &self.api_version {
            Some(version) if self.dialect.deployments => {
                format!("/openai/deployments/{}{what}?api-version={}", encoded(model), encoded(version))
            }
            _ => what.to_owned(),
        }
    }

    /// What a call used. A cost stands in other services' counts, too, in units of their own.
    fn used(&self, wire: WireUsage) -> Usage {
        let billed = wire.cost.as_ref().and_then(Value::as_f64).filter(|_| self.dialect.tells_cost);
        Usage { billed_nanousd: billed.and_then(nanos), ..wire.into() }
    }
}

/// US dollars in billionths, where they are an amount.
fn nanos(usd: f64) -> Option<u64> {
    // No call costs a billion dollars; what is said to is no amount.
    (0.0..1e9).contains(&usd).then(|| (usd * 1e9).round() as u64)
}

/// A name within a path.
pub(super) fn encoded(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// What an error within an answer means. The status is sent by then, so it stands in the error (llama.cpp, vLLM, OpenRouter), or a name of
/// OpenAI's does.
fn fault_of(event: &[u8], error: &Value) -> Fault {
    if let Some(ModelError::ContextOverflow { tokens, limit, .. }) = overflow_of(event) {
        return Fault::Overflow { tokens, limit };
    }
    let said = message_of(event);
    let status = error["code"].as_u64().or_else(|| error["code"].as_str().and_then(|code| code.parse().ok()));
    let named = |names: &[&str]| {
        [&error["code"], &error["type"]].iter().any(|name| name.as_str().is_some_and(|name| names.contains(&name)))
    };
    match status {
        _ if is_out_of_quota(event) => Fault::Refused(said),
        Some(429 | 503 | 529) => Fault::Busy(said),
        // One that waited too long may have more time on the next try.
        Some(408) => Fault::Broken(said),
        Some(400..500) => Fault::Refused(said),
        None if named(&["rate_limit_exceeded", "rate_limit_error", "overloaded_error"]) => Fault::Busy(said),
        None if named(&["invalid_request_error", "invalid_api_key"]) => Fault::Refused(said),
        Some(_) | None => Fault::Broken(said),
    }
}

impl Protocol for OpenAi {
    fn chat(&self, request: &ChatRequest) -> Option<Call> {
        let body = request::chat_body(request, &self.dialect);
        self.dialect.chats.then(|| Call::post(self.path("/chat/completions", &request.model), body))
    }

    fn gather(
        &self,
        event: &[u8],
        gathered: &mut Gathered,
        sink: &mut dyn DeltaSink,
    ) -> Result<ControlFlow<()>, Fault> {
        if event == b"[DONE]" {
            return Ok(ControlFlow::Break(()));
        }
        let chunk: Chunk = json(event)?;
        if !chunk.error.is_null() {
            return Err(fault_of(event, &chunk.error));
        }
        if let Some(usage) = chunk.usage.or(chunk.x_groq.and_then(|own| own.usage)) {
            gathered.usage = self.used(usage);
        }
        // One choice is asked for.
        let Some(choice) = chunk.choices.into_iter().flatten().next() else { return Ok(ControlFlow::Continue(())) };
        let delta = choice.delta.or(choice.message).unwrap_or_default();
        let thoughts = delta.reasoning_content.as_str().or(delta.reasoning.as_str());
        gathered.think(thoughts.unwrap_or_default(), sink);
        gathered.say(&delta.content.map(Content::into_text).unwrap_or_default(), sink);
        if delta.refusal.is_some_and(|said| !said.is_empty()) {
            gathered.withheld = Some("refusal".to_owned());
        }
        for call in delta.tool_calls.unwrap_or_default() {
            let id = call.id.unwrap_or_default();
            let index = call.index.unwrap_or_else(|| gathered.index_of(&id));
            if index > MAX_INDEX {
                return Err(Fault::Broken(format!("it numbers a tool call {index}")));
            }
            let function = call.function.unwrap_or_default();
            let arguments = match function.arguments {
                Some(Value::String(text)) => text,
                // Some servers send an object instead of its text.
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            };
            gathered.call(index, &id, &function.name.unwrap_or_default(), &arguments)?;
        }
        if let Some(reason) = choice.finish_reason {
            gathered.finish = Some(match reason.as_str() {
                "length" | "model_length" => FinishReason::Length,
                "tool_calls" | "function_call" => FinishReason::ToolCalls,
                "error" => return Err("the model failed within its answer".into()),
                // The count still comes.
                "content_filter" => {
                    gathered.withheld = Some(reason);
                    FinishReason::Stop
                }
                _ => FinishReason::Stop,
            });
        }
        Ok(ControlFlow::Continue(()))
    }

    fn list(&self) -> Option<Call> {
        let call = match &self.api_version {
            Some(version) if self.dialect.deployments => {
                Call::get(format!("/openai/models?api-version={}", encoded(version)))
            }
            _ => Call::get("/models"),
        };
        self.dialect.lists.then_some(call)
    }

    fn listed(&self, body: &[u8]) -> Result<Vec<Listed>, Fault> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Listing {
            Wrapped { data: Vec<Entry> },
            Bare(Vec<Entry>),
        }
        let entries = match json(body)? {
            Listing::Wrapped { data } | Listing::Bare(data) => data,
        };
        Ok(entries.into_iter().map(Listed::from).collect())
    }

    fn embed(&self, part: EmbedPart<'_>) -> Option<Call> {
        let mut body = json!({"model": part.model, "input": part.inputs});
        if self.dialect.encoding_format {
            body["encoding_format"] = json!("float");
        }
        if let Some(purpose) = self.dialect.purpose {
            body[purpose.field] = json!(match part.purpose {
                EmbedPurpose::Document => purpose.document,
                EmbedPurpose::Query => purpose.query,
            });
        }
        if let Some(field) = self.dialect.dimensions {
            set(&mut body, field, part.dimensions.map(Value::from));
        }
        if let Some(field) = self.dialect.truncation {
            body[field] = json!(part.cut);
        }
        self.dialect.embeds.then(|| Call::post(self.path("/embeddings", part.model), body))
    }

    fn can_cut(&self, _model: &str) -> bool {
        self.dialect.truncation.is_some()
    }

    fn takes_dimensions(&self, _model: &str) -> bool {
        self.dialect.dimensions.is_some()
    }

    fn embedded(&self, body: &[u8]) -> Result<Embedded, Fault> {
        #[derive(Deserialize)]
        struct Entry {
            index: usize,
            embedding: Vec<f32>,
        }
        #[derive(Deserialize)]
        struct Answer {
            data: Vec<Entry>,
            #[serde(default)]
            usage: WireUsage,
        }
        let mut answer: Answer = json(body)?;
        answer.data.sort_by_key(|entry| entry.index);
        if answer.data.iter().enumerate().any(|(position, entry)| position != entry.index) {
            return Err("the vectors' indexes are not 0 to n".into());
        }
        Ok((answer.data.into_iter().map(|entry| entry.embedding).collect(), self.used(answer.usage)))
    }

    fn embed_batch(&self, _model: &str) -> usize {
        // The least of what the services allow.
        if self.dialect.purpose.is_some() { 128 } else { 2048 }
    }

    fn rerank(&self, model: &str, query: &str, documents: &[String]) -> Option<Call> {
        let body = json!({"model": model, "query": query, "documents": documents});
        self.dialect.reranks.then(|| Call::post("/rerank", body))
    }

    fn ranked(&self, body: &[u8]) -> Result<Vec<(usize, f32)>, Fault> {
        ranks_in(body, self.dialect.ranks)
    }

    fn rank_usage(&self, body: &[u8]) -> Usage {
        #[derive(Default, Deserialize)]
        struct Answer {
            #[serde(default)]
            usage: WireUsage,
        }
        // The scores count, whatever is said beside them.
        self.used(serde_json::from_slice::<Answer>(body).unwrap_or_default().usage)
    }

    fn leaves_out(&self, request: &ChatRequest) -> Option<&'static str> {
        let Dialect { sampling, seed, penalties, .. } = self.dialect;
        let chooses = self.dialect.samples_itself(&request.model);
        let heeds_none = chooses || !penalties;
        first_given(&[
            // 1 is what such models have.
            ("temperature", chooses && changes(request.temperature, 1.0)),
            ("top_p", chooses && changes(request.top_p, 1.0)),
            ("seed", seed.is_none() && request.seed.is_some()),
            ("top_k", !sampling && request.top_k.is_some()),
            ("min_p", !sampling && changes(request.min_p, 0.0)),
            ("repeat_penalty", !sampling && changes(request.repeat_penalty, 1.0)),
            ("frequency_penalty", heeds_none && changes(request.frequency_penalty, 0.0)),
            ("presence_penalty", heeds_none && changes(request.presence_penalty, 0.0)),
        ])
    }

    fn count_text(&self, model: &str, text: &str) -> Option<Call> {
        let body = json!({"model": model, "content": text, "prompt": text});
        self.dialect.tokenizes.then(|| Call::post("/tokenize", body))
    }

    fn count_address<'a>(&self, address: &'a str) -> Option<&'a str> {
        address.strip_suffix("/v1")
    }

    fn counted(&self, body: &[u8]) -> Result<Option<usize>, Fault> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            count: Option<usize>,
            #[serde(default)]
            tokens: Option<Vec<Value>>,
        }
        let answer: Answer = json(body)?;
        Ok(answer.count.or(answer.tokens.map(|tokens| tokens.len())))
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    error: Value,
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<WireUsage>,
    /// Where Groq puts the usage unless it is asked for.
    #[serde(default)]
    x_groq: Option<XGroq>,
}

#[derive(Deserialize)]
struct XGroq {
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Option<Delta>,
    /// Of a server that answers at once where a stream is asked for.
    #[serde(default)]
    message: Option<Delta>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<Content>,
    /// What a model thinks: of DeepSeek, vLLM and llama.cpp's server. Of any shape, since it must not cost the answer.
    #[serde(default)]
    reasoning_content: Value,
    /// The same of OpenRouter, Groq and newer vLLM.
    #[serde(default)]
    reasoning: Value,
    /// What a model says in the place of an answer that must have a form.
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CallDelta>>,
}

/// What a message says.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    /// Of Mistral's models that think.
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    text: Option<String>,
}

impl Content {
    /// What is said; thoughts and references are no part of an answer.
    fn into_text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => {
                let said = parts.into_iter().filter(|part| part.kind.as_deref().is_none_or(|kind| kind == "text"));
                said.filter_map(|part| part.text).collect()
            }
        }
    }
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default)]
    index: Option<usize>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionDelta>,
}

#[derive(Default, Deserialize)]
struct FunctionDelta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Default, Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    total_tokens: Option<u64>,
    /// Of any shape: what is not what OpenAI has there must not cost the answer.
    #[serde(default)]
    prompt_tokens_details: Value,
    /// DeepSeek's own name for what its cache had.
    #[serde(default)]
    prompt_cache_hit_tokens: Option<u64>,
    /// OpenRouter's dollars; of any shape, since other services say other things there.
    #[serde(default)]
    cost: Option<Value>,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        let completion_tokens = usage.completion_tokens.unwrap_or(0);
        // Services that only embed tell the total.
        let prompt_tokens =
            usage.prompt_tokens.or(usage.total_tokens.map(|total| total.saturating_sub(completion_tokens)));
        let prompt_tokens = prompt_tokens.unwrap_or(0);
        let cached = usage.prompt_tokens_details["cached_tokens"].as_u64();
        let cached = cached.or(usage.prompt_cache_hit_tokens).unwrap_or(0).min(prompt_tokens);
        Usage { prompt_tokens, completion_tokens, cached_prompt_tokens: cached, ..Usage::default() }
    }
}

/// A model of a listing; what else is told has another name at every service.
#[derive(Deserialize)]
struct Entry {
    id: String,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

impl From<Entry> for Listed {
    fn from(entry: Entry) -> Self {
        // vLLM, Groq, OpenRouter and Together, Mistral and LM Studio, llama.cpp.
        let names = ["max_model_len", "context_window", "context_length", "max_context_length"];
        let told = names.iter().find_map(|name| entry.rest.get(*name).and_then(Value::as_u64));
        // llama.cpp's server tells what the model was trained for, and newer ones what it is run with, which is what counts.
        let meta = |name: &str| entry.rest.get("meta").and_then(|meta| meta[name].as_u64());
        let trained = meta("n_ctx").filter(|tokens| *tokens > 0).or_else(|| meta("n_ctx_train"));
        let kind = match entry.kind.as_deref() {
            Some("chat" | "llm" | "vlm" | "language") => ModelKind::Chat,
            Some("embedding" | "embeddings") => ModelKind::Embed,
            Some("rerank") => ModelKind::Rerank,
            _ => ModelKind::Unknown,
        };
        Listed { kind, context_tokens: told.or(trained), ..Listed::named(entry.id) }
    }
}
