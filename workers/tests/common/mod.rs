//! A broker, a scripted model server and what is needed to run the agent worker against them.

#![allow(dead_code)] // each test file uses its part

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use riverrun_agents::tools::{
    MAX_TOOL_TIME, Passages, Search, SearchFailure, Tool, ToolContext, ToolError, ToolLimits, ToolManifest, ToolSet,
    Toolbox,
};
use riverrun_log::{
    BlobStore, EmbeddedBroker, LogConfig, ObjectStoreBlobs, Producer, Schemas, StartAt, Tail, TopicPartition, admin,
};
use riverrun_models::{Known, ModelSettings, Models};
use riverrun_schemas::agent::{
    AgentCommand, AgentEvent, ApprovalPolicy, RunFinished, RunRequest, StartRun, ToolEffect,
};
use riverrun_schemas::{CollectionName, Decoded, Namespace, RunId, Topic, now_ms, topics};
use riverrun_stores::LocalCache;
use riverrun_workers::agent::{self, AgentWorkerConfig};
use riverrun_workers::runtime::WorkerHandle;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const PATIENCE: Duration = Duration::from_secs(120);
/// Events that a message shows.
const MAX_SHOWN: usize = 40;
/// Of the worker with runs that wait for others.
pub(crate) const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(5);

/// Speaks Ollama's chat API and follows a script: as long as there is no observation in the conversation it calls the
/// tool `count`, then it answers.
struct ScriptedModel {
    requests: Arc<AtomicUsize>,
    delay: Duration,
}

impl Respond for ScriptedModel {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let observed = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .any(|m| m["role"] == "user" && m["content"].as_str().unwrap().contains("<observation tool"));
        let candidates = &body["format"]["properties"]["agent"]["enum"];
        let text = match (body["format"].is_object(), observed) {
            _ if candidates.is_array() => json!({ "reason": "the second", "agent": candidates[1] }).to_string(),
            (true, false) => json!({ "thought": "count", "tool": "count", "arguments": {} }).to_string(),
            (true, true) => json!({ "thought": "enough", "tool": "answer", "arguments": {} }).to_string(),
            (false, _) => "it was counted".to_owned(),
        };
        let piece = json!({ "model": "scripted", "message": { "role": "assistant", "content": text }, "done": false });
        let end = json!({ "model": "scripted", "message": { "role": "assistant", "content": "" }, "done": true,
            "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5 });
        ResponseTemplate::new(200).set_body_string(format!("{piece}\n{end}\n")).set_delay(self.delay)
    }
}

/// Speaks Ollama's embedding API; what is to be like the writing of letters says so.
struct ScriptedEmbeddings;

impl Respond for ScriptedEmbeddings {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let letter = |text: &Value| text.as_str().unwrap().to_lowercase().contains("letter");
        let vector = |text: &Value| if letter(text) { json!([1.0, 0.0]) } else { json!([0.0, 1.0]) };
        let vectors: Vec<Value> = body["input"].as_array().unwrap().iter().map(vector).collect();
        ResponseTemplate::new(200).set_body_json(json!({ "embeddings": vectors, "prompt_eval_count": 1 }))
    }
}

/// Counts its calls.
struct Count {
    calls: Arc<AtomicUsize>,
    effect: ToolEffect,
    delay: Duration,
    time: Duration,
}

#[async_trait]
impl Tool for Count {
    fn manifest(&self) -> ToolManifest {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let limits = ToolLimits { timeout: self.time, ..ToolLimits::default() };
        ToolManifest::builtin("count", "Counts.", schema, self.effect).limited(limits)
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let n = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(self.delay).await;
        Ok(json!(n))
    }
}

struct NoKnowledge;

#[async_trait]
impl Search for NoKnowledge {
    async fn search(
        &self,
        _: &Namespace,
        _: Option<&[CollectionName]>,
        _: &str,
        _: usize,
    ) -> Result<Passages, SearchFailure> {
        Ok(Passages::default())
    }
}

