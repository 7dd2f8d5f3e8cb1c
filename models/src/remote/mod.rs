//! The providers behind HTTP: a [`table`] of services, a file for each wire protocol, and [`Remote`], which does for all of them what
//! happens between a request and its answer: keys, time-outs, retries, streams, cancellation, checks and errors.

mod anthropic;
mod bedrock;
mod cohere;
mod cut;
mod faults;
mod forced;
mod gathered;
mod gemini;
mod ollama;
pub(crate) mod openai;
mod protocol;
mod signed;
pub(crate) mod table;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::http::Server;
use crate::http::client::LazyClient;
use crate::http::frames::FrameSplitter;
use crate::http::lines::{LineSplitter, for_each_event};
use crate::http::pieces::for_each_piece;
use crate::models::ProviderKind;
use crate::provider::{
    ChatReply, ChatRequest, DeltaSink, EmbedReply, EmbedRequest, ModelInfo, ProbeReport, Provider, RerankReply,
    RerankRequest, Usage,
};
use crate::settings::{ModelSettings, aws};
use cut::Underway;
use faults::{fix, is_of_the_texts};
use protocol::{EmbedPart, Framing, Protocol};
use table::{Spec, Wire};

/// How long a server is waited for that is asked what a model was trained for.
const ABOUT_PATIENCE: Duration = Duration::from_secs(5);
/// What a chat may write, in text, thoughts and calls: some quarter of a million tokens, twice what any model writes. Every run may meet a model that does
/// not end, all at the same time.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Models of which that is kept.
const MAX_TRAINED: usize = 1_000;

/// A provider behind HTTP. Clones share what they learned.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    spec: &'static Spec,
    /// Hosted services do nothing without a key; a server of the operator's in a service's place may.
    kind: ProviderKind,
    protocol: Arc<dyn Protocol>,
    server: Server,
    /// Contexts of the models that the server lists with one.
    contexts: Arc<OnceCell<HashMap<String, usize>>>,
    /// What models were trained for, of those that the server was asked about; none where it does not tell.
    trained: Arc<Mutex<HashMap<String, Option<usize>>>>,
}

impl Remote {
    /// The provider of a row, as the settings change it.
    pub(crate) fn new(spec: &'static Spec, settings: &ModelSettings, client: LazyClient) -> Self {
        let given = settings.address_of(spec);
        let elsewhere = given.is_some() && spec.address.is_some();
        let kind = if elsewhere { ProviderKind::Server } else { spec.kind };
        let region = settings.aws.region.as_deref();
        let key = settings.key_of(spec).cloned();
        let address = given.map(|address| with_path(address, spec.path)).or_else(|| spec.own_address(region));
        // A signature has a region, whatever the address.
        let address = address.filter(|_| key.is_some() || !signed::lacks_region(spec, settings));
        let signer = signed::signer(spec, settings).filter(|_| key.is_none());
        let access = settings.access_of(spec).cloned().unwrap_or_default();
        let own_setting = access.setting(spec).filter(|_| key.is_none());
        let key_setting = own_setting.unwrap_or_else(|| signed::key_setting(spec, signer.is_some()));
        let mut server = Server {
            provider: spec.name,
            address: address.unwrap_or_default(),
            key,
            signer,
            access,
            auth: spec.auth,
            headers: spec.headers,
            key_setting,
            fix: fix(spec),
            timeout: settings.timeout,
            idle_timeout: settings.idle_timeout,
            client,
        };
        let protocol: Arc<dyn Protocol> = match spec.wire {
            Wire::OpenAi(dialect) => {
                // Another server in OpenAI's place speaks what the compatible ones speak.
                let compatible = elsewhere && spec.name == "openai";
                let dialect = if compatible { openai::dialect::COMPATIBLE } else { dialect };
                let api_version = settings.azure_api_version.clone().filter(|_| dialect.deployments);
                if api_version.is_some() {
                    // The paths with a version begin at the resource.
                    server.address = server.address.trim_end_matches(spec.path).to_owned();
                }
                Arc::new(openai::OpenAi { dialect, api_version })
            }
            Wire::Anthropic => Arc::new(anthropic::Anthropic),
            Wire::Gemini => Arc::new(gemini::Gemini),
            Wire::Cohere => Arc::new(cohere::Cohere),
            Wire::Bedrock => Arc::new(bedrock::Bedrock),
            Wire::Ollama => Arc::new(ollama::Ollama { context_tokens: settings.context_tokens }),
        };
        Remote { spec, kind, protocol, server, contexts: Arc::default(), trained: Arc::default() }
    }

