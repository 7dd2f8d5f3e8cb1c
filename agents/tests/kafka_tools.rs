//! Kafka tools over a real broker: whoever answers, however often, and whenever.

use std::sync::Arc;
use std::time::Duration;

use riverrun_agents::tools::{DefinedConfig, DefinedTools, ToolContext, ToolError, Toolbox};
use riverrun_knowledge::web::{GuardedClient, WebPolicy};
use riverrun_log::{EmbeddedBroker, LogConfig, Producer, Schemas, StartAt, Tail, TopicPartition, admin};
use riverrun_schemas::tools::{ToolAnswer, ToolAnswered, ToolCall, ToolCalled};
use riverrun_schemas::{Decoded, Namespace, Topic, topics};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    _broker: EmbeddedBroker,
    log: LogConfig,
    producer: Producer,
    folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = EmbeddedBroker::start(&folder.path().join("broker"), 0).await.unwrap();
        let log = broker.config("test");
        admin::ensure_topics(&log, topics::all_specs()).await.unwrap();
        let producer = Producer::new(&log).unwrap();
        Self { _broker: broker, log, producer, folder }
    }

    /// A process with the tool `ask`, and what stops it.
    fn process(&self, timeout_s: u64) -> (Toolbox, DefinedTools, CancellationToken) {
        let (defined, stop) = (self.defined(timeout_s), CancellationToken::new());
        defined.connect(self.log.clone(), self.producer.clone(), stop.clone());
        (Toolbox::default().with_set(Arc::new(defined.clone())), defined, stop)
    }

    fn defined(&self, timeout_s: u64) -> DefinedTools {
        let file = self.folder.path().join("tools.toml");
        let text = format!(
            "[[tool]]\nname = \"ask\"\ndescription = \"d\"\neffect = \"idempotent\"\ntimeout_s = {timeout_s}\n\
             arguments.q = {{ type = \"string\" }}\nkafka = {{}}\n"
        );
        std::fs::write(&file, text).unwrap();
        let defined = DefinedTools::load(&DefinedConfig {
            file: Some(file),
            must_exist: true,
            web: GuardedClient::new(WebPolicy::default()),
            sandbox: None,
            secrets: Arc::new(|_| None),
        });
        assert_eq!(defined.problems(), []);
        defined
    }

    /// The same where the broker is away.
    fn process_alone(&self) -> Toolbox {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let away = LogConfig::new(nobody.local_addr().unwrap().to_string(), "test");
        drop(nobody);
        let defined = self.defined(1);
        defined.connect(away.clone(), Producer::new(&away).unwrap(), CancellationToken::new());
        Toolbox::default().with_set(Arc::new(defined))
    }

    /// Every call on the topic.
    async fn calls(&self) -> Vec<ToolCalled> {
        let mut all = Vec::new();
        for partition in 0..Topic::ToolsCalls.spec().partitions {
            let partition = TopicPartition::new(Topic::ToolsCalls.name(), partition);
            let range = Tail::read_range(&self.log, partition, StartAt::Beginning).await.unwrap();
            for record in range.collect().await.unwrap() {
                match Schemas::built_in().decode::<ToolCall>(&record).unwrap() {
                    Decoded::Event(ToolCall::ToolCalled(call)) => all.push(call),
                    Decoded::UnknownType { record } => panic!("{record}"),
                }
            }
        }
        all
    }

    async fn asked(&self, call_id: &str) -> ToolCalled {
        tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(call) = self.calls().await.into_iter().find(|call| call.call_id == call_id) {
                    return call;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("the call is on the topic in time")
    }

    async fn answer(&self, call_id: &str, result: Value) {
        let answer =
            ToolAnswered { call_id: call_id.into(), result_json: Some(result.to_string()), error: None, at: 0 };
        self.producer.send(&ToolAnswer::from(answer), "test", None).await.unwrap();
    }
}

fn context(call_id: &str) -> ToolContext {
    ToolContext {
        namespace: Namespace::default(),
        collections: None,
        call_id: call_id.into(),
        cancel: CancellationToken::new(),
        memory: None,
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn ask(toolbox: &Toolbox, call_id: &'static str) -> tokio::task::JoinHandle<Result<Value, ToolError>> {
    let toolbox = toolbox.clone();
    tokio::spawn(async move { toolbox.call("ask", json!({ "q": "how many" }), &context(call_id)).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_call_when_it_is_answered_twice_then_the_first_counts_and_the_second_is_counted() {
    let world = World::new().await;
    let (toolbox, defined, _stop) = world.process(60);
    let waiting = ask(&toolbox, "call_a");
    let call = world.asked("call_a").await;
    assert_eq!((call.tool.as_str(), call.arguments_json.as_str()), ("ask", "{\"q\":\"how many\"}"));
    assert!(call.deadline > call.at);
    world.answer("call_a", json!({ "n": 1 })).await;
    world.answer("call_a", json!({ "n": 2 })).await;
    assert_eq!(waiting.await.unwrap(), Ok(json!({ "n": 1 })));
    until("the second answer", || defined.topic_counts().unwrap().doubles == 1).await;
    assert_eq!(ask(&toolbox, "call_a").await.unwrap(), Ok(json!({ "n": 1 })), "who asks again gets the first");
    assert_eq!(world.calls().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_process_that_dies_between_call_and_answer_when_the_next_one_asks_then_it_finds_both() {
    let world = World::new().await;
    let (toolbox, _, stop) = world.process(60);
    let waiting = ask(&toolbox, "call_b");
    world.asked("call_b").await;
    stop.cancel();
    waiting.abort();
    // One that asks before the answer waits for it; one that asks after it has it at once. Neither asks again.
    let (before, _, _stop) = world.process(60);
    let waiting = ask(&before, "call_b");
    world.answer("call_b", json!("done")).await;
    assert_eq!(waiting.await.unwrap(), Ok(json!("done")));
    let (after, _, _stop) = world.process(60);
    assert_eq!(ask(&after, "call_b").await.unwrap(), Ok(json!("done")));
    assert_eq!(world.calls().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_call_that_nobody_answers_in_time_when_the_answer_comes_then_it_is_late_and_serves_a_next_try() {
    let world = World::new().await;
    let (toolbox, defined, _stop) = world.process(1);
    let error = ask(&toolbox, "call_c").await.unwrap().unwrap_err();
    assert_eq!(error, ToolError::TimedOut(Duration::from_secs(1)));
    world.answer("call_c", json!(3)).await;
    until("the late answer", || defined.topic_counts().unwrap().answers == 1).await;
    assert_eq!(ask(&toolbox, "call_c").await.unwrap(), Ok(json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_broker_that_is_away_when_a_tool_is_called_then_nothing_was_asked_and_its_outcome_is_known() {
    let world = World::new().await;
    let error = ask(&world.process_alone(), "call_d").await.unwrap().unwrap_err();
    assert!(matches!(error, ToolError::NotSent(_)), "{error:?}");
    assert!(!error.leaves_outcome_unknown());
}