pub(crate) struct World {
    _broker: EmbeddedBroker,
    log: LogConfig,
    producer: Producer,
    model: MockServer,
    pub requests: Arc<AtomicUsize>,
    pub calls: Arc<AtomicUsize>,
    effect: ToolEffect,
    tool_delay: Duration,
    tool_time: Duration,
    folder: tempfile::TempDir,
    context_tokens: Option<usize>,
    more_tools: Vec<Arc<dyn Tool>>,
    set: Option<Arc<dyn ToolSet>>,
    places: usize,
    card: Option<Known>,
    store: Option<Arc<dyn BlobStore>>,
}

impl World {
    pub(crate) async fn new(effect: ToolEffect, model_delay: Duration, tool_delay: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = EmbeddedBroker::start(&folder.path().join("broker"), 0).await.unwrap();
        let log = broker.config("test");
        admin::ensure_topics(&log, topics::all_specs()).await.unwrap();
        let model = MockServer::start().await;
        let requests = Arc::new(AtomicUsize::new(0));
        let scripted = ScriptedModel { requests: requests.clone(), delay: model_delay };
        Mock::given(method("POST")).and(path("/api/chat")).respond_with(scripted).mount(&model).await;
        Mock::given(method("POST")).and(path("/api/embed")).respond_with(ScriptedEmbeddings).mount(&model).await;
        let producer = Producer::new(&log).unwrap();
        let calls = Arc::default();
        let (context_tokens, more_tools) = (None, Vec::new());
        Self {
            _broker: broker,
            log,
            producer,
            model,
            requests,
            calls,
            effect,
            tool_delay,
            // However slow the machine: what is to hang here hangs longer than any test.
            tool_time: MAX_TOOL_TIME,
            folder,
            context_tokens,
            more_tools,
            set: None,
            places: 64,
            card: None,
            store: None,
        }
    }

    /// The tool may take so long.
    pub(crate) fn with_tool_time(self, time: Duration) -> Self {
        Self { tool_time: time, ..self }
    }

    /// Workers that drive so many runs at once, and have these tools besides.
    pub(crate) fn with_places(self, places: usize, set: Option<Arc<dyn ToolSet>>) -> Self {
        Self { places, set, ..self }
    }

    /// A model that has a card.
    pub(crate) fn with_card(self, card: Known) -> Self {
        Self { card: Some(card), ..self }
    }

    /// The same with another model behind the same address, in whose context so many tokens fit, and with one more tool.
    pub(crate) async fn with(self, model: impl Respond + 'static, tokens: Option<usize>, tool: Arc<dyn Tool>) -> Self {
        self.model.reset().await;
        Mock::given(method("POST")).and(path("/api/chat")).respond_with(model).mount(&self.model).await;
        Self { context_tokens: tokens, more_tools: vec![tool], ..self }
    }

    /// Another blob store than its folder.
    pub(crate) fn with_store(self, store: Arc<dyn BlobStore>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// A model with a context of so many tokens.
    pub(crate) fn with_context(self, tokens: usize) -> Self {
        Self { context_tokens: Some(tokens), ..self }
    }

    /// What stands behind the address of the model.
    pub(crate) fn model(&self) -> &MockServer {
        &self.model
    }

    /// Where its blobs lie.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.folder.path().join("blobs")
    }

    /// How its broker is reached.
    pub(crate) fn log(&self) -> &LogConfig {
        &self.log
    }