    /// Where it runs.
    pub(crate) fn kind(&self) -> ProviderKind {
        self.kind
    }

    /// The server's address; none when nobody told it.
    pub(crate) fn address(&self) -> Option<&str> {
        Some(self.server.address.as_str()).filter(|address| !address.is_empty())
    }

    /// Whether a key is set; none where none is needed and none is set.
    pub(crate) fn has_key(&self) -> Option<bool> {
        let has = self.may_enter();
        (has || self.kind == ProviderKind::Hosted || self.spec.kind == ProviderKind::Hosted).then_some(has)
    }

    /// Whether there is a key, or what the settings send in its place.
    fn may_enter(&self) -> bool {
        self.server.key.is_some() || self.server.signer.is_some() || !self.server.access.headers().is_empty()
    }

    /// The service's row.
    pub(crate) fn spec(&self) -> &'static Spec {
        self.spec
    }

    /// Says what is missing before the network does.
    pub(crate) fn ready(&self) -> Result<(), ModelError> {
        if self.address().is_none() {
            let address = self.spec.address_setting();
            let (what, fix) = match self.spec.address {
                Some(_) => ("region", format!("set {}, or {address}", aws::REGION)),
                None => ("address", format!("set {address}")),
            };
            return Err(ModelError::RuntimeDown {
                provider: self.spec.name.to_owned(),
                address: "an unknown address".to_owned(),
                reason: format!("no {what} is set"),
                fix,
            });
        }
        if self.kind == ProviderKind::Hosted && !self.may_enter() {
            return Err(ModelError::Unauthorized {
                provider: self.spec.name.to_owned(),
                reason: "no key is set".to_owned(),
                setting: self.server.key_setting.clone(),
                fix: None,
            });
        }
        Ok(())
    }

    fn unsupported(&self, what: &str) -> ModelError {
        ModelError::unsupported(self.spec.name, what)
    }

    async fn stream(&self, request: &ChatRequest, underway: &mut Underway<'_>) -> Result<(), ModelError> {
        let call = self.protocol.chat(request).ok_or_else(|| self.unsupported("chat"))?;
        let response = self.server.send(&call).await.map_err(|error| self.explain(error, &request.model))?;
        underway.begun = true;
        let Underway { sink, gathered, .. } = underway;
        let mut gather = |event: &[u8]| {
            let gone_on = self.protocol.gather(event, gathered, &mut **sink);
            if gathered.bytes() > MAX_ANSWER_BYTES {
                let reason = format!("it writes an answer of more than {MAX_ANSWER_BYTES} bytes");
                return Err(self.server.bad_response(None, reason));
            }
            gone_on.map_err(|fault| self.faulty(fault, &request.model))
        };
        let ended = match self.protocol.framing() {
            Framing::Sse => for_each_event(&self.server, response, gather).await?,
            Framing::JsonLines => {
                for_each_piece(&self.server, response, LineSplitter::default(), |line| {
                    if line.is_empty() { Ok(ControlFlow::Continue(())) } else { gather(line) }
                })
                .await?
            }
            Framing::Frames => for_each_piece(&self.server, response, FrameSplitter::default(), gather).await?,
        };
        if let Some(reason) = &gathered.withheld {
            let said = format!("it withheld the answer: {reason}; ask for something else, or choose another model");
            // With its status it is no failure that may pass.
            return Err(self.server.bad_response(Some(200), said));
        }
        // Some servers end without the mark; the finish reason says that the answer is whole.
        if !ended && gathered.finish.is_none() {
            let reason = if gathered.bytes() == 0 {
                format!(
                    "the stream ended before the answer began; check that {} is where its API is",
                    self.server.address
                )
            } else {
                "the stream ended before the answer did".to_owned()
            };
            return Err(self.server.bad_response(None, reason));
        }
        Ok(())
    }

    async fn embed_part(&self, part: EmbedPart<'_>) -> Result<protocol::Embedded, ModelError> {
        let call = self.protocol.embed(part).ok_or_else(|| self.unsupported("embed"))?;
        let body = self.server.ask(&call).await.map_err(|error| self.explain(error, part.model))?;
        let (vectors, usage) = self.protocol.embedded(&body).map_err(|fault| self.faulty(fault, part.model))?;
        crate::checked_dimensions(self.spec.name, &vectors, part.inputs.len())?;
        Ok((vectors, usage))
    }

    /// The same, with what had to be cut counted. A service that would cut silently is told to refuse first; then the texts are parted until the one
    /// that is too long is alone.
    async fn embed_whole(&self, part: EmbedPart<'_>, reply: &mut EmbedReply) -> Result<(), ModelError> {
        let mut waiting = vec![part.inputs];
        while let Some(inputs) = waiting.pop() {
            let whole = EmbedPart { inputs, cut: false, ..part };
            let (vectors, used) = match self.embed_part(whole).await {
                Ok(embedded) => embedded,
                Err(error) if !self.protocol.can_cut(part.model) || !is_of_the_texts(&error) => return Err(error),
                Err(_) if inputs.len() == 1 => {
                    reply.truncated += 1;
                    self.embed_part(EmbedPart { cut: true, ..whole }).await?
                }
                Err(_) => {
                    let (first, rest) = inputs.split_at(inputs.len() / 2);
                    waiting.extend([rest, first]);
                    continue;
                }
            };
            reply.vectors.extend(vectors);
            reply.usage += used;
        }
        Ok(())
    }

    /// Whether a server has cut a prompt: it runs a model with no more than it was trained for, whatever it is asked for, so that a prompt which
    /// fills that was longer. Only where it was asked what that is.
    fn check_cut(&self, model: &str, usage: Usage) -> Result<(), ModelError> {
        let known = self.protocol.own_context().and_then(|_| self.trained.lock().get(model).copied().flatten());
        let tokens = usize::try_from(usage.prompt_tokens).unwrap_or(usize::MAX);
        match known {
            Some(limit) if tokens >= limit => {
                Err(ModelError::ContextOverflow { model: model.to_owned(), tokens, limit })
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn count(&self, call: Option<crate::http::Call>, model: &str, what: &str) -> Result<usize, ModelError> {
        self.ready()?;
        let unsupported = || self.unsupported(&format!("{what}: its API shows no tokenizer"));
        let call = call.ok_or_else(unsupported)?;
        let address = self.protocol.count_address(&self.server.address).ok_or_else(unsupported)?;
        let server = Server { address: address.to_owned(), ..self.server.clone() };
        let body = match server.ask(&call).await {
            // A server of the kind that may have a tokenizer, and has none.
            Err(ModelError::ModelMissing { .. } | ModelError::BadRequest { .. })
                if self.kind == ProviderKind::Server =>
            {
                return Err(unsupported());
            }
            answer => answer.map_err(|error| self.explain(error, model))?,
        };
        self.protocol.counted(&body).map_err(|fault| self.faulty(fault, model))?.ok_or_else(unsupported)
    }

    /// What a model was trained for: servers run it with no more, whatever they are asked for. One that does not say so in time, or at all, has its
    /// say when the prompt comes.
    async fn trained_context(&self, model: &str) -> Option<usize> {
        let known = self.trained.lock().get(model).copied();
        if let Some(known) = known {
            return known;
        }
        let call = self.protocol.about(model)?;
        let body = tokio::time::timeout(ABOUT_PATIENCE, self.server.ask(&call)).await.ok()?.ok()?;
        let told = self.protocol.trained_context(&body).ok()?;
        let mut trained = self.trained.lock();
        if trained.len() < MAX_TRAINED {
            trained.insert(model.to_owned(), told);
        }
        told
    }
}

#[async_trait]
impl Provider for Remote {
    fn name(&self) -> &str {
        self.spec.name
    }

    async fn list_models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        self.ready()?;
        let call = self.protocol.list().ok_or_else(|| self.unsupported("list its models"))?;
        let address = self.protocol.list_address(&self.server.address).into_owned();
        let server = Server { address, ..self.server.clone() };
        let body = server.ask(&call).await.map_err(|error| signed::permitted(self.spec, error))?;
        let listed = self.protocol.listed(&body).map_err(|fault| self.faulty(fault, ""))?;
        let info = |model: protocol::Listed| ModelInfo {
            name: model.name,
            provider: self.spec.name.to_owned(),
            kind: model.kind,
            present: true,
            size_bytes: model.size_bytes,
            loaded_bytes: None,
            context_tokens: model.context_tokens,
            dimensions: None,
            source: Some(self.server.address.clone()),
        };
        Ok(listed.into_iter().map(info).collect())
    }

    async fn chat(
        &self,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        self.ready()?;
        if request.grammar.is_some() {
            return Err(self.unsupported("hold an answer to a grammar"));
        }
        let mut underway = Underway::new(self.spec.name, &request, sink);
        let outcome = tokio::select! {
            biased;
            // Dropping the other branch drops the connection, which is how the server learns of it.
            () = cancel.cancelled() => None,
            outcome = self.server.within(self.stream(&request, &mut underway)) => Some(outcome),
        };
        let checked = |()| self.check_cut(&request.model, underway.gathered.usage);
        match outcome.map(|outcome| outcome.and_then(checked)) {
            Some(Err(error)) => {
                underway.broken();
                Err(error)
            }
            Some(Ok(())) => Ok(underway.whole()),
            None => Ok(underway.cancelled()),
        }
    }

    async fn embed(&self, request: EmbedRequest) -> Result<EmbedReply, ModelError> {
        self.ready()?;
        let EmbedRequest { model, inputs, purpose, dimensions: asked } = request;
        let dimensions = asked.filter(|_| self.protocol.takes_dimensions(&model));
        // What a service charges for must be what was asked for. Other servers cost nothing, and the length may be their model's own.
        if let (Some(asked), None, ProviderKind::Hosted) = (asked, dimensions, self.spec.kind) {
            let what = format!(
                "make vectors of {asked} dimensions with {model:?}: its API has no such choice; leave dimensions out"
            );
            return Err(self.unsupported(&what));
        }
        let vectors = Vec::with_capacity(inputs.len());
        let mut reply =
            EmbedReply { model: model.clone(), vectors, dimensions: 0, truncated: 0, usage: Usage::default() };
        for inputs in inputs.chunks(self.protocol.embed_batch(&model)) {
            let part = EmbedPart { model: &model, inputs, purpose, dimensions, cut: false };
            self.embed_whole(part, &mut reply).await?;
        }
        if !reply.vectors.is_empty() {
            reply.dimensions = crate::checked_dimensions(self.spec.name, &reply.vectors, inputs.len())?;
        }
        Ok(reply)
    }

    async fn rerank(&self, request: RerankRequest) -> Result<RerankReply, ModelError> {
        let RerankRequest { model, query, documents } = request;
        let call = self.protocol.rerank(&model, &query, &documents).ok_or_else(|| self.unsupported("re-rank"))?;
        self.ready()?;
        let body = self.server.ask(&call).await.map_err(|error| self.explain(error, &model))?;
        let ranked = self.protocol.ranked(&body).map_err(|fault| self.faulty(fault, &model))?;
        let scores = in_order(ranked, documents.len()).map_err(|reason| self.server.bad_response(None, reason))?;
        Ok(RerankReply { scores, usage: self.protocol.rank_usage(&body) })
    }

    fn leaves_out(&self, request: &ChatRequest) -> Option<&'static str> {
        self.protocol.leaves_out(request)
    }

    async fn probe(&self) -> Result<ProbeReport, ModelError> {
        let start = Instant::now();
        self.ready()?;
        let version = match self.protocol.version() {
            None => None,
            Some(call) => {
                let body = self.server.ask(&call).await?;
                let answer: Value = protocol::json(&body).map_err(|fault| self.faulty(fault, ""))?;
                answer["version"].as_str().map(str::to_owned)
            }
        };
        let latency_ms = start.elapsed().as_millis() as u64;
        let models = self.list_models().await?.len();
        let address = Some(self.server.address.clone());
        Ok(ProbeReport { provider: self.spec.name.to_owned(), address, version, latency_ms, models })
    }

    async fn count_tokens(&self, model: &str, text: &str) -> Result<usize, ModelError> {
        self.count(self.protocol.count_text(model, text), model, "count tokens").await
    }

    async fn count_prompt(&self, request: &ChatRequest) -> Result<usize, ModelError> {
        self.count(self.protocol.count_prompt(request), &request.model, "count the tokens of a whole prompt").await
    }

    async fn context_tokens(&self, model: &str) -> Result<usize, ModelError> {
        if let Some(asked) = self.protocol.own_context() {
            return Ok(self.trained_context(model).await.map_or(asked, |trained| trained.min(asked)));
        }
        let contexts = self.contexts.get_or_try_init(|| async {
            let listed = self.list_models().await?.into_iter();
            let known = listed.filter_map(|info| Some((info.name, usize::try_from(info.context_tokens?).ok()?)));
            Ok::<_, ModelError>(known.collect())
        });
        contexts.await?.get(model).copied().ok_or_else(|| self.unsupported("tell the size of the context"))
    }
}