    pub(crate) fn worker(&self, instance: &str) -> (WorkerHandle, CancellationToken) {
        let stop = CancellationToken::new();
        let address = self.model.uri();
        let env = |name: &str| match name {
            "RIVERRUN_MODEL_RUNTIME_BASE_URL" => Some(address.clone()),
            "RIVERRUN_LLAMACPP_BASE_URL" => Some(format!("{address}/v1")),
            "RIVERRUN_DEFAULT_CHAT_MODEL" => Some("scripted".to_owned()),
            "RIVERRUN_DEFAULT_EMBED_MODEL" => Some("ollama/scripted".to_owned()),
            "RIVERRUN_MODEL_CONTEXT_TOKENS" => self.context_tokens.map(|tokens| tokens.to_string()),
            _ => None,
        };
        let models = Models::new(ModelSettings::from_env(&env).unwrap()).unwrap();
        if let Some(card) = self.card {
            models.know("ollama", "scripted", card);
        }
        let (effect, delay, time) = (self.effect, self.tool_delay, self.tool_time);
        let count = Count { calls: self.calls.clone(), effect, delay, time };
        let toolbox = Toolbox::builtin(Arc::new(NoKnowledge)).with(Arc::new(count));
        let toolbox = self.more_tools.iter().fold(toolbox, |toolbox, tool| toolbox.with(tool.clone()));
        let toolbox = self.set.iter().fold(toolbox, |toolbox, set| toolbox.with_set(set.clone()));
        let local = || -> Arc<dyn BlobStore> { Arc::new(ObjectStoreBlobs::local(&self.blobs()).unwrap()) };
        let blobs = self.store.clone().unwrap_or_else(local);
        let config = AgentWorkerConfig {
            log: self.log.clone(),
            schemas: Schemas::built_in(),
            instance: Some(instance.to_owned()),
            max_concurrent_runs: self.places,
            default_max_iters: 8,
            default_temperature: 0.0,
            policy: Arc::default(),
            predecessor_patience: PREDECESSOR_PATIENCE,
            cache: Arc::new(LocalCache::default()),
        };
        (agent::spawn(config, self.producer.clone(), models, toolbox, blobs, stop.clone()), stop)
    }

    pub(crate) async fn start(&self, run_id: RunId) {
        self.command(StartRun { run_id, request: request(), at: now_ms() }.into()).await;
    }

    pub(crate) async fn command(&self, command: AgentCommand) {
        self.producer.send(&command, "test", None).await.unwrap();
    }

    /// Every run event so far, in the order of its partition.
    pub(crate) async fn events(&self) -> Vec<AgentEvent> {
        let mut all = Vec::new();
        for partition in 0..Topic::AgentEvents.spec().partitions {
            let partition = TopicPartition::new(Topic::AgentEvents.name(), partition);
            let range = Tail::read_range(&self.log, partition, StartAt::Beginning).await.unwrap();
            for record in range.collect().await.unwrap() {
                match Schemas::built_in().decode::<AgentEvent>(&record).unwrap() {
                    Decoded::Event(event) => all.push(event),
                    Decoded::UnknownType { record } => panic!("{record}"),
                }
            }
        }
        all
    }

    /// Waits until a condition over all events holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&[AgentEvent]) -> bool) -> Vec<AgentEvent> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let events = self.events().await;
            if holds(&events) {
                return events;
            }
            let last = &events[events.len().saturating_sub(MAX_SHOWN)..];
            assert!(
                tokio::time::Instant::now() < deadline,
                "not in time: {what}; {} events, the last: {last:#?}",
                events.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the agents' group has no command left to handle, as whoever scales workers by lag asks the broker.
    pub(crate) async fn without_lag(&self) {
        let topics = vec![Topic::AgentCommands.name().to_owned()];
        let groups = [admin::GroupTopics { group: agent::GROUP.to_owned(), topics }];
        let asked = admin::Admin::new(&self.log).unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let lag: i64 = asked.lag(&groups).await.unwrap().iter().map(|line| line.lag).sum();
            if lag == 0 {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "not in time: {lag} commands are not handled");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the tool is being called; its step stands on the log before.
    pub(crate) async fn called(&self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.calls.load(Ordering::SeqCst) == 0 {
            assert!(tokio::time::Instant::now() < deadline, "the tool was not called");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn finished(&self, run_id: RunId) -> RunFinished {
        let events = self.until("the run ends", |events| ends(events, run_id) > 0).await;
        let end = |event| match event {
            AgentEvent::RunFinished(end) if end.run_id == run_id => Some(end),
            _ => None,
        };
        events.into_iter().find_map(end).unwrap()
    }
}

pub(crate) fn request() -> RunRequest {
    RunRequest {
        task: "count once".into(),
        agent: Some("react".into()),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    }
}

pub(crate) fn ends(events: &[AgentEvent], run_id: RunId) -> usize {
    events.iter().filter(|e| matches!(e, AgentEvent::RunFinished(f) if f.run_id == run_id)).count()
}