/// Writes a field of a request; what is not given is left out.
fn set(object: &mut Value, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[name] = value;
    }
}

/// A number as it was written: what is 0.2 in 32 bits is not 0.20000000298 on the wire.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Adds the path of an API to an address that names only a server.
fn with_path(address: &str, path: &str) -> String {
    let address = address.trim_end_matches('/');
    match reqwest::Url::parse(address) {
        Ok(url) if url.path() == "/" => format!("{address}{path}"),
        _ => address.to_owned(),
    }
}

/// Scores in the order of the documents; each document has exactly one.
fn in_order(ranked: Vec<(usize, f32)>, documents: usize) -> Result<Vec<f32>, String> {
    let mut scores = vec![None; documents];
    for (index, score) in ranked {
        match scores.get_mut(index) {
            Some(place) => *place = Some(score).filter(|score| score.is_finite()),
            None => return Err(format!("it scores a document {index} that was not sent")),
        }
    }
    scores.into_iter().collect::<Option<Vec<f32>>>().ok_or_else(|| "it leaves documents without a score".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_addresses_when_the_path_is_added_then_only_bare_servers_change() {
        assert_eq!(with_path("http://127.0.0.1:8080", "/v1"), "http://127.0.0.1:8080/v1");
        assert_eq!(with_path("http://127.0.0.1:8080/", "/v1"), "http://127.0.0.1:8080/v1");
        assert_eq!(with_path("https://gate.example/openai/v1", "/v1"), "https://gate.example/openai/v1");
    }

    #[test]
    fn given_numbers_when_they_are_sent_then_they_are_as_they_were_written() {
        assert_eq!(number(0.2).to_string(), "0.2");
        assert_eq!(number(1.0).to_string(), "1.0");
    }
}
